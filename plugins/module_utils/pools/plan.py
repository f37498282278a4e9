# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan: all values that are derived from the variables, and their format for YAML (`gpu_plan`)."""

from __future__ import annotations

import dataclasses
import typing as t

from ..catalog.taints import taint_identity
from ..schema.matching import Match
from ..schema.operand_labels import reason_without_containers
from ..schema.rollout import NONE
from ..sharing_modes.sharing import Sharing
from .drain_options import DrainOptions, DrainSettings
from .metadata import NodeMetadata

Toleration = dict[str, str]
Taint = dict[str, str]


@dataclasses.dataclass(frozen=True)
class CloudPlan:
    """The cloud that creates nodes of the cluster, and the cluster's name in the cloud; `options` contains the connection options of its modules.

    The cluster is created from `template`, which is None if it already exists. `nodegroup_label` is the node label with the name of the node group, or empty.
    `module` is the module for its node groups. `issues_kubeconfig`: whether another of its modules fetches the cluster's kubeconfig.
    `lists_undeclared_groups`: whether a deletion includes groups that a pool no longer declares.
    """

    provider: str
    cluster: str
    template: str | None
    nodegroup_label: str
    options: dict[str, str]
    module: str
    issues_kubeconfig: bool
    lists_undeclared_groups: bool


@dataclasses.dataclass(frozen=True)
class ClusterPlan:
    """The cluster; `cloud` is None if no nodes are created.

    `distribution` is the declared distribution, or None if it is detected; `distribution_values` contains the operator's values that are derived from it.
    `known_issues` contains the issues that the user declares.
    """

    name: str
    kubeconfig: str | None
    cloud: CloudPlan | None
    distribution: str | None = None
    distribution_values: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    known_issues: tuple[dict[str, t.Any], ...] = ()


@dataclasses.dataclass(frozen=True)
class ComponentPlan:
    """One component (operator, NFD): a Helm release with its static values, or an OLM operator; `chart_repo` is empty unless `chart` is a bare name.

    The settings of Helm (schema/helm.py) have the names of their variables, except `name`. The tasks that call Helm get the whole plan.
    `olm` is None if Helm installs the component; otherwise it has all keys of olm_fields() in schema/olm.py, and the key `resource`, the name of the custom
    resource in the examples of the operator (empty if the package is unknown).

    `named`: whether the variables set the release's name or namespace, or the Subscription, so that it is managed even if another tool has installed it.
    With the installer olm, `values` contains fields of the custom resource's spec, and an empty `version` selects the one that the channel offers.
    `image_pull_secrets` contains the names of Secrets in the namespace, with which the component's pods and the pools' driver pods pull images.
    """

    name: str
    namespace: str
    named: bool
    namespace_labels: dict[str, str]
    chart: str
    chart_repo: str
    version: str
    values: dict[str, t.Any]
    image_pull_secrets: tuple[str, ...] = ()
    installer: str = "helm"
    olm: dict[str, t.Any] | None = None
    # The installed version that OLM replaces; empty if OLM does not replace it, or if Helm installs the component.
    installed: str = dataclasses.field(default="", metadata={"exported": False})


@dataclasses.dataclass(frozen=True)
class PolicyPlan:
    """The settings of the pools in the ClusterPolicy: fields in `spec`, and managed entries of the list daemonsets.tolerations.

    `mig_by_node`: whether mig.strategy must be absent, because it would override each node's configuration. The only exception is a strategy that
    all pools declare that depend on it (`mig_strategies`). `kept_tolerations` contains tolerations that no pool needs, for taints that a GPU node still has.
    """

    spec: dict[str, t.Any]
    tolerations: tuple[Toleration, ...]
    mig_by_node: bool
    kept_tolerations: tuple[Toleration, ...] = dataclasses.field(default=(), metadata={"exported": False})
    mig_strategies: frozenset[str] = dataclasses.field(default=frozenset(), metadata={"exported": False})


@dataclasses.dataclass(frozen=True)
class ConfigPlan:
    """The device plugin's ConfigMap; `data` maps an entry's name (node label value) to its YAML text."""

    name: str
    namespace: str
    data: dict[str, str]


@dataclasses.dataclass(frozen=True)
class MigPlan:
    """The MIG manager's ConfigMap: `entries` (name to content) of the pools, and the `default_entries` of NVIDIA's ConfigMap."""

    name: str
    namespace: str
    entries: dict[str, t.Any]
    default_entries: dict[str, t.Any]

    @property
    def needed(self) -> bool:
        """Whether any pool's GPUs are partitioned, even if its demand is not allocated to nodes yet."""
        return bool(self.default_entries)


@dataclasses.dataclass(frozen=True)
class ValidationPlan:
    """The keys of gpu_cluster.validation, the Secrets with which the images are pulled, and the ConfigMap with the results of the validation pods.

    To add a key, add a field with a default; programs find it in their options. `images`: the images by their key in gpu_cluster.validation and by CUDA
    version; the newest version that a node's driver supports is used.
    """

    images: t.Mapping[str, t.Mapping[str, str]]
    image_pull_secrets: tuple[str, ...]
    namespace: str
    configmap: str


