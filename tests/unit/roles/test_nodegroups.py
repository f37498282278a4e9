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


@pytest.mark.sampled(1)
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


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_operator_is_checked_before_node_groups_are_created(provider: str) -> None:
    tasks = yaml.safe_load((ROLE / "tasks" / f"{provider}.yml").read_text(encoding="utf-8"))
    names = [task["name"] for task in tasks]
    check = names.index("Check the GPU operator before node groups are created")
    # A group may need a template first, which costs nothing.
    following = names[check + 1 :]
    assert "Reconcile the node groups" in following
    assert all(
        name.endswith(("templates of pools with vGPUs", "node groups", "that were replaced")) for name in following
    )
    assert all(name.startswith(("Fetch", "Create the cluster")) for name in names[:check])


# What differs from a run of site on an existing cluster, and whether the run then checks the operator.
CHECKS: dict[str, tuple[dict[str, Any], bool]] = {
    "existing": ({}, True),
    "existing-magnum": ({"__nodegroups_cluster": {"changed": False, "skipped": True}}, True),
    "new-cluster": ({"__nodegroups_cluster": {"changed": True}}, False),
    "no-kubeconfig": ({"__nodegroups_fetches": True}, False),
    "only-node-groups": ({"__nodegroups_operator_follows": False}, False),
    "deletion": ({"gpu_nodegroups_state": "absent"}, False),
    "plan": ({"__nodegroups_options": {"gpu_nodegroups_preview": True}}, False),
}


@pytest.mark.sampled(1)
@pytest.mark.usual(6)
@pytest.mark.parametrize("arguments", [[], ["--check"]], ids=["run", "check mode"])
def test_when_the_operator_is_checked(tmp_path: Path, arguments: list[str]) -> None:
    """The kubeconfig does not exist, so the check fails if it runs."""
    include = {"name": "Check", "ansible.builtin.include_tasks": str(ROLE / "tasks/check_operator.yml")}
    variables = {
        "gpu_cluster": {"name": "c", "kubeconfig": str(tmp_path / "missing")},
        "gpu_defaults": {},
        "gpu_pools": [{"name": "a"}],
        "gpu_nodegroups_state": "present",
        "__nodegroups_operator_follows": True,
        "__nodegroups_options": {"gpu_nodegroups_preview": False},
        "__nodegroups_fetches": False,
    }
    play = {"hosts": "all", "connection": "local", "gather_facts": False, "tasks": [include]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    hosts = {name: {**variables, **given} for name, (given, dummy) in CHECKS.items()}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
    played = run_playbook(
        str(tmp_path / "play.yml"), environ=environment(), inventory=tmp_path / "hosts.yml", arguments=arguments
    )
    failed = {name for name, counts in played.stats.items() if counts["failures"]}
    assert failed == {name for name, (dummy, checked) in CHECKS.items() if checked}, played.stderr


# The options of a run that replaces machines, and whether it asks for a confirmation before it builds a template.
CONFIRMATIONS: dict[str, tuple[dict[str, Any], bool]] = {
    "unconfirmed": ({}, True),
    "other-cluster": ({"gpu_confirm": ["other"]}, True),
    "confirmed": ({"gpu_confirm": ["other", "prod"]}, False),
    "preview": ({"gpu_nodegroups_preview": True}, False),
    "no-replacement": ({"gpu_nodegroups_replace_outdated": False}, False),
}


@pytest.mark.usual(3)
@pytest.mark.parametrize("arguments", [[], ["--check"]], ids=["run", "check mode"])
def test_a_run_that_replaces_machines_asks_before_it_builds_templates(tmp_path: Path, arguments: list[str]) -> None:
    tasks = yaml.safe_load((ROLE / "tasks/reconcile.yml").read_text(encoding="utf-8"))
    names = [task["name"] for task in tasks]
    position = names.index("Require a confirmation before the templates are built")
    assert position < names.index("Reconcile the node groups of the cloud")
    files = [str(ROLE / "vars/main.yml")]
    play = {
        "hosts": "all",
        "connection": "local",
        "gather_facts": False,
        "vars_files": files,
        "tasks": [tasks[position]],
    }
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    options = {
        "gpu_nodegroups_replace_outdated": True,
        "gpu_nodegroups_preview": False,
        "gpu_confirm": [],
        "gpu_nodegroups_node_counts": {},
        "gpu_nodegroups_pool_names": [],
    }
    pool = {"name": "vdi", "vgpu": {"profile": "grid_a100-10c"}, "nodegroup": {"members": [{"name": "vdi"}]}}
    given = {"gpu_plan": {"cluster": {"name": "prod"}, "pools": [pool]}, "gpu_nodegroups_state": "present"}
    (tmp_path / "given.yml").write_text(yaml.safe_dump(given))
    hosts = {name: {"options": {**options, **changed}} for name, (changed, dummy) in CONFIRMATIONS.items()}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
    played = run_playbook(
        str(tmp_path / "play.yml"),
        environ=environment(),
        inventory=tmp_path / "hosts.yml",
        arguments=[*arguments, "-e", f"@{tmp_path / 'given.yml'}", "-e", '{"__nodegroups_options": "{{ options }}"}'],
    )
    failed = {name for name, counts in played.stats.items() if counts["failures"]}
    expected = set() if arguments else {name for name, (dummy, asks) in CONFIRMATIONS.items() if asks}
    assert failed == expected, played.stderr
    for name in expected:
        assert "Nothing was done. To list these machines, add --check --diff." in played.failure(name)
        assert "-e gpu_confirm=prod" in played.failure(name)
