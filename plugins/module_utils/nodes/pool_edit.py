# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The changes of a node's labels, taints and annotations that make it a member of a pool, and those that release it (pure)."""

from __future__ import annotations

import dataclasses
import functools
import json
import typing as t
from dataclasses import dataclass

from ..catalog import names
from ..catalog.openshift import MACHINE_ANNOTATION
from ..catalog.operands import MIG_MANAGER
from ..catalog.taints import format_taint
from ..core.messages import abbreviate_nodes
from ..core.values import parse_json
from ..pools.plan import Entries, NodeMetadata, PoolPlan, RolloutPlan, rollout_plan
from ..schema.validators import ROLLOUT
from ..sharing_modes import mig as layouts
from ..sharing_modes import mig_parted
from .node_check import (
    CHANGING,
    FAILED,
    NodeDrift,
    expected_gpus,
    expected_mig_config,
    has_mig_manager,
    is_cordoned_for_removal,
    is_gpu_resource,
    mig_failure,
    paused_operands,
)
from .ownership import POOL_OWNER, NodeEdit, former_labels, keeps_layout, metadata_edit, recorded

if t.TYPE_CHECKING:
    from .node import Node

# Builds the edit that releases a node from its pool, and verifies that the node's GPUs are whole (pure).
#
# The label nvidia.com/mig.config is not removed from a released node but set to all-disabled, the value that the GPU operator sets on a
# node without this label. If the label were removed, the MIG manager would look up an empty name, fail and leave the GPUs as they are
# (mig-parted cmd/nvidia-mig-manager, "missing required flag 'selected-config'"), until the operator next reconciles the node.

ABANDONED = f"{names.MIG_STATE_LABEL} is {FAILED} and {names.MIG_CONFIG_LABEL} is not set, so GPUs that are still partitioned may be advertised as whole GPUs"
_DONE = "success"


def is_managed(node: Node) -> bool:
    """Whether the node has a pool label, or metadata that a pool has set."""
    return bool(recorded(node, POOL_OWNER)) or names.POOL_LABEL in node.labels


def is_partitioned(node: Node) -> bool:
    """Whether a pool's MIG configuration partitions the node's GPUs, or its removal has not been verified yet.

    If another tool or user has changed the label since then, its value no longer counts as set by the pool. A layout that the node had before it was in
    a pool does not count either.
    """
    if not _sets_mig_config(node) or keeps_layout(node):
        return False
    if mig_parted.is_managed(node.mig_config):
        return True
    if node.mig_config not in ("", mig_parted.DISABLED):
        return False
    unknown = not node.mig_state and bool(node.mig_config) and has_mig_manager(node)
    return node.mig_state in (FAILED, *CHANGING) or bool(node.mig_devices) or unknown


def is_abandoned(node: Node) -> bool:
    """Whether a release without verification may have left the node with partitioned GPUs.

    An abandoned node has no MIG configuration, which has made the MIG manager fail. Nodes with a foreign configuration, or with partitioned GPUs and
    no failure, do not count.
    """
    return (
        not is_managed(node)
        and not node.mig_config
        and node.mig_state == FAILED
        and node.labels.get(names.MIG_CAPABLE_LABEL) == "true"
        and has_mig_manager(node)
    )


def is_being_repaired(node: Node) -> bool:
    """Whether a run has begun to disable MIG on an abandoned node, but has not finished."""
    return (
        names.CORDONED_ANNOTATION in node.annotations
        and not is_cordoned_for_removal(node)
        and not is_managed(node)
        and node.mig_config == mig_parted.DISABLED
        and _has_mig_result(node)
    )


def needs_verification(node: Node) -> bool:
    """Whether the node's GPUs must be verified to be whole before the node is uncordoned."""
    is_disabling = _sets_mig_config(node) and node.mig_config == mig_parted.DISABLED and _has_mig_result(node)
    return is_disabling or is_partitioned(node) or is_abandoned(node) or is_being_repaired(node)


