# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the defaults that a CustomResourceDefinition sets in its openAPIV3Schema (apiextensions.k8s.io/v1) (pure)."""

from __future__ import annotations

import typing as t

Document = t.Mapping[str, t.Any]


def defaults_at(definition: Document, path: t.Sequence[str]) -> list[t.Any]:
    """The values that the API server may set at this path of keys if none is given: one for each version and level that has a default."""
    defaults: list[t.Any] = []
    for version in (definition.get("spec") or {}).get("versions") or []:
        schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        defaults += [value for value in _defaults(schema, path) if value not in defaults]
    return defaults


def _defaults(schema: Document, path: t.Sequence[str]) -> t.Iterator[t.Any]:
    if "default" in schema:
        yield from _value_at(schema["default"], path)
    if path:
        properties = schema.get("properties") or {}
        below = properties.get(path[0], schema.get("additionalProperties"))
        if isinstance(below, t.Mapping):
            yield from _defaults(below, path[1:])


def _value_at(default: t.Any, path: t.Sequence[str]) -> t.Iterator[t.Any]:
    """The value at this path in the default of a map, if there is one."""
    for key in path:
        if not isinstance(default, t.Mapping) or key not in default:
            return
        default = default[key]
    yield default
