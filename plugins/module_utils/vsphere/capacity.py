# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the hosts can run the machines that are cloned from templates: room on their GPUs, licenses, and the branch of their vGPU managers.

vCenter does not say how many vGPUs fit, so this is computed. Where something is not known, the computation assumes that it fits: a run must not be refused
without a reason. What is refused would otherwise end as a machine that OpenShift's controller tries once to start, and then leaves without a node.
"""

from __future__ import annotations

import itertools
import typing as t
from collections import Counter
from dataclasses import dataclass, field, replace

from ..catalog.vgpu import feature_mismatch, guest_problem, series_of, vgpu_type
from ..core.messages import abbreviate, join_words, option_of_role
from .inventory import (
    MIG,
    MIG_SLICES,
    MIXED_SIZE,
    MULTI_INSTANCE,
    SHARED_DIRECT,
    SHARED_DIRECT_BY,
    TIME_SLICED,
    Gpu,
    Host,
    Inventory,
    Profile,
    gpus_for,
)
from .settings import extra_config, vgpu_profiles
from .templates import FINGERPRINT_KEY, Fingerprint, TemplatePlan

MACHINES_OPTION = option_of_role("nodes.count", "machines")
MAX_MACHINES_OPTION = option_of_role("autoscale.max", "max_machines")
DRIVER_OPTION = option_of_role("driver.version", "driver_version")
FEATURE_OPTION = option_of_role("gpu_licensing_feature_type", "feature_type")
_RECREATE = option_of_role("nodes.recreate", "recreate")
# Up to this number of templates, each order of placing their machines is tried; of more, only as many orders as there are templates.
_TRIED = 4
# The sizes in the names of MIG-backed profiles are rounded, so that their sum may exceed the memory of the GPU.
_ROUNDED = 1.03


@dataclass(frozen=True)
class Machine:
    """A running virtual machine with vGPUs. template, is_current: the declared template that it is a clone of, and whether of the one that is used now."""

    ref: t.Any
    name: str
    host: str
    profiles: tuple[str, ...]
    template: str = ""
    is_current: bool = False


@dataclass(frozen=True)
class Demand:
    """The machines that are cloned from one template.

    machines: their number as declared; None if it is not. most: the number that the autoscaler may reach. hosts: the names of the hosts that they can run on.
    """

    name: str
    profile: Profile
    count: int
    machines: int | None
    most: int
    hosts: tuple[str, ...]
    recreate: bool = False

    @property
    def label(self) -> str:
        """The beginning of messages about this template."""
        return f"Template {self.name}"

    @property
    def vgpus(self) -> str:
        """The vGPUs of a machine."""
        return f"{self.count} x {self.profile.name}"

    def missing(self, machines: t.Iterable[Machine]) -> int:
        """The number of machines that a run creates: those that do not run yet, or all of them if existing ones are replaced."""
        own = [machine for machine in machines if machine.template == self.name]
        replaces = self.recreate and any(not machine.is_current for machine in own)
        return (self.machines or 0) if replaces else max(0, (self.machines or 0) - len(own))


# Places vGPUs on GPUs (pure).


@dataclass
class Card:
    """A GPU of a host with the vGPUs on it. mode: which vGPUs can share it (Gpu.mode)."""

    gpu: Gpu
    host: Host
    mode: str
    used: list[Profile] = field(default_factory=list)

    def copy(self, *, mixed: bool = False) -> Card:
        """A copy, on which more vGPUs can be placed. mixed: on which time-sliced vGPUs of different sizes can be placed."""
        mode = MIXED_SIZE if mixed and self.mode != MULTI_INSTANCE else self.mode
        return Card(self.gpu, self.host, mode, list(self.used))

    def suits(self, profile: Profile) -> bool:
        """Whether vGPUs of a profile can be on this GPU while it is idle."""
        return (
            self.host.name in profile.hosts
            and self.gpu in gpus_for(profile, self.host)
            and self.gpu.runs(profile.sharing)
        )

    def takes(self, profile: Profile) -> bool:
        """Whether one more vGPU of a profile that suits this GPU fits."""
        same = sum(other.name == profile.name for other in self.used)
        if profile.max_per_gpu is not None and same >= profile.max_per_gpu:
            return False
        if any(other.sharing != profile.sharing for other in self.used):
            return False
        sizes = [each.frame_buffer_gib or 0 for each in (*self.used, profile)]
        if profile.sharing == MIG:
            types = [vgpu_type(each.name) for each in (*self.used, profile)]
            slices = sum(known.slices or 0 for known in types if known)
            return slices <= MIG_SLICES and sum(sizes) <= self.gpu.memory_gib * _ROUNDED
        # In equal-size mode, vGPUs of different series may share a GPU (NVIDIA vGPU user guide, "vGPU Modes of Time-Sliced vGPUs").
        return sum(sizes) <= self.gpu.memory_gib and (self.mode == MIXED_SIZE or len(set(sizes)) == 1)


Cards = t.Mapping[str, t.Sequence[Card]]


def cards_of(
    hosts: t.Iterable[Host], machines: t.Iterable[Machine] = (), profiles: t.Mapping[str, Profile] | None = None
) -> Cards:
    """The GPUs of hosts with the vGPUs of running machines, by the name of the host.

    A machine's vGPUs are on the GPUs that the host reports for it; if it reports none, on any that have room.
    """
    cards = {host.name: [Card(gpu, host, gpu.mode) for gpu in host.gpus] for host in hosts}
    for machine in machines:
        on_host = cards.get(machine.host, [])
        reported = [card for card in on_host if machine.ref in card.gpu.machines] or on_host
        for profile in (known for name in machine.profiles if (known := (profiles or {}).get(name))):
            if (card := _card_for([card for card in reported if card.suits(profile)], profile)) is not None:
                card.used.append(profile)
    return cards


def _card_for(cards: t.Iterable[Card], profile: Profile) -> Card | None:
    """The GPU on which a vGPU is placed: one that is used already, so that others stay free for other sizes; None if there is no room."""
    return min((card for card in cards if card.takes(profile)), key=lambda card: not card.used, default=None)


def place(
    cards: Cards, numbers: t.Sequence[tuple[Demand, int]], *, mixed: bool = False, usable: bool = False
) -> dict[str, Counter[str]]:
    """The numbers of machines of each template that fit on each host, in the best of the orders that were tried.

    numbers: the templates and the numbers of machines. mixed: as if each time-sliced GPU took vGPUs of different sizes. usable: only on usable hosts.
    """
    # The largest vGPUs first, because the others fit into what is left.
    ordered = sorted(numbers, key=lambda each: -(each[0].profile.frame_buffer_gib or 0) * each[0].count)
    orders: t.Iterable[t.Sequence[tuple[Demand, int]]] = (
        itertools.permutations(ordered)
        if len(ordered) <= _TRIED
        else [ordered[first:] + ordered[:first] for first in range(len(ordered))]
    )
    best: dict[str, Counter[str]] = {}
    total = sum(number for demand, number in numbers)
    for order in orders:
        placed = _place_in_order(cards, order, mixed=mixed, usable=usable)
        if not best or _total(placed) > _total(best):
            best = placed
        if _total(best) == total:
            break
    return best


def _total(placed: t.Mapping[str, Counter[str]]) -> int:
    return sum(each.total() for each in placed.values())


def _place_in_order(
    cards: Cards, order: t.Iterable[tuple[Demand, int]], *, mixed: bool, usable: bool
) -> dict[str, Counter[str]]:
    free = {host: [card.copy(mixed=mixed) for card in own] for host, own in cards.items()}
    placed: dict[str, Counter[str]] = {}
    for demand, number in order:
        left, on_hosts = number, Counter[str]()
        suitable = {
            host: [
                card for card in free.get(host, ()) if card.suits(demand.profile) and (card.host.usable or not usable)
            ]
            for host in demand.hosts
        }
        # Hosts with a GPU that is used already come first, so that others stay free for other sizes.
        for host in sorted(demand.hosts, key=lambda host: not any(card.used for card in suitable[host])):
            while left and _place_machine(suitable[host], demand):
                left, on_hosts[host] = left - 1, on_hosts[host] + 1
        placed[demand.name] = on_hosts
    return placed


def _place_machine(cards: t.Sequence[Card], demand: Demand) -> bool:
    """Place the vGPUs of one machine, which are all on the same host; whether they fit."""
    taken: list[Card] = []
    for dummy in range(demand.count):
        card = _card_for(cards, demand.profile)
        if card is None:
            for each in taken:
                each.used.pop()
            return False
        card.used.append(demand.profile)
        taken.append(card)
    return True


# Says what does not fit, and what would (pure).


@dataclass
class Assessment:
    """What speaks against templates: problems, which refuse the run, and warnings."""

    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def assess(
    cluster: str,
    hosts: t.Sequence[Host],
    demands: t.Sequence[Demand],
    machines: t.Sequence[Machine] = (),
    profiles: t.Sequence[Profile] = (),
) -> Assessment:
    """Whether the machines of all templates of a cluster fit, alone and together. machines: all that run there. profiles: those of the cluster."""
    result = Assessment()
    known = [demand for demand in demands if demand.profile.gpu_memory_gib and demand.profile.max_per_gpu]
    empty, present = cards_of(hosts), cards_of(hosts, machines, {profile.name: profile for profile in profiles})
    fitting = []
    for demand in known:
        number = demand.missing(machines)
        text = _never_fits(cluster, empty, demand, number)
        text = text or (number and _not_at_present(cluster, present, demand, number, machines, profiles)) or ""
        if text:
            result.problems.append(f"{demand.label}: {text}")
        elif number:
            fitting.append((demand, number))
    # A template that does not fit alone says so itself.
    if text := _not_together(cluster, present, fitting):
        result.problems.append(text)
    elif not result.problems:
        result.warnings += _waiting(present, fitting)
        result.warnings += _overcommitted(cluster, empty, known)
    result.warnings += [
        f"{demand.label}: no host can place {demand.profile.name} at present. Machines start when a GPU is free."
        for demand in demands
        if not demand.profile.placeable_hosts
        and (demand.machines is None or demand.missing(machines))
        and not result.problems
    ]
    return result


def _never_fits(cluster: str, empty: Cards, demand: Demand, number: int) -> str:
    """Why a template's machines do not fit even on idle hosts; empty if they do, or if they run already."""
    most = max(demand.most, 1)
    room = place(empty, [(demand, most)])[demand.name]
    if room.total() >= most:
        return ""
    shown = _per_host(empty, demand, room)
    if not room:
        return f"no host of {cluster} can run a machine with {demand.vgpus} ({shown}). Use a smaller vgpu.count (option count) or profile, or add GPUs"
    if (demand.machines or 0) > room.total():
        if not number:
            return ""
        option, value = MACHINES_OPTION, demand.machines or 0
    else:
        option, value = MAX_MACHINES_OPTION, demand.most
    return (
        f"{option}: the hosts of {cluster} have room for {room.total()} machines with {demand.vgpus}, not for {value} ({shown}). Set at most "
        f"{room.total()}, use a smaller profile, or add GPUs"
    )


