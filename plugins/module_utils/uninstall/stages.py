# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The removal before and after Helm has removed its releases."""

from __future__ import annotations

import functools
import re
import typing as t
from dataclasses import dataclass, field

from ..catalog.names import (
    CONFIG_LABEL,
    FIELD_MANAGER,
    LEASE_NAME,
    LEASE_NAMESPACE,
    MIG_CONFIG_LABEL,
    MIG_CONFIGMAP,
    MIG_MANAGER_DEPLOY_LABEL,
)
from ..catalog.openshift import MACHINE_API_NAMESPACE, MACHINE_CONFIGURATION_PATH, machine_sets_path
from ..catalog.releases import NFD_KINDS, OPERATOR_RELEASES
from ..catalog.taints import toleration_identity
from ..clouds import boot_images
from ..clouds.machinesets import provider_spec_of
from ..core.errors import InvalidOptions
from ..core.messages import abbreviate, abbreviate_nodes, one_line, option_of_role
from ..core.values import Document, Object, apply_merge_patch, merge_patch
from ..gpu_operator.cluster_policy import (
    mig_configmap,
    plugin_configmap,
    policy_tolerations,
    recorded_previous_spec,
    recorded_tolerations,
    restore_previous_spec,
    written_tolerations,
)
from ..kube.errors import ApiError, patch_object
from ..kube.fields import Tree, child, name_of, owned_by, owned_by_others, without
from ..kube.paths import CLUSTER_POLICIES, CUSTOM_RESOURCE_DEFINITIONS, NODES, NVIDIA_DRIVERS, Kind, object_path
from ..nodes.ownership import (
    NodeEdit,
    former_labels,
    keeps_layout,
    machine_set_owner,
)
from ..nodes.pods import PREFIX, daemonset_status, pods_by_node, pods_on
from ..sharing_modes import mig_parted
from .autoscaling import autoscaling_removals
from .objects import (
    ADOPTED,
    AFTER_OPERANDS,
    CONFIGMAPS,
    CREATED,
    DRIVERS,
    NEW_NODES,
    NEW_NODES_PERMISSIONS,
    OF_OPERATORS,
    VALIDATION_PODS,
    ComponentRemoval,
    Components,
    DepartingObjects,
    annotation_removals,
    crd_name,
    created_removals,
    custom_kind,
    discovery_removals,
    foreign_configmap_removals,
    is_agent_feature,
    keep_reason,
    keeps_mig_configmap,
    named_license_objects,
    namespace_removal,
)
from .removal import (
    COPIED,
    KEEP_PARTITIONED,
    NO_ENTRIES,
    AgentEntries,
    MigReset,
    NodeRestoration,
    Removal,
    Residue,
    Stage,
    await_gone,
    await_no_pods,
    await_operands,
    blocked_message,
    deletion,
    former_parts,
    is_copy,
    is_created,
    is_marked,
    kept_parts,
    managed_parts,
    mig_action,
    nfd_residue,
    operator_residue,
    own_annotations,
    read_nodes,
    removal_edit,
    restore_node,
    restored_labels,
    split_keys,
    unmark_patch,
    with_short_diff,
)

if t.TYPE_CHECKING:
    from ..helm.preparation import ReleaseRemoval
    from ..kube.client import Client
    from ..kube.lease import Lease
    from ..nodes.node import Node

# Plans the restoration of a ClusterPolicy that is kept (pure).

_DAEMONSETS, _TOLERATIONS = "daemonsets", "tolerations"


@dataclass(frozen=True)
class PolicyRestoration:
    """One merge patch of the spec, or None if nothing must be restored; `before` and `after` contain the differences.

    `reaches_driver`: whether the DaemonSets lose tolerations, which restarts the driver.
    """

    patch: Object | None
    before: Object
    after: Object
    reaches_driver: bool = False


