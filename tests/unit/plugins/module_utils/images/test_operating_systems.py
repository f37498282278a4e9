# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operating systems of nodes and of the option operating_systems."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.errors import InvalidOptions
from ansible_collections.accel.gpu.plugins.module_utils.images.driver_images import (
    NodeSystems,
    System,
    parse_systems,
    system_of,
)
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import parse_node
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive

RHEL, RHCOS, UBUNTU = ("rhel", "9.6"), ("rhcos", "4.18"), ("ubuntu", "22.04")
PREFIX = "feature.node.kubernetes.io/"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rhel9.6", RHEL),
        ("rhcos4.18", RHCOS),
        ("ubuntu22.04", UBUNTU),
        ("sl-micro6.0", ("sl-micro", "6.0")),
        ("rhel9", ("rhel", "9")),
        ("rhel", None),
        ("9.6", None),
        ("rhel.9", None),
        ("", None),
    ],
)
def test_operating_systems_of_the_option(text: str, expected: System | None) -> None:
    if expected is not None:
        assert parse_systems([text]) == {expected}
        return
    with pytest.raises(InvalidOptions, match=r"operating_systems\[1\]: .* is not an operating system"):
        parse_systems(["rhel9", text])


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"ID": "rhel", "VERSION_ID": "9.6"}, RHEL),
        ({"ID": "rhcos", "VERSION_ID": "4.18"}, RHCOS),
        ({"ID": "rhel"}, None),
        ({"ID": "rhel", "VERSION_ID": ""}, None),
        ({}, None),
    ],
)
def test_operating_systems_of_nodes(labels: dict[str, str], expected: System | None) -> None:
    named = {f"feature.node.kubernetes.io/system-os_release.{name}": text for name, text in labels.items()}
    assert system_of(parse_node({"metadata": {"name": "n", "labels": named}})) == expected


def node(name: str, system: System | None, **labels: str) -> dict[str, Any]:
    """A node as the API server returns it."""
    named = dict(zip(("ID", "VERSION_ID"), system or (), strict=False))
    actual = {f"{PREFIX}system-os_release.{key}": text for key, text in named.items()}
    return {"metadata": {"name": name, "labels": {**actual, **labels}}, "status": {}}


def test_the_systems_of_a_pool() -> None:
    gpu = {f"{PREFIX}pci-10de.present": "true"}
    nodes = [node("a", RHEL, pool="a", **gpu), node("b", RHCOS, **gpu), node("c", UBUNTU)]
    pools = derive(
        {"name": "c"}, {}, [{"name": name, "match": {"labels": {"pool": name}}} for name in ("a", "later")]
    ).pools
    actual = NodeSystems([], pools, lambda: nodes)
    assert actual.of_pool(pools[0]) == {RHEL}
    # A pool without nodes may get nodes like any other GPU node.
    assert actual.of_pool(pools[1]) == actual.of_all() == {RHEL, RHCOS}
    assert NodeSystems([], pools, lambda: nodes[2:]).of_all() == {UBUNTU}


def test_given_systems_need_no_nodes() -> None:
    def read() -> list[Any]:
        raise AssertionError("nothing is read")

    assert NodeSystems(["ubuntu22.04"], [], read).of_all() == {UBUNTU}


def test_the_kernels_of_a_pool() -> None:
    gpu, label = {f"{PREFIX}pci-10de.present": "true"}, f"{PREFIX}kernel-version.full"
    nodes = [
        node("a", RHEL, pool="a", **gpu, **{label: "5.14.0"}),
        node("b", UBUNTU, **gpu, **{label: "5.15.0-91-generic"}),
        node("c", UBUNTU, **{label: "6.8.0"}),
        node("d", UBUNTU, **gpu),
    ]
    pools = derive(
        {"name": "c"}, {}, [{"name": name, "match": {"labels": {"pool": name}}} for name in ("a", "later")]
    ).pools
    everywhere = {(RHEL, "5.14.0"), (UBUNTU, "5.15.0-91-generic")}
    for actual in (NodeSystems([], pools, lambda: nodes), NodeSystems(["rhel9.6"], pools, lambda: nodes)):
        assert actual.kernels(pools[0]) == {(RHEL, "5.14.0")}
        assert actual.kernels(pools[1]) == actual.kernels(None) == everywhere
