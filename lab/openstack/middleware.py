# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""WSGI middleware of the services: the log of requests, fault injection, and the lifetime of tokens."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from .. import cloud_requests
from ..cloud_settings import CloudSettings
from ..layout import Lab
from .faults import SETTINGS, TOKEN_EXPIRY
from .layout import CLOUD

Environ = dict[str, Any]
Application = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]
_READ_METHODS = ("GET", "HEAD")
# The user agent of the supervisor's readiness probe.
_PROBER = "Go-http-client"
_MAGNUM = "magnum keystoneauth1/"


class RequestLog:
    """Logs each request before it is answered, and marks requests between services by their port."""

    def __init__(self, lab: Lab, service: str, application: Application) -> None:
        self._log, self._service, self._application = cloud_requests.path_of(lab), service, application
        self._internal = lab.ports()[f"{service}-internal"]

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Log the request and pass it to the application."""
        agent = environ.get("HTTP_USER_AGENT", "")
        # Magnum 20 requests tokens at Keystone's public endpoint.
        internal = int(environ["SERVER_PORT"]) == self._internal or agent.startswith(_MAGNUM)
        environ["lab.internal"] = internal
        if internal and agent.startswith(_PROBER):
            return self._application(environ, start_response)
        query = environ.get("QUERY_STRING")
        path = environ.get("SCRIPT_NAME", "") + environ["PATH_INFO"] + (f"?{query}" if query else "")

        def started(status: str, headers: Any, *more: Any) -> Any:
            code = int(status.split()[0])
            method = environ["REQUEST_METHOD"]
            cloud_requests.write(self._log, self._service, method, path, code, agent, internal=internal)
            return start_response(status, headers, *more)

        return self._application(environ, started)


class FaultInjection:
    """Injects the faults of Magnum's API (`faults.OF_REQUESTS`)."""

    def __init__(self, lab: Lab, application: Application) -> None:
        self._settings, self._application = settings_of(lab), application

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Pass the request to the application, with a delay, without a response, or with status 503."""
        if environ["lab.internal"]:
            return self._application(environ, start_response)
        if slow := self._settings.fault(f"{CLOUD}.slow"):
            time.sleep(float(slow.value or 0))
        if self._settings.consume(f"{CLOUD}.unavailable"):
            body = json.dumps({"errors": [{"status": 503, "detail": "The server is temporarily unavailable"}]}).encode()
            headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
            start_response("503 Service Unavailable", headers)
            return [body]
        if environ["REQUEST_METHOD"] in _READ_METHODS or not self._settings.consume(f"{CLOUD}.lost-reply"):
            return self._application(environ, start_response)
        for _piece in self._application(environ, start_response):
            pass
        # The server treats this like a disconnected client and closes the connection.
        raise ConnectionAbortedError("the fault lost-reply")


class TokenLifetime:
    """Sets the lifetime of Keystone's tokens according to the fault; the cloud's own services get the default lifetime."""

    def __init__(self, lab: Lab, application: Application, configuration: Any) -> None:
        self._settings, self._application, self._configuration = settings_of(lab), application, configuration
        self._usual = configuration.token.expiration
        self._lock = threading.Lock()

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Pass the request to the application; token requests are serialized, because the setting is global."""
        if environ["REQUEST_METHOD"] != "POST" or not environ["PATH_INFO"].endswith("/auth/tokens"):
            return self._application(environ, start_response)
        fault = None if environ["lab.internal"] else self._settings.fault(f"{CLOUD}.{TOKEN_EXPIRY}")
        with self._lock:
            self._configuration.set_override("expiration", int(fault.value or 0) if fault else self._usual, "token")
            return self._application(environ, start_response)


def settings_of(lab: Lab) -> CloudSettings:
    """Return the faults and settings of a lab, with the settings that OpenStack defines."""
    return CloudSettings(lab, {f"{CLOUD}.{key}": setting for key, setting in SETTINGS.items()})
