# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is derived from the declaration: the plan of a cluster and of each pool, and which nodes belong to a pool (pure)."""

from __future__ import annotations

import collections
import dataclasses
import typing as t
from dataclasses import dataclass, field

from ..catalog import models, names
from ..catalog.names import COUNT_LABEL, GPU_PRESENT_LABEL, GPU_RESOURCE, MIG_STRATEGY_LABEL, PCI_PRESENT_LABELS
from ..catalog.openshift import (
    CAPACITY_CPU,
    CAPACITY_LABELS,
    CAPACITY_MEMORY,
    CPU,
    GPU,
    GPU_COUNT,
    GPU_TYPE,
    MEMORY_MB,
    AutoscalerRules,
)
from ..catalog.taints import Taint, Toleration, taint_identity
from ..schema.validators import NONE, DrainOptions, DrainSettings, Match, reason_without_containers
from ..sharing_modes import mig as layouts

if t.TYPE_CHECKING:
    from ..sharing_modes.modes import Sharing

# The metadata that a pool, or a set of the module node_metadata, sets on nodes.

# Labels or annotations; the value None removes an entry.
Entries = t.Mapping[str, "str | None"]


@dataclass(frozen=True)
class NodeMetadata:
    """The metadata that one owner declares for a node, with taints by key and effect; the value None removes an entry of this owner."""

    labels: Entries = field(default_factory=dict)
    annotations: Entries = field(default_factory=dict)
    taints: t.Mapping[str, Taint | None] = field(default_factory=dict)


# The plan: all values that are derived from the variables, and their format for YAML (`gpu_plan`).

PoolTaint = dict[str, str]


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

    The settings of Helm (schema/cluster.py) have the names of their variables, except `name`. The tasks that call Helm get the whole plan.
    `olm` is None if Helm installs the component; otherwise it has all keys of olm_fields() in schema/cluster.py, and the key `resource`, the name of the custom
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
    taints: tuple[PoolTaint, ...]


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
class VspherePlan:
    """The templates with vGPUs that the pools need: options of the modules for vSphere.

    `connection` are those of the connection, except the password, and `templates` is the option of the same name. The name of each template is that of the node
    group. `narrow_boot_images`: whether an explicit selection of boot image updates may be narrowed.
    """

    connection: dict[str, t.Any]
    templates: tuple[dict[str, t.Any], ...]
    narrow_boot_images: bool


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
    taints: tuple[PoolTaint, ...]
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
    # The declared vGPUs of each node, with the keys of `vgpu`; None if no template is built for the pool.
    vgpu: dict[str, t.Any] | None = dataclasses.field(default=None, metadata=_KEY)
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
    """All values that are derived from the variables of one cluster.

    `autoscaler` is None unless its node groups are MachineSets, and `vsphere` unless a pool has vGPUs or the connection to vCenter is declared.
    """

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
    vsphere: VspherePlan | None = None
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


# Assigns nodes to pools by their labels alone, and finds nodes whose pool is ambiguous or unexpected (pure).
#
# Runs use assign_pools() in nodes/ownership.py, which ignores outdated labels of earlier runs.

# Discovery sets the labels with these prefixes; all other labels exist from the start or are set by other tools.
DISCOVERED_PREFIXES = ("nvidia.com/", names.NFD_PREFIX)


@dataclasses.dataclass(frozen=True)
class NodeFacts:
    """The fields of a Node object that determine its pool."""

    name: str
    labels: t.Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def product(self) -> str:
        """GFD's product name with the suffixes of sharing and MIG; empty before discovery."""
        return self.labels.get(names.PRODUCT_LABEL, "")

    @property
    def has_vgpu(self) -> bool:
        """Whether GFD has found that the node's GPUs are vGPUs."""
        return self.labels.get(names.VGPU_PRESENT_LABEL) == "true"

    @property
    def has_gpu(self) -> bool:
        """Whether labels of NFD, the GPU operator or GFD show an NVIDIA GPU."""
        if self.labels.get(names.GPU_PRESENT_LABEL) == "false":
            return False
        return bool(self.product) or any(
            self.labels.get(label) == "true" for label in (names.GPU_PRESENT_LABEL, *names.PCI_PRESENT_LABELS)
        )

    @property
    def pin(self) -> str:
        """The pool in the node's label accel.gpu/pool; empty without the label."""
        return self.labels.get(names.POOL_LABEL, "")


