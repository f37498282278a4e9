# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the nodes that may have GPUs of a pool, but that discovery does not see: the sign of a GPU, the cause and the remedy (pure).

A node is discovered by NFD, whose labels start NVIDIA's operands, and then by gpu-feature-discovery. Without the labels of both, a pool cannot match it.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ..catalog import models, names
from ..catalog.flavors import vks_flavor_gpus
from ..catalog.machine_types import GPU_LABELS, has_nvidia_gpu, machine_type_gpus
from ..catalog.taints import format_taint, is_temporary, temporary_reason, untolerated_taints
from ..common.nested import get_nested
from ..schema.messages import abbreviate, join_words
from ..schema.operand_labels import reason_without_discovery
from .pool_assignment import may_match, pool_members

if t.TYPE_CHECKING:
    from ..catalog.taints import Taint, Toleration
    from ..pools.membership import Membership
    from ..pools.plan import Plan, PoolPlan
    from .node import Node

# NFD's label for a PCI device of NVIDIA, in any form that sources.pci.deviceLabelFields selects: class, vendor, device and others, joined by underscores.
_PCI = re.compile(rf"{re.escape(names.NFD_PREFIX)}pci-(\w+_)?10de(_\w+)?\.(present|sriov\.capable)")
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
        if key in (names.PRODUCT_LABEL, names.COUNT_LABEL) and value not in ("", "0"):
            return f"label {key}={value}"
        if key in GPU_LABELS and GPU_LABELS[key] in value.lower():
            return f"label {key}={value}"
        if key in names.INSTANCE_TYPE_LABELS and (has_nvidia_gpu(value) or vks_flavor_gpus(value)):
            return f"label {key}={value}, a machine type with GPUs"
    if node.recorded_gpus:
        return f"annotation {names.GPUS_ANNOTATION}={node.recorded_gpus} of an earlier run"
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
        or node.labels.get(names.GPU_PRESENT_LABEL) == "false"
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
    for key in names.INSTANCE_TYPE_LABELS:
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
    if node.labels.get(names.GPU_PRESENT_LABEL) == "false":
        return (
            f"label {names.GPU_PRESENT_LABEL}=false: the GPU operator finds no label of NFD for a GPU",
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
