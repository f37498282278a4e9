# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a node has no license: the most specific cause that the node's status and files indicate."""

from __future__ import annotations

import datetime
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.licensing.cluster import report_lines, report_problems
from ansible_collections.accel.gpu.plugins.module_utils.licensing.content import (
    NO_OBJECT,
    SECRET,
    LicenseFiles,
    LicenseTarget,
)
from ansible_collections.accel.gpu.plugins.module_utils.licensing.diagnosis import (
    CONFIG_PATH,
    TOKEN_PATH,
    LicenseLimits,
    LicenseNode,
    LicenseObject,
    LicenseStatus,
    Reading,
    expiry_warning,
    license_nodes,
    missing_text,
    node_states,
    overview,
    parse_driver_pods,
    problem,
    problem_lines,
)
from ansible_collections.accel.gpu.plugins.module_utils.licensing.token import ServiceCheck, parse_token
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from tests.helpers.license_nodes import NAMESPACE, license_node
from tests.helpers.license_tokens import CLS_HOST, DAY, make_token

NOW = datetime.datetime.now(datetime.UTC)
LICENSED = LicenseStatus("licensed", "Licensed (Expiry: Permanent)", "NVIDIA vGPU")
UNLICENSED = LicenseStatus("unlicensed", "Unlicensed (Restricted)", vgpu_type="NVIDIA A100-10C")


def expected(config: str = "FeatureType=1\n", **options: Any) -> LicenseObject:
    text = make_token(**options)
    target = LicenseTarget(SECRET, "licensing-config")
    return LicenseObject(target, NAMESPACE, LicenseFiles(text.encode(), config.encode()), parse_token(text))


def reading(
    expected: LicenseObject, status: LicenseStatus = UNLICENSED, skew: float | None = 0, **files: str | None
) -> Reading:
    actual: dict[str, str | None] = dict(expected.fingerprints)
    actual |= {{"token": TOKEN_PATH, "config": CONFIG_PATH}[name]: digest for name, digest in files.items()}
    return Reading(status, actual, skew)


NODE = license_node("n1")
VALID = expected(expires=364.5 * DAY)


@pytest.mark.parametrize(
    ("expected", "actual", "text"),
    [
        (VALID, reading(VALID, LICENSED), ""),
        (None, Reading(LICENSED), ""),
        (VALID, reading(VALID, LICENSED, token="0" * 64), "Licensed, but the token differs from Secret gpu-operator/licensing-config. Run the playbook license_rotate."),
        (VALID, reading(VALID, LICENSED, token="0" * 64, config=None), "Licensed, but the token and gridd.conf differ from"),
        (VALID, reading(VALID, token=None), "Unlicensed (Restricted). The driver container has no token: when the driver pod started, Secret gpu-operator/licensing-config was not configured"),
        (VALID, reading(VALID, token="0" * 64), "The token differs from the one in Secret gpu-operator/licensing-config. Run the playbook license_rotate."),
        (VALID, reading(VALID, config="0" * 64), "gridd.conf differs from the one in Secret"),
        (VALID, reading(VALID, skew=-3600), "The clock is 3600 s behind this machine's. Correct the time synchronization (NTP)"),
        (VALID, reading(VALID, skew=-2 * DAY), "according to this clock, the token is not valid before"),
        (VALID, reading(VALID, skew=400 * DAY), "according to this clock, the token expired at"),
        (VALID, reading(VALID), "dls.example.com:443 grants no license. Check from the node that the name resolves and the port is reachable, directly or through the proxy. Check that the license server has free licenses. vGPU 19 needs DLS 3.4 or later."),
        (VALID, replace(reading(VALID), services=(ServiceCheck("a:1", "tcp", "Not a."), ServiceCheck("b:1", "dns", "Not b."))), "Unlicensed (Restricted). Not a. Not b."),
        (VALID, replace(reading(VALID), services=(ServiceCheck("a:1"), ServiceCheck("b:1", "dns", "Not b."))), "a:1 grants no license, even though the node can reach it. Check that the license server has free licenses. vGPU 19 needs"),
        (VALID, replace(reading(VALID), services=(ServiceCheck("a:1", "unknown", "Not a."),)), "dls.example.com:443 grants no license. Check from the node"),
        (replace(VALID, token=None), reading(VALID), "Secret gpu-operator/licensing-config does not exist, or has no valid token and gridd.conf. Run the playbook license with a token."),
        (replace(VALID, readable=False), Reading(UNLICENSED), "Check the licensing Secret"),
        (None, Reading(UNLICENSED), "Check the licensing Secret"),
        (VALID, Reading(LicenseStatus("unlicensed", "Unlicensed"), from_metric=True), "Unlicensed. The metric does not show the cause. Set gpu_licensing_report_source (option source of the module) to nvidia_smi."),
        (replace(VALID, token=None), Reading(UNLICENSED, from_metric=True), "Secret gpu-operator/licensing-config does not exist, or has no valid token"),
        (VALID, Reading(LICENSED, from_metric=True), ""),
        (VALID, Reading(error="the kubelet does not answer."), "The license state could not be read: the kubelet does not answer."),
        (VALID, Reading(LicenseStatus("unknown", "Pending")), "nvidia-smi reports no license state (Pending). Check the log of pod driver-n1."),
        (VALID, Reading(), "nvidia-smi reports no license state. Check"),
        (VALID, Reading(LicenseStatus("not_applicable")), "Check that the driver is the vGPU guest driver."),
    ],
)  # fmt: skip
def test_causes(expected: LicenseObject | None, actual: Reading, text: str) -> None:
    shown = problem(NODE, actual, expected, NOW)
    assert text in shown if text else shown == ""


