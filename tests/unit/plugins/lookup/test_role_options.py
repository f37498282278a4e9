# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of a role: those of its defaults, converted, with the defaults that are templates, and without those that are not converted."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml

from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.programs import environment

DEFAULTS = {
    "gpu_example_names": [],
    "gpu_example_timeout": "{{ gpu_timeout | default(600, true) }}",
    "gpu_example_wait": True,
    "gpu_example_token": "",
}
VARS = {
    "__example_options": "{{ lookup('accel.gpu.role_options', role_path) }}",
    "__example_computed_defaults": {"gpu_example_timeout": DEFAULTS["gpu_example_timeout"]},
    "__example_unconverted": "gpu_example_(token|key)",
}
TASK = {"name": "Show", "ansible.builtin.debug": {"msg": "options {{ __example_options | to_json(sort_keys=true) }}"}}
CONVERTED = '{"gpu_example_names": [], "gpu_example_timeout": 600, "gpu_example_wait": true}'


def play(folder: Path, **variables: t.Any) -> PlaybookRun:
    """Run a role whose only task shows the result of the lookup."""
    for name, content in {"defaults": DEFAULTS, "vars": VARS, "tasks": [TASK]}.items():
        (folder / "roles" / "example" / name).mkdir(parents=True)
        (folder / "roles" / "example" / name / "main.yml").write_text(yaml.safe_dump(content))
    playbook = {"hosts": "localhost", "connection": "local", "gather_facts": False, "roles": ["example"]}
    (folder / "play.yml").write_text(yaml.safe_dump([playbook]))
    return run_playbook(str(folder / "play.yml"), environ=environment(), variables=variables)


@pytest.mark.usual(2)
@pytest.mark.parametrize(
    ("variables", "shown"),
    [
        ({}, CONVERTED),
        # Undefined, so that a conversion would fail.
        ({"gpu_example_token": "{{ undefined }}"}, CONVERTED),
        ({"gpu_timeout": 30}, CONVERTED.replace("600", "30")),
        ({"gpu_timeout": 30, "gpu_example_timeout": ""}, CONVERTED.replace("600", "30")),
        ({"gpu_example_timeout": "60"}, CONVERTED.replace("600", "60")),
        ({"gpu_example_timeout": "{{ omit }}", "gpu_example_wait": None}, CONVERTED),
        ({"gpu_example_names": "{{ ['a', 'b'] | join(',') }}"}, CONVERTED.replace("[]", '["a", "b"]')),
    ],
    ids=["defaults", "not converted", "computed", "computed for empty text", "survey", "omitted", "template"],
)
def test_values(tmp_path: Path, variables: dict[str, t.Any], shown: str) -> None:
    ((dummy, result),) = play(tmp_path, **variables).require_success().results("localhost")
    assert result["msg"] == f"options {shown}"


@pytest.mark.usual(2)
def test_all_problems_at_once(tmp_path: Path) -> None:
    message = play(tmp_path, gpu_example_wait="maybe", gpu_example_timeout="soon").failure("localhost")
    assert 'gpu_example_timeout: "soon" is a string' in message
    assert 'gpu_example_wait: "maybe" is a string' in message


@pytest.mark.usual(2)
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpu_sharing_pool_name", "did you mean gpu_sharing_pool_names?"),
        ("gpu_pool", "only the playbooks scale and delete_nodegroups read this variable"),
    ],
)
def test_a_selection_that_no_role_reads(tmp_path: Path, name: str, message: str) -> None:
    assert message in play(tmp_path, **{name: "train"}).failure("localhost")
