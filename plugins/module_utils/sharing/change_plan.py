# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes that a run changes, how, and the ConfigMaps that they need."""

from __future__ import annotations

import typing as t
from collections import Counter
from dataclasses import dataclass, field, replace

from ..catalog.names import (
    CONFIG_LABEL,
    CORDONED_ANNOTATION,
    DEVICE_PLUGIN_CONFIGMAP,
    FAILED_KEY,
    FIELD_MANAGER,
    GENERATED_SELECTOR,
    MIG_CONFIG_LABEL,
    MIG_CONFIGMAP,
    POOL_LABEL,
)
from ..catalog.taints import STARTUP_TAINT_KEY, format_taint
from ..core.errors import InvalidOptions
from ..core.messages import MAX_LISTED, abbreviate, option_of_role
from ..core.yaml_text import render_yaml
from ..kube.errors import ApiError
from ..kube.fields import owned_keys
from ..kube.paths import NODES, collection_path, object_path
from ..nodes.impact import (
    LABELS,
    BlockingPod,
    Transition,
    UnfitWorkload,
    blocking_gpu_pods,
    displaced_pods,
    gpu_pods_to_evict,
    node_after,
    node_before,
    transition,
    unfit_workloads,
)
from ..nodes.mig import (
    NO_CAPACITY,
    NO_GENERATED_CONFIG,
    GeneratedMigConfig,
    MigCapacity,
    merge_generated,
    mig_capacity,
    parse_generated,
)
from ..nodes.node import Node, Requirement, parse_selector
from ..nodes.node_check import clients_paused, is_gpu_resource, repair_reason, unsupported_mode
from ..nodes.ownership import POOL_OWNER, NodeEdit, recorded
from ..nodes.pods import PodOnNode, PodsByNode
from ..nodes.pool_edit import (
    ABANDONED,
    DEFAULT_ROLLOUT,
    is_abandoned,
    is_being_repaired,
    is_managed,
    membership_edit,
    recorded_rollout,
    release_edit,
)
from ..pools.derive import derive
from ..schema.validators import IDLE_FIRST
from ..schema.variables import merge
from ..sharing_modes import mig_parted
from ..sharing_modes.modes import MODES, Sharing, device_plugin_config, mode_of, plugin_entry_name

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from ..kube.lease import Lease
    from ..pools.module import PlanModule
    from ..pools.plan import Membership, MigPlan, Plan, PoolPlan, RolloutPlan
    from ..sharing_modes.modes import SharingMode

# Plans the change to one node: its patch, the pods to evict, and whether the node is part of the rolling update (pure).


@dataclass(frozen=True)
class NodeChange:
    """The change to one node.

    rolling: whether the node is part of the rolling update; all other nodes are patched immediately and in parallel.
    displaced: the pods that cannot keep their GPUs. pods_to_evict: the pods that the drain evicts.
    is_new: whether no pod of the pool can run on the node yet, so that the pool loses no capacity during the change.
    stuck: the problem that is repaired without changing labels, if any. marks: the annotations of a run that did not finish.
    possible_holders: the cluster's own pods that may hold a GPU; listed only if this would make the change fail.
    released_from: the pool that the node is released from, empty if the node's pool label is missing, None if the node is not released.
    recorded_rollout: the rollout settings for a node without a pool, as recorded on the node.
    """

    node: str
    pool: PoolPlan | None
    edit: NodeEdit | None
    transition: Transition
    displaced: tuple[PodOnNode, ...] = ()
    pods_to_evict: tuple[PodOnNode, ...] = ()
    rolling: bool = False
    is_new: bool = False
    stuck: str = ""
    marks: t.Mapping[str, str] = field(default_factory=dict)
    possible_holders: tuple[PodOnNode, ...] = ()
    released_from: str | None = None
    recorded_rollout: RolloutPlan = DEFAULT_ROLLOUT

    @property
    def pods_to_pause(self) -> tuple[PodOnNode, ...]:
        """The DaemonSet pods that the label nvidia.com/gpu.deploy.client stops during the change."""
        return tuple(pod for pod in self.displaced if pod.pausable) if self.transition.repartitions else ()

    @property
    def rollout(self) -> RolloutPlan:
        """The rollout settings for the change."""
        return self.pool.rollout if self.pool else self.recorded_rollout

    @property
    def queue(self) -> str:
        """The name of the queue that contains the change. Each pool has one queue, and the nodes released from each pool have one."""
        return self.pool.name if self.pool else f"released from {self.released_from or 'no pool'}"

    @property
    def blocking_pods(self) -> list[BlockingPod]:
        """The pods that prevent the change because a drain cannot evict them."""
        return blocking_gpu_pods(self.displaced, self.rollout, device_files=self.transition.repartitions)

    def as_dict(self) -> dict[str, t.Any]:
        """The change in the format of the module's result."""
        optional = {
            "blocked_by": [str(pod) for pod in self.blocking_pods],
            "stops": [pod.full_name for pod in self.pods_to_pause],
            "possible_holders": [
                f"{pod.full_name} ({', '.join(pod.possible_access)})" for pod in self.possible_holders
            ],
        }
        return {
            "pool": self.pool.name if self.pool else None,
            "change": self.transition.kind,
            "evicts": [pod.full_name for pod in self.pods_to_evict],
            "reboot": "may" if self.transition.may_reboot else "no",
            **({} if self.released_from is None else {"released_from": self.released_from}),
            **{key: pods for key, pods in optional.items() if pods},
        }


