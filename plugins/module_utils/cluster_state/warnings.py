# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is odd about nodes and pools although it is no mistake: sentences for a plan and for a run (pure)."""

from __future__ import annotations

import typing as t

from ..catalog import models
from ..schema.messages import abbreviate
from .pool_release import ABANDONED, is_abandoned
from .unusual_nodes import members

if t.TYPE_CHECKING:
    from ..pools.membership import Membership
    from .node import Node

NAMES_LIMIT = 100
_OPENSHIFT, _OS, _OS_VERSION = (
    "node.openshift.io/os_id",
    "feature.node.kubernetes.io/system-os_release.ID",
    "feature.node.kubernetes.io/system-os_release.VERSION_ID",
)
_SELINUX, _INSTANCE = "feature.node.kubernetes.io/kernel-selinux.enabled", "node.kubernetes.io/instance-type"


def all_warnings(nodes: t.Sequence[Node], membership: Membership, released: t.Collection[str]) -> list[str]:
    """Everything odd of a fleet and its pools; nothing before any GPU is known of, since pools are empty then."""
    if not any(node.has_gpu for node in nodes):
        return []
    member = members(membership)
    return [*of_membership(membership, released), *_of_nodes(nodes, member)]


def abandoned_pins(nodes: t.Iterable[Node], membership: Membership) -> t.Iterator[str]:
    """Nodes of no pool that a release without verification may have left with GPUs that are cut."""
    member = members(membership)
    names = sorted(node.name for node in nodes if node.name not in member and is_abandoned(node))
    if names:
        yield f"{abbreviate(names)}: {ABANDONED}; share, site or repair makes them whole."


def of_membership(membership: Membership, released: t.Collection[str]) -> t.Iterator[str]:
    """Nodes about which the pools do not agree, pools without nodes, and pins that lead nowhere or do not fit.

    `released` are the nodes that give back what a pool had put on them, told elsewhere.
    """
    for name, pools in sorted(membership.overlaps.items())[:NAMES_LIMIT]:
        yield f"Node {name} matches the pools {', '.join(pools)} and is left as it is; pin it with the label accel.gpu/pool."
    member = members(membership)
    if membership.empty:
        unknown = sorted(set(membership.undiscovered) - member)
        maybe = (
            f" GPU nodes whose model is not known, and that may be theirs: {abbreviate(unknown)}." if unknown else ""
        )
        yield f"No node of the cluster belongs to: {', '.join(membership.empty)}.{maybe}"
    for pool, names in sorted(membership.mismatched.items()):
        yield f"Pool {pool} does not match {abbreviate(names)}, pinned to it by the label accel.gpu/pool; the pin counts."
    for pool, names in sorted(membership.unlike.items()):
        yield f"Of another model than pool {pool} says that its flavor has (model): {abbreviate(names)}; put one of both right."
    for pool, names in sorted(membership.left.items()):
        pinned = [name for name in names if name not in member and name not in released]
        if pinned:
            yield f"{abbreviate(pinned)} carry accel.gpu/pool={pool}, which is no declared pool; they are left as they are."


def _of_nodes(nodes: t.Sequence[Node], member: t.Collection[str]) -> t.Iterator[str]:
    """Nodes of pools that are not ready, and GPUs that the catalog does not know."""
    away = sorted(node.name for node in nodes if node.name in member and not node.ready)
    if away:
        yield not_ready_message(away)
    unknown = {node.model for node in nodes if node.discovered and models.of_gpu(node.product, node.memory_mib) is None}
    for model in sorted(unknown):
        names = sorted(node.name for node in nodes if node.model == model)
        yield f"The catalog has no GPU model {model} ({abbreviate(names)}); a MIG layout for it cannot be verified before it is applied."


def not_ready_message(names: t.Sequence[str]) -> str:
    """Of nodes of pools."""
    return f"Not ready, so neither waited for nor proven: {abbreviate(names)}."


def traits(nodes: t.Iterable[Node]) -> set[str]:
    """What the nodes' labels tell of the cluster, of the traits that catalog.known_bad names."""
    found: set[str] = set()
    for node in nodes:
        if not node.has_gpu:
            continue
        labels = node.labels
        if _OPENSHIFT in labels:
            found.add("openshift")
        if labels.get(_OS) == "rhel" and labels.get(_OS_VERSION, "").partition(".")[0] == "8":
            found.add("rhel8")
        if labels.get(_SELINUX) == "true":
            found.add("selinux")
        if labels.get(_INSTANCE) in ("rke2", "k3s"):
            found.add(labels[_INSTANCE])
        if any(key.startswith("cloud.google.com/gke-") for key in labels):
            found.add("gke")
        if labels.get("nvidia.com/vgpu.present") == "true":
            found.add("vgpu")
        found.update(f"model {word}" for word in node.model.removeprefix("NVIDIA-").split("-")[:1] if word)
    return found
