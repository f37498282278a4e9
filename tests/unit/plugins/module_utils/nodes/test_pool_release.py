# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When MIG has to be disabled on a released node, when it is disabled, and which nodes an older version has left."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.nodes import warnings
from ansible_collections.accel.gpu.plugins.module_utils.nodes.impact import displaced_pods, transition
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.nodes.ownership import assign_pools
from ansible_collections.accel.gpu.plugins.module_utils.nodes.pods import PodOnNode
from ansible_collections.accel.gpu.plugins.module_utils.nodes.pool_edit import (
    check_whole_gpus,
    disable_mig_patch,
    is_abandoned,
    is_being_repaired,
    is_managed,
    is_partitioned,
    lost_layouts,
    needs_verification,
    release_edit,
)
from tests.helpers.fleet import node

CONFIG, STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"
PLUGIN = "nvidia.com/device-plugin.config"
MANAGED = "mig-2x3g.40gb-0a1b2c3d"
NOTE = {"accel.gpu/pool-labels": json.dumps(["accel.gpu/pool", PLUGIN, CONFIG])}
CORDON = {"accel.gpu/cordoned": "it is being released from pool train"}
A100: dict[str, str | None] = {"nvidia.com/mig.capable": "true", "nvidia.com/gpu.deploy.mig-manager": "true"}


def a100(config: str | None, state: str | None, notes: dict[str, str] | None = None, **labels: str | None) -> Node:
    given: dict[str, str | None] = {**A100, CONFIG: config, STATE: state, **labels}
    return node(model="NVIDIA-A100-SXM4-80GB", gpus=2, labels=given, annotations=notes or {})


def member(config: str | None, state: str | None, **labels: str | None) -> Node:
    return a100(config, state, NOTE, **{"accel.gpu/pool": "train", PLUGIN: "mig-single-00000000", **labels})


@pytest.mark.parametrize(
    ("actual", "cut"),
    [
        (member(MANAGED, "success"), True),
        (member(MANAGED, "failed"), True),
        (member(MANAGED, None), True),
        (member("all-disabled", "success"), False),
        (member("all-disabled", "pending"), True),
        (member("all-disabled", "failed"), True),
        # The MIG manager will process it; without a MIG manager, there is nothing to wait for.
        (member("all-disabled", None), True),
        (member("all-disabled", None, **{"nvidia.com/gpu.deploy.mig-manager": "false"}), False),
        (member(None, "failed"), True),
        (member(None, None), False),
        # Another tool has partitioned it since.
        (member("all-1g.10gb", "success"), False),
        (a100(MANAGED, "success"), False),
        (member(MANAGED, None, **{"nvidia.com/mig.capable": "false"}), False),
    ],
)
def test_which_nodes_have_to_be_made_whole(actual: Node, cut: bool) -> None:
    assert is_partitioned(actual) is cut


@pytest.mark.parametrize(
    ("actual", "labels"),
    [
        (member(MANAGED, "success"), {CONFIG: "all-disabled", STATE: None}),
        # The very value that the operator gives a node without one stays.
        (member("all-disabled", "success"), {}),
        (member("all-1g.10gb", "success"), {}),
        (member(MANAGED, None, **{"nvidia.com/mig.capable": "false"}), {CONFIG: None, STATE: None}),
    ],
)
def test_what_becomes_of_the_mig_configuration(actual: Node, labels: dict[str, str | None]) -> None:
    edit = release_edit(actual)
    assert edit is not None
    assert edit.labels == {"accel.gpu/pool": None, PLUGIN: None, **labels}
    # It is no longer a marker of the collection.
    assert edit.patch["metadata"]["annotations"] == {"accel.gpu/pool-labels": None}


FORMER = {
    "accel.gpu/former-labels": json.dumps(
        {"labels": {CONFIG: "all-3g.40gb", PLUGIN: "x10"}, "mig_devices": {"3g.40gb": 4}}
    )
}


