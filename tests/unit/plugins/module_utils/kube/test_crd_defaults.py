# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The defaults of a CRD at a path."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.fields import defaults_at

Object = dict[str, Any]


def definition(*schemas: Object) -> Object:
    return {
        "spec": {"versions": [{"name": f"v{n}", "schema": {"openAPIV3Schema": each}} for n, each in enumerate(schemas)]}
    }


def spec(**properties: Object) -> Object:
    return {"properties": {"spec": {"properties": properties}}}


NAME = spec(config={"properties": {"name": {"type": "string", "default": "standard"}}})
OBJECT = spec(config={"default": {"name": "of the map"}, "properties": {"name": {"default": "of the field"}}})
MAP = spec(labels={"additionalProperties": {"type": "string", "default": ""}})
NULL = spec(config={"properties": {"name": {"default": None}}})


@pytest.mark.parametrize(
    ("schemas", "path", "expected"),
    [
        ([NAME], ["spec", "config", "name"], ["standard"]),
        ([NAME], ["spec", "config", "other"], []),
        ([NAME], ["spec", "config"], []),
        ([NAME, NAME], ["spec", "config", "name"], ["standard"]),
        ([OBJECT, NAME], ["spec", "config", "name"], ["of the map", "of the field", "standard"]),
        ([OBJECT], ["spec", "config"], [{"name": "of the map"}]),
        ([MAP], ["spec", "labels", "x"], [""]),
        ([NULL], ["spec", "config", "name"], [None]),
        ([{}], ["spec"], []),
        ([], ["spec"], []),
    ],
)
def test_defaults(schemas: list[Object], path: list[str], expected: list[Any]) -> None:
    assert defaults_at(definition(*schemas), path) == expected


def test_a_definition_without_versions_has_no_defaults() -> None:
    assert defaults_at({}, ["spec"]) == []
