# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a cluster's kubeconfig from VKS, and requests a new one if there is none or if the existing one expires soon.

Results never contain a kubeconfig.
"""

from __future__ import annotations

import datetime
import time
from dataclasses import dataclass, field

from ...common.errors import PartialFailure
from ...common.wait import WaitOptions, wait_until
from .clusters import VksCluster
from .transport import VKS, VksTransport

NONE, CREATING, ACTIVE, ERROR = "NONE", "CREATING", "ACTIVE", "ERROR"
_DAY = 86400.0
_FIRST_PAUSE = 0.2


@dataclass(frozen=True)
class VksKubeconfig:
    """The service's kubeconfig for a cluster.

    status: the status that the API returns. expires_at: the time of expiry in the service's own format, or None if the time is unknown.
    """

    status: str
    text: str = field(default="", repr=False)
    expires_at: str | None = None
    renewal_warning: bool = False

    @property
    def ready(self) -> bool:
        """Whether the kubeconfig can be used."""
        return self.status == ACTIVE and bool(self.text.strip())


def read(transport: VksTransport, cluster: VksCluster) -> VksKubeconfig:
    """The current kubeconfig of a cluster in VKS."""
    body = transport.get(VKS, f"{cluster.path}/kubeconfig") or {}
    return VksKubeconfig(
        str(body.get("status") or NONE),
        str(body.get("kubeConfig") or ""),
        str(body["expirationAt"]) if body.get("expirationAt") else None,
        bool(body.get("renewalWarning")),
    )


def reason_to_issue(current: VksKubeconfig, renew_before: float, now: datetime.datetime) -> str:
    """The reason why a new kubeconfig is needed. It is empty if the current one is valid for `renew_before` more days or is being created."""
    if current.status == CREATING:
        return ""
    if not current.ready:
        return f"VKS has none ({current.status})"
    if current.renewal_warning:
        return "VKS warns that it expires soon"
    end = _time(current.expires_at)
    if end is not None and (end - now).total_seconds() < renew_before * _DAY:
        return f"it expires at {current.expires_at}"
    return ""


def issue(
    transport: VksTransport, cluster: VksCluster, before: VksKubeconfig, *, days: int, wait: WaitOptions
) -> VksKubeconfig:
    """Request a new kubeconfig, and wait for it. Raises WaitTimeout, PartialFailure and VksError."""

    def request() -> bool:
        # After a lost response, the current kubeconfig shows whether the request was carried out.
        current = read(transport, cluster)
        if current.status != CREATING and not _is_new(current, before):
            transport.send(VKS, "POST", f"{cluster.path}/kubeconfig", body={"expirationDays": days})
        return True

    start = time.monotonic()
    wait_until(
        request,
        bool,
        timeout=wait.timeout,
        interval=wait.interval,
        describe=lambda dummy: f"The kubeconfig of cluster {cluster.name} could not be requested.",
    )
    seconds_left = max(0.0, wait.timeout - (time.monotonic() - start))
    return await_ready(transport, cluster, before, WaitOptions(seconds_left, wait.interval, wait.progress))


def await_ready(
    transport: VksTransport, cluster: VksCluster, before: VksKubeconfig, wait: WaitOptions
) -> VksKubeconfig:
    """Wait for a kubeconfig that differs from `before`. Raises WaitTimeout, PartialFailure and VksError."""
    started = before.status == CREATING

    def done(current: VksKubeconfig) -> bool:
        nonlocal started
        started = started or current.status == CREATING
        if current.status == ERROR and (started or before.status != ERROR):
            raise PartialFailure(
                f"VKS failed to create a kubeconfig for cluster {cluster.name} (status ERROR). Try again, or create it in the console."
            )
        return current.ready and (started or _is_new(current, before))

    return wait_until(
        lambda: read(transport, cluster),
        done,
        timeout=wait.timeout,
        interval=wait.interval,
        first_interval=_FIRST_PAUSE,
        describe=lambda current: f"The kubeconfig of cluster {cluster.name} is {current.status}.",
        progress_text=lambda current: f"kubeconfig of {cluster.name}: {current.status}",
        progress=wait.progress,
    )


def _is_new(current: VksKubeconfig, before: VksKubeconfig) -> bool:
    return current.ready and (current.text, current.expires_at) != (before.text, before.expires_at)


def _time(text: str | None) -> datetime.datetime | None:
    """Parse a time from the service: ISO 8601, or seconds or milliseconds since 1970."""
    if not text:
        return None
    try:
        if text.isdecimal():
            seconds = int(text)
            return datetime.datetime.fromtimestamp(seconds / (1000 if seconds > 10**11 else 1), datetime.UTC)
        parsed = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=datetime.UTC)