def release_edit(node: Node, plugin_entries: t.Collection[str] = ()) -> NodeEdit | None:
    """The edit that removes everything that a pool has set on the node, and sets its MIG configuration to all-disabled; None if nothing changes.

    The label nvidia.com/mig.config stays, but is no longer recorded as owned. It gets its former value if the node has the layout of that value. A former
    device plugin configuration is restored if it is among `plugin_entries`.
    """
    handed_over: dict[str, str] = {}
    if _sets_mig_config(node) or is_abandoned(node):
        foreign = node.mig_config and not mig_parted.is_managed(node.mig_config)
        handed_over = {names.MIG_CONFIG_LABEL: node.mig_config if foreign else mig_parted.DISABLED}
    former = former_labels(node).labels
    if keeps_layout(node):
        handed_over[names.MIG_CONFIG_LABEL] = former[names.MIG_CONFIG_LABEL]
    config = former.get(names.CONFIG_LABEL)
    if config and names.CONFIG_LABEL in recorded(node, POOL_OWNER).labels and config in plugin_entries:
        handed_over[names.CONFIG_LABEL] = config
    of_pool = (
        names.GPUS_ANNOTATION,
        names.LAST_GOOD_ANNOTATION,
        names.ROLLOUT_ANNOTATION,
        names.FORMER_LABELS_ANNOTATION,
    )
    annotations = dict.fromkeys(of_pool)
    return metadata_edit(
        node, POOL_OWNER, NodeMetadata(), remove_others=True, own_annotations=annotations, handed_over=handed_over
    )


def lost_layout(node: Node, edit: NodeEdit) -> str:
    """The MIG configuration that the node had before it was in a pool and that this release does not restore, because the pool has changed the layout."""
    former = former_labels(node).labels.get(names.MIG_CONFIG_LABEL, "")
    if not _sets_mig_config(node):
        return ""
    after = edit.labels.get(names.MIG_CONFIG_LABEL, node.mig_config)
    return former if after == mig_parted.DISABLED else ""


def lost_layouts(releases: t.Iterable[tuple[Node, NodeEdit]]) -> list[str]:
    """A warning for each former MIG configuration that the releases do not restore; afterwards, it is no longer recorded."""
    by_config: dict[str, list[str]] = {}
    for node, edit in releases:
        if config := lost_layout(node, edit):
            by_config.setdefault(config, []).append(node.name)
    return [
        f"The release of {abbreviate_nodes(nodes)} leaves whole GPUs and does not restore the MIG layout that was there before the pool changed it. To "
        f"restore it after the release, run: kubectl label --overwrite node NAME {names.MIG_CONFIG_LABEL}={config}"
        for config, nodes in sorted(by_config.items())
    ]


def check_whole_gpus(node: Node) -> NodeDrift | None:
    """The reasons why the node's GPUs are not verified to be whole under the configuration all-disabled; None if they are verified.

    All of these conditions must be met: the MIG manager reports success, the paused operands run again, neither GFD's labels nor the allocatable
    resources contain a MIG device, and the node offers as many GPUs (or shares of whole GPUs, if the cluster's default shares them) as GFD counts.
    """
    pool = node.pin
    if node.mig_config == mig_parted.DISABLED and node.mig_state == FAILED:
        return NodeDrift(node.name, pool, (mig_failure(node),), final=True, operand=MIG_MANAGER)
    differences = tuple(_unfinished(node))
    operand = MIG_MANAGER if node.mig_state != _DONE else ""
    return NodeDrift(node.name, pool, differences, operand=operand) if differences else None


def _unfinished(node: Node) -> t.Iterator[str]:
    if node.mig_config != mig_parted.DISABLED:
        yield f"label {names.MIG_CONFIG_LABEL} is {node.mig_config or 'absent'}, but {mig_parted.DISABLED} is expected"
    elif node.mig_state != _DONE:
        yield f"{names.MIG_STATE_LABEL} is {node.mig_state or 'absent'}, but {_DONE} is expected"
    paused = paused_operands(node)
    if paused:
        yield f"operands are paused for the change: {', '.join(paused)}"
    if node.mig_devices or node.product.endswith(names.INVALID_SUFFIX):
        yield f"labels still show MIG devices ({names.PRODUCT_LABEL} is {node.product})"
    for name, count in sorted(node.allocatable.items()):
        if name.startswith("nvidia.com/mig-") and count:
            yield f"allocatable {name} is still {count}"
    if node.labels.get(names.PLUGIN_DEPLOY_LABEL) == "false":
        return
    expected = node.gpus * max(1, node.replicas)
    live = sum(node.allocatable.get(name, 0) for name in (names.GPU_RESOURCE, names.SHARED_GPU_RESOURCE))
    if live != expected or not expected:
        yield f"allocatable {names.GPU_RESOURCE} is {live}, but {expected or 'a number of whole GPUs'} is expected"


