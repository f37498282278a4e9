# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds warnings about nodes and pools, and finds the reasons why a run does not wait for some GPU nodes (pure)."""

from __future__ import annotations

import typing as t

from ..catalog.device_plugins import DevicePlugin, conflict_of, plugin_of_annotations, plugin_of_resource
from ..catalog.machine_types import machine_type_gpus
from ..catalog.names import (
    CORDONED_ANNOTATION,
    COUNT_LABEL,
    GPU_PRESENT_LABEL,
    GPU_RESOURCE,
    INSTANCE_TYPE_LABELS,
    MIG_INFIX,
    MIG_STRATEGY_LABEL,
    NONE_MODE,
    PLUGIN_DEPLOY_LABEL,
    PRODUCT_LABEL,
    REPLICAS_LABEL,
    STRATEGY_LABEL,
)
from ..common.results import MAX_LISTED
from ..schema.messages import abbreviate
from ..schema.operand_labels import reason_without_discovery
from .hidden_gpus import has_pci_label, hidden_messages
from .pool_assignment import pool_members, undiscovered_candidates
from .pool_release import ABANDONED, is_abandoned

if t.TYPE_CHECKING:
    from ..pools.membership import Membership
    from ..pools.plan import PoolPlan
    from .hidden_gpus import HiddenNode
    from .node import Node


def all_warnings(
    nodes: t.Collection[Node],
    membership: Membership,
    released: t.Collection[str],
    unusual: t.Mapping[str, str],
    *,
    run: bool,
    before_discovery: bool = False,
    hidden: t.Sequence[HiddenNode] = (),
    plugins: t.Mapping[tuple[str, DevicePlugin], t.Sequence[str]] | None = None,
) -> list[str]:
    """All warnings about the nodes and their pools: for a run that changes nodes if `run` is set, otherwise for the report.

    `plugins` contains the device plugins that are not operands, if the pods have been listed (see foreign_plugins()).
    `released` contains the nodes that are being released from their pools (reported elsewhere); `unusual` is the result of unusual_nodes().
    The report has no warnings until a GPU node is known, because all pools are empty until then; `before_discovery` omits the warning about empty pools for
    the same reason. `hidden` is the result of hidden_nodes(). Warnings about problems that a run corrects appear only in the report.
    """
    if not run and not any(node.has_gpu for node in nodes):
        return hidden_messages(hidden, membership)[:MAX_LISTED]
    members = pool_members(membership)
    return [
        *_membership_warnings(nodes, membership, released, before_discovery=before_discovery),
        *hidden_messages(hidden, membership)[:MAX_LISTED],
        *_node_warnings(nodes, members),
        *_contradiction_warnings(nodes),
        *foreign_plugin_warnings(nodes, members, plugins or {}),
        *(() if run else (*_abandoned_warnings(nodes, members), *_cordon_warnings(nodes))),
        *unusual_node_warnings(unusual, members, run=run),
    ]


def _membership_warnings(
    nodes: t.Iterable[Node], membership: Membership, released: t.Collection[str], *, before_discovery: bool
) -> t.Iterator[str]:
    """Warnings about nodes that several pools match, pools without nodes, and labels accel.gpu/pool that do not fit."""
    for name, pools in sorted(membership.overlaps.items())[:MAX_LISTED]:
        yield f"Node {name} matches the pools {', '.join(pools)} and is not changed; pin it with the label accel.gpu/pool."
    members = pool_members(membership)
    if membership.missing and not before_discovery:
        unknown = sorted(set(membership.undiscovered) - members)
        note = f" GPU nodes of unknown model that may belong to them: {abbreviate(unknown)}." if unknown else ""
        unclaimed = set(membership.unclaimed)
        others = sorted(f"{node.name} ({node.model})" for node in nodes if node.name in unclaimed)
        note += f" GPU nodes in no pool: {abbreviate(others)}." if others else ""
        yield f"No node of the cluster belongs to: {', '.join(membership.missing)}.{note}"
    for pool, names in sorted(membership.mismatched.items()):
        yield f"Pool {pool} does not match {abbreviate(names)}, pinned to it by the label accel.gpu/pool; the pin takes precedence."
    for pool, names in sorted(membership.wrong_model.items()):
        yield f"The GPU model differs from the model that pool {pool} declares: {abbreviate(names)}. Correct the flavor or model."
    for pool, names in sorted(membership.undeclared_pins.items()):
        pinned = [name for name in names if name not in members and name not in released]
        if pinned:
            yield f"{abbreviate(pinned)} have the label accel.gpu/pool={pool}, which is not a declared pool; they are not changed."


