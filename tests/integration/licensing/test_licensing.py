# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Licenses of 20 vGPU nodes: from nothing, with each fault, by rotation, and from a ConfigMap that was created manually."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest

from tests.helpers.cluster import NAMESPACE
from tests.helpers.license_tokens import DAY, make_token
from tests.helpers.licensing import FIRST_HOST, FLEET, NEW_HOST, NODES, SECRET, TOKEN_KEY, Licensing
from tests.helpers.planted_secrets import Planted, Shown
from tests.helpers.polling import until
from tests.labs import Lab

pytestmark = [
    pytest.mark.lab,
    pytest.mark.sampled(3, group="licensing"),
    pytest.mark.usual(60),
    pytest.mark.timeout(900),
]


@pytest.mark.sampled(1, group="whole runs of licensing")
def test_site_licenses_every_node(licensing: Licensing) -> None:
    states = licensing.states()
    assert len(states) == NODES
    assert {state["status"] for state in states.values()} == {"Licensed"}
    assert {state["token_sha256"] for state in states.values()} == {licensing.digest()}
    assert sorted(licensing.secret()["data"]) == [TOKEN_KEY, "gridd.conf"]

    # The environment names no token: the second run neither provides nor verifies anything.
    tags = ("--tags", "nfd,gpu_operator,licensing")
    assert licensing.play("site", arguments=tags).require_success().changed("lab") == 0
    verified = licensing.play("license", gpu_licensing_restart_drivers=True).require_success()
    assert verified.shown("lab: only the playbook license_rotate reads gpu_licensing_restart_drivers.")
    assert verified.changed("lab") == 0
    (info,) = verified.module_results("accel.gpu.license_info")
    assert info["license_info"]["counts"] == {
        "nodes": NODES,
        "licensed": NODES,
        "unlicensed": 0,
        "unknown": 0,
        "outdated": 0,
        "not_required": 0,
    }
    assert info["license_info"]["warnings"] == []


def test_a_first_run_is_predicted(licensing: Licensing) -> None:
    pools = [{**licensing.pool, "driver": {**licensing.pool["driver"], "licensing_secret": "other"}}]
    token = licensing.token(NEW_HOST)
    predicted = licensing.license(token, pools=pools, check=True)
    made = licensing.license(token, pools=pools)
    for result in (predicted, made):
        assert result["changed"], result
    assert (predicted["license"], predicted["diff"]) == (made["license"], made["diff"])
    (entry,) = made["license"]["objects"]
    assert (entry["name"], entry["action"], entry["pools"]) == ("other", "created", ["vdi"])
    assert token.read_text() not in json.dumps([predicted, made])
    again = licensing.license(token, pools=pools)
    assert not again["changed"]
    assert not licensing.license(pools=pools)["changed"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"expires": -60}, "the token expired at"),
        ({"not_before": DAY}, "the token is not valid before"),
    ],
)
def test_unusable_tokens_are_refused_before_any_change(licensing: Licensing, options: Any, message: str) -> None:
    before = licensing.secret()
    result = licensing.license(licensing.token(NEW_HOST, **options))
    assert result["code"] == "invalid"
    assert message in result["msg"]
    assert licensing.secret() == before


@pytest.mark.parametrize(
    ("cut", "message"),
    [(-300, None), (60, "has 2 parts instead of 3"), (20, "has 1 part instead of 3")],
)
def test_truncated_tokens(licensing: Licensing, cut: int, message: str | None) -> None:
    path = licensing.folder / "cut.tok"
    path.write_text(make_token()[:cut])
    result = licensing.license(path, check=True, rotate=True)
    if message is None:
        assert "its signature does not match the key in it" in str(result["warnings"])
    else:
        assert message in result["msg"]


