# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The releases of NVIDIA's vGPU software: the versions of the manager on the hypervisor and of the driver in Linux guests.

Sources: NVIDIA vGPU release notes ("vGPU Software Driver Versions"), Tenable's plugins for NVIDIA bulletins, Google's bucket of GRID drivers. An empty
string stands for a version that no source lists.
"""

from __future__ import annotations

from typing import NamedTuple


class VgpuRelease(NamedTuple):
    """One release: its number, and the versions of the manager and of the guest driver for Linux."""

    number: str
    manager: str
    guest: str

    @property
    def branch(self) -> int:
        """The major number of the release."""
        return int(self.number.partition(".")[0])


# The branch of vGPU releases for each major number of the drivers.
BRANCHES: dict[int, int] = {470: 13, 510: 14, 525: 15, 535: 16, 550: 17, 570: 18, 580: 19, 595: 20}
# The first branch whose guests need a newer license server, and the version of that Delegated License Service (NVIDIA License System release notes).
DLS_VERSION_NEEDED = (18, "3.4")
# Branches with long-term support. A later branch also supports guests of the previous one (NVIDIA vGPU 19.0 release notes, "Compatibility").
LONG_TERM_BRANCHES = (13, 16, 19)

RELEASES: tuple[VgpuRelease, ...] = (
    VgpuRelease("20.1", "", "595.71.05"),
    VgpuRelease("20.0", "595.58.02", "595.58.03"),
    VgpuRelease("19.6", "", "580.178.04"),
    VgpuRelease("19.5", "580.159.01", "580.159.03"),
    VgpuRelease("19.4", "580.126.08", "580.126.09"),
    VgpuRelease("19.3", "580.105.06", "580.105.08"),
    VgpuRelease("19.2", "580.95.02", "580.95.05"),
    VgpuRelease("19.1", "580.82.02", "580.82.07"),
    VgpuRelease("19.0", "580.65.05", "580.65.06"),
    VgpuRelease("18.6", "", "570.211.01"),
    VgpuRelease("18.5", "570.195.02", ""),
    VgpuRelease("18.4", "570.172.07", "570.172.08"),
    VgpuRelease("18.3", "570.158.02", "570.158.01"),
    VgpuRelease("18.2", "570.148.06", "570.148.08"),
    VgpuRelease("18.1", "570.133.10", "570.133.20"),
    VgpuRelease("18.0", "570.124.03", ""),
    VgpuRelease("17.6", "550.163.02", "550.163.01"),
    VgpuRelease("17.5", "550.144.02", "550.144.03"),
    VgpuRelease("17.4", "550.127.06", "550.127.05"),
    VgpuRelease("17.3", "550.90.05", "550.90.07"),
    VgpuRelease("17.2", "550.90.05", "550.90.07"),
    VgpuRelease("17.1", "550.54.16", "550.54.15"),
    VgpuRelease("17.0", "550.54.10", "550.54.14"),
    VgpuRelease("16.14", "", "535.309.01"),
    VgpuRelease("16.13", "", "535.288.01"),
    VgpuRelease("16.12", "535.274.03", ""),
    VgpuRelease("16.11", "535.261.04", "535.261.03"),
    VgpuRelease("16.10", "535.247.02", "535.247.01"),
    VgpuRelease("16.9", "535.230.02", "535.230.02"),
    VgpuRelease("16.8", "535.216.01", "535.216.01"),
    VgpuRelease("16.7", "535.183.04", "535.183.06"),
    VgpuRelease("16.6", "535.183.04", "535.183.01"),
    VgpuRelease("16.5", "535.161.05", "535.161.08"),
    VgpuRelease("16.4", "535.161.05", "535.161.07"),
    VgpuRelease("16.3", "535.154.02", "535.154.05"),
    VgpuRelease("16.2", "535.129.03", "535.129.03"),
    VgpuRelease("16.1", "535.104.06", "535.104.05"),
    VgpuRelease("16.0", "535.54.06", "535.54.03"),
    VgpuRelease("15.4", "525.147.01", "525.147.05"),
    VgpuRelease("15.3", "525.125.03", "525.125.06"),
    VgpuRelease("15.2", "525.105.14", "525.105.17"),
    VgpuRelease("15.1", "525.85.07", "525.85.05"),
    VgpuRelease("15.0", "525.60.12", "525.60.13"),
    VgpuRelease("14.4", "510.108.03", "510.108.03"),
    VgpuRelease("14.2", "510.85.03", "510.85.02"),
    VgpuRelease("14.1", "510.73.06", "510.73.08"),
    VgpuRelease("14.0", "510.47.03", "510.47.03"),
    VgpuRelease("13.12", "470.256.02", "470.256.02"),
    VgpuRelease("13.10", "470.239.01", "470.239.06"),
    VgpuRelease("13.9", "470.223.02", "470.223.02"),
    VgpuRelease("13.8", "470.199.03", "470.199.02"),
    VgpuRelease("13.7", "470.182.02", "470.182.03"),
    VgpuRelease("13.6", "470.161.02", "470.161.03"),
    VgpuRelease("13.4", "470.141.05", "470.141.03"),
    VgpuRelease("13.3", "470.129.04", "470.129.06"),
    VgpuRelease("13.2", "470.103.02", "470.103.01"),
    VgpuRelease("13.1", "470.82", "470.82.01"),
    VgpuRelease("13.0", "470.63", "470.63.01"),
)


def release_with(*, manager: str = "", guest: str = "") -> VgpuRelease | None:
    """The newest release with this version of the manager or of the guest driver; None if the table has none."""
    return next(
        (item for item in RELEASES if (manager and item.manager == manager) or (guest and item.guest == guest)), None
    )


def branch_of(version: str) -> int | None:
    """The branch of vGPU releases for a driver's version; None if it is not known."""
    major = version.partition(".")[0]
    return BRANCHES.get(int(major)) if major.isdecimal() else None
