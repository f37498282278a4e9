# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small OpenStack client for the lab itself: JSON over HTTP, as one user in one project."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from ..errors import LabError
from ..layout import Lab
from .layout import PASSWORD, url

# The version for node_labels and node_taints; older Magnum releases accept any version that they know.
_MAGNUM_VERSION = "container-infra 1.10"
_SECONDS = 60.0


class Rest:
    """A client that uses the services' internal addresses, so that its requests do not count as a user's."""

    def __init__(self, lab: Lab, user: str = "admin", project: str = "admin") -> None:
        self._lab = lab
        domain = {"domain": {"id": "default"}}
        identity = {
            "methods": ["password"],
            "password": {"user": {"name": user, "password": PASSWORD, **domain}},
        }
        body = {"auth": {"identity": identity, "scope": {"project": {"name": project, **domain}}}}
        answer, headers = self._send("POST", "keystone", "/auth/tokens", body, {})
        self._headers = {"X-Auth-Token": headers["X-Subject-Token"], "OpenStack-API-Version": _MAGNUM_VERSION}
        self.project_id = str(answer["token"]["project"]["id"])
        self.user_id = str(answer["token"]["user"]["id"])

    def get(self, service: str, path: str) -> Any:
        """Return the JSON of the response."""
        return self._send("GET", service, path, None, self._headers)[0]

    def post(self, service: str, path: str, body: Any) -> Any:
        """Send JSON, and return the JSON of the response."""
        return self._send("POST", service, path, body, self._headers)[0]

    def put(self, service: str, path: str, body: Any = None) -> Any:
        """Send JSON, no body (None) or bytes, and return the JSON of the response."""
        return self._send("PUT", service, path, body, self._headers)[0]

    def patch(self, service: str, path: str, body: Any) -> Any:
        """Send JSON, and return the JSON of the response."""
        return self._send("PATCH", service, path, body, self._headers)[0]

    def delete(self, service: str, path: str) -> None:
        """Send a DELETE request."""
        self._send("DELETE", service, path, None, self._headers)

    def _send(self, method: str, service: str, path: str, body: Any, headers: dict[str, str]) -> tuple[Any, Any]:
        raw = isinstance(body, bytes)
        payload = body if raw or body is None else json.dumps(body).encode()
        kind = "application/octet-stream" if raw else "application/json"
        where = url(self._lab, service, internal=True) + path
        request = urllib.request.Request(where, payload, {**headers, "Content-Type": kind}, method=method)
        try:
            with _OPENER.open(request, timeout=_SECONDS) as answer:
                content = answer.read()
                return json.loads(content) if content else None, answer.headers
        except urllib.error.HTTPError as error:
            body_text = error.read().decode(errors="replace")
            raise LabError(f"{service} answered {error.code} to {method} {path}: {body_text}") from error
        except OSError as error:
            raise LabError(f"{service} did not answer {method} {path}: {error}") from error


# Never uses a proxy.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
