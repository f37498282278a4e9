# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The data of the report: pools, nodes, drift and the installation."""

from __future__ import annotations

import typing as t
from collections import Counter, defaultdict
from dataclasses import asdict

from ..catalog import names
from ..catalog.openshift import NFD_CR, WORKER_TOLERATIONS
from ..catalog.taints import format_toleration
from ..core.messages import MAX_LISTED, MAX_NAMED
from ..core.values import Object, get_nested
from ..gpu_operator.cluster_policy import (
    DesiredPolicy,
    merge_tolerations,
    policy_changes,
    policy_tolerations,
    recorded_tolerations,
)
from ..gpu_operator.detect import ToolkitSettings, operator_result
from ..gpu_operator.installation import read_olm_changes
from ..gpu_operator.node_feature_discovery import choose_object, desired_tolerations
from ..gpu_operator.readiness import driver_upgrade
from ..kube.fields import is_created_by_collection, reverts_changes
from ..kube.paths import NODE_FEATURE_DISCOVERY
from ..nodes.node_check import (
    NOT_READY,
    NodeDrift,
    check_node,
    declared_layouts,
    expected_gpus,
    node_layouts,
    physical_gpus,
    pool_resources,
    unfinished_run_message,
)
from ..pools.plan import REPORTED_POOL_KEYS
from ..sharing_modes.mig import format_layout
from ..sharing_modes.modes import MIG, current_mode

if t.TYPE_CHECKING:
    from ..catalog.mig import Geometry
    from ..gpu_operator.detect import Detection
    from ..gpu_operator.installation import InstallationFinding
    from ..kube.client import Client
    from ..nodes.mig import MigAllocation
    from ..nodes.node import Node
    from ..nodes.ownership import NodeEdit
    from ..nodes.pods import GpuRequest
    from ..pools.plan import Membership, NodeGroupPlan, Plan, PoolPlan

# Builds the results that describe a cluster's GPUs: nodes, models, pools, totals, and drift from the declaration (pure).

# Labels whose changes are shown in other fields of a result.
_UNLISTED_LABELS = {names.CONFIG_LABEL, names.POOL_LABEL, names.MIG_CONFIG_LABEL, names.MIG_STATE_LABEL}


def pool_findings(nodes: t.Iterable[Node], pools: t.Iterable[PoolPlan], membership: Membership) -> dict[str, NodeDrift]:
    """The differences that a report shows for the nodes of pools, by node name.

    Add differences that only reports show here, not in check_node(): runs wait until check_node() finds none, and may roll back a node that has any.
    """
    by_name = {node.name: node for node in nodes}
    return {
        name: finding
        for pool in pools
        for name in membership.by_pool[pool.name]
        if (finding := check_node(by_name[name], pool))
    }


def node_results(
    nodes: t.Iterable[Node],
    pools: t.Iterable[PoolPlan],
    membership: Membership | None,
    findings: t.Mapping[str, NodeDrift] | None = None,
    edits: t.Iterable[NodeEdit] = (),
    requests: t.Mapping[str, t.Sequence[GpuRequest]] | None = None,
) -> list[dict[str, t.Any]]:
    """The results for all GPU nodes, sorted by name. If a membership and the result of pool_findings() are given, nodes are compared with their pools."""
    pool_of = {node: pool for pool, members in membership.by_pool.items() for node in members} if membership else {}
    edit_of = {edit.name: edit for edit in edits}
    by_name = {pool.name: pool for pool in pools}
    results = []
    for node in sorted((node for node in nodes if node.has_gpu), key=lambda node: node.name):
        name = pool_of.get(node.name) if membership else node.labels.get(names.POOL_LABEL)
        pool = by_name.get(name or "")
        workloads = requests.get(node.name, ()) if requests is not None else None
        drift = None
        if membership:
            finding, matching = (findings or {}).get(node.name), membership.overlaps.get(node.name, ())
            drift = drift_of_node(node, pool, finding, edit_of.get(node.name), matching)
        results.append(node_result(node, name, pool, workloads, drift))
    return results


