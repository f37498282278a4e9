# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands before a service's own WSGI application: the log of requests, and Magnum's faults."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from .. import cloud_requests
from ..layout import Lab
from ..switches import Switches
from .faults import SETTINGS, TOKEN_EXPIRY
from .places import CLOUD

Environ = dict[str, Any]
Application = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]
_READING = ("GET", "HEAD")
# The supervisor, who asks every second whether a service is ready.
_PROBER = "Go-http-client"
_MAGNUM = "magnum keystoneauth1/"


class Logged:
    """Writes a line for each request before it is answered, and tells outsiders by the port that they came to."""

    def __init__(self, lab: Lab, service: str, application: Application) -> None:
        self._log, self._service, self._application = cloud_requests.path_of(lab), service, application
        self._internal = lab.ports()[f"{service}-internal"]

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer as the application does."""
        agent = environ.get("HTTP_USER_AGENT", "")
        # Magnum 20 asks Keystone for tokens where users do.
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


class Faulty:
    """Magnum's faults as its clients see them (`faults.OF_REQUESTS`)."""

    def __init__(self, lab: Lab, application: Application) -> None:
        self._switches, self._application = switches(lab), application

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer as the application does, late, not at all, or that there is nobody."""
        if environ["lab.internal"]:
            return self._application(environ, start_response)
        if slow := self._switches.fault(f"{CLOUD}.slow"):
            time.sleep(float(slow.value or 0))
        if self._switches.spend(f"{CLOUD}.unavailable"):
            body = json.dumps({"errors": [{"status": 503, "detail": "The server is temporarily unavailable"}]}).encode()
            headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
            start_response("503 Service Unavailable", headers)
            return [body]
        if environ["REQUEST_METHOD"] in _READING or not self._switches.spend(f"{CLOUD}.lost-reply"):
            return self._application(environ, start_response)
        for _piece in self._application(environ, start_response):
            pass
        # To the server this is a client that has gone: it closes the connection.
        raise ConnectionAbortedError("the fault lost-reply")


class ShortLived:
    """Keystone's setting of how long a token is good for, as the fault says; its own services get the usual ones."""

    def __init__(self, lab: Lab, application: Application, configuration: Any) -> None:
        self._switches, self._application, self._configuration = switches(lab), application, configuration
        self._usual = configuration.token.expiration
        self._lock = threading.Lock()

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer as the application does; one request for a token at a time, since there is one setting."""
        if environ["REQUEST_METHOD"] != "POST" or not environ["PATH_INFO"].endswith("/auth/tokens"):
            return self._application(environ, start_response)
        fault = None if environ["lab.internal"] else self._switches.fault(f"{CLOUD}.{TOKEN_EXPIRY}")
        with self._lock:
            self._configuration.set_override("expiration", int(fault.value or 0) if fault else self._usual, "token")
            return self._application(environ, start_response)


def switches(lab: Lab) -> Switches:
    """Return the faults and switches of a lab, with those that OpenStack knows."""
    return Switches(lab, {f"{CLOUD}.{key}": setting for key, setting in SETTINGS.items()})