@pytest.mark.parametrize(
    ("devices", "entries", "labels", "kind"),
    [
        # The layout was there before; nothing is repartitioned, and nobody loses a device.
        ("4", ["x10"], {CONFIG: "all-3g.40gb", STATE: None, PLUGIN: "x10"}, "plugin"),
        # Without its entry, the former plugin configuration would crash the device plugin.
        ("4", ["x4"], {CONFIG: "all-3g.40gb", STATE: None, PLUGIN: None}, "plugin"),
        # The pool has changed the layout since.
        ("2", ["x10"], {CONFIG: "all-disabled", STATE: None, PLUGIN: "x10"}, "mig-mode"),
    ],
)
def test_former_labels_are_set_back(devices: str, entries: list[str], labels: dict[str, str | None], kind: str) -> None:
    now: dict[str, str | None] = {"nvidia.com/mig-3g.40gb.count": devices, "accel.gpu/pool": "train", PLUGIN: "mig-x"}
    actual = a100(MANAGED, "success", {**NOTE, **FORMER}, **now)
    edit = release_edit(actual, entries)
    assert edit is not None
    assert edit.labels == {"accel.gpu/pool": None, **labels}
    assert edit.patch["metadata"]["annotations"] == {"accel.gpu/pool-labels": None, "accel.gpu/former-labels": None}
    change = transition(actual, None, edit)
    assert (change.kind, is_partitioned(actual), needs_verification(actual)) == (
        kind,
        kind == "mig-mode",
        kind == "mig-mode",
    )
    held = [PodOnNode("lab", "train", "u", {"nvidia.com/mig-3g.40gb": 1})]
    with_devices = replace(actual, allocatable={"nvidia.com/mig-3g.40gb": 4})
    assert bool(displaced_pods(transition(with_devices, None, edit), held)) is (kind == "mig-mode")


ONLY_LABELS = {"accel.gpu/former-labels": json.dumps({"labels": {CONFIG: "all-3g.40gb"}})}


@pytest.mark.parametrize(
    ("config", "notes", "devices", "lost"),
    [
        # The former layout is still there, so its label is restored.
        (MANAGED, FORMER, "4", False),
        (MANAGED, FORMER, "2", True),
        # The MIG strategy was none when the node joined its pool, so no devices are recorded.
        (MANAGED, ONLY_LABELS, "4", True),
        # The pool has disabled MIG.
        ("all-disabled", FORMER, None, True),
        # Another tool has set its own configuration since; it stays.
        ("all-1g.10gb", FORMER, None, False),
        # The node had no layout.
        (MANAGED, {}, "2", False),
    ],
)
def test_a_layout_that_a_release_does_not_restore_is_named(
    config: str, notes: dict[str, str], devices: str | None, lost: bool
) -> None:
    labels: dict[str, str | None] = {"nvidia.com/mig-3g.40gb.count": devices, "accel.gpu/pool": "train"}
    nodes = [replace(a100(config, "success", {**NOTE, **notes}, **labels), name=name) for name in ("a", "b")]
    texts = lost_layouts((each, edit) for each in nodes if (edit := release_edit(each)))
    assert len(texts) == int(lost)
    for text in texts:
        assert "The release of 2 nodes, a, b leaves whole GPUs" in text
        assert text.endswith(f"kubectl label --overwrite node NAME {CONFIG}=all-3g.40gb")


def test_the_first_half_keeps_every_note() -> None:
    patch = disable_mig_patch(member(MANAGED, "success"))
    assert patch is not None
    assert patch["metadata"]["labels"] == {PLUGIN: None, CONFIG: "all-disabled", STATE: None}
    good = json.loads(patch["metadata"]["annotations"]["accel.gpu/last-good"])
    assert good["labels"] == {CONFIG: MANAGED, PLUGIN: "mig-single-00000000"}
    assert disable_mig_patch(member("all-disabled", "pending", **{PLUGIN: None})) is None


def test_the_pool_that_a_node_leaves() -> None:
    assert member(MANAGED, "success").pin == "train"
    assert is_managed(member(MANAGED, "success"))
    assert is_managed(node(labels={"accel.gpu/pool": "by-hand"}))
    assert not is_managed(a100(MANAGED, "success"))


SINGLE = "NVIDIA-A100-SXM4-80GB-MIG-3g.40gb"


