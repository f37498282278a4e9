# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The explanation (Python) and the simulated autoscaler (Go), which share no code, agree whether a pool is scaled from zero.

They agree on a pod if the autoscaler adds a node for it, and the pod fits on that node once it has the labels and taints of its MachineSet.
"""

from __future__ import annotations

import copy
import itertools
import json
import random
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.scaling_state import (
    ScalingExplanation,
    explain_scaling,
)
from lab import build
from tests.helpers.machine_sets import ACCELERATOR, MAX_SIZE, MIN_SIZE, NEW, OLD, VOLUME_ZONE, ZONE
from tests.helpers.scaling_cases import MISTAKES, POOLS, TEAM, VERSIONS, Scene, node, scene, with_mistake

Object = dict[str, Any]
Decide = Callable[[Iterable[Object]], list[Object]]

POOL = "accel.gpu/pool"
# The additional labels by which a pod selects nodes; every pod selects the pool.
SELECTIONS: tuple[tuple[str, ...], ...] = ((), (ZONE,), (TEAM,), (ZONE, VOLUME_ZONE, TEAM))
# The API server's rule for the value of a label (apimachinery, pkg/util/validation).
LEGAL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


@dataclass(frozen=True)
class Case:
    """The objects of a pool and a pending pod, and what distinguishes them, for messages."""

    title: str
    scene: Scene
    labels: tuple[str, ...]

    @property
    def pod(self) -> Object:
        """A pod that requests the pool's resource, tolerates its taints, and selects nodes by these labels with the values that a correct node has."""
        correct = scene(self.scene.pool.name, self.scene.version).template["metadata"]["labels"]
        resource = self.scene.pool.resource
        return {
            "metadata": {"name": "p", "namespace": "n"},
            "spec": {
                "nodeSelector": {key: correct[key] for key in (POOL, *self.labels)},
                "tolerations": [dict(item) for item in self.scene.pool.tolerations],
                "containers": [{"name": "c", "resources": {"requests": {resource: "1"}}}],
            },
        }

    def question(self, *nodes: Object) -> Object:
        """The input of `sim autoscale`."""
        return {
            "release": ".".join(self.scene.version.split(".")[:2]),
            "machine_sets": [{**self.scene.machine_set, "spec": {"selector": {}, **self.scene.machine_set["spec"]}}],
            "machine_autoscalers": self.scene.machine_autoscalers,
            "cluster_autoscaler": self.scene.autoscaler,
            "nodes": [*self.scene.nodes, *nodes],
            "pod": self.pod,
        }

    def new_node(self) -> Object:
        """The node that the MachineSet creates, with the devices of the pool; an illegal label makes the API server reject all labels and taints."""
        actual = node("new")
        zone = self.scene.template["providerSpec"]["value"]["placement"]["availabilityZone"]
        actual["metadata"]["labels"] = {ZONE: zone, VOLUME_ZONE: zone}
        labels, taints = self.scene.template["metadata"]["labels"], self.scene.template["taints"]
        if all(LEGAL.fullmatch(value) for value in labels.values()):
            # The scheduler does not wait for what the autoscaler waits for: the accelerator label's GPUs, and the end of startup taints.
            actual["metadata"]["labels"].update({key: value for key, value in labels.items() if key != ACCELERATOR})
            actual["spec"]["taints"] = [
                dict(taint) for taint in taints if not taint["key"].startswith("startup-taint.")
            ]
        offered = dict.fromkeys(self.scene.pool.resources, "7") | {"cpu": "4", "memory": "16Gi", "pods": "110"}
        actual["status"]["allocatable"] = offered
        return actual


def explanation(case: Case) -> ScalingExplanation:
    (actual,) = explain_scaling(case.scene.pool, case.scene.state())
    return actual


def expected(case: Case) -> bool:
    """Whether the explanation says that the pod adds a node."""
    return explanation(case).scales_for((POOL, *case.labels))


