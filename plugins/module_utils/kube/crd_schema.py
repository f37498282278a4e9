# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads CustomResourceDefinitions and finds the fields that they define in their openAPIV3Schema (apiextensions.k8s.io/v1)."""

from __future__ import annotations

import typing as t

from ..common.nested import get_nested
from .errors import ApiError
from .paths import CUSTOM_RESOURCE_DEFINITIONS

if t.TYPE_CHECKING:
    from .client import Client

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]


def read_definition(client: Client, name: str) -> Object | None:
    """A CRD; None if the user is not allowed to read it."""
    try:
        return client.get(f"{CUSTOM_RESOURCE_DEFINITIONS}/{name}")
    except ApiError as error:
        if not error.forbidden:
            raise
        return None


def spec_schema(definition: Document | None, api_version: str) -> Object:
    """The schema of `spec` in this version of a CRD; empty if it is not known."""
    for item in get_nested(definition, "spec", "versions") or ():
        if item.get("name") == api_version.rpartition("/")[2]:
            return get_nested(item, "schema", "openAPIV3Schema", "properties", "spec") or {}
    return {}


def known_fields(value: t.Any, schema: Document) -> t.Any:
    """The part of a value that the schema defines; the whole value if the schema is empty.

    The example objects of operators contain fields that their CRDs do not define: `customConfig` of NFD 4.12,
    `driver.upgradePolicy.kernelModuleType` of the GPU operator v25.3.
    """
    properties = schema.get("properties")
    if isinstance(value, list):
        return [known_fields(item, schema.get("items") or {}) for item in value]
    if not isinstance(value, dict) or not properties or schema.get("x-kubernetes-preserve-unknown-fields"):
        return value
    return {key: known_fields(item, properties[key]) for key, item in value.items() if key in properties}