def node_result(
    node: Node,
    pool_name: str | None,
    pool: PoolPlan | None = None,
    workloads: t.Sequence[GpuRequest] | None = None,
    drift: t.Sequence[str] | None = None,
) -> dict[str, t.Any]:
    """One node in the format of gpu_info's result. `pool` is None if the pool `pool_name` is not declared.

    The result does not contain `workloads` or `drift` if the argument is None.
    """
    mig = {"config": node.mig_config or None, "state": node.mig_state or None, "devices": node.mig_devices}
    result: dict[str, t.Any] = {
        "name": node.name,
        "pool": pool_name,
        "model": node.model or None,
        "gpus": expected_gpus(node, pool) if pool else physical_gpus(node),
        "memory_mib": node.memory_mib,
        "driver": node.driver or None,
        "driver_upgrade": node.labels.get(names.DRIVER_UPGRADE_LABEL) or None,
        "mode": MIG.name if node.mig_devices else node.mode or None,
        "replicas": node.replicas,
        "config": node.labels.get(names.CONFIG_LABEL),
        "allocatable": dict(node.allocatable),
        "capacity": dict(node.capacity),
        "mig": mig if node.labels.get(names.MIG_CAPABLE_LABEL) == "true" else None,
        "ready": node.ready,
        "schedulable": not node.unschedulable,
    }
    if pool and node.name in pool.by_node:
        result["layout"] = _layout_result(pool.for_node(node.name))
    if drift is not None:
        result["drift"] = list(drift)
    if workloads is not None:
        result["workloads"] = [asdict(request) for request in workloads]
    return result


def cluster_result(nodes: t.Sequence[Node], results: t.Iterable[t.Mapping[str, t.Any]]) -> dict[str, t.Any]:
    """The totals of the cluster. GPUs are counted from the nodes' results, because GFD's label may count MIG devices instead."""
    gpus = {result["name"]: result["gpus"] for result in results}
    offered: Counter[str] = Counter()
    by_model: dict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        offered.update(node.allocatable)
        if node.discovered:
            by_model[node.model].append(node)
    gpu_nodes = [node for node in nodes if node.has_gpu]
    return {
        "totals": {
            "nodes": len(nodes),
            "gpu_nodes": len(gpu_nodes),
            "gpus": sum(gpus[node.name] for node in gpu_nodes),
            "allocatable": dict(sorted(offered.items())),
        },
        "models": {
            model: {
                "nodes": len(of_model),
                "gpus": sum(gpus.get(node.name, 0) for node in of_model),
                "driver_versions": sorted({node.driver for node in of_model if node.driver}),
            }
            for model, of_model in sorted(by_model.items())
        },
        "kubelet_versions": sorted({node.kubelet_version for node in nodes if node.kubelet_version}),
        "driver_upgrade": driver_upgrade((node.name, node.labels) for node in nodes).as_dict(),
    }


