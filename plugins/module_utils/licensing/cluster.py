# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the nodes that need a license in a cluster, their driver pods, and the objects that contain the token."""

from __future__ import annotations

import functools
import typing as t

from ..catalog.names import LICENSE_CONFIG_KEY, LICENSE_TOKEN_KEY, LIVE_PODS
from ..cluster_state.cluster_policy import uses_driver_objects
from ..cluster_state.cordon import driver_pod_to_restart
from ..cluster_state.node import Node, parse_node
from ..cluster_state.nvidia_driver import driver_of_nodes, is_managed
from ..cluster_state.pool_assignment import assign_pools
from ..cluster_state.pool_edit import recorded_rollout
from ..common.errors import InvalidOptions
from ..common.parallel import run_bounded
from ..kube.errors import ApiError
from ..kube.paths import NODES, NVIDIA_DRIVERS, collection_path, object_path
from ..schema.messages import abbreviate, abbreviate_nodes
from .connectivity import servers_of
from .container import LicenseContainers
from .content import LicenseFiles, read_files, token_of
from .diagnosis import LicenseObject, PredictedFiles
from .driver_pods import (
    CONFIG_PATH,
    DRIVER_POD_SELECTOR,
    TOKEN_PATH,
    LicenseNode,
    license_nodes,
    parse_driver_pods,
)
from .gridd_conf import profile_class
from .node_reads import PARALLEL, concerns_all
from .option_names import NODE_NAMES_OPTION
from .targets import (
    NO_OBJECT,
    NO_OPERATOR,
    LicenseTarget,
    declared_targets,
    declared_vgpu_types,
    declares_vgpu,
    mounted_targets,
    target_of_driver,
    target_of_pool,
)
from .token import LicenseService

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from ..pools.membership import Membership
    from ..pools.plan import Plan, RolloutPlan
    from .objects import LicenseObjectChange
    from .status import LicenseStatus

Object = dict[str, t.Any]


