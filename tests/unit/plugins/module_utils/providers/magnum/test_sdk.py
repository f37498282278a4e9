# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A configuration is read without the SDK's services, and whoever wants the whole SDK still gets it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import BUILD, environment

_MAGNUM = "ansible_collections.accel.gpu.plugins.module_utils.providers.magnum"


def printed(script: str) -> str:
    """What a Python of its own prints, which has imported nothing yet."""
    command = [sys.executable, "-c", f"import sys\n{script}"]
    done = subprocess.run(command, env=environment(PYTHONPATH=str(BUILD)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_no_service_is_imported() -> None:
    watched = "sys.addaudithook(lambda event, args: event == 'import' and print(args[0]))"
    imported = printed(f"{watched}\nimport {_MAGNUM}.session").split()
    assert "openstack.config.loader" in imported
    assert "openstack.connection" not in imported
    assert not [name for name in imported if name.startswith(("openstack.compute", "openstack.cloud"))]


@pytest.mark.parametrize(
    "imports",
    [
        [f"import {_MAGNUM}.session", "import openstack"],
        ["import openstack", f"import {_MAGNUM}.session"],
    ],
)
def test_the_whole_sdk_is_there_for_whoever_else_imports_it(imports: list[str]) -> None:
    told = printed(
        "\n".join([*imports, "print(openstack.connection.Connection.__name__, openstack.exceptions.__name__)"])
    )
    assert told == "Connection openstack.exceptions"


def test_the_sdks_log_is_written_where_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "sdk.log"
    printed(f"from {_MAGNUM}.sdk import enable_logging\nenable_logging({str(path)!r}, 'DEBUG')")
    assert path.exists()
