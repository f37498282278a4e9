# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Creates kubeconfigs with a client certificate signed by the cluster's CA, and compares them with the cluster."""

from __future__ import annotations

import base64
import datetime
import typing as t
from dataclasses import dataclass

from ..kubeconfig_file import (
    CRYPTOGRAPHY_IMPORT_ERROR,
    YAML_IMPORT_ERROR,
    client_certificate,
    current_context,
    decoded,
    expiry,
    format_time,
    server_of,
)

if CRYPTOGRAPHY_IMPORT_ERROR is None:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID
if YAML_IMPORT_ERROR is None:
    import yaml

Object = dict[str, t.Any]

# The user and the group of the cluster's administrator, which `openstack coe cluster config` also sets (python-magnumclient,
# magnumclient/common/utils.py).
USER, GROUP = "admin", "system:masters"


@dataclass(frozen=True)
class ClusterEndpoint:
    """The data of a cluster that a kubeconfig contains. `ca` is the CA certificate of the API server in PEM format."""

    name: str
    server: str
    ca: str


@dataclass(frozen=True)
class CertificateRequest:
    """A private key and a certificate signing request, both in PEM format."""

    key: str
    csr: str


def new_request(user: str = USER, group: str = GROUP) -> CertificateRequest:
    """A new key, and the signing request for a certificate. Kubernetes reads the user's name and groups from the certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group), x509.NameAttribute(NameOID.COMMON_NAME, user)]
    )
    csr = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return CertificateRequest(private.decode(), csr.public_bytes(serialization.Encoding.PEM).decode())


def document(endpoint: ClusterEndpoint, key: str, certificate: str) -> str:
    """The text of the kubeconfig. The context, the cluster and the user have the cluster's name, so that later runs recognize the cluster."""
    name = endpoint.name
    user = {"client-certificate-data": _encoded(certificate), "client-key-data": _encoded(key)}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [
                {
                    "name": name,
                    "cluster": {"server": endpoint.server, "certificate-authority-data": _encoded(endpoint.ca)},
                }
            ],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "users": [{"name": name, "user": user}],
        },
        sort_keys=False,
    )


def problem(
    config: Object | None, endpoint: ClusterEndpoint, renew_before: datetime.timedelta, now: datetime.datetime
) -> str | None:
    """The reason why a kubeconfig does not give access to this cluster or will expire soon, or None if it can be used."""
    if config is None:
        return "the file does not exist"
    context, cluster, user = current_context(config)
    if cluster is None or user is None:
        return "it has no current context"
    if context != endpoint.name:
        return f"its context is {context}, but the cluster is {endpoint.name}"
    if cluster.get("server") != endpoint.server:
        return f"its server is {server_of(cluster)}, but the cluster's is {endpoint.server}"
    ca = decoded(cluster.get("certificate-authority-data"))
    if ca is None or ca.strip() != endpoint.ca.strip():
        return "it trusts a different CA than the cluster's"
    certificate = client_certificate(user)
    if certificate is None:
        return "it has no client certificate"
    if _public_key_of(user) != _public_bytes(certificate.public_key()):
        return "its key and its certificate do not match"
    if not _is_signed_by(certificate, endpoint.ca):
        return "its client certificate is signed by a different CA than the cluster's"
    end = expiry(certificate)
    if end <= now:
        return f"its client certificate expired at {format_time(end)}"
    return f"its client certificate expires at {format_time(end)}" if end - now <= renew_before else None


def _is_signed_by(certificate: x509.Certificate, ca: str) -> bool:
    try:
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(ca.encode()))
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _public_key_of(user: Object) -> bytes:
    key = decoded(user.get("client-key-data"))
    try:
        return _public_bytes(serialization.load_pem_private_key((key or "").encode(), None).public_key())
    except (ValueError, TypeError):
        return b""


def _public_bytes(key: t.Any) -> bytes:
    return t.cast(
        "bytes", key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
