# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Serves one of the services, in its own environment: `python -m lab.openstack.serve NAME FOLDER SERVICE`."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from pathlib import Path

import waitress

from ..layout import Lab
from .layout import folder
from .middleware import Application, FaultInjection, RequestLog, TokenLifetime

_MODULES = {"keystone": "keystone.wsgi.api", "glance": "glance.wsgi.api", "nova": "nova.wsgi.osapi_compute"}


def main() -> None:
    """Serve until the process is terminated."""
    name, place, service = sys.argv[1:]
    lab = Lab.named(name, Path(place))
    conf = folder(lab) / service
    os.environ["OS_KEYSTONE_CONFIG_FILES"] = str(conf / "keystone.conf")
    os.environ["OS_GLANCE_CONFIG_DIR"] = os.environ["OS_NOVA_CONFIG_DIR"] = str(conf)
    # Nova and Magnum parse the command line at import.
    sys.argv = [service]
    # Garbage collection takes a fifth of the import time and finds nothing.
    gc.disable()
    application = RequestLog(lab, service, _application(lab, service))
    gc.freeze()
    gc.enable()
    ports = lab.ports()
    waitress.serve(
        application,
        listen=" ".join(f"127.0.0.1:{ports[one]}" for one in (service, f"{service}-internal")),
        # Eight threads of one interpreter take a third longer for the same requests.
        threads=4,
        ident=None,
        # Magnum opens a connection for each call and does not close it: the default limit of 100 would block Nova.
        connection_limit=4000,
        channel_timeout=15,
        cleanup_interval=5,
        asyncore_use_poll=True,
        # Do not log disconnected clients or connections that a fault closed.
        log_socket_errors=False,
    )


def _application(lab: Lab, service: str) -> Application:
    if service == "magnum":
        from .conductor import start

        return FaultInjection(lab, start(lab))
    application: Application = importlib.import_module(_MODULES[service]).application
    if service == "keystone":
        return TokenLifetime(lab, application, importlib.import_module("keystone.conf").CONF)
    return application


if __name__ == "__main__":
    main()