@pytest.mark.parametrize(
    ("labels", "allocatable", "words"),
    [
        ({}, {"nvidia.com/gpu": 2}, ""),
        # A default of the cluster shares whole GPUs.
        ({"nvidia.com/gpu.replicas": "4"}, {"nvidia.com/gpu": 8}, ""),
        ({"nvidia.com/gpu.replicas": "4"}, {"nvidia.com/gpu.shared": 8}, ""),
        ({"nvidia.com/gpu.deploy.device-plugin": "false"}, {}, ""),
        ({CONFIG: MANAGED}, {"nvidia.com/gpu": 2}, "all-disabled is expected"),
        ({STATE: None}, {"nvidia.com/gpu": 2}, "mig.config.state is absent"),
        ({STATE: "pending"}, {"nvidia.com/gpu": 2}, "mig.config.state is pending"),
        ({STATE: "failed"}, {"nvidia.com/gpu": 2}, "does not retry"),
        (
            {"nvidia.com/gpu.deploy.dcgm": "paused-for-mig-change"},
            {"nvidia.com/gpu": 2},
            "operands are paused for the change: dcgm",
        ),
        ({"nvidia.com/gpu.product": SINGLE}, {"nvidia.com/gpu": 2}, "still show MIG devices"),
        ({"nvidia.com/mig-3g.40gb.count": "4"}, {"nvidia.com/gpu": 2}, "still show MIG devices"),
        ({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-INVALID"}, {"nvidia.com/gpu": 2}, "still show MIG"),
        ({}, {"nvidia.com/gpu": 2, "nvidia.com/mig-3g.40gb": 4}, "mig-3g.40gb is still 4"),
        ({}, {"nvidia.com/gpu": 4}, "nvidia.com/gpu is 4, but 2 is expected"),
        ({}, {}, "nvidia.com/gpu is 0, but 2 is expected"),
        ({"nvidia.com/gpu.count": "0"}, {}, "a number of whole GPUs is expected"),
    ],
)
def test_what_shows_that_gpus_are_whole(labels: dict[str, str | None], allocatable: dict[str, int], words: str) -> None:
    given = {**A100, CONFIG: "all-disabled", STATE: "success", **labels}
    actual = check_whole_gpus(node(model="NVIDIA-A100-SXM4-80GB", gpus=2, labels=given, allocatable=allocatable))
    assert words in str(actual) if words else actual is None


@pytest.mark.parametrize(
    ("actual", "abandoned"),
    [
        (a100(None, "failed"), True),
        # Cut on purpose, or in the operator's hands.
        (a100("all-1g.10gb", "failed"), False),
        (a100("all-disabled", "failed"), False),
        (a100(None, "success"), False),
        (a100(None, None), False),
        (a100(None, None, None, **{"nvidia.com/gpu.product": SINGLE}), False),
        (a100(None, "pending"), False),
        (a100(None, "failed", NOTE), False),
        (a100(None, "failed", None, **{"accel.gpu/pool": "train"}), False),
        (a100(None, "failed", None, **{"nvidia.com/gpu.deploy.mig-manager": None}), False),
        (a100(None, "failed", None, **{"nvidia.com/mig.capable": "false"}), False),
    ],
)
def test_which_nodes_an_older_version_has_left(actual: Node, abandoned: bool) -> None:
    assert is_abandoned(actual) is abandoned
    found_warnings = warnings.all_warnings([actual], assign_pools([], [actual]), (), {}, run=False)
    assert any("may be advertised as whole GPUs" in text for text in found_warnings) is abandoned


def test_a_repair_sets_the_configuration_and_claims_nothing() -> None:
    edit = release_edit(a100(None, "failed"))
    assert edit is not None
    assert edit.patch == {"metadata": {"labels": {CONFIG: "all-disabled", STATE: None}}}


@pytest.mark.parametrize(
    ("actual", "begun"),
    [
        (a100("all-disabled", "pending", CORDON), True),
        (a100("all-disabled", "pending"), False),
        # Without a MIG manager there is nothing to wait for.
        (a100("all-disabled", None, CORDON, **{"nvidia.com/gpu.deploy.mig-manager": None}), False),
        (a100("all-1g.10gb", "success", CORDON), False),
        (
            a100("all-disabled", "success", {"accel.gpu/cordoned": "the machine is being removed from the cluster"}),
            False,
        ),
        (member("all-disabled", "pending"), False),
    ],
)
def test_a_repair_that_was_killed_is_known_again(actual: Node, begun: bool) -> None:
    assert is_being_repaired(actual) is begun
