# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Magnum cluster driver whose machines are simulated Nodes of the lab.

The driver replaces Heat or Cluster API behind Magnum's conductor; API, conductor, certificates and database are Magnum's
own. An operation is IN_PROGRESS until the nodes are in the desired state, and ends COMPLETE or, with a fault, FAILED. A
cluster's status is derived from its node groups as in Magnum's former Heat driver. Clusters with a different name than the lab
have no Kubernetes, and nothing listens at their API address.
"""

from __future__ import annotations

import collections
import os
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from magnum import objects
from magnum.common import cert_manager, exception
from magnum.drivers.common import driver
from magnum.objects import fields

from ..layout import Lab
from . import lab_cluster
from .layout import CLOUD
from .middleware import settings_of
from .node_sync import MagnumNodeSync, NodegroupSpec
from .nodegroup_rules import aggregate, refusal

# Magnum creates a driver object for each call; the supervisor's environment determines the lab.
LAB = Lab.named(Path(os.environ["LAB_DIR"]).name, Path(os.environ["LAB_DIR"]))
_STATUS = fields.ClusterStatus
_DELAY_LABEL = "lab_delay"
_REASON = "No valid host was found. There are not enough hosts available."
_locks: dict[str, threading.RLock] = collections.defaultdict(threading.RLock)
# By node group: the earliest end of its operation, and the nodes that a resize should remove.
_due: dict[str, float] = {}
_nodes_to_remove: dict[str, list[str]] = {}
# Clusters that were reported as deleted to Magnum's periodic job, which destroys them.
_deleted: set[str] = set()


class Driver(driver.Driver):
    """Magnum's driver interface: operations are only started here; update_cluster_status completes them."""

    @property
    def provides(self) -> list[dict[str, str]]:
        """The clusters that use this driver: those whose image has the os_distro ubuntu."""
        return [{"server_type": "vm", "os": "ubuntu", "coe": "kubernetes"}]

    def create_cluster(self, context: Any, cluster: Any, cluster_create_timeout: int) -> None:
        """Start the creation of a cluster; the lab's own cluster uses the lab's CA instead of the one that Magnum created."""
        cluster.stack_id = str(uuid.uuid4())
        if _is_own(context, cluster):
            made = cluster.ca_cert_ref
            store = cert_manager.get_backend().CertManager
            cluster.ca_cert_ref = lab_cluster.authority(LAB, store, context)
            store.delete_cert(made, resource_ref=cluster.uuid, context=context)
        self._begin(cluster, cluster.nodegroups)

    def delete_cluster(self, context: Any, cluster: Any) -> None:
        """Start the deletion of a cluster and all its node groups."""
        for group in cluster.nodegroups:
            group.status = _STATUS.DELETE_IN_PROGRESS
            group.save()
        self._begin(cluster, cluster.nodegroups)

    def update_cluster(self, context: Any, cluster: Any, scale_manager: Any = None, rollback: bool = False) -> None:
        """Start a change of the number of default workers."""
        group = cluster.default_ng_worker
        group.status = _STATUS.UPDATE_IN_PROGRESS
        group.save()
        self._begin(cluster, [group], reopen=context)

    def resize_cluster(
        self,
        context: Any,
        cluster: Any,
        resize_manager: Any,
        node_count: int,
        nodes_to_remove: Any,
        nodegroup: Any = None,
    ) -> None:
        """Start a change of the number of nodes."""
        _nodes_to_remove[nodegroup.uuid] = [str(node) for node in nodes_to_remove or ()]
        self._begin(cluster, [nodegroup], reopen=context)

    def upgrade_cluster(
        self,
        context: Any,
        cluster: Any,
        cluster_template: Any,
        max_batch_size: int,
        nodegroup: Any,
        scale_manager: Any = None,
        rollback: bool = False,
    ) -> None:
        """Record the new template; the version of simulated nodes does not change."""
        cluster.cluster_template_id = cluster_template.uuid
        if tag := cluster_template.labels.get("kube_tag"):
            cluster.labels = {**cluster.labels, "kube_tag": tag}
            cluster.coe_version = tag
        nodegroup.image_id = cluster_template.image_id
        self._begin(cluster, [nodegroup], reopen=context)

    def create_nodegroup(self, context: Any, cluster: Any, nodegroup: Any) -> None:
        """Start the creation of a node group."""
        nodegroup.stack_id = str(uuid.uuid4())
        nodegroup.save()
        self._begin(cluster, [nodegroup], reopen=context)

    def update_nodegroup(self, context: Any, cluster: Any, nodegroup: Any) -> None:
        """Start a change of the minimum or maximum, or of the labels and taints of new nodes."""
        nodegroup.save()
        self._begin(cluster, [nodegroup], reopen=context)

    def delete_nodegroup(self, context: Any, cluster: Any, nodegroup: Any) -> None:
        """Start the deletion of a node group."""
        nodegroup.save()
        self._begin(cluster, [nodegroup], reopen=context)

    def create_federation(self, context: Any, federation: Any) -> None:
        """Not supported."""
        raise NotImplementedError

    update_federation = delete_federation = create_federation

    def update_cluster_status(self, context: Any, cluster: Any, use_admin_ctx: bool = False) -> None:
        """Continue the operations on a cluster and update its status; Magnum's periodic job calls this while it is IN_PROGRESS."""
        lock = _locks[cluster.uuid]
        # Creating nodes takes longer than the interval between calls.
        if not lock.acquire(blocking=False):
            return
        try:
            cluster.refresh()
            groups = cluster.nodegroups
            # The conductor is still creating the cluster until both default groups exist.
            made = cluster.stack_id and sum(group.is_default for group in groups) >= 2
            if made and cluster.uuid not in _deleted and cluster.status.endswith("_IN_PROGRESS"):
                self._advance(context, cluster, groups)
        except exception.ClusterNotFound:
            return
        finally:
            lock.release()

    def _begin(self, cluster: Any, groups: Any, reopen: Any = None) -> None:
        for group in groups:
            _due[group.uuid] = time.monotonic() + _delay(cluster, group)
        if reopen is None:
            return
        # The conductor has set UPDATE_IN_PROGRESS, but a status job that completes an earlier operation may have
        # overwritten it with COMPLETE; Magnum would then not call again (its Heat driver had the same race).
        with _locks[cluster.uuid]:
            now = objects.Cluster.get_by_uuid(reopen, cluster.uuid)
            if not now.status.endswith("_IN_PROGRESS"):
                now.status = _STATUS.UPDATE_IN_PROGRESS
                now.save()

    def _advance(self, context: Any, cluster: Any, groups: Any) -> None:
        nodes = MagnumNodeSync(LAB) if _is_own(context, cluster) else None
        remaining = [group for group in groups if not self._ended(context, cluster, group, nodes)]
        working = cluster.status == _STATUS.CREATE_IN_PROGRESS and any(
            one.status.endswith("_IN_PROGRESS") for one in remaining
        )
        if nodes and not working and cluster.status == _STATUS.CREATE_IN_PROGRESS and _wants_operator(cluster):
            lab_cluster.install_operator(LAB)
        before = cluster.status
        cluster.status, cluster.status_reason = aggregate(before, remaining)
        if cluster.status.endswith("_COMPLETE") and not cluster.api_address:
            cluster.api_address = lab_cluster.api_address(LAB) if nodes else f"https://127.10.{cluster.id % 250}.1:6443"
            cluster.coe_version = cluster.labels.get("kube_tag")
        if cluster.status == _STATUS.DELETE_COMPLETE:
            _deleted.add(cluster.uuid)
        else:
            cluster.save()

    def _ended(self, context: Any, cluster: Any, group: Any, nodes: MagnumNodeSync | None) -> bool:
        """Continue the operation on a node group; return whether the group was deleted."""
        live = settings_of(LAB)
        if not (group.status or "").endswith("_IN_PROGRESS") or live.fault(f"{CLOUD}.in-progress", group.name):
            return False
        if _due.setdefault(group.uuid, time.monotonic() + _delay(cluster, group)) > time.monotonic():
            return False
        action = group.status.partition("_")[0]
        fault = live.fault(f"{CLOUD}.{action.lower()}-failed", group.name)
        reason = (fault.value or _REASON) if fault else refusal(LAB, context, cluster, group, action)
        if reason:
            group.status, group.status_reason = f"{action}_FAILED", reason
        elif action == "DELETE":
            if nodes:
                nodes.delete_all(group.uuid)
            if not group.is_default:
                _due.pop(group.uuid, None)
                group.destroy()
                return True
            group.status = _STATUS.DELETE_COMPLETE
        else:
            if nodes and not nodes.reconcile(_group(cluster, group), _nodes_to_remove.get(group.uuid, ())):
                return False
            group.status, group.status_reason = f"{action}_COMPLETE", None
            group.node_addresses = nodes.addresses(group.uuid) if nodes else _invented(cluster, group)
        _due.pop(group.uuid, None)
        _nodes_to_remove.pop(group.uuid, None)
        group.save()
        return False


