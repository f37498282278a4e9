# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Errors that can occur in any module, regardless of the service that it uses."""

from __future__ import annotations

import sys
import typing as t

from .messages import one_line

CODE_UNREACHABLE = "unreachable"
# The `reason` of a ServiceError without a response.
REFUSED, DNS, TIMEOUT, TLS, PROXY, BROKEN = "Refused", "DNS", "Timeout", "TLS", "Proxy", "Broken"


class ModuleFailure(Exception):
    """A failure that a module reports: its message, `code`, and `partial`, the result so far."""

    code: t.ClassVar[str]

    def __init__(self, message: str, partial: t.Mapping[str, t.Any] | None = None) -> None:
        """Store the partial result for the failure."""
        super().__init__(message)
        self.partial = dict(partial or {})


class ConnectionProblem(ModuleFailure):
    """The configuration does not allow a request, for example because of missing credentials, an unknown context, or a different cluster."""

    code = "connection"


def missing_library(name: str, purpose: str) -> ConnectionProblem:
    """The error for a Python library that is not installed."""
    return ConnectionProblem(
        f"{purpose} needs {name}, which {sys.executable} does not have. Install it: pip install {name}."
    )


class InvalidOptions(ModuleFailure):
    """The options are invalid or contradict each other. The message contains all problems; nothing was sent."""

    code = "invalid"

    def __init__(self, problems: t.Sequence[str], title: str = "Invalid options:") -> None:
        """Join the problems into one message; a single problem needs no title."""
        super().__init__(problems[0] if len(problems) == 1 else "\n".join([title, *problems]))
        self.problems = list(problems)


class ReleaseRefused(ModuleFailure):
    """The run would release many nodes from their pools without permission."""

    code = "release_refused"


class NotConfirmed(ModuleFailure):
    """The run would delete something, or end the sharing of all pools, and the option `confirm` does not contain the name of the cluster."""

    code = "not_confirmed"


class PartialFailure(ModuleFailure):
    """Part of the work failed; `partial` is the result of the part that succeeded."""

    code = "partial"


# The service or its load balancer has failed, possibly after the request was carried out.
SERVER_FAILURES = (500, 502, 503, 504)


class ServiceError(Exception):
    """An error response of an HTTP service, or a missing response (status is None, and `reason` is one of the constants above)."""

    # The name of the service in messages.
    service = "The service"
    # The settings that remedies refer to.
    address_setting: t.ClassVar[str] = "the address"
    timeout_setting: t.ClassVar[str] = "request_timeout"
    ca_setting: t.ClassVar[str] = "ca_cert"
    proxy_setting: t.ClassVar[str] = "HTTPS_PROXY and NO_PROXY"
    # Statuses by which the service indicates that it did not carry out the request, and that the request may be sent again later.
    retry_statuses: t.ClassVar[frozenset[int]] = frozenset({429})

    def __init__(
        self,
        message: str,
        *,
        service: str = "",
        status: int | None = None,
        reason: str = "",
        method: str = "",
        path: str = "",
        details: t.Mapping[str, t.Any] | None = None,
        retry_after: float | None = None,
        sent: bool = True,
    ) -> None:
        """Store the service's response; `sent` is False if the request definitely did not reach the service."""
        message = one_line(message)
        super().__init__(message)
        self.message = message
        if service:
            self.service = service
        self.status = status
        self.reason = reason
        self.method = method
        self.path = path
        self.details = dict(details or {})
        self.retry_after = retry_after
        self.sent = sent
        # Whether an earlier attempt of the same request may have been carried out.
        self.earlier_outcome_unknown = False
        # The result so far, for the module's failure.
        self.partial: dict[str, t.Any] = {}

    @property
    def operation(self) -> str:
        """The method and the path of the request."""
        return f"{self.method} {self.path}".strip()

    @property
    def not_found(self) -> bool:
        """Whether the object does not exist."""
        return self.status == 404

    @property
    def conflict(self) -> bool:
        """Whether the object was changed in the meantime, or already exists."""
        return self.status == 409

    @property
    def forbidden(self) -> bool:
        """Whether the service refuses the request of a known user (status 403)."""
        return self.status == 403

    @property
    def declined(self) -> bool:
        """Whether the service did not carry out the request, and asks the client to send it again later."""
        return self.status in self.retry_statuses

    @property
    def transient(self) -> bool:
        """Whether the request may succeed later without a change by the user, because the service is unavailable, restarting or overloaded."""
        return self.unreachable or self.declined or self.status in SERVER_FAILURES

    @property
    def unreachable(self) -> bool:
        """Whether there was no response: connection refused, name not resolved, TLS failure, timeout, or connection broken."""
        return self.status is None

    @property
    def fails_every_request(self) -> bool:
        """Whether every later request of this run would fail in the same way (missing permissions, no connection)."""
        return self.unreachable or self.status in (401, 403)

    @property
    def outcome_unknown(self) -> bool:
        """Whether a changing request may have been carried out although it failed."""
        return self.sent and (self.status is None or self.status in SERVER_FAILURES)

    @property
    def maybe_applied(self) -> bool:
        """Whether any attempt of a changing request, not only the last one, may have been carried out."""
        return self.earlier_outcome_unknown or self.outcome_unknown

    @property
    def code(self) -> int | str:
        """The HTTP status, or the code for a missing response."""
        return CODE_UNREACHABLE if self.status is None else self.status

    @property
    def remedy(self) -> str:
        """The advice if the service does not respond."""
        return {
            REFUSED: f"Nothing listens there. Check that the service is running, and check {self.address_setting}.",
            DNS: f"The name does not resolve from this machine. Check {self.address_setting} and the network.",
            TIMEOUT: f"Check the network, firewalls and proxies, or raise {self.timeout_setting}.",
            TLS: f"Set its CA as {self.ca_setting}; validate_certs=false disables the check.",
            PROXY: f"Check {self.proxy_setting}.",
        }.get(self.reason, "The connection was interrupted. Run the playbook again.")
