# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From every sharing to every other one with running pods: the exact result, and only the planned pods are evicted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.helpers.rolling import POOL, Rolling
from tests.helpers.workloads import GPU, INNOCENT, NAMESPACE, URGENT, WAYS, Users
from tests.labs import Lab

pytestmark = [pytest.mark.timeout(600)]

NODES, GPUS = 2, 2
PRODUCT = "NVIDIA-A100-SXM4-80GB"
SHARED = "nvidia.com/gpu.shared"
HALVES = {"3g.40gb": 2}


@dataclass(frozen=True)
class Mode:
    """A sharing, the resources of a node with two GPUs, and the labels product, replicas, strategy, MIG and MPS."""

    sharing: dict[str, Any]
    offers: dict[str, int]
    labels: tuple[str, str, str, str, str]


MODES = {
    "none": Mode({"mode": "none"}, {GPU: 2}, (PRODUCT, "1", "none", "", "false")),
    "time-slicing": Mode(
        {"mode": "time-slicing", "replicas": 4},
        {GPU: 8},
        (f"{PRODUCT}-SHARED", "4", "time-slicing", "", "false"),
    ),
    "renamed": Mode(
        {"mode": "time-slicing", "replicas": 4, "rename": True},
        {SHARED: 8},
        (PRODUCT, "4", "time-slicing", "", "false"),
    ),
    "mps": Mode({"mode": "mps", "replicas": 4}, {GPU: 8}, (f"{PRODUCT}-SHARED", "4", "mps", "", "true")),
    "mig-single": Mode(
        {"mode": "mig", "layout": HALVES}, {GPU: 4}, (f"{PRODUCT}-MIG-3g.40gb", "1", "none", "single", "false")
    ),
    "mig-mixed": Mode(
        {"mode": "mig", "layout": {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}},
        {"nvidia.com/mig-1g.10gb": 4, "nvidia.com/mig-2g.20gb": 2, "nvidia.com/mig-3g.40gb": 2},
        (PRODUCT, "0", "none", "mixed", "false"),
    ),
    "mig-sliced": Mode(
        {"mode": "mig", "layout": HALVES, "replicas": 2},
        {GPU: 8},
        (f"{PRODUCT}-MIG-3g.40gb-SHARED", "2", "time-slicing", "single", "false"),
    ),
}

# Which pods a change from one mode (row) to another (column) evicts, if all resources are in use: none, as many
# holders as exceed the new number (lowest priority first, then the youngest), all holders of a resource, or all
# pods that use a GPU in any way. The reason is in NVIDIA's agents: a kubelet does not stop pods whose resource
# disappears; only MPS and a change of MIG devices need an unused GPU.
NO_PODS, HOLDERS, ALL = 0, "holders", "all"
GOES: dict[str, dict[str, int | str]] = {
    "none": {
        "time-slicing": NO_PODS, "renamed": HOLDERS, "mps": ALL,
        "mig-single": ALL, "mig-mixed": ALL, "mig-sliced": ALL,
    },
    "time-slicing": {
        "none": 6, "renamed": HOLDERS, "mps": ALL,
        "mig-single": ALL, "mig-mixed": ALL, "mig-sliced": ALL,
    },
    "renamed": {
        "none": HOLDERS, "time-slicing": HOLDERS, "mps": ALL,
        "mig-single": ALL, "mig-mixed": ALL, "mig-sliced": ALL,
    },
    "mps": {
        "none": ALL, "time-slicing": ALL, "renamed": ALL,
        "mig-single": ALL, "mig-mixed": ALL, "mig-sliced": ALL,
    },
    "mig-single": {
        "none": ALL, "time-slicing": ALL, "renamed": ALL, "mps": ALL,
        "mig-mixed": ALL, "mig-sliced": NO_PODS,
    },
    "mig-mixed": {
        "none": ALL, "time-slicing": ALL, "renamed": ALL, "mps": ALL,
        "mig-single": ALL, "mig-sliced": ALL,
    },
    "mig-sliced": {
        "none": ALL, "time-slicing": ALL, "renamed": ALL, "mps": ALL,
        "mig-single": 4, "mig-mixed": ALL,
    },
}  # fmt: skip


def change(before: str, after: str) -> str:
    """The kind of change of a node."""
    cut = {"mig-single": "halves", "mig-sliced": "halves", "mig-mixed": "mixture"}
    if cut.get(before) == cut.get(after):
        return "plugin"
    return "mig-geometry" if before in cut and after in cut else "mig-mode"


def rounds(first: int, names: list[str]) -> Iterator[tuple[str, str]]:
    """Every ordered pair once, each beginning with the final mode of the one before."""
    for other in range(first + 1, len(names)):
        yield names[first], names[other]
        if other == first + 1:
            yield from rounds(other, names)
        yield names[other], names[first]


PAIRS = list(rounds(0, list(MODES)))