def test_an_expired_token() -> None:
    old = expected(expires=-DAY)
    text = problem(NODE, reading(old), old, NOW)
    assert "The token in Secret gpu-operator/licensing-config expired at" in text
    assert text.endswith(
        "Create a new client configuration token in the license system, and run the playbook license_rotate with it."
    )


def test_a_token_that_is_not_valid_yet() -> None:
    later = expected(not_before=DAY)
    text = problem(NODE, reading(later), later, NOW)
    assert "The token in Secret gpu-operator/licensing-config is not valid before" in text
    assert text.endswith("Wait until then, or check the clocks of this machine and of the license server.")


def test_a_feature_type_of_another_class() -> None:
    wrong = expected("FeatureType=2\n")
    text = problem(NODE, reading(wrong), wrong, NOW)
    assert "FeatureType=2 requests NVIDIA RTX Virtual Workstation, but vGPU types of the series C require" in text
    assert "gpu_licensing_feature_type" in text


def test_a_cloud_license_server_has_no_version() -> None:
    cloud = expected(hosts=[CLS_HOST])
    text = problem(NODE, reading(cloud), cloud, NOW)
    assert f"{CLS_HOST}:443 grants no license." in text
    assert "DLS" not in text


def test_a_token_with_several_servers() -> None:
    several = expected(hosts=["a.example.com", "b.example.com"])
    assert "a.example.com:443 and b.example.com:443 grant no license." in problem(NODE, reading(several), several, NOW)


def test_a_token_without_a_server() -> None:
    text = problem(NODE, reading(none := expected(without=["service_instance_configuration"])), none, NOW)
    assert "The token names no license server" in text


def test_nodes_without_a_running_driver() -> None:
    assert "run the playbook new_nodes" in problem(replace(NODE, pod=None), Reading(), VALID, NOW)


