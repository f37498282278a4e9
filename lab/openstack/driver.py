# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster driver of Magnum whose machines are simulated Nodes of the lab.

It is what stands *behind* Magnum's conductor in place of Heat or Cluster API; API, conductor, certificates and database
are Magnum's own. An operation is IN_PROGRESS for as long as it takes until the nodes are as they should be, and ends
COMPLETE or, under a fault, FAILED. A cluster's status follows from its node groups' as in Magnum's former Heat driver.
Clusters that are not called like the lab have no Kubernetes, and nobody answers at their address.
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
from . import own
from .filters import switches
from .nodes import Group, Nodes
from .places import CLOUD
from .rules import aggregate, refusal

# Magnum makes a driver for each call; whose it is, is said by what the supervisor gives to every service.
LAB = Lab.named(Path(os.environ["LAB_DIR"]).name, Path(os.environ["LAB_DIR"]))
_STATUS = fields.ClusterStatus
_DELAY_LABEL = "lab_delay"
_REASON = "No valid host was found. There are not enough hosts available."
_locks: dict[str, threading.RLock] = collections.defaultdict(threading.RLock)
# By node group: when its operation may end, and which nodes a resize is to take.
_due: dict[str, float] = {}
_unwanted: dict[str, list[str]] = {}
# Clusters whose end has been told to Magnum's job, which destroys them.
_gone: set[str] = set()


class Driver(driver.Driver):
    """What Magnum asks of a driver; everything but the status is only noted here."""

    @property
    def provides(self) -> list[dict[str, str]]:
        """For which clusters Magnum takes this driver: the image's os_distro is ubuntu."""
        return [{"server_type": "vm", "os": "ubuntu", "coe": "kubernetes"}]

    def create_cluster(self, context: Any, cluster: Any, cluster_create_timeout: int) -> None:
        """Begin a cluster; the lab's own gets the lab's authority in place of the one that Magnum has made."""
        cluster.stack_id = str(uuid.uuid4())
        if _is_own(context, cluster):
            made = cluster.ca_cert_ref
            store = cert_manager.get_backend().CertManager
            cluster.ca_cert_ref = own.authority(LAB, store, context)
            store.delete_cert(made, resource_ref=cluster.uuid, context=context)
        self._begin(cluster, cluster.nodegroups)

    def delete_cluster(self, context: Any, cluster: Any) -> None:
        """Begin the end of a cluster and of all its node groups."""
        for group in cluster.nodegroups:
            group.status = _STATUS.DELETE_IN_PROGRESS
            group.save()
        self._begin(cluster, cluster.nodegroups)

    def update_cluster(self, context: Any, cluster: Any, scale_manager: Any = None, rollback: bool = False) -> None:
        """Begin another number of default workers."""
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
        """Begin another number of nodes."""
        _unwanted[nodegroup.uuid] = [str(node) for node in nodes_to_remove or ()]
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
        """Note the new template; the simulated nodes have one version for life."""
        cluster.cluster_template_id = cluster_template.uuid
        if tag := cluster_template.labels.get("kube_tag"):
            cluster.labels = {**cluster.labels, "kube_tag": tag}
            cluster.coe_version = tag
        nodegroup.image_id = cluster_template.image_id
        self._begin(cluster, [nodegroup], reopen=context)

    def create_nodegroup(self, context: Any, cluster: Any, nodegroup: Any) -> None:
        """Begin a node group."""
        nodegroup.stack_id = str(uuid.uuid4())
        nodegroup.save()
        self._begin(cluster, [nodegroup], reopen=context)

    def update_nodegroup(self, context: Any, cluster: Any, nodegroup: Any) -> None:
        """Begin another minimum or maximum, or what nodes to come are born with."""
        nodegroup.save()
        self._begin(cluster, [nodegroup], reopen=context)

    def delete_nodegroup(self, context: Any, cluster: Any, nodegroup: Any) -> None:
        """Begin the end of a node group."""
        nodegroup.save()
        self._begin(cluster, [nodegroup], reopen=context)

    def create_federation(self, context: Any, federation: Any) -> None:
        """Not what this is for."""
        raise NotImplementedError

    update_federation = delete_federation = create_federation

    def update_cluster_status(self, context: Any, cluster: Any, use_admin_ctx: bool = False) -> None:
        """Go on with what was begun on a cluster, and say how it stands; Magnum's own job asks while it is IN_PROGRESS."""
        lock = _locks[cluster.uuid]
        # Making nodes takes longer than the next question takes to come.
        if not lock.acquire(blocking=False):
            return
        try:
            cluster.refresh()
            groups = cluster.nodegroups
            # Until both default groups are there, the conductor is still creating it.
            made = cluster.stack_id and sum(group.is_default for group in groups) >= 2
            if made and cluster.uuid not in _gone and cluster.status.endswith("_IN_PROGRESS"):
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
        # The conductor has marked the cluster UPDATE_IN_PROGRESS, but a status job that ends an earlier operation may
        # have written COMPLETE over it; Magnum would not ask again (its Heat driver had that race, too).
        with _locks[cluster.uuid]:
            now = objects.Cluster.get_by_uuid(reopen, cluster.uuid)
            if not now.status.endswith("_IN_PROGRESS"):
                now.status = _STATUS.UPDATE_IN_PROGRESS
                now.save()

    def _advance(self, context: Any, cluster: Any, groups: Any) -> None:
        nodes = Nodes(LAB) if _is_own(context, cluster) else None
        left = [group for group in groups if not self._ended(context, cluster, group, nodes)]
        working = cluster.status == _STATUS.CREATE_IN_PROGRESS and any(
            of.status.endswith("_IN_PROGRESS") for of in left
        )
        if nodes and not working and cluster.status == _STATUS.CREATE_IN_PROGRESS and _wants_operator(cluster):
            own.install_operator(LAB)
        before = cluster.status
        cluster.status, cluster.status_reason = aggregate(before, left)
        if cluster.status.endswith("_COMPLETE") and not cluster.api_address:
            cluster.api_address = own.api_address(LAB) if nodes else f"https://127.10.{cluster.id % 250}.1:6443"
            cluster.coe_version = cluster.labels.get("kube_tag")
        if cluster.status == _STATUS.DELETE_COMPLETE:
            _gone.add(cluster.uuid)
        else:
            cluster.save()

    def _ended(self, context: Any, cluster: Any, group: Any, nodes: Nodes | None) -> bool:
        """Go on with the operation of a node group; tell whether the group is gone with it."""
        live = switches(LAB)
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
                nodes.end(group.uuid)
            if not group.is_default:
                _due.pop(group.uuid, None)
                group.destroy()
                return True
            group.status = _STATUS.DELETE_COMPLETE
        else:
            if nodes and not nodes.settle(_group(cluster, group), _unwanted.get(group.uuid, ())):
                return False
            group.status, group.status_reason = f"{action}_COMPLETE", None
            group.node_addresses = nodes.addresses(group.uuid) if nodes else _invented(cluster, group)
        _due.pop(group.uuid, None)
        _unwanted.pop(group.uuid, None)
        group.save()
        return False


