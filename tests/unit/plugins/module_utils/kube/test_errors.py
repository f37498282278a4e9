# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One message for each kind of rejection by a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.connection import Connection, explain
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError


@dataclass(frozen=True)
class Asked(Connection):
    """A connection that was not loaded; `expired` is when its client certificate expired."""

    configuration: Any = field(default_factory=lambda: SimpleNamespace(host="https://c:6443"))
    origin: str = "kubeconfig k, context x"
    expired: str = ""

    def expiry(self) -> str:
        return self.expired


ESCALATION = (
    'clusterroles.rbac.authorization.k8s.io "x" is forbidden: user "ci" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not '
    'currently held: {APIGroups:[""], Resources:["nodes"], Verbs:["patch"]}'
)
DENIED = 'nodes is forbidden: User "joe" cannot list resource "nodes" in API group "" at the cluster scope'
EXCEEDED = (
    'pods "p" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1, used: requests.nvidia.com/gpu=6, '
    "limited: requests.nvidia.com/gpu=6"
)
DENIED_THERE = (
    'leases.coordination.k8s.io is forbidden: User "joe" cannot create resource "leases" '
    'in API group "coordination.k8s.io" in the namespace "kube-system"'
)
# The forms of apiserver pkg/endpoints/handlers/responsewriters/errors.go and apimachinery pkg/api/errors/errors.go, NewForbidden.
DENIED_BY_AUTHORIZER = (
    DENIED_THERE,
    'pods "p" is forbidden: User "joe" cannot create resource "pods/exec" in API group "" in the namespace "x"',
    'nodes "a" is forbidden: User "joe" cannot get resource "nodes" in API group "" at the cluster scope: no role',
    'forbidden: User "joe" cannot get path "/metrics"',
    'nodes is forbidden: User "a\\"b\\\\" cannot list resource "nodes" in API group "" at the cluster scope',
    'nodes "a\\"b" is forbidden: User "" cannot get resource "nodes" in API group "" at the cluster scope',
)
REJECTED_WITH_SIMILAR_TEXT = (
    'admission webhook "v.example.com" denied the request: User "ci" cannot change labels of node a',
    'admission webhook "v.example.com" denied the request: nodes "a" is forbidden: User "ci" cannot patch resource "nodes"',
    "nodes \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: User \"ci\" cannot patch it",
)


@pytest.mark.parametrize(
    ("error", "asked", "parts"),
    [
        (
            ApiError("Connection refused", reason="Refused"),
            Asked(),
            ["https://c:6443", "context x", "refused", "check the kubeconfig"],
        ),
        (ApiError("no such host", reason="DNS"), Asked(), ["does not resolve"]),
        (ApiError("self signed", reason="TLS"), Asked(), ["ca_cert", "validate_certs"]),
        (ApiError("timed out", reason="Timeout"), Asked(), ["timed out", "firewalls"]),
        (ApiError("Unauthorized", status=401), Asked(), ["401", "token"]),
        (ApiError("Unauthorized", status=401), Asked(expired="2020-01-01 00:00 UTC"), ["expired at 2020-01-01"]),
        (
            ApiError(DENIED, status=403),
            Asked(),
            ['a ClusterRole with the rule apiGroups: [""], resources: ["nodes"], verbs: ["list"]'],
        ),
        (
            ApiError(DENIED_THERE, status=403),
            Asked(),
            ["namespace kube-system", 'verbs: ["create"]', '"coordination.k8s.io"'],
        ),
        (
            ApiError(
                'User "joe" cannot do this',
                status=403,
                method="PATCH",
                path="/apis/apps/v1/namespaces/x/daemonsets/y?dryRun=All",
            ),
            Asked(),
            ['apiGroups: ["apps"], resources: ["daemonsets"], verbs: ["patch"]'],
        ),
        (
            ApiError('User "joe" cannot get path', status=403, method="GET", path="/api/v1/nodes"),
            Asked(),
            ['resources: ["nodes"], verbs: ["get"]'],
        ),
        (ApiError("slow down", status=429), Asked(), ["less busy"]),
        (
            ApiError("bad", status=422, reason="Invalid", method="PATCH", path="/p"),
            Asked(),
            ["PATCH /p", "422 Invalid", "bad"],
        ),
    ],
)
def test_explain(error: ApiError, asked: Asked, parts: list[str]) -> None:
    explanation = explain(error, asked)
    assert all(part in explanation for part in parts), explanation
    assert "\n" not in explanation


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        (EXCEEDED, "Raise the limit of ResourceQuota gpus, or delete objects that it counts."),
        ('pods "p" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true', ""),
        ('admission webhook "policy.example" denied the request: no team label', ""),
    ],
)
def test_a_rejected_object_is_not_a_missing_right(message: str, remedy: str) -> None:
    error = ApiError(message, status=403, method="POST", path="/api/v1/namespaces/x/pods")
    explanation = explain(error, Asked())
    assert message in explanation
    assert "Role" not in explanation
    assert explanation.endswith(remedy or ").")


@pytest.mark.parametrize(
    ("error", "rejects", "lacks"),
    [
        (ApiError(EXCEEDED, status=403), True, False),
        (ApiError(DENIED, status=403), False, True),
        (ApiError(ESCALATION, status=403), True, False),
        *((ApiError(message, status=403), False, True) for message in DENIED_BY_AUTHORIZER),
        *((ApiError(message, status=403), True, False) for message in REJECTED_WITH_SIMILAR_TEXT),
        (ApiError("Pod is invalid", status=422), True, False),
        (ApiError("webhook denied the request", status=400), True, False),
        (ApiError("exists", status=409), False, False),
        (ApiError("broke"), False, False),
    ],
)
def test_rejected_objects_and_missing_rights(error: ApiError, rejects: bool, lacks: bool) -> None:
    error.has_status_object = True
    assert (error.rejects_object, error.lacks_right) == (rejects, lacks)


@pytest.mark.parametrize(("resource", "verb"), [("clusterroles", "escalate"), ("rolebindings", "bind")])
def test_a_role_that_grants_more_than_the_user_may_do(resource: str, verb: str) -> None:
    error = ApiError(ESCALATION, status=403, method="POST", path=f"/apis/rbac.authorization.k8s.io/v1/{resource}")
    assert explain(error, Asked()).endswith(f"all permissions that the role grants, or the verb {verb} for the role.")


@pytest.mark.parametrize(
    ("message", "status", "is_status_object", "fails"),
    [
        (DENIED, 403, True, True),
        # A webhook, an admission policy or a quota refuses one object.
        (EXCEEDED, 403, True, False),
        ("admission webhook denied the request", 400, True, False),
        # A proxy refuses.
        ("<html>Forbidden</html>", 403, False, True),
        ("Unauthorized", 401, True, True),
        ("broke", None, False, True),
    ],
)
def test_errors_that_fail_every_request(message: str, status: int | None, is_status_object: bool, fails: bool) -> None:
    error = ApiError(message, status=status)
    error.has_status_object = is_status_object
    assert error.fails_every_request is fails


@pytest.mark.parametrize(
    ("error", "unknown"),
    [
        (ApiError("refused", sent=False), False),
        (ApiError("broke"), True),
        (ApiError("gateway", status=504), True),
        (ApiError("exists", status=409), False),
    ],
)
def test_outcome_unknown(error: ApiError, unknown: bool) -> None:
    assert error.outcome_unknown is unknown