def declared_edit(
    node: Node,
    pool: PoolPlan | None,
    held_back: t.Collection[str] = (),
    plugin_entries: t.Collection[str] = (),
    *,
    repair: bool = False,
) -> NodeEdit | None:
    """The edit that the pool's declaration requires; a repair edits only nodes that a release has abandoned (see is_abandoned()).

    A node whose vGPUs cannot have the pool's mode is left alone: neither MPS nor the label of the MIG manager would have an effect that is known.
    """
    if repair and not (pool is None and is_abandoned(node)):
        return None
    if pool is not None and node.has_vgpu and pool.sharing.definition.vgpu_problem:
        return None
    return membership_edit(node, pool, held_back, plugin_entries)


def node_change(
    node: Node,
    pool: PoolPlan | None,
    pods: PodsByNode,
    held_back: t.Collection[str] = (),
    plugin_entries: t.Collection[str] = (),
    *,
    repair: bool = False,
) -> NodeChange | None:
    """The change to a node; None if nothing must change. A node with marks of an unfinished run always has a change."""
    edit, marked = declared_edit(node, pool, held_back, plugin_entries, repair=repair), is_marked(node)
    stuck = repair_reason(node, pool) if repair or marked else ""
    abandoned = pool is None and is_abandoned(node)
    stuck = ABANDONED if abandoned else stuck
    if edit is None and not marked and not stuck:
        return None
    change = transition(node, pool, edit, repeat=bool(stuck) or marked)
    displaced = displaced_pods(change, pods.gpu_pods.get(node.name, ()))
    in_use = bool(displaced) or any(count for name, count in node.allocatable.items() if is_gpu_resource(name))
    capable = pool is None or not unsupported_mode(node, pool)
    rolling = capable and bool(marked or stuck or displaced or change.repartitions or (change.evicts_all and in_use))
    rollout = pool.rollout if pool else recorded_rollout(node)
    unassigned = pool is not None and (node.labels.get(POOL_LABEL) != pool.name or node.has_taint(STARTUP_TAINT_KEY))
    return NodeChange(
        node.name,
        pool,
        edit,
        change,
        displaced=displaced,
        pods_to_evict=gpu_pods_to_evict(displaced, pods.other_pods.get(node.name, ()), rollout) if rolling else (),
        rolling=rolling,
        is_new=unassigned and not displaced,
        stuck=stuck,
        marks={key: node.annotations[key] for key in (CORDONED_ANNOTATION, FAILED_KEY) if key in node.annotations},
        possible_holders=tuple(pods.possible_holders.get(node.name, ())) if rolling and change.repartitions else (),
        released_from=node.pin if pool is None and edit is not None and not abandoned else None,
        recorded_rollout=rollout,
    )


def depends_on_pods(change: NodeChange, node: Node) -> bool:
    """Whether the change may depend on the pods on the node, in which case they must be listed."""
    if change.rolling:
        return True
    offers = change.transition.offers
    return change.transition.kind != LABELS and any(
        count > offers.get(name, 0) for name, count in node.allocatable.items() if is_gpu_resource(name)
    )


def is_marked(node: Node) -> bool:
    """Whether a run has started but not finished changing the node, or the node has the startup taint."""
    annotated = CORDONED_ANNOTATION in node.annotations or FAILED_KEY in node.annotations or clients_paused(node)
    return annotated or node.has_taint(FAILED_KEY) or node.has_taint(STARTUP_TAINT_KEY)


def in_rollout_order(changes: t.Iterable[NodeChange]) -> list[NodeChange]:
    """Sort the changes of one pool by node name: unfinished changes come first, then, if `rollout.order` requires it, idle nodes."""

    def position(change: NodeChange) -> tuple[bool, int, str]:
        idle_first = change.rollout.order == IDLE_FIRST
        return change.edit is not None, len(change.displaced) if idle_first else 0, change.node

    return sorted(changes, key=position)


def limit_changes(changes: t.Sequence[NodeChange], pool_size: int) -> tuple[list[NodeChange], list[str]]:
    """Split the changes of one pool into those that this run makes and the nodes that `rollout.limit` leaves for another run."""
    rolling = in_rollout_order(change for change in changes if change.rolling)
    limit = rolling[0].rollout.max_nodes(pool_size) if rolling else 0
    immediate = [change for change in changes if not change.rolling]
    return immediate + rolling[:limit], [change.node for change in rolling[limit:]]


# Guards against unintended releases of nodes from their pools, and against changes to sharing that no variable requests (pure).
#
# Both are usually caused by a mistake in the variables, such as a file that was not read or a misspelled name.

