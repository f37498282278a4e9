# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenShift's CRDs and objects as a part of a lab."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from .. import build, fleet
from ..api import Api
from ..layout import LAB, Lab
from ..part import LabPart
from ..supervisor import tool
from . import crds, machine_configuration, objects, releases


class OpenShift(LabPart):
    """The CRDs and objects of a new OpenShift cluster; the settings of the lab contain its release and its platform."""

    name = "openshift"
    cloud = "openshift"
    service = "openshift"
    fleet = LAB / "fleets" / "openshift.yaml"

    def fleet_file(self, lab: Lab) -> Path:
        """Write and return the fleet file with the operating system of the lab's release; GPUs of vSphere are those of virtual machines."""
        state = lab.state()
        system = releases.find(state.get("openshift", releases.DEFAULT)).system
        groups = [one for one in fleet.load(self.fleet).groups if not one.model or state.get("platform") != "VSphere"]
        path = self.folder(lab) / "fleet.yaml"
        fleet.Fleet(tuple(dataclasses.replace(group, os=system) for group in groups)).save(path)
        return path

    def build(self, lab: Lab) -> None:
        """Fetch the CRDs."""
        build.ensure([crds.TOOL])

    def environment(self, lab: Lab) -> dict[str, str]:
        """Return the folder of the CRDs."""
        return {"LAB_TOOL_OPENSHIFT_CRDS": str(build.ensure([crds.TOOL])[crds.TOOL] / "bin")}

    def serve(self, lab: Lab) -> None:
        """Apply the CRDs and objects, report that, and then keep the status of the MachineConfiguration up to date."""
        api, state = Api(lab, "runner"), lab.state()
        crds.apply(api, tool(crds.TOOL).parent)
        release = releases.find(state.get("openshift", releases.DEFAULT))
        platform = state.get("platform") or objects.PLATFORMS[0]
        objects.create(lab, api, release, platform)
        machine_configuration.publish(api, release, platform)
        print("openshift: ready", flush=True)
        machine_configuration.follow(api, release, platform)
