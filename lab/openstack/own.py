# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's Kubernetes as Magnum's cluster: its address, its authority, and the operator that a cloud preinstalls."""

from __future__ import annotations

import os
import subprocess
from typing import Any

from ..api import Api
from ..errors import LabError
from ..layout import Lab

GPU_LABEL = "nvidia_gpu_enabled"
# As CERN's clusters have it (their webinar of 2024): pods cern-magnum-... in kube-system.
RELEASE, NAMESPACE = "cern-magnum-nvidia-gpu", "kube-system"
_NFD_RELEASE = "cern-magnum-node-feature-discovery"
_VALUES = ("nfd.enabled=false", "driver.enabled=false", "toolkit.enabled=true")
_SECONDS = 120


def api_address(lab: Lab) -> str:
    """Return the address of the lab's API server."""
    return f"https://127.0.0.1:{lab.ports()['kube-apiserver']}"


def authority(lab: Lab, store: Any, context: Any) -> str:
    """Give the lab's authority, key and all, to Magnum's store; what Magnum signs then is what the API server believes."""
    return str(
        store.store_cert(
            certificate=(lab.pki / "ca.crt").read_text(), private_key=(lab.pki / "ca.key").read_text(), context=context
        )
    )


def install_operator(lab: Lab) -> None:
    """Install NFD and the GPU operator as a cloud does that preinstalls them; nothing where they are already."""
    _helm(lab, _NFD_RELEASE, "node-feature-discovery")
    _helm(lab, RELEASE, "gpu-operator", *(f"--set={value}" for value in _VALUES))


def has_operator(lab: Lab) -> bool:
    """Tell whether the cluster has the release."""
    found = Api(lab).list(f"/api/v1/namespaces/{NAMESPACE}/secrets", labelSelector=f"owner=helm,name={RELEASE}")
    return any(True for _secret in found)


def _helm(lab: Lab, release: str, chart: str, *options: str) -> None:
    command = [str(lab.bin / "helm"), "upgrade", "--install", release, str(lab.charts / chart)]
    command += ["--namespace", NAMESPACE, "--kubeconfig", str(lab.pki / "cli.kubeconfig"), *options]
    places = {f"HELM_{kind.upper()}_HOME": str(lab.dir / "helm" / kind) for kind in ("cache", "config", "data")}
    done = subprocess.run(
        command, env=dict(os.environ) | places, capture_output=True, text=True, check=False, timeout=_SECONDS
    )
    if done.returncode:
        raise LabError(f"helm cannot install {release}: {done.stderr.strip()}")
