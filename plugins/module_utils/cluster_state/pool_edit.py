# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds the edit that applies a pool's declaration to a node, and reads the data that the edit records on the node (pure).

The edit records the working configuration for a rollback, and the rollout settings for the release of the node once its pool is no longer declared.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import typing as t
from dataclasses import dataclass

from ..catalog import names
from ..catalog.cluster_autoscaler import MACHINE_ANNOTATION
from ..catalog.taints import format_taint
from ..common.nested import parse_json
from ..mig import layout as layouts
from ..nvidia_config import mig_parted
from ..pools.metadata import Entries
from ..pools.plan import PoolPlan, RolloutPlan, rollout_plan
from ..schema.rollout import ROLLOUT
from . import expected_state
from .node import Node
from .node_check import paused_operands
from .ownership import POOL_OWNER, NodeEdit, metadata_edit, recorded
from .pool_release import is_managed, release_edit

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


def membership_edit(node: Node, pool: PoolPlan | None, held_taints: t.Collection[str] = ()) -> NodeEdit | None:
    """The edit that makes a node a member of the pool or, if `pool` is None, releases it from its pool; None if nothing changes.

    The taints in `held_taints` are not added to the node, but stay if the node has them. If the configuration changes, the current configuration
    is recorded, provided that it works. A node that OpenShift has created from the pool's MachineSet registers with the pool's labels and taints, so they
    are recorded as the pool's own, although the patch does not set them; otherwise, they would stay when the pool no longer declares them.
    """
    if pool is None:
        return release_edit(node)
    declared, mig_config = pool.for_node(node.name), expected_state.expected_mig_config(node, pool)
    annotations: dict[str, str | None] = {
        names.GPUS_ANNOTATION: None,
        names.ROLLOUT_ANNOTATION: rollout_annotation(pool.rollout),
    }
    if pool.sharing.strategy == layouts.SINGLE and node.discovered:
        annotations[names.GPUS_ANNOTATION] = str(expected_state.expected_gpus(node, pool))
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
    offers = {
        name: count
        for name, count in sorted(node.allocatable.items())
        if count and expected_state.is_gpu_resource(name)
    }
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
        expected_state.is_gpu_resource(name) and isinstance(count, int) and not isinstance(count, bool) and count > 0
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