def _not_at_present(
    cluster: str,
    present: Cards,
    demand: Demand,
    number: int,
    machines: t.Sequence[Machine],
    profiles: t.Sequence[Profile],
) -> str:
    """Why a template's machines do not fit beside those that run now; empty if they do."""
    room = place(present, [(demand, number)])[demand.name]
    if room.total() >= number:
        return ""
    running = sum(machine.template == demand.name for machine in machines)
    shown = _per_host(present, demand, room)
    if number + running > (demand.machines or 0):
        return (
            f"{_RECREATE}: the run would create {number} new machines with {demand.vgpus} before it deletes the {running} old ones, but the hosts of "
            f"{cluster} have room for {room.total()} more at present ({shown}). Scale the pool down first, or do not recreate its nodes"
        )
    return (
        f"{MACHINES_OPTION}: {running} of {demand.machines} machines with {demand.vgpus} run, and the hosts of {cluster} have room for {room.total()} more "
        f"at present, not for {number} ({shown}). Set at most {running + room.total()}, {_smaller(present, demand, number, profiles)}or free GPUs"
    )


def _smaller(present: Cards, demand: Demand, number: int, profiles: t.Sequence[Profile]) -> str:
    """The largest smaller profile of the same GPU and series with which the machines would fit, as a part of a sentence; empty if there is none."""
    own = vgpu_type(demand.profile.name)
    for profile in sorted(profiles, key=lambda each: -(each.frame_buffer_gib or 0)):
        other = vgpu_type(profile.name)
        if own is None or other is None or (other.gpu, other.series, other.media) != (own.gpu, own.series, own.media):
            continue
        if profile.sharing != demand.profile.sharing or other.size_gib >= own.size_gib:
            continue
        if place(present, [(replace(demand, profile=profile), number)])[demand.name].total() == number:
            return f"use {profile.name}, with which they fit, "
    return ""


