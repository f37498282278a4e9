# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defines the error of a registry, and the message that explains the error to users (pure).

Source: opencontainers/distribution-spec spec.md, "Error Codes".
"""

from __future__ import annotations

import json
import re
import typing as t

from ..common.errors import ServiceError

# The requests that may be repeated. A repeated PUT writes the same content again, under its digest or to the same tag.
REPEATABLE = frozenset({"GET", "HEAD", "PUT", "DELETE"})
# Harbor, Quay, GitLab and Artifactory use different statuses and codes for a full quota.
_QUOTA = re.compile(
    r"quota|exceeds? (the )?(configured upper )?(limit|storage)|insufficient storage|no space left|storage limit",
    re.IGNORECASE,
)
# The code of the distribution specification, and the texts of Docker Hub, ECR and proxies.
TOO_MANY_REQUESTS = re.compile(r"too ?many ?requests|rate (limit )?exceeded|rate limit", re.IGNORECASE)
# OpenSSL's message for a response that does not begin a TLS handshake.
_NO_TLS = re.compile(r"wrong version number|record layer failure", re.IGNORECASE)
_EXPIRED = re.compile(r"expired", re.IGNORECASE)
# The response of servers written in Go to an HTTP request on an HTTPS port.
HTTPS_EXPECTED = "HTTP request to an HTTPS server"
_MAX_LENGTH = 300
# An error body is small; a manifest or a configuration of this size is not searched.
_CODE_WITHIN = 4096
_TITLE = re.compile(r"<title>\s*(.*?)\s*</title>", re.IGNORECASE | re.DOTALL)
# No role has a variable for this option.
REQUEST_TIMEOUT_OPTION = (
    "request_timeout of the module (for a role: in module_defaults of group/accel.gpu.registry in your own play)"
)
# Harbor, Quay, GitLab and ECR give the same response for a repository that the user may not use and for a project that does not exist.
MISSING_PROJECT = (
    "The project (Harbor), organization (Quay), group (GitLab) or repository (ECR, Artifactory) may also be missing, or the user may not be a member: "
    "create it there, or check its name."
)
_REFUSED_MANIFEST = ("MANIFEST_INVALID", "TAG_INVALID", "UNSUPPORTED", "NAME_INVALID")


class RegistryError(ServiceError):
    """An error response from a registry, or a missing response (status is None). `reason` is the registry's own code."""

    service = "The registry"
    address_setting = "the name of the registry"
    timeout_setting = REQUEST_TIMEOUT_OPTION
    ca_setting = "ca_cert of the registry in gpu_registries (option registries of the module)"
    proxy_setting = "HTTPS_PROXY and NO_PROXY"

    def __init__(
        self, detail: str, *, registry: str = "", login: str = "", accepted: bool = False, **fields: t.Any
    ) -> None:
        """detail: the registry's own text. login: the origin of the credentials; empty for an anonymous request. accepted: whether the registry has
        issued a token for these credentials.
        """
        super().__init__("", **fields)
        self.detail = detail.rstrip(". ")
        self.registry, self.login, self.accepted = registry, login, accepted
        self.message = explain(self)

    def __str__(self) -> str:
        """The message."""
        return self.message

    @property
    def over_quota(self) -> bool:
        """Whether the registry has no space for the image."""
        return (self.status in (403, 413, 429, 507) and bool(_QUOTA.search(self.detail))) or self.status == 507

    @property
    def declined(self) -> bool:
        """Whether the request may be sent again later. This is not the case if the quota is full, because waiting does not free space."""
        return (super().declined or self.too_many_requests) and not self.over_quota

    @property
    def too_many_requests(self) -> bool:
        """Whether the registry limits the number of requests. Some registries and proxies say so only in the code or the text of another status."""
        return self.status == 429 or bool(
            self.status
            and TOO_MANY_REQUESTS.search(f"{self.reason} {self.detail}" if self.status >= 400 else self.reason)
        )


