# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The available parts, and the parts of a lab."""

from __future__ import annotations

from collections.abc import Iterable

from .errors import LabError
from .layout import Lab
from .machine_api.part import MachineApi
from .metrics.part import Metrics
from .nls.part import Nls
from .olm.part import Olm
from .openshift.part import OpenShift
from .openstack.part import OpenStack
from .part import LabPart
from .registry.part import Registry
from .vks.part import Vks
from .vsphere.part import VSphere

_ALL: tuple[LabPart, ...] = (
    OpenStack(),
    Vks(),
    OpenShift(),
    Olm(),
    VSphere(),
    MachineApi(),
    Registry(),
    Nls(),
    Metrics(),
)
# The parts of a lab with OpenShift.
OPENSHIFT = ("openshift", "olm", "machines")
KNOWN = {part.name: part for part in _ALL}


def of_openshift(release: str | None, platform: str | None) -> tuple[str, ...]:
    """Return the parts that an OpenShift release on a platform needs; nothing if neither is given."""
    needed = OPENSHIFT if release or platform else ()
    return (*needed, VSphere.name) if platform == "VSphere" else needed


def of(lab: Lab, more: Iterable[str] = ()) -> list[LabPart]:
    """Return the parts of a lab, including those in `more`, in the order of KNOWN."""
    selected = {*lab.state().get("parts", ()), *more}
    if unknown := selected - KNOWN.keys():
        raise LabError(f"unknown part '{min(unknown)}'; known: {', '.join(KNOWN)}")
    return [part for name, part in KNOWN.items() if name in selected]
