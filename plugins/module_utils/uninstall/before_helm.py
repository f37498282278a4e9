# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Implements the stage before Helm, while the operator still works: cleans up nodes, ClusterPolicies, ConfigMaps and Secrets, in this order.

A label that selects an entry is removed before the ConfigMap with that entry, and a ConfigMap is only deleted once no pod mounts it,
so that no pod crashes or hangs. NVIDIA's pods are deleted with their ClusterPolicy, while the operator still exists.
"""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass, field

from ..catalog.names import MIG_CONFIG_LABEL, MIG_MANAGER_DEPLOY_LABEL
from ..cluster_state.cluster_policy import plugin_configmap
from ..cluster_state.gpu_pods import PREFIX
from ..cluster_state.node import Node
from ..cluster_state.ownership import NodeEdit
from ..common.errors import InvalidOptions
from ..drain.pods_on_nodes import pods_by_node, pods_on
from ..helm.release_removal import ReleaseRemoval
from ..kube.client import Client
from ..kube.conflict_retry import patch_object
from ..kube.lease import Lease
from ..kube.paths import CLUSTER_POLICIES, NVIDIA_DRIVERS
from ..nvidia_config import mig_parted
from ..schema.messages import abbreviate, abbreviate_nodes
from . import ownership_marks
from .autoscaling import autoscaling_removals
from .cluster_policy import restore_policy
from .components import Components
from .configmaps import annotation_removals, foreign_configmap_removals
from .created_objects import (
    AFTER_OPERANDS,
    CONFIGMAPS,
    DRIVERS,
    OF_OPERATORS,
    VALIDATION_PODS,
    created_removals,
)
from .driver_objects import ALLOW_DRIVER_ROLLOUT, refusal
from .licensing import named_license_objects
from .mig_reset import KEEP_PARTITIONED, MigReset
from .node_cleanup import NodeRestoration, kept_parts, managed_parts, restore_node
from .olm import discovery_removals
from .operands import await_operands
from .stage import Removal, Stage, deletion, read_nodes

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]

_TOLERATIONS = "spec.daemonsets.tolerations"
_TOLERATIONS_PATH = ("daemonsets", "tolerations")


@dataclass(kw_only=True)
class BeforeHelm(Stage):
    """The stage with the user's options, and with functions of other packages.

    `count_interrupted_nodes` returns the number of nodes whose GPU pods would be evicted because of a change of a policy. `restart_mig_managers` takes a
    namespace, nodes and the lease, and restarts the MIG managers of these nodes.
    """

    components: Components
    run_id: str
    allow_driver_rollout: bool
    reset_mig: bool
    count_interrupted_nodes: t.Callable[[Document, t.Collection[Document], t.Iterable[tuple[str, ...]]], int]
    restart_mig_managers: t.Callable[[str, t.Sequence[Node], Lease], None]
    policies: list[Object] = field(default_factory=list)
    drivers: list[Object] = field(default_factory=list)
    policy_removals: list[Removal] = field(default_factory=list)
    other_removals: list[Removal] = field(default_factory=list)

    def read(self) -> None:
        """Read the nodes, ClusterPolicies, ConfigMaps with the collection's entries, its Secrets, and pods that it has created or annotated."""
        self.nodes = read_nodes(self.client)
        self.policies = list(self.client.list_known(CLUSTER_POLICIES))
        foreign = [policy for policy in self.policies if not self.components.operator.removes(policy)]
        drivers = self.client.list_known(NVIDIA_DRIVERS)
        self.drivers = list(filter(DRIVERS.is_own, drivers))
        self._require_driver_rollout(foreign)
        self._require_ready_nodes()
        # Autoscaling is removed first, so that no node is added during the cleanup.
        self.policy_removals = autoscaling_removals(self.client)
        self.policy_removals += [removal for policy in self.policies for removal in self._policy_removals(policy)]
        if self.components.nfd.by_olm:
            self.policy_removals += discovery_removals(self.client)
        self.policy_removals += [DRIVERS.remove(self.client, item, {}) for item in self.drivers]
        plugin_configmaps = [
            (self._operator_namespace(policy), name)
            for policy in foreign
            if (name := plugin_configmap(policy)) and name not in CONFIGMAPS
        ]
        namespaces = dict.fromkeys([self._release_namespace, *map(self._operator_namespace, self.policies)])
        named = named_license_objects(foreign, [item for item in drivers if item not in self.drivers])
        self.other_removals = [
            *created_removals(self.client, AFTER_OPERANDS),
            *foreign_configmap_removals(self.client, plugin_configmaps),
            *(
                removal
                for namespace in namespaces
                for removal in created_removals(self.client, OF_OPERATORS, namespace, named)
            ),
            *created_removals(self.client, VALIDATION_PODS),
            *annotation_removals(self.client),
            *(
                Removal(
                    f"Helm release {release.namespace}/{release.name}",
                    "to be uninstalled",
                    before=release.initial_status,
                )
                for release in self._to_supersede()
            ),
        ]
        self.removals = [*self.policy_removals, *self.other_removals]

    def warnings(self) -> t.Iterator[str]:
        """A warning about the pods that lose the driver when the operator is removed."""
        if any(map(self.components.operator.removes, self.policies)):
            warning = driver_warning(self.client, self._release_namespace, self.nodes)
            if warning:
                yield warning

    def has_changes(self) -> bool:
        """Whether there are changes, or a MIG layout is still being reset."""
        return super().has_changes() or bool(self._partitioned())

    def preview(self) -> None:
        """Report the changes of a run; the server checks as many of them as possible."""
        partitioned = self._partitioned()
        self._report_mig_reset([node.name for node in partitioned])
        super().preview()
        for node in partitioned:
            # Add the patch that follows the reset of the MIG layout, so that the diff shows the final metadata.
            edit = restore_node(node, reset_mig=False).edit
            if edit is not None:
                self.result.add_node(edit)

    def remove(self, lease: Lease) -> None:
        """Remove everything; raises WaitTimeout if NVIDIA's pods do not react in time, and PartialFailure if nodes cannot be changed."""
        for release in self._to_supersede():
            release.await_other_helm()
            lease.check()
            release.supersede(self.run_id)
        self.report_kept_on_nodes()
        self.patch_nodes(lease)
        self._await_mig_reset(lease)
        self.send(self.policy_removals, lease)
        if self.waiting is not None and self.policies:
            namespaces = {self._operator_namespace(policy) for policy in self.policies}
            deleted = {
                policy["metadata"]["uid"] for policy in self.policies if self.components.operator.removes(policy)
            }
            deleted |= {driver["metadata"]["uid"] for driver in self.drivers}
            await_operands(self.client, namespaces, deleted, CONFIGMAPS, self.waiting)
        self.send(self.other_removals, lease)

    def node_edit(self, node: Node) -> NodeEdit | None:
        """The patch of a node; for a partitioned node, only the patch that starts the reset of its layout."""
        return self._restore_node(node).edit

    def kept_on_node(self, node: Node) -> t.Iterator[str]:
        """Descriptions of a foreign pool label, and of a layout that is not reset."""
        yield from kept_parts(node, operator=False)
        partitioned = MIG_CONFIG_LABEL in managed_parts(node).labels and node.mig_config not in (
            "",
            mig_parted.DISABLED,
        )
        if partitioned and not self._can_reset_mig(node):
            yield "partitioned GPUs, since no MIG manager resets the layout"

    def _await_mig_reset(self, lease: Lease) -> None:
        partitioned = [node.name for node in self._partitioned()]
        if partitioned and self.waiting is not None:
            namespace = self._operator_namespace(self.policies[0])
            reset = MigReset(
                self.client,
                partitioned,
                namespace,
                lambda nodes: self.restart_mig_managers(namespace, nodes, lease),
                self.waiting,
            )
            self.nodes = reset.wait()
            self._report_mig_reset(partitioned)
            self.patch_nodes(lease)

    def _report_mig_reset(self, nodes: t.Sequence[str]) -> None:
        """Report the nodes whose MIG devices are removed; the diff of their labels does not show this effect."""
        if nodes:
            label = f"MIG devices of {abbreviate_nodes(sorted(nodes))}"
            self.result.add_removed(label, action="removed by the MIG manager")

    def _partitioned(self) -> list[Node]:
        return [node for node in self.nodes if self._restore_node(node).partitioned]

    def _restore_node(self, node: Node) -> NodeRestoration:
        return restore_node(node, reset_mig=self._can_reset_mig(node))

    def _can_reset_mig(self, node: Node) -> bool:
        """Whether the layout may be reset, and a MIG manager on the node can reset it."""
        has_manager = bool(self.policies) and node.labels.get(MIG_MANAGER_DEPLOY_LABEL) == "true"
        return self.reset_mig and has_manager

    def _to_supersede(self) -> list[ReleaseRemoval]:
        return [item.release for item in self.components if item.by_helm and not item.release.is_superseded]

    @property
    def _release_namespace(self) -> str:
        return self.components.operator.release.namespace

    def _operator_namespace(self, policy: Document) -> str:
        return str((policy.get("status") or {}).get("namespace") or self._release_namespace)

    def _policy_removals(self, policy: Object) -> t.Iterator[Removal]:
        """The deletion of a managed policy, or of the collection's fields in a foreign one (except tolerations if drivers must not restart)."""
        label = f"ClusterPolicy {policy['metadata']['name']}"
        if self.components.operator.removes(policy):
            yield deletion(self.client, _path(policy), policy, label)
            return
        if ownership_marks.is_copy(policy):
            # The records in the annotations of a copy describe the original.
            yield Removal(label, action="", kept=ownership_marks.COPIED)
            return
        restoration = restore_policy(policy)
        driver_nodes = 0
        if restoration.reaches_driver and not self.allow_driver_rollout:
            path = f"/apis/apps/v1/namespaces/{self._operator_namespace(policy)}/daemonsets"
            driver_nodes = self.count_interrupted_nodes(policy, list(self.client.list(path)), [_TOLERATIONS_PATH])
        hold_driver = bool(driver_nodes)
        if hold_driver:
            restoration = restore_policy(policy, hold_driver=True)
        is_unmarked = ownership_marks.is_marked(policy) and not hold_driver
        annotations = ownership_marks.own_annotations(policy) if is_unmarked else {}
        restore = functools.partial(self._restore_policy, policy, hold_driver=hold_driver)
        yield Removal(
            label,
            action="managed fields removed" if restoration.patch is not None or is_unmarked else "",
            kept="this collection did not install it",
            before={**restoration.before, **({"annotations": annotations} if annotations else {})},
            after=restoration.after,
            send=restore,
            check=functools.partial(restore, dry_run=True),
        )
        if hold_driver:
            reason = (
                f"without this collection's entries, the driver would restart on {driver_nodes} nodes and evict their GPU pods; "
                f"{ALLOW_DRIVER_ROLLOUT} allows it"
            )
            yield Removal(f"{_TOLERATIONS} of {label}", action="", kept=reason, held_back=_TOLERATIONS)

    def _require_driver_rollout(self, foreign: t.Sequence[Document]) -> None:
        """Raise InvalidOptions if the deletion of NVIDIADriver objects would make a kept operator replace drivers, and this is not allowed."""
        if not (foreign and self.drivers) or self.allow_driver_rollout:
            return
        daemonsets = list(
            self.client.list(f"/apis/apps/v1/namespaces/{self._operator_namespace(foreign[0])}/daemonsets")
        )
        reason = refusal(self.drivers, daemonsets)
        if reason:
            raise InvalidOptions([reason])

    def _require_ready_nodes(self) -> None:
        """Raise InvalidOptions if partitioned nodes are not ready.

        The MIG managers on these nodes do not run, and once the records are removed, no run could reset the layouts.
        """
        names = [node.name for node in self._partitioned() if not node.ready]
        if names:
            raise InvalidOptions(
                [
                    f"{abbreviate_nodes(names)}: not ready, so the MIG layout cannot be reset. No node has been changed. Wait until the nodes are ready, "
                    f"delete the nodes that do not return, or keep the GPUs of all nodes partitioned ({KEEP_PARTITIONED})."
                ]
            )

    def _restore_policy(self, policy: Object, *, hold_driver: bool, dry_run: bool = False) -> None:
        restored = functools.partial(restore_policy, hold_driver=hold_driver)
        path = _path(policy)
        live = patch_object(self.client, path, policy, lambda live: restored(live).patch, dry_run=dry_run)
        # The server still records the collection as a manager of the restored fields, so its field manager is removed, except
        # if its tolerations are kept.
        if live is not None and not hold_driver and not dry_run:
            patch_object(self.client, path, live, ownership_marks.unmark_patch)


def driver_warning(client: Client, operator_namespace: str, nodes: t.Iterable[Node]) -> str:
    """The warning about the pods that lose the driver when it is removed; empty if there are none. Check mode shows it in advance.

    Pods on nodes without a GPU are ignored. The cluster's own privileged pods are also ignored, because they run on every node.
    """
    with_gpus = {node.name for node in nodes if node.has_gpu or any(name.startswith(PREFIX) for name in node.capacity)}
    by_node = {
        name: pods
        for name, pods in pods_by_node(client, pods_on(client), operator_namespace).gpu_pods.items()
        if name in with_gpus
    }
    if not by_node:
        return ""
    pods = [f"{user.full_name} ({', '.join(user.access)})" for on_node in by_node.values() for user in on_node]
    count, verb = (f"{len(pods)} pods", "lose") if len(pods) > 1 else ("1 pod", "loses")
    return (
        f"{count} on {abbreviate_nodes(by_node)} can use GPUs, and {verb} the driver: {abbreviate(pods)}. First delete these pods, or drain their "
        "nodes."
    )


def _path(policy: Document) -> str:
    return f"{CLUSTER_POLICIES}/{policy['metadata']['name']}"
