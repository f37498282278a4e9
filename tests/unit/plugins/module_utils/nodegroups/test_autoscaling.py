# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The explanation why the autoscaler adds nodes to a pool from zero, or does not."""

from __future__ import annotations

import dataclasses
import itertools
import random

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.scaling_state import (
    AutoscalerState,
    ScalingExplanation,
    explain_scaling,
)
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from tests.helpers.machine_sets import ACCELERATOR, NEW, OLD, ZONE, cluster_autoscaler, machine_autoscaler
from tests.helpers.scaling_cases import MISTAKES, VERSIONS, Scene, node, scene, with_mistake

# Of these pools, only OpenShift 5.0 can count the resource.
RENAMED = ("renamed", "mixed")


def explain(actual: Scene) -> ScalingExplanation:
    explanations = explain_scaling(actual.pool, actual.state())
    assert len(explanations) == 1
    return explanations[0]


def codes(actual: Scene) -> list[str]:
    return [finding.code for finding in explain(actual).findings]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("pool", ["t4", "vgpu"])
def test_a_complete_machine_set_scales(pool: str, version: str) -> None:
    explanation = explain(scene(pool, version))
    assert explanation.findings == ()
    assert explanation.scales_for([ZONE, "accel.gpu/pool"])
    assert explanation.resources == {"nvidia.com/gpu": 4 if pool == "t4" else 1}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("pool", RENAMED)
def test_only_openshift_5_counts_other_resources(pool: str, version: str) -> None:
    explanation = explain(scene(pool, version))
    assert explanation.scales == (version == "5.0.0")
    assert [finding.code for finding in explanation.findings] == ([] if explanation.scales else ["resource"])
    assert explanation.scales or "rename" in explanation.findings[0].remedy


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("pool", ["t4", "vgpu"])
def test_a_mistake_is_named_on_the_releases_on_which_it_counts(pool: str, mistake: str, version: str) -> None:
    explanation = explain(with_mistake(pool, version, mistake))
    expected = MISTAKES[mistake]
    counts = version in expected.versions
    assert (expected.code in [finding.code for finding in explanation.findings]) == counts
    assert explanation.scales == (not counts or bool(expected.labels))
    assert explanation.scales_for(expected.labels) == (not counts)
    assert explanation.scales_for([]) == explanation.scales


@pytest.mark.parametrize("version", VERSIONS)
def test_correcting_one_cause_after_the_other_ends_in_scaling(version: str, rng: random.Random) -> None:
    """Every mistake that counts is named, each correction removes its finding and adds no other that prevents scaling."""
    # Mistakes of the same field exclude each other, and some hide others.
    exclusive = [
        {"no MachineAutoscaler", "fixed size", "maximum 0", "all nodes exist"},
        {"GPU limit reached", "node limit reached", "no ClusterAutoscaler", "pod priority"},
        {"no zone label", "zone label only in the template", "no label of the pool", "illegal accelerator"},
        {"only old keys", "no GPU count", "no GPU type", "wrong GPU type"},
        {"only new keys", "unreadable memory", "no old GPU count"},
        {"foreign taint"},
    ]
    for dummy in range(20):
        chosen = [rng.choice(sorted(names)) for names in exclusive]
        for count in range(len(chosen), -1, -1):
            changed = scene("t4", version)
            for name in chosen[:count]:
                MISTAKES[name].make(changed)
            explanation = explain(changed)
            counting = [name for name in chosen[:count] if version in MISTAKES[name].versions]
            labels = [label for name in counting for label in MISTAKES[name].labels]
            assert explanation.scales_for(labels) == (not counting), (chosen[:count], explanation)
        assert explanation.scales


def test_every_finding_names_its_object_and_a_remedy() -> None:
    for mistake, version in itertools.product(MISTAKES, VERSIONS):
        for finding in explain(with_mistake("t4", version, mistake)).findings:
            assert finding.message
            assert finding.remedy
            assert not finding.message.endswith(".")
            assert not finding.remedy.endswith(".")
            assert finding.as_dict()["code"] == finding.code


def test_a_pool_without_a_machine_set() -> None:
    actual = scene("t4", "4.18")
    (explanation,) = explain_scaling(actual.pool, AutoscalerState("4.18", cluster_autoscaler=cluster_autoscaler()))
    assert [finding.code for finding in explanation.findings] == ["machine_set"]
    assert "accel.gpu/pool=t4" in explanation.findings[0].message
    assert not explanation.scales


def test_machine_sets_of_other_pools_are_not_explained() -> None:
    actual = scene("t4", "4.18")
    actual.set_label("accel.gpu/pool", "other")
    assert explain_scaling(actual.pool, actual.state())[0].machine_set == ""


def test_a_machine_autoscaler_that_the_operator_has_not_processed() -> None:
    actual = with_mistake("t4", "4.18", "no MachineAutoscaler")
    actual.machine_autoscalers.append(machine_autoscaler("mine", "t4"))
    finding = explain(actual).findings[0]
    assert finding.code == "bounds"
    assert "MachineAutoscaler mine" in finding.message


def test_two_machine_autoscalers_are_only_noted() -> None:
    actual = scene("t4", "4.18")
    actual.annotations["autoscaling.openshift.io/machineautoscaler"] = "openshift-machine-api/mine"
    actual.machine_autoscalers += [machine_autoscaler("mine", "t4"), machine_autoscaler("other", "t4")]
    explanation = explain(actual)
    assert explanation.scales
    assert [finding.code for finding in explanation.findings] == ["two_machine_autoscalers"]
    assert "only mine has an effect" in explanation.findings[0].message