def _has_mig_result(node: Node) -> bool:
    """Whether the MIG manager has reported the state of the node's configuration, or runs on the node and will report it."""
    return bool(node.mig_state) or has_mig_manager(node)


def _sets_mig_config(node: Node) -> bool:
    """Whether a pool has set the label nvidia.com/mig.config on the node, and its GPUs are not known to lack support for MIG."""
    incapable = node.labels.get(names.MIG_CAPABLE_LABEL) == "false"
    return names.MIG_CONFIG_LABEL in recorded(node, POOL_OWNER).labels and not incapable


# Builds the edit that applies a pool's declaration to a node, and reads the data that the edit records on the node (pure).
#
# The edit records the working configuration for a rollback, and the rollout settings for the release of the node once its pool is no longer declared.

_CONFIG_LABELS = (names.CONFIG_LABEL, names.MIG_CONFIG_LABEL)
DEFAULT_ROLLOUT: t.Final = rollout_plan(ROLLOUT.complete({}))
_ROLLOUT_FIELDS = tuple(field.name for field in dataclasses.fields(RolloutPlan) if field.name != "reboot")


@dataclass(frozen=True)
class LastGood:
    """A configuration that was verified to work on a node: its two labels (None: absent), and the GPU resources that the node offered."""

    labels: t.Mapping[str, str | None]
    offers: t.Mapping[str, int]

    def __str__(self) -> str:
        return json.dumps({"labels": dict(self.labels), "offers": dict(self.offers)}, sort_keys=True)


def membership_edit(
    node: Node,
    pool: PoolPlan | None,
    held_taints: t.Collection[str] = (),
    plugin_entries: t.Collection[str] = (),
) -> NodeEdit | None:
    """The edit that makes a node a member of the pool or, if `pool` is None, releases it from its pool; None if nothing changes.

    The taints in `held_taints` are not added to the node, but stay if the node has them. If the configuration changes, the current configuration
    is recorded, provided that it works. A node that OpenShift has created from the pool's MachineSet registers with the pool's labels and taints, so they
    are recorded as the pool's own, although the patch does not set them; otherwise, they would stay when the pool no longer declares them.
    plugin_entries: the configurations of the device plugin that a release may restore.
    """
    if pool is None:
        return release_edit(node, plugin_entries)
    declared, mig_config = pool.for_node(node.name), expected_mig_config(node, pool)
    annotations: dict[str, str | None] = {
        names.GPUS_ANNOTATION: None,
        names.ROLLOUT_ANNOTATION: rollout_annotation(pool.rollout),
    }
    if pool.sharing.strategy == layouts.SINGLE and node.discovered:
        annotations[names.GPUS_ANNOTATION] = str(expected_gpus(node, pool))
    if node.labels.get(names.CONFIG_LABEL) != declared.config_key or (mig_config and node.mig_config != mig_config):
        annotations.update(_record_working_configuration(node))
    actual_taints = {format_taint(taint) for taint in node.taints}
    desired = dataclasses.replace(
        declared.metadata,
        labels={
            **_without_paused_operands(node, declared.metadata.labels),
            **({names.MIG_CONFIG_LABEL: mig_config} if mig_config else {}),
        },
        taints={
            identity: taint
            for identity, taint in declared.metadata.taints.items()
            if taint and (format_taint(taint) in actual_taints or format_taint(taint) not in held_taints)
        },
    )
    registered = pool.nodegroup is not None and MACHINE_ANNOTATION in node.annotations
    return metadata_edit(
        node, POOL_OWNER, desired, remove_others=True, own_annotations=annotations, registered=registered
    )


