# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Determines which pods of a node a drain evicts, awaits or keeps, and which pods block the drain, with the reason and the remedy (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, fields

from ..catalog.names import CLIENT_LABEL
from ..pools.drain_options import DrainOptions
from ..schema.rollout import ALL

if t.TYPE_CHECKING:
    from ..pools.plan import RolloutPlan
    from .gpu_pods import PodOnNode

_UNMANAGED_REMEDY = (
    "Save the data of pods without a controller and delete them, or set {force}, which evicts them permanently."
)
_WAIT_REMEDY = "Evictions are disabled. Wait until the pods terminate, raise the limit, or set {to_evict}."
_KEPT_REMEDY = (
    f"Remove the DaemonSets and static pods that use GPUs from the node, or add the nodeSelector {CLIENT_LABEL} to the DaemonSets "
    "(docs/rollout.md)."
)


# The names of a drain's options in messages, keyed by the field of DrainOptions. The key `to_evict` has the name of the setting that allows evictions.
OptionNames = t.Mapping[str, str]
# `rollout.drain: none` corresponds to `evict: false`.
_ROLLOUT_KEYS = {"evict": "drain"}


def option_names(form: str, to_evict: str) -> OptionNames:
    """The option names, built from a template with {key} (the key in `rollout`) or {option} (the module option)."""
    names = {
        item.name: form.format(key=_ROLLOUT_KEYS.get(item.name, item.name), option=item.name)
        for item in fields(DrainOptions)
    }
    return {**names, "to_evict": to_evict}


ROLLOUT_OPTIONS = option_names("rollout.{key}", "rollout.drain: gpu-pods")


@dataclass(frozen=True)
class Evict:
    """The drain evicts the pod."""


@dataclass(frozen=True)
class Await:
    """The drain does not evict the pod but waits until it terminates; `remedy` says what to do if this takes too long."""

    remedy: str


@dataclass(frozen=True)
class Keep:
    """The pod stays as long as its node exists, because it would be recreated on the node immediately."""

    reason: str


@dataclass(frozen=True)
class Block:
    """The pod would be lost with its node, so the drain does not start."""

    reason: str
    remedy: str


@dataclass(frozen=True)
class BlockingPod:
    """A pod that blocks the change or the removal of its node; `remedy` contains option names in braces, such as {force} (see OptionNames)."""

    name: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        """Namespace, name and reason."""
        return f"{self.name} ({self.reason})"


def eviction_of(pod: PodOnNode, options: DrainOptions) -> Evict | Await | Keep | Block:
    """How a drain with these options treats the pod; all drains use this function."""
    if pod.keep_reason:
        return Keep(pod.keep_reason)
    if not options.evict:
        return Await(_WAIT_REMEDY)
    if pod.unmanaged and not options.force:
        return Block("no controller recreates it", _UNMANAGED_REMEDY)
    return Evict()


def pods_to_evict(pods: t.Iterable[PodOnNode], options: DrainOptions) -> tuple[PodOnNode, ...]:
    """The pods that a drain evicts, sorted by namespace and name."""
    evicted = [pod for pod in pods if isinstance(eviction_of(pod, options), Evict)]
    return tuple(sorted(evicted, key=lambda pod: (pod.namespace, pod.name)))


def pods_to_await(pods: t.Iterable[PodOnNode], options: DrainOptions) -> dict[str, str]:
    """The pods whose termination a drain awaits, by uid, each with the remedy if the wait takes too long."""
    return {pod.uid: decision.remedy for pod in pods if isinstance(decision := eviction_of(pod, options), Await)}


def blocking_pods(pods: t.Iterable[PodOnNode], options: DrainOptions) -> list[BlockingPod]:
    """The pods that block a drain."""
    return [
        BlockingPod(pod.full_name, decision.reason, decision.remedy)
        for pod in pods
        if isinstance(decision := eviction_of(pod, options), Block)
    ]


def join_remedies(remedies: t.Iterable[str], names: OptionNames) -> str:
    """The remedies without duplicates, with the option names filled in."""
    return " ".join(dict.fromkeys(remedies)).format(**names)


def gpu_pods_to_evict(
    displaced: t.Sequence[PodOnNode], other_pods: t.Sequence[PodOnNode], rollout: RolloutPlan
) -> tuple[PodOnNode, ...]:
    """The pods that a drain with these settings evicts; `displaced` contains the pods that cannot keep their GPUs."""
    candidates = (*displaced, *other_pods) if rollout.drain == ALL else displaced
    return pods_to_evict(candidates, rollout.drain_options)


def blocking_gpu_pods(
    displaced: t.Sequence[PodOnNode], rollout: RolloutPlan, *, device_files: bool
) -> list[BlockingPod]:
    """The pods that block the change: they cannot keep their GPUs, and a drain with these settings does not evict them.

    `device_files`: whether the change fails while any process has a device file open. If not, kept pods block the change only if they request GPUs.
    """
    kept = [
        BlockingPod(pod.full_name, _gpu_keep_reason(pod), _KEPT_REMEDY)
        for pod in displaced
        if pod.keep_reason and not pod.pausable and (device_files or pod.resources)
    ]
    return kept + blocking_pods(displaced, rollout.drain_options)


def _gpu_keep_reason(pod: PodOnNode) -> str:
    return pod.keep_reason if pod.resources else f"{pod.keep_reason}, {', '.join(pod.access)}"


def blocked_message(blocking: t.Sequence[BlockingPod]) -> str:
    """A message about the pods that block a change of their node's GPUs, with the remedy, but without the final period."""
    return (
        f"These pods use the node's GPUs and cannot be evicted: {', '.join(map(str, blocking))}. "
        f"{join_remedies((pod.remedy for pod in blocking), ROLLOUT_OPTIONS).removesuffix('.')}"
    )