def restore_policy(live: Document, *, hold_driver: bool = False) -> PolicyRestoration:
    """Remove the collection's tolerations and the fields that only the collection has written, and restore the recorded previous values.

    The server treats the list of tolerations as a single field. With `hold_driver`, the list and the record of the collection's entries are kept.
    """
    spec: Object = dict(live.get("spec") or {})
    own, foreign = child(owned_by(live, FIELD_MANAGER), "spec"), child(owned_by_others(live, FIELD_MANAGER), "spec")
    restored: Object = without(spec, _without_tolerations(own), foreign)
    current = written_tolerations(live)
    recorded = {toleration_identity(item) for item in recorded_tolerations(live) or ()}
    kept = [item for item in current if toleration_identity(item) not in recorded]
    daemonsets = {key: value for key, value in (restored.get(_DAEMONSETS) or {}).items() if key != _TOLERATIONS}
    remaining = {**restored, _DAEMONSETS: {**daemonsets, **({_TOLERATIONS: kept} if kept else {})}}
    reaches_driver = policy_tolerations({"spec": remaining}) != policy_tolerations(live)
    if len(kept) != len(current) and not (hold_driver and reaches_driver):
        restored = remaining
    restored = restore_previous_spec(restored, recorded_previous_spec(live))
    changes = merge_patch(spec, restored)
    if not changes:
        return PolicyRestoration(None, {}, {}, reaches_driver)
    patch = {"metadata": {"resourceVersion": live["metadata"]["resourceVersion"]}, "spec": changes}
    before, after = _without_deletions(merge_patch(restored, spec)), _without_deletions(changes)
    return PolicyRestoration(patch, {"spec": before}, {"spec": after}, reaches_driver)


def _without_tolerations(tree: Tree) -> Tree:
    """The collection's fields without the list of tolerations, whose entries are removed according to their record."""
    below = child(tree, _DAEMONSETS)
    if f"f:{_TOLERATIONS}" not in below:
        return tree
    remaining = {key: value for key, value in below.items() if key != f"f:{_TOLERATIONS}"}
    others = {key: value for key, value in tree.items() if key != f"f:{_DAEMONSETS}"}
    # An empty map would count as a single field, and would be removed together with the list.
    return {**others, f"f:{_DAEMONSETS}": remaining} if any(key != "." for key in remaining) else others


def _without_deletions(patch: Object) -> Object:
    """The values that a merge patch sets."""
    return {
        key: _without_deletions(value) if isinstance(value, dict) else value
        for key, value in patch.items()
        if value is not None
    }


# Determines when the deletion of this collection's NVIDIADriver objects requires permission (pure).

ALLOW_DRIVER_ROLLOUT = option_of_role("gpu_uninstall_allow_driver_rollout", "allow_driver_rollout")


def refusal(drivers: t.Iterable[Document], daemonsets: t.Iterable[Document]) -> str:
    """The reason why deleting the objects requires permission: a kept operator would install another driver. Empty if no permission is required."""
    uids = {item["metadata"]["uid"] for item in drivers}
    nodes = sum(
        daemonset_status(item).scheduled
        for item in daemonsets
        if any(owner.get("uid") in uids for owner in item["metadata"].get("ownerReferences") or ())
    )
    if not nodes:
        return ""
    names = ", ".join(sorted(item["metadata"]["name"] for item in drivers))
    return (
        f"The operator is kept, and {nodes} nodes have the driver of NVIDIADriver {names}, which this collection created. Without "
        "these objects, all these nodes lose their driver at the same time and get the driver of the ClusterPolicy. Set "
        f"{ALLOW_DRIVER_ROLLOUT} to allow it. Nothing has been removed."
    )


# Implements the stage before Helm, while the operator still works: cleans up nodes, ClusterPolicies, ConfigMaps and Secrets, in this order.
#
# A label that selects an entry is removed before the ConfigMap with that entry, and a ConfigMap is only deleted once no pod mounts it,
# so that no pod crashes or hangs. NVIDIA's pods are deleted with their ClusterPolicy, while the operator still exists.

