# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shown data of a connection contains no secret: the address of the server, and the output of a credential plugin."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.module_utils.catalog.secrets import without_user_info
from ansible_collections.accel.gpu.plugins.module_utils.core.errors import ConnectionProblem
from ansible_collections.accel.gpu.plugins.module_utils.helm.preparation import helm_environment
from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.connection import explain
from ansible_collections.accel.gpu.plugins.module_utils.kube.connection_options import ConnectionOptions
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError, WrongCluster
from ansible_collections.accel.gpu.plugins.module_utils.kube.lease import ClusterIdentity, identity_report
from ansible_collections.accel.gpu.plugins.module_utils.kube.module import secrets_in, shown_options

SECRET = "S3cretPlanted"
SERVER = f"https://u:{SECRET}@127.0.0.1:1/k8s"


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in the environment names a cluster."""
    for variable in [name for name in os.environ if name.startswith(("K8S_AUTH_", "HELM_KUBE", "KUBECONFIG"))]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("HOME", str(tmp_path))


def kubeconfig(**user: Any) -> dict[str, Any]:
    """One cluster, whose address has a password in it."""
    return {
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {"server": SERVER}}],
        "users": [{"name": "a", "user": user or {"token": "x"}}],
    }


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        (SERVER, "https://127.0.0.1:1/k8s"),
        (f"https://{SECRET}@[::1]:6443", "https://[::1]:6443"),
        (f"u:{SECRET}@host:6443", "host:6443"),
        (f"//u:{SECRET}@host", "//host"),
        (f"https://a@{SECRET}@host", "https://host"),
        ("https://host:6443/a@b?c@d", "https://host:6443/a@b?c@d"),
        ("host", "host"),
        ("", ""),
    ],
)
def test_user_information_is_taken_out_of_an_address(address: str, shown: str) -> None:
    assert without_user_info(address) == shown


def test_a_server_is_shown_without_user_information() -> None:
    client = Client(ConnectionOptions(kubeconfig=kubeconfig()), "test")
    assert client.connection.server == "https://127.0.0.1:1/k8s"
    assert SECRET not in explain(ApiError("Connection refused", reason="Refused"), client.connection)

    class Silent:
        connection = client.connection

        def get(self, path: str, query: Any = None) -> None:
            del path, query

    report = identity_report(Silent(), ClusterIdentity(Silent(), {"name": "a"}))  # type: ignore[arg-type]
    assert report["server"] == "https://127.0.0.1:1/k8s"


def test_the_environment_is_shown_without_user_information(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(kubeconfig()))
    other = f"https://u:{SECRET}@other.example:6443"
    monkeypatch.setenv("K8S_AUTH_HOST", other)
    with pytest.raises(WrongCluster) as refused:
        Client(ConnectionOptions.from_params({"kubeconfig": str(path)}, {}), "test")
    assert "K8S_AUTH_HOST (https://other.example:6443)" in str(refused.value)
    assert SECRET not in str(refused.value)
    monkeypatch.setenv("K8S_AUTH_KUBECONFIG", str(path))
    with pytest.raises(WrongCluster) as refused:
        Client(ConnectionOptions.from_params({}, {}), "test")
    assert "different servers" in str(refused.value)
    assert SECRET not in str(refused.value)
    for name in ("K8S_AUTH_HOST", "K8S_AUTH_KUBECONFIG"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HELM_KUBEAPISERVER", other)
    client = Client(ConnectionOptions.from_params({"kubeconfig": str(path)}, {}), "test")
    with pytest.raises(WrongCluster) as refused:
        helm_environment(client, os.environ)
    assert "HELM_KUBEAPISERVER (https://other.example:6443)" in str(refused.value)
    assert SECRET not in str(refused.value)


def test_options_are_shown_without_them() -> None:
    assert SERVER in secrets_in({"host": SERVER})
    for text in (f"password={SECRET}", [SECRET]):
        cluster = {"name": "a", "operator": text, "nfd": {"values": text}}
        shown = shown_options({"gpu_cluster": cluster})["gpu_cluster"]
        assert shown == {"name": "a", "operator": "(not shown)", "nfd": {"values": "(not shown)"}}
    registry = f"u:{SECRET}@reg.example.com"
    assert registry in secrets_in({"gpu_cluster": {"operator": {"registry": registry}}})
    assert f"password={SECRET}" in secrets_in({"gpu_cluster": {"operator": f"password={SECRET}"}})


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("no session\\nsecond line S3cretPlanted", "its plugin failed with: exec: process returned 3. no session"),
        (
            "login failed, password=S3cretPlanted for u",
            "its plugin failed with: exec: process returned 3. login failed, password=***",
        ),
        ('{"token": "a S3cretPlanted b"}', 'its plugin failed with: exec: process returned 3. {"token": "***'),
        ("refresh --token S3cretPlanted now", "its plugin failed with: exec: process returned 3. refresh --token ***"),
        ("GET https://u:S3cretPlanted@h failed", "its plugin failed with: exec: process returned 3. GET *** failed"),
        ("bad aB3dE5S3cretPlanted7hJ9kL1 there", "its plugin failed with: exec: process returned 3. bad *** there"),
        ("Authorization: Bearer S3cretPlanted0123456", "Authorization: Bearer ***"),
        (500 * "x ", "x x x x..."),
    ],
)
def test_what_a_credential_plugin_says_is_one_short_line(printed: str, shown: str) -> None:
    command = ["-c", "printf '%b' \"$0\" >&2; exit 3", printed]
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh",
        "args": command,
        "interactiveMode": "Never",
    }
    with pytest.raises(ConnectionProblem) as refused:
        Client(ConnectionOptions(kubeconfig=kubeconfig(exec=plugin)), "test")
    message = str(refused.value)
    assert shown in message
    assert SECRET not in message
    assert "\n" not in message
    assert len(message.partition("its plugin failed with: ")[2]) <= 200