@pytest.fixture(scope="module")
def decide() -> Decide:
    """Return a function that runs `sim autoscale` for many clusters at once."""
    program = build.ensure(["sim"])["sim"] / "bin" / "sim"

    def run(questions: Iterable[Object]) -> list[Object]:
        lines = "\n".join(json.dumps(question) for question in questions)
        done = subprocess.run([program, "autoscale"], input=lines, capture_output=True, text=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


def compare(decide: Decide, cases: Sequence[Case]) -> Counter[bool]:
    """Compare both for all cases, and return how many were scaled and how many were not."""
    decisions = decide(case.question() for case in cases)
    # Where the autoscaler adds a node, the pod must fit on the node that the machine becomes.
    fits = decide(case.question(case.new_node()) for case in cases)
    differing = []
    counts: Counter[bool] = Counter()
    for case, decision, later in zip(cases, decisions, fits, strict=True):
        assert not re.search("no rules|no pod", decision.get("problem", "")), decision
        actual = decision["scales"] and later.get("waiting", False)
        counts[actual] += 1
        if actual != expected(case):
            findings = [(finding.code, finding.effect) for finding in explanation(case).findings]
            differing.append(
                f"{case.title}: the simulator says {actual} ({decision}, {later}), the explanation {findings}"
            )
    assert not differing, f"{len(differing)} of {len(cases)}:\n" + "\n".join(differing[:5])
    return counts


def show(request: pytest.FixtureRequest, counts: Counter[bool], what: str) -> None:
    """Print the number of cases."""
    with request.getfixturevalue("capsys").disabled():
        text = f"{counts.total()} cases of {what}: {counts[True]} scale from zero, {counts[False]} do not"
        print(f"\n{text}; the explanation agrees with the simulated autoscaler")


def selections(pool: str) -> Iterable[tuple[str, ...]]:
    declared = POOLS[pool].get("labels", {})
    return [labels for labels in SELECTIONS if TEAM not in labels or TEAM in declared]


@pytest.mark.usual(5)
@pytest.mark.parametrize("version", VERSIONS)
def test_each_mistake_and_none_in_each_pool(decide: Decide, request: pytest.FixtureRequest, version: str) -> None:
    """T4 shared by four, renamed and not, MIG mixed, and a vGPU."""
    cases = [
        Case(
            f"{pool} {version} {mistake} {labels}",
            with_mistake(pool, version, mistake) if mistake else scene(pool, version),
            labels,
        )
        for pool, mistake in itertools.product(POOLS, ("", *MISTAKES))
        for labels in selections(pool)
        if mistake != "no label of the pool" or TEAM in POOLS[pool].get("labels", {})
    ]
    counts = compare(decide, cases)
    assert min(counts[True], counts[False]) > 40
    show(request, counts, f"single mistakes in OpenShift {version}")


VALUES = (
    "",
    "0",
    "1",
    "4",
    "7",
    "16384",
    "16Gi",
    "3500m",
    "nvidia.com/gpu",
    "nvidia.com/gpu.shared",
    "x=y",
    "many",
    "4.5",
)
TAINTS = [
    {"key": "restrictedaccess", "value": "yes", "effect": "NoSchedule"},
    {"key": "restrictedaccess", "value": "no", "effect": "NoSchedule"},
    {"key": "other", "effect": "NoExecute"},
    {"key": "soft", "effect": "PreferNoSchedule"},
    {"key": "startup-taint.cluster-autoscaler.kubernetes.io/x", "effect": "NoSchedule"},
    {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
]
KEYS = (
    *(f"{OLD}{key}" for key in ("vCPU", "memoryMb", "GPU")),
    *(f"{NEW}{key}" for key in ("cpu", "memory", "gpu-count", "gpu-type", "labels")),
    *(MIN_SIZE, MAX_SIZE),
)


def _annotation(actual: Scene, rng: random.Random) -> None:
    key, value = rng.choice(KEYS), rng.choice(VALUES)
    if value:
        actual.annotations[key] = value
    else:
        actual.annotations.pop(key, None)


def _label(actual: Scene, rng: random.Random) -> None:
    key = rng.choice([*actual.template["metadata"]["labels"], ACCELERATOR])
    value = rng.choice(["other", "nvidia.com/gpu", "", "-x", None, "x" * 64])
    if rng.random() < 0.5:
        actual.set_label(key, value)
    elif value is not None:
        actual.template["metadata"]["labels"][key] = value


def _taint(actual: Scene, rng: random.Random) -> None:
    actual.template["taints"].append(dict(rng.choice(TAINTS)))


def _taint_annotation(actual: Scene, rng: random.Random) -> None:
    taint = rng.choice(TAINTS)
    actual.annotations[f"{NEW}taints"] = f"{taint['key']}={taint.get('value', '')}:{taint['effect']}"


def _limit(actual: Scene, rng: random.Random) -> None:
    if actual.autoscaler is not None and actual.limits["gpus"]:
        rng.choice(actual.limits["gpus"])["max"] = rng.choice([0, 1, 3, 4, 8])
        actual.nodes.append(
            node("used", gpus=rng.choice([0, 1, 4]), accelerator=actual.limits["gpus"][0]["type"] or "")
        )


def _size(actual: Scene, rng: random.Random) -> None:
    low, high = rng.choice([0, 0, 1, 4]), rng.choice([0, 1, 4])
    actual.annotations.update({MIN_SIZE: str(low), MAX_SIZE: str(high)})


def _total(actual: Scene, rng: random.Random) -> None:
    if actual.autoscaler is not None:
        actual.limits["maxNodesTotal"] = rng.choice([0, 1, 2, 3])
        actual.nodes += [node(f"n{number}") for number in range(rng.choice([0, 1, 2]))]


CHANGES = (_annotation, _label, _taint, _taint_annotation, _limit, _size, _total)


@pytest.mark.usual(10)
def test_random_machine_sets(decide: Decide, request: pytest.FixtureRequest, rng: random.Random) -> None:
    cases = []
    for number in range(2000):
        pool, version = rng.choice(list(POOLS)), rng.choice(VERSIONS)
        actual = copy.deepcopy(scene(pool, version))
        changes = rng.choices(CHANGES, k=rng.choice([0, 1, 1, 2, 3]))
        for change in changes:
            change(actual, rng)
        labels = rng.choice(list(selections(pool)))
        title = f"{number}: {pool} {version} {[change.__name__ for change in changes]} {labels} {actual.annotations} {actual.template}"
        cases.append(Case(title, actual, labels))
    counts = compare(decide, cases)
    assert min(counts[True], counts[False]) > 200
    show(request, counts, "random MachineSets")