def pool_results(
    allocation: MigAllocation,
    nodes: t.Sequence[Node],
    membership: Membership,
    findings: t.Mapping[str, NodeDrift],
    edits: t.Iterable[NodeEdit],
    geometries: t.Mapping[str, Geometry],
) -> dict[str, dict[str, t.Any]]:
    """For each pool: its declaration, its actual state, the changes that a run would make, and whether the state matches the declaration.

    `findings` is the result of pool_findings().
    """
    by_name = {node.name: node for node in nodes}
    edit_of = {edit.name: edit for edit in edits}
    results = {}
    for pool in allocation.plan.pools:
        members = [by_name[name] for name in membership.by_pool[pool.name]]
        missing = allocation.missing.get(pool.name, {})
        pool_findings = [findings[node.name] for node in members if node.name in findings]
        changes = [edit_of[node.name] for node in members if node.name in edit_of]
        shares = [
            share
            for node in members
            if node.memory_mib and (share := pool.sharing.definition.memory_per_share(pool.sharing, node.memory_mib))
        ]
        drift = [
            *_number_of_nodes(pool.nodegroup, len(members)),
            *(
                [f"its {len(members)} node(s) have no room for {format_layout(missing)} of its demand"]
                if missing
                else []
            ),
        ]
        declared = declared_pool(pool)
        # A pool that may scale to zero is idle without nodes, not different from its declaration.
        may_be_empty = pool.nodegroup is not None and pool.nodegroup.may_be_empty
        results[pool.name] = {
            **declared,
            "gpu_layouts": node_layouts(pool, members, geometries) or declared["gpu_layouts"],
            "memory_mib_per_share": min(shares, default=pool.memory_mib_per_share),
            "models": sorted({node.model for node in members if node.model}),
            "nodes": len(members),
            "gpus": sum(expected_gpus(node, pool) for node in members),
            **pool_resources(members, pool),
            "changes": changes_result(changes, members),
            "drift": [*drift, *map(str, pool_findings)][:MAX_NAMED],
            "drifted_nodes": len({finding.node for finding in pool_findings} | {edit.name for edit in changes}),
            "as_declared": (bool(members) or may_be_empty) and not pool_findings and not changes and not drift,
        }
    return results


def _number_of_nodes(group: NodeGroupPlan | None, actual: int) -> t.Iterator[str]:
    """What differs if the nodes are not as many as declared, for example after the playbook scale. A pool without nodes is shown as such."""
    if group and not group.autoscaled and actual not in (0, group.node_count):
        yield f"{actual} node(s) instead of the declared {group.node_count}, which the next run of site applies"


def declared_releases(plan: Plan) -> dict[str, dict[str, t.Any]]:
    """The declared installations of NFD and the operator, with the declared distribution and the container toolkit's variables for it."""
    releases: dict[str, dict[str, t.Any]] = {
        component: {
            "version": release.version,
            "installer": release.installer,
            "release": release.name,
            "namespace": release.namespace,
        }
        for component, release in (("nfd", plan.nfd), ("operator", plan.operator))
    }
    for component, release in (("nfd", plan.nfd), ("operator", plan.operator)):
        if release.olm is not None:
            olm = release.olm
            releases[component] |= {
                "package": olm["package"],
                "channel": olm["channel"] or "",
                "source": list(olm["source"]),
            }
    releases["operator"] |= {
        "distribution": plan.cluster.distribution or "",
        "toolkit_env": get_nested(plan.cluster.distribution_values, "toolkit", "env") or [],
    }
    return releases


def _nodegroup(group: NodeGroupPlan) -> dict[str, t.Any]:
    """The declaration of a node group; if the group has zones, the declaration of its member in each zone is included."""
    members = [
        {"name": member.name, "zone": member.zone, "size": member.size} for member in group.members if member.zone
    ]
    result = {"name": group.name, "flavor": group.flavor, "size": group.size, "may_be_empty": group.may_be_empty}
    return {**result, "members": members} if members else result


def declared_pool(pool: PoolPlan) -> dict[str, t.Any]:
    """The declaration of a pool, without data from nodes."""
    group = pool.nodegroup
    return {
        "model": pool.model,
        "nodegroup": _nodegroup(group) if group else None,
        "match_labels": dict(pool.match.labels),
        "mode": pool.mode,
        "replicas": pool.sharing.replicas,
        "layout": _layout_result(pool),
        "demand": dict(pool.sharing.demand),
        "gpu_layouts": declared_layouts(pool),
        "resource": pool.resource,
        **{key: getattr(pool, key) for key in REPORTED_POOL_KEYS},
        "shares_per_gpu": pool.shares_per_gpu,
        "memory_mib_per_share": pool.memory_mib_per_share,
    }


