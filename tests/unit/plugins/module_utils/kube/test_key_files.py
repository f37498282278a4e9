# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A key that a kubeconfig holds is in no file, and OpenSSL reads it all the same."""

from __future__ import annotations

import base64
import datetime
import ssl
import tempfile
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ansible_collections.accel.gpu.plugins.module_utils.kube.connection import connect
from ansible_collections.accel.gpu.plugins.module_utils.kube.connection_options import ConnectionOptions
from ansible_collections.accel.gpu.plugins.module_utils.kube.module import secrets_of


def pair() -> tuple[bytes, bytes]:
    """A key and a certificate of it, PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "admin")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
        .not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1)).sign(key, hashes.SHA256())
    )  # fmt: skip
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private, certificate.public_bytes(serialization.Encoding.PEM)


def document(key: bytes, certificate: bytes) -> dict[str, object]:
    data = {
        "client-certificate-data": base64.b64encode(certificate).decode(),
        "client-key-data": base64.b64encode(key).decode(),
    }
    cluster = {
        "server": "https://127.0.0.1:1",
        "certificate-authority-data": base64.b64encode(certificate).decode(),
    }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": cluster}],
        "users": [{"name": "a", "user": data}],
    }


@pytest.mark.parametrize("as_file", [True, False])
def test_keys_are_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_file: bool) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    key, certificate = pair()
    given = document(key, certificate)
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(given))
    configuration = connect(ConnectionOptions(kubeconfig=str(path) if as_file else given)).configuration
    assert list(temporary.iterdir()) == []
    for actual, data in (
        (configuration.key_file, key),
        (configuration.cert_file, certificate),
        (configuration.ssl_ca_cert, certificate),
    ):
        assert actual.startswith("/proc/self/fd/")
        assert Path(actual).read_bytes() == data
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    context.load_cert_chain(configuration.cert_file, configuration.key_file)


USERS = [
    # of a user in a kubeconfig: what is secret, and what is not
    ({"token": "t-123456", "username": "admin"}, {"t-123456"}),
    ({"username": "admin", "password": "pw"}, {"pw"}),
    ({"client-key-data": "a2V5", "client-certificate": "/a"}, {"a2V5"}),
    ({"auth-provider": {"name": "oidc", "config": {"refresh-token": "r", "id-token": "i", "client-id": "c"}}}, {"r", "i"}),
    ({"exec": {"command": "x", "args": ["login", "--token", "s"], "env": [{"name": "X_PASSWORD", "value": "v"}, {"name": "A", "value": "b"}]}}, {"s", "v"}),
    ({}, set()),
]  # fmt: skip


@pytest.mark.parametrize(("user", "expected"), USERS)
def test_secrets_of_a_kubeconfig(user: dict[str, object], expected: set[str]) -> None:
    assert secrets_of({"users": [{"name": "a", "user": user}]}) == expected


@pytest.mark.parametrize("broken", [None, "text", {}, {"users": None}, {"users": ["a", {"user": "b"}, {}]}])
def test_a_broken_kubeconfig_has_none(broken: object) -> None:
    assert secrets_of(broken) == set()
