# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replaces the outdated Machines of MachineSets: which ones, in which order, and how many at a time."""

from __future__ import annotations

import dataclasses
import functools
import typing as t
from collections import Counter
from dataclasses import dataclass

from ..catalog.names import POOL_LABEL
from ..core.errors import InvalidOptions, PartialFailure, ServiceError
from ..core.messages import abbreviate, diff_of, join_words
from ..core.values import get_nested
from ..core.waits import WaitTimeout, run_bounded
from ..kube.fields import is_deleting, name_of
from ..nodegroups.reconciler import INVALID_GROUPS, GroupFailed, GroupListCache, GroupReconciler
from ..nodegroups.spec import OUTDATED, UPDATE, GroupChange
from ..pools.plan import RolloutPlan, rollout_plan
from ..schema.providers import NODE_LABELS
from ..schema.validators import IDLE_FIRST, ROLLOUT
from .machines import DELETING, node_of, phase_of
from .machinesets import machines_of

if t.TYPE_CHECKING:
    from ..core.values import Object
    from ..core.waits import Progress
    from ..nodegroups.reconciler import ReconcileOptions
    from ..nodes.drain import NodeDrainer
    from .machineset_groups import MachineApi, MachineSetProvider

# Decides which Machines are replaced, and in which order (pure).


@dataclass(frozen=True)
class OutdatedMachine:
    """A Machine whose settings differ from those of new Machines, with its node, if it has one, its MachineSet, and the spec of its group."""

    name: str
    uid: str
    node: str | None
    machineset: str
    group: str

    def __str__(self) -> str:
        """The name, with that of the node if it differs."""
        return self.name if self.node in (None, self.name) else f"{self.name} (node {self.node})"


@dataclass(frozen=True)
class PoolRollout:
    """The batches of Machines that a run replaces, one batch after another, and the Machines that `rollout.limit` leaves to the next run."""

    pool: str
    batches: tuple[tuple[OutdatedMachine, ...], ...]
    remaining: tuple[OutdatedMachine, ...] = ()

    @property
    def machines(self) -> list[OutdatedMachine]:
        """The Machines in the order of their replacement."""
        return [machine for batch in self.batches for machine in batch]

    def to_result(self) -> Object:
        """The entry of the module's result."""
        return {
            "batches": [[{"name": each.name, "node": each.node} for each in batch] for batch in self.batches],
            "remaining": [each.name for each in self.remaining],
        }


def rollout_settings(options: Object, groups: t.Iterable[Object]) -> dict[str, RolloutPlan]:
    """The settings of each pool, with their defaults. Raises InvalidOptions with all problems of the options that are about outdated Machines.

    groups: the options of the declared groups.
    """
    replaces = options["replace_outdated"]
    given = {str(pool): ROLLOUT.coerce(rollout) for pool, rollout in (options["rollouts"] or {}).items()}
    pools = {pool_of(group["name"], group.get(NODE_LABELS)) for group in groups}
    problems = [text for pool, rollout in given.items() for text in ROLLOUT.problems(rollout, f"rollouts.{pool}")]
    problems += [
        f"rollouts.{pool}: none of the node groups belongs to this pool; correct or remove the name. Pools of the node groups: "
        f"{join_words(sorted(pools)) or 'none'}"
        for pool in given.keys() - pools
    ]
    if replaces and not options["wait"]:
        problems.append("wait: replace_outdated waits for each new machine; set wait: true")
    if options["surge"] and not replaces:
        problems.append("surge: has no effect without replace_outdated; set replace_outdated: true, or remove surge")
    if problems:
        raise InvalidOptions(sorted(problems), INVALID_GROUPS)
    return {pool: rollout_plan(ROLLOUT.complete(rollout)) for pool, rollout in given.items()}


def pool_of(group: str, node_labels: t.Mapping[str, t.Any] | None) -> str:
    """The pool of a declared group, which is the group itself if its nodes have no label of a pool."""
    return str((node_labels or {}).get(POOL_LABEL) or group)


