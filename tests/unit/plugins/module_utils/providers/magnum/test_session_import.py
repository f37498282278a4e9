# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration is read without the services of the SDK, and other code can still import the whole SDK."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import BUILD, environment

_MAGNUM = "ansible_collections.accel.gpu.plugins.module_utils.providers.magnum"


def printed(script: str) -> str:
    """The output of a new Python process."""
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
def test_other_code_can_import_the_whole_sdk(imports: list[str]) -> None:
    output = printed(
        "\n".join([*imports, "print(openstack.connection.Connection.__name__, openstack.exceptions.__name__)"])
    )
    assert output == "Connection openstack.exceptions"


def test_a_release_whose_submodules_need_the_package_is_imported_as_a_whole() -> None:
    no_package = (
        "import importlib.util, types\nimportlib.util.module_from_spec = lambda spec: types.ModuleType(spec.name)"
    )
    output = printed(
        f"{no_package}\nfrom {_MAGNUM} import session\nprint(session.IMPORT_ERROR, session.OpenStackConfig.__name__, 'openstack' in sys.modules)"
    )
    assert output == "None OpenStackConfig True"


def test_the_log_of_the_sdk_is_written(tmp_path: Path) -> None:
    path = tmp_path / "sdk.log"
    printed(f"from {_MAGNUM}.session import enable_logging\nenable_logging({str(path)!r}, 'DEBUG')")
    assert path.exists()