@pytest.mark.parametrize(
    ("container", "state", "restarts", "text"),
    [
        (
            "nvidia-driver-ctr",
            {"waiting": {"reason": "CrashLoopBackOff"}},
            4,
            f"CrashLoopBackOff, 4 restarts. Run kubectl -n {NAMESPACE} logs driver-n2 -c nvidia-driver-ctr.",
        ),
        (
            "k8s-driver-manager",
            {"waiting": {"reason": "CrashLoopBackOff"}},
            2,
            f"CrashLoopBackOff, 2 restarts. Run kubectl -n {NAMESPACE} logs driver-n2 -c k8s-driver-manager.",
        ),
        (
            "nvidia-driver-ctr",
            {"waiting": {"reason": "ImagePullBackOff"}},
            0,
            f"ImagePullBackOff. Run kubectl -n {NAMESPACE} describe pod driver-n2.",
        ),
        (
            "nvidia-driver-ctr",
            {"waiting": {"reason": "PodInitializing"}},
            0,
            f"pod driver-n2 is in phase Pending. Run kubectl -n {NAMESPACE} describe pod driver-n2.",
        ),
    ],
)
def test_a_driver_that_does_not_run(container: str, state: dict[str, Any], restarts: int, text: str) -> None:
    status = {"name": container, "state": state, "restartCount": restarts}
    failing = {
        "metadata": {"name": "driver-n2", "namespace": NAMESPACE},
        "spec": {"nodeName": "n2"},
        "status": {"phase": "Pending", "containerStatuses": [status]},
    }
    node = replace(NODE, pod=parse_driver_pods([failing])["n2"])
    actual = problem(node, Reading(), VALID, NOW)
    assert actual.startswith("The driver does not run: ")
    assert actual.endswith(text)


def test_the_expiry_of_tokens() -> None:
    soon = expected(expires=9.5 * DAY)
    assert "expires at" in expiry_warning(soon, NOW, 10)
    assert "in 9 days" in expiry_warning(soon, NOW, 10)
    assert expiry_warning(soon, NOW, 9) == ""
    assert "in 1 day. " in expiry_warning(expected(expires=1.5 * DAY), NOW, 10)
    assert expiry_warning(expected(without=["exp"]), NOW, 1000) == ""
    assert expiry_warning(replace(soon, token=None), NOW, 1000) == ""


def pod(name: str, node: str, *, running: bool = True, deleted: bool = False) -> dict[str, Any]:
    state = (
        {"running": {"startedAt": "2026-01-01T00:00:00Z"}} if running else {"waiting": {"reason": "ImagePullBackOff"}}
    )
    metadata = {
        "name": name,
        "namespace": NAMESPACE,
        **({"deletionTimestamp": "x"} if deleted else {}),
    }
    return {
        "metadata": metadata,
        "spec": {"nodeName": node},
        "status": {"phase": "Running", "containerStatuses": [{"name": "nvidia-driver-ctr", "state": state}]},
    }


def test_driver_pods() -> None:
    actual = parse_driver_pods(
        [
            pod("old", "n1", deleted=True),
            pod("new", "n1"),
            pod("gone", "n1", deleted=True),
            pod("x", ""),
            pod("broken", "n2", running=False),
        ]
    )
    assert (actual["n1"].name, actual["n1"].started, actual["n1"].failure) == ("new", "2026-01-01T00:00:00Z", "")
    assert actual["n1"].path == f"/api/v1/namespaces/{NAMESPACE}/pods/new"
    assert "ImagePullBackOff" in actual["n2"].failure
    assert set(actual) == {"n1", "n2"}