@dataclasses.dataclass(frozen=True)
class Membership:
    """The membership of nodes in pools; the lists in its fields are sorted."""

    by_pool: dict[str, list[str]]
    overlaps: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    """Nodes that several pools match, with the names of these pools; the nodes belong to none of them."""
    undiscovered: list[str] = dataclasses.field(default_factory=list)
    """GPU nodes whose model is not known yet; those that are pinned also belong to their pool."""
    undeclared_pins: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    """Nodes pinned to an undeclared pool, by the name of the pool."""
    mismatched: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    """Nodes pinned to a pool that does not match them, by pool; the pin takes precedence."""
    unclaimed: list[str] = dataclasses.field(default_factory=list)
    """Discovered GPU nodes that belong to no pool."""
    wrong_model: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    """Nodes whose model differs from the model that their pool declares for its node group, by pool; they still belong to the pool."""
    may_be_empty: frozenset[str] = frozenset()
    """Pools whose node group may have no node."""

    @property
    def missing(self) -> list[str]:
        """Pools that should have a node, but have none."""
        return [pool for pool in self.empty if pool not in self.may_be_empty]

    @property
    def empty(self) -> list[str]:
        """Pools without a node."""
        return [pool for pool, members in self.by_pool.items() if not members]


def matches(pool: PoolPlan, node: NodeFacts) -> bool:
    """Whether the node meets the pool's `match`; False for a pool without `match`."""
    match = pool.match
    if match.pins_only or not node.has_gpu:
        return False
    if any(node.labels.get(key) != value for key, value in match.labels.items()):
        return False
    return not match.products or _product(node) in {models.normalized(product) for product in match.products}


def contradicts(pool: PoolPlan, node: NodeFacts) -> bool:
    """Whether the labels of a node that shows a GPU differ from the pool's `match`. A missing label that discovery sets is no evidence."""
    match = pool.match
    if match.pins_only or not node.has_gpu:
        return False
    if any(
        node.labels[key] != value if key in node.labels else not key.startswith(DISCOVERED_PREFIXES)
        for key, value in match.labels.items()
    ):
        return True
    products = {models.normalized(product) for product in match.products}
    return bool(products and node.product) and _product(node) not in products


def is_from_group(pool: PoolPlan, node: NodeFacts) -> bool:
    """Whether the node's label contains the name of the pool's node group.

    The name of a group that replaces it is not evidence, because anyone may choose such a name. The nodes of a replacement have the pool label, which the
    cloud or the module nodegroup_nodes sets.
    """
    group = pool.nodegroup
    return group is not None and bool(group.group_label) and node.labels.get(group.group_label) == group.name


def _has_wrong_model(pool: PoolPlan, node: NodeFacts) -> bool:
    """Whether a node that belongs to the pool by its pin or node group has a model other than the declared one. The labels of a vGPU show its type, but not
    the physical GPU, so they neither confirm nor contradict a model.
    """
    if node.has_vgpu:
        return False
    model = models.find(pool.model) if pool.model and node.product and not pool.match.products else None
    return model is not None and _product(node) not in {models.normalized(product) for product in model.products}


def _product(node: NodeFacts) -> str:
    return models.normalized(models.bare_product(node.product))


class _Index:
    """Finds the few candidate pools of a node, so that a search in hundreds of pools is as fast as in a few."""

    def __init__(self, pools: t.Sequence[PoolPlan]) -> None:
        self._by_product: dict[str, list[PoolPlan]] = collections.defaultdict(list)
        self._by_label: dict[tuple[str, str], list[PoolPlan]] = collections.defaultdict(list)
        for pool in pools:
            if pool.match.labels:
                self._by_label[min(pool.match.labels.items())].append(pool)
            else:
                for product in pool.match.products:
                    self._by_product[models.normalized(product)].append(pool)
        self._with_group = [pool for pool in pools if pool.nodegroup and pool.nodegroup.group_label]

    def by_nodegroup(self, node: NodeFacts) -> PoolPlan | None:
        """The pool of the node's node group."""
        return next((pool for pool in self._with_group if is_from_group(pool, node)), None)

    def matching(self, node: NodeFacts) -> list[str]:
        """The pools whose `match` the node meets, sorted."""
        candidates = [*self._by_product.get(_product(node), ())]
        if self._by_label:
            for label in node.labels.items():
                candidates += self._by_label.get(label, ())
        return sorted({pool.name for pool in candidates if matches(pool, node)})


def membership_by_labels(pools: t.Sequence[PoolPlan], nodes: t.Iterable[NodeFacts]) -> Membership:
    """Assign each node to the pool in its label accel.gpu/pool, otherwise to the pool of its node group, otherwise to the only pool that matches it."""
    declared = {pool.name: pool for pool in pools}
    index = _Index(pools)
    membership = Membership(
        by_pool={name: [] for name in declared},
        may_be_empty=frozenset(pool.name for pool in pools if pool.nodegroup and pool.nodegroup.may_be_empty),
    )
    for node in sorted(nodes, key=lambda node: node.name):
        known = bool(node.product)
        if node.has_gpu and not known:
            membership.undiscovered.append(node.name)
        if node.pin and node.pin not in declared:
            membership.undeclared_pins.setdefault(node.pin, []).append(node.name)
        owner = declared.get(node.pin) or index.by_nodegroup(node)
        if owner is not None:
            membership.by_pool[owner.name].append(node.name)
            if node.pin in declared and known and contradicts(owner, node):
                membership.mismatched.setdefault(owner.name, []).append(node.name)
            if _has_wrong_model(owner, node):
                membership.wrong_model.setdefault(owner.name, []).append(node.name)
            continue
        matching = index.matching(node) if node.has_gpu else []
        if len(matching) == 1:
            membership.by_pool[matching[0]].append(node.name)
        elif matching:
            membership.overlaps[node.name] = matching
        elif known and not node.pin:
            membership.unclaimed.append(node.name)
    return membership


