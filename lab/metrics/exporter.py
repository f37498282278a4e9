# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""dcgm-exporter in the pods of the lab: its license metric, from the output of nvidia-smi in the driver pod of its node.

Source: NVIDIA/dcgm-exporter (labels of its metrics; etc/default-counters.csv: help text), DCGM dcgm_fields.h (0: not licensed, 1: licensed),
NVIDIA/gpu-operator assets/state-dcgm-exporter (label and port of the pods).
"""

from __future__ import annotations

import os
import re
import subprocess

from ..api import Api, Object
from ..layout import Lab

PORT = 9400
_METRIC = "DCGM_FI_DEV_VGPU_LICENSE_STATUS"
_HEAD = f"# HELP {_METRIC} vGPU License status\n# TYPE {_METRIC} gauge\n"
_APP, _DRIVER, _CONTAINER = "nvidia-dcgm-exporter", "app.kubernetes.io/component=nvidia-driver", "nvidia-driver-ctr"


def scrape(lab: Lab, address: str) -> str | None:
    """Return the metrics of the exporter with this pod address; None if there is none, or if no driver runs on its node."""
    api = Api(lab)
    for pod in api.list("/api/v1/pods", labelSelector=f"app={_APP}", fieldSelector=f"status.podIP={address}"):
        if pod["status"].get("phase") == "Running":
            node, namespace = pod["spec"]["nodeName"], pod["metadata"]["namespace"]
            query = {"labelSelector": _DRIVER, "fieldSelector": f"spec.nodeName={node}"}
            for driver in api.list(f"/api/v1/namespaces/{namespace}/pods", **query):
                if _runs(driver) and (output := _nvidia_smi(lab, driver["metadata"])):
                    return metrics(node, output)
    return None


def metrics(node: str, output: str) -> str:
    """Return the metrics of a node in Prometheus' text format, from the output of `nvidia-smi -q`."""
    head, *sections = re.split(r"^GPU (\S+)$", output, flags=re.MULTILINE)
    lines = []
    for gpu, (bus, section) in enumerate(zip(sections[::2], sections[1::2], strict=True)):
        labels = {
            "gpu": gpu,
            "UUID": _field(section, "GPU UUID"),
            "pci_bus_id": bus,
            "device": f"nvidia{gpu}",
            "modelName": _field(section, "Product Name"),
            "Hostname": node,
            "DCGM_FI_DRIVER_VERSION": _field(head, "Driver Version"),
        }
        shown = ",".join(f'{name}="{value}"' for name, value in labels.items())
        licensed = _field(section, "License Status").startswith("Licensed")
        lines.append(f"{_METRIC}{{{shown}}} {licensed:d}\n")
    return _HEAD + "".join(lines)


def _field(section: str, name: str) -> str:
    """The value of the first field with this name."""
    match = re.search(rf"^ *{name} +: (.*)$", section, re.MULTILINE)
    return match[1] if match else ""


def _runs(driver: Object) -> bool:
    statuses = driver["status"].get("containerStatuses", ())
    return any(status["name"] == _CONTAINER and "running" in status["state"] for status in statuses)


def _nvidia_smi(lab: Lab, driver: Object) -> str:
    """The output of the command in a driver pod, as `kubectl exec` shows it; empty if its container is not running."""
    # The folder and the variable are those of lab/sim/agents/driver_pods.go.
    folder = lab.containers / f"{driver['namespace']}_{driver['name']}_{driver['uid']}"
    call = [str(lab.shims / "exec"), "nvidia-smi", "-q"]
    variables = os.environ | {"LAB_CONTAINER": str(folder)}
    return subprocess.run(
        call, env=variables, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False
    ).stdout
