# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rolling updates that are forbidden, or whose objects are deleted: they succeed, or fail and report the reason, and the next run succeeds."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lab.api import ApiError
from tests.faults.api_proxy import Answer, Request
from tests.faults.test_rollout_api import (
    marks,
    refusing,
    require_changed,
    share_through,
    start_gpu_pods,
    status,
)
from tests.helpers.rolling import CORDONED, HALVES, MPS, TARGET, Object, Rolling
from tests.helpers.toxiproxy import toxiproxy
from tests.helpers.workloads import GPU

pytestmark = [
    pytest.mark.sampled(1, group="faults of a rolling update"),
    pytest.mark.usual(60),
    pytest.mark.timeout(600),
]

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/accel-gpu"
CONFIGMAP = "/api/v1/namespaces/gpu-operator/configmaps/accel-gpu-device-plugin"
POLICIES = "/apis/admissionregistration.k8s.io/v1"
FROZEN = "frozen by change control until Monday"


def require_converged(rolling: Rolling, result: Object, sharing: Object, offered: dict[str, int], *texts: str) -> None:
    """The change succeeded, or failed with one of these texts and succeeds in the next run."""
    if result.get("failed"):
        print(f"ended with: {result['msg']}")
        assert "Traceback" not in str(result)
        assert any(text in result["msg"] for text in texts), result["msg"]
        result = rolling.share(sharing)
    require_changed(rolling, result, offered)


def once_begun(rolling: Rolling, action: Callable[[], Any]) -> threading.Thread:
    """Act when the first node is cordoned."""

    def wait() -> None:
        rolling.users.until(
            lambda: any(CORDONED in annotations for annotations in marks(rolling)), "the change has begun"
        )
        action()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_twenty_seconds_without_connection(rolling: Rolling, tmp_path: Path) -> None:
    """The longest time that a Lease may go without renewal: it may be lost or not."""
    start_gpu_pods(rolling)
    with toxiproxy(rolling.lab.kubeconfig, tmp_path) as (line, kubeconfig):
        thread = once_begun(rolling, lambda: line.cut(20))
        result = share_through(rolling, kubeconfig, HALVES)
        thread.join()
    require_converged(rolling, result, HALVES, {GPU: 2}, "lease", "did not answer")


def test_many_server_errors(rolling: Rolling, tmp_path: Path, rng: random.Random) -> None:
    start_gpu_pods(rolling)
    refused = itertools.count()

    def refuse(request: Request) -> Answer | None:
        if "accel.gpu/" not in request.user_agent or rng.random() > 1 / 5:
            return None
        next(refused)
        code = rng.choice([500, 502, 503, 504])
        return Answer(code, status(code, "InternalError", "etcdserver: leader changed"))

    with refusing(rolling, tmp_path, refuse) as (dummy, kubeconfig):
        result = share_through(rolling, kubeconfig, MPS)
    assert next(refused) > 0
    require_converged(rolling, result, MPS, {GPU: 4}, "leader changed", "lease")


# The status with which a policy refuses, 422 or 403.
@pytest.mark.parametrize("reason", ["Invalid", "Forbidden"])
def test_an_admission_policy_that_forbids_the_cordon_of_one_node(rolling: Rolling, reason: str) -> None:
    start_gpu_pods(rolling)
    expression = (
        f"object.metadata.name != '{TARGET}' || !has(object.metadata.annotations) "
        f"|| !('{CORDONED}' in object.metadata.annotations)"
    )
    with forbidden_by_policy(rolling, expression, reason):
        result = rolling.share(MPS, rollout={"max_unavailable": 1, "order": "name", "pause_on_failure": False})
    assert result["failed"] is True
    assert FROZEN in result["msg"]
    assert list(result["gpu_sharing"]["failed"]) == [TARGET]
    rolling.require_offered({GPU: 4}, but=TARGET)
    rolling.require_clean()
    require_changed(rolling, rolling.share(MPS), {GPU: 4})


def test_an_admission_policy_that_forbids_all_but_the_cordon(rolling: Rolling) -> None:
    """The node stays cordoned, which counts against max_unavailable, so that no other node follows it."""
    start_gpu_pods(rolling)
    changed = "!has(object.spec.unschedulable) || object.metadata.labels != oldObject.metadata.labels"
    expression = f"object.metadata.name != '{TARGET}' || !has(oldObject.spec.unschedulable) || !({changed})"
    with forbidden_by_policy(rolling, expression, "Forbidden"):
        result = rolling.share(HALVES, rollout={"max_unavailable": 1, "order": "name", "pause_on_failure": False})
    assert result["failed"] is True
    assert list(result["gpu_sharing"]["failed"]) == [TARGET]
    assert "; and then: " in result["gpu_sharing"]["failed"][TARGET]
    assert result["gpu_sharing"]["left_cordoned"] == [TARGET]
    assert result["gpu_sharing"]["not_started"] == ["a100-3"]
    require_changed(rolling, rolling.share(HALVES), {GPU: 2})