def _node_warnings(nodes: t.Iterable[Node], members: t.Collection[str]) -> t.Iterator[str]:
    not_ready = sorted(node.name for node in nodes if node.name in members and not node.ready)
    if not_ready:
        yield f"The run neither waits for these nodes nor verifies them, because they are not ready: {abbreviate(not_ready)}."
    denied = sorted(
        node.name
        for node in nodes
        if node.name in members and node.ready and node.labels.get(GPU_PRESENT_LABEL) == "false"
    )
    if denied:
        yield (
            f"These nodes of pools show no GPU any longer (label {GPU_PRESENT_LABEL}=false); check that NFD runs there and that the GPUs are attached: "
            f"{abbreviate(denied)}."
        )
    unknown: dict[str, list[str]] = {}
    for node in nodes:
        if node.discovered and node.catalog_model is None:
            unknown.setdefault(node.model, []).append(node.name)
    for model, names in sorted(unknown.items()):
        yield (
            f"The catalog has no GPU model {model} ({abbreviate(sorted(names))}); a MIG layout for it cannot be verified before it is applied."
        )


def _contradiction_warnings(nodes: t.Iterable[Node]) -> t.Iterator[str]:
    """Warnings about labels of a node that contradict each other or the node's capacity, one for each contradiction."""
    by_text: dict[str, list[str]] = {}
    for node in nodes:
        for text in label_contradictions(node):
            by_text.setdefault(text, []).append(node.name)
    for text, names in sorted(by_text.items()):
        yield f"Labels contradict each other on {abbreviate(sorted(names))}: {text}."


def label_contradictions(node: Node) -> t.Iterator[str]:
    """The contradictions between labels of NFD, gpu-feature-discovery, the GPU operator and the cloud, and the node's capacity."""
    labels = node.labels
    denied = node.has_nfd_labels and not node.product and not has_pci_label(node)
    if denied and labels.get(GPU_PRESENT_LABEL) == "true":
        yield (
            f"{GPU_PRESENT_LABEL} is true, but NFD has found no PCI device of NVIDIA; remove the label if it was set manually, or check that the GPU is "
            "attached"
        )
    if not node.discovered:
        return
    model = node.catalog_model
    gpus = next((gpus for key in INSTANCE_TYPE_LABELS if (gpus := machine_type_gpus(labels.get(key, "")))), None)
    if model and gpus and gpus.keys and model.key not in gpus.keys:
        yield f"{PRODUCT_LABEL} is {node.product}, but the machine type has {gpus.name}; the label may be left over from another machine"
    if node.mode == NONE_MODE and node.replicas > 1:
        yield f"{STRATEGY_LABEL} is {node.mode}, but {REPLICAS_LABEL} is {node.replicas}; delete the gpu-feature-discovery pod to renew the labels"
    if labels.get(MIG_STRATEGY_LABEL) == "single" and MIG_INFIX not in node.product and node.mig_devices:
        yield f"{MIG_STRATEGY_LABEL} is single, but the labels count devices of several profiles, as under the strategy mixed"
    capacity = node.capacity.get(GPU_RESOURCE, 0)
    if MIG_INFIX not in node.product and not node.mig_devices and node.mode == NONE_MODE and capacity > node.gpus > 0:
        yield f"{COUNT_LABEL} is {node.gpus}, but the capacity has {GPU_RESOURCE}: {capacity}; another device plugin may share the GPUs"


_ONE_PLUGIN = (
    f'Use one device plugin for each node: uninstall the other one there, or set the label {PLUGIN_DEPLOY_LABEL}: "false" in the pool, whose nodes '
    "are then neither shared nor validated."
)