ALL = "all"
# The name shown for the pool of nodes that have lost their pool label.
UNKNOWN = "(unknown)"


@dataclass(frozen=True)
class ReleasedNodes:
    """The releases of a run, and the data that determines whether they are allowed.

    changes: the releases, including releases that are left for another run. unclaimed: every node that no declared pool claims, with its pool,
    inside or outside the run's scope. pools_without_nodes: declared pools that lose all their nodes or have none.
    unshared: the number of nodes, by pool, that would lose their sharing or a foreign device plugin configuration even though no variable sets
    sharing.mode. managed: the number of nodes that remain in a pool.
    """

    changes: tuple[NodeChange, ...] = ()
    unclaimed: t.Mapping[str, str] = field(default_factory=dict)
    pools_without_nodes: t.Collection[str] = ()
    unshared: t.Mapping[str, int] = field(default_factory=dict)
    managed: int = 0

    @property
    def nodes(self) -> dict[str, str]:
        """The released nodes and the pools that they are released from."""
        return {
            change.node: change.released_from or UNKNOWN
            for change in sorted(self.changes, key=lambda change: change.node)
        }

    @property
    def counts(self) -> dict[str, int]:
        """The number of nodes that each pool loses."""
        return dict(sorted(Counter(self.nodes.values()).items()))

    @property
    def pods(self) -> list[str]:
        """The pods to evict for the releases, if pods were listed."""
        return sorted(pod.full_name for change in self.changes for pod in change.pods_to_evict)

    def uncovered(self, allowed: t.Collection[str]) -> list[str]:
        """The pools whose release requires a permission that `allowed` does not contain; empty if the run may continue.

        Removing one of several pools from the variables requires no permission. Releasing all managed nodes, nodes of more than one pool, or
        all nodes of a pool that is still declared requires a permission.
        """
        many = len(set(self.unclaimed.values())) > 1 or (bool(self.unclaimed) and not self.managed)
        required = [name for name in self.counts if many or name in self.pools_without_nodes]
        return [] if ALL in allowed else [name for name in required if name not in allowed]

    def refusal(self, allowed: t.Collection[str], *, begun: bool = False) -> str:
        """The reason why the run must fail, with the remedy; empty if it may continue. `begun`: whether the run has already made other changes."""
        nothing = f"Nothing {'more ' if begun else ''}was changed."
        reasons = [self._release_refusal(allowed, nothing), self._sharing_refusal(nothing)]
        return " ".join(filter(None, reasons))

    def _release_refusal(self, allowed: t.Collection[str], nothing: str) -> str:
        if not self.uncovered(allowed):
            return ""
        unknown = sorted(set(allowed) - set(self.counts))
        misspelled = (
            f" gpu_allow_release names {abbreviate(unknown)}, but none of their nodes is released." if unknown else ""
        )
        return (
            f"This run would release {self.summary()}. No pool in gpu_pools claims these nodes any longer. "
            f"{nothing} If this is a mistake, look in gpu_pools for a pool that is missing or misspelled, or for a changed match."
            f"{misspelled} To release the nodes, run once with -e {self.allow_variable()} (option allow_release of gpu_sharing)."
        )

    def _sharing_refusal(self, nothing: str) -> str:
        if not self.unshared:
            return ""
        of_pools = ", ".join(f"{name}: {count}" for name, count in sorted(self.unshared.items()))
        return (
            "This run would stop the sharing of GPUs, or replace foreign device plugin configurations, on "
            f"{sum(self.unshared.values())} node(s) ({of_pools}) even though neither these pools nor gpu_defaults set sharing.mode. "
            f"{nothing} Check whether gpu_defaults or sharing is missing or misspelled. To expose whole GPUs and replace such configurations, "
            "set sharing: {mode: none} in these pools."
        )

    def summary(self) -> str:
        """The number of released nodes by pool, and the evicted pods, as a part of a sentence."""
        of_pools = ", ".join(f"{name}: {count}" for name, count in self.counts.items())
        everything = "" if self.managed else ", which are all nodes that this collection manages,"
        pods = f"{len(self.pods)} pod(s): {abbreviate(self.pods)}" if self.pods else "no pods"
        return f"{len(self.nodes)} node(s) ({of_pools}){everything} and evict {pods}"

    def allow_variable(self) -> str:
        """The variable that allows the releases, in the notation of the command line."""
        names = [name for name in self.counts if name != UNKNOWN]
        return f"gpu_allow_release={ALL if UNKNOWN in self.counts else ','.join(names)}"

    def as_dict(self, allowed: t.Collection[str], limit: int) -> dict[str, t.Any]:
        """The releases in the format of gpu_info's result, with up to `limit` names in each list."""
        return {
            "pools": self.counts,
            "nodes": dict(list(self.nodes.items())[:limit]),
            "pods": self.pods[:limit],
            "unshared": dict(self.unshared),
            "refusal": self.refusal(allowed),
        }


