# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of an object that a CustomResourceDefinition has."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.objects import known_fields

Object = dict[str, Any]

SCHEMA: Object = {
    "properties": {
        "driver": {"properties": {"enabled": {}, "env": {"items": {"properties": {"name": {}, "value": {}}}}}},
        "free": {"properties": {"a": {}}, "x-kubernetes-preserve-unknown-fields": True},
        "labels": {"additionalProperties": {"type": "string"}},
    }
}


@pytest.mark.parametrize(
    ("value", "known"),
    [
        ({}, {}),
        ({"driver": {"enabled": True, "old": 1}, "older": {}}, {"driver": {"enabled": True}}),
        ({"driver": {"env": [{"name": "a", "x": 1}]}}, {"driver": {"env": [{"name": "a"}]}}),
        ({"free": {"a": 1, "b": 2}, "labels": {"x": "y"}}, {"free": {"a": 1, "b": 2}, "labels": {"x": "y"}}),
    ],
)
def test_fields_that_the_definition_does_not_have_are_left_out(value: Object, known: Object) -> None:
    assert known_fields(value, SCHEMA) == known
    assert known_fields(value, {}) == value, "without a schema nothing is known to be wrong"
