# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shape of everything that is derived from the pools, and its form for YAML (`gpu_plan`)."""

from __future__ import annotations

import dataclasses
import typing as t

from ..nvidia_config.device_plugin import Sharing
from ..schema.matching import Match
from ..schema.operand_labels import without_containers

Toleration = dict[str, str]
Taint = dict[str, str]


@dataclasses.dataclass(frozen=True)
class CloudPlan:
    """Who makes nodes of the cluster, and what it calls the cluster; `options` say where that cloud is, as its modules' options.

    `template` (None: the cluster is there) is what the cluster is made from, `nodegroup_label` the label of a node that names its group
    (empty: there is none).
    """

    provider: str
    cluster: str
    template: str | None
    nodegroup_label: str
    options: dict[str, str]


@dataclasses.dataclass(frozen=True)
class ClusterPlan:
    """Which cluster the run is for, and how its kubeconfig calls it; `cloud` is None where nodes are not made."""

    name: str
    kube_name: str
    kubeconfig: str | None
    context: str | None
    cloud: CloudPlan | None
    uid: str | None = None
    renamed_from: str | None = None
    impersonate_user: str | None = None
    impersonate_groups: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class ReleasePlan:
    """One Helm release with its static values; `chart_repo` is empty unless `chart` is a bare name.

    `named`: the documents say the release's name or namespace, so that it is meant even if somebody else has installed it.
    """

    name: str
    namespace: str
    named: bool
    namespace_labels: dict[str, str]
    chart: str
    chart_repo: str
    version: str
    values: dict[str, t.Any]


@dataclasses.dataclass(frozen=True)
class PolicyPlan:
    """What the pools ask of the ClusterPolicy: fields in `spec`, and our entries of the list daemonsets.tolerations.

    `mig_by_node`: mig.strategy must be absent, since it would overrule what each node's configuration says.
    """

    spec: dict[str, t.Any]
    tolerations: tuple[Toleration, ...]
    mig_by_node: bool


@dataclasses.dataclass(frozen=True)
class ConfigPlan:
    """The device plugin's ConfigMap; `data` maps an entry's name (node label value) to its YAML text."""

    name: str
    namespace: str
    data: dict[str, str]


@dataclasses.dataclass(frozen=True)
class MigPlan:
    """The MIG manager's ConfigMap: `entries` (name to content) of the pools, and the `usual` ones that NVIDIA's has."""

    name: str
    namespace: str
    entries: dict[str, t.Any]
    usual: dict[str, t.Any]

    @property
    def wanted(self) -> bool:
        """Whether any pool's GPUs are cut, be it that their demand has yet to be spread over nodes."""
        return bool(self.usual)


@dataclasses.dataclass(frozen=True)
class ValidationPlan:
    """Where validation pods run, from which image, and which ConfigMap keeps their evidence."""

    image: str
    namespace: str
    configmap: str


@dataclasses.dataclass(frozen=True)
class Registration:
    """What a node has to have from its first moment, so that it becomes right without a run: its maker puts it there."""

    node_labels: dict[str, str]
    taints: tuple[Taint, ...]


@dataclasses.dataclass(frozen=True)
class NodeGroupPlan:
    """The node group that makes a pool's nodes; `count` is how many it has, or begins with where an autoscaler chooses from `low` to `high`.

    `label` is the label of a node that names its group (empty: there is none). `settings` are the rest, in the provider's words.
    """

    name: str
    label: str
    flavor: str
    count: int
    low: int | None
    high: int | None
    settings: dict[str, t.Any]

    @property
    def autoscaled(self) -> bool:
        """Whether an autoscaler chooses how many nodes there are."""
        return self.high is not None

    @property
    def size(self) -> str:
        """How many nodes, in words."""
        return (
            f"{self.low} to {self.high} nodes"
            if self.autoscaled
            else f"{self.count} node{'' if self.count == 1 else 's'}"
        )


@dataclasses.dataclass(frozen=True)
class RebootPlan:
    """The user's way to reboot a node: a program with its arguments, {node} for the node's name; `timeout` in seconds."""

    command: tuple[str, ...]
    timeout: int


