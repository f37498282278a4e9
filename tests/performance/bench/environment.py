# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Describes the environment of a benchmark: the machine, the versions and the commands."""

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

from .page import BenchEnvironment

# The servers and the client of the node group benchmark.
_PINNED = re.compile(r"^(magnum|keystone|python-openstackclient)==(\S+)", re.MULTILINE)
_COMMANDS = (
    ("The whole table", "make bench"),
    ("Another run of site", "ansible-playbook -i inventories/lab accel.gpu.site"),
    ("Another run of site on OpenShift", "ansible-playbook -i CLUSTERS accel.gpu.site"),
    ("For comparison, a ping", "ansible-playbook -i inventories/lab tests/performance/bench/ping.yml"),
    (
        "A change of shares, and a run with nothing to change",
        "ansible-playbook -i inventories/lab tests/performance/bench/sharing.yml",
    ),
    (
        "For comparison, kubectl",
        "kubectl label nodes -l bench=yes bench-step=k1 --overwrite; kubectl get nodes -l bench=yes --output name",
    ),
    ("For comparison, kubernetes.core.k8s", "ansible-playbook -i inventories/lab tests/performance/bench/objects.yml"),
    ("Node groups", "ansible-playbook -i CLUSTERS [--forks N] tests/performance/bench/groups.yml"),
    ("For comparison, openstack", "openstack coe nodegroup list CLUSTER; openstack coe nodegroup show CLUSTER GROUP"),
    ("Images", "ansible-playbook -i inventories/lab tests/performance/bench/images.yml"),
    ("For comparison, skopeo", "skopeo copy --all --preserve-digests docker://SOURCE docker://DESTINATION"),
    (
        "Slices of a job in AWX, and a job for one cluster",
        "ansible-playbook --forks 2 [-l CLUSTER] report.yml; ansible-playbook --forks 2 [-l CLUSTER] plan.yml",
    ),
    ("Templates and machines on vSphere", "ansible-playbook -i CLUSTERS tests/performance/bench/vsphere.yml"),
    ("For comparison, govc", "govc import.ova -ds DATASTORE -pool POOL -folder FOLDER OVA; sha256sum OVA"),
)


def environment(lab: Lab, rounds: int, load: float, node_bytes: int | None = None) -> BenchEnvironment:
    """Return the environment for the page.

    `load` is the load average before the benchmark; `node_bytes` the size of a node, if the benchmark created nodes.
    """
    notes = [
        f"Each time is the duration of a whole process. It is the median of at least {rounds} rounds; the fastest and the slowest round are in "
        "parentheses. Each command alternates with the command that it is compared with, so that a change in the machine's speed "
        "affects both commands. The limits for durations apply to the ratio between the durations of the two commands, unless they are in seconds. *In modules* is the total time in the "
        "collection's modules, in seconds, from the start of each task to its result. *CPU seconds* is the CPU time of all processes of "
        "the command, and *MiB* is the memory of the largest of these processes. *Servers' CPU seconds* is the CPU time of all of the lab's "
        "servers during the command. Requests are counted in the API server's audit log; for node groups, they are counted in the cloud's log, and for templates in vCenter's."
    ]
    if node_bytes is not None:
        notes.append(
            f"Each node in the [lab](lab.md) is an object of {node_bytes / 1000:.0f} KB that contains the labels of NFD and GFD and a list of "
            "30 images. Only etcd and the API server of the lab's control plane are running, on the same CPUs as the commands."
        )
    return BenchEnvironment(
        _now(), f"{_machine()}, load average {load:.1f} before the benchmark", _versions(lab), _COMMANDS, tuple(notes)
    )


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def _machine() -> str:
    cpu = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = int(Path("/proc/meminfo").read_text().split()[1]) / 2**20
    return f"{os.cpu_count()} x {cpu[1] if cpu else platform.machine()}, {memory:.0f} GiB"


def _versions(lab: Lab) -> str:
    server = json.loads(run("kubectl", "version", "-o", "json", env=lab.env))["serverVersion"]["gitVersion"]
    versions = {name: metadata.version(name) for name in ("ansible-core", "kubernetes", "urllib3", "openstacksdk")}
    versions |= dict(_PINNED.findall((REPO / "lab" / "openstack" / "openstack.lock").read_text()))
    libraries = ", ".join(f"{name} {version}" for name, version in versions.items())
    return f"accel.gpu {VERSION}, Kubernetes {server}, Python {platform.python_version()}, {libraries}"
