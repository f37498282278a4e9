# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings about nodes: GPUs that a cause hides, and nodes that fit no declaration (pure)."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ..catalog import models
from ..catalog.models import GPU_LABELS, has_nvidia_gpu, machine_type_gpus, vgpu_memory_mib, vks_flavor_gpus
from ..catalog.names import (
    CORDONED_ANNOTATION,
    COUNT_LABEL,
    GPU_PRESENT_LABEL,
    GPU_RESOURCE,
    GPUS_ANNOTATION,
    INSTANCE_TYPE_LABELS,
    MIG_INFIX,
    MIG_STRATEGY_LABEL,
    NFD_PREFIX,
    NONE_MODE,
    PLUGIN_DEPLOY_LABEL,
    PRODUCT_LABEL,
    REPLICAS_LABEL,
    STRATEGY_LABEL,
)
from ..catalog.operands import DevicePlugin, conflict_of, plugin_of_annotations, plugin_of_resource
from ..catalog.taints import format_taint, is_temporary, temporary_reason, untolerated_taints
from ..core.messages import MAX_LISTED, abbreviate, join_words
from ..core.values import get_nested
from ..schema.validators import reason_without_discovery
from .ownership import may_match, pool_members, undiscovered_candidates
from .pool_edit import ABANDONED, is_abandoned

if t.TYPE_CHECKING:
    from ..catalog.taints import Taint, Toleration
    from ..pools.plan import Membership, Plan, PoolPlan
    from .node import Node

# Finds the nodes that may have GPUs of a pool, but that discovery does not see: the sign of a GPU, the cause and the remedy (pure).
#
# A node is discovered by NFD, whose labels start NVIDIA's operands, and then by gpu-feature-discovery. Without the labels of both, a pool cannot match it.

# NFD's label for a PCI device of NVIDIA, in any form that sources.pci.deviceLabelFields selects: class, vendor, device and others, joined by underscores.
_PCI = re.compile(rf"{re.escape(NFD_PREFIX)}pci-(\w+_)?10de(_\w+)?\.(present|sriov\.capable)")
_GPU_WORD = re.compile(r"(?<![a-z])(gpus?|nvidia|accelerator)(?![a-z])")
# The roles of nodes that usually have no GPU; without another sign, they do not count as nodes that may have one.
_OTHER_ROLES = tuple(f"node-role.kubernetes.io/{role}" for role in ("control-plane", "master", "etcd", "infra"))
_NO_MACHINE = ("type", "virtual-kubelet"), ("eks.amazonaws.com/compute-type", "fargate")
_OS_LABEL = "kubernetes.io/os"
_UNKNOWN_HARDWARE = "NFD has not labeled it, so its hardware is unknown"

NOT_LABELED_BY_NFD, REPORTED = "nfd", "reported"


@dataclass(frozen=True)
class HiddenNode:
    """A node that may have GPUs of these pools.

    `sign`: the sign of a GPU; empty if only the missing labels of NFD leave it open. `kind`: NOT_LABELED_BY_NFD if nothing keeps NFD from labeling the
    node; REPORTED if the cause is one of unusual_nodes(), which is reported in any case.
    """

    name: str
    pools: tuple[str, ...]
    sign: str
    cause: str
    remedy: str
    kind: str = ""


def hidden_nodes(
    plan: Plan,
    nodes: t.Iterable[Node],
    membership: Membership,
    unusual: t.Mapping[str, str] | None = None,
    *,
    before_discovery: bool = False,
) -> list[HiddenNode]:
    """The nodes without a pool that a pool may match once they are discovered. `unusual` is the result of unusual_nodes().

    With `before_discovery`, NFD is not installed yet, so that only causes count that remain after its installation.
    """
    members = {*pool_members(membership), *membership.overlaps}
    hidden = []
    for node in sorted(nodes, key=lambda node: node.name):
        if node.name in members or node.discovered or node.pin:
            continue
        sign = gpu_sign(node)
        pools = tuple(pool.name for pool in plan.pools if _may_belong(pool, node)) if sign or _may_be_any(node) else ()
        if not pools:
            continue
        cause, remedy, kind = _cause(plan, node, (unusual or {}).get(node.name, ""), before_discovery=before_discovery)
        if cause:
            hidden.append(HiddenNode(node.name, pools, sign, cause, remedy, kind))
    return hidden


