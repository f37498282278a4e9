# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage before Helm, while the operator still works: nodes, ClusterPolicies and ConfigMaps, in this order.

A label that names an entry is removed before the ConfigMap with that entry, and no pod mounts a ConfigMap any more when it is deleted,
so that no pod crashes or hangs. NVIDIA's pods are deleted with their ClusterPolicy, before the operator.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..catalog.names import MIG_CONFIG_LABEL
from ..cluster_state.node import Node
from ..cluster_state.ownership import NodeEdit
from ..common.progress import Progress
from ..common.wait import WaitOptions
from ..kube.client import Client
from ..kube.errors import ApiError
from ..kube.lease import Lease
from ..kube.objects import NOT_CHECKED
from ..kube.paths import CLUSTER_POLICIES
from . import ownership_marks
from .cluster_policy import PolicyRestoration, restore_policy
from .configmaps import (
    CONFIGMAPS,
    find_configmaps,
    find_pods,
    remove_configmap,
    remove_pod,
    report_configmap,
    report_pods,
)
from .mig_reset import MigManagers, await_mig_reset
from .node_cleanup import MIG_OFF, NodeRestoration, kept_parts, managed_parts, restore_node
from .node_patches import patch_nodes, preview_nodes, read_nodes
from .operands import await_operands
from .result import UninstallResult

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]

_MIG_MANAGER = "nvidia.com/gpu.deploy.mig-manager"
_TOLERATIONS = "spec.daemonsets.tolerations"
# The operator writes its policy's status whenever it processes it, which changes the resourceVersion.
_ATTEMPTS = 8


@dataclass(frozen=True)
class BeforeHelmSettings:
    """The options of the user, and functions of the caller.

    `is_managed` says whether a policy belongs to a managed Helm release, `count_driver_nodes` how many drivers would roll, and
    `restart_mig_managers` restarts those of some nodes, given a namespace, the nodes and the lease.
    """

    namespace: str
    is_managed: t.Callable[[Document], bool]
    count_driver_nodes: t.Callable[[t.Iterable[Document]], int]
    restart_mig_managers: t.Callable[[str, t.Sequence[Node], Lease], None]
    allow_driver_rollout: bool
    reset_mig: bool
    progress: Progress
    # None: do not wait.
    waiting: WaitOptions | None


@dataclass(frozen=True)
class ForeignPolicy:
    """The restoration of a policy that is kept, and the number of nodes whose driver would roll without our tolerations.

    `is_held`: our tolerations stay, because the driver may not roll.
    """

    restoration: PolicyRestoration
    driver_nodes: int = 0
    is_held: bool = False


@dataclass
class ManagedObjects:
    """One reading of the cluster; `foreign` are the policies that are kept, by name."""

    nodes: list[Node]
    policies: list[Object]
    configmaps: list[Object]
    pods: list[Object]
    foreign: dict[str, ForeignPolicy] = field(default_factory=dict)