def foreign_plugin_warnings(
    nodes: t.Iterable[Node], members: t.Collection[str], plugins: t.Mapping[tuple[str, DevicePlugin], t.Sequence[str]]
) -> t.Iterator[str]:
    """Warnings about the pools' nodes whose GPUs another device plugin also offers.

    The plugins are recognized by their pods (`plugins`, see foreign_plugins()) and by what they leave on nodes. A node of a pool that keeps the operator's
    plugin away has no conflict.
    """
    by_name = {
        node.name: node for node in nodes if node.name in members and node.labels.get(PLUGIN_DEPLOY_LABEL) != "false"
    }
    signs: dict[tuple[str, str], set[str]] = {}
    unknown: dict[str, list[str]] = {}
    for (sign, plugin), on_nodes in plugins.items():
        signs.setdefault((f"{sign}, {plugin.title}", conflict_of(plugin)), set()).update(on_nodes)
    with_pods = set().union(*signs.values())
    for node in by_name.values():
        for resource in node.foreign_resources:
            known = plugin_of_resource(resource)
            if known is None:
                unknown.setdefault(resource, []).append(node.name)
            elif node.name not in with_pods:
                signs.setdefault((f"the resource {resource}, {known.title}", conflict_of(known)), set()).add(node.name)
        if node.name in with_pods:
            continue
        if marked := plugin_of_annotations(node.annotations):
            plugin, key = marked
            signs.setdefault((f"the annotation {key}, {plugin.title}", conflict_of(plugin)), set()).add(node.name)
    for (sign, conflict), served in sorted(signs.items()):
        if here := sorted(served & by_name.keys()):
            yield f"Another device plugin serves {abbreviate(here)} ({sign}): {conflict}. {_ONE_PLUGIN}"
    for resource, offering in sorted(unknown.items()):
        yield (
            f"An unknown device plugin offers {resource} on {abbreviate(sorted(offering))}. Pods that request it do not count as users of NVIDIA GPUs, and are "
            "not evicted as such. If the resource represents NVIDIA GPUs, stop these pods before a change of MIG."
        )


def _abandoned_warnings(nodes: t.Iterable[Node], members: t.Collection[str]) -> t.Iterator[str]:
    abandoned = sorted(node.name for node in nodes if node.name not in members and is_abandoned(node))
    if abandoned:
        yield f"{abbreviate(abandoned)}: {ABANDONED}; the playbook share, site or repair disables MIG on them."


def _cordon_warnings(nodes: t.Iterable[Node]) -> t.Iterator[str]:
    """A warning about GPU nodes that an administrator or another tool has cordoned; their GPUs still count as allocatable."""
    cordoned = sorted(
        node.name
        for node in nodes
        if node.has_gpu and node.unschedulable and CORDONED_ANNOTATION not in node.annotations
    )
    if cordoned:
        yield f"No new pods are scheduled to these nodes, because they are cordoned, but not by this collection: {abbreviate(cordoned)}."


def unusual_nodes(
    pools: t.Sequence[PoolPlan], nodes: t.Iterable[Node], membership: Membership, failures: t.Mapping[str, str]
) -> dict[str, str]:
    """For each node, the reason why its GPUs are unknown or not available to containers, or why its operands fail (`failures`, by node).

    The result does not contain nodes that are not labeled yet but may still belong to a pool, or discovered nodes of a pool whose GPUs are not for
    containers.
    """
    nodes = list(nodes)
    awaited = {*undiscovered_candidates(pools, nodes, membership), *pool_members(membership)}
    declared = {
        name for pool in pools if pool.reason_without_containers for name in membership.by_pool.get(pool.name, ())
    }
    reasons: dict[str, str] = {}
    for node in nodes:
        if not node.has_gpu:
            continue
        works = node.discovered and (node.name in declared or any(node.allocatable.values()))
        of_labels = "" if works else reason_without_discovery(node.labels)
        # A label that the user has set explains the state better than the failures that it causes, so the label comes first.
        reason = "; ".join(filter(None, (of_labels, failures.get(node.name, ""))))
        if not reason and not node.discovered and node.name not in awaited:
            reason = "gpu-feature-discovery has not labeled it, and no declared pool can match it"
        if reason:
            reasons[node.name] = reason
    return dict(sorted(reasons.items()))


def as_list(reasons: t.Mapping[str, str], limit: int | None) -> list[dict[str, str]]:
    """The names and reasons as a list for a result, with at most `limit` nodes."""
    return [{"name": name, "reason": reason} for name, reason in list(reasons.items())[:limit]]


def unusual_node_warnings(reasons: t.Mapping[str, str], members: t.Collection[str], *, run: bool) -> t.Iterator[str]:
    """Yield one warning for each reason and its nodes: nodes without a pool and, for the report, nodes in a pool, which make a run fail."""
    by_reason: dict[tuple[bool, str], list[str]] = {}
    for name, reason in reasons.items():
        by_reason.setdefault((name in members, reason), []).append(name)
    for (in_pool, reason), names in by_reason.items():
        if not in_pool:
            yield f"Not in a pool, so the run does not wait for {abbreviate(names)}: {reason}."
        elif not run:
            yield f"In a pool, but without usable GPUs: {abbreviate(names)}: {reason}."
