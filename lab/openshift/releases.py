# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The OpenShift releases that a lab can report, and the operating system of their nodes."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import LabError


@dataclass(frozen=True)
class Release:
    """One minor release: the version of its ClusterVersion, and the operating system of its nodes (a key of SYSTEMS)."""

    minor: str
    version: str
    system: str


# The control plane is the lab's Kubernetes in all of them.
RELEASES = {
    release.minor: release
    for release in (
        Release("4.16", "4.16.49", "rhcos-4.16"),
        Release("4.18", "4.18.28", "rhcos-4.18"),
        Release("4.20", "4.20.8", "rhcos-4.20"),
        Release("5.0", "5.0.0", "rhcos-5.0"),
    )
}
DEFAULT = "4.18"


def find(minor: str) -> Release:
    """Return the release with this minor version; raise LabError if the lab does not have it."""
    release = RELEASES.get(minor)
    if release is None:
        raise LabError(f"the lab has no OpenShift '{minor}'; choose from {', '.join(RELEASES)}")
    return release