def plan_pool(
    pool: str, machines: t.Iterable[OutdatedMachine], total: int, settings: RolloutPlan, idle_first: t.Sequence[str]
) -> PoolRollout:
    """The batches of a pool with `total` machines: first the Machines without a node, which lose nothing, then the others in the order of `rollout`.

    idle_first: the names of all nodes of the pool, beginning with the one that is drained with the least impact.
    """
    position = {name: index for index, name in enumerate(idle_first)} if settings.order == IDLE_FIRST else {}

    def order(machine: OutdatedMachine) -> tuple[bool, int, str, str]:
        return machine.node is not None, position.get(machine.node or "", 0), machine.node or "", machine.name

    ordered = sorted(machines, key=order)
    limit, size = settings.max_nodes(total), settings.max_parallel(total)
    chosen = ordered[:limit]
    batches = tuple(tuple(chosen[start : start + size]) for start in range(0, len(chosen), size))
    return PoolRollout(pool, batches, tuple(ordered[limit:]))


def rollout_diff(rollouts: t.Sequence[PoolRollout]) -> Object:
    """The diff: the outdated Machines of each pool, and the batches in which they are replaced."""
    before = {
        each.pool: {"outdated": [machine.name for machine in (*each.machines, *each.remaining)]} for each in rollouts
    }
    after = {
        each.pool: {
            "outdated": [machine.name for machine in each.remaining],
            "replaced": [", ".join(map(str, batch)) for batch in each.batches],
        }
        for each in rollouts
    }
    return diff_of(before, after, "machines")


def with_rollouts(result: Object, rollouts: t.Sequence[PoolRollout]) -> Object:
    """The result of a reconciliation of the groups, with the replacement of their outdated Machines."""
    groups = {
        name: {key: value for key, value in each.items() if key != OUTDATED}
        for name, each in result["nodegroups"].items()
    }
    for machine in (machine for each in rollouts for machine in each.remaining):
        groups[machine.group].setdefault(OUTDATED, []).append(machine.node or machine.name)
    single = [groups[name] for name, each in result["nodegroups"].items() if each is result.get("nodegroup")]
    return {
        **result,
        **({"nodegroup": single[0]} if single else {}),
        "changed": result["changed"] or any(each.batches for each in rollouts),
        "nodegroups": groups,
        "rollouts": {each.pool: each.to_result() for each in rollouts},
        "diff": [result["diff"], rollout_diff(rollouts)] if rollouts else result["diff"],
    }


# Replaces the Machines.