def changes_sharing_silently(node: Node, pool: PoolPlan, edit: NodeEdit | None) -> bool:
    """Whether an edit ends the node's sharing, or replaces a foreign device plugin configuration, even though no variable sets sharing.mode.

    Sharing is detected from gpu-feature-discovery's labels, regardless of the tool that configured it, and from a configuration that a pool has set.
    """
    if pool.declares_sharing or edit is None:
        return False
    entry = node.labels.get(CONFIG_LABEL, "")
    mode = mode_of(entry)
    configured = CONFIG_LABEL in recorded(node, POOL_OWNER).labels and _shares(mode)
    is_foreign = bool(entry) and mode is None
    actually_shared = node.replicas > 1 or _shares(MODES.get(node.mode))
    plugin = CONFIG_LABEL in edit.labels and (configured or is_foreign or actually_shared)
    cut = MIG_CONFIG_LABEL in edit.labels and bool(node.mig_devices)
    return plugin or cut


def _shares(mode: SharingMode | None) -> bool:
    """Whether a mode shares or partitions GPUs."""
    return mode is not None and bool(mode.plugin_key)


# Selects the nodes that a run changes, by the options `state`, `pool_names` and `label_selectors`.

PRESENT, RESET, REPAIRED, NEW_NODES = "present", "reset", "repaired", "new_nodes"
STATES = (PRESENT, RESET, REPAIRED, NEW_NODES)
POOL_NAMES = option_of_role("gpu_sharing_pool_names", "pool_names")
_LABEL_SELECTORS = option_of_role("gpu_sharing_label_selectors", "label_selectors")


@dataclass(frozen=True)
class Scope:
    """The nodes of the given pools whose labels meet all requirements; if `pools` is None, all pools and nodes without a pool are included.

    excluded: the nodes that the run skips. The run adds a node once it has reported that the node's change failed or is left for another run.
    """

    state: str = PRESENT
    pools: frozenset[str] | None = None
    requirements: tuple[Requirement, ...] = ()
    excluded: set[str] = field(default_factory=set)

    @property
    def repairs(self) -> bool:
        """Whether the run only repairs nodes that are stuck."""
        return self.state == REPAIRED

    def warnings(self, nodes: t.Iterable[Node]) -> t.Iterator[str]:
        """Yield a warning if the label selectors select no GPU node, because a mistake in them is likely."""
        gpu_nodes = [node for node in nodes if node.has_gpu]
        selected = (all(each.is_met(node.labels) for each in self.requirements) for node in gpu_nodes)
        if self.requirements and gpu_nodes and not any(selected):
            yield f"{_LABEL_SELECTORS} selects none of the {len(gpu_nodes)} GPU nodes, so no node is changed."

    def contains(self, node: Node, pool: PoolPlan | None) -> bool:
        """Whether the run may change this node. Only PRESENT releases nodes; REPAIRED continues releases that failed."""
        if node.name in self.excluded:
            return False
        if pool is None and (self.pools is not None or self.state in (RESET, NEW_NODES)):
            return False
        if pool is None and self.repairs and not (is_abandoned(node) or is_being_repaired(node)):
            return False
        if pool is not None and self.pools is not None and pool.name not in self.pools:
            return False
        if not all(requirement.is_met(node.labels) for requirement in self.requirements):
            return False
        return self.state != NEW_NODES or is_marked(node) or bool(pool and node.labels.get(POOL_LABEL) != pool.name)


EVERYTHING = Scope()


def scope_of(module: PlanModule) -> Scope:
    """The scope that the options define. `state: reset` also replaces the module's plan with one in which the selected pools have whole GPUs."""
    params = module.params
    state, pool_names = params["state"], params["pool_names"]
    declared = {pool.name for pool in module.plan.pools}
    problems = [
        f"{POOL_NAMES}: {name} is not a declared pool; declared pools: {', '.join(sorted(declared))}"
        for name in pool_names or ()
        if name not in declared
    ]
    requirements: list[Requirement] = []
    for text in params["label_selectors"]:
        try:
            requirements += parse_selector(text)
        except ValueError as error:
            problems.append(f"{_LABEL_SELECTORS}: {text!r} {error}")
    if state == RESET and pool_names is not None and not pool_names:
        problems.append(f"{POOL_NAMES}: names no pool; list the pools to reset, or omit the option to reset all pools")
    if problems:
        raise InvalidOptions(problems)
    if state == RESET:
        defaults, pools = _without_sharing(params["gpu_defaults"], params["gpu_pools"], pool_names)
        module.plan = derive(params["gpu_cluster"], defaults, pools)
    return Scope(state, frozenset(pool_names) if pool_names else None, tuple(requirements))


def _without_sharing(defaults: t.Any, pools: t.Any, pool_names: t.Collection[str] | None) -> tuple[t.Any, t.Any]:
    """Return gpu_defaults and gpu_pools with whole GPUs in these pools, or in all pools if `pool_names` is None.

    The other pools get their own copy of the sharing in gpu_defaults.
    """
    dropped = ("sharing", "startup_taint")
    changed = []
    for pool in pools:
        if pool_names is None or pool.get("name") in pool_names:
            changed.append({key: value for key, value in pool.items() if key not in dropped})
        else:
            sharing = merge((defaults or {}).get("sharing"), pool.get("sharing"))
            changed.append({**pool, "sharing": sharing} if sharing else pool)
    return {key: value for key, value in (defaults or {}).items() if key not in dropped}, changed