# The future nodes of a pool, and the annotations from which OpenShift's autoscaler predicts them while the pool has no node (pure).

_MIB = 1024 * 1024


@dataclass(frozen=True)
class FutureNode:
    """A node of a pool once its GPUs are configured.

    resources: the amount of each extended resource that it offers; None if it is unknown until a node exists (no number of GPUs, or a demand).
    labels: the labels that NFD and gpu-feature-discovery will set, as far as they are known. accelerator: the value of the label
    cluster-api/accelerator; empty if the node must not have the label, because it never offers nvidia.com/gpu.
    """

    resources: t.Mapping[str, int] | None
    accelerator: str
    labels: t.Mapping[str, str] = field(default_factory=dict)


def future_node(pool: PoolPlan) -> FutureNode:
    """The future node of a pool, from its variables alone."""
    if pool.reason_without_containers:
        return FutureNode({}, "")
    gpus = pool.gpus_per_node or (pool.nodegroup.flavor_gpus if pool.nodegroup else None)
    may_offer_gpus = GPU_RESOURCE in pool.resources
    accelerator = (pool.accelerator or pool.name) if may_offer_gpus else ""
    if gpus is None or pool.sharing.demand:
        return FutureNode(None, accelerator, _present_labels())
    resources = {name: amount for name, amount in pool.sharing.offers(gpus).items() if amount}
    return FutureNode(resources, accelerator, {**_present_labels(), **_discovered_labels(pool, gpus)})


def capacity_annotations(
    resources: t.Mapping[str, int] | None,
    labels: t.Mapping[str, str],
    rules: AutoscalerRules,
    existing: t.Mapping[str, str],
) -> dict[str, str]:
    """The annotations that this collection sets on a MachineSet, for an autoscaler with these rules.

    Both families of annotations are returned, so that they remain correct when the cluster is upgraded. `existing` contains the MachineSet's annotations:
    cpu and memory are copied from those that the platform's controller sets, and other labels in the annotation for labels are kept.
    """
    annotations: dict[str, str] = {}
    if existing.get(CPU):
        annotations[CAPACITY_CPU] = existing[CPU]
    if existing.get(MEMORY_MB, "").isdecimal():
        annotations[CAPACITY_MEMORY] = str(int(existing[MEMORY_MB]) * _MIB)
    if resources is not None:
        resource, amount = rules.countable(resources)
        # The Cluster Autoscaler Operator parses this as a quantity and panics on other text. It is always an amount of nvidia.com/gpu.
        annotations[GPU] = str(resources.get(GPU_RESOURCE, 0))
        annotations[GPU_COUNT], annotations[GPU_TYPE] = str(amount), resource if amount else ""
    if labels:
        annotations[CAPACITY_LABELS] = format_labels({**parse_labels(existing.get(CAPACITY_LABELS, "")), **labels})
    return annotations


def parse_labels(text: str) -> dict[str, str]:
    """The labels in an annotation, as the autoscaler reads them: k=v, separated by commas; other parts are ignored."""
    parts = (part.partition("=") for part in text.split(","))
    return {key.strip(): value.strip() for key, equals, value in parts if equals}


def format_labels(labels: t.Mapping[str, str]) -> str:
    """The text of the annotation with these labels, in a fixed order."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _present_labels() -> dict[str, str]:
    return {GPU_PRESENT_LABEL: "true", PCI_PRESENT_LABELS[0]: "true"}


def _discovered_labels(pool: PoolPlan, gpus: int) -> dict[str, str]:
    """The labels of gpu-feature-discovery; none if the model is not known."""
    model = models.find(pool.model) if pool.model else None
    if model is None:
        return {}
    devices: dict[str, int] = {}
    for index in range(gpus if pool.sharing.layout else 0):
        for profile, count in layouts.on_gpu(pool.sharing.layout, index).items():
            devices[profile] = devices.get(profile, 0) + count
    labels = pool.sharing.definition.labels(pool.sharing, model.product, devices)
    # With the strategy mixed, the labels of the model and of the GPUs that stay whole are not predicted.
    return labels if MIG_STRATEGY_LABEL in labels else {COUNT_LABEL: str(gpus), **labels}
