# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defines the errors of OpenStack's services, and the messages that explain these errors to users."""

from __future__ import annotations

import json
import re
import typing as t

from ...common.errors import ServiceError

# Parts of the messages of ResourceLimitExceeded and ClusterAPIAddressUnavailable (magnum.common.exception).
_LIMIT = "Resource limit exceeded"
_NO_ADDRESS = "Cluster API address is not available yet"
# Part of the messages of OperationInProgress and NgOperationInProgress (in the same module).
_IN_PROGRESS = "already has an operation in progress"
_TAG = re.compile(r"<[^>]*>")


class OpenStackError(ServiceError):
    """An error response from Keystone, Magnum, Nova or Glance (`service`) at `url`. If the response is missing, the status is None."""

    service = "OpenStack"
    address_setting = "the configuration of the cloud"
    timeout_setting = "api_timeout"
    ca_setting = "ca_cert (or cacert in clouds.yaml)"

    def __init__(self, message: str, *, url: str = "", **fields: t.Any) -> None:
        """Store the service's address in addition to the other fields."""
        super().__init__(message, **fields)
        self.url = url

    @property
    def no_address_yet(self) -> bool:
        """Whether the API server of the cluster does not have an address yet. Without an address, Magnum does not create node groups."""
        return self.conflict and _NO_ADDRESS in self.message

    @property
    def in_progress(self) -> bool:
        """Whether another operation is in progress. Some drivers run only one operation at a time."""
        return _IN_PROGRESS in self.message

    @property
    def without_groups(self) -> bool:
        """Whether a cluster does not have any groups yet, or no longer has any because it is almost deleted.

        In both cases, Magnum's check of master_count fails.
        """
        return self.status == 400 and "master_count" in self.message

    @property
    def over_quota(self) -> bool:
        """Whether a quota was exceeded, which Magnum reports with the status 403."""
        return self.forbidden and _LIMIT in self.message


def explain(error: OpenStackError, origin: str) -> str:
    """One message with the request, the response and the remedy. origin: the cloud, the region and the project as a string."""
    text = error.message.rstrip(". ") or error.reason or "the response has no text"
    at = f"({origin}): {text}."
    if error.unreachable:
        return f"Cannot reach {error.service} at {error.url} {at} {error.remedy}"
    if error.status == 401:
        return (
            f"{error.service} at {error.url} does not accept the credentials {at} "
            "Check user, password and project, and whether the application credential has expired."
        )
    if error.over_quota:
        return f"{text} ({origin}). Delete unused resources, or ask the cloud's operator for a larger quota."
    if error.forbidden:
        return (
            f"{error.service} denies {error.operation} {at} "
            "The user needs a role in this project for which the policy allows this request: reader to read, or member to make changes."
        )
    if error.status == 406:
        return f"{error.service} does not have the API version that {error.operation} needs {at}"
    if error.transient:
        return f"{error.service} failed with {error.status} at {error.operation} {at} Try again when the service is available."
    return f"{error.service} rejected {error.operation} with {error.status} {at}"


def error_text(body: bytes) -> str:
    """The text of an error response. Magnum sends a list, Keystone and Nova send one object, and Glance sends an HTML page."""
    try:
        document = json.loads(body)
    except ValueError:
        return " ".join(_TAG.sub(" ", body.decode(errors="replace")).split())[:300]
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
