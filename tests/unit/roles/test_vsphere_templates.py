# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a preview of the role shows, and which failures end it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helpers.playbook import run_playbook
from tests.programs import REPO, environment

ROLE = REPO / "roles" / "vsphere_templates"
TEMPLATE = {
    "name": "vdi",
    "profile": "grid_a100-10c",
    "datacenter": "DC1",
    "cluster": "a",
    "datastore": "a",
    "network": "a",
    "url": "https://mirror.example.com/rhcos.ova",
    "checksum": "sha256:" + "a" * 64,
}
# Nothing listens on port 1.
SILENT = {"hostname": "127.0.0.1", "port": 1, "username": "user", "password": "password"}


@pytest.mark.usual(2)
@pytest.mark.parametrize(
    ("options", "preview", "fails"),
    [
        (SILENT, True, False),
        (SILENT, False, True),
        # Without a user, a run cannot succeed either.
        ({"hostname": "127.0.0.1", "port": 1}, True, True),
    ],
    ids=["preview", "run", "no-user"],
)
def test_a_preview_says_that_vcenter_was_not_read(
    tmp_path: Path, options: dict[str, Any], preview: bool, fails: bool
) -> None:
    tasks = yaml.safe_load((ROLE / "tasks/main.yml").read_text(encoding="utf-8"))
    (task,) = [task for task in tasks if "accel.gpu.vgpu_template" in task]
    kept = {key: task[key] for key in ("name", "register", "check_mode", "changed_when", "failed_when")}
    lines = {
        "content": "{{ __vsphere_templates_lines | to_json }}",
        "dest": "{{ playbook_dir }}/result.json",
        "mode": "0600",
    }
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars_files": [str(ROLE / "vars/main.yml")],
        "tasks": [
            {**kept, "accel.gpu.vgpu_template": {**TEMPLATE, **options}},
            {"name": "Render", "ansible.builtin.copy": lines},
        ],
    }
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    given = {"__vsphere_templates_options": {"gpu_vsphere_templates_preview": preview}}
    played = run_playbook(str(tmp_path / "play.yml"), environ=environment(), arguments=["-e", json.dumps(given)])
    assert (played.rc != 0) == fails, played.stdout
    if not fails:
        (line,) = json.loads((tmp_path / "result.json").read_text())
        assert line.startswith("vCenter was not read: ")
        assert "127.0.0.1" in line
        assert line.endswith("; templates and room on the hosts are not checked")
