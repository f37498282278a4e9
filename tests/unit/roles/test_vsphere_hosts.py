# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The messages of the role vsphere_hosts, which contain names from vCenter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from tests.helpers.playbook import run_playbook
from tests.programs import REPO, environment

ROLE = REPO / "roles" / "vsphere_hosts"


def test_a_name_from_vcenter_cannot_change_the_terminal(tmp_path: Path) -> None:
    (task, *_others) = yaml.safe_load((ROLE / "tasks/apply.yml").read_text(encoding="utf-8"))
    files = [str(ROLE / "vars/main.yml")]
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "vars_files": files, "tasks": [task]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    hosts: list[dict[str, Any]] = [
        {"name": name, "path": f"/DC1/host/a/{name}", "gpus": [{}]} for name in ("esx-1", "esx\x9b2J\u202e")
    ]
    given = {
        "gpu_vsphere_hosts_result": {"clusters": [{"hosts": hosts}]},
        "__vsphere_hosts_options": {"gpu_vsphere_hosts_names": ["esx-9"]},
    }
    run = run_playbook(str(tmp_path / "play.yml"), environ=environment(), arguments=["-e", json.dumps(given)])
    (result,) = run.module_results("ansible.builtin.assert", "localhost")
    assert result["msg"] == (
        "gpu_vsphere_hosts_names: esx-9 is not a host with NVIDIA GPUs in the clusters of the pools. "
        'Known hosts: "esx-1", "esx\\u009b2J\\u202e"'
    )