def test_a_secret_with_wrong_keys(licensing: Licensing) -> None:
    pools = [{**licensing.pool, "driver": {**licensing.pool["driver"], "licensing_secret": "by-hand"}}]
    token = licensing.token(NEW_HOST)
    licensing.cluster.kubectl(
        "create", "secret", "generic", "by-hand", "-n", NAMESPACE, f"--from-file=token.tok={token}"
    )
    result = licensing.license(pools=pools)
    assert (
        f"Secret {NAMESPACE}/by-hand lacks {TOKEN_KEY} and gridd.conf, and contains unused keys: token.tok"
        in result["msg"]
    )
    corrected = licensing.license(token, pools=pools)
    assert corrected["license"]["objects"][0]["action"] == "updated"
    assert "also has token.tok" in str(corrected["warnings"])


def test_an_operator_that_is_too_old_for_a_secret(licensing: Licensing) -> None:
    licensing.cluster.kubectl(
        "label", "clusterpolicy", "cluster-policy", "--overwrite", "app.kubernetes.io/version=v24.9.2"
    )
    licensing.cluster.kubectl(
        "patch", "clusterpolicy", "cluster-policy", "--type=merge", "-p",
        '{"spec": {"driver": {"useNvidiaDriverCRD": false}}}',
    )  # fmt: skip
    token = licensing.token(NEW_HOST)
    refused = licensing.license(token, pools=[], check=True)
    assert "GPU operator v24.9.2 can mount the token only from ConfigMap" in refused["msg"]
    allowed = licensing.license(token, pools=[], allow_configmap=True, check=True)
    (entry,) = allowed["license"]["objects"]
    assert (entry["kind"], entry["action"]) == ("ConfigMap", "created")


def problem_of(licensing: Licensing, node: str) -> str:
    """The problem of a node in the result of license_info."""
    actual = licensing.info(require_licensed=False)["license_info"]["nodes"]
    return str(next(entry["problem"] for entry in actual if entry["name"] == node))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("license-unreachable", f"Cannot connect to {NEW_HOST}:443"),
        ("license-unreachable=dns", f"The name {NEW_HOST} cannot be resolved"),
        ("license-denied", f"{NEW_HOST}:443 grants no license, even though the node can reach it"),
        ("license-clock-skew=7200", " s ahead of this machine's. Correct the time synchronization (NTP)"),
        (f"license-clock-skew={40 * DAY}", "according to this clock, the token expired at"),
    ],
)
def test_a_fault_of_one_node_stops_the_rotation_there(licensing: Licensing, fault: str, message: str) -> None:
    nodes = ["vdi-1", "vdi-2", "vdi-3"]
    name, dummy, value = fault.partition("=")
    licensing.fault(fault, "vdi-2")
    licensing.put_token(licensing.token(NEW_HOST, expires=30 * DAY))
    if name == "license-unreachable":
        # The check of all nodes, before the first one is changed.
        refused = licensing.rotate(node_names=nodes, wait_timeout=4)
        assert refused["code"] == "preflight"
        assert f"node vdi-2: {message}" in refused["msg"]
        assert refused["license_rotation"]["pending"] == nodes
        assert licensing.states()["vdi-1"]["server"] != NEW_HOST
    failed = licensing.rotate(node_names=nodes, wait_timeout=4, preflight=False)
    assert failed["code"] == "partial"
    assert "The rotation stopped at node vdi-2" in failed["msg"]
    for text in (failed["msg"], problem_of(licensing, "vdi-2")):
        assert message in text
        if name == "license-clock-skew":
            assert abs(int(text.partition("The clock is ")[2].partition(" s ")[0]) - int(value)) < 5
    # A node whose lease has already expired by its own clock has no license for a reason of its own, so it comes last.
    before = ["vdi-1", "vdi-3"] if "expired" in message else ["vdi-1"]
    assert failed["license_rotation"]["rotated"] == before
    assert failed["license_rotation"]["pending"] == [name for name in nodes if name not in (*before, "vdi-2")]
    state = licensing.states()["vdi-3"]
    assert (state["server"] == NEW_HOST, state["status"]) == ("vdi-3" in before, "Licensed")

    licensing.clear(name, "vdi-2")
    done = licensing.rotate(node_names=nodes, wait_timeout=30)
    assert not done.get("failed"), done["msg"]
    assert {licensing.states()[name]["server"] for name in nodes} == {NEW_HOST}


