# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenShift's Machine API and cluster autoscaler as a part of a lab; `lab/sim/machines` simulates them."""

from __future__ import annotations

import json
import os
import time

from .. import nodes
from ..api import Api
from ..cloud_settings import CloudFault, CloudSettings, Setting
from ..errors import LabError
from ..layout import Lab
from ..openshift import objects, releases
from ..part import LabPart
from ..supervisor import tool
from . import types
from .machine_sets import MACHINE_SETS, machine_sets

_READY_SECONDS = 120.0
_TIMES = ("create-seconds", "boot-seconds")
# On this platform, OpenShift's own controllers create the machines (lab/vsphere).
VSPHERE = "VSphere"
_ON_VSPHERE = ("never-joins", "paused", "autoscaler-paused")


class MachineApi(LabPart):
    """The MachineSets of a new cluster, the machines of all MachineSets, and the autoscaler; needs the part openshift."""

    name = "machines"
    cloud = types.CLOUD
    service = "machines"
    faults = {
        "quota": "the cloud rejects new instances (quota): the Machine is Failed",
        "no-capacity": "the cloud has no capacity for new instances: the Machine stays Provisioning, with events",
        "stuck-provisioning": "new Machines stay Provisioning, without any error",
        "never-joins": "instances are created but never become nodes: the Machine stays Provisioned",
        "instance-lost": "instances were deleted outside of the cluster: the Machine is Failed, its node NotReady",
        "stuck-deleting": "the cloud does not terminate instances: the Machine stays Deleting",
        "paused": "the controllers of Machines, MachineSets and MachineAutoscalers do nothing (without --group)",
        "autoscaler-paused": "the autoscaler does nothing (without --group)",
    }
    settings = {
        "create-seconds": Setting("20", "seconds until an instance is created, on a real cloud"),
        "boot-seconds": Setting("180", "seconds until a created instance is a node, on a real cloud"),
        "terminate-seconds": Setting("10", "seconds until an instance is terminated, on a real cloud"),
    }

    def prepare(self, lab: Lab) -> None:
        """Write the instance types and their nodes for the simulator."""
        release, platform = _release(lab)
        content = types.cloud(platform, release, lab.ports()["kwok"])
        (self.folder(lab) / "cloud.json").write_text(json.dumps(content))

    def begin(self, lab: Lab) -> None:
        """Create the MachineSets of a new cluster, and wait until their machines are nodes, which takes no time here."""
        api = Api(lab)
        if not lab.state()["with_sim"] or next(api.list(MACHINE_SETS), None) is not None:
            return
        switches = CloudSettings(lab, {f"{self.cloud}.{key}": setting for key, setting in self.settings.items()})
        before = switches.values()
        for key in _TIMES:
            switches.set(f"{self.cloud}.{key}", "0")
        for body in machine_sets(_release(lab)[1]):
            api.apply(f"{MACHINE_SETS}/{body['metadata']['name']}", body)
        deadline = time.monotonic() + _READY_SECONDS
        while waiting := [one["metadata"]["name"] for one in api.list(MACHINE_SETS) if not _is_ready(one)]:
            if time.monotonic() > deadline:
                raise LabError(f"MachineSet {waiting[0]} is not ready: see 'lab/lab{lab.option} logs machines'")
            time.sleep(0.1)
        while not all(nodes.is_ready(node) for node in api.list(nodes.NODES)) and time.monotonic() < deadline:
            time.sleep(0.1)
        for key in _TIMES:
            switches.set(f"{self.cloud}.{key}", before[f"{self.cloud}.{key}"])

    def inject(self, lab: Lab, fault: CloudFault) -> None:
        """Reject a fault with a value, or of a MachineSet that does not exist."""
        if fault.value is not None:
            raise LabError(f"the fault '{fault.name}' accepts no value")
        if _release(lab)[1] == VSPHERE and fault.name.partition(".")[2] not in _ON_VSPHERE:
            raise LabError(f"the fault '{fault.name}' is not available on vSphere: use those of the cloud 'vsphere'")
        if fault.group is not None and fault.name.endswith("paused"):
            raise LabError(f"the fault '{fault.name}' is not that of a MachineSet: omit --group")
        if fault.group is not None and Api(lab).get(f"{MACHINE_SETS}/{fault.group}") is None:
            raise LabError(f"MachineSet '{fault.group}' does not exist")

    def serve(self, lab: Lab) -> None:
        """Replace this process with the simulator."""
        release, platform = _release(lab)
        scale = [one for one in lab.state().get("sim_options", ()) if one.startswith("--time-scale")]
        program = str(tool("sim") / "sim")
        arguments = [
            program,
            "machines",
            f"--kubeconfig={lab.pki / 'sim.kubeconfig'}",
            f"--release={release.minor}",
            f"--cloud={self.folder(lab) / 'cloud.json'}",
            f"--settings={lab.clouds / 'switches.json'}",
            *([f"--virtual-machines={lab.clouds / 'vsphere' / 'machines.json'}"] if platform == VSPHERE else []),
            f"--health=127.0.0.1:{lab.ports()['machines']}",
            *scale,
        ]
        os.execv(program, arguments)


def _release(lab: Lab) -> tuple[releases.Release, str]:
    """Return the release and the platform of a lab with OpenShift."""
    state = lab.state()
    release = releases.find(state.get("openshift", releases.DEFAULT))
    return release, state.get("platform", objects.PLATFORMS[0])


def _is_ready(machine_set: dict[str, object]) -> bool:
    spec, status = machine_set["spec"], machine_set.get("status") or {}
    desired: int = spec["replicas"]  # type: ignore[index]
    available: int = status.get("availableReplicas", 0)  # type: ignore[attr-defined]
    return available == desired