_TOLERATIONS_FIELD = "spec.daemonsets.tolerations"
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
    entries: AgentEntries = NO_ENTRIES

    def read(self) -> None:
        """Read the nodes, ClusterPolicies, ConfigMaps with the collection's entries, its Secrets, and pods that it has created or annotated."""
        self.nodes = read_nodes(self.client)
        self.policies = list(self.client.list_known(CLUSTER_POLICIES))
        foreign = [policy for policy in self.policies if not self.components.operator.removes(policy)]
        drivers = self.client.list_known(NVIDIA_DRIVERS)
        self.drivers = list(filter(DRIVERS.is_own, drivers))
        self._require_driver_rollout(foreign)
        self._read_entries(foreign)
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
        """Warnings about the pods that lose the driver when the operator is removed, and about those that prevent the reset of a MIG layout."""
        blocked = self._blocked()
        if blocked:
            yield blocked
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
        self._report_mig_reset(partitioned)
        super().preview()
        for node in partitioned:
            # Add the patch that follows the reset of the MIG layout, so that the diff shows the final metadata.
            edit = removal_edit(node, managed_parts(node), labels=restored_labels(node, self.entries))
            if edit is not None:
                self.result.add_node(edit)

    def remove(self, lease: Lease) -> None:
        """Remove everything; raises WaitTimeout if NVIDIA's pods do not react in time, and PartialFailure if nodes cannot be changed."""
        blocked = self._blocked()
        if blocked:
            raise InvalidOptions([f"{blocked} Nothing has been changed."])
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
        """Descriptions of a foreign pool label, of former labels, and of a layout that is not reset."""
        yield from kept_parts(node, operator=False)
        yield from former_parts(node, self.entries)
        partitioned = MIG_CONFIG_LABEL in managed_parts(node).labels and node.mig_config not in (
            "",
            mig_parted.DISABLED,
        )
        if partitioned and not self._can_reset_mig(node) and not keeps_layout(node):
            yield "partitioned GPUs, since no MIG manager resets the layout"

    def _await_mig_reset(self, lease: Lease) -> None:
        partitioned = self._partitioned()
        if partitioned and self.waiting is not None:
            namespace = self._operator_namespace(self.policies[0])
            reset = MigReset(
                self.client,
                [node.name for node in partitioned],
                namespace,
                lambda nodes: self.restart_mig_managers(namespace, nodes, lease),
                self.waiting,
                self.entries,
            )
            self.nodes = reset.wait()
            self._report_mig_reset(partitioned)
            self.patch_nodes(lease)

    def _report_mig_reset(self, nodes: t.Sequence[Node]) -> None:
        """Report the nodes whose MIG devices are removed; the diff of their labels does not show this effect."""
        by_action: dict[str, list[str]] = {}
        for node in nodes:
            by_action.setdefault(mig_action(node, self._restore_node(node).mig_config), []).append(node.name)
        for action, names in sorted(by_action.items()):
            self.result.add_removed(f"MIG devices of {abbreviate_nodes(sorted(names))}", action=action)

    def _read_entries(self, foreign: t.Sequence[Document]) -> None:
        """Read the ConfigMaps that former labels of nodes may select entries of; sends no request if no node has a former label."""
        plugin: t.Iterable[str] = ()
        source = "no ClusterPolicy is kept"
        if foreign and any(CONFIG_LABEL in former_labels(node).labels for node in self.nodes):
            policy = foreign[0]
            spec = apply_merge_patch(policy.get("spec") or {}, (restore_policy(policy).patch or {}).get("spec") or {})
            name = plugin_configmap({"spec": spec})
            configmap = self._configmap(policy, name) if name and name not in CONFIGMAPS else None
            plugin = split_keys(configmap)[1] if configmap else ()
            source = (
                f"ConfigMap {name} has no such entry" if name else "the kept ClusterPolicy selects no ConfigMap for it"
            )
        mig: t.Iterable[str] = ()
        if self.policies and any(
            MIG_CONFIG_LABEL in former_labels(node).labels and not keeps_layout(node) for node in self.nodes
        ):
            mig = mig_parted.parse_configmap(self._configmap(self.policies[0], mig_configmap(self.policies[0])))
        self.entries = AgentEntries(frozenset(plugin), frozenset(mig), source)

    def _configmap(self, policy: Document, name: str) -> Object | None:
        return self.client.get(object_path("v1", "ConfigMap", name, self._operator_namespace(policy)))

    def _blocked(self) -> str:
        """The message about the pods that prevent the reset of MIG layouts; empty if there are none."""
        names = [node.name for node in self._partitioned()]
        return blocked_message(self.client, self._operator_namespace(self.policies[0]), names) if names else ""

    def _partitioned(self) -> list[Node]:
        return [node for node in self.nodes if self._restore_node(node).partitioned]

    def _restore_node(self, node: Node) -> NodeRestoration:
        return restore_node(node, reset_mig=self._can_reset_mig(node), entries=self.entries)

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
        if is_copy(policy):
            # The records in the annotations of a copy describe the original.
            yield Removal(label, action="", kept=COPIED)
            return
        restoration = restore_policy(policy)
        driver_nodes = 0
        if restoration.reaches_driver and not self.allow_driver_rollout:
            path = f"/apis/apps/v1/namespaces/{self._operator_namespace(policy)}/daemonsets"
            driver_nodes = self.count_interrupted_nodes(policy, list(self.client.list(path)), [_TOLERATIONS_PATH])
        hold_driver = bool(driver_nodes)
        if hold_driver:
            restoration = restore_policy(policy, hold_driver=True)
        is_unmarked = is_marked(policy) and not hold_driver
        annotations = own_annotations(policy) if is_unmarked else {}
        restore = functools.partial(self._restore_policy, policy, hold_driver=hold_driver)
        yield Removal(
            label,
            action="managed fields removed" if restoration.patch is not None or is_unmarked else "",
            kept="this collection did not install it" if self.components.operator.is_removed else ADOPTED,
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
            yield Removal(f"{_TOLERATIONS_FIELD} of {label}", action="", kept=reason, held_back=_TOLERATIONS_FIELD)

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
            patch_object(self.client, path, live, unmark_patch)


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


# Implements the stage after Helm has uninstalled the releases: removes their residue on nodes, CRDs, Leases and namespaces.
#
# The markers of the collection's Helm releases are deleted after everything that depends on them, so that the next run can continue if this one is killed.
# The Leases that prevent simultaneous runs and record the cluster's name are deleted last.

_OPERATOR_KINDS = tuple(dict.fromkeys(kind for release in OPERATOR_RELEASES for kind in release.kinds))


@dataclass(kw_only=True)
class AfterHelm(Stage):
    """The stage for both components. `nfd_instance` is the prefix of NFD's annotations, and `lease_namespace` is the namespace of the Lease of runs.

    `run_leases` contains the existing Leases that are deleted at the end. `foreign_policies`: whether foreign ClusterPolicies exist.
    """

    components: Components
    nfd_instance: str
    lease_namespace: str
    run_leases: list[str] = field(default_factory=list)
    foreign_policies: bool = False

    def read(self) -> None:
        """Read the nodes and all objects that may have to be removed."""
        self.nodes = read_nodes(self.client)
        policies = (
            self.client.list_known(CLUSTER_POLICIES, metadata_only=True) if self.components.operator.own_by_olm else ()
        )
        self.foreign_policies = not all(map(is_created, policies))
        crds: list[Removal | None] = []
        leases: list[str] = []
        for component, kinds in zip(self.components, (_OPERATOR_KINDS, NFD_KINDS), strict=True):
            if component.by_helm:
                crds += [self._crd_removal(custom_kind(*kind), component) for kind in kinds]
            leases += component.lease_paths
        namespaces = dict.fromkeys(component.release.namespace for component in self.components)
        self.removals = [
            *filter(None, crds),
            *(
                Removal(_lease_label(path), send=functools.partial(self.client.delete, path))
                for path in leases
                if self.client.get(path) is not None
            ),
            *filter(None, map(self._namespace_removal, namespaces)),
            *_kept_on_vsphere(self.client),
        ]
        self.run_leases = [path for path in self._run_lease_paths() if self.client.get(path) is not None]

    def has_changes(self) -> bool:
        """Whether anything must be removed."""
        return super().has_changes() or bool(self.run_leases)

    def planned(self) -> list[str]:
        """Also contains the Leases of runs."""
        return [*super().planned(), *map(_lease_label, self.run_leases)]

    def preview(self) -> None:
        """Report the changes of a run that are known before Helm has run."""
        if self.has_changes():
            # A run itself creates, and later deletes, the Lease that prevents simultaneous runs.
            for path in dict.fromkeys((_lease_path(LEASE_NAME, self.lease_namespace), *self.run_leases)):
                self.result.add_removed(_lease_label(path))
        super().preview()

    def remove(self, lease: Lease) -> None:
        """Remove everything; raises WaitTimeout if an object is not deleted in time."""
        if self.waiting is not None:
            for component in self.components:
                if component.by_helm:
                    release = component.release
                    await_no_pods(
                        self.client, release.namespace, f"app.kubernetes.io/instance={release.name}", self.waiting
                    )
            # The pods may have written to nodes until they terminated.
            self.nodes = read_nodes(self.client)
        for node in self.nodes:
            # The resources are removed first, because the patch of the node removes the record of them.
            resources = self._residue(node).resources
            if resources:
                lease.check()
                body = {"status": {"capacity": dict.fromkeys(resources), "allocatable": dict.fromkeys(resources)}}
                self.client.patch(f"{NODES}/{node.name}/status", body)
        super().remove(lease)

    def finish(self) -> None:
        """Delete the Leases of runs, unless another run holds them."""
        for path in self._run_lease_paths():
            live = self.client.get(path)
            if live is None:
                continue
            holder = (live.get("spec") or {}).get("holderIdentity")
            if not holder and self._delete_as_read(path, live["metadata"]):
                self.result.add_removed(_lease_label(path))
            else:
                self.result.add_kept(_lease_label(path), f"another run, {holder or 'a new one'}, has acquired it")

    def node_edit(self, node: Node) -> NodeEdit | None:
        """The patch that removes the residue of the Helm releases."""
        edit = removal_edit(node, self._residue(node))
        return with_short_diff(edit) if edit else None

    def kept_on_node(self, node: Node) -> t.Iterator[str]:
        """Descriptions of foreign labels and of the operator's cordon."""
        return kept_parts(node, operator=self._removes_operator)

    @property
    def _removes_operator(self) -> bool:
        return self.components.operator.is_removed and not self.foreign_policies

    def _residue(self, node: Node) -> Residue:
        residue = operator_residue(node) if self._removes_operator else Residue()
        return residue | nfd_residue(node, self.nfd_instance) if self.components.nfd.is_removed else residue

    def _run_lease_paths(self) -> list[str]:
        """The paths of the Lease that prevents simultaneous runs, and of the Lease that records the cluster's name."""
        return [_lease_path(LEASE_NAME, name) for name in dict.fromkeys((self.lease_namespace, LEASE_NAMESPACE))]

    def _delete_as_read(self, path: str, metadata: Document) -> bool:
        """Delete an object unless it has changed since it was read; returns whether it was deleted."""
        preconditions = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        try:
            self.client.delete(path, body={"preconditions": preconditions})
        except ApiError as error:
            if not error.conflict:
                raise
            return False
        return True

    def _crd_removal(self, kind: Kind, component: ComponentRemoval) -> Removal | None:
        """The removal of a CRD; None if it does not exist. If keep_reason() applies, only the objects that belong to the component are deleted."""
        path = f"{CUSTOM_RESOURCE_DEFINITIONS}/{crd_name(kind)}"
        live = self.client.get(path)
        if live is None:
            return None
        label = f"CustomResourceDefinition {crd_name(kind)}"
        own: list[Document] = []
        foreign: list[Document] = []
        namespaces = {each.release.namespace for each in self.components if each.is_removed}
        for item in self.client.list_known(kind.collection(), metadata_only=True):
            (own if _is_own(kind.full_name, item, component, namespaces) else foreign).append(item)
        if kind.kind == "ClusterPolicy":
            self.foreign_policies = bool(foreign)
        if not is_marked(live):
            return Removal(label, action="", kept="this collection did not create it")
        reason = keep_reason(kind, live, foreign)
        if reason:
            return Removal(label, action="", kept=reason, send=functools.partial(self._delete_objects, kind, own))
        return Removal(
            label,
            send=functools.partial(self.client.delete, path),
            wait=functools.partial(
                await_gone,
                self.client,
                path,
                live["metadata"]["uid"],
                label,
                lambda dummy: "a finalizer keeps one of its objects.",
            ),
        )

    def _delete_objects(self, kind: Kind, objects: t.Iterable[Document]) -> None:
        for item in objects:
            self.client.delete(kind.path(item["metadata"]["name"], item["metadata"].get("namespace")))

    def _namespace_removal(self, name: str) -> Removal | None:
        components = [component for component in self.components if component.release.namespace == name]
        reasons = (item.namespace_kept_reason for item in components)
        departing = functools.partial(self._departing, name, components)
        return namespace_removal(self.client, name, departing, next(filter(None, reasons), ""))

    def _departing(self, namespace: str, components: t.Sequence[ComponentRemoval]) -> DepartingObjects:
        leases = {
            ("Lease.coordination.k8s.io", path.rpartition("/")[2]) for item in components for path in item.lease_paths
        }
        licensing = {
            (kind.kind.full_name, name_of(item)) for kind in OF_OPERATORS for item in kind.find(self.client, namespace)
        }
        releases = [item.release for item in components if item.by_helm]
        kept = self._named_license_objects
        if keeps_mig_configmap(self.client, namespace):
            kept |= {("ConfigMap", MIG_CONFIGMAP)}
        return DepartingObjects(
            releases=frozenset((release.name, release.namespace) for release in releases),
            contains=lambda kind, item: any(release.contains(kind, item) for release in releases),
            # In check mode, the previous stages have not deleted the objects of licensing and of the kinds in CREATED.
            objects=frozenset(leases | licensing),
            kept=kept,
            created=CREATED,
            by_olm=all(item.own_by_olm for item in components),
        )

    @functools.cached_property
    def _named_license_objects(self) -> frozenset[tuple[str, str]]:
        """The kinds and names of the Secrets and ConfigMaps that the stage before Helm keeps because a kept object refers to them."""
        policies = [
            item for item in self.client.list_known(CLUSTER_POLICIES) if not self.components.operator.removes(item)
        ]
        drivers = [item for item in self.client.list_known(NVIDIA_DRIVERS) if not DRIVERS.is_own(item)]
        return frozenset(named_license_objects(policies, drivers))


def _is_own(kind: str, item: Document, component: ComponentRemoval, namespaces: t.Collection[str]) -> bool:
    """Whether the object is removed with the component: its Helm release contains it, an agent in one of these namespaces of removed components wrote it, or
    the stage before Helm deletes it.

    In check mode, that stage has not deleted its objects yet. Of these objects, only drivers and policies count, because the user may have
    created objects of other kinds with the same annotation by means of kube_object.
    """
    is_deleted_before = DRIVERS.is_deleted(kind, item["metadata"]) or (
        kind == "ClusterPolicy.nvidia.com" and is_created(item)
    )
    is_of_agent = is_agent_feature(kind, item) and item["metadata"].get("namespace") in namespaces
    return is_deleted_before or component.release.contains(kind, item) or is_of_agent


def _kept_on_vsphere(client: Client) -> t.Iterator[Removal]:
    """The templates in vCenter that the collection's MachineSets use, and the entry that keeps OpenShift from replacing them. Nothing without MachineSets."""
    try:
        machine_sets = list(client.list_known(machine_sets_path(MACHINE_API_NAMESPACE)))
        configuration = client.get(MACHINE_CONFIGURATION_PATH) if machine_sets else None
    except ApiError as error:
        if not error.lacks_right:
            raise
        return
    for item in machine_sets:
        group, template = machine_set_owner(item, new=True), str(provider_spec_of(item).get("template") or "")
        # A template of the collection has the name of the node group, the release and a checksum; others belong to the installer or the user.
        if group and re.search(rf"(?:^|/){re.escape(group)}-[^/]+-[0-9a-f]{{6}}(?:-[0-9]+)?$", template):
            reason = f"MachineSet {name_of(item)} uses it; playbook delete_nodegroups deletes the node groups of a pool with their templates"
            yield Removal(f"template {one_line(template)} in vCenter", action="", kept=reason)
    if boot_images.has_own_entry(configuration):
        reason = "it keeps OpenShift from replacing the templates of this collection's MachineSets; without any, it has no effect"
        yield Removal(boot_images.OWN_ENTRY, action="", kept=reason)


def _lease_path(name: str, namespace: str) -> str:
    return object_path("coordination.k8s.io/v1", "Lease", name, namespace)


def _lease_label(path: str) -> str:
    parts = path.split("/")
    return f"Lease {parts[-3]}/{parts[-1]}"


# Implements the stage that removes the CronJob of the role new_nodes and everything that belongs to it.


@dataclass(kw_only=True)
class NewNodes(Stage):
    """Removes the CronJob first, then its namespace, and the permissions last."""

    def read(self) -> None:
        """Find all objects with the CronJob's name that have a mark of the collection, in any namespace. Those that it did not create are kept and named."""
        objects, permissions = (
            [(kind, item) for kind in kinds for item in kind.candidates(self.client) if is_marked(item)]
            for kinds in (NEW_NODES, NEW_NODES_PERMISSIONS)
        )
        names = [item["metadata"]["namespace"] for kind, item in objects if kind.is_own(item)]
        for kind, item in permissions:
            if kind.kind.kind == "ClusterRoleBinding" and kind.is_own(item):
                names += [subject.get("namespace") for subject in item.get("subjects") or ()]
        namespaces = [namespace_removal(self.client, name, _departing) for name in dict.fromkeys(names) if name]
        self.removals = [
            *(kind.remove(self.client, item, {}) for kind, item in objects),
            *filter(None, namespaces),
            *(kind.remove(self.client, item, {}) for kind, item in permissions),
        ]


def _departing() -> DepartingObjects:
    return DepartingObjects(created=NEW_NODES)
