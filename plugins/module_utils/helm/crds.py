# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CRDs of a chart: Helm creates them and never upgrades them, so they are applied here."""

from __future__ import annotations

import hashlib
import json
import typing as t

from ..common.wait import wait_until
from ..kube.client import Client
from ..kube.objects import ObjectChange, ObjectWriter
from ..kube.paths import CUSTOM_RESOURCE_DEFINITIONS

Object = dict[str, t.Any]
_ESTABLISH_TIMEOUT = 30.0


def apply_crds(
    client: Client, definitions: list[Object], *, check: bool, before_write: t.Callable[[], None]
) -> list[ObjectChange]:
    """Apply the CRDs that differ and wait until the server serves them; sends nothing in check mode."""
    changes = ObjectWriter(client, check, before_write).apply(definitions)
    for change in changes:
        if change.changed and not check:
            _await_established(client, change.name)
    return changes


def crd_summary(definition: t.Mapping[str, t.Any]) -> Object:
    """A CRD as a diff shows it: its versions and a hash of its spec, since a schema has 300 KB."""
    spec = definition.get("spec") or {}
    content = hashlib.sha256(json.dumps(spec, sort_keys=True).encode("utf-8")).hexdigest()
    return {"versions": [version.get("name") for version in spec.get("versions") or []], "content": content[:12]}


def _await_established(client: Client, name: str) -> None:
    def conditions(definition: Object) -> list[Object]:
        return (definition.get("status") or {}).get("conditions") or []

    def describe(definition: Object) -> str:
        texts = [
            f"{item.get('type')}={item.get('status')} {item.get('message', '')}" for item in conditions(definition)
        ]
        return f"The API server does not serve CRD {name}: {'; '.join(texts) or 'no status'}"

    wait_until(
        lambda: client.get(f"{CUSTOM_RESOURCE_DEFINITIONS}/{name}") or {},
        lambda definition: any(
            item.get("type") == "Established" and item.get("status") == "True" for item in conditions(definition)
        ),
        timeout=_ESTABLISH_TIMEOUT,
        interval=0.2,
        describe=describe,
    )