def _layout_result(pool: PoolPlan) -> list[dict[str, t.Any]]:
    return [{"devices": list(part.devices), "profiles": dict(part.profiles)} for part in pool.sharing.layout]


def drift_entries(pools: t.Mapping[str, t.Mapping[str, t.Any]]) -> list[dict[str, t.Any]]:
    """The drift of all pools: at most MAX_LISTED entries, each with a pool and a message."""
    entries = []
    for name, pool in pools.items():
        changes = pool.get("changes") or {}
        changed = (
            [f"{changes['nodes']} node(s) have labels or taints that differ from the declaration"] if changes else []
        )
        entries += [{"pool": name, "message": message} for message in (*pool.get("drift", ()), *changed)]
    return entries[:MAX_LISTED]


def changes_result(changes: t.Sequence[NodeEdit], nodes: t.Sequence[Node]) -> dict[str, t.Any]:
    """The changes that a run would make on these nodes; empty if there are none."""
    if not changes:
        return {}
    switched = {edit.name for edit in changes if {names.CONFIG_LABEL, names.MIG_CONFIG_LABEL} & edit.labels.keys()}
    modes = Counter(_current_mode(node) for node in nodes if node.name in switched)
    labels = {
        (key, value is None) for edit in changes for key, value in edit.labels.items() if key not in _UNLISTED_LABELS
    }
    annotations = {(key, value is None) for edit in changes for key, value in edit.declared_annotations.items()}
    return {
        "nodes": len(changes),
        "joining": sum(names.POOL_LABEL in edit.labels for edit in changes),
        "switched_from": dict(sorted(modes.items())),
        "labels": sorted(key for key, removed in labels if not removed),
        "removed_labels": sorted(key for key, removed in labels if removed),
        "annotations": sorted(key for key, removed in annotations if not removed),
        "removed_annotations": sorted(key for key, removed in annotations if removed),
        "taints": sorted({taint for edit in changes for taint in edit.after.get("taints", ())}),
        "removed_taints": sorted({taint for edit in changes for taint in edit.before.get("taints", ())}),
    }


def _current_mode(node: Node) -> str:
    if not node.discovered:
        return "undiscovered"
    return current_mode(node.mode, node.replicas, partitioned=bool(node.mig_devices))


def drift_of_node(
    node: Node,
    pool: PoolPlan | None,
    finding: NodeDrift | None,
    change: NodeEdit | None,
    matching: t.Sequence[str] = (),
) -> list[str]:
    """The differences between a node and its pool's declaration, and the changes that a run would make; for a node that several pools match, these pools.

    `pool` is the pool of the node, `finding` is the node's entry in pool_findings(), and `change` is the edit that a run would make; for a node without a
    pool, this is its release. The result is empty if there is no drift.
    """
    if matching:
        return [f"matches the pools {', '.join(matching)}, and belongs to none of them"]
    drift = [] if pool is None or node.ready else [NOT_READY]
    if text := unfinished_run_message(node):
        drift.append(text)
    if names.FAILED_KEY in node.annotations:
        drift.append(f"its last change failed: {node.annotations[names.FAILED_KEY]}")
    drift.extend(finding.differences if finding else ())
    drift.extend(text for text in (_change_texts(change) if change else ()) if text not in drift)
    return drift


def _change_texts(change: NodeEdit) -> t.Iterator[str]:
    before, after = change.before.get("labels", {}), change.after.get("labels", {})
    for key, value in sorted(change.labels.items()):
        # This label is removed together with the configuration that it describes.
        if key == names.MIG_STATE_LABEL:
            continue
        live = before.get(key)
        if value is None:
            yield f"label {key}={live} will be removed"
        elif key == names.POOL_LABEL:
            yield f"will join pool {after[key]}" if live is None else f"will move from pool {live} to {after[key]}"
        else:
            verb = "expected" if key in (names.CONFIG_LABEL, names.MIG_CONFIG_LABEL) else "declared"
            yield f"label {key} is {live or 'absent'}, but {value} is {verb}"
    for key, value in sorted(change.declared_annotations.items()):
        yield f"annotation {key} will be {'removed' if value is None else 'set'}"
    yield from (f"taint {taint} is missing" for taint in change.after.get("taints", ()))
    yield from (f"taint {taint} will be removed" for taint in change.before.get("taints", ()))
    if set(change.before) | set(change.after) == {"annotations"} and not change.declared_annotations:
        yield "its annotations will be updated"


