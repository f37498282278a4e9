# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans the OperatorGroup of a namespace, and checks whether an existing one is suitable for the operator (pure).

OLM installs nothing in a namespace that does not have exactly one OperatorGroup, and no condition of the Subscription reports this. Sources: OLM's
documentation "Operator Groups" and "Install Modes".
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..schema.messages import abbreviate, join_words, option_of_role
from .problem import SHORT, Problem

Object = t.Mapping[str, t.Any]

OWN, SINGLE, MULTI, ALL = "OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"
MULTIPLE = "operator_group_multiple"
_OPERATOR_GROUP = option_of_role("olm.operator_group", "operator_group")
_TARGET_NAMESPACES = option_of_role("olm.target_namespaces", "target_namespaces")


@dataclass(frozen=True)
class GroupDecision:
    """The group to use or to create, or the problem that prevents this."""

    name: str = ""
    # The target namespaces of a group to create; None if the group exists and is used unchanged.
    targets: tuple[str, ...] | None = None
    problem: Problem | None = None


def decide_group(
    groups: t.Sequence[Object],
    namespace: str,
    modes: frozenset[str] | None,
    *,
    name: str,
    default_name: str,
    targets: t.Sequence[str] | None,
) -> GroupDecision:
    """Decide which group to use. If `targets` is None, the install modes determine the namespaces; an empty list selects all namespaces."""
    problem = targets_problem(namespace, targets, modes) if targets is not None else None
    if problem:
        return GroupDecision(problem=problem)
    if len(groups) > 1:
        return GroupDecision(problem=several_groups(namespace, groups))
    if not groups:
        chosen = tuple(targets) if targets is not None else default_targets(namespace, modes)
        return GroupDecision(name or default_name, chosen)
    group = groups[0]
    existing_name = str(group["metadata"]["name"])
    if name and name != existing_name:
        return GroupDecision(problem=_second_group(namespace, existing_name, name))
    live = group_targets(group)
    if targets is not None and live is not None and sorted(live) != sorted(targets):
        return GroupDecision(problem=_other_targets(namespace, existing_name, live, targets))
    return GroupDecision(existing_name, problem=_unsupported(namespace, group, modes))


def default_targets(namespace: str, modes: frozenset[str] | None) -> tuple[str, ...]:
    """The target namespaces of a new group. This is the group's own namespace, unless the operator supports only all namespaces."""
    return (namespace,) if modes is None or OWN in modes or ALL not in modes else ()


def group_targets(group: Object) -> tuple[str, ...] | None:
    """The target namespaces of a group; empty for all namespaces, and None if a selector determines the namespaces and OLM has not listed them yet."""
    spec, status = group.get("spec") or {}, group.get("status") or {}
    if not spec.get("selector"):
        return tuple(spec.get("targetNamespaces") or ())
    namespaces = status.get("namespaces")
    return None if namespaces is None else tuple(item for item in namespaces if item)


def required_mode(namespace: str, targets: t.Sequence[str]) -> str:
    """The install mode that an operator must support for these target namespaces."""
    if not targets:
        return ALL
    if len(targets) > 1:
        return MULTI
    return OWN if targets[0] == namespace else SINGLE


def targets_problem(namespace: str, targets: t.Sequence[str], modes: frozenset[str] | None) -> Problem | None:
    """The problem that the operator does not support the declared namespaces; None if it supports them."""
    mode = required_mode(namespace, targets)
    if modes is None or mode in modes:
        return None
    return Problem(
        code="install_mode",
        subject="Option target_namespaces",
        field="install mode",
        value=mode,
        rule=f"The operator supports only {join_words(sorted(modes))}.",
        remedy=_mode_remedy(_TARGET_NAMESPACES, namespace, modes),
    )


def several_groups(namespace: str, groups: t.Sequence[Object]) -> Problem:
    """The problem that the namespace has several OperatorGroups."""
    names = sorted(str(group["metadata"]["name"]) for group in groups)
    return Problem(
        code=MULTIPLE,
        subject=f"Namespace {namespace}",
        field="OperatorGroups",
        verb="are",
        value=abbreviate(names),
        rule="OLM does not install anything in a namespace with more than one OperatorGroup.",
        remedy=f"Delete all except one, for example: kubectl -n {namespace} delete operatorgroup {names[-1]}.",
    )


def no_group(namespace: str) -> Problem:
    """The problem that the namespace has no OperatorGroup."""
    return Problem(
        code="operator_group_missing",
        subject=f"Namespace {namespace}",
        field="OperatorGroups",
        verb="are",
        value="none",
        rule="Without an OperatorGroup, OLM installs nothing and reports no condition. The OperatorGroup was deleted during the run.",
        remedy="Run the playbook again, which creates it.",
        minimum_seconds=SHORT,
    )


def _second_group(namespace: str, existing_name: str, name: str) -> Problem:
    return Problem(
        code=MULTIPLE,
        subject=f"OperatorGroup {namespace}/{existing_name}",
        field="metadata.name",
        value=existing_name,
        rule=f"A second OperatorGroup ({name}) would prevent OLM from installing anything in this namespace.",
        remedy=f"Remove {_OPERATOR_GROUP}, or set it to {existing_name}.",
    )


def _other_targets(namespace: str, existing_name: str, live: t.Sequence[str], targets: t.Sequence[str]) -> Problem:
    return Problem(
        code="operator_group",
        subject=f"OperatorGroup {namespace}/{existing_name}",
        field="spec.targetNamespaces",
        value=join_words(live) if live else "all namespaces",
        rule=f"The declared target_namespaces are {join_words(targets) if targets else 'all namespaces'}, but existing groups are not changed.",
        remedy=f"Change the group yourself, or remove {_TARGET_NAMESPACES}.",
    )


def _unsupported(namespace: str, group: Object, modes: frozenset[str] | None) -> Problem | None:
    targets = group_targets(group)
    if targets is None or modes is None or required_mode(namespace, targets) in modes:
        return None
    return Problem(
        code="install_mode",
        subject=f"OperatorGroup {namespace}/{group['metadata']['name']}",
        field="spec.targetNamespaces",
        value=join_words(targets) if targets else "all namespaces",
        rule=(
            f"This needs the install mode {required_mode(namespace, targets)}, but the operator supports only "
            f"{join_words(sorted(modes))}."
        ),
        remedy=_mode_remedy("the target namespaces of the group", namespace, modes),
    )


def _mode_remedy(what: str, namespace: str, modes: frozenset[str]) -> str:
    if OWN in modes:
        return f"Set {what} to [{namespace}], or use another namespace."
    return f"Set {what} to all namespaces (an empty list), or use another namespace."
