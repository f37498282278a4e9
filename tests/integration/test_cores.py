# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook site on the oldest and the newest ansible-core that the collection supports."""

from __future__ import annotations

import os
import subprocess
import sysconfig

import pytest

from tests.helpers.playbook import run_playbook
from tests.labs import Lab
from tests.programs import BUILD, REPO

NO_PYTHON = 3


@pytest.mark.soak
@pytest.mark.usual(180)
@pytest.mark.parametrize("core", ["2.16", "2.21"])
def test_site_converges(lab: Lab, core: str) -> None:
    created = subprocess.run([REPO / "tools" / "core-venv", core], capture_output=True, text=True, check=False)
    if created.returncode == NO_PYTHON:
        pytest.skip(created.stderr.strip())
    assert created.returncode == 0, created.stderr
    lab.reset()
    environ = {
        **lab.env,
        "PATH": f"{created.stdout.strip()}/bin{os.pathsep}{lab.env['PATH']}",
        # kubernetes.core and the JSON callback are those of the development environment.
        "ANSIBLE_COLLECTIONS_PATH": f"{BUILD}{os.pathsep}{sysconfig.get_path('purelib')}",
    }
    run_playbook("accel.gpu.site", environ=environ).require_success()
    assert run_playbook("accel.gpu.site", environ=environ).require_success().changed() == 0