def test_the_overview() -> None:
    nodes = [license_node(f"n{index}") for index in range(4)]
    readings = {
        "n0": reading(VALID, LICENSED),
        "n1": reading(VALID, token="0" * 64),
        "n2": reading(VALID, token="1" * 64),
        "n3": Reading(error="lost."),
    }
    states = node_states(nodes, readings, lambda dummy: VALID, NOW)
    actual = overview(states, [VALID], NOW, LicenseLimits(), limit=2)
    assert actual["summary"].startswith(f"{actual['counts']['licensed']} of {len(states)} vGPU nodes have a license")
    assert f"the token expires in {actual['days_left']} days" in actual["summary"]
    assert overview([], [], NOW, LicenseLimits(), limit=2)["summary"] == ""
    assert actual["counts"] == {
        "nodes": 4,
        "licensed": 1,
        "unlicensed": 2,
        "unknown": 1,
        "outdated": 2,
        "not_required": 0,
    }
    assert [entry["name"] for entry in actual["nodes"]] == ["n1", "n2"]
    assert actual["nodes"][0]["token_matches"] is False
    assert actual["nodes"][0]["token_days_left"] is None
    assert states[-1].as_dict(NOW)["token_days_left"] == 364
    assert actual["days_left"] == 364
    assert actual["warnings"][0].startswith("2 nodes, n1, n2: Unlicensed (Restricted). The token differs")
    assert problem_lines(states, 1)[-1] == "More problems: 1. The result of license_info lists the nodes."
    assert (
        "Neither an NVIDIADriver nor the ClusterPolicy names a Secret"
        in overview(states, [], NOW, LicenseLimits(), limit=2)["warnings"][0]
    )
    unreadable = replace(VALID, files=LicenseFiles(), token=None, readable=False)
    assert "not allowed to read Secret" in overview(states, [unreadable], NOW, LicenseLimits(), limit=2)["warnings"][0]
    assert (
        "does not exist, or has no valid token"
        in overview(states, [replace(unreadable, readable=True)], NOW, LicenseLimits(1), limit=2)["warnings"][0]
    )

    reports: dict[str, dict[str, Any]] = {"prod": {"license_info": actual}, "test": {"msg": "unreachable"}}
    shown = report_lines(reports)
    heads = "CLUSTER NODES LICENSED UNLICENSED UNKNOWN OUTDATED TOKEN EXPIRES DAYS LEFT LICENSE SERVER"
    assert shown[0].split() == heads.split()
    assert shown[1].split()[:6] == ["prod", "4", "1", "2", "1", "2"]
    assert shown[2].split()[:2] == ["test", "-"]
    assert report_problems({"license_info": overview(states, [VALID], NOW, LicenseLimits(400), limit=2)}) == [
        "3 of 4 nodes have no verified license.",
        "2 nodes have a token that differs from the one in their Secret. Run the playbook license_rotate.",
        f"The token in Secret {NAMESPACE}/licensing-config expires at {actual['objects'][0]['expires']}, in 364 days. Create a new one in the license "
        "system, and run the playbook license_rotate.",
    ]
    outdated = [state for state in states if state.node.name == "n1"]
    assert report_problems({"license_info": overview(outdated, [VALID], NOW, LicenseLimits(0), limit=2)})[-1] == (
        "1 node has a token that differs from the one in its Secret. Run the playbook license_rotate."
    )
    products = [
        {"name": "NVIDIA RTX Virtual Workstation", "total": 40, "in_use": 10, "free": 30},
        {"name": "NVIDIA Virtual Compute Server", "total": 10, "in_use": 10, "free": 0},
    ]
    held: dict[str, Any] = {"products": products, "total": 50, "in_use": 20, "leases": 49}
    reports["prod"]["license_servers"] = held
    assert report_lines(reports)[0].split()[4:9] == ["UNKNOWN", "OUTDATED", "LICENSES", "LEASES", "TOKEN"]
    assert report_lines(reports)[1].split()[4:8] == ["1", "2", "50", "49"]
    assert report_problems(reports["prod"])[-1] == (
        "All 10 licenses of NVIDIA Virtual Compute Server in the license pools are in use."
    )
    failed = {"license_info": actual, "license_servers_failure": "no answer."}
    assert report_problems(failed)[-1] == "The license servers could not be read: no answer."
    assert report_problems(reports["test"]) == ["The cluster could not be read: unreachable"]


def vgpu_node(name: str, *, ready: bool = True, cordoned: bool = False) -> Node:
    return Node(name, labels={"nvidia.com/vgpu.present": "true"}, ready=ready, unschedulable=cordoned)


def required_nodes() -> list[LicenseNode]:
    """One node for each reason for which it needs a license now, or needs none."""
    nodes = [
        vgpu_node("pool"),
        vgpu_node("pool-down", ready=False),
        vgpu_node("pool-cordoned", cordoned=True),
        vgpu_node("cordoned-with-pod", cordoned=True),
        vgpu_node("alone"),
        vgpu_node("alone-with-pod"),
    ]
    members = {"vdi": ["pool", "pool-down", "pool-cordoned"]}
    pods = parse_driver_pods([pod(f"p-{name}", name) for name in ("pool-down", "cordoned-with-pod", "alone-with-pod")])
    plan = SimpleNamespace(pools=[])
    return license_nodes(cast(Any, plan), nodes, cast(Any, SimpleNamespace(by_pool=members)), pods)


