# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds the Secrets with which nodes pull images. New logins are added to the logins that a Secret already contains (pure).

Source: Kubernetes, Secret type kubernetes.io/dockerconfigjson.
"""

from __future__ import annotations

import base64
import binascii
import json
import typing as t

from ..catalog.names import CREATED_ANNOTATION
from ..registry.credentials import Login

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]

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
