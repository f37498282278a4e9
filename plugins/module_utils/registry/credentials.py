# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Credentials for registries, and the pull Secret that carries them into a cluster."""

from __future__ import annotations

import base64
import binascii
import functools
import json
import re
import threading
import typing as t
from dataclasses import dataclass, field

from ..catalog.names import CREATED_ANNOTATION
from .reference import HUB

if t.TYPE_CHECKING:
    from ..core.values import Document, Object

# Reads the credentials of registries from options, from an auth file of docker or podman, and from NGC_API_KEY (pure).
#
# Sources: containers/image docs/containers-auth.json.5.md; NVIDIA NGC: the user is $oauthtoken, and the password is an API key.

NGC_REGISTRY, NGC_USER, NGC_VARIABLE = "nvcr.io", "$oauthtoken", "NGC_API_KEY"
AUTH_FILE_VARIABLE = "REGISTRY_AUTH_FILE"
_FILE_KEYS = frozenset({"auths", "credHelpers", "credsStore"})
_STANDARD_ALPHABET = str.maketrans("-_", "+/")
# The hosts of Docker Hub in files that docker and podman have written.
_HUB_HOSTS = frozenset({HUB, "index.docker.io", "registry-1.docker.io"})


@dataclass(frozen=True)
class Login:
    """A user with a password or an identity token. `source` is the origin of the login, for messages."""

    username: str
    password: str = field(repr=False)
    source: str
    identity_token: str = field(default="", repr=False)

    @property
    def basic(self) -> str:
        """The value of an Authorization header."""
        return f"Basic {self.encoded}"

    @property
    def encoded(self) -> str:
        """The user and the password in the encoding of an auth file."""
        return base64.b64encode(f"{self.username}:{self.password}".encode(errors="surrogateescape")).decode()

    @property
    def secrets(self) -> set[str]:
        """The secret strings, which must not be printed."""
        return {text for text in (self.password, self.encoded if self.password else "", self.identity_token) if text}


class InvalidAuthFile(ValueError):
    """The auth file is not valid. The message does not quote the file."""


class Credentials:
    """The logins by registry, or by registry and path; the longest match is used. A credential helper is called only when its login is needed."""

    def __init__(
        self, logins: t.Mapping[str, Login], helpers: t.Mapping[str, t.Callable[[], Login | None]] | None = None
    ) -> None:
        """logins, helpers: by the name of the registry in options and auth files. The login from a helper takes precedence."""
        self._logins = {_key(name): login for name, login in logins.items()}
        self._helpers = {_key(name): ask for name, ask in (helpers or {}).items()}
        # Several threads read logins.
        self._lock = threading.Lock()

    def find(self, name: str) -> Login | None:
        """The login for an image, or for a registry."""
        parts = name.split("/")
        for count in range(len(parts), 0, -1):
            login = self._login("/".join(parts[:count]))
            if login is not None:
                return login
        return None

    def _login(self, key: str) -> Login | None:
        with self._lock:
            if key in self._helpers:
                login = self._helpers[key]()
                del self._helpers[key]
                if login is not None:
                    self._logins[key] = login
            return self._logins.get(key)

    def document(self, text: str, *, only_named: bool = False) -> str:
        """The logins in the format of an auth file. The helpers of the registries whose host occurs in `text` are called.

        only_named: leave out the logins of other registries, except those of Docker Hub, from which base images without a registry are pulled.
        """
        auths: Object = {}
        with self._lock:
            names = dict.fromkeys((*self._logins, *self._helpers))
        for name in names:
            host = name.partition("/")[0]
            is_named = _names_host(text, host) or (only_named and host == HUB)
            login = self._login(name) if is_named else self._logins.get(name)
            if login is None or (only_named and not is_named):
                continue
            entry = {"identitytoken": login.identity_token} if login.identity_token else {}
            auths[name] = {"auth": login.encoded, **entry}
        return json.dumps({"auths": auths})

    @property
    def secrets(self) -> set[str]:
        """The secret strings, which must not be printed."""
        return {text for login in [*self._logins.values()] for text in login.secrets}


def read_credentials(
    options: t.Iterable[t.Mapping[str, t.Any]],
    auth_text: str | None,
    auth_path: str,
    environ: t.Mapping[str, str],
    ask_helper: t.Callable[[str, str], Login | None],
) -> Credentials:
    """The logins from the options, the auth file with its credential helpers, and NGC_API_KEY, in order of precedence; raises InvalidAuthFile.

    ask_helper: receives the name in the auth file and the name of the helper, and returns the helper's login. It is called when this login is needed.
    """
    logins: dict[str, Login] = {}
    key = environ.get(NGC_VARIABLE)
    if key:
        logins[NGC_REGISTRY] = Login(NGC_USER, key, f"the environment variable {NGC_VARIABLE}")
    own = {
        _key(option["registry"]): Login(
            option["username"],
            option["password"],
            f"the entry {option['registry']} of gpu_registries (option registries of the module)",
        )
        for option in options
        if option.get("username") and option.get("password")
    }
    entries, helpers = _parsed(auth_text, auth_path) if auth_text is not None else ({}, {})
    asked = {
        name: functools.partial(ask_helper, name, helper)
        for name, helper in helpers.items()
        if _key(name) not in own and _key(name) not in entries
    }
    return Credentials({**logins, **entries, **own}, asked)