def test_nodes_that_need_no_license_now() -> None:
    nodes = required_nodes()
    assert {node.name: node.not_required for node in nodes if node.not_required} == {
        "alone": "it is in no pool, and has no driver pod",
        "pool-cordoned": "it is cordoned, and has no driver pod",
        "pool-down": "it is not ready",
    }
    states = node_states(nodes, {node.name: Reading() for node in nodes}, lambda dummy: None, NOW)
    assert {state.node.name for state in states if state.is_missing} == {"pool", "cordoned-with-pod", "alone-with-pod"}
    actual = overview(states, [VALID], NOW, LicenseLimits(), limit=10)
    assert actual["counts"]["not_required"] == 3
    assert report_problems({"license_info": actual}) == ["3 of 6 nodes have no verified license."]
    assert any(text.endswith("Not verified: it is in no pool, and has no driver pod.") for text in actual["warnings"])


def test_a_licensed_node_that_is_cordoned() -> None:
    node = next(node for node in required_nodes() if node.name == "pool-down")
    (state,) = node_states([node], {node.name: reading(VALID, LICENSED)}, lambda dummy: VALID, NOW)
    assert (state.problem, state.is_missing) == ("", False)
    assert overview([state], [VALID], NOW, LicenseLimits(), limit=1)["counts"]["not_required"] == 0


def overview_of(*objects: LicenseObject, nodes: int = 1) -> dict[str, Any]:
    """The result of license_info for a cluster with licensed nodes."""
    readings = {f"n{index}": Reading(LICENSED) for index in range(nodes)}
    states = node_states([license_node(name) for name in readings], readings, lambda dummy: None, NOW)
    return overview(states, objects, NOW, LicenseLimits(), limit=2)


def problems_of(*objects: LicenseObject, nodes: int = 1) -> list[str]:
    """The problems of a cluster with licensed nodes."""
    return report_problems({"license_info": overview_of(*objects, nodes=nodes)})


def test_problems_of_objects() -> None:
    name = f"Secret {NAMESPACE}/licensing-config"
    assert problems_of(VALID) == []
    assert problems_of(nodes=0) == []
    assert problems_of() == [NO_OBJECT]
    # The report shows it once.
    assert overview_of()["warnings"] == [NO_OBJECT]
    assert problems_of(replace(VALID, files=LicenseFiles(), token=None, readable=False)) == [
        f"This user is not allowed to read {name}, so neither its token nor the nodes' tokens are verified. Grant permission to read the object."
    ]
    invalid = f"{name} does not exist, or has no valid token and gridd.conf. Run the playbook license with a token."
    assert problems_of(replace(VALID, token=None)) == [invalid]
    assert problems_of(replace(VALID, files=replace(VALID.files, config=None))) == [invalid]
    (early,) = problems_of(expected(not_before=DAY))
    assert early.startswith(f"The token in {name} is not valid before ")
    (old,) = problems_of(expected(expires=-DAY))
    assert old.startswith(f"The token in {name} expired at ")


@pytest.mark.parametrize(
    "desired",
    [
        None,
        VALID,
        replace(VALID, token=None),
        replace(VALID, files=LicenseFiles(), token=None, readable=False),
        expected(not_before=DAY),
        expected(expires=9.5 * DAY),
        expected(expires=-DAY),
    ],
    ids=["unnamed", "valid", "invalid", "unreadable", "early", "soon", "expired"],
)
def test_a_report_shows_each_problem_once(desired: LicenseObject | None) -> None:
    """The problems of a cluster, and the warnings of the module, have the same words."""
    objects = [desired] if desired else []
    readings = {f"n{index}": Reading(UNLICENSED) for index in range(2)}
    states = node_states([license_node(name) for name in readings], readings, lambda dummy: desired, NOW)
    info = overview(states, objects, NOW, LicenseLimits(), limit=2)
    result = {"license_info": info}
    problems = report_problems(result)
    of_nodes = problem_lines(states)
    assert [*problems, *of_nodes] == [missing_text(2, 2), *info["warnings"]]
    assert report_lines({"prod": result}, 10_000)[3:] == [f"prod: {text}" for text in [*problems, *of_nodes]]
