# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The comparison and a real API server agree on random sequences of applies by two field managers."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.fields import difference, same_object, shown
from ansible_collections.accel.gpu.plugins.module_utils.kube.paths import object_path
from tests.helpers.kube import Kube

Object = dict[str, Any]
US, THEM = "accel.gpu", "other-manager"
STEPS = 25


def pod(body: Object) -> Any:
    return body["spec"]["template"]["spec"]


def main_container(body: Object) -> Any:
    return pod(body)["containers"][0]


# Each function sets one more field of a DaemonSet; conflicts between two managers are resolved by force.
EDITS: list[Callable[[Object, random.Random], Any]] = [
    lambda body, rng: body["metadata"].update(labels={rng.choice("ab"): rng.choice("xy")}),
    lambda body, rng: body["metadata"].update(annotations={rng.choice("ab"): rng.choice("xy")}),
    lambda body, rng: body["spec"].update(minReadySeconds=rng.choice([0, 5])),
    lambda body, rng: body["spec"].update(
        updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": rng.choice([1, "10%"])}}
    ),
    lambda body, rng: pod(body).update(tolerations=rng.sample([{"key": "a"}, {"key": "b", "operator": "Exists"}], 1)),
    lambda body, rng: pod(body).update(nodeSelector={rng.choice("ab"): "x"}),
    lambda body, rng: pod(body).update(hostNetwork=rng.choice([True, False])),
    lambda body, rng: pod(body)["containers"].append(
        {"name": rng.choice(["s1", "s2"]), "image": rng.choice(["i:1", "i:2"])}
    ),
    lambda body, rng: main_container(body).update(image=rng.choice(["m:1", "m:2"])),
    lambda body, rng: main_container(body).update(args=rng.sample(["-a", "-b", "-c"], rng.randint(1, 3))),
    lambda body, rng: main_container(body).update(env=[{"name": rng.choice("AB"), "value": rng.choice("12")}]),
    lambda body, rng: main_container(body).update(ports=[{"containerPort": rng.choice([80, 81])}]),
    lambda body, rng: main_container(body).update(
        resources={"limits": {"cpu": rng.choice(["1", "500m", "0.5", 1]), "memory": rng.choice(["1Gi", "1024Mi"])}}
    ),
    lambda body, rng: pod(body).update(
        volumes=[{"name": rng.choice("vw"), "configMap": {"name": "c", "items": [{"key": "k", "path": "p"}]}}]
    ),
]


def daemonset(namespace: str, rng: random.Random) -> Object:
    body: Object = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {
                "metadata": {"labels": {"app": "agent"}},
                "spec": {"containers": [{"name": "main", "image": "m:1"}], "nodeSelector": {"never": "here"}},
            },
        },
    }
    for edit in rng.sample(EDITS, rng.randint(0, 6)):
        edit(body, rng)
    return body


@pytest.mark.usual(10)
def test_histories(kube: Kube, rng: random.Random) -> None:
    namespace = kube.namespace()
    path = object_path("apps/v1", "DaemonSet", "agent", namespace)
    for step in range(STEPS):
        manager = THEM if step % 3 == 2 else US
        desired = daemonset(namespace, rng)
        live = kube.client.get(path)
        plan = difference(live, desired, manager)
        result = kube.client.apply(path, copy.deepcopy(desired), manager=manager, dry_run=True)
        reported = f"step {step} by {manager}: {desired}"
        if live is not None and not plan.changed:
            assert same_object(live, result), f"a change was missed, {reported}"
        done = kube.client.apply(path, plan.patch_body, manager=manager)
        assert not difference(done, desired, manager).changed, f"applied and still different, {reported}"
        assert not difference(done, shown(done), manager).changed, f"different from itself, {reported}"