def test_the_labels_show_the_vgpu(licensing: Licensing) -> None:
    labels = licensing.cluster.nodes()["vdi-1"]["metadata"]["labels"]
    shown = {name: labels[f"nvidia.com/{name}"] for name in ("gpu.product", "gpu.memory", "gpu.mode", "mig.capable")}
    assert shown == {
        "gpu.product": "NVIDIA-A100D-10C",
        "gpu.memory": "10240",
        "gpu.mode": "compute",
        "mig.capable": "false",
    }


def test_a_feature_type_of_another_class(licensing: Licensing) -> None:
    text = (
        "FeatureType=2 requests NVIDIA RTX Virtual Workstation, but vGPU types of the series C require 1 (NVIDIA vGPU)"
    )
    before = licensing.secret()
    assert text in licensing.license(licensing.token(NEW_HOST), feature_type=2)["msg"]
    assert licensing.secret() == before
    # Someone else changes the Secret.
    config = base64.b64encode(b"FeatureType=2\n").decode()
    licensing.cluster.kubectl(
        "patch", "secret", SECRET, "-n", NAMESPACE, "--type=merge", "-p", json.dumps({"data": {"gridd.conf": config}})
    )  # fmt: skip
    for dummy in range(2):
        refused = licensing.rotate(node_names=["vdi-1", "vdi-2"], wait_timeout=3)
        assert (refused["code"], text in refused["msg"]) == ("preflight", True), refused
        assert {state["status"] for state in licensing.states().values()} == {"Licensed"}
    licensing.license(feature_type=4)
    done = licensing.rotate(node_names=["vdi-1", "vdi-2"], wait_timeout=30)
    assert done["license_rotation"]["rotated"] == ["vdi-1", "vdi-2"], done


@pytest.mark.sampled(1, group="whole runs of licensing")
def test_a_token_that_gives_no_license_costs_one_node(licensing: Licensing) -> None:
    before = licensing.secret()
    licensing.fault("license-denied", "vdi-1")
    token = licensing.token(NEW_HOST)
    for dummy in range(2):
        run = licensing.play("license_rotate", token=token, gpu_licensing_wait_timeout=4)
        assert run.rc == 2
        assert "The rotation stopped at node vdi-1" in run.failure()
        assert f"Secret {NAMESPACE}/{SECRET} was not changed" in run.failure()
        assert licensing.secret()["data"] == before["data"]
        states = licensing.states()
        assert [name for name, state in states.items() if state["status"] != "Licensed"] == ["vdi-1"]
        assert {state["server"] for name, state in states.items() if name != "vdi-1"} == {FIRST_HOST}

    licensing.clear("license-denied", "vdi-1")
    run = licensing.play("license_rotate", token=token).require_success()
    assert {state["server"] for state in licensing.states().values()} == {NEW_HOST}
    assert run.shown(f"lab: {NODES} of {NODES} vGPU nodes have a license")
    assert len(licensing.secret()["data"]) == 4

    # Back to the replaced files, with the token still in the variables.
    licensing.play("license_rotate", token=token, gpu_licensing_restore=True).require_success()
    assert {state["server"] for state in licensing.states().values()} == {FIRST_HOST}
    assert licensing.secret()["data"] == before["data"]
    again = licensing.play("license_rotate", token=token, gpu_licensing_restore=True).require_success()
    assert again.changed("lab") == 0


