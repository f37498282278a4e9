# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of a role: those of its defaults, converted, with the defaults that are templates, and without those that are not converted."""

from __future__ import annotations

import typing as t

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


# The variables of each host.
VALUES: dict[str, tuple[dict[str, t.Any], str]] = {
    "defaults": ({}, CONVERTED),
    # Undefined, so that a conversion would fail.
    "not converted": ({"gpu_example_token": "{{ undefined }}"}, CONVERTED),
    "computed": ({"gpu_timeout": 30}, CONVERTED.replace("600", "30")),
    "computed for empty text": ({"gpu_timeout": 30, "gpu_example_timeout": ""}, CONVERTED.replace("600", "30")),
    "survey": ({"gpu_example_timeout": "60"}, CONVERTED.replace("600", "60")),
    "omitted": ({"gpu_example_timeout": "{{ omit }}", "gpu_example_wait": None}, CONVERTED),
    "template": ({"gpu_example_names": "{{ ['a', 'b'] | join(',') }}"}, CONVERTED.replace("[]", '["a", "b"]')),
}
PROBLEMS: dict[str, tuple[dict[str, t.Any], list[str]]] = {
    "all at once": (
        {"gpu_example_wait": "maybe", "gpu_example_timeout": "soon"},
        ['gpu_example_timeout: "soon" is a string', 'gpu_example_wait: "maybe" is a string'],
    ),
    "similar name": ({"gpu_sharing_pool_name": "train"}, ["did you mean gpu_sharing_pool_names?"]),
    "other playbooks": (
        {"gpu_pool": "train"},
        ["only the playbooks scale, delete_nodegroups and templates_refresh read this variable"],
    ),
}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> PlaybookRun:
    """One run of a role whose only task shows the result of the lookup, with a host for each case."""
    folder = tmp_path_factory.mktemp("play")
    for name, content in {"defaults": DEFAULTS, "vars": VARS, "tasks": [TASK]}.items():
        (folder / "roles" / "example" / name).mkdir(parents=True)
        (folder / "roles" / "example" / name / "main.yml").write_text(yaml.safe_dump(content))
    play = {"hosts": "all", "connection": "local", "gather_facts": False, "roles": ["example"]}
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    hosts = {name: variables for name, (variables, *_) in (*VALUES.items(), *PROBLEMS.items())}
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
    return run_playbook(str(folder / "play.yml"), environ=environment(), inventory=folder / "hosts.yml")


@pytest.mark.usual(2)
@pytest.mark.parametrize("name", VALUES)
def test_values(played: PlaybookRun, name: str) -> None:
    ((dummy, result),) = played.results(name)
    assert result["msg"] == f"options {VALUES[name][1]}"


@pytest.mark.usual(2)
@pytest.mark.parametrize("name", PROBLEMS)
def test_problems(played: PlaybookRun, name: str) -> None:
    message = played.failure(name)
    assert [word for word in PROBLEMS[name][1] if word not in message] == []
