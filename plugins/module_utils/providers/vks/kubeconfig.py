# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster's kubeconfig: read, minted when there is none or it ends soon, and never shown."""

from __future__ import annotations

import datetime
import time
import typing as t
from dataclasses import dataclass, field

from ...common.errors import PartialFailure
from ...common.progress import Progress
from ...common.wait import wait_until
from .clusters import VksCluster
from .errors import VksError
from .transport import VKS, VksTransport

NONE, CREATING, ACTIVE, ERROR = "NONE", "CREATING", "ACTIVE", "ERROR"
_DAY = 86400.0
_FIRST_LOOK = 0.2


@dataclass(frozen=True)
class Kubeconfig:
    """What the service has; `expires_at` is its own text, None where it does not say. `status` as in the API."""

    status: str
    text: str = field(default="", repr=False)
    expires_at: str | None = None
    warned: bool = False

    @property
    def ready(self) -> bool:
        """There is one."""
        return self.status == ACTIVE and bool(self.text.strip())

    def told(self) -> dict[str, t.Any]:
        """As modules return it: without what opens the cluster."""
        return {"status": self.status, "expires_at": self.expires_at, "renewal_warning": self.warned}


def read(transport: VksTransport, cluster: VksCluster) -> Kubeconfig:
    """What there is now; an older service answers with the YAML itself, and one that has none may say 404."""
    try:
        answer = transport.send(VKS, "GET", f"{cluster.path}/kubeconfig")
    except VksError as error:
        if error.not_found:
            return Kubeconfig(NONE)
        raise
    try:
        body = answer.json()
    except ValueError:
        return Kubeconfig(ACTIVE, answer.text)
    if not isinstance(body, dict):
        return Kubeconfig(NONE if body is None else ACTIVE, "" if body is None else str(body))
    if "apiVersion" in body:
        return Kubeconfig(ACTIVE, answer.text)
    return Kubeconfig(
        str(body.get("status") or NONE),
        str(body.get("kubeConfig") or ""),
        str(body["expirationAt"]) if body.get("expirationAt") else None,
        bool(body.get("renewalWarning")),
    )


def needs_minting(found: Kubeconfig, renew_before: float, now: datetime.datetime) -> str:
    """Why another one is needed, in words; empty when this one is good for `renew_before` days yet."""
    if found.status == CREATING:
        return ""
    if not found.ready:
        return f"there is none ({found.status})"
    if found.warned:
        return "the service warns that it ends soon"
    end = _instant(found.expires_at)
    if end is not None and (end - now).total_seconds() < renew_before * _DAY:
        return f"it ends at {found.expires_at}"
    return ""


def mint(
    transport: VksTransport,
    cluster: VksCluster,
    before: Kubeconfig,
    *,
    days: int,
    timeout: float,
    interval: float,
    progress: Progress,
) -> Kubeconfig:
    """Ask for another one, and wait until it is there; raises TimeoutStory, SomeFailed and VksError."""

    def asked() -> bool:
        # Where an answer was lost, what is there now tells that nothing needs to be asked for again.
        now = read(transport, cluster)
        if now.status != CREATING and not _is_another(now, before):
            transport.send(VKS, "POST", f"{cluster.path}/kubeconfig", body={"expirationDays": days})
        return True

    start = time.monotonic()
    wait_until(
        asked,
        bool,
        timeout=timeout,
        interval=interval,
        describe=lambda dummy: f"The kubeconfig of cluster {cluster.name} could not be asked for.",
    )
    left = max(0.0, timeout - (time.monotonic() - start))
    return await_ready(transport, cluster, before, timeout=left, interval=interval, progress=progress)


def await_ready(
    transport: VksTransport,
    cluster: VksCluster,
    before: Kubeconfig,
    *,
    timeout: float,
    interval: float,
    progress: Progress,
) -> Kubeconfig:
    """Wait until there is another one than before; raises TimeoutStory, SomeFailed and VksError."""
    begun = before.status == CREATING

    def done(now: Kubeconfig) -> bool:
        nonlocal begun
        begun = begun or now.status == CREATING
        if now.status == ERROR and (begun or before.status != ERROR):
            raise PartialFailure(
                f"VKS could not make a kubeconfig of cluster {cluster.name}: its status is ERROR. Run again, or make it in the console."
            )
        return now.ready and (begun or _is_another(now, before))

    return wait_until(
        lambda: read(transport, cluster),
        done,
        timeout=timeout,
        interval=interval,
        first_interval=_FIRST_LOOK,
        describe=lambda now: f"The kubeconfig of cluster {cluster.name} is {now.status}.",
        progress_text=lambda now: f"kubeconfig of {cluster.name}: {now.status}",
        progress=progress,
    )


def _is_another(now: Kubeconfig, before: Kubeconfig) -> bool:
    return now.ready and (now.text, now.expires_at) != (before.text, before.expires_at)


def _instant(text: str | None) -> datetime.datetime | None:
    """A time as the service writes it: ISO 8601, or seconds or milliseconds since 1970."""
    if not text:
        return None
    try:
        if text.isdigit():
            seconds = int(text)
            return datetime.datetime.fromtimestamp(seconds / (1000 if seconds > 10**11 else 1), datetime.UTC)
        found = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=datetime.UTC)
