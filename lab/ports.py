# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The loopback ports of a lab: the offset of each service, and the choice of a free base port."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from pathlib import Path
from typing import TextIO

from .errors import LabError
from .layout import LABS, Lab, cache

FIRST, SPAN, LABS_AT_MOST = 17400, 40, 50
_PATIENCE_SECONDS = 3.0
OFFSETS = {
    "kube-apiserver": 0,
    "etcd": 1,
    "etcd-peer": 2,
    "kube-controller-manager": 3,
    "kube-scheduler": 4,
    "kwok": 5,
    "sim": 6,
    # Ports of the parts, reserved in every lab. An `-internal` port is for requests between the cloud's own services.
    "keystone": 10,
    "keystone-internal": 11,
    "glance": 12,
    "glance-internal": 13,
    "nova": 14,
    "nova-internal": 15,
    "magnum": 16,
    "magnum-internal": 17,
    "vks": 20,
    "olm-operator": 21,
    "catalog-operator": 22,
    "packageserver": 23,
    "catalog-certified": 24,
    "catalog-redhat": 25,
    "catalog-staging": 26,
    "catalog-proxy": 27,
    "machines": 30,
    "registry-plain": 31,
    "registry-tls": 32,
    "registry-cache": 33,
    "registry-plain-proxy": 34,
    "registry-tls-proxy": 35,
    "toxiproxy": 36,
    "nls": 37,
    "vcenter": 38,
    "esxi": 39,
    "images": 7,
    "machine-controller": 8,
    "machine-controller-metrics": 9,
    "machineset": 18,
    "machineset-metrics": 19,
}


_claims: dict[int, TextIO] = {}


def choose(lab: Lab, requested: int | None) -> int:
    """Return a base port whose range is free: `requested`, or else the last one used, or else the first free one.

    Raises LabError if `requested` is not free. The range is reserved against all other labs of this user until this process
    ends, because services start at different times.
    """
    recorded = lab.state().get("port_base")
    if requested is not None:
        if not 1024 <= requested <= 65535 - SPAN:
            raise LabError(f"--port-base: {requested} is out of range: use 1024 to {65535 - SPAN}")
        if not _claim(requested):
            raise LabError(f"another lab is starting on the ports from {requested}: choose others with --port-base")
        if busy := _first_busy(requested):
            service, port = busy
            raise LabError(
                f"port {port} ({service}) is in use by {_holder(port)}: stop it, or choose other ports with --port-base"
            )
        return requested
    if recorded is not None and _claim(recorded) and _becomes_free(recorded):
        return int(recorded)
    taken = _taken_by_others(lab)
    for number in range(LABS_AT_MOST):
        base = FIRST + number * SPAN
        if base not in taken and _claim(base) and not _first_busy(base):
            return base
    raise LabError(f"no {SPAN} free ports between {FIRST} and {FIRST + LABS_AT_MOST * SPAN}: use --port-base")


def _claim(base: int) -> bool:
    """Reserve a base port for this process until it ends; return whether this succeeded."""
    if base not in _claims:
        path = cache() / "ports" / f"{base}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = path.open("w")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.close()
            return False
        _claims[base] = handle
    return True


def _becomes_free(base: int) -> bool:
    """Return whether a range is free, or becomes free while the last sockets of a killed lab close."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while _first_busy(base):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def is_listening(port: int) -> bool:
    """Return whether a process accepts connections on the loopback port."""
    with socket.socket() as probe:
        probe.settimeout(5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _first_busy(base: int) -> tuple[str, int] | None:
    for service, offset in OFFSETS.items():
        with socket.socket() as probe:
            # Go's listeners set this option too: a port in TIME_WAIT counts as free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", base + offset))
            except OSError:
                return service, base + offset
    return None


def _taken_by_others(lab: Lab) -> set[int]:
    """Return the base ports of this checkout's other labs, running or not."""
    bases: set[int] = set()
    for state in LABS.glob("*/lab.json"):
        if state.parent != lab.dir:
            base = json.loads(state.read_text()).get("port_base")
            if base is not None:
                bases.add(base)
    return bases


def _holder(port: int) -> str:
    """Return the name of the process that listens on a port, as far as this user can see it."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(os.readlink(handle) in inodes for handle in (process / "fd").iterdir()):
                return f"process {process.name} ({(process / 'comm').read_text().strip()})"
        except OSError:
            continue
    return "another process"