def awaited_by_nfd(plan: Plan, nodes: t.Sequence[Node], membership: Membership) -> list[str]:
    """The ready nodes that NFD has not labeled although nothing is known to prevent it; empty if NFD has labeled no node at all."""
    if not any(node.has_nfd_labels for node in nodes):
        return []
    return [node.name for node in hidden_nodes(plan, nodes, membership) if node.kind == NOT_LABELED_BY_NFD]


def hidden_messages(
    hidden: t.Iterable[HiddenNode], membership: Membership, pools: t.Collection[str] | None = None
) -> list[str]:
    """A message for each group of hidden nodes with the same sign, cause and remedy, if it concerns a pool without nodes or a GPU is certain.

    `pools`: only these pools; their nodes count even without a sign of a GPU.
    """
    empty = set(membership.empty)
    groups: dict[tuple[t.Any, ...], list[str]] = {}
    for node in hidden:
        certain = bool(node.sign) and node.kind != REPORTED
        relevant = [name for name in node.pools if (name in pools if pools is not None else name in empty or certain)]
        if relevant:
            groups.setdefault((tuple(relevant), node.sign, node.cause, node.remedy), []).append(node.name)
    messages = []
    for (of_pools, sign, cause, remedy), nodes in groups.items():
        subject = f"pool{'s' * (len(of_pools) > 1)} {join_words(of_pools, 'or')}"
        evidence = f"{sign}; " if sign else ""
        messages.append(f"{abbreviate(nodes)} may belong to {subject}: {evidence}{cause}. {remedy}")
    return messages


def pools_without_visible_nodes(hidden: t.Sequence[HiddenNode], membership: Membership) -> list[str]:
    """The pools that must have a node but have none, although nodes that may belong to them are hidden."""
    return [name for name in membership.missing if any(name in node.pools for node in hidden)]


def gpu_sign(node: Node) -> str:
    """The sign that the node has an NVIDIA GPU; empty if there is none."""
    for resource, count in sorted(node.capacity.items()):
        if count:
            return f"its capacity has {resource}: {count}"
    for key, value in sorted(node.labels.items()):
        if _PCI.fullmatch(key) and value == "true":
            return f"label {key}=true"
        if key in (PRODUCT_LABEL, COUNT_LABEL) and value not in ("", "0"):
            return f"label {key}={value}"
        if key in GPU_LABELS and GPU_LABELS[key] in value.lower():
            return f"label {key}={value}"
        if key in INSTANCE_TYPE_LABELS and (has_nvidia_gpu(value) or vks_flavor_gpus(value)):
            return f"label {key}={value}, a machine type with GPUs"
    if node.recorded_gpus:
        return f"annotation {GPUS_ANNOTATION}={node.recorded_gpus} of an earlier run"
    for taint in node.taints:
        if not is_temporary(taint) and _GPU_WORD.search(f"{taint.get('key')}={taint.get('value') or ''}".lower()):
            return f"taint {format_taint(taint)}"
    return ""


def has_pci_label(node: Node) -> bool:
    """Whether NFD has found a PCI device of NVIDIA, whatever the form of its label."""
    return any(value == "true" and _PCI.fullmatch(key) for key, value in node.labels.items())


def undeclared_taints(plan: Plan, node: Node) -> list[Taint]:
    """The lasting taints of the node that neither a pool nor the operator's values declare, so that NFD's and NVIDIA's pods may not run there."""
    of_values = get_nested(plan.operator.values, "daemonsets", "tolerations")
    tolerations: list[Toleration] = [*plan.policy.tolerations, *(of_values if isinstance(of_values, list) else ())]
    return [taint for taint in untolerated_taints(tolerations, node.taints) if not is_temporary(taint)]


def taint_cause(taints: t.Sequence[Taint]) -> tuple[str, str]:
    """The cause and the remedy for a node with these undeclared taints."""
    listed = ", ".join(map(format_taint, taints))
    written = ", ".join(
        "{" + ", ".join(f"{key}: {taint[key]}" for key in ("key", "value", "effect") if taint.get(key)) + "}"
        for taint in taints
    )
    cause = f"no pool declares its taint {listed}, so NFD's and NVIDIA's pods do not run there"
    return cause, f"declare it in the pool (taints: [{written}]), or remove it from the node"


