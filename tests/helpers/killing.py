# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kills a playbook right after one of its changing requests, with all that it has started."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.faults.api_proxy import ApiProxy, Proxy, Request
from tests.helpers.playbook import Playbook, PlaybookRun, run_playbook
from tests.labs import Lab, reached_by

# What a user's run sends: our modules, and helm, which it starts.
USER_AGENTS = ("accel.gpu/", "Helm/")


# Runs a proxy before a server, and hands it over with what of a run's environment leads through it; files go to the folder.
Way = Callable[[Lab, Path], AbstractContextManager[tuple[Proxy, dict[str, str]]]]


@contextmanager
def to_kubernetes(lab: Lab, folder: Path) -> Iterator[tuple[Proxy, dict[str, str]]]:
    """The way to the lab's API server."""
    proxy = ApiProxy(lab.kubeconfig)
    with proxy.running():
        yield proxy, reached_by(proxy.kubeconfig(folder / "proxied.kubeconfig"))


@contextmanager
def led(lab: Lab, ways: Sequence[Way], folder: Path) -> Iterator[tuple[list[Proxy], dict[str, str]]]:
    """Proxies that run, and the environment of a run that is led through all of them."""
    with ExitStack() as stack:
        found = [stack.enter_context(way(lab, folder)) for way in ways]
        environ = dict(lab.env)
        for _proxy, changes in found:
            environ |= changes
        yield [proxy for proxy, _changes in found], environ


def killed_after(
    lab: Lab, name: str, number: int, folder: Path, *, ways: Sequence[Way] = (to_kubernetes,), **options: Any
) -> Request | None:
    """Run a playbook and kill its whole tree once the servers have done changing request `number`; None if it ended before."""
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

    with led(lab, ways, folder) as (proxies, environ):
        for proxy in proxies:
            proxy.after = strike
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


def struck_at(lab: Lab, name: str, seconds: float, *, worker: bool, **options: Any) -> PlaybookRun:
    """Run a playbook and, after so many seconds, kill its whole tree, or the worker of the task that is under way then."""
    playbook = Playbook(name, environ=lab.env, **options)
    over = threading.Event()

    def strike() -> None:
        if over.wait(seconds):
            return
        if not worker:
            playbook.kill()
        while worker and not over.is_set() and not playbook.kill_worker():
            over.wait(0.01)

    striker = threading.Thread(target=strike)
    striker.start()
    try:
        run = playbook.wait()
    finally:
        over.set()
        striker.join()
    print(f"{'worker' if worker else 'run'} killed after {seconds:.1f} s: ended with {run.rc}")
    return run


def changing_requests(
    lab: Lab, name: str, folder: Path, *, ways: Sequence[Way] = (to_kubernetes,), **options: Any
) -> list[Request]:
    """The changing requests of an unharmed run, server by server."""
    with led(lab, ways, folder) as (proxies, environ):
        run_playbook(name, environ=environ, **options).require_success()
        return [request for proxy in proxies for request in proxy.mutations(*USER_AGENTS)]
