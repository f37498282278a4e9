# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kills a playbook right after one of its changing requests, with all that it has started."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from tests.faults.api_proxy import ApiProxy, Request
from tests.helpers.playbook import Playbook, run_playbook
from tests.labs import Lab

# What a user's run sends: our modules, and helm, which it starts.
USER_AGENTS = ("accel.gpu/", "Helm/")


def killed_after(lab: Lab, name: str, number: int, folder: Path, **options: Any) -> Request | None:
    """Run a playbook and kill its whole tree once the API server has done changing request `number`; None if it ended before."""
    seen = 0
    lock = threading.Lock()
    struck: list[Request] = []
    playbook: Playbook | None = None
    started = threading.Event()

    def strike(request: Request, status: int) -> None:
        nonlocal seen
        if not (request.mutating and status < 400 and any(agent in request.user_agent for agent in USER_AGENTS)):
            return
        with lock:
            seen += 1
            if seen != number:
                return
            struck.append(request)
        started.wait()
        assert playbook is not None
        playbook.kill()

    proxy = ApiProxy(lab.kubeconfig)
    with proxy.running():
        proxy.after = strike
        environ = lab.env_through(proxy.kubeconfig(folder / f"killed-{number}.kubeconfig"))
        playbook = Playbook(name, environ=environ, **options)
        started.set()
        playbook.wait()
    request = struck[0] if struck else None
    print(f"killed after changing request {number}: {request and f'{request.method} {request.path}'}")
    return request


def killed_at(lab: Lab, name: str, seconds: float, **options: Any) -> bool:
    """Run a playbook and kill its whole tree after so many seconds; False if it ended before."""
    playbook = Playbook(name, environ=lab.env, **options)
    timer = threading.Timer(seconds, playbook.kill)
    timer.start()
    killed = playbook.wait().rc < 0
    timer.cancel()
    print(f"{'killed' if killed else 'ended before it was killed'} after {seconds:.1f} s")
    return killed


def changing_requests(lab: Lab, name: str, folder: Path, **options: Any) -> list[Request]:
    """The changing requests of an unharmed run."""
    proxy = ApiProxy(lab.kubeconfig)
    with proxy.running():
        environ = lab.env_through(proxy.kubeconfig(folder / "count.kubeconfig"))
        run_playbook(name, environ=environ, **options).require_success()
        return proxy.mutations(*USER_AGENTS)