@dataclass
class MachineRollout:
    """Replaces outdated Machines in their MachineSets.

    The node of a Machine is drained, and its MachineSet is scaled down by this Machine and, once it is gone, up again. With `surge`, it is scaled up first.
    """

    api: MachineApi
    provider: MachineSetProvider
    drainer: NodeDrainer
    options: ReconcileOptions
    progress: Progress
    surge: bool
    _gone: set[str] = dataclasses.field(default_factory=set, init=False)

    def plan(self, rollouts: t.Mapping[str, RolloutPlan]) -> list[PoolRollout]:
        """What a run replaces in each pool; `rollouts` contains the settings by pool. Raises InvalidOptions if that is not possible."""
        default = rollout_plan(ROLLOUT.complete({}))
        groups = self.provider.outdated_machines()
        by_pool: dict[str, list[str]] = {}
        for name in groups:
            pool = pool_of(name, self.provider.spec(name).fields.get(NODE_LABELS))
            by_pool.setdefault(pool, []).append(name)
        outdated = {
            pool: [
                OutdatedMachine(
                    name_of(machine),
                    str(machine["metadata"].get("uid")),
                    node_of(machine),
                    groups[name].machineset,
                    name,
                )
                for name in names
                for machine in groups[name].outdated
            ]
            for pool, names in by_pool.items()
        }
        self._require_sizes({machine.group for machines in outdated.values() for machine in machines})
        nodes = {pool: {node for name in names for node in groups[name].nodes} for pool, names in by_pool.items()}
        affected = {node for pool, machines in outdated.items() if machines for node in nodes[pool]}
        idle_first = self.drainer.scale_down_candidates(affected, len(affected)) if affected else []
        return [
            plan_pool(
                pool,
                machines,
                sum(groups[name].count for name in by_pool[pool]),
                rollouts.get(pool, default),
                [node for node in idle_first if node in nodes[pool]],
            )
            for pool, machines in outdated.items()
            if machines
        ]

    def run(self, rollouts: t.Sequence[PoolRollout]) -> None:
        """Replace the Machines, all pools in parallel. Raises an error with the progress of each pool if one of them stops."""
        cache = GroupListCache(self.provider)
        calls = [(each.pool, functools.partial(self._replace_pool, each, cache)) for each in rollouts]
        outcomes = run_bounded(calls, self.options.parallel, fatal=lambda dummy: False)
        errors = [(outcome.name, outcome.error) for outcome in outcomes if outcome.error is not None]
        if not errors:
            return
        unexpected = next(
            (e for dummy, e in errors if not isinstance(e, (GroupFailed, WaitTimeout, ServiceError))), None
        )
        if unexpected is not None:
            raise unexpected
        left = {each.pool: self._left(each) for each in rollouts}
        known = {key: value for dummy, error in errors for key, value in getattr(error, "partial", {}).items()}
        partial = {
            **known,
            "rollouts": {each.pool: {**each.to_result(), "remaining": left[each.pool]} for each in rollouts},
        }
        texts = [
            f"{error} Pool {pool}: the replacement of machines has stopped. Still outdated: {abbreviate(left[pool]) or 'none'}. "
            "To continue, fix the cause and run the playbook again."
            for pool, error in errors
        ]
        raise PartialFailure("\n".join(texts), partial)

    def _left(self, rollout: PoolRollout) -> list[str]:
        return [each.name for each in (*rollout.machines, *rollout.remaining) if each.name not in self._gone]

    def _require_sizes(self, groups: t.Collection[str]) -> None:
        """Require that a run after a killed one knows the number of Machines, which is different while a batch is replaced."""
        problems = []
        for name in sorted(groups):
            autoscaled = self.provider.is_autoscaled(name)
            if self.surge and autoscaled:
                problems.append(
                    f"Node group {name}: surge adds a machine to it, but an autoscaler chooses its number of machines; run without surge."
                )
            if self.provider.spec(name).count is None and not autoscaled:
                problems.append(f"Node group {name}: replace_outdated needs its number of machines; set node_count.")
        if problems:
            raise InvalidOptions(problems, INVALID_GROUPS)

    def _replace_pool(self, rollout: PoolRollout, cache: GroupListCache) -> None:
        for number, batch in enumerate(rollout.batches, 1):
            self.drainer.check()
            # The reconciler may have removed some of them to scale a group down.
            current = self._existing(batch)
            if current:
                names = abbreviate([machine.name for machine in current])
                self.progress.report(f"pool {rollout.pool}: replacing {names}", number - 1, len(rollout.batches))
                self._replace(current, cache)

    def _existing(self, machines: t.Iterable[OutdatedMachine]) -> list[OutdatedMachine]:
        """The Machines that neither a run nor somebody else has deleted."""
        live = {
            name_of(machine): machine["metadata"].get("uid")
            for machine in self.api.read().machines
            if not is_deleting(machine)
        }
        return [machine for machine in machines if live.get(machine.name) == machine.uid]

    def _replace(self, machines: t.Sequence[OutdatedMachine], cache: GroupListCache) -> None:
        leaving = {machine.node for machine in machines if machine.node}
        offers_gpus = any(
            any(node.allocatable.values()) for node in self.drainer.cluster_nodes() if node.name in leaving
        )
        groups = Counter((machine.group, machine.machineset) for machine in machines)
        if self.surge:
            self._add(groups, cache, offers_gpus)
        self.drainer.drain(leaving)
        self.drainer.check()
        counts = {machineset: self._count(machineset) for dummy, machineset in groups}
        # A Machine that somebody else has deleted during the drain is replaced already, so its MachineSet has one outdated Machine less to lose.
        drained = self._existing(machines)
        for dummy, machineset in groups:
            names = [each.name for each in drained if each.machineset == machineset]
            if names:
                self.provider.resize(machineset, -len(names), leaving=names)
        self._await(groups, cache, offers_gpus)
        self._require_removed(drained)
        self._gone.update(machine.name for machine in machines)
        if not self.surge:
            # The machine controller tries once to start a new virtual machine, so the GPUs must be free by then.
            for dummy, machineset in groups:
                # An autoscaler may have added the Machine already.
                self.provider.resize(machineset, 0, at_least=counts[machineset])
            self._await(groups, cache, offers_gpus)

    def _require_removed(self, drained: t.Sequence[OutdatedMachine]) -> None:
        """Require that OpenShift has removed the drained Machines instead of others."""
        if kept := self._existing(drained):
            names = abbreviate([str(machine) for machine in kept])
            raise GroupFailed(
                f"Node group {kept[0].group}: OpenShift has removed another machine instead of {names}, which was drained and marked for deletion. "
                "The node stays cordoned, and the next run replaces the machine."
            )

    def _add(self, groups: Counter[tuple[str, str]], cache: GroupListCache, offers_gpus: bool) -> None:
        """Add Machines, and wait for them. If they do not start, or their nodes do not become like those of the batch, remove exactly them again."""
        before = {machine["metadata"]["uid"] for machine in self.api.read().machines}
        for (dummy, machineset), number in groups.items():
            self.provider.resize(machineset, number)
        try:
            self._await(groups, cache, offers_gpus)
        except (GroupFailed, WaitTimeout) as error:
            added = self._added(groups, before)
            surge = f"{error} This was the additional machine of surge."
            try:
                self.drainer.drain(
                    {node for machines in added.values() for each in machines if (node := node_of(each))}
                )
            except WaitTimeout as refusal:
                names = abbreviate([name_of(each) for machines in added.values() for each in machines])
                raise GroupFailed(
                    f"{surge} It stays ({names}), because its node cannot be drained: {refusal}"
                ) from error
            self.drainer.check()
            for (dummy, machineset), number in groups.items():
                # Of all others, none may be chosen: they are in use.
                self.provider.resize(machineset, -number, leaving=map(name_of, added[machineset]))
            raise GroupFailed(
                f"{surge} It is removed again, and no outdated machine was drained or removed. Run without surge if the hosts have no room for it."
            ) from error

    def _added(self, groups: Counter[tuple[str, str]], before: t.Collection[str]) -> dict[str, list[Object]]:
        """The Machines, by MachineSet, that this run has added to those `before`. If others have added more, those that have no node come first."""
        objects = self.api.read()
        added: dict[str, list[Object]] = {}
        for (dummy, machineset), number in groups.items():
            live = objects.machineset(machineset)
            new = [
                machine
                for machine in (machines_of(live, objects.machines) if live else ())
                if machine["metadata"]["uid"] not in before and phase_of(machine) != DELETING
            ]
            new.sort(key=lambda machine: (node_of(machine) is not None, name_of(machine)))
            added[machineset] = [dict(machine) for machine in new[:number]]
        return added

    def _count(self, machineset: str) -> int:
        return int(get_nested(self.api.get(machineset), "spec", "replicas") or 0)

    def _await(self, groups: t.Iterable[tuple[str, str]], cache: GroupListCache, offers_gpus: bool) -> None:
        for group, machineset in groups:
            state = self.provider.get(machineset)
            if state is None:
                raise GroupFailed(f"Node group {group}: MachineSet {machineset} was deleted during this run.")
            change = GroupChange(self.provider.spec(group), UPDATE, machineset, state)
            reconciler = GroupReconciler(cache, change, self.drainer, self.options, self.progress.report)
            reconciler.await_machines(offers_gpus)
