# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node groups that the role deletes, which include those that a pool no longer declares, and the options that the role passes to the modules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.module_utils.schema.providers import PROVIDERS, ProviderDefinition
from tests.helpers.playbook import run_playbook
from tests.programs import REPO, environment

ROLE = REPO / "roles" / "nodegroups"
RENDERED = {"groups": "{{ __nodegroups_groups }}"}
TASK = {
    "name": "Render",
    "ansible.builtin.copy": {
        "content": "{{ rendered | to_json }}",
        "dest": "{{ playbook_dir }}/result.json",
        "mode": "0600",
    },
    "vars": {"rendered": RENDERED},
}
PLAN = {
    "pools": [
        {"name": "extra", "nodegroup": {"members": [{"name": "extra"}]}},
        {"name": "other", "nodegroup": {"members": [{"name": "other"}]}},
        {"name": "existing", "nodegroup": None},
    ],
    "nodegroups": [{"name": "extra", "node_count": 2}, {"name": "other", "node_count": 1}],
}
LIVE = {
    "worker": {"pool": None, "group": None},
    "foreign": {"pool": "extra", "group": None},
    "extra": {"pool": "extra", "group": "extra"},
    "extra-b": {"pool": "extra", "group": "extra-b"},
    "extra-b-1f3e": {"pool": "extra", "group": "extra-b"},
    "extra-a": {"pool": "extra", "group": "extra-a"},
    "other-a": {"pool": "other", "group": "other-a"},
}
EXTRA = {"name": "extra", "node_count": 2, "state": "absent"}


@pytest.mark.usual(4)
@pytest.mark.parametrize(
    ("actual", "groups"),
    [
        (
            {"nodegroups": LIVE},
            [EXTRA, {"name": "extra-a", "state": "absent"}, {"name": "extra-b", "state": "absent"}],
        ),
        ({"skipped": True}, [EXTRA]),
    ],
    ids=["machinesets", "another cloud"],
)
def test_a_deletion_includes_machinesets_that_the_pool_no_longer_declares(
    tmp_path: Path, actual: dict[str, Any], groups: list[dict[str, Any]]
) -> None:
    files = [str(ROLE / "vars/main.yml")]
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "vars_files": files, "tasks": [TASK]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    given = {
        "gpu_plan": PLAN,
        "gpu_nodegroups_state": "absent",
        "__nodegroups_options": {"gpu_nodegroups_node_counts": {}, "gpu_nodegroups_pool_names": ["extra"]},
        "__nodegroups_existing": actual,
    }
    arguments = ["-e", json.dumps(given)]
    run_playbook(str(tmp_path / "play.yml"), environ=environment(), arguments=arguments).require_success()
    assert json.loads((tmp_path / "result.json").read_text()) == {"groups": groups}


@pytest.mark.parametrize("provider", PROVIDERS.values(), ids=lambda provider: provider.key)
def test_all_modules_of_a_provider_get_its_connection_options(provider: ProviderDefinition) -> None:
    tasks = yaml.safe_load((ROLE / "tasks" / f"{provider.key}.yml").read_text(encoding="utf-8"))
    options = [args for task in tasks for name, args in task.items() if name.startswith("accel.gpu.")]
    expected = {
        name: f"{{{{ __nodegroups_cloud.options.{name} | default(omit) }}}}" for name in provider.connection_options
    }
    assert options
    assert all(given.items() >= expected.items() for given in options)