@dataclasses.dataclass(frozen=True)
class Registration:
    """The labels and taints that the node group sets when nodes register, so that a new node needs no run."""

    node_labels: dict[str, str]
    taints: tuple[Taint, ...]


@dataclasses.dataclass(frozen=True)
class AutoscalerPlan:
    """The declared fields in the spec of OpenShift's ClusterAutoscaler, and the namespace of the MachineSets that it scales."""

    namespace: str
    spec: dict[str, t.Any]


def _size(count: int, low: int | None, high: int | None) -> str:
    """A number of nodes for messages, or the range of an autoscaler, with the initial number if it is not the minimum."""
    if high is not None:
        return f"{low} to {high} nodes" + (f", {count} at first" if count != low else "")
    return f"{count} node{'' if count == 1 else 's'}"


@dataclasses.dataclass(frozen=True)
class NodeGroupMember:
    """One of a pool's node groups in the cloud: the only one, or the one in a zone, with its part of the nodes and of the autoscaler's range."""

    name: str
    zone: str | None
    node_count: int
    min_node_count: int | None
    max_node_count: int | None

    @property
    def size(self) -> str:
        """The number of nodes for messages."""
        return _size(self.node_count, self.min_node_count, self.max_node_count)


@dataclasses.dataclass(frozen=True)
class NodeGroupPlan:
    """The node group that creates a pool's nodes; `node_count` is its size, or its initial size if an autoscaler scales it between the bounds.

    `group_label` is the node label with the name of the node group, or empty. `flavor` is the flavor, or the setting that replaces it.
    `settings` are the provider's other fields. A pool in several `zones` has one node group in each (see `members`).
    `flavor_gpus` is the number of GPUs of a node, or None if the flavor's name does not show it. `priority` is for the autoscaler's expander Priority.
    """

    name: str
    group_label: str
    flavor: str
    node_count: int
    min_node_count: int | None
    max_node_count: int | None
    settings: dict[str, t.Any]
    zones: tuple[str, ...] = ()
    members: tuple[NodeGroupMember, ...] = ()
    flavor_gpus: int | None = None
    priority: int | None = None

    @property
    def autoscaled(self) -> bool:
        """Whether an autoscaler sets the number of nodes."""
        return self.max_node_count is not None

    @property
    def may_be_empty(self) -> bool:
        """Whether the node group may have no node, for example because an autoscaler scales it from zero."""
        return (self.min_node_count if self.autoscaled else self.node_count) == 0

    @property
    def size(self) -> str:
        """The number of nodes for messages."""
        return _size(self.node_count, self.min_node_count, self.max_node_count)


@dataclasses.dataclass(frozen=True)
class RebootPlan:
    """The user's command that reboots a node: a program with its arguments, where {node} stands for the node's name; `timeout` is in seconds."""

    command: tuple[str, ...]
    timeout: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class RolloutPlan(DrainSettings):
    """The settings for rolling out a change to the nodes of a pool; docs/rollout.md describes each value.

    `max_unavailable` and `limit` are numbers of nodes or percentages ("25%"); None means no limit. `drain` is NONE, GPU_PODS or ALL (schema.rollout).
    """

    max_unavailable: int | str
    drain: str
    order: str
    pause_on_failure: bool
    on_failure: str
    reboot: RebootPlan | None
    limit: int | str | None = None

    @property
    def drain_options(self) -> DrainOptions:
        """The options of a drain with these settings."""
        settings = {field.name: getattr(self, field.name) for field in dataclasses.fields(DrainSettings)}
        return DrainOptions(evict=self.drain != NONE, **settings)

    def max_parallel(self, nodes: int) -> int:
        """The number of nodes of a pool of this size that may be changed at the same time; at least one."""
        return node_count_of(self.max_unavailable, nodes)

    def max_nodes(self, nodes: int) -> int:
        """The number of nodes that one run changes."""
        return nodes if self.limit is None else node_count_of(self.limit, nodes)


def rollout_plan(complete: t.Mapping[str, t.Any]) -> RolloutPlan:
    """The settings of a valid `rollout` with all defaults."""
    reboot = complete["reboot"]
    command = RebootPlan(tuple(reboot["command"]), reboot["timeout"]) if reboot["command"] else None
    return RolloutPlan(**{**complete, "reboot": command})


