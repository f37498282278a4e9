# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state that a pool expects of a node, the differences from it, and cordons (pure)."""

from __future__ import annotations

import typing as t
from collections import Counter
from dataclasses import dataclass

from ..catalog import mig as geometries
from ..catalog import models, names
from ..catalog.names import (
    CLIENT_LABEL,
    CORDONED_ANNOTATION,
    DRIVER_RESTART_ANNOTATION,
    MIG_CAPABLE_LABEL,
    MIG_CONFIG_LABEL,
    MIG_INFIX,
    PAUSED_FOR_MIG,
)
from ..catalog.operands import DISCOVERY, MIG_MANAGER
from ..schema.validators import reason_without_discovery
from ..sharing_modes import mig as layouts
from ..sharing_modes import mig_parted
from ..sharing_modes.mig import place, unused
from .ownership import POOL_OWNER, recorded

if t.TYPE_CHECKING:
    from ..catalog.mig import Geometry
    from ..pools.plan import PoolPlan
    from .node import Node

# Computes the labels, resources and MIG layouts of a pool's node once NVIDIA's operands have applied the pool's configuration (pure).
#
# Sources: k8s-device-plugin internal/lm (labels) and internal/rm (resources), and tests of both on an H200.


def expected_gpus(node: Node, pool: PoolPlan) -> int:
    """The number of physical GPUs of a node in the pool.

    Under the MIG strategy single, GFD counts MIG devices. The result is then the first of these numbers that is known: the recorded number, the pool's
    gpus_per_node, or the number of devices divided by the devices per GPU in the pool's layout. If none is known, physical_gpus() determines the number.
    """
    if MIG_INFIX not in node.product:
        return node.gpus
    if node.recorded_gpus or pool.gpus_per_node:
        return node.recorded_gpus or pool.gpus_per_node or 0
    layout = pool.for_node(node.name).sharing.layout
    devices = sum(layouts.on_gpu(layout, 0).values())
    return max(1, node.gpus // devices) if devices and layouts.uniform(layout) else physical_gpus(node)


def physical_gpus(node: Node) -> int:
    """The number of physical GPUs of a node whose pool is unknown.

    Under the MIG strategy single, this is the recorded number or, without a record, the smallest number of GPUs on which the node's MIG devices fit.
    """
    if MIG_INFIX not in node.product:
        return node.gpus
    if node.recorded_gpus:
        return node.recorded_gpus
    known = [geometries.geometry(model.key) for model in models.with_product(node.product)]
    profiles = [profile for geometry in known if geometry for profile in geometry.profiles]
    most = {profile.name.replace("+", "."): profile.max_count for profile in profiles}
    [(name, count)] = node.mig_devices.items() or [("", 0)]
    return -(-count // most[name]) if name in most else node.gpus


def expected_offers(node: Node, pool: PoolPlan) -> dict[str, int]:
    """The expected amount of each resource on the node; empty if containers cannot use its GPUs."""
    if pool.reason_without_containers:
        return {}
    return pool.for_node(node.name).sharing.offers(expected_gpus(node, pool))


def device_count(node: Node, pool: PoolPlan) -> int:
    """The number of devices that the node provides for its pool; until the demand is allocated, the number that the node offers now."""
    if pool.sharing.demand and node.name not in pool.by_node:
        return pool.sharing.devices({name: node.allocatable.get(name, 0) for name in pool.resources})
    return pool.sharing.devices(expected_offers(node, pool))


def pool_resources(nodes: t.Sequence[Node], pool: PoolPlan) -> dict[str, t.Any]:
    """The expected and the actual amounts of the resources that a pool's nodes offer: the totals and, in `resources`, the amounts of each resource."""
    expected: Counter[str] = Counter()
    allocatable: Counter[str] = Counter()
    for node in nodes:
        expected.update(expected_offers(node, pool))
        allocatable.update(node.allocatable)
    # If the allocation of a demand does not change a node, the node may offer devices that are not demanded.
    names = dict.fromkeys([*pool.resources, *sorted(expected)])
    return {
        "resource": pool.resource,
        "expected": sum(expected.values()),
        "allocatable": sum(allocatable[name] for name in names),
        "resources": {name: {"expected": expected[name], "allocatable": allocatable[name]} for name in names},
    }


def expected_labels(node: Node, pool: PoolPlan) -> dict[str, str]:
    """The labels that gpu-feature-discovery sets for the pool's sharing."""
    sharing = pool.for_node(node.name).sharing
    return sharing.definition.labels(sharing, node.model, expected_devices(node, pool))


def expected_mig_config(node: Node, pool: PoolPlan, *, managed: bool | None = None) -> str | None:
    """The value of nvidia.com/mig.config; None if the operator manages the label.

    If the pool does not partition GPUs, a node whose GPUs were partitioned before gets the entry that disables MIG, and keeps it.
    `managed`: whether the pool owns the label; by default, this is read from the record on the node.
    """
    mig_key = pool.for_node(node.name).mig_key
    if mig_key:
        return mig_key
    if managed is None:
        managed = MIG_CONFIG_LABEL in recorded(node, POOL_OWNER).labels
    live = node.mig_config
    return mig_parted.DISABLED if live and (live != mig_parted.DISABLED or managed) else None


def unsupported_mode(node: Node, pool: PoolPlan) -> str:
    """The reason why this node's GPUs cannot have the pool's mode, with the remedy; empty if they can, or if nothing is known about them yet."""
    mode = pool.sharing.definition
    if mode.vgpu_problem and node.has_vgpu:
        return f"its GPUs are vGPUs: {mode.vgpu_problem}"
    if mode.partitions_gpus and node.discovered and node.labels.get(MIG_CAPABLE_LABEL) != "true":
        return f"its {node.model} does not support MIG; choose another sharing.mode for it"
    return ""


def expected_devices(node: Node, pool: PoolPlan) -> dict[str, int]:
    """The MIG devices of a node of the pool, by profile; empty if its GPUs are not partitioned."""
    counts: dict[str, int] = {}
    layout = pool.for_node(node.name).sharing.layout
    for index in range(expected_gpus(node, pool) if layout else 0):
        for profile, count in layouts.on_gpu(layout, index).items():
            counts[profile] = counts.get(profile, 0) + count
    return counts


def devices_in_labels(node: Node, pool: PoolPlan) -> dict[str, int]:
    """The expected MIG devices by GFD's profile names, as in Node.mig_devices."""
    return {name.replace("+", "."): count for name, count in expected_devices(node, pool).items()}


def is_gpu_resource(name: str) -> bool:
    """Whether this is the name of a resource for GPUs or MIG devices."""
    return name.startswith(("nvidia.com/gpu", "nvidia.com/mig-"))


def declared_layouts(pool: PoolPlan) -> list[dict[str, t.Any]]:
    """The layouts that a pool with a `model` declares. No nodes are read, so the number of GPUs with each layout is unknown (None)."""
    geometry = geometries.geometry(pool.model) if pool.model else None
    return [_layout_result(geometry, part.profiles, None) for part in pool.sharing.layout] if geometry else []


def node_layouts(pool: PoolPlan, nodes: t.Iterable[Node], known: t.Mapping[str, Geometry]) -> list[dict[str, t.Any]]:
    """The layouts of all GPUs of these nodes, the most frequent first. `known` contains geometries by node; nodes that it lacks are skipped."""
    layout_of: dict[int, layouts.Layout] = {}
    nodes_with: Counter[tuple[int, int, Geometry]] = Counter()
    for node in nodes:
        if node.name in known and node.discovered:
            layout = pool.for_node(node.name).sharing.layout
            layout_of[id(layout)] = layout
            nodes_with[id(layout), expected_gpus(node, pool), known[node.name]] += 1
    gpus_with: Counter[tuple[tuple[tuple[str, int], ...], Geometry]] = Counter()
    for (key, gpus, geometry), count in nodes_with.items():
        for index in range(gpus):
            gpus_with[tuple(sorted(layouts.on_gpu(layout_of[key], index).items())), geometry] += count
    ordered = sorted(gpus_with.items(), key=lambda entry: (not entry[0][0], -entry[1], entry[0][0]))
    return [_layout_result(geometry, dict(profiles), gpus) for (profiles, geometry), gpus in ordered]


def _layout_result(geometry: Geometry, profiles: t.Mapping[str, int], gpus: int | None) -> dict[str, t.Any]:
    # A layout that does not fit is rejected elsewhere, with a reason.
    placed = place(geometry, profiles) or ()
    return {
        "gpus": gpus,
        "profiles": dict(profiles),
        "slices": geometry.slices,
        "devices": [placement._asdict() for placement in placed],
        "unused": unused(geometry, profiles)._asdict() if placed else {},
    }


# Compares a node with its pool's declaration, and finds MIG changes that need a restart of the MIG manager (pure).
#
# Sources: mig-parted v0.13 to v0.15 cmd/nvidia-mig-manager and pkg/mig/reconfigure; NVIDIA/gpu-operator#2833, #1309, #1703.

FAILED, CHANGING = "failed", ("pending", "rebooting")
# The phrase for a node that is not ready, in all messages and in the node's drift.
NOT_READY = "is not ready"


@dataclass(frozen=True)
class NodeDrift:
    """The differences between a node and its pool's declaration. `final`: whether they remain no matter how long a run waits.

    `operand` is the label app of the operand whose log contains the cause; empty if it is unknown. `labels_only`: whether the node offers the
    expected resources, and only the labels of gpu-feature-discovery differ. `lost`: whether the labels are as expected, but the node offers fewer GPUs.
    """

    node: str
    pool: str
    differences: tuple[str, ...]
    final: bool = False
    operand: str = ""
    labels_only: bool = False
    lost: bool = False

    def __str__(self) -> str:
        return f"{self.node} (pool {self.pool}): {'; '.join(self.differences)}"


def check_node(node: Node, pool: PoolPlan) -> NodeDrift | None:
    """Compare GFD's labels and the allocatable resources with the pool's declaration; None if there is no difference."""

    def finding(*differences: str, **fields: t.Any) -> NodeDrift:
        return NodeDrift(node.name, pool.name, differences, **fields)

    if pool.reason_without_containers:
        return None
    reason, remedy = reason_without_discovery(node.labels), ""
    if not reason and node.labels.get(names.PLUGIN_DEPLOY_LABEL) == "false":
        reason = f"label {names.PLUGIN_DEPLOY_LABEL}=false keeps the operator's device plugin away"
        remedy = "; remove the label or, if another device plugin serves the node, set it in a pool for such nodes"
    unreachable = f"{reason}, so it cannot reach the declared state{remedy}"
    if not node.discovered:
        if reason and not remedy:
            return finding(unreachable, final=True)
        # If NFD has examined the node and the operator has processed the result, waiting does not help.
        denied = node.has_nfd_labels and node.labels.get(names.GPU_PRESENT_LABEL) == "false"
        return finding(_undiscovered(node), final=denied)
    if unsupported := unsupported_mode(node, pool):
        return finding(unsupported, final=True)
    failed_config = expected_mig_config(node, pool, managed=True)
    if node.mig_state == FAILED and failed_config in (None, node.mig_config):
        return finding(mig_failure(node), final=True, operand=MIG_MANAGER)
    if node.product.endswith(names.INVALID_SUFFIX):
        return finding(f"{names.PRODUCT_LABEL} is {node.product}: its MIG layout is invalid")
    operands, labels, resources = (list(compare(node, pool)) for compare in (_operands, _labels, _resources))
    differences = [*operands, *labels, *resources]
    if reason and differences:
        return finding(unreachable, *differences, final=True)
    gpus = expected_gpus(node, pool)
    if pool.gpus_per_node not in (None, gpus):
        hardware = f"has {gpus} GPU(s), but gpus_per_node is {pool.gpus_per_node}"
        # If labels and resources agree, the finding is final, because waiting does not bring back a missing GPU.
        return finding(hardware, *differences, final=not differences)
    if labels == differences != []:
        return finding(*differences, operand=DISCOVERY, labels_only=True)
    is_changing = node.mig_state in CHANGING or (expected_mig_config(node, pool) and not node.mig_state)
    lost = resources == differences and _offers_less(node, pool)
    return finding(*differences, operand=MIG_MANAGER if is_changing else "", lost=lost) if differences else None


def _offers_less(node: Node, pool: PoolPlan) -> bool:
    offers = expected_offers(node, pool)
    return any(node.allocatable.get(resource, 0) < expected for resource, expected in offers.items())


def not_ready_message(subject: str) -> str:
    """The message for a node that a run cannot change because the node is not ready; `subject` is the node's name or another noun for the node."""
    return f"{subject} {NOT_READY}, so its pods cannot terminate and NVIDIA's operands do not run"


def mig_failure(node: Node) -> str:
    """The message for a node whose MIG manager has failed."""
    return f"{names.MIG_STATE_LABEL} is {FAILED} for {node.mig_config}, and the MIG manager does not retry"


def _undiscovered(node: Node) -> str:
    if not node.has_gpu:
        denied = node.labels.get(names.GPU_PRESENT_LABEL) == "false"
        shows = f"has the label {names.GPU_PRESENT_LABEL}=false, because it lacks" if denied else "lacks"
        return (
            f"{shows} NFD's label for a PCI device of NVIDIA: check that NFD runs there and that the GPU is attached (lspci -d 10de:); if the node "
            f"has no GPU any longer, remove its label {names.POOL_LABEL}"
        )
    if not node.gpus:
        return "has an NVIDIA GPU that gpu-feature-discovery has not labeled yet"
    # NFD drops a label that is too long, and the strategy single makes the product's name longer by appending the
    # profile.
    return (
        f"has no label {names.PRODUCT_LABEL} even though gpu-feature-discovery has counted its GPUs; if NFD has dropped it because of its "
        f"length, set sharing.strategy to {layouts.MIXED}, or set match.model"
    )


def paused_operands(node: Node) -> list[str]:
    """The operands that the MIG manager has stopped for a change but not yet restarted, by the names in their labels.

    GPU clients are not operands; they are restarted when the node is uncordoned.
    """
    return sorted(
        key.removeprefix(names.DEPLOY_PREFIX)
        for key, value in node.labels.items()
        if value == names.PAUSED_FOR_MIG and key.startswith(names.DEPLOY_PREFIX) and key != names.CLIENT_LABEL
    )


def has_mig_manager(node: Node) -> bool:
    """Whether the GPU operator runs a MIG manager on the node."""
    return node.labels.get(names.MIG_MANAGER_DEPLOY_LABEL) == "true"


def clients_paused(node: Node) -> bool:
    """Whether DaemonSets that select nvidia.com/gpu.deploy.client are still stopped on the node although no change is in progress."""
    return node.labels.get(names.CLIENT_LABEL) == names.PAUSED_FOR_MIG and node.mig_state not in CHANGING


def all_final(findings: t.Mapping[str, NodeDrift]) -> bool:
    """Whether all findings are final, so that waiting cannot help."""
    return all(finding.final for finding in findings.values())


def progress_text(undiscovered: t.Collection[str]) -> str:
    """The end of a wait's progress message; the caller prepends the number of matching nodes and the number of all nodes of the pools."""
    waiting = f"; {len(undiscovered)} GPU nodes are not discovered yet" if undiscovered else ""
    return f"nodes are in the desired state{waiting}"


def _operands(node: Node, pool: PoolPlan) -> t.Iterator[str]:
    expected = expected_mig_config(node, pool)
    # The operator has set a configuration on the node, and the MIG manager has not processed it yet.
    awaits_mig_manager = bool(node.mig_config) and has_mig_manager(node)
    if expected and node.mig_config != expected:
        yield f"label {names.MIG_CONFIG_LABEL} is {node.mig_config or 'absent'}, but {expected} is expected"
    elif node.mig_state in CHANGING:
        yield f"{names.MIG_STATE_LABEL} is {node.mig_state}"
    elif not node.mig_state and (
        (expected and node.labels.get(names.MIG_CAPABLE_LABEL) != "false") or awaits_mig_manager
    ):
        # This is a difference even if everything else is as expected: without a MIG strategy, the plugin offers
        # partitioned GPUs as whole ones until the MIG manager stops it to disable MIG.
        yield f"the MIG manager has not processed {node.mig_config} yet"
    paused = paused_operands(node)
    if paused:
        yield f"operands are paused for the change: {', '.join(paused)}"


def _labels(node: Node, pool: PoolPlan) -> t.Iterator[str]:
    for key, expected in sorted(expected_labels(node, pool).items()):
        live = node.labels.get(key)
        if live != expected:
            yield f"label {key} is {live or 'absent'}, but {expected} is expected"


def _resources(node: Node, pool: PoolPlan) -> t.Iterator[str]:
    offers = expected_offers(node, pool)
    for resource, expected in sorted(offers.items()):
        live = node.allocatable.get(resource, 0)
        if live != expected:
            capacity = node.capacity.get(resource, 0)
            # The kubelet keeps the capacity and reduces the allocatable amount while no plugin is registered for the resource.
            cause = "no plugin is registered, or all its GPUs are unhealthy" if live == 0 else "GPUs are unhealthy"
            lost = f" of a capacity of {capacity}: {cause}" if live < capacity == expected else ""
            yield f"allocatable {resource} is {live}{lost}, but {expected} is expected"
    for other, live in sorted(node.allocatable.items()):
        if other not in offers and live and is_gpu_resource(other):
            yield f"allocatable {other} is still {live}"


def repair_reason(node: Node, pool: PoolPlan | None) -> str:
    """The reason why the node's MIG manager should be restarted; empty if no restart is needed.

    A MIG manager that reports `pending` may still be working, so callers wait before they restart it.
    """
    if not node.mig_config or not node.discovered or reason_without_discovery(node.labels):
        return ""
    if node.mig_state == FAILED:
        return "the MIG manager failed and does not retry"
    if node.mig_state in CHANGING:
        return f"the MIG manager reports {node.mig_state}, and may do so indefinitely"
    paused = paused_operands(node)
    if paused:
        return f"{', '.join(paused)} were left paused"
    if node.product.endswith(names.INVALID_SUFFIX):
        return f"its MIG layout is invalid ({node.product})"
    is_expected = pool is not None and expected_mig_config(node, pool, managed=True) == node.mig_config
    if pool and is_expected and node.mig_devices != devices_in_labels(node, pool):
        return f"the MIG manager reports {node.mig_state or 'nothing'}, and the MIG devices are not those of {node.mig_config}"
    return ""


# Builds the patches that add and remove this collection's cordons, which an annotation distinguishes from other cordons (pure).
#
# Every patch contains the resourceVersion that was read, because an administrator may have cordoned the node since then, and that cordon must not
# be removed.

Patch = dict[str, t.Any]
Annotations = dict[str, "str | None"]
# Parts of a patch: fields of the node's spec, and annotations (None removes one).
CordonEdit = tuple[Patch, Annotations]
# Kubernetes limits the total size of an object's annotations to 256 KiB, and a longer reason would not be useful.
MAX_REASON = 1000
# The reason for the cordon of a node whose machine is being removed. The next run recognizes the node by this text, so the text must not change
# between releases.
REMOVAL_REASON = "the machine is being removed from the cluster"
_DRIVER_RESTART_REASON = "its driver is being restarted to load a licensing token"


def cordon_edit(node: Node, reason: str) -> CordonEdit:
    """The edit that cordons a node and stores the reason in the annotation; empty if the node is already cordoned."""
    if node.unschedulable:
        return {}, {}
    return {"unschedulable": True}, {CORDONED_ANNOTATION: reason[:MAX_REASON], **_without_driver_restart(node)}


def uncordon_edit(node: Node) -> CordonEdit:
    """The edit that removes this collection's cordon and its annotations; empty if the node has no such cordon."""
    if CORDONED_ANNOTATION not in node.annotations:
        return {}, {}
    return {"unschedulable": None}, {CORDONED_ANNOTATION: None, **_without_driver_restart(node)}


def _without_driver_restart(node: Node) -> Annotations:
    return {DRIVER_RESTART_ANNOTATION: None} if DRIVER_RESTART_ANNOTATION in node.annotations else {}


def node_merge_patch(node: Node, spec: Patch, annotations: Annotations) -> Patch | None:
    """The merge patch for the version of the node that was read; None if it would be empty."""
    if not spec and not annotations:
        return None
    metadata: Patch = {"resourceVersion": node.resource_version}
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"metadata": metadata, **({"spec": spec} if spec else {})}


def unfinished_run_message(node: Node) -> str:
    """The message, without its subject, for a node that a run has cordoned but not yet uncordoned; empty for other nodes."""
    reason = node.annotations.get(CORDONED_ANNOTATION)
    return f"is cordoned by a run that has not finished: {reason}" if reason is not None else ""


def is_cordoned_for_removal(node: Node) -> bool:
    """Whether a run has cordoned the node because its machine is being removed."""
    return node.annotations.get(CORDONED_ANNOTATION) == REMOVAL_REASON


def cordon_for_removal(node: Node) -> Patch | None:
    """The patch that cordons a node whose machine is being removed; this reason replaces any earlier reason set by this collection."""
    if CORDONED_ANNOTATION in node.annotations and not is_cordoned_for_removal(node):
        return node_merge_patch(node, {}, {CORDONED_ANNOTATION: REMOVAL_REASON, **_without_driver_restart(node)})
    return node_merge_patch(node, *cordon_edit(node, REMOVAL_REASON))


def cancel_removal(node: Node) -> Patch | None:
    """The patch that removes the cordon for removal because the node stays in the cluster; None if the node has no such cordon."""
    return node_merge_patch(node, *uncordon_edit(node)) if is_cordoned_for_removal(node) else None


def cordon_for_driver_restart(node: Node, pod: str) -> Patch | None:
    """The patch that cordons a node and records the driver pod that will be restarted, so that the next run can determine whether that pod was restarted.

    The record of an earlier pod is replaced. A node that another tool or user has cordoned gets only the record.
    None if another run is changing the node.
    """
    recorded = driver_pod_to_restart(node)
    if recorded is None and CORDONED_ANNOTATION in node.annotations:
        return None
    spec, annotations = cordon_edit(node, _DRIVER_RESTART_REASON)
    if spec or recorded != pod:
        annotations[DRIVER_RESTART_ANNOTATION] = pod
    return node_merge_patch(node, spec, annotations)


def driver_pod_to_restart(node: Node) -> str | None:
    """The driver pod whose restart a run has begun but not completed; None if there is none."""
    return node.annotations.get(DRIVER_RESTART_ANNOTATION)


def end_driver_restart(node: Node) -> Patch | None:
    """The patch that removes the cordon and the record of a driver restart, and restarts the DaemonSets of GPU clients; other cordons remain."""
    spec, annotations = uncordon_edit(node) if driver_pod_to_restart(node) is not None else ({}, {})
    return resume_clients(node, node_merge_patch(node, spec, {**annotations, **_without_driver_restart(node)}))


def pause_clients(node: Node) -> Patch | None:
    """The patch that stops the DaemonSets that select nvidia.com/gpu.deploy.client; None if the label is not true.

    The MIG manager has also stopped these DaemonSets since v0.15.
    """
    return _with_client_label(node, None, PAUSED_FOR_MIG) if node.labels.get(CLIENT_LABEL) == "true" else None


def resume_clients(node: Node, patch: Patch | None) -> Patch | None:
    """The given patch, extended to start the DaemonSets of GPU clients again if they are stopped."""
    return _with_client_label(node, patch, "true") if clients_paused(node) else patch


def _with_client_label(node: Node, patch: Patch | None, value: str) -> Patch:
    patch = patch or {"metadata": {"resourceVersion": node.resource_version}}
    return {**patch, "metadata": {**patch["metadata"], "labels": {CLIENT_LABEL: value}}}
