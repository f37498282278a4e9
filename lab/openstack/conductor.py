# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Magnum's API and conductor in one process, over oslo.messaging's bus in memory; Magnum 20 to 23."""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from ..layout import Lab
from .filters import Application
from .places import folder

_BUSY_SECONDS, _IDLE_SECONDS = 0.1, 1.0
# Those of magnum.cmd.conductor; credential_conductor came with Magnum 21.
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
    """Start the conductor as magnum-conductor does, less its fork, and return the API's application."""
    sys.argv = ["magnum", "--config-file", str(folder(lab) / "magnum" / "magnum.conf")]
    # From 23 on the package chooses threads by itself; before, nobody had chosen yet.
    importlib.import_module("magnum")
    backend = importlib.import_module("oslo_service.backend")
    backend.init_backend(backend.BackendType.THREADING)
    application: Application = importlib.import_module("magnum.wsgi.api").application
    _one_writer_at_a_time(importlib.import_module("magnum.db.sqlalchemy.api"))
    _use_threads(importlib.import_module("oslo_messaging"))
    service = importlib.import_module("magnum.common.rpc_service").Service
    topic = importlib.import_module("magnum.conf").CONF.conductor.topic
    driver = importlib.import_module("lab.openstack.driver")
    _ask_often(importlib.import_module("magnum.service.periodic").MagnumPeriodicTasks, driver.busy)
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


def _one_writer_at_a_time(database: Any) -> None:
    """SQLite lets no transaction write that has read before another one wrote; so writers wait for each other."""
    plain, lock = database._session_for_write, threading.RLock()

    @contextlib.contextmanager
    def alone() -> Iterator[Any]:
        with lock, plain() as session:
            yield session

    database._session_for_write = alone


def _ask_often(tasks: Any, busy: Callable[[], bool]) -> None:
    """Have Magnum ask its driver for news each 0.1 seconds while something is begun, else each second, not each 10."""
    name, latest = "sync_cluster_status", 0.0
    plain = dict(tasks._periodic_tasks)[name]

    def ask(self: Any, context: Any) -> None:
        nonlocal latest
        if busy() or time.monotonic() > latest + _IDLE_SECONDS:
            latest = time.monotonic()
            plain(self, context)

    vars(ask).update(vars(plain))
    tasks._periodic_tasks = [(of, ask if of == name else task) for of, task in tasks._periodic_tasks]
    tasks._periodic_spacing[name] = _BUSY_SECONDS


def _use_threads(messaging: Any) -> None:
    """Magnum until 22 asks for eventlet, of which nothing else in this process knows."""
    plain = messaging.get_rpc_server
    messaging.get_rpc_server = lambda *given, **named: plain(*given, **{**named, "executor": "threading"})