@pytest.mark.parametrize(
    ("version", "kind", "remedy"),
    [
        ("4.18", "AWSMachineProviderConfig", "none before OpenShift 4.19"),
        ("4.18", "VSphereMachineProviderSpec", "set annotation machine.openshift.io/GPU to 4"),
        ("4.20", "AWSMachineProviderConfig", f"set annotation {NEW}gpu-count to 4"),
    ],
)
def test_the_remedy_of_a_wrong_number_of_gpus(version: str, kind: str, remedy: str) -> None:
    actual = scene("t4", version)
    actual.template["providerSpec"]["value"]["kind"] = kind
    actual.annotations.update({f"{OLD}GPU": "1", f"{NEW}gpu-count": "1"})
    (finding,) = explain(actual).findings
    assert finding.code == "gpu_amount"
    assert remedy in finding.remedy


@pytest.mark.parametrize(
    ("count", "text"), [("1", "more nodes than the pods need"), ("8", "nodes on which the pods do not fit")]
)
def test_a_wrong_number_of_gpus_is_noted(count: str, text: str) -> None:
    actual = scene("t4", "4.18")
    actual.annotations[f"{OLD}GPU"] = count
    explanation = explain(actual)
    assert explanation.scales
    assert text in explanation.findings[0].message


def test_devices_that_the_autoscaler_does_not_expect_concern_only_their_pods() -> None:
    layout = {"1g.10gb": 3, "2g.20gb": 2}
    pool = {"match": {"model": "A100-SXM4-80GB"}, "gpus_per_node": 1, "sharing": {"mode": "mig", "layout": layout}}
    actual = scene("mixed", "5.0")
    actual.pool = derive({"name": "lab"}, {}, [{"name": "mixed", **pool}]).pools[0]
    actual.annotations[f"{NEW}gpu-count"] = "3"
    for key, value in actual.pool.registration.node_labels.items():
        actual.set_label(key, value)
    explanation = explain(actual)
    assert explanation.scales
    assert explanation.scales_for(["nvidia.com/mig-1g.10gb"])
    assert not explanation.scales_for(["nvidia.com/mig-2g.20gb"])


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda actual: actual.set_label(ACCELERATOR, None), "accelerator"),
        (lambda actual: actual.limits["gpus"].pop(0), "gpu_limit_type"),
        (lambda actual: actual.autoscaler["spec"].pop("maxNodeProvisionTime"), "provision_time"),
        (lambda actual: actual.autoscaler["spec"]["scaleDown"].update(delayAfterAdd="5m"), "delay_after_add"),
        (lambda actual: actual.autoscaler["spec"].pop("scaleDown"), "delay_after_add"),
    ],
)
def test_what_does_not_prevent_scaling_is_noted(change, code: str) -> None:  # type: ignore[no-untyped-def]
    actual = scene("t4", "4.18")
    change(actual)
    assert codes(actual) == [code]
    assert explain(actual).scales


def test_without_scale_down_its_delay_does_not_matter() -> None:
    actual = scene("t4", "4.18")
    assert actual.autoscaler is not None
    actual.autoscaler["spec"]["scaleDown"] = {"enabled": False, "delayAfterAdd": "1m"}
    assert codes(actual) == []


def test_the_accelerator_label_on_nodes_that_never_offer_gpus_is_noted() -> None:
    actual = scene("renamed", "5.0")
    actual.set_label(ACCELERATOR, "Tesla-T4-SHARED")
    assert codes(actual) == ["accelerator_unready"]


def test_in_openshift_5_the_accelerator_label_of_the_template_is_not_read() -> None:
    actual = scene("t4", "5.0")
    labels = {key: value for key, value in actual.template["metadata"]["labels"].items() if key != ACCELERATOR}
    actual.annotations[f"{NEW}labels"] = ",".join(f"{key}={value}" for key, value in labels.items())
    assert codes(actual) == ["accelerator_template"]


@pytest.mark.parametrize(
    ("replicas", "ready", "offered", "limit", "scales"),
    [
        # Two replicas count by what their nodes offer, and without a node that is ready by the template.
        (2, True, 4, 12, True),
        (2, True, 4, 11, False),
        (2, True, 1, 3, True),
        (2, False, 0, 12, True),
        (2, False, 0, 11, False),
    ],
)
def test_gpus_in_use(replicas: int, ready: bool, offered: int, limit: int, scales: bool) -> None:
    actual = scene("t4", "4.18")
    actual.machine_set["spec"]["replicas"] = replicas
    actual.limits["gpus"][0]["max"] = limit
    if ready:
        kind = actual.pool.accelerator or ""
        actual.nodes = [node(f"n{i}", machine=f"t4-{i}", gpus=offered, accelerator=kind) for i in range(replicas)]
    assert explain(actual).scales is scales


@pytest.mark.parametrize(
    ("expressions", "noted"),
    [
        ([".*"], False),
        (["/t4$"], False),
        (["MachineSet/openshift-machine-api/t4"], False),
        (["/other$"], True),
        (["("], True),
        ([], True),
    ],
)
def test_a_machine_set_without_priority_is_noted(expressions: list[str], noted: bool) -> None:
    actual = scene("t4", "4.18")
    assert actual.autoscaler is not None
    actual.autoscaler["spec"]["expanders"] = ["Priority"]
    state = actual.state()
    assert [item.code for item in explain_scaling(actual.pool, state)[0].findings] == []
    state = dataclasses.replace(state, priorities={10: expressions})
    assert [item.code for item in explain_scaling(actual.pool, state)[0].findings] == ["expander_priority"] * noted
