# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Operating systems, kubelet version and driver versions of the simulated machines."""

from __future__ import annotations

from dataclasses import dataclass

KUBELET = "v1.36.4"


@dataclass(frozen=True)
class System:
    """An operating system in the terms of os-release, the kubelet and NFD."""

    id: str
    version_id: str
    kernel: str
    image: str
    runtime: str


SYSTEMS = {
    "ubuntu-22.04": System("ubuntu", "22.04", "5.15.0-119-generic", "Ubuntu 22.04.5 LTS", "containerd://2.1.4"),
    "ubuntu-24.04": System("ubuntu", "24.04", "6.8.0-60-generic", "Ubuntu 24.04.3 LTS", "containerd://2.1.4"),
    "rhel-9.6": System(
        "rhel", "9.6", "5.14.0-570.12.1.el9_6.x86_64", "Red Hat Enterprise Linux 9.6 (Plow)", "containerd://2.1.4"
    ),
    "rhcos-4.18": System(
        "rhcos",
        "4.18",
        "5.14.0-427.50.1.el9_4.x86_64",
        "Red Hat Enterprise Linux CoreOS 418.94.202503041606-0",
        "cri-o://1.31.6-2.rhaos4.18.git0b6f3a9.el9",
    ),
}

CONDITIONS = (
    {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"},
    {"type": "MemoryPressure", "status": "False", "reason": "KubeletHasSufficientMemory", "message": ""},
    {"type": "DiskPressure", "status": "False", "reason": "KubeletHasNoDiskPressure", "message": ""},
    {"type": "PIDPressure", "status": "False", "reason": "KubeletHasSufficientPID", "message": ""},
)

# The CUDA version that a driver of each branch reports (CUDA Toolkit release notes, table "CUDA Toolkit and Corresponding
# Driver Versions"; 580.159.04 with 13.0 was measured). lab/sim/rules/releases.go has the same table.
CUDA_OF_BRANCH = {
    "535": "12.2",
    "545": "12.3",
    "550": "12.4",
    "555": "12.5",
    "560": "12.6",
    "565": "12.7",
    "570": "12.8",
    "575": "12.9",
    "580": "13.0",
    "590": "13.1",
    "595": "13.2",
    "610": "13.3",
}
