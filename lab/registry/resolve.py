# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Resolves the reference of an image in a lab's registry, which a node's kubelet and containerd do first to pull it.

The nodes trust the authority of registry-tls. The texts are those of containerd 2 (core/remotes/docker: resolver.go,
authorizer.go, errors/errors.go), the choice of the login is that of Kubernetes (pkg/credentialprovider/keyring.go).
"""

from __future__ import annotations

import base64
import binascii
import fnmatch
import http.client
import json
import re
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..api import Api, Object
from ..layout import Lab
from . import layout

_ACCEPT = (
    "application/vnd.docker.distribution.manifest.v2+json, application/vnd.docker.distribution.manifest.list.v2+json,"
    " application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, */*"
)
AGENT = "containerd/2.1.4"
_SECRET_TYPE, _SECRET_KEY = "kubernetes.io/dockerconfigjson", ".dockerconfigjson"
_API_PATH = re.compile(r"^/v[12]/")
_SECONDS = 10.0


@dataclass(frozen=True)
class Reference:
    """The parts of an image reference that names its registry."""

    host: str
    repository: str
    # A digest wins over a tag.
    version: str

    @classmethod
    def parse(cls, image: str) -> Reference:
        """Take an image such as `127.0.0.1:5000/a/b:1`; without a tag, it is `latest`."""
        name, _at, digest = image.partition("@")
        host, _slash, path = name.partition("/")
        repository, _colon, tag = path.partition(":")
        return cls(host, repository, digest or tag or "latest")


@dataclass(frozen=True)
class Login:
    """A login of a pull Secret, for the images that its key matches."""

    key: str
    user: str
    password: str

    def matches(self, reference: Reference) -> bool:
        """Return whether the login is for a reference: the host, with wildcards, and a prefix of the repository."""
        host, _slash, path = self.key.partition("/")
        expected, actual = host.partition(":"), reference.host.partition(":")
        labels = expected[0].split("."), actual[0].split(".")
        return (
            expected[2] == actual[2]
            and len(labels[0]) == len(labels[1])
            and all(fnmatch.fnmatchcase(name, pattern) for pattern, name in zip(*labels, strict=True))
            and reference.repository.startswith(path)
        )


def logins(api: Api, pod: Object) -> list[Login]:
    """Return the logins of a pod's imagePullSecrets, the most specific key first; missing Secrets and invalid entries are ignored."""
    result: list[Login] = []
    for reference in pod["spec"].get("imagePullSecrets") or ():
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/secrets/{reference['name']}"
        secret = api.get(path) or {}
        if secret.get("type") == _SECRET_TYPE:
            result += _entries(json.loads(base64.b64decode(secret["data"][_SECRET_KEY])))
    return sorted(result, key=lambda login: login.key, reverse=True)


def _entries(document: dict[str, Any]) -> Iterator[Login]:
    for key, entry in (document.get("auths") or {}).items():
        user, password = entry.get("username", ""), entry.get("password", "")
        if encoded := entry.get("auth"):
            try:
                user, _colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
            except (binascii.Error, UnicodeDecodeError):
                continue
        host, slash, path = (key.partition("://")[2] or key).partition("/")
        below = _API_PATH.sub("/", f"{slash}{path}")
        yield Login(host if below == "/" else f"{host}{below}", user, password)


class Registries:
    """The registries of a lab, as its nodes reach them."""

    def __init__(self, lab: Lab) -> None:
        """Take a lab with the part."""
        ports = lab.ports()
        # Host and port in an image -> whether it has TLS.
        self._secure = {
            f"{host}:{ports[service]}": layout.is_secure(service)
            for service in (*layout.REGISTRIES, *layout.PROXIES)
            for host in ("127.0.0.1", "localhost")
        }
        self._context = ssl.create_default_context(cafile=str(layout.authority(lab)))

    def has(self, image: str) -> bool:
        """Return whether an image is one of a registry of this lab."""
        return image.partition("/")[0] in self._secure

    def problem(self, image: str, known: Sequence[Login]) -> str | None:
        """Return why the image cannot be pulled with the pod's logins, or None if it can."""
        reference = Reference.parse(image)
        # The kubelet tries each login, and no login only if it has none.
        fitting = [login for login in known if login.matches(reference)]
        problems: list[str] = []
        for login in fitting or (None,):
            problem = self._resolve(reference, login)
            if problem is None:
                return None
            if problem not in problems:
                problems.append(problem)
        return problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"

    def _resolve(self, reference: Reference, login: Login | None) -> str | None:
        secure = self._secure[reference.host]
        path = f"/v2/{reference.repository}/manifests/{reference.version}"
        url = f"{'https' if secure else 'http'}://{reference.host}{path}"
        headers = {"Accept": _ACCEPT, "User-Agent": AGENT}
        host, _colon, port = reference.host.partition(":")
        connection = (
            http.client.HTTPSConnection(host, int(port), context=self._context, timeout=_SECONDS)
            if secure
            else http.client.HTTPConnection(host, int(port), timeout=_SECONDS)
        )
        try:
            status = _head(connection, path, headers)
            if status == http.HTTPStatus.UNAUTHORIZED:
                if login is None or not login.user or not login.password:
                    return _failure(
                        reference,
                        "pull access denied, repository does not exist or may require authorization: authorization"
                        " failed: no basic auth credentials",
                    )
                basic = base64.b64encode(f"{login.user}:{login.password}".encode()).decode()
                status = _head(connection, path, headers | {"Authorization": f"Basic {basic}"})
        except ConnectionRefusedError:
            cause = f"dial tcp {reference.host}: connect: connection refused"
            return _failure(reference, f'failed to do request: Head "{url}": {cause}')
        except TimeoutError:
            return _failure(reference, f'failed to do request: Head "{url}": context deadline exceeded')
        except (OSError, http.client.HTTPException):
            return _failure(reference, f'failed to do request: Head "{url}": EOF')
        finally:
            connection.close()
        if status == http.HTTPStatus.OK:
            return None
        if status == http.HTTPStatus.NOT_FOUND:
            return not_found(_full(reference))
        reason = http.HTTPStatus(status).phrase
        return _failure(reference, f"unexpected status from HEAD request to {url}: {status} {reason}")


def not_found(image: str) -> str:
    """Return the message of a node's runtime for an image that its registry does not have."""
    return _message("NotFound", image, f"{image}: not found")


def _head(connection: http.client.HTTPConnection, path: str, headers: dict[str, str]) -> int:
    connection.request("HEAD", path, headers=headers)
    answer = connection.getresponse()
    answer.read()
    return answer.status


def _failure(reference: Reference, cause: str) -> str:
    return _message("Unknown", _full(reference), cause)


def _message(code: str, image: str, cause: str) -> str:
    return (
        f'rpc error: code = {code} desc = failed to pull and unpack image "{image}": failed to resolve reference'
        f' "{image}": {cause}'
    )


def _full(reference: Reference) -> str:
    """Return the reference as containerd writes it."""
    separator = "@" if ":" in reference.version else ":"
    return f"{reference.host}/{reference.repository}{separator}{reference.version}"