def _not_together(cluster: str, present: Cards, numbers: t.Sequence[tuple[Demand, int]]) -> str:
    """Why templates that fit alone do not fit together; empty if they do."""
    total = sum(number for demand, number in numbers)
    placed = place(present, numbers)
    if _total(placed) == total:
        return ""
    names = join_words([demand.name for demand, number in numbers])
    room = join_words(
        [f"{placed[demand.name].total()} of {number} machines of {demand.name}" for demand, number in numbers]
    )
    text = f"Templates {names}: {MACHINES_OPTION}: together, their new machines do not fit on the hosts of {cluster}, which have room for {room}. "
    sizes = {demand.profile.frame_buffer_gib for demand, number in numbers if demand.profile.sharing == TIME_SLICED}
    if len(sizes) > 1 and _total(place(present, numbers, mixed=True)) == total:
        each = join_words(
            [f"{demand.profile.name} ({demand.profile.frame_buffer_gib:g} GiB)" for demand, number in numbers]
        )
        return (
            f"{text}A GPU in the mode Same Size runs vGPUs of one size, and these have several: {each}. Use profiles of one size, these numbers, or "
            "set the vGPU mode of the GPUs to Mixed Size (vSphere 8.0 Update 3 or later), with which they fit"
        )
    return f"{text}Use these numbers of machines, smaller profiles, or free GPUs"


