# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The errors of a Kubernetes API server, and the repetition of a change after a conflict."""

from __future__ import annotations

import contextlib
import json
import re
import typing as t

from ..core.errors import ModuleFailure, ServiceError

if t.TYPE_CHECKING:
    from ..core.values import Object

# Represents the errors of a Kubernetes API server .

# How responses of the eviction API report disruption budgets: the cause of a 429 and the start of the message of a 500.
BUDGET_CAUSE = "DisruptionBudget"
TWO_BUDGETS = "more than one PodDisruptionBudget"

# The API server's message about its authorizer's decision (apiserver pkg/endpoints/handlers/responsewriters/errors.go, forbiddenMessage) begins with the
# resource and the object, if any (apimachinery pkg/api/errors/errors.go, NewForbidden). Text is quoted as in Go. Webhooks may use the same text
# later in the message.
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_MISSING_RIGHT = re.compile(rf"(?:(?:\S+ (?:{_QUOTED} )?is )?forbidden: )?User {_QUOTED} cannot ")


# The fields of a Status object that are read, with their types; the fields of its causes are strings (apimachinery pkg/apis/meta/v1/types.go).
_STATUS_FIELDS = {"kind": str, "message": str, "reason": str, "details": dict, "metadata": dict}

# The admission plugin ResourceQuota (apiserver pkg/admission/plugin/resourcequota/controller.go).
_QUOTA = re.compile(r"exceeded quota: (?P<name>[^,\s]+)")


class WrongCluster(ModuleFailure):
    """The connection leads, or may lead, to a cluster other than the declared one. Nothing was changed."""

    code = "wrong_cluster"


class ApiError(ServiceError):
    """An error response of an API server or a missing response (status is None).

    `not_found` is true if the object or its kind does not exist. `conflict` is also true if another manager owns a field.
    """

    service = "The API server"
    address_setting = "the kubeconfig"
    ca_setting = "ca_cert (or certificate-authority in the kubeconfig)"
    proxy_setting = "the option proxy and proxy-url in the kubeconfig"
    # Whether the body is a Status object, as in responses of an API server.
    has_status_object = False

    @property
    def gone(self) -> bool:
        """Whether the resource version or the continue token is too old."""
        return self.status == 410

    @property
    def lacks_right(self) -> bool:
        """Whether the user lacks permission for the request; other 403 errors concern the object: a quota, pod security, an admission webhook."""
        return self.forbidden and bool(_MISSING_RIGHT.match(self.message))

    @property
    def rejects_object(self) -> bool:
        """Whether the server rejects the object in the request, so that requests with other objects may succeed.

        If an admission webhook returns no status, the server responds with 400 (apiserver pkg/admission/plugin/webhook/errors/statuserror.go).
        """
        if self.status == 403:
            # A 403 without a Status object may come from a proxy.
            return self.has_status_object and not self.lacks_right
        return self.status in (400, 422)

    @property
    def fails_every_request(self) -> bool:
        """Whether all other requests would also fail; unlike other services, an API server may reject a single object with the status 403."""
        return super().fails_every_request and not self.rejects_object

    @property
    def quota(self) -> str:
        """The name of the ResourceQuota that the request exceeds; empty if it exceeds none."""
        match = _QUOTA.search(self.message) if self.forbidden else None
        return match["name"] if match else ""

    @property
    def refuses_eviction(self) -> bool:
        """Whether a disruption budget or a webhook denies the eviction, so retries at short intervals do not help.

        The server's own 429 (too many requests, storage that is starting) has Retry-After and no cause. The 429 of a budget has a cause
        (registry/core/pod/storage/eviction.go), and the 429 of a webhook (KubeVirt) has neither.
        """
        causes = {cause.get("reason") for cause in self.details.get("causes") or ()}
        if self.status == 429:
            return BUDGET_CAUSE in causes or self.retry_after is None
        return self.status == 500 and TWO_BUDGETS in self.message


def status_error(
    status: t.Mapping[str, t.Any],
    text: str,
    *,
    code: int,
    reason: str,
    details: t.Mapping[str, t.Any] | None = None,
    **fields: t.Any,
) -> ApiError:
    """The error for a response. `text` and `reason` are used for a response without a Status object, which a proxy may send; `code` is the HTTP status.

    `details` are added to the details of the Status object; `fields` contains other fields of ApiError.
    """
    error = ApiError(
        status.get("message") or text,
        status=code,
        reason=status.get("reason") or reason,
        details={**status.get("details", {}), **(details or {})},
        **fields,
    )
    error.has_status_object = status.get("kind") == "Status"
    return error


def parse_status(body: bytes) -> dict[str, t.Any]:
    """The fields of the Status object in an error response. Fields with unexpected types, which a proxy may send, are omitted."""
    with contextlib.suppress(ValueError, RecursionError):
        parsed = json.loads(body)
        if isinstance(parsed, dict):
            status = {name: parsed[name] for name, kind in _STATUS_FIELDS.items() if isinstance(parsed.get(name), kind)}
            if "causes" in status.get("details", {}):
                status["details"]["causes"] = _causes(status["details"]["causes"])
            return status
    return {}


def _causes(value: t.Any) -> list[dict[str, str]]:
    causes = [cause for cause in value if isinstance(cause, dict)] if isinstance(value, list) else []
    return [{name: text for name, text in cause.items() if isinstance(text, str)} for cause in causes]


# Repeats a write after a conflict with another writer, with a body that is computed from the latest version of the object.

# Each conflict costs one read. Nodes (kubelet, operators, administrators) and the status of a ClusterPolicy have the
# most writers.
MAX_ATTEMPTS = 8
D = t.TypeVar("D")
R = t.TypeVar("R")


class Patcher(t.Protocol):
    """The requests that `patch_object` sends."""

    def get(self, path: str) -> Object | None:
        """The object; None if it does not exist."""

    def patch(self, path: str, body: Object, *, dry_run: bool = False) -> Object:
        """Merge the body into the object."""


def retry_conflicts(
    send: t.Callable[[D], R],
    desired: D,
    recompute: t.Callable[[], D | None],
    is_repeatable: t.Callable[[ApiError], bool] = lambda error: error.conflict,
) -> R | None:
    """The result of `send`; None if `recompute`, which reads the object again after a conflict, finds nothing to send.

    The error of the last attempt is raised.
    """
    for dummy in range(MAX_ATTEMPTS - 1):
        try:
            return send(desired)
        except ApiError as error:
            if not is_repeatable(error):
                raise
        following = recompute()
        if following is None:
            return None
        desired = following
    return send(desired)


def patch_object(
    client: Patcher,
    path: str,
    live: Object | None,
    compute: t.Callable[[Object], Object | None],
    *,
    dry_run: bool = False,
) -> Object | None:
    """Send the merge patch that `compute` returns for the object, and return the patched object; None if the object does not exist.

    If there is no patch, the object is returned unchanged. Each patch applies only to the version of the object from which it was computed.
    """
    current = live

    def compute_versioned() -> Object | None:
        patch = compute(current) if current is not None else None
        if patch is None or current is None:
            return None
        return {**patch, "metadata": {**(patch.get("metadata") or {}), "resourceVersion": _version(current)}}

    def read_again() -> Object | None:
        nonlocal current
        current = client.get(path)
        return compute_versioned()

    patch = compute_versioned()
    if patch is None:
        return current
    patched = retry_conflicts(lambda body: client.patch(path, body, dry_run=dry_run), patch, read_again)
    return current if patched is None else patched


def _version(item: Object) -> str:
    return str(item["metadata"]["resourceVersion"])
