# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configuration of a cloud: contradictions, values that must not be shown, the transport of a token, and the import of the SDK's reader."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.clouds.magnum_client import CloudOptions, Session
from ansible_collections.accel.gpu.plugins.module_utils.core.errors import ConnectionProblem
from tests.programs import BUILD, environment

AUTH = {"auth_url": "https://keystone.example/v3", "username": "u", "password": "hidden", "project_name": "p"}


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in ("OS_CLOUD", "OS_AUTH_URL", "OS_CLIENT_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)


def session(**params: Any) -> Session:
    return Session(CloudOptions.from_params(params), "test")


def test_options_one_by_one() -> None:
    made = session(auth=AUTH, region_name="r", validate_certs=False, api_timeout=7)
    assert made.origin == "Keystone https://keystone.example/v3, project p, region r"
    assert made.timeout == 7


def test_a_whole_configuration() -> None:
    assert session(cloud={"auth": AUTH, "region_name": "r"}, interface="public").region == "r"
    with pytest.raises(ConnectionProblem, match="cannot be combined with auth, region_name"):
        session(cloud={"auth": AUTH}, auth=AUTH, region_name="r")


def test_what_must_not_be_shown() -> None:
    assert CloudOptions.from_params({"cloud": {"auth": AUTH}}).secrets == {"hidden"}
    assert CloudOptions.from_params({"auth": {**AUTH, "application_credential_secret": "s"}}).secrets == {"hidden", "s"}


def test_no_cloud_is_named() -> None:
    with pytest.raises(ConnectionProblem, match="no cloud specified"):
        session()


@pytest.mark.parametrize(
    ("url", "verified", "refused"),
    [
        ("https://keystone.example/v3", None, False),
        ("http://127.0.0.1:5000/v3", None, False),
        ("http://[::1]:5000/v3", None, False),
        ("http://localhost/v3", None, False),
        ("http://keystone.example/v3", None, True),
        ("http://keystone.example/v3", True, True),
        ("http://keystone.example/v3", False, False),
    ],
)
def test_a_token_goes_by_tls(url: str, verified: bool | None, refused: bool) -> None:
    params = {"auth": {**AUTH, "auth_url": url}, "validate_certs": verified}
    if not refused:
        session(**params)
        return
    with pytest.raises(ConnectionProblem, match="without TLS, the token can be read on the network"):
        session(**params)


_MAGNUM = "ansible_collections.accel.gpu.plugins.module_utils.clouds.magnum_client"


def printed(script: str) -> str:
    """The output of a new Python process."""
    command = [sys.executable, "-c", f"import sys\n{script}"]
    done = subprocess.run(command, env=environment(PYTHONPATH=str(BUILD)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_no_service_is_imported() -> None:
    watched = "sys.addaudithook(lambda event, args: event == 'import' and print(args[0]))"
    imported = printed(f"{watched}\nimport {_MAGNUM}").split()
    assert "openstack.config.loader" in imported
    assert "openstack.connection" not in imported
    assert not [name for name in imported if name.startswith(("openstack.compute", "openstack.cloud"))]


@pytest.mark.parametrize(
    "imports",
    [
        [f"import {_MAGNUM}", "import openstack"],
        ["import openstack", f"import {_MAGNUM}"],
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
        f"{no_package}\nimport {_MAGNUM} as session\nprint(session.IMPORT_ERROR, session.OpenStackConfig.__name__, 'openstack' in sys.modules)"
    )
    assert output == "None OpenStackConfig True"


def test_the_log_of_the_sdk_is_written(tmp_path: Path) -> None:
    path = tmp_path / "sdk.log"
    printed(f"from {_MAGNUM} import enable_logging\nenable_logging({str(path)!r}, 'DEBUG')")
    assert path.exists()