# Reads, compares and writes the entries of the two ConfigMaps for NVIDIA's device plugin and MIG manager.
#
# Entries are added before a label selects them, and are removed once no label selects them.

ConfigMap = t.Mapping[str, t.Any]
EntriesByNode = dict[str, dict[str, mig_parted.Entry]]

# The entry for whole GPUs. It is kept even if there is no other entry, because NVIDIA's agents do not start with an empty
# ConfigMap ("no configuration files available", k8s-device-plugin cmd/config-manager).
WHOLE: t.Final = {plugin_entry_name(Sharing()): render_yaml(device_plugin_config(Sharing()))}


@dataclass(frozen=True)
class ConfigMaps:
    """The ConfigMaps of the device plugin and of the MIG manager. A ConfigMap that does not exist or was not read is None.

    generated: the entries that the MIG manager has generated for the nodes. capacity: the MIG profiles of the nodes' GPUs.
    """

    device_plugin: ConfigMap | None = None
    mig: ConfigMap | None = None
    generated: GeneratedMigConfig = NO_GENERATED_CONFIG
    capacity: MigCapacity = NO_CAPACITY


@dataclass(frozen=True)
class ConfigMapEntries:
    """The changes to one ConfigMap. The entries in `added` are written before any label selects them.

    The entries in `removed` are removed once no label selects them. `applied` is the content that is written before the labels change. For the
    device plugin's ConfigMap, it contains only the keys of this field manager; for the MIG manager's file, it contains all entries.
    """

    actual: t.Mapping[str, t.Any]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    applied: t.Mapping[str, t.Any]

    @property
    def changed(self) -> bool:
        """Whether the ConfigMap changes."""
        return bool(self.added or self.removed)

    @property
    def during(self) -> dict[str, t.Any]:
        """All entries while nodes are changed; entries are removed last."""
        return {**self.actual, **self.applied}

    @property
    def after(self) -> dict[str, t.Any]:
        """All entries at the end of the run."""
        return {name: entry for name, entry in self.during.items() if name not in self.removed}


def device_plugin_entries(
    desired: t.Mapping[str, str], named: t.Collection[str], configmap: ConfigMap | None
) -> ConfigMapEntries:
    """Compare the device plugin's ConfigMap with the desired entries and with the entries (`named`) that node labels select after the run.

    Entries of other field managers, and entries that a node label still selects, are kept. An existing ConfigMap never becomes empty.
    """
    actual: dict[str, str] = dict((configmap or {}).get("data") or {})
    owned = owned_keys(configmap or {}) & set(actual)
    if configmap is not None and not desired and not any(key in named or key not in owned for key in actual):
        desired = WHOLE
    added = {key: text for key, text in sorted(desired.items()) if actual.get(key) != text}
    return ConfigMapEntries(
        actual,
        added=tuple(added),
        removed=tuple(sorted(key for key in owned if key not in desired and key not in named)),
        applied={**{key: actual[key] for key in sorted(owned)}, **added},
    )


def mig_entries(
    plan: MigPlan,
    named: t.Collection[str],
    configmap: ConfigMap | None,
    generated: GeneratedMigConfig = NO_GENERATED_CONFIG,
) -> ConfigMapEntries:
    """Compare the MIG manager's file with the desired entries and with the entries (`named`) that node labels select after the run.

    The collection's entries have names from mig_parted.entry_name(). Entries of NVIDIA's file and entries that the MIG manager has generated
    on the nodes are added if they are missing. Existing entries with other names are never changed.
    """
    actual = mig_parted.parse_configmap(configmap)
    # A released node gets the entry that disables MIG, even if no pool uses MIG any longer.
    disabled = {mig_parted.DISABLED: mig_parted.DISABLED_ENTRY} if configmap and mig_parted.DISABLED in named else {}
    desired = {**disabled, **plan.default_entries, **generated.entries, **plan.entries}
    added = [
        name
        for name, entry in desired.items()
        if name not in actual or (mig_parted.is_managed(name) and actual[name] != entry)
    ]
    unused = (name for name in actual if mig_parted.is_managed(name) and name not in desired and name not in named)
    return ConfigMapEntries(
        actual,
        added=tuple(sorted(added)),
        removed=tuple(sorted(unused)),
        applied={**actual, **{name: desired[name] for name in sorted(added)}},
    )


def _foreign_entries(configmap: ConfigMap | None) -> frozenset[str]:
    """The entries of the device plugin's ConfigMap that other managers have written."""
    return frozenset((configmap or {}).get("data") or {}) - owned_keys(configmap or {})