def disable_mig_patch(node: Node) -> dict[str, t.Any] | None:
    """The patch for the first step in releasing a node with partitioned GPUs: it disables MIG by an explicit configuration, and keeps annotations.

    None if this configuration is already set. The previous working configuration is recorded for a rollback.
    """
    labels: dict[str, str | None] = {}
    if names.CONFIG_LABEL in node.labels and names.CONFIG_LABEL in recorded(node, POOL_OWNER).labels:
        labels[names.CONFIG_LABEL] = None
    if node.mig_config != mig_parted.DISABLED:
        labels.update({names.MIG_CONFIG_LABEL: mig_parted.DISABLED, names.MIG_STATE_LABEL: None})
    annotations = _record_working_configuration(node) if labels and is_managed(node) else {}
    metadata = {key: part for key, part in (("labels", labels), ("annotations", annotations)) if part}
    return {"metadata": metadata} if metadata else None


def working_configuration(node: Node) -> LastGood | None:
    """The node's current configuration; None if it does not work, that is, if no GPUs are offered or a change is in progress."""
    offers = {name: count for name, count in sorted(node.allocatable.items()) if count and is_gpu_resource(name)}
    if not offers or not node.ready or paused_operands(node) or node.mig_state not in ("", "success"):
        return None
    return LastGood({key: node.labels.get(key) for key in _CONFIG_LABELS}, offers)


def last_good(node: Node) -> LastGood | None:
    """The configuration that is recorded on the node; None without a record, or if working_configuration() could not have returned it.

    A record without GPUs would make every rollback succeed, so the content of the record is checked rather than trusted.
    """
    record = parse_json(node.annotations.get(names.LAST_GOOD_ANNOTATION) or "", dict) or {}
    labels, offers = record.get("labels"), record.get("offers")
    if not isinstance(labels, dict) or not isinstance(offers, dict) or not offers:
        return None
    values = {key: labels.get(key) for key in _CONFIG_LABELS}
    if not all(value is None or isinstance(value, str) for value in values.values()):
        return None
    # JSON's true is an int in Python.
    if not all(
        is_gpu_resource(name) and isinstance(count, int) and not isinstance(count, bool) and count > 0
        for name, count in offers.items()
    ):
        return None
    return LastGood(values, offers)


def _record_working_configuration(node: Node) -> dict[str, str]:
    """The annotation that records the node's configuration; empty if the configuration does not work."""
    good = working_configuration(node)
    return {names.LAST_GOOD_ANNOTATION: str(good)} if good else {}


def _without_paused_operands(node: Node, labels: Entries) -> dict[str, str | None]:
    """The pool's labels, except those of operands that are paused for a change; the component that has paused an operand also restarts it."""
    return {
        key: value
        for key, value in labels.items()
        if not (
            value == "true"
            and key.startswith(names.DEPLOY_PREFIX)
            and node.labels.get(key, "").startswith("paused-for-")
        )
    }


@functools.lru_cache(maxsize=256)
def rollout_annotation(rollout: RolloutPlan) -> str | None:
    """The value of the annotation, which contains the settings that differ from the defaults; None if no setting differs.

    `reboot` is never recorded, because a command from an annotation must not be run.
    """
    differing = {
        name: getattr(rollout, name)
        for name in _ROLLOUT_FIELDS
        if getattr(rollout, name) != getattr(DEFAULT_ROLLOUT, name)
    }
    return json.dumps(differing, sort_keys=True) if differing else None


def recorded_rollout(node: Node) -> RolloutPlan:
    """The rollout settings for the release of the node; the defaults if nothing valid is recorded."""
    return _parse_rollout(node.annotations.get(names.ROLLOUT_ANNOTATION) or "")


def recorded_rollout_settings(node: Node) -> dict[str, t.Any]:
    """The recorded fields of `rollout` that differ from the defaults; empty if nothing valid is recorded.

    The content of the annotation is not trusted, so it is checked against the schema of `rollout`.
    """
    return _valid_settings(node.annotations.get(names.ROLLOUT_ANNOTATION) or "")


def _valid_settings(text: str) -> dict[str, t.Any]:
    fields = parse_json(text, dict)
    if fields is None or not set(fields) <= set(_ROLLOUT_FIELDS) or any(ROLLOUT.problems(fields, "rollout")):
        return {}
    return fields


@functools.lru_cache(maxsize=256)
def _parse_rollout(text: str) -> RolloutPlan:
    fields = _valid_settings(text)
    return rollout_plan(ROLLOUT.complete(fields)) if fields else DEFAULT_ROLLOUT