@contextmanager
def forbidden_by_policy(rolling: Rolling, expression: str, reason: str) -> Iterator[None]:
    """Nodes must fulfill this expression, until the block ends."""
    name = "change-control"
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"]}
                ]
            },
            "validations": [
                {"expression": text, "message": FROZEN, "reason": reason} for text in (expression, f"!({_PROBED})")
            ],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    api = rolling.users.api
    api.request("POST", f"{POLICIES}/validatingadmissionpolicies", policy)
    api.request("POST", f"{POLICIES}/validatingadmissionpolicybindings", binding)
    try:
        rolling.users.until(lambda: refused_by_policy(rolling), "the policy is in force")
        yield
    finally:
        api.request("DELETE", f"{POLICIES}/validatingadmissionpolicybindings/{name}")
        api.request("DELETE", f"{POLICIES}/validatingadmissionpolicies/{name}")
    rolling.users.until(lambda: not refused_by_policy(rolling), "the policy is gone")


# Only the test itself sets this annotation, to find out whether the policy is in force.
_PROBE = "example.com/change-control"
_PROBED = f"has(object.metadata.annotations) && '{_PROBE}' in object.metadata.annotations"


def refused_by_policy(rolling: Rolling) -> bool:
    patch = {"metadata": {"annotations": {_PROBE: "a test"}}}
    try:
        rolling.users.api.request("PATCH", f"/api/v1/nodes/{TARGET}?dryRun=All", patch, "application/merge-patch+json")
    except ApiError as error:
        return FROZEN in str(error)
    return False


@pytest.mark.parametrize("check", [True, False])
def test_the_right_to_evict_is_missing(rolling: Rolling, tmp_path: Path, check: bool) -> None:
    """Nothing is changed, and the API server is asked only for all namespaces and for the first one with a pod to evict."""
    start_gpu_pods(rolling)
    reviews = itertools.count()

    def deny(request: Request) -> Answer | None:
        if "/selfsubjectaccessreviews" not in request.path:
            return None
        next(reviews)
        return Answer(201, b'{"status": {"allowed": false}}', {"Content-Type": "application/json"})

    before = rolling.cluster.offered("a100-")
    with refusing(rolling, tmp_path, deny) as (proxy, kubeconfig):
        result = share_through(rolling, kubeconfig, MPS, check=check)
    assert (result["failed"], result["code"], next(reviews)) == (True, 403, 2)
    assert 'resources: ["pods/eviction"], verbs: ["create"]' in result["msg"]
    assert result["gpu_sharing"]["left_cordoned"] == []
    assert result["changed"] is False
    assert bool(result["gpu_sharing"]["changed_nodes"]) is check, (
        "check mode predicts the changes of a run with the permission"
    )
    assert proxy.mutations() == []
    assert rolling.cluster.offered("a100-") == before
    rolling.require_clean()


def test_the_right_to_evict_is_lost(rolling: Rolling, tmp_path: Path) -> None:
    """The message names the nodes that stay cordoned."""
    start_gpu_pods(rolling)
    message = 'pods "a100-1" is forbidden: User "ci" cannot create resource "pods/eviction"'

    def refuse(request: Request) -> Answer | None:
        return Answer(403, status(403, "Forbidden", message)) if request.path.endswith("/eviction") else None

    with refusing(rolling, tmp_path, refuse) as (dummy, kubeconfig):
        result = share_through(rolling, kubeconfig, MPS)
    assert result["failed"] is True
    assert 'cannot create resource "pods/eviction"' in result["msg"]
    cordoned = result["gpu_sharing"]["left_cordoned"]
    assert cordoned
    assert f"Nodes that stay cordoned: {', '.join(cordoned)}." in result["msg"]
    assert not {*cordoned} & {*result["gpu_sharing"]["changed_nodes"]}
    require_changed(rolling, rolling.share(MPS), {GPU: 4})


def test_the_lease_is_deleted(rolling: Rolling) -> None:
    """As by a cleanup of the namespace, or the restore of a backup."""
    start_gpu_pods(rolling)
    rolling.users.budget("strict", "a100-1", minAvailable=1)
    thread = once_begun(rolling, lambda: rolling.users.api.request("DELETE", LEASE))
    result = rolling.share(MPS, rollout={"max_unavailable": 1, "order": "name"})
    thread.join()
    rolling.users.no_budget("strict")
    assert result["code"] == "lease_lost"
    assert "it was deleted" in result["msg"]
    require_changed(rolling, rolling.share(MPS), {GPU: 4})


def test_the_configmap_is_deleted(rolling: Rolling) -> None:
    start_gpu_pods(rolling)
    thread = once_begun(rolling, lambda: rolling.users.api.request("DELETE", CONFIGMAP))
    result = rolling.share(MPS, wait_timeout=40)
    thread.join()
    require_converged(rolling, result, MPS, {GPU: 4}, "is expected", "node(s) failed", "accel-gpu-device-plugin")


def test_a_report_that_cannot_be_written(rolling: Rolling, tmp_path: Path) -> None:
    """The change is made, and reported with a warning."""
    path = tmp_path / "missing" / "report.json"
    result = rolling.share(MPS, report_path=str(path))
    require_changed(rolling, result, {GPU: 4})
    assert f"{path} cannot be written: No such file or directory" in str(result["warnings"])