def _waiting(present: Cards, numbers: t.Sequence[tuple[Demand, int]]) -> t.Iterator[str]:
    """Warnings about machines that only fit on hosts that are not usable now, or that vCenter does not consider placeable."""
    placed = place(present, numbers, usable=True)
    for demand, number in numbers:
        if (room := placed[demand.name].total()) < number:
            away = [host for host in demand.hosts if host in demand.profile.hosts and not _is_usable(present, host)]
            yield (
                f"{demand.label}: {number - room} of {number} new machines do not start before {join_words(away)} is connected and not in maintenance mode."
            )


def _overcommitted(cluster: str, empty: Cards, demands: t.Sequence[Demand]) -> t.Iterator[str]:
    """A warning if the autoscaler may create more machines of all templates together than idle hosts can run."""
    scaled = [(demand, demand.most) for demand in demands if demand.most]
    if not any(demand.most > (demand.machines or 0) for demand in demands):
        return
    placed = place(empty, scaled)
    if _total(placed) < sum(number for demand, number in scaled):
        room = join_words(
            [f"{placed[demand.name].total()} of {number} machines of {demand.name}" for demand, number in scaled]
        )
        yield (
            f"The autoscaler may create more machines than the hosts of {cluster} can run at the same time, which have room for {room}. The others do not "
            "start until others are deleted."
        )


def _is_usable(cards: Cards, host: str) -> bool:
    own = cards.get(host)
    return not own or own[0].host.usable


def _per_host(cards: Cards, demand: Demand, room: t.Mapping[str, int]) -> str:
    """The number of machines that fit on each host, with the reason if it is none."""
    texts = []
    for host in demand.hosts:
        own = cards.get(host, [])
        reason = "" if room.get(host) else _reason(own, demand.profile, host)
        texts.append(f"{host}: {room.get(host, 0)}{reason and f', {reason}'}")
    return abbreviate(texts, separator="; ")


def _reason(cards: t.Sequence[Card], profile: Profile, host: str) -> str:
    if not cards:
        return "no GPU"
    if any(card.gpu.graphics_type not in ("", SHARED_DIRECT) for card in cards):
        return f"its GPUs are not Shared Direct (set it {SHARED_DIRECT_BY})"
    if host not in profile.hosts:
        return f"does not offer {profile.name}"
    if not any(card.suits(profile) for card in cards):
        return f"its GPUs are in the mode {join_words(sorted({card.mode for card in cards}))}"
    used = sum(len(card.used) for card in cards)
    return f"{used} vGPUs in use" if used else ""


