# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys, certificates and kubeconfigs of a lab's control plane."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import os
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from .layout import Lab

_YEARS = 10
_SERVER_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
_SERVER_ADDRESSES = ("127.0.0.1", "10.96.0.1")

MASTERS = "system:masters"
# Client certificates: file name -> (user, group). The audit policy excludes the names of the lab's own services.
CLIENTS: dict[str, tuple[str, str | None]] = {
    "admin": ("admin", MASTERS),
    "kube-controller-manager": ("system:kube-controller-manager", None),
    "kube-scheduler": ("system:kube-scheduler", None),
    "kubelet-client": ("lab:kubelet-client", MASTERS),
    "front-proxy-client": ("front-proxy-client", None),
    "kwok": ("lab:kwok", MASTERS),
    "sim": ("lab:sim", MASTERS),
    "runner": ("lab:runner", MASTERS),
    "cli": ("lab:cli", MASTERS),
}
KUBECONFIGS = ("kube-controller-manager", "kube-scheduler", "kwok", "sim", "runner", "cli")


def create(lab: Lab) -> None:
    """Create the missing files; a lab keeps its CA until it is deleted, so that existing kubeconfigs remain valid."""
    lab.pki.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (lab.pki / "complete").exists():
        return
    ca_key = ec.generate_private_key(ec.SECP256R1())
    # The CA has the name of the lab, because Magnum uses the cluster's name as issuer in the certificates that it signs.
    ca = _certificate(lab.name, None, ca_key, issuer=None, usage=None)
    _write(lab.pki / "ca.key", _private(ca_key))
    _write(lab.pki / "ca.crt", ca.public_bytes(serialization.Encoding.PEM))
    for name, (user, group) in {"server": ("kube-apiserver", None), **CLIENTS}.items():
        key = ec.generate_private_key(ec.SECP256R1())
        usage = ExtendedKeyUsageOID.SERVER_AUTH if name == "server" else ExtendedKeyUsageOID.CLIENT_AUTH
        certificate = _certificate(user, group, key, issuer=(ca, ca_key), usage=usage)
        _write(lab.pki / f"{name}.key", _private(key))
        _write(lab.pki / f"{name}.crt", certificate.public_bytes(serialization.Encoding.PEM))
    account = ec.generate_private_key(ec.SECP256R1())
    _write(lab.pki / "sa.key", _private(account))
    public = account.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    _write(lab.pki / "sa.pub", public)
    _write(lab.pki / "complete", b"")


def user_kubeconfig(lab: Lab, name: str, called: str) -> Path:
    """Return the kubeconfig of a user with the user name `called` and no group; the certificate is created once."""
    certificate = lab.pki / f"user-{name}.crt"
    if not certificate.exists():
        key = ec.generate_private_key(ec.SECP256R1())
        made = _certificate(called, None, key, issuer=_authority(lab), usage=ExtendedKeyUsageOID.CLIENT_AUTH)
        _write(lab.pki / f"user-{name}.key", _private(key))
        _write(certificate, made.public_bytes(serialization.Encoding.PEM))
    path = lab.pki / f"user-{name}.kubeconfig"
    _write(path, _kubeconfig(lab, f"https://127.0.0.1:{lab.ports()['kube-apiserver']}", f"user-{name}"))
    return path


def admin_kubeconfig(lab: Lab, called: str, days: int) -> bytes:
    """Return a self-contained kubeconfig of an administrator, valid for `days` days; it is not stored."""
    key = ec.generate_private_key(ec.SECP256R1())
    made = _certificate(called, MASTERS, key, issuer=_authority(lab), usage=ExtendedKeyUsageOID.CLIENT_AUTH, days=days)
    mine = made.public_bytes(serialization.Encoding.PEM), _private(key)
    return _document(lab, f"https://127.0.0.1:{lab.ports()['kube-apiserver']}", called, *mine)