def busy() -> bool:
    """Tell whether something was begun that has not ended."""
    return bool(_due)


def _group(cluster: Any, group: Any) -> Group:
    stack = cluster.name if group.is_default else f"{cluster.name}-{group.name}"
    given = switches(LAB).setting(f"{CLOUD}.node-labels") == "applied"
    # Magnum before 23 has neither.
    labels = getattr(group, "node_labels", None) if given else None
    taints = getattr(group, "node_taints", None) if given else None
    return Group(
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
    """Addresses of nodes that are nowhere."""
    return [f"10.{cluster.id % 120}.{(group.id or 0) % 250}.{number + 10}" for number in range(group.node_count)]


def _is_own(context: Any, cluster: Any) -> bool:
    """Tell whether this is the lab's own Kubernetes: the oldest cluster that is called like the lab."""
    if cluster.name != LAB.name:
        return False
    alike = objects.Cluster.list(context, filters={"name": LAB.name})
    return bool(cluster.uuid == min(alike, key=lambda of: of.id).uuid)


def _wants_operator(cluster: Any) -> bool:
    return str((cluster.labels or {}).get(own.GPU_LABEL, "")).lower() == "true" and not own.has_operator(LAB)


def _delay(cluster: Any, group: Any) -> float:
    for labels in (group.labels, cluster.labels):
        if labels and labels.get(_DELAY_LABEL):
            return float(labels[_DELAY_LABEL])
    return float(switches(LAB).setting(f"{CLOUD}.delay"))