def node_count_of(amount: int | str, total: int) -> int:
    """A number, or a percentage of `total`, rounded up as in Kubernetes for a DaemonSet's maxUnavailable; at least 1."""
    if isinstance(amount, int):
        return max(1, amount)
    return max(1, -(-total * int(amount.rstrip("%")) // 100))


# The metadata of a field that copies the key of gpu_pools with the same name; the field is None if the key has neither a value nor a default.
_KEY = {"is_key": True}
# The same for a key that gpu_info also returns, so that the report can show it.
_REPORTED_KEY = {"is_key": True, "reported": True}


@dataclasses.dataclass(frozen=True)
class PoolPlan:
    """One pool with every value that its nodes, quotas, reports and validation pods need.

    A new key of gpu_pools that is used unchanged needs only a field with the metadata `_KEY` or `_REPORTED_KEY`.

    `resource` is the main resource that the pool offers, and `resources` contains all of them; `shares_per_gpu` is None if the GPUs of one node have
    different layouts. `mig_key` and `mig_entry` are empty unless all nodes have the same layout. `quota_keys` are keys of a ResourceQuota.
    `accelerator` is the kind of GPU for the cluster autoscaler, None if the model is not declared. `registration` is for the node group or
    MachineSet that creates nodes of the pool; `nodegroup` is the node group if a run creates it. `model` is a catalog key, None if no model is
    declared or it is not in the catalog. `by_node` has the pool's values for single nodes (see for_node()).
    """

    name: str = dataclasses.field(metadata=_KEY)
    match: Match
    model: str | None
    nodegroup: NodeGroupPlan | None
    labels: dict[str, str] = dataclasses.field(metadata=_KEY)
    taints: tuple[Taint, ...]
    tolerations: tuple[Toleration, ...]
    sharing: Sharing
    gpus_per_node: int | None = dataclasses.field(metadata=_REPORTED_KEY)
    resource: str
    resources: tuple[str, ...]
    quota_keys: tuple[str, ...]
    accelerator: str | None
    shares_per_gpu: int | None
    config_key: str
    mig_key: str
    mig_entry: list[dict[str, t.Any]]
    memory_mib_per_share: int | None
    node_labels: dict[str, str]
    registration: Registration
    rollout: RolloutPlan
    # The declared driver, with the keys of `driver`; None if the pool declares no driver.
    driver: dict[str, t.Any] | None = dataclasses.field(default=None, metadata=_REPORTED_KEY)
    # Whether the pool or gpu_defaults sets sharing.mode; otherwise, sharing is not removed from nodes.
    declares_sharing: bool = dataclasses.field(default=True, metadata={"exported": False})
    by_node: t.Mapping[str, PoolPlan] = dataclasses.field(default_factory=dict, metadata={"exported": False})

    @property
    def reason_without_containers(self) -> str:
        """The reason why the pool's labels keep its nodes from offering GPUs to containers; empty if they do not."""
        return reason_without_containers(self.labels)

    @property
    def metadata(self) -> NodeMetadata:
        """Everything that the pool sets on its nodes."""
        return NodeMetadata(
            labels=self.node_labels, taints={":".join(taint_identity(taint)): taint for taint in self.taints}
        )

    def for_node(self, node: str) -> PoolPlan:
        """The pool's values for one node; with a demand, each node has its own layout."""
        return self.by_node.get(node, self)

    @property
    def mode(self) -> str:
        """The sharing mode's name."""
        return self.sharing.mode


POOL_KEYS = tuple(each.name for each in dataclasses.fields(PoolPlan) if each.metadata.get("is_key"))
REPORTED_POOL_KEYS = tuple(each.name for each in dataclasses.fields(PoolPlan) if each.metadata.get("reported"))


@dataclasses.dataclass(frozen=True)
class Provides:
    """The namespaces and API kinds that this run creates on an empty cluster."""

    namespaces: tuple[str, ...]
    kinds: tuple[dict[str, str], ...]


@dataclasses.dataclass(frozen=True)
class Plan:
    """All values that are derived from the variables of one cluster; `autoscaler` is None unless its node groups are MachineSets."""

    cluster: ClusterPlan
    operator: ComponentPlan
    nfd: ComponentPlan
    policy: PolicyPlan
    config: ConfigPlan
    mig: MigPlan
    validation: ValidationPlan
    pools: tuple[PoolPlan, ...]
    nodegroups: tuple[dict[str, t.Any], ...]
    drain_options: DrainOptions
    provides: Provides
    autoscaler: AutoscalerPlan | None = None
    # The plan for the same variables on OpenShift; None if the variables name a distribution.
    on_openshift: t.Callable[[], Plan] | None = dataclasses.field(
        default=None, metadata={"exported": False}, compare=False
    )

    @property
    def declares_drivers(self) -> bool:
        """Whether any pool declares its driver, so that NVIDIADriver objects install the driver of every pool."""
        return any(pool.driver is not None for pool in self.pools)

    def as_dict(self) -> dict[str, t.Any]:
        """A copy of the plan in JSON types only."""
        return t.cast("dict[str, t.Any]", _json(self))


def _json(value: t.Any) -> t.Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        exported = (field.name for field in dataclasses.fields(value) if field.metadata.get("exported", True))
        return {name: _json(getattr(value, name)) for name in exported}
    if isinstance(value, dict):
        return {key: _json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(item) for item in value]
    return value
