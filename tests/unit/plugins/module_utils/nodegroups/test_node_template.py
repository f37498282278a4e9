# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node that the autoscaler of each release expects from a MachineSet."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.openshift import autoscaler_rules, openshift_release
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.spec import (
    NodeTemplate,
    node_template,
    parse_machine_set,
)
from tests.helpers.machine_sets import NEW, OLD, machine_set

OLD_ONLY = {f"{OLD}vCPU": "4", f"{OLD}memoryMb": "16384", f"{OLD}GPU": "2"}
NEW_ONLY = {f"{NEW}cpu": "4", f"{NEW}memory": "16Gi", f"{NEW}gpu-count": "2", f"{NEW}gpu-type": "nvidia.com/gpu"}
GPU = {"nvidia.com/gpu": 2}


def template(version: str, annotations: dict[str, str], **spec: Any) -> NodeTemplate:
    raw = {"metadata": {"name": "t4", "annotations": annotations}, "spec": {"template": {"spec": spec}}}
    return node_template(parse_machine_set(raw), autoscaler_rules(openshift_release(version)))


@pytest.mark.parametrize(
    ("version", "annotations", "missing", "resources"),
    [
        ("4.16", OLD_ONLY, (), GPU),
        ("4.18", OLD_ONLY, (), GPU),
        ("4.20", OLD_ONLY, (), GPU),
        ("5.0", OLD_ONLY, (f"{NEW}cpu", f"{NEW}memory"), {}),
        ("4.16", NEW_ONLY, (f"{OLD}vCPU", f"{OLD}memoryMb"), {}),
        ("4.18", NEW_ONLY, (f"{OLD}vCPU", f"{OLD}memoryMb"), {}),
        ("4.20", NEW_ONLY, (), GPU),
        ("5.0", NEW_ONLY, (), GPU),
        # The new key takes precedence, also with 0 GPUs; for CPU and memory, 0 counts as missing.
        ("4.20", {**OLD_ONLY, f"{NEW}gpu-count": "8"}, (), {"nvidia.com/gpu": 8}),
        ("4.20", {**OLD_ONLY, f"{NEW}gpu-count": "0"}, (), {}),
        ("4.20", {**OLD_ONLY, f"{NEW}cpu": "0", f"{NEW}memory": "0"}, (), GPU),
        ("5.0", {**NEW_ONLY, f"{NEW}cpu": "0"}, (f"{NEW}cpu",), GPU),
        # Only from 5.0 on, gpu-type names the resource.
        ("4.20", {**NEW_ONLY, f"{NEW}gpu-type": "nvidia.com/gpu.shared"}, (), GPU),
        ("5.0", {**NEW_ONLY, f"{NEW}gpu-type": "nvidia.com/gpu.shared"}, (), {"nvidia.com/gpu.shared": 2}),
        ("5.0", {key: value for key, value in NEW_ONLY.items() if "gpu-type" not in key}, (), {}),
        ("4.18", {}, (f"{OLD}vCPU", f"{OLD}memoryMb"), {}),
    ],
)
def test_capacity(
    version: str, annotations: dict[str, str], missing: tuple[str, ...], resources: dict[str, int]
) -> None:
    actual = template(version, annotations)
    assert (actual.missing, actual.unreadable, actual.resources) == (missing, (), resources)


@pytest.mark.parametrize(
    ("version", "key", "text", "readable"),
    [
        ("4.18", f"{OLD}vCPU", "4", True),
        ("4.18", f"{OLD}vCPU", "3500m", True),
        ("4.18", f"{OLD}vCPU", "four", False),
        ("4.18", f"{OLD}memoryMb", "16Gi", False),
        ("4.18", f"{OLD}memoryMb", "16384", True),
        ("5.0", f"{NEW}memory", "16Gi", True),
        ("5.0", f"{NEW}memory", "16 GB", False),
        ("4.18", f"{OLD}GPU", "1.0", False),
        ("5.0", f"{NEW}gpu-count", "one", False),
        # Keys that the release does not read do no harm.
        ("5.0", f"{OLD}GPU", "one", True),
        ("4.18", f"{NEW}gpu-count", "one", True),
    ],
)
def test_readable_values(version: str, key: str, text: str, readable: bool) -> None:
    actual = template(version, {**OLD_ONLY, **NEW_ONLY, key: text})
    assert actual.unreadable == (() if readable else (key,))
    assert not actual.missing


@pytest.mark.parametrize(
    ("version", "labels"),
    [
        ("4.16", {"a": "template", "node-role.kubernetes.io/gpu": "", "b": "annotation"}),
        ("4.20", {"a": "template", "node-role.kubernetes.io/gpu": "", "b": "annotation"}),
        ("5.0", {"node-role.kubernetes.io/gpu": "", "b": "annotation"}),
    ],
)
def test_labels(version: str, labels: dict[str, str]) -> None:
    metadata = {"labels": {"a": "template", "b": "template", "node-role.kubernetes.io/gpu": ""}}
    assert template(version, {f"{NEW}labels": "b=annotation,nonsense"}, metadata=metadata).labels == labels


def test_startup_taints_are_not_expected() -> None:
    taints = [
        {"key": "a", "value": "b", "effect": "NoSchedule"},
        {"key": "startup-taint.cluster-autoscaler.kubernetes.io/accel-gpu", "effect": "NoSchedule"},
    ]
    annotation = "c=d:NoExecute,e:NoSchedule,invalid"
    assert template("4.18", {f"{NEW}taints": annotation}, taints=taints).taints == (
        taints[0],
        {"key": "c", "value": "d", "effect": "NoExecute"},
        {"key": "e", "effect": "NoSchedule"},
    )


@pytest.mark.parametrize(
    ("provider", "zone"),
    [
        ({"kind": "AWSMachineProviderConfig", "placement": {"availabilityZone": "us-east-2a"}}, "us-east-2a"),
        ({"kind": "GCPMachineProviderSpec", "zone": "europe-west4-a"}, "europe-west4-a"),
        ({"kind": "AzureMachineProviderSpec", "location": "westeurope", "zone": "2"}, "westeurope-2"),
        ({"kind": "AzureMachineProviderSpec", "location": "westeurope", "zone": ""}, ""),
        ({"kind": "VSphereMachineProviderSpec", "template": "rhcos-a100"}, ""),
    ],
)
def test_the_zone_of_the_machines(provider: dict[str, Any], zone: str) -> None:
    raw = {"spec": {"template": {"spec": {"providerSpec": {"value": provider}}}}}
    labels = parse_machine_set(raw).zone_labels
    assert labels.get("topology.kubernetes.io/zone", "") == zone
    assert set(labels.values()) <= {zone}
    assert (len(labels) == 2) == bool(zone)


def test_a_machine_set_is_parsed() -> None:
    raw = machine_set("t4", labels={"accel.gpu/pool": "t4"}, replicas=2)
    actual = parse_machine_set(raw)
    assert (actual.name, actual.replicas, actual.group_id) == ("t4", 2, "MachineSet/openshift-machine-api/t4")
    del raw["spec"]["replicas"]
    assert parse_machine_set(raw).replicas == 1
