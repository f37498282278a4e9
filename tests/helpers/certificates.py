# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kubeconfigs with client certificates that expire at a given time, and certificates of servers on this machine."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ansible_collections.accel.gpu.plugins.module_utils.clouds.magnum_clusters import (
    ClusterEndpoint,
    kubeconfig_document,
)


def server_context(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """The TLS settings of a server on this machine, and the file with the certificate of its authority."""
    now = datetime.datetime.now(datetime.UTC)
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("authority", "server")}
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    authority_id = x509.SubjectKeyIdentifier.from_public_key(keys["authority"].public_key())
    usage = {
        name: name in ("key_cert_sign", "crl_sign")
        for name in (
            "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "key_cert_sign", "crl_sign",
            "encipher_only", "decipher_only",
        )
    }  # fmt: skip
    extensions: dict[str, list[tuple[x509.ExtensionType, bool]]] = {
        "authority": [
            (x509.BasicConstraints(ca=True, path_length=None), True),
            (x509.KeyUsage(**usage), True),
            (authority_id, False),
        ],
        "server": [
            (x509.SubjectAlternativeName(names), False),
            (x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority_id), False),
        ],
    }
    files = {}
    for name, key in keys.items():
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )
        for extension, critical in extensions[name]:
            builder = builder.add_extension(extension, critical)
        files[name] = folder / f"{name}.pem"
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        certificate = builder.sign(keys["authority"], hashes.SHA256())
        files[name].write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files["server"])
    return context, files["authority"]


def kubeconfig(name: str, server: str, days: float) -> str:
    """Return a kubeconfig whose certificate expires in this number of days."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "admin")])
    end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(end - datetime.timedelta(days=365))
        .not_valid_after(end)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM).decode()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    return kubeconfig_document(ClusterEndpoint(name, server, pem), private, pem)