# Reads what the assessment needs.


def check(inventory: Inventory, plans: t.Sequence[TemplatePlan], owner: str, feature_type: int | None) -> Assessment:
    """What speaks against the declared templates. owner: the cluster whose machines are clones of them. feature_type: the license that nodes request."""
    result = Assessment()
    by_cluster: dict[t.Any, list[TemplatePlan]] = {}
    for plan in plans:
        by_cluster.setdefault(plan.resolved.cluster.ref, []).append(plan)
        series = series_of(plan.resolved.profile.name)
        if series and (reason := feature_mismatch(feature_type, series)):
            result.problems.append(
                f"{plan.resolved.request.label}: {FEATURE_OPTION}: {reason}, such as {plan.resolved.profile.name}. Set 1, or remove it, so that each node "
                "requests the license of its own type"
            )
    for own in by_cluster.values():
        cluster = own[0].resolved.cluster
        hosts = inventory.hosts_of(cluster)
        machines = (
            running_machines(inventory, hosts, own, owner)
            if any(plan.resolved.request.machines for plan in own)
            else []
        )
        profiles = own[0].resolved.profiles
        part = assess(cluster.name, hosts, [_demand(plan) for plan in own], machines, profiles)
        result.problems += [*part.problems, *_manager_problems(inventory, hosts, own)]
        result.warnings += part.warnings
    return result


def _demand(plan: TemplatePlan) -> Demand:
    request = plan.resolved.request
    return Demand(
        request.name,
        plan.resolved.profile,
        request.count,
        request.machines,
        max(request.machines or 0, request.max_machines or 0),
        tuple(host.name for host in plan.resolved.suitable),
        request.recreate,
    )


def running_machines(
    inventory: Inventory, hosts: t.Iterable[Host], plans: t.Iterable[TemplatePlan], owner: str
) -> list[Machine]:
    """The running virtual machines with vGPUs on hosts; those of the cluster `owner` with their declared template. All are read with one request."""
    host_of = {ref: host.name for host in hosts if host.gpus for ref in host.item.get("vm", ())}
    if not host_of:
        return []
    paths = ("name", "runtime.powerState", "config.hardware.device", "config.extraConfig")
    items = inventory.center.read([(ref, "") for ref in host_of], {"VirtualMachine": paths})
    current = {plan.current.instance_uuid for plan in plans if plan.current}
    machines = []
    for item in items:
        profiles = tuple(sorted(vgpu_profiles(item).elements()))
        if not profiles or str(item.get("runtime.powerState")) != "poweredOn":
            continue
        origin = Fingerprint.from_text(extra_config(item).get(FINGERPRINT_KEY, ""))
        own = origin is not None and origin.cluster == owner
        machines.append(
            Machine(
                item.ref,
                item.name,
                host_of[item.ref],
                profiles,
                origin.name if origin is not None and own else "",
                is_current=origin is not None and own and origin.instance_uuid in current,
            )
        )
    return machines


def _manager_problems(
    inventory: Inventory, hosts: t.Sequence[Host], plans: t.Sequence[TemplatePlan]
) -> t.Iterator[str]:
    """The declared guest drivers that the managers of hosts do not support. The versions are only read if a driver is declared."""
    offering = {
        plan.resolved.request.name: [
            host for host in plan.resolved.suitable if host.usable and host.name in plan.resolved.profile.hosts
        ]
        for plan in plans
        if plan.resolved.request.driver_version
    }
    needed = {host.name for each in offering.values() for host in each}
    versions = inventory.manager_versions([host for host in hosts if host.name in needed]) if needed else {}
    for plan in plans:
        request = plan.resolved.request
        by_text: dict[str, list[str]] = {}
        for host in offering.get(request.name, ()):
            version = versions.get(host.name)
            text = guest_problem(request.driver_version or "", version) if version else ""
            by_text.setdefault(text, []).append(host.name)
        for text, names in by_text.items():
            if text:
                yield f"{request.label}: {DRIVER_OPTION}: {text.rstrip('.')} ({abbreviate(names)})"