class SharingConfigMaps:
    """The device plugin's ConfigMap with one key per entry, and the MIG manager's ConfigMap with one file for all entries.

    If another manager owns the device plugin's ConfigMap, only this collection's entries in it are changed.
    """

    def __init__(self, client: Client, plan: Plan, expected: t.Iterable[t.Mapping[str, t.Any]] = ()) -> None:
        """Store the arguments; no request is sent yet. The `expected` ConfigMaps (whole objects) count as present even if they do not exist yet."""
        self._client = client
        self._plan = plan
        self._device_plugin = object_path("v1", "ConfigMap", plan.config.name, plan.config.namespace)
        self._mig = object_path("v1", "ConfigMap", plan.mig.name, plan.mig.namespace)
        self._existing: set[str] = set()
        self._published: EntriesByNode | None = None
        self._expected = {
            object_path("v1", "ConfigMap", item["metadata"]["name"], item["metadata"]["namespace"]): item
            for item in expected
        }

    def read(self, nodes: t.Collection[Node], *, to_write: bool = True) -> ConfigMaps:
        """Read both ConfigMaps; the MIG manager's ConfigMap is read only if a pool or a node needs it.

        The data that the MIG manager has published about the nodes is read only once. If the user is not allowed to list this data, a warning is
        added to the result, unless `to_write` is set; in that case, the server's error is raised.
        """
        uses_mig = self._plan.mig.needed or any(mig_parted.is_managed(node.mig_config) for node in nodes)
        configmaps = ConfigMaps(self._get(self._device_plugin), self._get(self._mig) if uses_mig else None)
        if not self._plan.mig.needed:
            return configmaps
        published, warnings = self._published_entries(to_write)
        capacity = mig_capacity(nodes, published)
        return replace(
            configmaps,
            generated=merge_generated(self._plan, published, nodes, mig_parted.parse_configmap(configmaps.mig)),
            capacity=replace(capacity, warnings=(*warnings, *capacity.warnings)),
        )

    def _published_entries(self, to_write: bool) -> tuple[EntriesByNode, list[str]]:
        """The entries that the MIG manager has published for each node, and a warning if they cannot be read."""
        if self._published is None:
            path = collection_path("v1", "ConfigMap", self._plan.mig.namespace)
            try:
                self._published = parse_generated(self._client.list(path, label_selector=GENERATED_SELECTOR))
            except ApiError as error:
                if to_write or not error.forbidden:
                    raise
                return {}, [
                    "This user is not allowed to read the data that the nodes publish about their GPUs (operator v26.3 and later), so the "
                    f"catalog is used: {error.message}"
                ]
        return self._published, []

    def _get(self, path: str) -> ConfigMap | None:
        actual = self._client.get(path)
        if actual is None:
            return self._expected.get(path)
        self._existing.add(path)
        return actual

    def add_entries(self, changes: ChangePlan, lease: Lease | None = None, *, dry_run: bool = False) -> list[str]:
        """Write the entries that node labels will select and return their names; a dry run skips ConfigMaps that do not exist."""
        written: list[str] = []
        for path, entries in ((self._device_plugin, changes.device_plugin), (self._mig, changes.mig)):
            if entries.added and (path in self._existing or not dry_run):
                self._apply(path, entries.applied, lease, dry_run=dry_run)
                written += entries.added
        return written

    def remove_entries(self, changes: ChangePlan, lease: Lease) -> list[str]:
        """Read the nodes again, remove the entries that no node label selects any longer, and return their names.

        An agent crashes if its entry is missing. The nodes are read again because, in the meantime, some may have been labeled and changes may have failed.
        """
        device_plugin, mig = changes.device_plugin.removed, changes.mig.removed
        if not device_plugin and not mig:
            return []
        lease.check()
        device_plugin = self._unused(CONFIG_LABEL, device_plugin)
        mig = self._unused(MIG_CONFIG_LABEL, mig)
        if device_plugin:
            self._client.patch(self._device_plugin, {"data": dict.fromkeys(sorted(device_plugin))})
        if mig:
            kept = {name: entry for name, entry in changes.mig.applied.items() if name not in mig}
            self._apply(self._mig, kept, lease)
        return sorted([*device_plugin, *mig])

    def _unused(self, label: str, entries: tuple[str, ...]) -> tuple[str, ...]:
        """The entries that no node label selects. The request lists only nodes whose label selects one of the entries; usually, there are none."""
        if not entries:
            return ()
        nodes = self._client.list(NODES, label_selector=f"{label} in ({','.join(entries)})", metadata_only=True)
        return tuple(set(entries) - {node["metadata"]["labels"][label] for node in nodes})

    def _apply(self, path: str, entries: t.Mapping[str, t.Any], lease: Lease | None, *, dry_run: bool = False) -> None:
        if lease is not None:
            lease.check()
        name = path.rpartition("/")[2]
        metadata: dict[str, t.Any] = {"name": name, "namespace": self._plan.config.namespace}
        if name in (DEVICE_PLUGIN_CONFIGMAP, MIG_CONFIGMAP):
            metadata["labels"] = {"app.kubernetes.io/managed-by": FIELD_MANAGER}
        data = {mig_parted.KEY: mig_parted.render_configuration(entries)} if path == self._mig else dict(entries)
        self._client.apply(
            path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}, dry_run=dry_run
        )


