# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of Magnum's node groups, and the settings that a pool's `nodes` has for all providers."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.types import Integer, Text
from ansible_collections.accel.gpu.plugins.module_utils.schema.pool import COMMON_NODES_FIELDS
from ansible_collections.accel.gpu.plugins.module_utils.schema.providers import MAGNUM, PROVIDERS, ProviderDefinition


@pytest.mark.parametrize("name", ["g", "gpu-t4", "A_b.c", "x" * 63, "9a"])
def test_names(name: str) -> None:
    assert MAGNUM.name_rule(name) is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "500"),
        ("x" * 64, "64 characters"),
        ("a b", "a-z, A-Z, 0-9"),
        ("-a", "both ends"),
        ("a/b", "a-z, A-Z, 0-9"),
        ("12", "looks like an ID"),
        ("0d358554-95b3-463f-86fc-21344a3cf48c", "looks like an ID"),
    ],
)
def test_invalid_names(name: str, message: str) -> None:
    assert message in (MAGNUM.name_rule(name) or "")


def contradictions(providers: t.Iterable[ProviderDefinition]) -> list[str]:
    """The settings of a pool's `nodes` that have another type for another provider: it has one map for all of them."""
    types = dict(COMMON_NODES_FIELDS)
    fields = [entry for provider in providers for entry in provider.nodes_fields.items()]
    return [name for name, field in fields if types.setdefault(name, field) != field]


def test_a_setting_of_nodes_has_one_type_for_all_providers() -> None:
    assert contradictions(PROVIDERS.values()) == []


def test_another_type_of_a_known_setting_is_found() -> None:
    third = dataclasses.replace(
        MAGNUM, key="third", nodes_fields={"image": Integer(), "role": MAGNUM.nodes_fields["role"]}
    )
    assert contradictions([*PROVIDERS.values(), third]) == ["image"]
    assert contradictions([dataclasses.replace(third, nodes_fields={"count": Text()})]) == ["count"]
