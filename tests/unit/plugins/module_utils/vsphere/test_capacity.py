# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which machines fit on the GPUs of hosts, alone and together, and what is said of those that do not."""

from __future__ import annotations

import typing as t
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.vsphere.capacity import (
    Assessment,
    Demand,
    Machine,
    assess,
    cards_of,
    place,
)
from ansible_collections.accel.gpu.plugins.module_utils.vsphere.client import Item
from ansible_collections.accel.gpu.plugins.module_utils.vsphere.inventory import Host, Profile

from .objects import CONSOLE, Object, graphics_info, host, inventory

A100 = ("grid_a100-5c", "grid_a100-10c", "grid_a100-20c", "grid_a100-40c", "grid_a100-10q")
SLICED = ("grid_a100-1-5c", "grid_a100-2-10c", "grid_a100-3-20c", "grid_a100-7-40c", "grid_a100-1-5cme")


def card(mode: str | None = "sameSize", graphics: str = "sharedDirect", *machines: str) -> SimpleNamespace:
    """An A100 with 40 GB in a mode; None as an API without modes."""
    modes = {} if mode is None else {"vgpuMode": mode}
    return graphics_info(
        "0000:3b:00.0",
        "NVIDIA A100-PCIE-40GB",
        memorySizeInKB=40 << 20,
        graphicsType=graphics,
        vm=list(machines),
        **modes,
    )


def esx(name: str, *cards: SimpleNamespace, profiles: t.Sequence[str] = A100, **changed: t.Any) -> Item:
    return host(name, *cards, profiles=profiles, **changed)


class Cluster:
    """Hosts, and the profiles that they offer."""

    def __init__(self, *hosts: Item) -> None:
        site = inventory(*hosts)
        cluster = site.items["cluster-a"]
        self.hosts: list[Host] = site.hosts_of(cluster)
        self.profiles: list[Profile] = site.profiles(cluster)

    def demand(
        self, name: str, profile: str, machines: int | None = 1, count: int = 1, most: int = 0, **more: t.Any
    ) -> Demand:
        (known,) = [each for each in self.profiles if each.name == profile]
        return Demand(
            name, known, count, machines, max(machines or 0, most), tuple(each.name for each in self.hosts), **more
        )

    def assess(self, *demands: Demand, machines: t.Sequence[Machine] = ()) -> Assessment:
        return assess("cluster-a", self.hosts, demands, machines, self.profiles)


def runs(name: str, on: str, *profiles: str, template: str = "", current: bool = True) -> Machine:
    return Machine(name, name, on, profiles or ("grid_a100-10c",), template, current)


TWO = (esx("esx-1", card(), card()), esx("esx-2", card(), card()))
IN_MIG = esx("esx-1", card("multiInstanceGpu"), profiles=SLICED)


@pytest.mark.parametrize(
    ("hosts", "profile", "count", "room"),
    [
        # Four vGPUs of 10 GB on each of four GPUs.
        (TWO, "grid_a100-10c", 1, {"esx-1": 8, "esx-2": 8}),
        (TWO, "grid_a100-40c", 1, {"esx-1": 2, "esx-2": 2}),
        # All vGPUs of a machine are on one host, but may be on several of its GPUs.
        (TWO, "grid_a100-40c", 2, {"esx-1": 1, "esx-2": 1}),
        (TWO, "grid_a100-40c", 3, {}),
        (TWO, "grid_a100-10c", 3, {"esx-1": 2, "esx-2": 2}),
        (TWO, "grid_a100-10c", 9, {}),
        # The mode of a GPU decides which profiles it has.
        ((IN_MIG,), "grid_a100-1-5c", 1, {"esx-1": 7}),
        ((IN_MIG,), "grid_a100-2-10c", 1, {"esx-1": 3}),
        ((IN_MIG,), "grid_a100-3-20c", 1, {"esx-1": 2}),
        ((IN_MIG,), "grid_a100-1-5cme", 1, {"esx-1": 1}),
        ((esx("esx-1", card("multiInstanceGpu"), card()),), "grid_a100-10c", 1, {"esx-1": 4}),
        # An old API does not say it.
        ((esx("esx-1", card(None)),), "grid_a100-10c", 1, {"esx-1": 4}),
        ((esx("esx-1", card(None), profiles=SLICED),), "grid_a100-1-5c", 1, {"esx-1": 7}),
        ((esx("esx-1", card("none")),), "grid_a100-20c", 1, {"esx-1": 2}),
        # What is not Shared Direct, or on a host that does not offer the profile, has no room.
        ((esx("esx-1", card(graphics="shared"), card()),), "grid_a100-10c", 1, {"esx-1": 4}),
        ((esx("esx-1", card()), esx("esx-2", card(), profiles=A100[:1])), "grid_a100-10c", 1, {"esx-1": 4}),
    ],
)
def test_the_room_of_idle_hosts(hosts: t.Sequence[Item], profile: str, count: int, room: dict[str, int]) -> None:
    cluster = Cluster(*hosts)
    demand = cluster.demand("a", profile, count=count)
    assert place(cards_of(cluster.hosts), [(demand, 100)])["a"] == room


