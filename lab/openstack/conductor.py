# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs Magnum's API and conductor in one process, with oslo.messaging's in-memory bus; for Magnum 20 to 23."""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from ..layout import Lab
from .layout import folder
from .middleware import Application

_BUSY_SECONDS, _IDLE_SECONDS = 0.1, 1.0
# The handlers of magnum.cmd.conductor; credential_conductor was added in Magnum 21.
_HANDLERS = (
    "indirection_api",
    "cluster_conductor",
    "conductor_listener",
    "credential_conductor",
    "ca_conductor",
    "federation_conductor",
    "nodegroup_conductor",
)


def start(lab: Lab) -> Application:
    """Start the conductor like magnum-conductor, without forking, and return the API's WSGI application."""
    sys.argv = ["magnum", "--config-file", str(folder(lab) / "magnum" / "magnum.conf")]
    # Magnum 23 and later select threads themselves; earlier releases select no backend at import.
    importlib.import_module("magnum")
    backend = importlib.import_module("oslo_service.backend")
    backend.init_backend(backend.BackendType.THREADING)
    application: Application = importlib.import_module("magnum.wsgi.api").application
    _serialize_writers(importlib.import_module("magnum.db.sqlalchemy.api"))
    _use_threads(importlib.import_module("oslo_messaging"))
    service = importlib.import_module("magnum.common.rpc_service").Service
    topic = importlib.import_module("magnum.conf").CONF.conductor.topic
    driver = importlib.import_module("lab.openstack.driver")
    _shorten_sync_interval(importlib.import_module("magnum.service.periodic").MagnumPeriodicTasks, driver.busy)
    server = service.create(topic, "lab", list(_handlers()), binary="magnum-conductor")
    server.create_periodic_tasks()
    server.start()
    return application


def _handlers() -> Iterator[Any]:
    for name in _HANDLERS:
        try:
            yield importlib.import_module(f"magnum.conductor.handlers.{name}").Handler()
        except ModuleNotFoundError:
            continue


def _serialize_writers(database: Any) -> None:
    """Serialize write sessions: SQLite rejects a write if another transaction wrote after this one's first read."""
    original, lock = database._session_for_write, threading.RLock()

    @contextlib.contextmanager
    def serialized() -> Iterator[Any]:
        with lock, original() as session:
            yield session

    database._session_for_write = serialized


def _shorten_sync_interval(tasks: Any, busy: Callable[[], bool]) -> None:
    """Run Magnum's status sync every 0.1 s while an operation is in progress, otherwise every 1 s, instead of every 10 s."""
    name, latest = "sync_cluster_status", 0.0
    original = dict(tasks._periodic_tasks)[name]

    def sync(self: Any, context: Any) -> None:
        nonlocal latest
        if busy() or time.monotonic() > latest + _IDLE_SECONDS:
            latest = time.monotonic()
            original(self, context)

    vars(sync).update(vars(original))
    tasks._periodic_tasks = [(known, sync if known == name else task) for known, task in tasks._periodic_tasks]
    tasks._periodic_spacing[name] = _BUSY_SECONDS


def _use_threads(messaging: Any) -> None:
    """Use the threading executor: Magnum up to 22 requests eventlet, which this process does not use otherwise."""
    original = messaging.get_rpc_server
    messaging.get_rpc_server = lambda *args, **kwargs: original(*args, **{**kwargs, "executor": "threading"})
