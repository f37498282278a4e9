# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every connection failure: one message with the remedy, in time."""

from __future__ import annotations

import base64
import datetime
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ansible_collections.accel.gpu.plugins.modules import node_metadata
from tests.helpers.kube import Kube
from tests.helpers.modules import run_module
from tests.helpers.polling import BUSY

SETS = [{"label_selectors": [], "labels": {"example.com/x": "1"}}]


def failure(kube: Kube, seconds: float, **options: Any) -> dict[str, Any]:
    """The failure of a module within the given time, the same in check mode and in real mode."""
    results = []
    for check in (True, False):
        started = time.monotonic()
        results.append(kube.run(node_metadata.main, check=check, sets=SETS, **options))
        assert time.monotonic() - started < BUSY * seconds
    assert results[0] == results[1]
    assert results[0]["failed"]
    return results[0]


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that accepts connections and never responds."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def user(kube: Kube) -> dict[str, Any]:
    """The administrator's certificate and key, as files."""
    document = yaml.safe_load(kube.kubeconfig.read_text())
    actual: dict[str, Any] = document["users"][0]["user"]
    files = {}
    for key in ("client-certificate", "client-key"):
        if f"{key}-data" in actual:
            path = kube.folder / key
            path.write_bytes(base64.b64decode(actual[f"{key}-data"]))
        else:
            path = kube.kubeconfig.parent / actual[key]
        files[key] = str(path)
    return files


def test_nothing_listens(kube: Kube) -> None:
    kubeconfig = kube.kubeconfig_with(user(kube), {"server": f"https://127.0.0.1:{closed_port()}"})
    result = failure(kube, 10, kubeconfig=kubeconfig)
    assert result["code"] == "unreachable"
    assert "Connection refused" in result["msg"]
    assert "Nothing listens there" in result["msg"]
    assert str(kubeconfig) in result["msg"]


def test_the_name_does_not_resolve(kube: Kube) -> None:
    kubeconfig = kube.kubeconfig_with(user(kube), {"server": "https://cluster.invalid:6443"})
    assert "does not resolve from this machine" in failure(kube, 20, kubeconfig=kubeconfig)["msg"]


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_no_response(kube: Kube, silent: int, scheme: str) -> None:
    kubeconfig = kube.kubeconfig_with(user(kube), {"server": f"{scheme}://127.0.0.1:{silent}"})
    assert "no response within the time limit" in failure(kube, 8, kubeconfig=kubeconfig, request_timeout=2)["msg"]


def test_a_certificate_of_an_unknown_ca(kube: Kube) -> None:
    document = yaml.safe_load(kube.kubeconfig.read_text())
    for entry in document["clusters"]:
        for key in ("certificate-authority", "certificate-authority-data"):
            entry["cluster"].pop(key, None)
    document["users"][0]["user"] = user(kube)
    path = kube.folder / "no-ca"
    path.write_text(yaml.safe_dump(document))
    result = failure(kube, 10, kubeconfig=path)
    assert "certificate verify failed" in result["msg"]
    assert "ca_cert" in result["msg"]
    assert not kube.run(node_metadata.main, check=True, sets=SETS, kubeconfig=path, validate_certs=False).get("failed")


def test_an_unknown_token(kube: Kube) -> None:
    result = failure(kube, 10, kubeconfig=kube.kubeconfig_with({"token": "unknown-token"}))
    assert result["code"] == 401
    assert "unknown-token" not in str(result)


def test_an_expired_client_certificate(kube: Kube) -> None:
    path = kube.folder / "expired.pem"
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "admin")])
    yesterday = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(yesterday - datetime.timedelta(days=1))
        .not_valid_after(yesterday)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + private)
    kubeconfig = kube.kubeconfig_with({"client-certificate": str(path), "client-key": str(path)})
    assert f"it expired at {yesterday:%Y-%m-%d}" in failure(kube, 10, kubeconfig=kubeconfig)["msg"]


def test_a_credential_plugin_that_fails(kube: Kube) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/nowhere/get-token"}
    result = failure(kube, 10, kubeconfig=kube.kubeconfig_with({"exec": plugin}))
    assert "/nowhere/get-token" in result["msg"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("a: [b", "cannot be used: while parsing a flow sequence"),
        ("hello", "it is not a kubeconfig"),
        ("", "is empty"),
        (
            "{apiVersion: v1, kind: Config, contexts: [], clusters: [], users: []}",
            "has no current context; set context to one of",
        ),
    ],
)
def test_no_kubeconfig(kube: Kube, content: str, text: str) -> None:
    path = kube.folder / "broken"
    path.write_text(content)
    assert text in failure(kube, 5, kubeconfig=path)["msg"]


def test_a_missing_kubeconfig(kube: Kube) -> None:
    assert "/nowhere/config does not exist" in failure(kube, 5, kubeconfig="/nowhere/config")["msg"]


def test_a_missing_context(kube: Kube) -> None:
    message = failure(kube, 5, context="production")["msg"]
    assert "has no context 'production'; it has: " in message


def test_other_names_of_the_cluster(kube: Kube) -> None:
    # Another test may have had the cluster's name recorded.
    kube.client.delete("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/accel-gpu")
    context, cluster = kube.client.connection.context_name, kube.client.connection.cluster_name
    for name in (context, cluster):
        assert not kube.run(node_metadata.main, check=True, sets=SETS, gpu_cluster={"name": name}).get("failed")
    own = {"name": "prod", "kube_name": cluster}
    assert not kube.run(node_metadata.main, check=True, sets=SETS, gpu_cluster=own).get("failed")
    wrong = failure(kube, 5, gpu_cluster={"name": cluster, "kube_name": "other"})
    assert "gpu_cluster.kube_name is 'other'" in wrong["msg"]


def test_a_server_without_a_kubeconfig(kube: Kube) -> None:
    document = yaml.safe_load(kube.kubeconfig.read_text())
    certificates = user(kube)
    result = run_module(
        node_metadata.main,
        {
            "sets": SETS,
            "host": document["clusters"][0]["cluster"]["server"],
            "validate_certs": False,
            "client_cert": certificates["client-certificate"],
            "client_key": certificates["client-key"],
        },
        check=True,
    )
    assert not result.get("failed"), result


def test_a_kubeconfig_as_a_dictionary_keeps_its_secrets(kube: Kube) -> None:
    document = yaml.safe_load(kube.kubeconfig_with({"token": "a-very-secret-token"}).read_text())
    result = run_module(node_metadata.main, {"sets": SETS, "kubeconfig": document}, check=True)
    assert result["code"] == 401
    assert "a-very-secret-token" not in str(result)


def test_no_cluster_is_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "K8S_AUTH_KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "No cluster is selected" in run_module(node_metadata.main, {"sets": SETS})["msg"]
