# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On what a benchmark ran: the machine and the versions, as they say it themselves."""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
from importlib import metadata
from pathlib import Path

from plugins.module_utils.catalog.names import VERSION
from tests.labs import Lab
from tests.programs import REPO, run

from .page import Setting

# The servers and the client beside which node groups are measured.
_PINNED = re.compile(r"^(magnum|keystone|python-openstackclient)==(\S+)", re.MULTILINE)
_COMMANDS = (
    ("The whole table", "make bench"),
    (
        "A profile change, and nothing to change",
        "ansible-playbook -i inventories/lab tests/performance/bench/profile.yml",
    ),
    ("Beside it", "kubectl label nodes -l bench=yes bench-step=k1 --overwrite"),
    ("And", "ansible-playbook -i inventories/lab tests/performance/bench/objects.yml"),
    ("Node groups", "ansible-playbook -i CLUSTERS [--forks N] tests/performance/bench/groups.yml"),
    ("Beside them", "openstack coe nodegroup list CLUSTER; openstack coe nodegroup show CLUSTER GROUP"),
)


def setting(lab: Lab, rounds: int, load: float, node_bytes: int | None = None) -> Setting:
    """What the page says above its table.

    `load` is the machine's load average before anything of this was started; node_bytes: of one node, where nodes were made for it.
    """
    words = [
        f"Every time is that of a whole process, from its start to its end: the median of {rounds} rounds, in which the "
        "commands that are compared take turns, so that a machine that gets slower slows both; in brackets the quickest and "
        "the slowest. Of *module's process* the start of Ansible is no part. Requests are counted in the API server's audit "
        "log, those of node groups in the log of the cloud; *servers' processor seconds* are what the lab's servers worked "
        "meanwhile, whoever asks."
    ]
    if node_bytes is not None:
        words.append(
            f"The nodes are objects of {node_bytes / 1000:.0f} KB each, with the labels of NFD and GFD and thirty images, in the "
            "[lab](lab.md); of its control plane only etcd and the API server run, on the same processors as the commands."
        )
    return Setting(_now(), f"{_machine()}, load {load:.1f} before", _versions(lab), _COMMANDS, tuple(words))


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def _machine() -> str:
    cpu = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = int(Path("/proc/meminfo").read_text().split()[1]) / 2**20
    return f"{os.cpu_count()} x {cpu[1] if cpu else platform.machine()}, {memory:.0f} GiB"


def _versions(lab: Lab) -> str:
    server = json.loads(run("kubectl", "version", "-o", "json", env=lab.env))["serverVersion"]["gitVersion"]
    of = {name: metadata.version(name) for name in ("ansible-core", "kubernetes", "urllib3", "openstacksdk")}
    of |= dict(_PINNED.findall((REPO / "lab" / "openstack" / "openstack.lock").read_text()))
    told = ", ".join(f"{name} {version}" for name, version in of.items())
    return f"accel.gpu {VERSION}, Kubernetes {server}, Python {platform.python_version()}, {told}"