@pytest.mark.sampled(1, group="whole runs of licensing")
def test_a_rotation_restarts_no_pod(licensing: Licensing) -> None:
    licensing.run_gpu_pods()
    before, since = licensing.pods(), licensing.mark()
    token = licensing.token(NEW_HOST)
    predicted = licensing.play("license_rotate", token=token, arguments=("--check", "--diff")).require_success()
    run = licensing.play("license_rotate", token=token, arguments=("--diff",)).require_success()
    assert predicted.changed("lab") == 2
    assert run.changed("lab") == 2
    (result,) = run.module_results("accel.gpu.license_rotation")
    (expected,) = predicted.module_results("accel.gpu.license_rotation")
    assert expected["license_rotation"] == result["license_rotation"]
    assert expected["diff"] == result["diff"]
    assert result["license_rotation"]["rotated_count"] == NODES
    assert licensing.pods() == before
    assert licensing.pod_changes(since) == []
    assert {state["token_sha256"] for state in licensing.states().values()} == {licensing.digest()}
    assert licensing.play("license_rotate", token=token).require_success().changed("lab") == 0


@pytest.mark.sampled(1, group="whole runs of licensing")
def test_site_reports_a_missing_license(licensing: Licensing) -> None:
    licensing.take_license("vdi-1")
    tags = ("--tags", "licensing,report")
    token = licensing.token()
    run = licensing.play("site", token=token, arguments=tags, gpu_licensing_wait_timeout=5)
    assert run.rc == 2
    assert "1 of 20 nodes have no verified license." in run.failure()
    assert len(run.module_results("accel.gpu.gpu_info")) == 1


def test_a_node_that_is_not_ready_needs_no_license(licensing: Licensing) -> None:
    licensing.take_license("vdi-1")
    licensing.fault("node-not-ready", "vdi-1")
    until(
        lambda: "vdi-1: Not verified: it is not ready." in str(licensing.info()["license_info"]["warnings"]), limit=60
    )


def test_a_stale_pid_file_ends_no_other_process(licensing: Licensing) -> None:
    pid = licensing.kill_client("vdi-1")
    licensing.put_token(licensing.token(NEW_HOST))
    done = licensing.rotate(node_names=["vdi-1"], wait_timeout=30)
    assert done["license_rotation"]["rotated"] == ["vdi-1"], done
    assert licensing.states()["vdi-1"]["server"] == NEW_HOST
    assert licensing.run("vdi-1", "cat", f"/proc/{pid}/comm") == "sleep\n"


@pytest.mark.sampled(1, group="whole runs of licensing")
def test_a_config_map_by_hand_becomes_a_secret(vgpu_lab: Lab, tmp_path: Any) -> None:
    vgpu_lab.reset(FLEET)
    licensing = Licensing(vgpu_lab, tmp_path)
    licensing.pool = {**licensing.pool, "driver": None}
    token = licensing.token()
    licensing.cluster.kubectl("create", "namespace", NAMESPACE)
    licensing.cluster.kubectl(
        "create", "configmap", "by-hand", "-n", NAMESPACE, f"--from-file={TOKEN_KEY}={token}", "--from-literal=gridd.conf=FeatureType=1"
    )  # fmt: skip
    variables = licensing.variables
    values = {"driver": {"licensingConfig": {"configMapName": "by-hand", "nlsEnabled": True}}}
    variables["gpu_cluster"]["operator"]["values"] = values
    licensing.play("site", arguments=("--tags", "nfd,gpu_operator"), **variables).require_success()
    assert licensing.info()["license_info"]["counts"]["licensed"] == NODES

    held = licensing.license()
    assert held["changed"]
    (entry,) = held["license"]["objects"]
    assert (entry["name"], entry["action"], entry["migrated_from"]) == (
        "by-hand",
        "created",
        f"ConfigMap {NAMESPACE}/by-hand",
    )
    assert held["license"]["held_back"] == [
        "spec.driver.licensingConfig.configMapName",
        "spec.driver.licensingConfig.secretName",
    ]
    assert f"they would restart the driver on {NODES} nodes" in str(held["warnings"])
    policy = licensing.cluster.get("clusterpolicy", "cluster-policy")["spec"]["driver"]["licensingConfig"]
    assert policy["configMapName"] == "by-hand"
    assert not licensing.license()["changed"]

    # Drivers would get no new token from the Secret.
    for arguments in (("--check",), ()):
        refused = licensing.play("license_rotate", token=licensing.token(NEW_HOST), arguments=arguments, **variables)
        assert refused.rc == 2
        assert f"No node was rotated: the driver pods do not mount Secret {NAMESPACE}/by-hand." in refused.failure()
        assert {state["server"] for state in licensing.states().values()} == {FIRST_HOST}

    predicted = licensing.license(allow_driver_rollout=True, check=True)
    allowed = licensing.license(allow_driver_rollout=True)
    assert (predicted["changed"], predicted["diff"]) == (True, allowed["diff"])
    assert allowed["license"]["driver_nodes"] == NODES
    for result in (allowed, licensing.license()):
        assert f"replaces ConfigMap {NAMESPACE}/by-hand, which still contains a token" in str(result["warnings"])
    policy = licensing.cluster.get("clusterpolicy", "cluster-policy")["spec"]["driver"]["licensingConfig"]
    assert (policy["secretName"], policy.get("configMapName") or "") == ("by-hand", "")
    assert not licensing.license(allow_driver_rollout=True)["changed"]