# Compares every node and both ConfigMaps with the pools, and plans all changes of a run before any request is sent (pure).


@dataclass(frozen=True)
class ChangePlan:
    """All changes that make the cluster match the pools; if there are none, no request is sent.

    node_changes: the changes of this run. limited: the nodes left for another run (rollout.limit). not_ready: the nodes whose change
    must wait until they are ready.
    needs_pods: whether the changes may depend on the pods on the nodes, which have not been listed.
    held_back: the taints (in the format of format_taint()) that are not added to additional nodes.
    """

    node_changes: tuple[NodeChange, ...]
    pool_of: t.Mapping[str, str]
    device_plugin: ConfigMapEntries
    mig: ConfigMapEntries
    held_back: frozenset[str] = frozenset()
    # The entries of the device plugin's ConfigMap that others have written, and that a release may therefore restore.
    plugin_entries: frozenset[str] = frozenset()
    limited: tuple[str, ...] = ()
    not_ready: tuple[str, ...] = ()
    needs_pods: bool = False
    releases: ReleasedNodes = field(default_factory=ReleasedNodes)
    # The workloads that no node can run after the changes; empty if the pods have not been listed.
    unfit: tuple[UnfitWorkload, ...] = ()

    @property
    def edits(self) -> tuple[NodeEdit, ...]:
        """The edits of nodes, by name."""
        return tuple(change.edit for change in self.node_changes if change.edit)

    @property
    def rolling_changes(self) -> list[NodeChange]:
        """The changes of the rolling update."""
        return [change for change in self.node_changes if change.rolling]

    @property
    def evictions(self) -> dict[str, tuple[PodOnNode, ...]]:
        """The pods that the run evicts, by node. Nodes with blocking pods are omitted, because they are not drained."""
        return {
            change.node: change.pods_to_evict
            for change in self.rolling_changes
            if change.pods_to_evict and not change.blocking_pods
        }

    @property
    def immediate_edits(self) -> list[NodeEdit]:
        """The edits of nodes outside the rolling update, which do not affect pods."""
        return [change.edit for change in self.node_changes if change.edit and not change.rolling]

    @property
    def changed(self) -> bool:
        """Whether the run changes anything."""
        return bool(self.node_changes) or self.device_plugin.changed or self.mig.changed

    @property
    def released(self) -> list[str]:
        """The nodes that are released from their pools."""
        return [change.node for change in self.node_changes if change.released_from is not None]

    @property
    def nodes_to_refresh(self) -> list[str]:
        """The nodes that get a configuration. Their operands must read the ConfigMap again, because the configuration's entry may be new."""
        return [edit.name for edit in self.edits if edit.labels.get(CONFIG_LABEL) or edit.labels.get(MIG_CONFIG_LABEL)]

    @property
    def immediate_mig_nodes(self) -> list[str]:
        """The nodes whose MIG configuration changes outside the rolling update."""
        return [edit.name for edit in self.immediate_edits if edit.labels.get(MIG_CONFIG_LABEL)]

    @property
    def new_taints(self) -> set[str]:
        """The taints that are added to any node, in the format of format_taint()."""
        return {
            taint
            for edit in self.edits
            for taint in set(edit.after.get("taints", ())) - set(edit.before.get("taints", ()))
        }

    def diff(self) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
        """The states before and after the run, for at most MAX_LISTED nodes."""
        before: dict[str, t.Any] = {}
        after: dict[str, t.Any] = {}
        for key, entries in (("configmap", self.device_plugin), ("mig_configmap", self.mig)):
            if entries.changed:
                before[key], after[key] = dict(entries.actual), entries.after
        if self.node_changes:
            shown = self.node_changes[:MAX_LISTED]
            before["nodes"], after["nodes"] = {}, {}
            for change in shown:
                before["nodes"][change.node], after["nodes"][change.node] = _node_diff(change)
            if len(self.node_changes) > len(shown):
                after["nodes_not_shown"] = len(self.node_changes) - len(shown)
        if self.unfit:
            after["workloads_without_node"] = list(map(str, self.unfit))
        return before, after


def _node_diff(change: NodeChange) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
    before = dict(change.edit.before) if change.edit else {}
    after = dict(change.edit.after) if change.edit else {}
    if change.marks:
        before["annotations"] = {**before.get("annotations", {}), **change.marks}
        after["annotations"] = dict(after.get("annotations", {}))
    if change.pods_to_evict:
        before["pods"], after["pods"] = [pod.full_name for pod in change.pods_to_evict], []
    return before, after


def held_back_taints(
    plan: ChangePlan, nodes: t.Mapping[str, Node], pools: t.Iterable[PoolPlan]
) -> dict[str, list[str]]:
    """The held-back taints that at least one node of a pool lacks, by pool."""
    missing: dict[str, list[str]] = {}
    for pool in pools:
        held_back = [text for text in map(format_taint, pool.taints) if text in plan.held_back]
        if not held_back:
            continue
        members = [nodes[name] for name, of_pool in plan.pool_of.items() if of_pool == pool.name and name in nodes]
        lacking = [text for text in held_back if any(text not in map(format_taint, node.taints) for node in members)]
        if lacking:
            missing[pool.name] = lacking
    return missing


