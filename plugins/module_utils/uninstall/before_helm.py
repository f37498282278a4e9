# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first half of an uninstallation, while the operator still works: nodes, ClusterPolicies, ConfigMaps, in this order.

A label that names an entry goes before the ConfigMap that has it, and nothing mounts that ConfigMap any more when it goes: so
no pod crashes on the way, and none hangs. NVIDIA's pods go with their ClusterPolicy, before the operator does.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..catalog.names import MIG_CONFIG_LABEL
from ..cluster_state.node import Node
from ..cluster_state.ownership import NodeEdit
from ..common.progress import Progress
from ..kube.client import Client
from ..kube.errors import ApiError
from ..kube.lease import Lease
from ..kube.objects import NOT_CHECKED
from ..kube.paths import CLUSTER_POLICIES
from . import ownership_marks
from .cluster_policy import PolicyRestoration, restore_policy
from .configmaps import (
    CONFIGMAPS,
    clear_configmap,
    clear_pod,
    note_configmap,
    note_pods,
    our_configmaps,
    our_pods,
    with_our_entries,
)
from .mig_reset import MigManagers, await_whole_gpus
from .node_cleanup import MIG_OFF, NodeRestoration, managed_parts, restore, staying
from .node_patches import patch_nodes, preview_nodes, read_nodes
from .operands import OperandWait, await_operands
from .result import UninstallResult

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]

_MIG_MANAGER = "nvidia.com/gpu.deploy.mig-manager"
_TOLERATIONS = "spec.daemonsets.tolerations"
# The operator writes its policy's status whenever it looks at it, and each time there is a new resourceVersion.
_CONFLICTS = 8


@dataclass(frozen=True)
class BeforeHelmSettings:
    """What the user says, and what the caller knows.

    That is whose release an object is, how many drivers would roll, and how the MIG managers of some nodes are restarted: a namespace,
    the nodes, and the lease under which that is done.
    """

    namespace: str
    is_ours: t.Callable[[Document], bool]
    driver_nodes: t.Callable[[t.Iterable[Document]], int]
    restart_mig_managers: t.Callable[[str, t.Sequence[Node], Lease], None]
    allow_driver_rollout: bool
    undo_mig: bool
    progress: Progress
    # None: do not wait.
    waiting: OperandWait | None


@dataclass
class ManagedObjects:
    """One reading of the cluster. `others` are policies that stay, by name; `rolls` the drivers that hold one back."""

    nodes: list[Node]
    policies: list[Object]
    configmaps: list[Object]
    pods: list[Object]
    others: dict[str, PolicyRestoration] = field(default_factory=dict)
    rolls: dict[str, int] = field(default_factory=dict)