@pytest.mark.sampled(1, group="planted secrets")
def test_a_planted_token_is_found_nowhere(licensing: Licensing) -> None:
    planted, folder = Planted(), licensing.folder / "run"
    folder.mkdir()
    token = make_token(hosts=[NEW_HOST])
    planted.add("token", token)
    planted.add("signature", token.rpartition(".")[2])
    environ = {**licensing.lab.env, "NLS_CLIENT_TOKEN": token, "TMPDIR": str(folder)}
    shown = Shown(environ, folder)
    with planted.watched(folder) as seen:
        # The token is for another license server.
        assert shown.play("accel.gpu.license", variables=licensing.variables) == 2
        assert "is not a renewal of the one in" in shown.text
        variables = {**licensing.variables, "gpu_licensing_replace": True}
        # The nodes have a license with the old token, so the new one is first tried.
        assert shown.play("accel.gpu.license", variables=variables) == 2
        assert "The playbook license_rotate tries the new token on one node" in shown.text
        for name in ("license_rotate", "license", "license_report"):
            assert shown.play(f"accel.gpu.{name}", variables=variables) == 0, shown.text[-3000:]
    assert re.search(r"changed=[1-9]", shown.text)
    assert planted.found_in(shown.text) == []
    assert seen == []
    audit = licensing.lab.audit_log.read_bytes()
    assert planted.found_in(audit) == []


@pytest.mark.sampled(1, group="whole runs of licensing")
def test_the_playbooks_run_with_the_shipped_rights(licensing: Licensing) -> None:
    token, lab = licensing.token(NEW_HOST), licensing.lab
    nodes = ["vdi-1", "vdi-2"]
    # The user of license_rotate may restart drivers, too (test_restarted_drivers.py).
    as_license: dict[str, Any] = {"environ": lab.env_as("license")}
    rotated = licensing.play("license_rotate", token=token, gpu_licensing_node_names=nodes, **as_license)
    assert rotated.require_success().changed("lab") == 2
    assert licensing.play("license", **as_license).require_success().changed("lab") == 0
    report = licensing.play("license_report", environ=lab.env_as("license_report"))
    assert report.failure().startswith(
        f"{NODES - len(nodes)} nodes have a token that differs from the one in their Secret."
    )
    tags = ("--tags", "gpu_operator,licensing")
    as_site = lab.env_as("site")
    assert licensing.play("site", token=token, environ=as_site, arguments=tags).require_success().changed("lab") == 0


@pytest.mark.soak
def test_an_uninstallation_deletes_the_secret(licensing: Licensing) -> None:
    run = licensing.play("uninstall", gpu_confirm=licensing.lab.name).require_success()
    lines = [line for result in run.module_results("accel.gpu.uninstall") for line in result["uninstall"]["removed"]]
    assert f"Secret {NAMESPACE}/{SECRET}: deleted" in lines
