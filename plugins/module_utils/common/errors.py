# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can be in the way of any module's work, whatever service it talks to."""

from __future__ import annotations

import typing as t

CODE_UNREACHABLE = "unreachable"


class ConnectionProblem(Exception):
    """The service cannot be asked as things are configured: no credentials, no such context, another cluster."""


class InvalidOptions(Exception):
    """What was asked cannot be; all of it is told at once, and nothing was sent."""

    def __init__(self, problems: t.Sequence[str], title: str = "This cannot be done:") -> None:
        """Join the problems to one message; one alone needs no title."""
        super().__init__(problems[0] if len(problems) == 1 else "\n".join([title, *problems]))
        self.problems = list(problems)


class ReleaseRefused(Exception):
    """The run would release many nodes from their pools, and nothing allows that; `partial` is the result so far."""

    def __init__(self, message: str) -> None:
        """There is no result yet."""
        super().__init__(message)
        self.partial: dict[str, t.Any] = {}


class PartialFailure(Exception):
    """Part of the work could not be done; the rest was, and stands in `partial`."""

    def __init__(self, message: str, partial: t.Mapping[str, t.Any] | None = None) -> None:
        """Keep the result for the failure."""
        super().__init__(message)
        self.partial = dict(partial or {})


class ServiceError(Exception):
    """An answer of 400 and more from a service that speaks HTTP, or no answer at all (status is None)."""

    # How a story names who did not answer.
    service: t.ClassVar[str] = "The service"

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        reason: str = "",
        method: str = "",
        path: str = "",
        details: t.Mapping[str, t.Any] | None = None,
        retry_after: float | None = None,
        sent: bool = True,
    ) -> None:
        """Keep what the server said; `sent` is False when the request certainly never reached it."""
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason
        self.method = method
        self.path = path
        self.details = dict(details or {})
        self.retry_after = retry_after
        self.sent = sent
        # What was reached until then goes into the module's failure.
        self.partial: dict[str, t.Any] = {}

    @property
    def not_found(self) -> bool:
        """What was asked for is not there."""
        return self.status == 404

    @property
    def conflict(self) -> bool:
        """Somebody else was faster, or it exists already."""
        return self.status == 409

    @property
    def forbidden(self) -> bool:
        """The user is known and has no right to do this."""
        return self.status == 403

    @property
    def passing(self) -> bool:
        """It may end by itself: the server is away, restarts or has too much to do."""
        return self.unreachable or self.status == 429 or (self.status or 0) >= 500

    @property
    def unreachable(self) -> bool:
        """No answer came: refused, no name, no TLS, timed out, broken off."""
        return self.status is None

    @property
    def hopeless(self) -> bool:
        """Every further call would meet it too: no rights, no connection."""
        return self.unreachable or self.status in (401, 403)

    @property
    def ambiguous(self) -> bool:
        """A mutating request may have been carried out although it failed."""
        return self.sent and (self.status is None or self.status in (500, 502, 503, 504))

    @property
    def code(self) -> int | str:
        """The HTTP status, or the word for no answer."""
        return CODE_UNREACHABLE if self.status is None else self.status