def test_the_adapter_of_the_mainboard_is_no_reason() -> None:
    cluster = Cluster(esx("esx-1", CONSOLE, card()))
    (problem,) = cluster.assess(cluster.demand("a", "grid_a100-40c"), machines=[runs("x", "esx-1")]).problems
    assert "(esx-1: 0, 1 vGPUs in use)" in problem


@pytest.mark.parametrize(
    ("hosts", "machines", "profile", "room"),
    [
        (TWO, [runs("x", "esx-1")], "grid_a100-10c", 15),
        # The GPU of another size takes none in the mode Same Size.
        (TWO, [runs("x", "esx-1")], "grid_a100-20c", 6),
        # vGPUs of another series, but the same size.
        (TWO, [runs("x", "esx-1", "grid_a100-10q")], "grid_a100-10c", 15),
        (TWO, [runs("x", "esx-1", "grid_a100-40c", "grid_a100-40c")], "grid_a100-20c", 4),
        ([esx("esx-1", card("mixedSize"))], [runs("x", "esx-1")], "grid_a100-20c", 1),
        (
            [esx("esx-1", card("mixedSize"))],
            [runs("x", "esx-1"), runs("y", "esx-1", "grid_a100-20c")],
            "grid_a100-5c",
            2,
        ),
        # vCenter reports that the policy Performance has spread the two machines.
        (
            [esx("esx-1", card("sameSize", "sharedDirect", "x"), card("sameSize", "sharedDirect", "y"))],
            [runs("x", "esx-1"), runs("y", "esx-1")],
            "grid_a100-20c",
            0,
        ),
        # Otherwise, they are supposed to be together.
        ([esx("esx-1", card(), card())], [runs("x", "esx-1"), runs("y", "esx-1")], "grid_a100-20c", 2),
        # MIG instances share slices and memory.
        ([IN_MIG], [runs("x", "esx-1", "grid_a100-3-20c")], "grid_a100-1-5c", 4),
        ([IN_MIG], [runs("x", "esx-1", "grid_a100-3-20c"), runs("y", "esx-1", "grid_a100-2-10c")], "grid_a100-1-5c", 2),
        # A profile that nobody knows, and a host that is not in the cluster.
        (TWO, [runs("x", "esx-1", "future"), runs("y", "esx-9")], "grid_a100-40c", 4),
    ],
)
def test_the_room_beside_running_machines(
    hosts: t.Sequence[Item], machines: list[Machine], profile: str, room: int
) -> None:
    cluster = Cluster(*hosts)
    cards = cards_of(cluster.hosts, machines, {each.name: each for each in cluster.profiles})
    assert place(cards, [(cluster.demand("a", profile), 100)])["a"].total() == room


@given(st.lists(st.tuples(st.sampled_from(A100), st.integers(1, 3), st.integers(1, 6)), min_size=1, max_size=3))
def test_what_is_placed_never_exceeds_the_gpus(numbers: list[tuple[str, int, int]]) -> None:
    cluster = Cluster(*TWO)
    demands = [
        (cluster.demand(str(index), name, count=count), number) for index, (name, count, number) in enumerate(numbers)
    ]
    placed = place(cards_of(cluster.hosts), demands)
    used = sum(
        placed[demand.name].total() * demand.count * (demand.profile.frame_buffer_gib or 0) for demand, dummy in demands
    )
    assert used <= 4 * 40
    assert all(placed[demand.name].total() <= number for demand, number in demands)


def test_the_order_of_templates_does_not_matter() -> None:
    """Machines with two vGPUs of 20 GB need a host with two halves; the small ones first would take both."""
    cluster = Cluster(esx("esx-1", card()), esx("esx-2", card()))
    small, pair = cluster.demand("small", "grid_a100-10c", 4), cluster.demand("pair", "grid_a100-20c", 1, count=2)
    for order in ([small, pair], [pair, small]):
        assert cluster.assess(*order) == Assessment()


def test_many_templates_are_placed_in_several_orders() -> None:
    cluster = Cluster(esx("esx-1", *(card() for dummy in range(6))))
    demands = [cluster.demand(str(number), "grid_a100-10c", 4) for number in range(4)]
    demands += [cluster.demand("pair", "grid_a100-20c", 1, count=2), cluster.demand("whole", "grid_a100-40c", 1)]
    assert cluster.assess(*demands) == Assessment()