def explain(error: RegistryError) -> str:
    """One message with the registry, the request, the response and the remedy."""
    where = f"Registry {error.registry}"
    request = f"({error.operation}): {error.detail}"
    if error.unreachable:
        remedy = (
            "If the registry has no TLS, set plain_http of the registry in gpu_registries (option registries of the module)."
            if _NO_TLS.search(error.detail)
            else error.remedy
        )
        return f"Registry {error.registry} did not respond {request}. {remedy}"
    if error.over_quota:
        return f"{where} has no space for the image {request}. Raise its quota or delete images there, and run the playbook again."
    if error.too_many_requests:
        return f"{where} limits the number of requests {request}. Run the playbook again later, or log in: the limits for authenticated users are higher."
    if error.status == 401:
        return f"{where} requires other credentials {request}. {_login_remedy(error)}"
    if error.status == 403:
        return (
            f"{where} denies the request {request}. The user needs permission to "
            f"{'read' if error.method in ('GET', 'HEAD') else 'write to'} this repository. {MISSING_PROJECT}"
        )
    if error.not_found:
        return f"{where} does not have the repository or the image {request}. {MISSING_PROJECT}"
    if error.reason in _REFUSED_MANIFEST or error.status == 415:
        return (
            f"{where} rejects the manifest {request}. It may not support this type of image (OCI index, several platforms): set "
            "platforms to one platform, or check the documentation of the registry."
        )
    if HTTPS_EXPECTED in error.detail:
        return f"{where} expects TLS {request}. Remove plain_http of the registry."
    if error.status == 405:
        return f"{where} does not allow the request {request}. A pull-through cache does not accept pushed images: use a repository that stores images."
    if error.status == 200:
        return f"{where} returns no manifest {request}. Check its name: a proxy or a login page may have responded."
    return f"{where} rejected {error.operation} with {error.status}: {error.detail}"


def _login_remedy(error: RegistryError) -> str:
    if not error.login:
        return "Set username and password of the registry in gpu_registries (option registries of the module), or auth_file."
    if _EXPIRED.search(error.detail):
        return f"The credentials from {error.login} have expired: log in again, or create a new token."
    if error.accepted:
        return f"It accepts the credentials from {error.login}, but not for this repository. {MISSING_PROJECT}"
    return (
        f"It rejects the credentials from {error.login}: check user and password. If `skopeo login {error.registry}` accepts them, they are right. "
        f"{MISSING_PROJECT}"
    )


def error_text(data: bytes) -> tuple[str, str]:
    """The code and the message in the body of an error response; both may be empty."""
    text = data.decode(errors="replace").strip()
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        # Of a page, only the title is shown.
        title = _TITLE.search(text)
        text = title[1] if title else "" if text.startswith("<") else text
        return "", " ".join(text.split())[:_MAX_LENGTH]
    errors = document.get("errors") if isinstance(document, dict) else None
    if not isinstance(errors, list) or not errors:
        messages = (
            document.get("message") or document.get("details") or document.get("error")
            if isinstance(document, dict)
            else ""
        )
        return "", " ".join(str(messages or "").split())[:_MAX_LENGTH]
    entries = [entry for entry in errors if isinstance(entry, dict)]
    code = next((str(entry["code"]) for entry in entries if entry.get("code")), "")
    texts = [_entry_text(entry) for entry in entries]
    return code, " ".join("; ".join(filter(None, texts)).split())[:_MAX_LENGTH]


def hides_a_limit(data: bytes) -> bool:
    """Whether a body has the code for too many requests, which some proxies send with status 200."""
    return b"TOOMANYREQUESTS" in data[:_CODE_WITHIN].upper() and error_text(data)[0].upper() == "TOOMANYREQUESTS"


def _entry_text(entry: t.Mapping[str, t.Any]) -> str:
    detail = entry.get("detail")
    message = str(entry.get("message") or entry.get("code") or "")
    return f"{message} ({detail})" if isinstance(detail, str) and detail and detail not in message else message
