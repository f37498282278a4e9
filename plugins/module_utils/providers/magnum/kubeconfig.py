# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A kubeconfig with a client certificate that the cluster's CA signs: made and judged; its key never leaves the file."""

from __future__ import annotations

import base64
import datetime
import os
import traceback
import typing as t
from dataclasses import dataclass

from ...catalog.secrets import without_user_info
from ...common.errors import ConnectionProblem

CRYPTOGRAPHY_IMPORT_ERROR: str | None = None
try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID
except ImportError:
    CRYPTOGRAPHY_IMPORT_ERROR = traceback.format_exc()
YAML_IMPORT_ERROR: str | None = None
try:
    import yaml
except ImportError:
    YAML_IMPORT_ERROR = traceback.format_exc()

Object = dict[str, t.Any]

# Who `openstack coe cluster config` makes its users (python-magnumclient, magnumclient/common/utils.py): the cluster's administrator.
USER, GROUP = "admin", "system:masters"


@dataclass(frozen=True)
class ClusterEndpoint:
    """A cluster as a kubeconfig names it: `ca` is the PEM of the CA of its API server."""

    name: str
    server: str
    ca: str


@dataclass(frozen=True)
class ExistingKubeconfig:
    """What a kubeconfig says of its current context; expires is when its client certificate ends, None where it has none."""

    context: str
    server: str
    expires: datetime.datetime | None

    def told(self) -> dict[str, str]:
        """For a result or a diff: nothing of it is secret."""
        return {
            "context": self.context,
            "server": self.server,
            **({"expires": stamp(self.expires)} if self.expires else {}),
        }


@dataclass(frozen=True)
class CertificateRequest:
    """A key and the request for its certificate, both PEM."""

    key: str
    csr: str


def request(user: str = USER, group: str = GROUP) -> CertificateRequest:
    """A new key, and what is to be signed: a user of Kubernetes is the common name, its groups are the organizations."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group), x509.NameAttribute(NameOID.COMMON_NAME, user)]
    )
    csr = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return CertificateRequest(private.decode(), csr.public_bytes(serialization.Encoding.PEM).decode())


def document(place: ClusterEndpoint, key: str, certificate: str) -> str:
    """The kubeconfig's text; context, cluster and user are called like the cluster, by which later steps know that it is the right one."""
    name = place.name
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [
                {
                    "name": name,
                    "cluster": {"server": place.server, "certificate-authority-data": _encoded(place.ca)},
                }
            ],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "users": [
                {
                    "name": name,
                    "user": {"client-certificate-data": _encoded(certificate), "client-key-data": _encoded(key)},
                }
            ],
        },
        sort_keys=False,
    )


def read(path: str) -> Object | None:
    """The kubeconfig of a file; None where there is none, an empty one where it is not a kubeconfig."""
    try:
        with open(path, encoding="utf-8") as handle:
            found = yaml.safe_load(handle)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConnectionProblem(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except yaml.YAMLError:
        return {}
    return found if isinstance(found, dict) else {}


def read_existing(config: Object) -> ExistingKubeconfig | None:
    """What the current context is; None where the kubeconfig has none that is whole."""
    context, cluster, user = _current(config)
    if cluster is None or user is None:
        return None
    certificate = _certificate(user)
    expires = _expires(certificate) if certificate is not None else None
    return ExistingKubeconfig(context, without_user_info(str(cluster.get("server"))), expires)


def problem(
    config: Object | None, place: ClusterEndpoint, renew_before: datetime.timedelta, now: datetime.datetime
) -> str | None:
    """Why a kubeconfig is not (or not for long) one of this cluster; None when it is."""
    if config is None:
        return "there is none"
    context, cluster, user = _current(config)
    if cluster is None or user is None:
        return "it has no current context"
    if context != place.name:
        return f"its context is {context}, and the cluster is {place.name}"
    if cluster.get("server") != place.server:
        return f"it leads to {without_user_info(str(cluster.get('server')))}, and the cluster is at {place.server}"
    ca = _decoded(cluster.get("certificate-authority-data"))
    if ca is None or ca.strip() != place.ca.strip():
        return "it trusts another CA than the cluster's"
    certificate = _certificate(user)
    if certificate is None:
        return "it has no client certificate"
    if _key_of(user) != _public(certificate.public_key()):
        return "its key and its certificate do not belong together"
    if not _signed(certificate, place.ca):
        return "its client certificate is of another CA than the cluster's"
    if _expires(certificate) <= now:
        return f"its client certificate expired at {stamp(_expires(certificate))}"
    if _expires(certificate) - now <= renew_before:
        return f"its client certificate expires at {stamp(_expires(certificate))}"
    return None


def obstacle(path: str, config: Object | None) -> str | None:
    """Why a file cannot be written or must not be replaced; None when it can. What is others' is more than one cluster's access."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        return f"its folder {folder} does not exist; create it first"
    if not os.access(folder, os.W_OK):
        return f"its folder {folder} may not be written to"
    if config is None:
        return None
    if config.get("kind") != "Config":
        return "the file that is there is no kubeconfig; name another one"
    names = [str(entry.get("name")) for entry in config.get("contexts") or () if isinstance(entry, dict)]
    if max(len(names), len(config.get("users") or ()), len(config.get("clusters") or ())) > 1:
        return f"the kubeconfig that is there leads to more than one cluster ({', '.join(names)}); name a file for this one alone"
    return None


def mode(path: str) -> str:
    """A file's rights, as 0600; empty where there is no file."""
    try:
        return f"{os.stat(path).st_mode & 0o777:04o}"
    except OSError:
        return ""


def too_permissive(path: str) -> bool:
    """Whether others than the file's owner may read it."""
    found = mode(path)
    return bool(found) and not found.endswith("00")


def stamp(moment: datetime.datetime) -> str:
    """A moment as results say it, in UTC."""
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _current(config: Object) -> tuple[str, Object | None, Object | None]:
    name = str(config.get("current-context") or "")
    context = _named(config, "contexts", name, "context") or {}
    cluster = _named(config, "clusters", str(context.get("cluster")), "cluster")
    return name, cluster, _named(config, "users", str(context.get("user")), "user")


def _named(config: Object, kind: str, name: str, inner: str) -> Object | None:
    entries = config.get(kind)
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("name") == name and isinstance(entry.get(inner), dict):
            return t.cast("Object", entry[inner])
    return None


def _certificate(user: Object) -> x509.Certificate | None:
    text = _decoded(user.get("client-certificate-data"))
    try:
        return x509.load_pem_x509_certificate(text.encode()) if text else None
    except ValueError:
        return None


def _expires(certificate: x509.Certificate) -> datetime.datetime:
    # not_valid_after_utc came with cryptography 42.
    return (
        certificate.not_valid_after.replace(tzinfo=datetime.UTC)
        if not hasattr(certificate, "not_valid_after_utc")
        else certificate.not_valid_after_utc
    )


def _signed(certificate: x509.Certificate, ca: str) -> bool:
    try:
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(ca.encode()))
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _key_of(user: Object) -> bytes:
    text = _decoded(user.get("client-key-data"))
    try:
        return _public(serialization.load_pem_private_key((text or "").encode(), None).public_key())
    except (ValueError, TypeError):
        return b""


def _public(key: t.Any) -> bytes:
    return t.cast(
        "bytes", key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _decoded(text: t.Any) -> str | None:
    try:
        return base64.b64decode(str(text), validate=True).decode() if text else None
    except ValueError:
        return None