@dataclasses.dataclass(frozen=True)
class RolloutPlan:
    """How a change reaches the nodes of a pool; docs/rollout.md tells what each value does.

    `max_unavailable` and `limit` are numbers of nodes or per cent ("25%"); times are in seconds; None: no limit, or the
    pod's own grace period.
    """

    max_unavailable: int | str
    drain: str
    force: bool
    grace_period: int | None
    drain_timeout: int
    order: str
    limit: int | str | None
    pause_on_failure: bool
    on_failure: str
    reboot: RebootPlan | None

    def window(self, nodes: int) -> int:
        """How many nodes of a pool of so many may be worked on at a time; always one."""
        return node_count_of(self.max_unavailable, nodes)

    def most(self, nodes: int) -> int:
        """How many of them one run takes in hand."""
        return nodes if self.limit is None else node_count_of(self.limit, nodes)


def rollout_plan(complete: t.Mapping[str, t.Any]) -> RolloutPlan:
    """The settings of a sound `rollout` in which every default is in place."""
    reboot = complete["reboot"]
    return RolloutPlan(
        max_unavailable=complete["max_unavailable"],
        drain=complete["drain"],
        force=complete["force"],
        grace_period=complete.get("grace_period"),
        drain_timeout=complete["drain_timeout"],
        order=complete["order"],
        limit=complete.get("limit"),
        pause_on_failure=complete["pause_on_failure"],
        on_failure=complete["on_failure"],
        reboot=RebootPlan(tuple(reboot["command"]), reboot["timeout"]) if reboot["command"] else None,
    )


def node_count_of(amount: int | str, of: int) -> int:
    """A number, or the per cent of `of`, rounded up as Kubernetes does it for a DaemonSet's maxUnavailable; at least 1."""
    if isinstance(amount, int):
        return max(1, amount)
    return max(1, -(-of * int(amount.rstrip("%")) // 100))


@dataclasses.dataclass(frozen=True)
class PoolPlan:
    """One pool with every value that the nodes, the quota, the report or a validation pod needs of it.

    `resource` is what most of the pool is offered as, `resources` all of it; `shares_per_gpu` is None where the GPUs of
    one node are cut differently. `mig_key` and `mig_entry` are empty unless every node's GPUs are cut alike. `quota_keys` are those of a ResourceQuota,
    `accelerator` is the kind of GPU in the cluster autoscaler's terms, None where the model is not declared. `registration` is for
    the node group or MachineSet that makes nodes of the pool; `group` is the former where a run makes it. `model` is a catalog key, None
    where none is declared or the catalog lacks it. `by_node` is the pool as it is for single nodes (see on()).
    """

    name: str
    match: Match
    model: str | None
    group: NodeGroupPlan | None
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    tolerations: tuple[Toleration, ...]
    sharing: Sharing
    gpus_per_node: int | None
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
    # Whether the pool or gpu_defaults say sharing.mode: what nobody has said takes no sharing away.
    declares_sharing: bool = dataclasses.field(default=True, metadata={"told": False})
    by_node: t.Mapping[str, PoolPlan] = dataclasses.field(default_factory=dict, metadata={"told": False})

    @property
    def without_containers(self) -> str:
        """Why the pool's nodes offer no GPU to containers, by its own labels; empty where they do."""
        return without_containers(self.labels)

    def on(self, node: str) -> PoolPlan:
        """The pool as it is for one node: where a demand is spread over the pool, each node is cut in its own way."""
        return self.by_node.get(node, self)

    @property
    def mode(self) -> str:
        """How the GPUs are shared."""
        return self.sharing.mode


@dataclasses.dataclass(frozen=True)
class Provides:
    """What does not exist on an empty cluster but will once this run's own steps are through."""

    namespaces: tuple[str, ...]
    kinds: tuple[dict[str, str], ...]


@dataclasses.dataclass(frozen=True)
class Plan:
    """Everything derived from one cluster's documents."""

    cluster: ClusterPlan
    operator: ReleasePlan
    nfd: ReleasePlan
    policy: PolicyPlan
    config: ConfigPlan
    mig: MigPlan
    validation: ValidationPlan
    pools: tuple[PoolPlan, ...]
    nodegroups: tuple[dict[str, t.Any], ...]
    drain_options: dict[str, t.Any]
    provides: Provides

    def as_dict(self) -> dict[str, t.Any]:
        """The plan in JSON's types only; a copy, so that no caller can change the plan through it."""
        return t.cast("dict[str, t.Any]", _json(self))


def _json(value: t.Any) -> t.Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        told = (field.name for field in dataclasses.fields(value) if field.metadata.get("told", True))
        return {name: _json(getattr(value, name)) for name in told}
    if isinstance(value, dict):
        return {key: _json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(item) for item in value]
    return value