def test_all_pairs_are_covered() -> None:
    assert sorted(PAIRS) == sorted((before, after) for before, row in GOES.items() for after in row)
    assert len(PAIRS) == len(set(PAIRS)) == len(MODES) * (len(MODES) - 1)
    assert all(PAIRS[at][1] == PAIRS[at + 1][0] for at in range(len(PAIRS) - 1))


@pytest.fixture(scope="module")
def rolling(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Rolling:
    return Rolling(lab).install(tmp_path_factory.mktemp("transitions"), NODES, GPUS)


@pytest.fixture
def users(rolling: Rolling) -> Iterator[Users]:
    """No pods are running before and after the test."""
    rolling.users.delete_all()
    yield rolling.users
    rolling.users.delete_all()


def at_work(users: Users, node: str, before: str, after: str) -> None:
    """Start as many pods as fit with the node's resources, some that use a GPU in other ways, and some without; those to evict are labeled."""
    evicted = GOES[before][after]
    for resource, fits in MODES[before].offers.items():
        name = f"{node}-{resource.partition('/')[2].replace('.', '-')}"
        leaving = evicted if isinstance(evicted, int) else fits
        # One of the two that stay is the youngest of all: priority is compared before age.
        old, urgent = max(fits - leaving - 1, 0), min(fits - leaving, 1)
        for part, count, priority, leaves in (
            ("old", old, "", False),
            ("young", leaving, "", True),
            ("urgent", urgent, URGENT, False),
        ):
            if count:
                marks = {"leaves": "yes"} if leaves else {}
                users.deployment(f"{name}-{part}", node, count, resource=resource, priority=priority, labels=marks)
                users.wait_running(count, f"{name}-{part}")
                require_another_second(users, f"{name}-{part}")
    marks = {"leaves": "yes"} if evicted == ALL else {}
    users.claimable(node)
    for name, way in WAYS.items():
        users.deployment(f"{node}-{name}", node, way=way, labels=marks)
    for name, way in INNOCENT.items():
        users.deployment(f"{node}-{name}", node, way=way)


def require_another_second(users: Users, app: str) -> None:
    """Pods created later are younger, also by the whole seconds of the API server's timestamps."""
    newest = max(pod["metadata"]["creationTimestamp"] for pod in users.pods(app))
    users.until(lambda: server_time(users) > newest, "the next second")


def server_time(users: Users) -> str:
    """The API server's clock, from a pod in a dry run."""
    body = {"metadata": {"name": "clock"}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    created = users.api.request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All", body)
    return str(created["metadata"]["creationTimestamp"])


def labels(node: dict[str, Any]) -> tuple[str, ...]:
    actual = node["metadata"]["labels"]
    keys = ("gpu.product", "gpu.replicas", "gpu.sharing-strategy", "mig.strategy", "mps.capable")
    return tuple(actual.get(f"nvidia.com/{key}", "") for key in keys)


@pytest.mark.usual(60)
@pytest.mark.sampled(1, group="changes between modes")
@pytest.mark.parametrize(("before", "after"), PAIRS, ids=[f"{a}-to-{b}" for a, b in PAIRS])
def test_exactly_the_planned_pods_are_evicted(rolling: Rolling, users: Users, before: str, after: str) -> None:
    begun = rolling.share(MODES[before].sharing)
    assert not begun.get("failed"), begun["msg"]
    nodes = rolling.nodes()
    for node in nodes:
        at_work(users, node, before, after)
    count = NODES * (sum(MODES[before].offers.values()) + len(WAYS) + len(INNOCENT))
    present = users.wait_running(count)
    leaving = [pod for pod in present if pod["metadata"]["labels"].get("leaves")]

    predicted = rolling.share(MODES[after].sharing, check=True, diff=True)
    with users.watched() as watch:
        done = rolling.share(MODES[after].sharing, diff=True)
    assert not done.get("failed"), done["msg"]

    assert rolling.cluster.offered("a100-") == dict.fromkeys(nodes, MODES[after].offers)
    assert {labels(rolling.cluster.nodes()[name]) for name in nodes} == {MODES[after].labels}
    rolling.require_clean()

    assert {gone.uid for gone in watch.gone.values()} == {pod["metadata"]["uid"] for pod in leaving}
    assert watch.not_evicted() == []
    steps = done["gpu_sharing"]["steps"]
    assert steps == predicted["gpu_sharing"]["steps"]
    assert {name: (step["pool"], step["change"], sorted(step["evicts"])) for name, step in steps.items()} == {
        node: (
            POOL,
            change(before, after),
            sorted(f"{NAMESPACE}/{pod['metadata']['name']}" for pod in leaving if pod["spec"]["nodeName"] == node),
        )
        for node in nodes
    }
    assert done["gpu_sharing"]["change_counts"] == {change(before, after): NODES}
    assert predicted["diff"] == done["diff"]
    assert predicted["changed"] is done["changed"] is True

    again = rolling.share(MODES[after].sharing)
    assert (again["changed"], again["gpu_sharing"]["steps"]) == (False, {})
