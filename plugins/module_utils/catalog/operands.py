# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPU operator's operands: their part of the ClusterPolicy, their images, and the label `app` of their pods.

To add an operand, add an entry to OPERANDS.

Sources: gpu-operator api/nvidia/v1/clusterpolicy_types.go (ImagePath, IsEnabled() for the defaults of `enabled`), deployments/gpu-operator/values.yaml (the
chart enables vfioManager, sandboxDevicePlugin and vgpuDeviceManager, which IsEnabled() does not), controllers/object_controls.go (resolveDriverTag),
controllers/state_manager.go (which states run), assets/*/*daemonset.yaml (labels), the tags v23.9.2 to v26.7.0. Restarts: the Transform functions in
controllers/object_controls.go, v25.10.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

# The values of the label app that other code needs; on OpenShift, the value for the driver has the operating system as a suffix.
DRIVER = "nvidia-driver-daemonset"
TOOLKIT = "nvidia-container-toolkit-daemonset"
PLUGIN = "nvidia-device-plugin-daemonset"
MPS_DAEMON = "nvidia-device-plugin-mps-control-daemon"
DISCOVERY = "gpu-feature-discovery"
MIG_MANAGER = "nvidia-mig-manager"
VALIDATOR = "nvidia-operator-validator"
DCGM = "nvidia-dcgm"
DCGM_EXPORTER = "nvidia-dcgm-exporter"
# The operator's variable with the image of the driver manager, which several operands use.
DRIVER_MANAGER_VARIABLE = "DRIVER_MANAGER_IMAGE"


@dataclasses.dataclass(frozen=True)
class OperandDefinition:
    """An operand with an image.

    part: its field in the spec of the ClusterPolicy. runs_by_default: whether it runs if `enabled` of this field is not set; None if there is no `enabled`.
    apps: the label app of its pods, which restart when the field changes; empty for pods that only nodes with virtual machines have.
    image_variable: the operator's variable with its image, if its name does not follow from `part`. manager: the field of the part with the
    image of the driver manager. by_system: whether the operator appends the operating system to the image's tag. virtual_machines: whether it runs only with
    sandboxWorkloads.enabled.
    """

    part: str
    runs_by_default: bool | None
    apps: tuple[str, ...] = ()
    image_variable: str = ""
    manager: str = ""
    by_system: bool = False
    virtual_machines: bool = False

    @property
    def variable(self) -> str:
        """The operator's variable with the image."""
        return self.image_variable or f"{re.sub(r'(?<=[a-z])(?=[A-Z])', '_', self.part).upper()}_IMAGE"


OPERANDS = (
    OperandDefinition("validator", None, (VALIDATOR,)),
    OperandDefinition("driver", True, (DRIVER,), manager="manager", by_system=True),
    OperandDefinition("toolkit", True, (TOOLKIT,), image_variable="CONTAINER_TOOLKIT_IMAGE"),
    OperandDefinition("devicePlugin", True, (PLUGIN, MPS_DAEMON)),
    OperandDefinition("gfd", True, (DISCOVERY,)),
    OperandDefinition("dcgm", True, (DCGM,)),
    OperandDefinition("dcgmExporter", True, (DCGM_EXPORTER,)),
    OperandDefinition("migManager", True, (MIG_MANAGER,)),
    OperandDefinition("nodeStatusExporter", False, ("nvidia-node-status-exporter",), image_variable="VALIDATOR_IMAGE"),
    OperandDefinition("gds", False, (DRIVER,), by_system=True),
    OperandDefinition("gdrcopy", False, (DRIVER,), by_system=True),
    OperandDefinition("vfioManager", True, manager="driverManager", virtual_machines=True),
    OperandDefinition("sandboxDevicePlugin", True, virtual_machines=True),
    OperandDefinition("kataSandboxDevicePlugin", False, virtual_machines=True),
    OperandDefinition("vgpuManager", False, manager="driverManager", by_system=True, virtual_machines=True),
    OperandDefinition("vgpuDeviceManager", True, virtual_machines=True),
    OperandDefinition("kataManager", False, virtual_machines=True),
    OperandDefinition("ccManager", False, virtual_machines=True),
)
APPS = frozenset(app for operand in OPERANDS for app in operand.apps)
# The pods that use the device plugin's configuration.
_CONFIGURED = frozenset({PLUGIN, MPS_DAEMON, DISCOVERY})
# Exceptions: fields below the ClusterPolicy's spec for which a change does not restart exactly the pods of their operand, each with the apps of the pods
# that restart.
_RESTARTS: dict[tuple[str, ...], frozenset[str]] = {
    # Init containers of the other operands also use the validator's image.
    ("validator",): APPS,
    **dict.fromkeys([("devicePlugin",), ("mig",)], _CONFIGURED),
    # The validator's pod checks the plugin's resources and the kernel modules of the sidecars, and gets the strategy.
    **dict.fromkeys([("devicePlugin", "enabled"), ("mig", "strategy")], _CONFIGURED | {VALIDATOR}),
    **dict.fromkeys([("gds", "enabled"), ("gdrcopy", "enabled")], frozenset({DRIVER, PLUGIN, VALIDATOR})),
    ("dcgm", "enabled"): frozenset({DCGM, DCGM_EXPORTER}),
    **dict.fromkeys([("toolkit", "enabled"), ("toolkit", "installDir")], frozenset({TOOLKIT, PLUGIN, MIG_MANAGER})),
    ("hostPaths", "kubeletRootDir"): APPS - {DRIVER},
    # These fields are not part of a pod template; they concern labels of the namespace, a Service, a ServiceMonitor, and the replacement of pods.
    **dict.fromkeys(
        [
            *(("psa",), ("psp",), ("dcgmExporter", "service"), ("dcgmExporter", "serviceMonitor")),
            *(("driver", "upgradePolicy"), ("daemonsets", "updateStrategy"), ("daemonsets", "rollingUpdate")),
        ],
        frozenset(),
    ),
}


def restarted_apps(path: t.Sequence[str]) -> frozenset[str]:
    """The apps of the pods that restart when the field at this path below the spec of the ClusterPolicy changes; all apps if it belongs to no operand."""
    for length in (2, 1):
        apps = _RESTARTS.get(tuple(path[:length]))
        if apps is not None:
            return apps
    return next((frozenset(operand.apps) for operand in OPERANDS if operand.part == path[0]), APPS)
