# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables of roles as surveys give them: text in the type of the default, empty text for the default, and clear refusals."""

from __future__ import annotations

import typing as t

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.accel.gpu.plugins.filter.role_options import role_options
from tests.programs import REPO

DEFAULTS: dict[str, t.Any] = {"only": [], "timeout": 600, "wait": True, "counts": {}, "path": ""}


@pytest.mark.parametrize(
    ("name", "value", "actual"),
    [
        ("only", "train", ["train"]),
        ("only", "train, notebooks", ["train", "notebooks"]),
        ("only", "train\nnotebooks\n", ["train", "notebooks"]),
        ("only", "[train]", ["train"]),
        ("only", ["train"], ["train"]),
        ("only", "", []),
        ("only", "[]", []),
        ("only", [], []),
        ("only", None, []),
        ("timeout", "60", 60),
        ("timeout", 0, 0),
        ("timeout", "", 600),
        ("timeout", None, 600),
        ("wait", "no", False),
        ("wait", False, False),
        ("wait", "", True),
        ("counts", {"train": "3"}, {"train": "3"}),
        ("counts", '{"train": 3}', {"train": 3}),
        ("counts", " ", {}),
        ("path", "/tmp/x", "/tmp/x"),
        ("path", None, ""),
    ],
)
def test_values(name: str, value: t.Any, actual: t.Any) -> None:
    result = role_options({name: value}, DEFAULTS)
    assert result == {name: actual}
    assert type(result[name]) is type(actual)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("only", {"train": 1}, "only: is not a list of names; use comma-separated names"),
        ("only", True, "only: true is not a list of names"),
        ("only", ",", 'only: "," contains no name; use comma-separated names'),
        ("only", [""], "only: contains no name"),
        ("timeout", "4 nodes", 'timeout: "4 nodes" is a string, not a whole number; use only decimal digits'),
        ("timeout", 1.5, "timeout: 1.5 is a number with a fraction, not a whole number"),
        ("timeout", True, "timeout: true is a boolean, not a whole number"),
        ("timeout", -1, "timeout: -1 is not allowed: set a number from 0 to 2147483647"),
        ("timeout", 10**30, "is not allowed: set a number from 0 to"),
        ("wait", "maybe", 'wait: "maybe" is a string, not a boolean; write true or false'),
        ("wait", 1, "wait: 1 is a number, not a boolean"),
        ("counts", "train=3", 'counts: "train=3" is a string, not a map; write it as JSON'),
        ("counts", [3], "counts: is a list, not a map"),
        ("path", ["x"], "path: is a list, not a string"),
        ("other", 1, "other: has no default"),
    ],
)
def test_what_is_refused(name: str, value: t.Any, message: str) -> None:
    with pytest.raises(AnsibleFilterError) as raised:
        role_options({name: value}, DEFAULTS)
    assert str(raised.value).startswith(message) or message in str(raised.value)


def test_all_problems_at_once() -> None:
    with pytest.raises(AnsibleFilterError) as raised:
        role_options({"wait": "x", "timeout": "y", "only": "ok"}, DEFAULTS)
    assert [line.partition(":")[0] for line in str(raised.value).splitlines()] == ["wait", "timeout"]


def test_a_default_is_not_shared() -> None:
    assert role_options({"only": ""}, DEFAULTS)["only"] is not DEFAULTS["only"]


@pytest.mark.parametrize("path", sorted(REPO.glob("roles/*/meta/argument_specs.yml")), ids=lambda path: path.parts[-3])
def test_the_defaults_are_those_of_the_argument_specs(path: t.Any) -> None:
    """Empty text selects the default of defaults/main.yml, and the documentation has the same default."""
    defaults = path.parents[1] / "defaults" / "main.yml"
    existing = yaml.safe_load(defaults.read_text()) or {}
    documented = yaml.safe_load(path.read_text())["argument_specs"]["main"].get("options", {})
    literal = {name: value for name, value in existing.items() if not (isinstance(value, str) and "{{" in value)}
    assert {name: documented[name].get("default") for name in literal if name in documented} == {
        name: value for name, value in literal.items() if name in documented
    }
    assert set(literal) <= set(documented)