class BeforeHelm:
    """One cluster; `result` has what was done so far."""

    def __init__(self, client: Client, settings: BeforeHelmSettings) -> None:
        """Send no request yet."""
        self._client = client
        self._settings = settings
        self.result = UninstallResult()

    def read(self) -> ManagedObjects:
        """The nodes, the ClusterPolicies, ConfigMaps with our entries, and pods that we have created or annotated."""
        policies = list(self._client.list_known(CLUSTER_POLICIES))
        foreign = [policy for policy in policies if not self._settings.is_managed(policy)]
        return ManagedObjects(
            nodes=read_nodes(self._client),
            policies=policies,
            configmaps=find_configmaps(
                self._client, [(self._operator_namespace(policy), _plugin_configmap(policy)) for policy in foreign]
            ),
            pods=find_pods(self._client),
            foreign={policy["metadata"]["name"]: self._evaluate(policy) for policy in foreign},
        )

    def has_changes(self, found: ManagedObjects) -> bool:
        """Whether there is anything to send."""
        restorations = [self._restore_node(node, found) for node in found.nodes]
        return bool(
            found.configmaps
            or found.pods
            or any(self._settings.is_managed(policy) or self._is_marked(policy, found) for policy in found.policies)
            or any(restoration.edit or restoration.partitioned for restoration in restorations)
        )

    def preview(self, found: ManagedObjects) -> None:
        """Report what a run would do, and have the server check it as far as possible."""
        try:
            preview_nodes(self._client, found.nodes, self._node_edit(found), self.result)
            for policy in found.policies:
                if self._settings.is_managed(policy):
                    self._client.delete(_path(policy), dry_run=True)
                else:
                    self._patch_policy(policy, self._restore_patch(policy, found), dry_run=True)
        except ApiError as error:
            if not error.forbidden:
                raise
            self.result.unchecked = NOT_CHECKED
        for node in found.nodes:
            # The patch that follows the reset of the MIG layout.
            if self._restore_node(node, found).partitioned and (edit := restore_node(node, reset_mig=False).edit):
                self.result.add_node(edit)
        self._report_kept_on_nodes(found)
        self._report_policies(found)
        for configmap in found.configmaps:
            report_configmap(configmap, self.result)
        report_pods(found.pods, self.result)

    def remove(self, found: ManagedObjects, lease: Lease) -> None:
        """Remove everything; raises WaitTimeout when the agents do not follow, PartialFailure when nodes cannot be changed."""
        self._report_kept_on_nodes(found)
        self._clean_nodes(found, lease)
        self._remove_policies(found, lease)
        for configmap in found.configmaps:
            lease.check()
            remove_configmap(self._client, configmap)
            report_configmap(configmap, self.result)
        for pod in found.pods:
            lease.check()
            remove_pod(self._client, pod)
        report_pods(found.pods, self.result)

    def _report_kept_on_nodes(self, found: ManagedObjects) -> None:
        for node in found.nodes:
            for description in kept_parts(node, operator=False):
                self.result.add_kept_on_node(node.name, description)
            partitioned = MIG_CONFIG_LABEL in managed_parts(node).labels and node.mig_config not in ("", MIG_OFF)
            if partitioned and not self._can_reset_mig(node, found):
                self.result.add_kept_on_node(node.name, "partitioned GPUs, since no MIG manager resets the layout")

    def _clean_nodes(self, found: ManagedObjects, lease: Lease) -> None:
        progress, waiting = self._settings.progress, self._settings.waiting
        patch_nodes(self._client, found.nodes, self._node_edit(found), lease, progress, self.result)
        partitioned = [node.name for node in found.nodes if self._restore_node(node, found).partitioned]
        if partitioned and waiting is not None:
            namespace = self._operator_namespace(found.policies[0])
            managers = MigManagers(
                namespace, lambda nodes: self._settings.restart_mig_managers(namespace, nodes, lease)
            )
            nodes = await_mig_reset(self._client, partitioned, managers, waiting)
            patch_nodes(self._client, nodes, self._node_edit(found), lease, progress, self.result)

    def _remove_policies(self, found: ManagedObjects, lease: Lease) -> None:
        deleted = set()
        for policy in found.policies:
            lease.check()
            if self._settings.is_managed(policy):
                deleted.add(policy["metadata"]["uid"])
                self._client.delete(_path(policy), body={"preconditions": {"uid": policy["metadata"]["uid"]}})
                continue
            live = self._patch_policy(policy, self._restore_patch(policy, found))
            # The remaining fields count as written by us: our field manager is removed, unless something of this collection stays.
            if live is not None and not self._foreign(policy, found).is_held:
                self._patch_policy(live, ownership_marks.unmark_patch)
        self._report_policies(found)
        if self._settings.waiting is not None and found.policies:
            namespaces = {self._operator_namespace(policy) for policy in found.policies}
            await_operands(self._client, namespaces, deleted, CONFIGMAPS, self._settings.waiting)

    def _restore_patch(self, policy: Document, found: ManagedObjects) -> t.Callable[[Object], Object | None]:
        hold_driver = self._foreign(policy, found).is_held
        return lambda live: restore_policy(live, hold_driver=hold_driver).patch

    def _patch_policy(
        self, live: Object, compute: t.Callable[[Object], Object | None], *, dry_run: bool = False
    ) -> Object | None:
        """The patched policy, None when it does not exist; after a conflict the patch is computed again."""
        for attempt in range(_ATTEMPTS):
            patch = compute(live)
            if patch is None:
                break
            try:
                return self._client.patch(_path(live), patch, dry_run=dry_run)
            except ApiError as error:
                if not error.conflict or attempt == _ATTEMPTS - 1:
                    raise
            current = self._client.get(_path(live))
            if current is None:
                return None
            live = current
        return live

    def _report_policies(self, found: ManagedObjects) -> None:
        for policy in found.policies:
            label = f"ClusterPolicy {policy['metadata']['name']}"
            if self._settings.is_managed(policy):
                self.result.add_removed(label)
                continue
            foreign = self._foreign(policy, found)
            self.result.add_kept(label, "this collection did not install it")
            if self._is_marked(policy, found):
                annotations = {} if foreign.is_held else ownership_marks.own_annotations(policy)
                before = {**foreign.restoration.before, **({"annotations": annotations} if annotations else {})}
                self.result.add_removed(label, before, foreign.restoration.after, "our fields removed")
            if foreign.is_held:
                self.result.held_back.append(_TOLERATIONS)
                self.result.add_kept(
                    f"{_TOLERATIONS} of {label}",
                    f"without our entries the driver would roll on {foreign.driver_nodes} nodes and evict their GPU "
                    "pods (gpu_uninstall_allow_driver_rollout)",
                )

    def _evaluate(self, policy: Document) -> ForeignPolicy:
        restoration = restore_policy(policy)
        if not restoration.reaches_driver:
            return ForeignPolicy(restoration)
        daemonsets = self._client.list(f"/apis/apps/v1/namespaces/{self._operator_namespace(policy)}/daemonsets")
        nodes = self._settings.count_driver_nodes(daemonsets)
        if not nodes or self._settings.allow_driver_rollout:
            return ForeignPolicy(restoration, nodes)
        return ForeignPolicy(restore_policy(policy, hold_driver=True), nodes, is_held=True)

    def _foreign(self, policy: Document, found: ManagedObjects) -> ForeignPolicy:
        return found.foreign[policy["metadata"]["name"]]

    def _is_marked(self, policy: Document, found: ManagedObjects) -> bool:
        """Whether something of this collection in a foreign policy is to be removed now."""
        foreign = self._foreign(policy, found)
        return foreign.restoration.patch is not None or (ownership_marks.is_marked(policy) and not foreign.is_held)

    def _operator_namespace(self, policy: Document) -> str:
        return str((policy.get("status") or {}).get("namespace") or self._settings.namespace)

    def _can_reset_mig(self, node: Node, found: ManagedObjects) -> bool:
        """Whether a MIG manager on the node can reset its layout."""
        has_manager = bool(found.policies) and node.ready and node.labels.get(_MIG_MANAGER) == "true"
        return self._settings.reset_mig and has_manager

    def _restore_node(self, node: Node, found: ManagedObjects) -> NodeRestoration:
        return restore_node(node, reset_mig=self._can_reset_mig(node, found))

    def _node_edit(self, found: ManagedObjects) -> t.Callable[[Node], NodeEdit | None]:
        return lambda node: self._restore_node(node, found).edit


def _plugin_configmap(policy: Document) -> str:
    """The device plugin's ConfigMap that a policy names."""
    config = ((policy.get("spec") or {}).get("devicePlugin") or {}).get("config") or {}
    return str(config.get("name") or "")


def _path(policy: Document) -> str:
    return f"{CLUSTER_POLICIES}/{policy['metadata']['name']}"