def test_a_gpu_that_is_used_already_is_filled_first() -> None:
    """Otherwise, neither GPU is free for the vGPU that needs a whole one."""
    cluster = Cluster(esx("esx-1", card()), esx("esx-2", card()))
    small, whole = cluster.demand("small", "grid_a100-10c", 3), cluster.demand("whole", "grid_a100-40c", 1)
    assert cluster.assess(small, whole, machines=[runs("x", "esx-2")]) == Assessment()


FULL = [runs(f"x{number}", host) for host in ("esx-1", "esx-2") for number in range(8)]
OWN = [runs(f"a{number}", "esx-1", template="a") for number in range(4)]
# machines of the cluster, templates (name, profile, machines, ...), and the problem.
REFUSED: list[tuple[t.Sequence[Item], list[Machine], list[Object], str]] = [
    (
        TWO,
        [],
        [{"name": "a", "profile": "grid_a100-10c", "machines": 20}],
        "Template a: nodes.count (option machines of the module): the hosts of cluster-a have room for 16 machines with 1 x grid_a100-10c, not for 20 (esx-1: 8; "
        "esx-2: 8). Set at most 16, use a smaller profile, or add GPUs",
    ),
    (
        TWO,
        [],
        [{"name": "a", "profile": "grid_a100-10c", "machines": 1, "most": 17}],
        "Template a: autoscale.max (option max_machines of the module): the hosts of cluster-a have room for 16 machines with 1 x grid_a100-10c, not for 17",
    ),
    (
        TWO,
        [],
        [{"name": "a", "profile": "grid_a100-40c", "machines": None, "count": 3}],
        "Template a: no host of cluster-a can run a machine with 3 x grid_a100-40c (esx-1: 0; esx-2: 0). Use a smaller vgpu.count (option count)",
    ),
    (
        [
            esx("esx-1", card("multiInstanceGpu")),
            esx("esx-2", card(graphics="shared")),
            esx("esx-3"),
            esx("esx-4", card(), profiles=A100[:1]),
        ],
        [],
        [{"name": "a", "profile": "grid_a100-10c"}],
        "Template a: no host of cluster-a can run a machine with 1 x grid_a100-10c (esx-1: 0, its GPUs are in the mode multiInstanceGpu; esx-2: 0, its GPUs are "
        "not Shared Direct (set it with the playbook vsphere_hosts or the module host_graphics); esx-3: 0, no GPU; esx-4: 0, does not offer grid_a100-10c)",
    ),
    (
        TWO,
        FULL[:14],
        [{"name": "a", "profile": "grid_a100-10c", "machines": 4}],
        "Template a: nodes.count (option machines of the module): 0 of 4 machines with 1 x grid_a100-10c run, and the hosts of cluster-a have room for 2 more at "
        "present, not for 4 (esx-1: 0, 8 vGPUs in use; esx-2: 2). Set at most 2, or free GPUs",
    ),
    # One GPU of 40 GB is free, on which vGPUs of 20 GB would all fit.
    (
        TWO,
        FULL[:12],
        [{"name": "a", "profile": "grid_a100-40c", "machines": 2}],
        "(esx-1: 0, 8 vGPUs in use; esx-2: 1). Set at most 1, use grid_a100-20c, with which they fit, or free GPUs",
    ),
    (
        TWO,
        [*OWN, *FULL[4:]],
        [{"name": "a", "profile": "grid_a100-10c", "machines": 6}],
        "4 of 6 machines with 1 x grid_a100-10c run, and the hosts of cluster-a have room for 0 more at present, not for 2",
    ),
    # Four more machines before the old ones are deleted.
    (
        TWO,
        [*[runs(f"a{number}", "esx-1", template="a", current=False) for number in range(4)], *FULL[4:14]],
        [{"name": "a", "profile": "grid_a100-10c", "machines": 4, "recreate": True}],
        "Template a: nodes.recreate (option recreate of the module): the run would create 4 new machines with 1 x grid_a100-10c before it deletes the 4 old "
        "ones, but the hosts of cluster-a have room for 2 more at present",
    ),
    (
        TWO,
        [],
        [
            {"name": "a", "profile": "grid_a100-10c", "machines": 10},
            {"name": "b", "profile": "grid_a100-10q", "machines": 8},
        ],
        "Templates a and b: nodes.count (option machines of the module): together, their new machines do not fit on the hosts of cluster-a, which have room for",
    ),
    # 10 and 20 GB: five GPUs in the mode Same Size, but only four in the mode Mixed Size.
    (
        TWO,
        [],
        [
            {"name": "a", "profile": "grid_a100-10c", "machines": 2},
            {"name": "b", "profile": "grid_a100-20c", "machines": 7},
        ],
        "A GPU in the mode Same Size runs vGPUs of one size, and these have several: grid_a100-10c (10 GiB) and grid_a100-20c (20 GiB). Use profiles of one "
        "size, these numbers, or set the vGPU mode of the GPUs to Mixed Size (vSphere 8.0 Update 3 or later), with which they fit",
    ),
]