def _may_be_any(node: Node) -> bool:
    """Whether a node without any sign of a GPU may have one: NFD has not examined it, and it is neither virtual nor has a role without GPUs."""
    keys = {*node.labels, *(str(taint.get("key")) for taint in node.taints)}
    return not (
        node.has_nfd_labels
        or node.labels.get(GPU_PRESENT_LABEL) == "false"
        or node.labels.get(_OS_LABEL, "linux") != "linux"
        or keys.intersection(_OTHER_ROLES)
        or any(node.labels.get(key) == value for key, value in _NO_MACHINE)
        or any(key.startswith("virtual-kubelet.io/") for key in keys)
    )


def _may_belong(pool: PoolPlan, node: Node) -> bool:
    """Whether the pool may match the node. A known model or machine type must be the pool's."""
    if not may_match(pool, node):
        return False
    if node.product and pool.match.products:
        known = {models.normalized(product) for product in pool.match.products}
        return models.normalized(models.bare_product(node.product)) in known
    for key in INSTANCE_TYPE_LABELS:
        gpus = machine_type_gpus(node.labels.get(key, ""))
        if gpus and gpus.keys and pool.match.model:
            return pool.match.model in gpus.keys
    return True


def _cause(plan: Plan, node: Node, unusual: str, *, before_discovery: bool) -> tuple[str, str, str]:
    """Why discovery does not see the node, the remedy, and the kind; empty if nothing is known to be wrong."""
    if not node.ready:
        return "it is not Ready", f"Repair it (kubectl describe node {node.name}), then run site.", ""
    reason = reason_without_discovery(node.labels)
    if reason:
        return reason, "Remove the label if containers must use its GPUs, then run site.", REPORTED
    if unusual:
        return unusual, "Correct this, then run site.", REPORTED
    undeclared = undeclared_taints(plan, node)
    temporary = [
        taint
        for taint in untolerated_taints(plan.policy.tolerations, node.taints)
        if is_temporary(taint) and not str(taint["key"]).startswith("node.kubernetes.io/")
    ]
    if undeclared and not node.has_gpu:
        cause, remedy = taint_cause(undeclared)
        return cause, f"{remedy[0].upper()}{remedy[1:]}, then run site.", ""
    if temporary and not node.has_gpu:
        texts = [f"{format_taint(taint)} ({temporary_reason(taint['key'])})" for taint in temporary]
        return f"it has the temporary taint {', '.join(texts)}", "Run site again once the taint is gone.", ""
    if before_discovery or node.has_gpu:
        return "", "", ""
    if node.labels.get(GPU_PRESENT_LABEL) == "false":
        return (
            f"label {GPU_PRESENT_LABEL}=false: the GPU operator finds no label of NFD for a GPU",
            f"Check that NFD runs there and that the GPU is attached (lspci -d 10de: on {node.name}), then run site.",
            "",
        )
    if not node.has_nfd_labels:
        return (
            _UNKNOWN_HARDWARE,
            f"Check NFD's worker there (kubectl get pods -A --field-selector spec.nodeName={node.name}), then run site.",
            NOT_LABELED_BY_NFD,
        )
    other_form = next((key for key in sorted(node.labels) if _PCI.fullmatch(key)), "")
    if other_form:
        return (
            "the GPU operator does not know this form of NFD's label",
            "Set sources.pci.deviceLabelFields: [vendor] in the configuration of NFD's workers, then run site.",
            "",
        )
    return (
        "NFD has found no PCI device of NVIDIA",
        f"Check that the GPU is attached (lspci -d 10de: on {node.name}), and that sources.pci.deviceClassWhitelist of NFD's workers contains 03, "
        "then run site.",
        "",
    )


# Builds warnings about nodes and pools, and finds the reasons why a run does not wait for some GPU nodes (pure).


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
        # A vGPU cannot be partitioned by its node.
        if node.discovered and node.catalog_model is None and vgpu_memory_mib(node.model) is None:
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