def busy() -> bool:
    """Return whether any operation is in progress."""
    return bool(_due)


def _group(cluster: Any, group: Any) -> NodegroupSpec:
    stack = cluster.name if group.is_default else f"{cluster.name}-{group.name}"
    given = settings_of(LAB).setting(f"{CLOUD}.node-labels") == "applied"
    # Magnum before 23 has neither attribute.
    labels = getattr(group, "node_labels", None) if given else None
    taints = getattr(group, "node_taints", None) if given else None
    return NodegroupSpec(
        id=group.uuid,
        name=group.name,
        role=group.role,
        count=group.node_count,
        flavor=group.flavor_id,
        stack=f"{stack}-{(cluster.uuid if group.is_default else group.uuid).replace('-', '')[:12]}",
        labels=labels or {},
        taints=taints or (),
    )


def _invented(cluster: Any, group: Any) -> list[str]:
    """Return invented addresses for the nodes of a cluster without Kubernetes."""
    return [f"10.{cluster.id % 120}.{(group.id or 0) % 250}.{number + 10}" for number in range(group.node_count)]


def _is_own(context: Any, cluster: Any) -> bool:
    """Return whether this is the lab's own Kubernetes: the oldest cluster with the name of the lab."""
    if cluster.name != LAB.name:
        return False
    alike = objects.Cluster.list(context, filters={"name": LAB.name})
    return bool(cluster.uuid == min(alike, key=lambda one: one.id).uuid)


def _wants_operator(cluster: Any) -> bool:
    return str(
        (cluster.labels or {}).get(lab_cluster.GPU_LABEL, "")
    ).lower() == "true" and not lab_cluster.has_operator(LAB)


def _delay(cluster: Any, group: Any) -> float:
    for labels in (group.labels, cluster.labels):
        if labels and labels.get(_DELAY_LABEL):
            return float(labels[_DELAY_LABEL])
    return float(settings_of(LAB).setting(f"{CLOUD}.delay"))