@pytest.mark.parametrize(("hosts", "machines", "declared", "message"), REFUSED)
def test_what_is_refused(
    hosts: t.Sequence[Item], machines: list[Machine], declared: list[Object], message: str
) -> None:
    cluster = Cluster(*hosts)
    actual = cluster.assess(*(cluster.demand(**each) for each in declared), machines=machines)
    (problem,) = actual.problems
    assert message in problem
    assert actual.warnings == []


MAINTENANCE: Object = {"runtime_inMaintenanceMode": True}
ACCEPTED: list[tuple[t.Sequence[Item], list[Machine], list[Object], list[str]]] = [
    (TWO, [], [{"name": "a", "profile": "grid_a100-10c", "machines": 16}], []),
    (TWO, [], [{"name": "a", "profile": "grid_a100-10c", "machines": 0, "most": 16}], []),
    # Machines that run already need no room, even if the hosts have become too small.
    (TWO, [*OWN, *FULL[4:]], [{"name": "a", "profile": "grid_a100-10c", "machines": 4}], []),
    (TWO, [*OWN, *FULL[4:]], [{"name": "a", "profile": "grid_a100-10c", "machines": 2, "recreate": True}], []),
    (
        [esx("esx-1", card())],
        [*OWN, *(runs(f"b{i}", "esx-1", template="a") for i in range(4))],
        [{"name": "a", "profile": "grid_a100-10c", "machines": 8}],
        [],
    ),
    # Different sizes on different GPUs, and on one in the mode Mixed Size.
    (
        TWO,
        [],
        [
            {"name": "a", "profile": "grid_a100-10c", "machines": 8},
            {"name": "b", "profile": "grid_a100-20c", "machines": 4},
        ],
        [],
    ),
    (
        [esx("esx-1", card("mixedSize"))],
        [],
        [{"name": "a", "profile": "grid_a100-10c", "machines": 2}, {"name": "b", "profile": "grid_a100-20c"}],
        [],
    ),
    # Others need the GPUs at present, but the autoscaler may use them later.
    (TWO, FULL, [{"name": "a", "profile": "grid_a100-10c", "machines": 0, "most": 16}], []),
    (
        TWO,
        [],
        [{"name": name, "profile": "grid_a100-10c", "machines": 1, "most": 10} for name in "ab"],
        [
            "The autoscaler may create more machines than the hosts of cluster-a can run at the same time, which have room for 10 of 10 machines of a and 6 of 10 "
            "machines of b."
        ],
    ),
    (
        [esx("esx-1", card()), esx("esx-2", card(), **MAINTENANCE)],
        [],
        [{"name": "a", "profile": "grid_a100-10c", "machines": 6}],
        ["Template a: 2 of 6 new machines do not start before esx-2 is connected and not in maintenance mode."],
    ),
    # vCenter knows better.
    (
        [esx("esx-1", card(), config_sharedPassthruGpuTypes=[])],
        [],
        [{"name": "a", "profile": "grid_a100-10c", "machines": 1}],
        ["Template a: no host can place grid_a100-10c at present."],
    ),
    (
        [esx("esx-1", card(), config_sharedPassthruGpuTypes=[])],
        [],
        [{"name": "a", "profile": "grid_a100-10c", "machines": None}],
        ["Template a: no host can place grid_a100-10c at present."],
    ),
    (
        [esx("esx-1", card(), config_sharedPassthruGpuTypes=[])],
        OWN,
        [{"name": "a", "profile": "grid_a100-10c", "machines": 4}],
        [],
    ),
    # Without the memory of the GPUs, nothing can be computed.
    ([host("esx-1", profiles=A100)], [], [{"name": "a", "profile": "grid_a100-10c", "machines": 99}], []),
]


@pytest.mark.parametrize(("hosts", "machines", "declared", "warnings"), ACCEPTED)
def test_what_is_accepted(
    hosts: t.Sequence[Item], machines: list[Machine], declared: list[Object], warnings: list[str]
) -> None:
    cluster = Cluster(*hosts)
    actual = cluster.assess(*(cluster.demand(**each) for each in declared), machines=machines)
    assert actual.problems == []
    assert len(actual.warnings) == len(warnings), actual.warnings
    for text, start in zip(actual.warnings, warnings, strict=True):
        assert text.startswith(start)
