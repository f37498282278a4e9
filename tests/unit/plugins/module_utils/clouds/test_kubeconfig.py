# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a kubeconfig belongs to a cluster, and when not, with certificates of real CAs."""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ansible_collections.accel.gpu.plugins.module_utils.clouds import kubeconfig_file, magnum_clusters
from ansible_collections.accel.gpu.plugins.module_utils.core.errors import ConnectionProblem

NOW = datetime.datetime(2026, 11, 22, 12, tzinfo=datetime.UTC)
MONTH = datetime.timedelta(days=30)
_NO_DAYS = datetime.timedelta(0)


class Authority:
    """A CA that signs as Magnum does."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "cluster")])
        made = self._builder(self._name, self._key.public_key(), NOW + 100 * MONTH)
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        self.pem = _pem(made.add_extension(constraints, critical=True).sign(self._key, hashes.SHA256()))

    def sign(self, csr: str, until: datetime.datetime = NOW + 10 * MONTH) -> str:
        asked = x509.load_pem_x509_csr(csr.encode())
        assert asked.is_signature_valid
        return _pem(self._builder(asked.subject, asked.public_key(), until).sign(self._key, hashes.SHA256()))

    def _builder(self, subject: x509.Name, key: Any, until: datetime.datetime) -> x509.CertificateBuilder:
        made = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key)
        return made.serial_number(1).not_valid_before(NOW - 10 * MONTH).not_valid_after(until)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def place(authority: Authority) -> magnum_clusters.ClusterEndpoint:
    return magnum_clusters.ClusterEndpoint("prod", "https://10.0.0.1:6443", authority.pem)


def made(place: magnum_clusters.ClusterEndpoint, authority: Authority, **signing: Any) -> dict[str, Any]:
    asked = magnum_clusters.new_certificate_request()
    return dict(
        yaml.safe_load(magnum_clusters.kubeconfig_document(place, asked.key, authority.sign(asked.csr, **signing)))
    )


def test_a_new_kubeconfig_is_valid(place: magnum_clusters.ClusterEndpoint, authority: Authority) -> None:
    config = made(place, authority)
    assert magnum_clusters.endpoint_problem(config, place, MONTH, NOW) is None
    held = kubeconfig_file.existing(config)
    assert held is not None
    assert held.to_result() == {"context": "prod", "server": place.server, "expires_at": "2027-09-18T12:00:00Z"}


def test_the_user(authority: Authority) -> None:
    certificate = x509.load_pem_x509_certificate(authority.sign(magnum_clusters.new_certificate_request().csr).encode())
    assert certificate.subject.rfc4514_string() == "CN=admin,O=system:masters"


def test_invalid_kubeconfigs(place: magnum_clusters.ClusterEndpoint, authority: Authority) -> None:
    config = made(place, authority)
    other = Authority()
    elsewhere = magnum_clusters.ClusterEndpoint(place.name, "https://10.0.0.2:6443", place.ca)
    renamed = magnum_clusters.ClusterEndpoint("test", place.server, place.ca)
    distrusted = magnum_clusters.ClusterEndpoint(place.name, place.server, other.pem)
    foreign = made(place, other)
    mixed = {**config, "users": [{"name": "prod", "user": {**config["users"][0]["user"], **_key_only(foreign)}}]}
    tokens = {**config, "users": [{"name": "prod", "user": {"token": "x"}}]}
    for actual, existing, text in (
        (None, place, "the file does not exist"),
        ({}, place, "no current context"),
        (config, elsewhere, "its server is https://10.0.0.1:6443"),
        (config, renamed, "its context is prod"),
        (config, distrusted, "trusts a different CA"),
        (foreign, place, "by a different CA than"),
        (mixed, place, "do not match"),
        (tokens, place, "no client certificate"),
        (made(place, authority, until=NOW - MONTH), place, "expired at 2026-10-23"),
        (made(place, authority, until=NOW + MONTH / 2), place, "expires at 2026-12-07"),
    ):
        assert text in (magnum_clusters.endpoint_problem(actual, existing, MONTH, NOW) or "")
    assert magnum_clusters.endpoint_problem(made(place, authority, until=NOW + MONTH / 2), place, _NO_DAYS, NOW) is None


def _key_only(config: dict[str, Any]) -> dict[str, Any]:
    return {"client-key-data": config["users"][0]["user"]["client-key-data"]}


def test_permissions(tmp_path: Path) -> None:
    path = tmp_path / "config"
    assert (kubeconfig_file.mode(str(path)), kubeconfig_file.too_permissive(str(path))) == ("", False)
    for mode, loose in ((0o644, True), (0o640, True), (0o600, False), (0o400, False)):
        path.touch()
        path.chmod(mode)
        assert (kubeconfig_file.mode(str(path)), kubeconfig_file.too_permissive(str(path))) == (f"{mode:04o}", loose)


def test_obstacles(tmp_path: Path, place: magnum_clusters.ClusterEndpoint, authority: Authority) -> None:
    config = made(place, authority)
    several = {**config, "contexts": [*config["contexts"], {"name": "mine", "context": {}}]}
    path = str(tmp_path / "config")
    assert kubeconfig_file.obstacle(path, None) is None
    assert kubeconfig_file.obstacle(path, config) is None
    assert "more than one cluster (prod, mine)" in (kubeconfig_file.obstacle(path, several) or "")
    assert "not a kubeconfig" in (kubeconfig_file.obstacle(path, {"a": 1}) or "")
    assert "does not exist" in (kubeconfig_file.obstacle(str(tmp_path / "nowhere" / "config"), None) or "")


def test_files_that_are_not_kubeconfigs(tmp_path: Path) -> None:
    assert kubeconfig_file.read(str(tmp_path / "none")) is None
    (tmp_path / "broken").write_text("a: [b")
    assert kubeconfig_file.read(str(tmp_path / "broken")) == {}
    with pytest.raises(ConnectionProblem, match="cannot be read"):
        kubeconfig_file.read(str(tmp_path))
    # Reading a pipe without a writer, or this device, would never end.
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "/dev/zero"):
        with pytest.raises(ConnectionProblem, match="cannot be read: it is not a regular file"):
            kubeconfig_file.read(path)