class LicenseCluster:
    """The licensing state of one cluster. Each list is read at most once."""

    def __init__(self, client: Client, plan: Plan, policy: Object | None) -> None:
        """`plan` is adapted to the operator's namespace; `policy` is the active ClusterPolicy."""
        self._client = client
        self._plan = plan
        self.policy = policy
        self.namespace = plan.operator.namespace

    @functools.cached_property
    def drivers(self) -> list[Object]:
        """The NVIDIADriver objects if they describe the driver; otherwise empty."""
        spec = (self.policy or {}).get("spec") or {}
        return list(self._client.list_known(NVIDIA_DRIVERS)) if uses_driver_objects(spec) else []

    @functools.cached_property
    def nodes(self) -> list[Node]:
        """All nodes."""
        return [parse_node(node) for node in self._client.list(NODES)]

    @functools.cached_property
    def membership(self) -> Membership:
        """The nodes of each pool."""
        return assign_pools(self._plan.pools, self.nodes)

    def license_nodes(self) -> list[LicenseNode]:
        """The nodes that need a license, with their current driver pods."""
        path = collection_path("v1", "Pod", self.namespace)
        pods = parse_driver_pods(self._client.list(path, label_selector=DRIVER_POD_SELECTOR, field_selector=LIVE_PODS))
        return license_nodes(self._plan, self.nodes, self.membership, pods)

    def selected_nodes(self, names: t.Collection[str]) -> list[LicenseNode]:
        """The license nodes with these names, or all license nodes if `names` is empty. Raises InvalidOptions if a name is not that of a license node."""
        nodes = self.license_nodes()
        if unknown := sorted(set(names) - {node.name for node in nodes}):
            raise InvalidOptions([f"{NODE_NAMES_OPTION}: {abbreviate(unknown)} is not a vGPU node of this cluster"])
        return [node for node in nodes if not names or node.name in names]

    def unfinished_restarts(self) -> dict[str, str]:
        """The driver pods whose restart a run has begun but not completed, by node."""
        return {node.name: pod for node in self.nodes if (pod := driver_pod_to_restart(node)) is not None}

    def rollouts(self) -> dict[str, RolloutPlan]:
        """The drain settings of each node: those of its pool or, if the node is not in a pool, those that are recorded on the node."""
        of_pools = {pool.name: pool.rollout for pool in self._plan.pools}
        declared = {name: of_pools[pool] for pool, names in self.membership.by_pool.items() for name in names}
        return {node.name: declared.get(node.name) or recorded_rollout(node) for node in self.nodes}

    @functools.cached_property
    def has_vgpu(self) -> bool:
        """Whether the cluster has nodes that need a license, or will have such nodes later."""
        return declares_vgpu(self._plan, self.policy, self.drivers) or bool(self._vgpu_nodes)

    @functools.cached_property
    def _vgpu_nodes(self) -> list[LicenseNode]:
        return license_nodes(self._plan, self.nodes, self.membership, {})

    def classes(self, target: LicenseTarget, *, ask_drivers: bool = False) -> set[str]:
        """The classes of the vGPU types on the nodes whose driver pods mount the object, from labels and from the pools' variables. With `ask_drivers`,
        also from `nvidia-smi -q` on the nodes whose labels do not show their class.
        """
        nodes = [node for node in self._vgpu_nodes if self._may_mount(node, target)]
        kinds = {profile_class(node.vgpu_type) for node in nodes}
        kinds |= {profile_class(text) for text in declared_vgpu_types(self._plan, target.pools)}
        if ask_drivers and (unknown := {node.name for node in nodes if profile_class(node.vgpu_type) is None}):
            kinds |= {
                profile_class(status.vgpu_type)
                for status in self._statuses([node for node in self.license_nodes() if node.name in unknown])
            }
        return {kind for kind in kinds if kind}

    def _statuses(self, nodes: t.Iterable[LicenseNode]) -> list[LicenseStatus]:
        """The license states that drivers report; those that cannot be read are left out."""
        containers = LicenseContainers(self._client)
        calls = [(node.name, functools.partial(containers.status, pod)) for node in nodes if (pod := node.running_pod)]
        outcomes = run_bounded(calls, PARALLEL, fatal=concerns_all)
        return [outcome.value for outcome in outcomes if outcome.value is not None]

    def _may_mount(self, node: LicenseNode, target: LicenseTarget) -> bool:
        if target.pools:
            return node.pool in target.pools
        if not self.drivers:
            return True
        mounted = self._mounted_on(node)
        return mounted is not None and mounted.is_same_object(target)

    @functools.cached_property
    def _drivers_of_nodes(self) -> dict[str, list[Object]]:
        """The NVIDIADrivers that select each node."""
        if not self.drivers:
            return {}
        by_name = {item["metadata"]["name"]: item for item in self.drivers}
        names = driver_of_nodes(self.drivers, [(node.name, node.labels) for node in self.nodes])
        return {node: [by_name[name] for name in selecting] for node, selecting in names.items()}

    def _mounted_on(self, node: LicenseNode) -> LicenseTarget | None:
        """The object that the driver pod of a node mounts. If exactly one NVIDIADriver selects the node, this is the object that the NVIDIADriver refers to;
        otherwise, it is the pool's object or the only object.
        """
        drivers = self._drivers_of_nodes.get(node.name, ())
        if len(drivers) != 1:
            return target_of_pool(self.mounted, node.pool)
        own = target_of_driver(drivers[0])
        return next((each for each in self.mounted if own is not None and each.is_same_object(own)), None)

    def nodes_without_token(self) -> dict[str, list[str]]:
        """The nodes whose NVIDIADriver does not determine an object, by reason. A managed NVIDIADriver may lack the object's name, which is set once the
        object exists.
        """
        reasons: dict[str, list[str]] = {}
        for node in self._vgpu_nodes:
            drivers = self._drivers_of_nodes.get(node.name, ())
            if len(drivers) > 1:
                reasons.setdefault("several NVIDIADrivers select the same node", []).append(node.name)
            elif drivers and target_of_driver(drivers[0]) is None and not is_managed(drivers[0]):
                reasons.setdefault("the NVIDIADriver that selects the node does not name one", []).append(node.name)
        return reasons

    @functools.cached_property
    def mounted(self) -> list[LicenseTarget]:
        """The objects that NVIDIADrivers and the ClusterPolicy refer to."""
        return mounted_targets(self.policy, self.drivers)

    @property
    def no_object_text(self) -> str:
        """Why no driver pod mounts an object, as sentences with the remedy."""
        return NO_OBJECT if self.policy is not None else NO_OPERATOR

    @functools.cached_property
    def expected(self) -> dict[LicenseTarget, LicenseObject]:
        """The content of each mounted object; the content of a Secret is unknown if the user is not allowed to read it."""
        return {target: self._expected(target) for target in self.mounted}

    def expected_of(self, node: LicenseNode) -> LicenseObject | None:
        """The files that a node should use; None if no object is mounted there."""
        target = self._mounted_on(node)
        return self.expected[target] if target is not None else None

    def expect(self, changes: t.Iterable[LicenseObjectChange]) -> list[LicenseNode]:
        """Expect the desired files of these changes, before they are written; returns the license nodes whose driver pods mount these objects."""
        desired = {(change.target.kind, change.target.name): change.desired for change in changes}
        mounted = {target: desired.get((target.kind, target.name)) for target in self.mounted}
        self.expected = {
            target: LicenseObject(target, self.namespace, files.files, files.token)
            if files is not None
            else self.expected[target]
            for target, files in mounted.items()
        }
        return [
            node
            for node in self.license_nodes()
            if (target := self._mounted_on(node)) is not None and mounted[target] is not None
        ]

    def mount_problem(self, nodes: t.Iterable[LicenseNode], target: LicenseTarget, digests: t.Mapping[str, str]) -> str:
        """A sentence that lists the nodes of the target's pools whose driver pods mount a different object with different files; empty if there are none."""
        names = [
            node.name
            for node in nodes
            if node.pod is not None and node.pool in target.pools and self._has_other_files(node, target, digests)
        ]
        if not names:
            return ""
        return (
            f"The driver pods on {abbreviate_nodes(names)} do not mount {target.label(self.namespace)}. They will mount it after the playbook site has added "
            "it to the NVIDIADriver of the pool."
        )

    def _has_other_files(self, node: LicenseNode, target: LicenseTarget, digests: t.Mapping[str, str]) -> bool:
        expected = self.expected_of(node)
        if expected is None or expected.target.is_same_object(target):
            return False
        return not expected.readable or expected.files.digests() != digests

    def mount_problems(self, nodes: t.Sequence[LicenseNode]) -> list[str]:
        """The non-empty sentences that mount_problem() returns for the Secrets that pools declare."""
        texts = []
        for target in declared_targets(self._plan):
            known = next((each for each in self.expected.values() if each.target.is_same_object(target)), None)
            files = (known or self._expected(target)).files
            texts.append(self.mount_problem(nodes, target, files.digests()))
        return [text for text in texts if text]

    def predict(self, provided: t.Mapping[str, t.Any]) -> None:
        """In check mode, expect the files that the module `license` would write; `provided` is the result of that module."""
        by_identity = {(item["kind"], item["name"]): item for item in provided["objects"]}
        if provided["policy"] and not provided["held_back"]:
            self.mounted = [LicenseTarget(kind, name) for kind, name in by_identity]
        self.expected = {
            target: self._predicted(target, by_identity[target.kind, target.name])
            if (target.kind, target.name) in by_identity
            else self.expected[target]
            for target in self.mounted
        }

    def _predicted(self, target: LicenseTarget, item: t.Mapping[str, t.Any]) -> LicenseObject:
        paths = {LICENSE_TOKEN_KEY: TOKEN_PATH, LICENSE_CONFIG_KEY: CONFIG_PATH}
        fingerprints = {paths[key]: digest for key, digest in item["digests"].items()}
        servers = servers_of(LicenseService(**service) for service in item["services"])
        predicted = PredictedFiles(fingerprints, servers, item["proxy"], item["feature_type"])
        return LicenseObject(target, self.namespace, LicenseFiles(), predicted=predicted)

    def _expected(self, target: LicenseTarget) -> LicenseObject:
        try:
            live = self.read(target)
        except ApiError as error:
            if not error.forbidden:
                raise
            return LicenseObject(target, self.namespace, LicenseFiles(), readable=False)
        try:
            files = read_files(target, live, self.namespace)
        except InvalidOptions:
            files = LicenseFiles()
        return LicenseObject(target, self.namespace, files, token_of(files))

    def read(self, target: LicenseTarget) -> Object | None:
        """The object; None if it does not exist."""
        return self._client.get(object_path("v1", target.kind, target.name, self.namespace))
