# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's Kubernetes as a Magnum cluster: creation, API address, CA, and the operator that some clouds preinstall."""

from __future__ import annotations

import os
import subprocess
import time
from typing import Any

from ..api import Api
from ..errors import LabError
from ..layout import Lab
from .layout import state
from .rest import Rest

GPU_LABEL = "nvidia_gpu_enabled"
# As in CERN's clusters (their webinar of 2024): pods cern-magnum-... in kube-system.
RELEASE, NAMESPACE = "cern-magnum-nvidia-gpu", "kube-system"
_NFD_RELEASE = "cern-magnum-node-feature-discovery"
_VALUES = ("nfd.enabled=false", "driver.enabled=false", "toolkit.enabled=true")
_HELM_SECONDS = 120
_CLUSTER_SECONDS = 120.0


def api_address(lab: Lab) -> str:
    """Return the address of the lab's API server."""
    return f"https://127.0.0.1:{lab.ports()['kube-apiserver']}"


def authority(lab: Lab, store: Any, context: Any) -> str:
    """Store the lab's CA with its key in Magnum, so that the API server accepts the certificates that Magnum signs."""
    return str(
        store.store_cert(
            certificate=(lab.pki / "ca.crt").read_text(), private_key=(lab.pki / "ca.key").read_text(), context=context
        )
    )


def install_operator(lab: Lab) -> None:
    """Install NFD and the GPU operator like a cloud that preinstalls them; does nothing if they are installed."""
    _helm(lab, _NFD_RELEASE, "node-feature-discovery")
    _helm(lab, RELEASE, "gpu-operator", *(f"--set={value}" for value in _VALUES))


def has_operator(lab: Lab) -> bool:
    """Return whether the cluster has the GPU operator release."""
    secrets = Api(lab).list(f"/api/v1/namespaces/{NAMESPACE}/secrets", labelSelector=f"owner=helm,name={RELEASE}")
    return any(True for _secret in secrets)


def _helm(lab: Lab, release: str, chart: str, *options: str) -> None:
    command = [str(lab.bin / "helm"), "upgrade", "--install", release, str(lab.charts / chart)]
    command += ["--namespace", NAMESPACE, "--kubeconfig", str(lab.pki / "cli.kubeconfig"), *options]
    places = {f"HELM_{kind.upper()}_HOME": str(lab.dir / "helm" / kind) for kind in ("cache", "config", "data")}
    done = subprocess.run(
        command, env=dict(os.environ) | places, capture_output=True, text=True, check=False, timeout=_HELM_SECONDS
    )
    if done.returncode:
        raise LabError(f"helm could not install {release}: {done.stderr.strip()}")


def create_magnum_cluster(lab: Lab) -> None:
    """Create the cluster with the name of the lab in project demo, once per lab, and wait until it is complete.

    If a user deletes the cluster, only a reset recreates it.
    """
    done = state(lab) / "cluster-made"
    if done.exists():
        return
    demo = Rest(lab, "demo", "demo")
    templates = demo.get("magnum", "/clustertemplates")["clustertemplates"]
    body = {
        "name": lab.name,
        "cluster_template_id": next(one["uuid"] for one in templates if one["name"] == "k8s"),
        "keypair": "lab",
        "master_count": 1,
        "node_count": 2,
    }
    made = demo.post("magnum", "/clusters", body)["uuid"]
    deadline = time.monotonic() + _CLUSTER_SECONDS
    status, reason = "", ""
    while status != "CREATE_COMPLETE":
        if status.endswith("FAILED") or time.monotonic() > deadline:
            raise LabError(
                f"Magnum's cluster '{lab.name}' is {status or 'missing'}: {reason}; see 'lab/lab logs magnum'"
            )
        time.sleep(0.1)
        row = _listed(demo, made)
        status, reason = row.get("status") or "", row.get("status_reason") or ""
    done.touch()


def _listed(demo: Rest, cluster_id: str) -> dict[str, Any]:
    """Return the cluster from the list; empty while Magnum creates it."""
    try:
        clusters = demo.get("magnum", "/clusters")["clusters"]
    except LabError as error:
        # Between the creation of a cluster and that of its node groups, Magnum's own check of the response fails.
        if "master_count" not in str(error):
            raise
        return {}
    # The list does not contain an accepted cluster immediately.
    return next((one for one in clusters if one["uuid"] == cluster_id), {})
