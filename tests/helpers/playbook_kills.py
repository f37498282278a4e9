# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kills a playbook and all its processes after one of its changing requests, or after some seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.faults.api_proxy import ApiProxy, Proxy, Request
from tests.helpers.playbook import Playbook, PlaybookRun, run_playbook
from tests.labs import Lab, reached_by

# The user agents of a run: the modules of the collection, and helm.
USER_AGENTS = ("accel.gpu/", "Helm/")


# Starts a proxy in front of a server, and returns it with the environment variables for a run through it.
StartProxy = Callable[[Lab, Path], AbstractContextManager[tuple[Proxy, dict[str, str]]]]


@contextmanager
def kubernetes_proxy(lab: Lab, folder: Path) -> Iterator[tuple[Proxy, dict[str, str]]]:
    """A proxy in front of the lab's API server."""
    proxy = ApiProxy(lab.kubeconfig)
    with proxy.running():
        yield proxy, reached_by(proxy.kubeconfig(folder / "proxied.kubeconfig"))


@contextmanager
def proxied(lab: Lab, proxies: Sequence[StartProxy], folder: Path) -> Iterator[tuple[list[Proxy], dict[str, str]]]:
    """Running proxies, and the environment of a run that uses all of them."""
    with ExitStack() as stack:
        running = [stack.enter_context(start(lab, folder)) for start in proxies]
        environ = dict(lab.env)
        for _proxy, changes in running:
            environ |= changes
        yield [proxy for proxy, _changes in running], environ


def killed_after(
    lab: Lab,
    name: str,
    number: int,
    folder: Path,
    *,
    proxies: Sequence[StartProxy] = (kubernetes_proxy,),
    **options: Any,
) -> Request | None:
    """Run a playbook and kill all its processes after changing request `number`; returns the request, None if the run ended before."""
    count = 0
    lock = threading.Lock()
    last: list[Request] = []
    playbook: Playbook | None = None
    started = threading.Event()

    def kill_after(request: Request, status: int) -> None:
        nonlocal count
        if not (request.mutating and status < 400 and any(agent in request.user_agent for agent in USER_AGENTS)):
            return
        with lock:
            count += 1
            if count != number:
                return
            last.append(request)
        started.wait()
        assert playbook is not None
        playbook.kill()

    with proxied(lab, proxies, folder) as (running, environ):
        for proxy in running:
            proxy.after = kill_after
        playbook = Playbook(name, environ=environ, **options)
        started.set()
        playbook.wait()
    request = last[0] if last else None
    print(f"killed after changing request {number}: {request and f'{request.method} {request.path}'}")
    return request


def killed_at(lab: Lab, name: str, seconds: float, **options: Any) -> bool:
    """Run a playbook and kill all its processes after some seconds; False if it ended before."""
    playbook = Playbook(name, environ=lab.env, **options)
    timer = threading.Timer(seconds, playbook.kill)
    timer.start()
    killed = playbook.wait().rc < 0
    timer.cancel()
    print(f"{'killed' if killed else 'ended before it was killed'} after {seconds:.1f} s")
    return killed


def killed_worker_at(lab: Lab, name: str, seconds: float, *, worker: bool, **options: Any) -> PlaybookRun:
    """Run a playbook and, after some seconds, kill all its processes, or only the worker of the current task."""
    playbook = Playbook(name, environ=lab.env, **options)
    ended = threading.Event()

    def kill() -> None:
        if ended.wait(seconds):
            return
        if not worker:
            playbook.kill()
        while worker and not ended.is_set() and not playbook.kill_worker():
            ended.wait(0.01)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        run = playbook.wait()
    finally:
        ended.set()
        killer.join()
    print(f"{'worker' if worker else 'run'} killed after {seconds:.1f} s: ended with {run.rc}")
    return run


def changing_requests(
    lab: Lab, name: str, folder: Path, *, proxies: Sequence[StartProxy] = (kubernetes_proxy,), **options: Any
) -> list[Request]:
    """The changing requests of an uninterrupted run, by server."""
    with proxied(lab, proxies, folder) as (running, environ):
        run_playbook(name, environ=environ, **options).require_success()
        return [request for proxy in running for request in proxy.mutations(*USER_AGENTS)]