def _parsed(text: str, path: str) -> tuple[dict[str, Login], dict[str, str]]:
    """The logins by key, and the credential helpers by the name in the file, which is the name that a helper expects."""
    try:
        document = json.loads(text)
        auths = document.get("auths") or {}
        if not document.keys() & _FILE_KEYS and all(isinstance(entry, dict) for entry in document.values()):
            # The older format (.dockercfg) has no key around the entries.
            auths = document
        helpers = dict(document.get("credHelpers") or {})
        logins = {}
        for name, entry in auths.items():
            login = _login(entry or {}, path)
            if login is not None:
                logins[_key(name)] = login
            elif document.get("credsStore"):
                helpers.setdefault(name, document["credsStore"])
        if not all(isinstance(helper, str) for helper in helpers.values()):
            raise TypeError
    except (ValueError, AttributeError, TypeError, RecursionError, binascii.Error):
        raise InvalidAuthFile(f"{path} is not an auth file: it must be a JSON object with the key auths") from None
    return logins, helpers


def _login(entry: t.Mapping[str, t.Any], path: str) -> Login | None:
    user, password = entry.get("username") or "", entry.get("password") or ""
    if entry.get("auth"):
        # Manually written files contain the line breaks of `base64`, the URL-safe alphabet, or no padding.
        encoded = "".join(entry["auth"].split()).translate(_STANDARD_ALPHABET).rstrip("=")
        plain = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
        user, dummy, password = plain.decode().rstrip("\0\r\n").partition(":")
    token = entry.get("identitytoken") or ""
    if not all(isinstance(value, str) for value in (user, password, token)):
        raise TypeError
    # Raises ValueError for text that cannot be sent.
    "".join((user, password, token)).encode()
    return Login(user, password, path, token) if token or (user and password) else None


def _names_host(text: str, host: str) -> bool:
    """Whether a string contains this host with its port, and not only a longer name or the same name with a different port."""
    return bool(re.search(rf"(?<![\w.-]){re.escape(host)}(?![\w-]|\.\w|:\d)", text))


def _key(name: str) -> str:
    """The name of a registry in the form that references use. From an address that docker writes, such as https://host/v1/, only the host is used."""
    dummy, separator, address = name.partition("://")
    plain = address.partition("/")[0] if separator else name.rstrip("/")
    host, dummy, folder = plain.partition("/")
    if folder in ("v1", "v2"):
        # The version of the API, from an address without its scheme.
        plain = host
    if host not in _HUB_HOSTS:
        return plain
    return HUB if folder in ("", "v1", "v2") else f"{HUB}/{folder}"


# Builds the Secrets with which nodes pull images. New logins are added to the logins that a Secret already contains (pure).
#
# Source: Kubernetes, Secret type kubernetes.io/dockerconfigjson.

TYPE, KEY = "kubernetes.io/dockerconfigjson", ".dockerconfigjson"


class ForeignSecret(ValueError):
    """The Secret is not a valid pull secret. The message completes a sentence about the Secret."""


def logins_of(secret: Document) -> dict[str, t.Any]:
    """The entries of a Secret by registry; raises ForeignSecret."""
    if secret.get("type") != TYPE:
        raise ForeignSecret(f"has the type {secret.get('type')}, not {TYPE}; use a different name")
    return dict(_document_of(secret)["auths"])


def _document_of(secret: Document) -> Object:
    """The content of a Secret, with the entries as a map; raises ForeignSecret."""
    try:
        document = json.loads(base64.b64decode((secret.get("data") or {}).get(KEY) or ""))
        if isinstance(document["auths"], dict):
            return t.cast("Object", document)
    except (ValueError, KeyError, TypeError, RecursionError, binascii.Error):
        pass
    raise ForeignSecret(f"has no valid {KEY}; delete the Secret, and run the playbook again")


def unusable_logins(logins: t.Mapping[str, Login]) -> list[str]:
    """A problem for each login with an identity token. The kubelet does not support these tokens, so they must not replace logins that work."""
    return [
        f"registries: the login for {name} from {login.source} is an identity token, which nodes cannot use. Set username and password of the registry"
        for name, login in logins.items()
        if login.identity_token
    ]


def desired_secret(live: Document | None, name: str, namespace: str, logins: t.Mapping[str, Login]) -> Object | None:
    """The Secret with these logins; None if the existing Secret already contains them. Existing settings and logins for other registries are kept."""
    auths = logins_of(live) if live is not None else {}
    if live is not None and all(_has(auths.get(registry), login) for registry, login in logins.items()):
        return None
    merged = {**auths, **{registry: {"auth": login.encoded} for registry, login in logins.items()}}
    settings = _document_of(live) if live is not None else {}
    text = json.dumps({**settings, "auths": merged}, sort_keys=True)
    metadata: Object = {"name": name, "namespace": namespace}
    if live is None:
        metadata["annotations"] = {CREATED_ANNOTATION: "true"}
    else:
        metadata["resourceVersion"] = live["metadata"]["resourceVersion"]
    data = {KEY: base64.b64encode(text.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": TYPE, "data": data}


def _has(entry: t.Any, login: Login) -> bool:
    """Whether an entry contains this login, either as `auth` or as a user and a password."""
    if not isinstance(entry, dict):
        return False
    if entry.get("auth"):
        return bool(entry["auth"] == login.encoded)
    return (entry.get("username"), entry.get("password")) == (login.username, login.password)