class BeforeHelm:
    """One cluster; the account says what was done so far."""

    def __init__(self, client: Client, settings: BeforeHelmSettings) -> None:
        """Send nothing yet."""
        self._client = client
        self._settings = settings
        self.account = UninstallResult()

    def read(self) -> ManagedObjects:
        """The nodes, the ClusterPolicies, ConfigMaps with entries of ours, and pods that we have made or touched."""
        policies = list(self._client.list_known(CLUSTER_POLICIES))
        named = [(self._place(policy), _named(policy)) for policy in policies if not self._settings.is_ours(policy)]
        found = ManagedObjects(
            nodes=read_nodes(self._client),
            policies=policies,
            configmaps=our_configmaps(self._client) + with_our_entries(self._client, named),
            pods=our_pods(self._client),
        )
        for policy in found.policies:
            if not self._settings.is_ours(policy):
                self._compare(policy, found)
        return found

    def changed(self, found: ManagedObjects) -> bool:
        """Whether there is anything to send."""
        return bool(
            found.configmaps
            or found.pods
            or any(self._settings.is_ours(policy) or self._open(policy, found) for policy in found.policies)
            or any(returned.edit or returned.cut for returned in self._returns(found))
        )

    def preview(self, found: ManagedObjects) -> None:
        """Note what a run would do, and let the server judge it as far as it can."""
        try:
            preview_nodes(self._client, found.nodes, self._compared(found), self.account)
            for policy in found.policies:
                if self._settings.is_ours(policy):
                    self._client.delete(_path(policy), dry_run=True)
                else:
                    self._patched(policy, lambda live: self._withdrawn(live, found), dry_run=True)
        except ApiError as error:
            if not error.forbidden:
                raise
            self.account.unchecked = NOT_CHECKED
        self._note_second_patches(found)
        self.note_staying(found)
        self._note_policies(found)
        for configmap in found.configmaps:
            note_configmap(configmap, self.account)
        note_pods(found.pods, self.account)

    def clear(self, found: ManagedObjects, lease: Lease) -> None:
        """All of it; raises TimeoutStory when the agents do not follow, SomeFailed when nodes cannot be changed."""
        self.note_staying(found)
        self._clear_nodes(found, lease)
        self._clear_policies(found, lease)
        for configmap in found.configmaps:
            lease.check()
            clear_configmap(self._client, configmap)
            note_configmap(configmap, self.account)
        for pod in found.pods:
            lease.check()
            clear_pod(self._client, pod)
        note_pods(found.pods, self.account)

    def note_staying(self, found: ManagedObjects) -> None:
        """What of others, or of ours that cannot go, stays on the nodes."""
        for node in found.nodes:
            for what in staying(node, operator=False):
                self.account.stays_on(node.name, what)
            cut = MIG_CONFIG_LABEL in managed_parts(node).labels and node.labels.get(MIG_CONFIG_LABEL) not in (
                None,
                MIG_OFF,
            )
            if cut and not self._can_undo(node, found):
                self.account.stays_on(
                    node.name, "GPUs cut into MIG devices, since no MIG manager was to make them whole"
                )

    def _clear_nodes(self, found: ManagedObjects, lease: Lease) -> None:
        progress, waiting = self._settings.progress, self._settings.waiting
        patch_nodes(self._client, found.nodes, self._compared(found), lease, progress, self.account)
        cut = [node.name for node in found.nodes if self._returned(node, found).cut]
        if cut and waiting is not None:
            place = self._place(found.policies[0])
            managers = MigManagers(place, lambda nodes: self._settings.restart_mig_managers(place, nodes, lease))
            nodes = await_whole_gpus(self._client, cut, managers, waiting)
            patch_nodes(self._client, nodes, self._compared(found), lease, progress, self.account)

    def _clear_policies(self, found: ManagedObjects, lease: Lease) -> None:
        for policy in found.policies:
            lease.check()
            if self._settings.is_ours(policy):
                self._client.delete(_path(policy), body={"preconditions": {"uid": policy["metadata"]["uid"]}})
            else:
                self._withdraw(policy, found)
        self._note_policies(found)
        if self._settings.waiting is not None and found.policies:
            gone = {policy["metadata"]["uid"] for policy in found.policies if self._settings.is_ours(policy)}
            places = {self._place(policy) for policy in found.policies}
            await_operands(self._client, places, gone, CONFIGMAPS, self._settings.waiting)

    def _withdraw(self, policy: Object, found: ManagedObjects) -> None:
        live = self._patched(policy, lambda live: self._withdrawn(live, found))
        # What the patch has left counts as written by us: our name is taken off it, unless something of ours stays.
        if live is not None and not self._held(policy, found):
            self._patched(live, ownership_marks.unmarked)

    def _withdrawn(self, live: Document, found: ManagedObjects) -> Object | None:
        return restore_policy(live, hold_driver=self._held(live, found)).patch

    def _patched(
        self, live: Object, patch_of: t.Callable[[Object], Object | None], *, dry_run: bool = False
    ) -> Object | None:
        """The policy with the patch, None when it is gone; compared anew where the operator writes it meanwhile."""
        for attempt in range(_CONFLICTS):
            patch = patch_of(live)
            if patch is None:
                return live
            try:
                return self._client.patch(_path(live), patch, dry_run=dry_run)
            except ApiError as error:
                if not error.conflict or attempt == _CONFLICTS - 1:
                    raise
            again = self._client.get(_path(live))
            if again is None:
                return None
            live = again
        return live

    def _note_policies(self, found: ManagedObjects) -> None:
        for policy in found.policies:
            label = f"ClusterPolicy {policy['metadata']['name']}"
            if self._settings.is_ours(policy):
                self.account.took(label)
                continue
            change = self._of(policy, found)
            self.account.keeps(label, "this collection did not install it")
            if self._open(policy, found):
                notes = ownership_marks.annotations_of(policy)
                before = {
                    **change.before,
                    **({"annotations": notes} if notes and not self._held(policy, found) else {}),
                }
                self.account.took(label, before, change.after, "our fields taken out")
            if self._held(policy, found):
                self.account.held_back.append(_TOLERATIONS)
                self.account.keeps(
                    f"{_TOLERATIONS} of {label}",
                    f"without our entries the driver would roll on {self._rolls(policy, found)} nodes, and evict their GPU "
                    "pods (allow_driver_rollout)",
                )

    def _compare(self, policy: Document, found: ManagedObjects) -> None:
        name = policy["metadata"]["name"]
        change = restore_policy(policy)
        if change.reaches_driver:
            daemonsets = self._client.list(f"/apis/apps/v1/namespaces/{self._place(policy)}/daemonsets")
            found.rolls[name] = self._settings.driver_nodes(daemonsets)
            if found.rolls[name] and not self._settings.allow_driver_rollout:
                change = restore_policy(policy, hold_driver=True)
        found.others[name] = change

    def _of(self, policy: Document, found: ManagedObjects) -> PolicyRestoration:
        return found.others[policy["metadata"]["name"]]

    def _rolls(self, policy: Document, found: ManagedObjects) -> int:
        return found.rolls.get(policy["metadata"]["name"], 0)

    def _held(self, policy: Document, found: ManagedObjects) -> bool:
        """Whether something of ours stays in the policy, since the driver would roll without it."""
        return bool(self._rolls(policy, found)) and not self._settings.allow_driver_rollout

    def _open(self, policy: Document, found: ManagedObjects) -> bool:
        """Whether something of ours in somebody else's policy is to go now."""
        return self._of(policy, found).patch is not None or (
            ownership_marks.is_marked(policy) and not self._held(policy, found)
        )

    def _place(self, policy: Document) -> str:
        """The namespace of the policy's operator."""
        return str((policy.get("status") or {}).get("namespace") or self._settings.namespace)

    def _can_undo(self, node: Node, found: ManagedObjects) -> bool:
        """Whether there is a MIG manager on the node that can make its GPUs whole."""
        at_work = bool(found.policies) and node.ready and node.labels.get(_MIG_MANAGER) == "true"
        return self._settings.undo_mig and at_work

    def _compared(self, found: ManagedObjects) -> t.Callable[[Node], NodeEdit | None]:
        return lambda node: self._returned(node, found).edit

    def _returned(self, node: Node, found: ManagedObjects) -> NodeRestoration:
        return restore(node, undo_mig=self._can_undo(node, found))

    def _returns(self, found: ManagedObjects) -> t.Iterator[NodeRestoration]:
        return (self._returned(node, found) for node in found.nodes)

    def _note_second_patches(self, found: ManagedObjects) -> None:
        """What nodes give back once their GPUs are whole."""
        for node in found.nodes:
            last = restore(node, undo_mig=False).edit if self._returned(node, found).cut else None
            if last is not None:
                self.account.node(last)


def _named(policy: Document) -> str:
    """The device plugin's ConfigMap that a policy names."""
    config = ((policy.get("spec") or {}).get("devicePlugin") or {}).get("config") or {}
    return str(config.get("name") or "")


def _path(policy: Document) -> str:
    return f"{CLUSTER_POLICIES}/{policy['metadata']['name']}"
