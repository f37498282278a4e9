# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What OpenStack's services refuse or cannot be asked, and how it is said to a user."""

from __future__ import annotations

import json
import re
import typing as t

from ...common.errors import ServiceError

# magnum.common.exception: ResourceLimitExceeded, ClusterAPIAddressUnavailable.
_LIMIT = "Resource limit exceeded"
_NO_ADDRESS = "Cluster API address is not available yet"
# Of OperationInProgress and NgOperationInProgress.
_IN_PROGRESS = "already has an operation in progress"
_TAG = re.compile(r"<[^>]*>")


class OpenStackError(ServiceError):
    """An answer of 400 and more from Keystone, Magnum, Nova or Glance, or no answer at all (status is None)."""

    service = "OpenStack"

    def __init__(self, message: str, *, asked: str = "OpenStack", url: str = "", **more: t.Any) -> None:
        """Keep also which service was asked (its name as people call it), and where that is."""
        super().__init__(message, **more)
        self.asked = asked
        self.url = url

    @property
    def no_address_yet(self) -> bool:
        """Magnum makes no node group before the cluster's API server has an address."""
        return self.conflict and _NO_ADDRESS in self.message

    @property
    def in_progress(self) -> bool:
        """Some drivers take one operation at a time."""
        return _IN_PROGRESS in self.message

    @property
    def half_gone(self) -> bool:
        """A cluster whose end is nearly there: its groups are deleted before it, and Magnum does not believe in its own zero masters."""
        return self.status == 400 and "master_count" in self.message

    @property
    def over_quota(self) -> bool:
        """Magnum says so with 403."""
        return self.forbidden and _LIMIT in self.message


class ServiceContext(t.Protocol):
    """What explain() says about where the requests went."""

    @property
    def origin(self) -> str:
        """The cloud, region and project, in words."""


def explain(error: OpenStackError, place: ServiceContext) -> str:
    """One message for a user: what was asked, what came back, and what to do about it."""
    said = error.message.rstrip(". ") or error.reason or "no text came with it"
    if error.unreachable:
        return f"Cannot reach {error.asked} at {error.url} ({place.origin}): {said}. {_advice(error)}"
    if error.status == 401:
        return (
            f"{error.asked} at {error.url} does not accept the credentials ({place.origin}): {said}. "
            "Check user, password and project, or whether the application credential has expired."
        )
    if error.over_quota:
        return f"{said} ({place.origin}). Delete what is not needed, or ask the cloud's operator for a larger quota."
    if error.forbidden:
        return (
            f"{error.asked} refuses {error.method} {error.path} ({place.origin}): {said}. "
            "The user needs a role in this project that the policy allows it to: reader to look, member to change."
        )
    if error.status == 406:
        return f"{error.asked} does not speak the version of its API that is needed for {error.method} {error.path} ({place.origin}): {said}."
    if error.passing:
        return f"{error.asked} failed with {error.status} at {error.method} {error.path} ({place.origin}): {said}. Run again when it is well."
    return f"{error.asked} refuses {error.method} {error.path} with {error.status} ({place.origin}): {said}."


def _advice(error: OpenStackError) -> str:
    return {
        "Refused": "Nothing listens there: is the service up, and is this the right cloud?",
        "DNS": "The name of the server does not resolve from this machine.",
        "Timeout": "Check the network, firewalls and proxies, or raise api_timeout.",
        "TLS": "Give its CA as ca_cert (or cacert in clouds.yaml); validate_certs=false switches the check off.",
    }.get(error.reason, "The connection broke off; run again.")


def text_of(body: bytes) -> str:
    """What a service says of a refusal, in whichever of their forms: Magnum's list, Keystone's and Nova's one object, Glance's page."""
    try:
        document = json.loads(body)
    except ValueError:
        words = _TAG.sub(" ", body.decode(errors="replace"))
        return " ".join(words.split())[:300]
    return _text(document) or ""


def _text(document: t.Any) -> str | None:
    if isinstance(document, list):
        return next((text for item in document if (text := _text(item))), None)
    if not isinstance(document, dict):
        return None
    for key in ("detail", "message", "title", "faultstring"):
        if isinstance(document.get(key), str) and document[key].strip():
            return " ".join(document[key].split())
    return next((text for inner in document.values() if (text := _text(inner))), None)
