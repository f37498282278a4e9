# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Driver nodes, delayed templates and stalled rolling updates of the operator's DaemonSets."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.readiness import (
    count_interrupted_nodes,
    driver_nodes,
    is_stalled,
    next_pod_to_replace,
    outdated_images,
    template_delay,
)
from tests.helpers.readiness import Object, daemonset


def owned(component: str, scheduled: int, kind: str = "ClusterPolicy", name: str = "cluster-policy") -> Object:
    labels = {"app.kubernetes.io/component": component}
    return {
        "metadata": {"labels": labels, "ownerReferences": [{"kind": kind, "name": name}]},
        "status": {"currentNumberScheduled": scheduled},
    }


DRIVER_NODES: list[tuple[list[Object], dict[str, int]]] = [
    ([], {}),
    ([owned("nvidia-driver", 3), owned("nvidia-driver", 4), owned("", 9)], {"": 7}),
    ([owned("nvidia-driver", 3, kind="Deployment")], {}),
    (
        [
            owned("nvidia-driver", 3, kind="NVIDIADriver", name="a100"),
            owned("nvidia-driver", 2, kind="NVIDIADriver", name="a100"),
            owned("nvidia-driver", 1, kind="NVIDIADriver", name="b200"),
        ],
        {"a100": 5, "b200": 1},
    ),
]


@pytest.mark.parametrize(("daemonsets", "nodes"), DRIVER_NODES)
def test_driver_nodes_by_the_object_that_describes_the_driver(daemonsets: list[Object], nodes: dict[str, int]) -> None:
    assert driver_nodes(daemonsets) == nodes


@pytest.mark.parametrize(("version", "nodes"), [("v26.7.0", 0), ("v26.3.3", 2), ("", 2)])
def test_nodes_whose_pods_are_evicted(version: str, nodes: int) -> None:
    policy = {
        "metadata": {"labels": {"app.kubernetes.io/version": version}},
        "spec": {"driver": {"upgradePolicy": {"autoUpgrade": True}}},
    }
    manager = {"name": "k8s-driver-manager", "image": "nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.11.0"}
    container = {"name": "c", "env": [{"name": "DRIVER_CONFIG_DIGEST", "value": "3f2a"}]}
    template = {"spec": {"initContainers": [manager], "containers": [container]}}
    driver = {
        "metadata": {
            "labels": {"app.kubernetes.io/component": "nvidia-driver"},
            "ownerReferences": [{"kind": "ClusterPolicy"}],
        },
        "spec": {"template": template},
        "status": {"currentNumberScheduled": 2},
    }
    assert count_interrupted_nodes(policy, [driver], [("daemonsets", "tolerations")]) == nodes
    assert count_interrupted_nodes(policy, [driver], [("driver", "version")]) == 2
    assert count_interrupted_nodes(policy, [], [("driver", "version")]) == 0


CHART = {"helm.sh/chart": "gpu-operator-v25.3.2"}


def with_template(driver: bool = True) -> Object:
    container = {
        "name": "nvidia-driver-ctr",
        "image": "nvcr.io/nvidia/driver:570.148.08-ubuntu24.04",
        "env": [{"name": "NODE_NAME", "valueFrom": {}}, {"name": "A", "value": "1"}],
    }
    labels = {"app.kubernetes.io/component": "nvidia-driver"} if driver else {}
    return {
        "metadata": {"name": "ds", "labels": labels, "ownerReferences": [{"kind": "ClusterPolicy"}]},
        "spec": {"template": {"metadata": {"labels": {"app": "ds", **CHART}}, "spec": {"containers": [container]}}},
    }


TEMPLATES: list[tuple[Object, str]] = [
    ({}, ""),
    ({"daemonsets": {"labels": {**CHART, "app": "else", "app.kubernetes.io/part-of": "else"}}}, ""),
    ({"daemonsets": {"labels": {"helm.sh/chart": "gpu-operator-v25.10.1"}}}, "labels"),
    ({"driver": {"version": "570.148.08", "env": [{"name": "A", "value": "1"}]}}, ""),
    ({"driver": {"version": "580.105.08"}}, "driver"),
    ({"driver": {"env": [{"name": "A", "value": "2"}]}}, "driver"),
    ({"driver": {"env": [{"name": "B", "value": ""}]}}, "driver"),
]


@pytest.mark.parametrize(("spec", "lacking"), TEMPLATES)
def test_template_delay(spec: Object, lacking: str) -> None:
    expected = [f"DaemonSet ds does not have the policy's {lacking} yet"] if lacking else []
    assert template_delay(spec, with_template()) == expected
    # The driver's fields are nothing to the other DaemonSets.
    assert template_delay(spec, with_template(driver=False)) == (expected if lacking == "labels" else [])


