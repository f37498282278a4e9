# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The OperatorGroup: created when there is none, refused when there would be two, checked against the install modes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.olm.observed import (
    ALL,
    MULTI,
    OWN,
    SINGLE,
    decide_group,
    default_targets,
    required_mode,
)
from tests.helpers.olm_objects import NAMESPACE, group

OWN_MODES = frozenset({OWN, SINGLE})
MODES = st.frozensets(st.sampled_from([OWN, SINGLE, MULTI, ALL]), min_size=1)


def decide(groups: list[Any], modes: frozenset[str] | None = OWN_MODES, **options: Any) -> Any:
    return decide_group(groups, NAMESPACE, modes, **{"name": "", "default_name": "default", "targets": None, **options})


@pytest.mark.parametrize(
    ("modes", "options", "name", "targets"),
    [
        (OWN_MODES, {}, "default", (NAMESPACE,)),
        (frozenset({ALL}), {}, "default", ()),
        (frozenset({OWN, ALL}), {}, "default", (NAMESPACE,)),
        (frozenset({MULTI}), {}, "default", (NAMESPACE,)),
        (None, {}, "default", (NAMESPACE,)),
        (OWN_MODES, {"name": "mine"}, "mine", (NAMESPACE,)),
        (OWN_MODES, {"targets": ["other"]}, "default", ("other",)),
        (frozenset({ALL}), {"targets": []}, "default", ()),
    ],
)
def test_created(modes: frozenset[str] | None, options: dict[str, Any], name: str, targets: tuple[str, ...]) -> None:
    decision = decide([], modes, **options)
    assert (decision.name, decision.targets, decision.problem) == (name, targets, None)


@pytest.mark.parametrize(
    ("existing", "modes", "options"),
    [
        (group(), OWN_MODES, {}),
        (group(), OWN_MODES, {"name": "group"}),
        (group(), OWN_MODES, {"targets": [NAMESPACE]}),
        (group(targetNamespaces=["other"]), OWN_MODES, {}),
        (group(upgradeStrategy="Default"), frozenset({ALL}), {}),
        (group(upgradeStrategy="Default"), None, {}),
        # A selector that OLM has not evaluated yet.
        (group(selector={"matchLabels": {"a": "b"}}), OWN_MODES, {}),
    ],
)
def test_an_existing_group_is_used(existing: Any, modes: frozenset[str] | None, options: dict[str, Any]) -> None:
    decision = decide([existing], modes, **options)
    assert (decision.name, decision.targets, decision.problem) == ("group", None, None)


@pytest.mark.parametrize(
    ("groups", "modes", "options", "code", "text"),
    [
        ([group("a"), group("b")], OWN_MODES, {}, "operator_group_multiple", "delete operatorgroup b"),
        (
            [group()],
            OWN_MODES,
            {"name": "mine"},
            "operator_group_multiple",
            "olm.operator_group (option operator_group of the module), or set it to group",
        ),
        ([group()], OWN_MODES, {"targets": ["other"]}, "operator_group", "existing groups are not changed"),
        ([group(upgradeStrategy="Default")], OWN_MODES, {}, "install_mode", "needs the install mode AllNamespaces"),
        ([group(targetNamespaces=["a", "b"])], OWN_MODES, {}, "install_mode", "a and b"),
        ([group()], frozenset({ALL}), {}, "install_mode", "to all namespaces"),
        ([], OWN_MODES, {"targets": []}, "install_mode", "only OwnNamespace and SingleNamespace"),
        ([group()], OWN_MODES, {"targets": []}, "install_mode", "Option target_namespaces"),
        (
            [],
            OWN_MODES,
            {"targets": []},
            "install_mode",
            "Set olm.target_namespaces (option target_namespaces of the module) to [nvidia",
        ),
        (
            [group(upgradeStrategy="Default")],
            OWN_MODES,
            {},
            "install_mode",
            "Set the target namespaces of the group to [nvidia",
        ),
    ],
)
def test_problems(groups: list[Any], modes: frozenset[str], options: dict[str, Any], code: str, text: str) -> None:
    problem = decide(groups, modes, **options).problem
    assert problem
    assert problem.code == code
    assert text in str(problem)


@given(MODES)
def test_a_new_group_suits_the_operator_if_one_of_its_own_namespace_or_of_all_can(modes: frozenset[str]) -> None:
    mode = required_mode(NAMESPACE, default_targets(NAMESPACE, modes))
    assert mode in modes or not modes & {OWN, ALL}