# Adds NFD and the operator to a report: their installations and the tolerations for the pools' taints that a run adds or removes.

# The operator copies the policy's list into the template of each of its DaemonSets (gpu-operator controllers/object_controls.go).
_OPERANDS = (
    "every operand of the GPU operator, including the driver and the exporter, restarts on all nodes where it runs"
)
_WORKERS = "NFD's workers restart on all nodes"


def add_installation(
    client: Client, detection: Detection, operator: InstallationFinding, settings: ToolkitSettings, info: Object
) -> None:
    """Add the installations, declared releases and changes of tolerations; `operator` is the operator's finding, with notes about nodes."""
    declared = detection.declared
    info["installed"] = {name: finding.as_dict() for name, finding in detection.findings.items()}
    info["installed"]["operator"] = operator_result(operator, settings, declared)
    for name, finding in detection.findings.items():
        info["installed"][name]["changes"] = read_olm_changes(client, finding)
    if detection.policy is not None and detection.plan.pools:
        desired = DesiredPolicy.derive(detection.plan, detection.policy)
        info["installed"]["operator"]["changes"] += policy_changes(detection.policy, desired)
    info["releases"] = declared_releases(declared)
    info["tolerations"] = toleration_changes(client, detection)
    if settings.env:
        info["releases"]["operator"].update(distribution=settings.distribution, toolkit_env=settings.env)


def toleration_changes(client: Client, detection: Detection) -> list[Object]:
    """The changes of tolerations in the ClusterPolicy and in the NodeFeatureDiscovery object, which is read only if a run configures it."""
    plan, policy, changes = detection.plan, detection.policy, []
    if policy is not None and plan.pools:
        desired = DesiredPolicy.derive(plan, policy).tolerations
        recorded = recorded_tolerations(policy)
        # Before the first run of cluster_policy, the entries were set by Helm or when the policy was created.
        owned = (desired if is_created_by_collection(policy) else ()) if recorded is None else recorded
        title = f"ClusterPolicy {policy['metadata']['name']}"
        changes.append(_change(title, policy_tolerations(policy), owned, desired, _OPERANDS))
    if plan.pools and detection.findings["nfd"].configures_discovery:
        item = choose_object(client.list_known(NODE_FEATURE_DISCOVERY.collection()), plan.nfd.namespace)
        if item is not None:
            current = list(get_nested(item, *WORKER_TOLERATIONS) or ())
            title = f"NodeFeatureDiscovery {item['metadata']['namespace']}/{item['metadata']['name']}"
            owned = recorded_tolerations(item) or ()
            version, kind = NFD_CR
            reverted = reverts_changes({**item, "apiVersion": version, "kind": kind})
            effects = f"{_WORKERS}; {reverted.rstrip('.')}" if reverted else _WORKERS
            changes.append(_change(title, current, owned, desired_tolerations(plan), effects))
    return [change for change in changes if change["adds"] or change["removes"]]


def _change(
    title: str,
    current: list[Object],
    owned: t.Sequence[t.Mapping[str, t.Any]],
    desired: t.Sequence[t.Mapping[str, t.Any]],
    restarts: str,
) -> Object:
    merged, dummy = merge_tolerations(current, owned, desired)
    return {
        "object": title,
        "adds": [format_toleration(item) for item in merged if item not in current],
        "removes": [format_toleration(item) for item in current if item not in merged],
        "restarts": restarts,
    }