def test_a_driver_by_digest() -> None:
    actual = with_template()
    actual["spec"]["template"]["spec"]["containers"][0]["image"] = "nvcr.io/nvidia/driver@sha256:0123"
    assert template_delay({"driver": {"version": "sha256:0123"}}, actual) == []


PLUGIN = "nvidia-device-plugin-daemonset"
BROKEN = {"gpu-3"}


def rolling(**status: int) -> Object:
    """Four nodes, of which gpu-3 is broken and has the new template; all others have the old one."""
    counts = {"updatedNumberScheduled": 1, "numberAvailable": 3, **status}
    actual = daemonset(PLUGIN, 4, "device-plugin", **counts)
    actual["metadata"]["annotations"] = {"deprecated.daemonset.template.generation": "2"}
    return actual


def pod(node: str, generation: str = "1", ready: bool = True, **metadata: t.Any) -> Object:
    return {
        "metadata": {"name": f"plugin-{node}", "labels": {"pod-template-generation": generation}, **metadata},
        "spec": {"nodeName": node},
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }


@pytest.mark.parametrize(
    ("actual", "unready", "stalled"),
    [
        (rolling(), BROKEN, True),
        (rolling(), (), False),
        (rolling(updatedNumberScheduled=4), BROKEN, False),
        # Another pod is not ready either: the rollout continues when that pod is ready.
        (rolling(numberAvailable=2), BROKEN, False),
        (rolling(observedGeneration=1), BROKEN, False),
    ],
)
def test_is_stalled(actual: Object, unready: t.Collection[str], stalled: bool) -> None:
    assert is_stalled(actual, unready) is stalled


def test_a_daemonset_whose_pods_are_being_deleted_is_not_stalled() -> None:
    on_delete = rolling()
    on_delete["spec"]["updateStrategy"] = {"type": "OnDelete"}
    assert not is_stalled(on_delete, BROKEN)


@pytest.mark.parametrize(
    ("pods", "chosen"),
    [
        ([pod("gpu-1"), pod("gpu-0"), pod("gpu-2"), pod("gpu-3", "2", ready=False)], "plugin-gpu-0"),
        ([pod("gpu-0", "2"), pod("gpu-1"), pod("gpu-3", "2", ready=False)], "plugin-gpu-1"),
        # One after the other.
        ([pod("gpu-0", "2", ready=False), pod("gpu-1")], None),
        ([pod("gpu-0", deletionTimestamp="2026-01-01T00:00:00Z"), pod("gpu-1")], None),
        ([pod("gpu-0", "2"), pod("gpu-1", "2")], None),
        ([pod("gpu-3")], None),
    ],
)
def test_the_next_pod(pods: list[Object], chosen: str | None) -> None:
    actual = next_pod_to_replace(rolling(), pods, BROKEN)
    assert (actual["metadata"]["name"] if actual else None) == chosen


NEW, OLD = "nvcr.io/nvidia/k8s-device-plugin@sha256:2", "nvcr.io/nvidia/k8s-device-plugin@sha256:1"
OPERATOR: Object = {
    "spec": {
        "template": {"spec": {"containers": [{"env": [{"name": "DEVICE_PLUGIN_IMAGE", "value": NEW}, {"name": "N"}]}]}}
    }
}


@pytest.mark.parametrize(
    ("operator", "image", "spec", "outdated"),
    [
        (OPERATOR, NEW, {}, False),
        (OPERATOR, OLD, {}, True),
        (OPERATOR, OLD, {"devicePlugin": {"repository": "r", "image": "p", "version": "1"}}, False),
        (OPERATOR, OLD, {"devicePlugin": {"config": {"name": "x"}}}, True),
        (None, OLD, {}, False),
        ({"spec": {"template": {"spec": {"containers": [{}]}}}}, OLD, {}, False),
    ],
)
def test_daemonsets_that_a_new_operator_has_not_processed(
    operator: Object | None, image: str, spec: Object, outdated: bool
) -> None:
    plugin = {
        "metadata": {"name": "nvidia-device-plugin-daemonset"},
        "spec": {"template": {"spec": {"containers": [{"image": image}], "initContainers": [{"image": "x"}]}}},
    }
    other = {"metadata": {"name": "nvidia-driver-daemonset-418"}, "spec": {"template": {"spec": {"containers": []}}}}
    assert bool(outdated_images(operator, [plugin, other], spec)) == outdated