def write_admin_kubeconfig(lab: Lab, called: str, path: Path) -> None:
    """Write the kubeconfig of an administrator with this user name; the key is replaced."""
    _write(path, admin_kubeconfig(lab, called, 365 * _YEARS))


def write_server_certificate(lab: Lab, name: str, path: Path) -> None:
    """Write a serving certificate with an additional DNS name to PATH.crt, and its key to PATH.key; both are replaced."""
    key = ec.generate_private_key(ec.SECP256R1())
    usage = ExtendedKeyUsageOID.SERVER_AUTH
    made = _certificate(name, None, key, issuer=_authority(lab), usage=usage, names=(*_SERVER_NAMES, name))
    _write(path.with_suffix(".key"), _private(key))
    _write(path.with_suffix(".crt"), made.public_bytes(serialization.Encoding.PEM))


def create_authority(path: Path, name: str, server: Path) -> None:
    """Create the certificate of an authority apart from the cluster's, and SERVER.crt and SERVER.key for loopback; once per lab."""
    certificate = server.with_suffix(".crt")
    if certificate.exists():
        return
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca = _certificate(name, None, ca_key, issuer=None, usage=None)
    _write(path, ca.public_bytes(serialization.Encoding.PEM))
    usage = ExtendedKeyUsageOID.SERVER_AUTH
    made = _certificate("localhost", None, key, issuer=(ca, ca_key), usage=usage, names=("localhost",))
    _write(server.with_suffix(".key"), _private(key))
    _write(certificate, made.public_bytes(serialization.Encoding.PEM))


def write_kubeconfigs(lab: Lab, server: str) -> None:
    """Write the administrator's kubeconfig, which is self-contained, and those of the services."""
    _write(lab.kubeconfig, _kubeconfig(lab, server, "admin"))
    for client in KUBECONFIGS:
        _write(lab.pki / f"{client}.kubeconfig", _kubeconfig(lab, server, client))


def _authority(lab: Lab) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    loaded = serialization.load_pem_private_key((lab.pki / "ca.key").read_bytes(), None)
    assert isinstance(loaded, ec.EllipticCurvePrivateKey)
    return x509.load_pem_x509_certificate((lab.pki / "ca.crt").read_bytes()), loaded


def _kubeconfig(lab: Lab, server: str, client: str) -> bytes:
    mine = (lab.pki / f"{client}.crt").read_bytes(), (lab.pki / f"{client}.key").read_bytes()
    return _document(lab, server, client, *mine)


def _document(lab: Lab, server: str, client: str, certificate: bytes, key: bytes) -> bytes:
    def data(content: bytes) -> str:
        return base64.b64encode(content).decode()

    authority = data((lab.pki / "ca.crt").read_bytes())
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": lab.name, "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [
            {
                "name": client,
                "user": {"client-certificate-data": data(certificate), "client-key-data": data(key)},
            }
        ],
        "contexts": [{"name": lab.name, "context": {"cluster": lab.name, "user": client}}],
        "current-context": lab.name,
    }
    return (json.dumps(document, indent=2) + "\n").encode()


def _certificate(
    user: str,
    group: str | None,
    key: ec.EllipticCurvePrivateKey,
    issuer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None,
    usage: x509.ObjectIdentifier | None,
    days: int = 365 * _YEARS,
    names: tuple[str, ...] = _SERVER_NAMES,
) -> x509.Certificate:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
    if group:
        attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
    subject = x509.Name(attributes)
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[0].subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # One day ago, because the clocks of containers and virtual machines differ.
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(_key_usage(authority=issuer is None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if issuer:
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer[1].public_key())
        builder = builder.add_extension(authority, critical=False)
    if usage:
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    if usage == ExtendedKeyUsageOID.SERVER_AUTH:
        alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
        alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in _SERVER_ADDRESSES]
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return builder.sign(issuer[1] if issuer else key, hashes.SHA256())


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(path.name + ".new")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as handle:
        handle.write(content)
    temporary.replace(path)
