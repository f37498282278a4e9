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
from .filters import Application, Faulty, Logged, ShortLived
from .places import folder

_MODULES = {"keystone": "keystone.wsgi.api", "glance": "glance.wsgi.api", "nova": "nova.wsgi.osapi_compute"}


def main() -> None:
    """Serve until the process is ended."""
    name, place, service = sys.argv[1:]
    lab = Lab.named(name, Path(place))
    conf = folder(lab) / service
    os.environ["OS_KEYSTONE_CONFIG_FILES"] = str(conf / "keystone.conf")
    os.environ["OS_GLANCE_CONFIG_DIR"] = os.environ["OS_NOVA_CONFIG_DIR"] = str(conf)
    # Nova and Magnum read the command line when they are imported.
    sys.argv = [service]
    # A fifth of what an import takes is the search for garbage, of which it leaves none.
    gc.disable()
    application = Logged(lab, service, _application(lab, service))
    gc.freeze()
    gc.enable()
    ports = lab.ports()
    waitress.serve(
        application,
        listen=" ".join(f"127.0.0.1:{ports[of]}" for of in (service, f"{service}-internal")),
        # Of one interpreter's threads, eight take a third longer for the same answers.
        threads=4,
        ident=None,
        # Magnum makes a connection for each call and lets it linger: the default limit of 100 would starve Nova.
        connection_limit=4000,
        channel_timeout=15,
        cleanup_interval=5,
        asyncore_use_poll=True,
        # Clients that go, and those whom a fault lets down, are none of the log's business.
        log_socket_errors=False,
    )


def _application(lab: Lab, service: str) -> Application:
    if service == "magnum":
        from .conductor import start

        return Faulty(lab, start(lab))
    application: Application = importlib.import_module(_MODULES[service]).application
    if service == "keystone":
        return ShortLived(lab, application, importlib.import_module("keystone.conf").CONF)
    return application


if __name__ == "__main__":
    main()