def plan_sharing_changes(
    plan: Plan,
    nodes: t.Sequence[Node],
    membership: Membership,
    configmaps: ConfigMaps,
    held_back: t.Collection[str] = (),
    *,
    scope: Scope = EVERYTHING,
    pods: PodsByNode | None = None,
) -> ChangePlan:
    """Compare every node with its pool. A node without a pool is changed only if the collection has written to it.

    Nodes that several pools claim and nodes outside the scope are not changed.
    `pods` contains the pods on the nodes, or is None if they have not been listed.
    """
    pools = {pool.name: pool for pool in plan.pools}
    pool_of = {node: pool for pool, members in membership.by_pool.items() for node in members}
    ambiguous = {*membership.overlaps, *membership.undiscovered}
    by_queue: dict[str, list[NodeChange]] = {}
    needs_pods = False
    foreign_entries = _foreign_entries(configmaps.device_plugin)
    unshared: dict[str, int] = {}
    for node in nodes:
        pool = pools.get(pool_of.get(node.name, ""))
        if (pool is None and node.name in ambiguous) or not scope.contains(node, pool):
            continue
        change = node_change(node, pool, pods or PodsByNode(), held_back, foreign_entries, repair=scope.repairs)
        if change is None:
            continue
        needs_pods = needs_pods or (pods is None and depends_on_pods(change, node))
        by_queue.setdefault(change.queue, []).append(change)
        if pool is not None and changes_sharing_silently(node, pool, change.edit):
            unshared[pool.name] = unshared.get(pool.name, 0) + 1
    unready = {node.name for node in nodes if not node.ready}
    all_changes = [change for changes in by_queue.values() for change in changes]
    not_ready = {change.node for change in all_changes if change.rolling and change.node in unready}
    chosen: list[NodeChange] = []
    limited: list[str] = []
    for name, changes in by_queue.items():
        possible = [change for change in changes if change.node not in not_ready]
        of_this_run, remaining = limit_changes(possible, len(membership.by_pool.get(name, changes)))
        chosen += of_this_run
        limited += remaining
    named = {label: _entries_named_by(label, nodes, chosen) for label in (CONFIG_LABEL, MIG_CONFIG_LABEL)}
    return ChangePlan(
        unfit=_unfit(nodes, chosen, pods) if pods is not None else (),
        node_changes=tuple(sorted(chosen, key=lambda change: change.node)),
        pool_of=pool_of,
        device_plugin=device_plugin_entries(plan.config.data, named[CONFIG_LABEL], configmaps.device_plugin),
        mig=mig_entries(plan.mig, named[MIG_CONFIG_LABEL], configmaps.mig, configmaps.generated),
        held_back=frozenset(held_back),
        plugin_entries=foreign_entries,
        limited=tuple(sorted(limited)),
        not_ready=tuple(sorted(not_ready)),
        needs_pods=needs_pods,
        releases=ReleasedNodes(
            changes=tuple(change for change in all_changes if change.released_from is not None),
            unclaimed=_unclaimed(nodes, pool_of, ambiguous) if scope.state == PRESENT else {},
            pools_without_nodes=frozenset(pools) - {name for name, members in membership.by_pool.items() if members},
            unshared=unshared if scope.state in (PRESENT, NEW_NODES) else {},
            managed=sum(1 for node in nodes if node.name in pool_of and is_managed(node)),
        ),
    )


def _unfit(nodes: t.Sequence[Node], changes: t.Iterable[NodeChange], pods: PodsByNode) -> tuple[UnfitWorkload, ...]:
    by_name = {node.name: node for node in nodes}
    # What a released node offers with the configuration that it had before is not known here.
    known = (change for change in changes if change.pool or not (change.edit and change.edit.labels.get(CONFIG_LABEL)))
    after = {
        change.node: node_after(
            by_name[change.node], change.pool, change.transition, change.edit.labels if change.edit else None
        )
        for change in known
        if change.transition.kind != LABELS
    }
    return unfit_workloads(pods.demands, map(node_before, nodes), after, MAX_LISTED) if after else ()


def _unclaimed(nodes: t.Iterable[Node], pool_of: t.Mapping[str, str], ambiguous: t.Collection[str]) -> dict[str, str]:
    """Return every managed node that no declared pool claims, inside or outside the run's scope, with the pool in its label."""
    return {
        node.name: node.pin
        for node in nodes
        if node.name not in pool_of
        and node.name not in ambiguous
        and is_managed(node)
        and release_edit(node) is not None
    }


def _entries_named_by(label: str, nodes: t.Iterable[Node], changes: t.Iterable[NodeChange]) -> set[str]:
    """The names of the entries that the nodes' labels select after these changes."""
    changed = {change.node: change.edit.labels for change in changes if change.edit}
    names = (changed.get(node.name, {}).get(label, node.labels.get(label)) for node in nodes)
    return {name for name in names if name}
