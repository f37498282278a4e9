# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configurations of NVIDIA's device plugin: their content, their text and the name of their ConfigMap entry."""

from __future__ import annotations

import hashlib
import json
import re
import typing as t

from ..catalog.names import GPU_RESOURCE, SHARED_GPU_RESOURCE, SHARED_SUFFIX

EXCLUSIVE = "none"
TIME_SLICING = "time-slicing"

_PLAIN_TEXT = re.compile(r"[A-Za-z][A-Za-z0-9./_-]*")
_READ_AS_OTHER = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


def config(mode: str, replicas: int, rename: bool, fail_requests: bool) -> dict[str, t.Any]:
    """A configuration as api/config/v1 of k8s-device-plugin knows it; an exclusive GPU needs no `sharing` at all."""
    if mode == EXCLUSIVE:
        return {"version": "v1"}
    if mode == TIME_SLICING:
        return {
            "version": "v1",
            "sharing": {
                "timeSlicing": {
                    "renameByDefault": rename,
                    "failRequestsGreaterThanOne": fail_requests,
                    "resources": [{"name": GPU_RESOURCE, "replicas": replicas}],
                }
            },
        }
    raise ValueError(f"no device plugin configuration is known for sharing mode {mode!r}")


def entry_name(content: dict[str, t.Any]) -> str:
    """The ConfigMap key of a configuration: readable, a legal label value, and different for different content.

    A key whose content changed is not read again by the plugin; a new key, named by the node's label, is.
    """
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]
    slicing = content.get("sharing", {}).get("timeSlicing")
    if slicing is None:
        return f"{EXCLUSIVE}-{digest}"
    return f"{TIME_SLICING}-{slicing['resources'][0]['replicas']}-{digest}"


def resource(mode: str, rename: bool) -> str:
    """The extended resource that a node of this mode offers."""
    return SHARED_GPU_RESOURCE if mode != EXCLUSIVE and rename else GPU_RESOURCE


def product_suffix(mode: str, rename: bool) -> str:
    """What gpu-feature-discovery appends to the product name under this mode."""
    return SHARED_SUFFIX if mode != EXCLUSIVE and not rename else ""


def render(content: dict[str, t.Any]) -> str:
    """The same YAML for the same content, on every machine and without a YAML library."""
    return "\n".join(_block(content)) + "\n"


def _block(value: t.Any) -> list[str]:
    if isinstance(value, dict) and value:
        lines = []
        for key, item in value.items():
            if isinstance(item, (dict, list)) and item:
                lines += [f"{_scalar(key)}:", *(f"  {line}" for line in _block(item))]
            else:
                lines.append(f"{_scalar(key)}: {_scalar(item)}")
        return lines
    if isinstance(value, list) and value:
        lines = []
        for item in value:
            first, *rest = _block(item)
            lines += [f"- {first}", *(f"  {line}" for line in rest)]
        return lines
    return [_scalar(value)]


def _scalar(value: t.Any) -> str:
    if isinstance(value, str) and _PLAIN_TEXT.fullmatch(value) and value.lower() not in _READ_AS_OTHER:
        return value
    return json.dumps(value)
