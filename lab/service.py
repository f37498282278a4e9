# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Entry point of the lab's own services for process-compose: `python -m lab.service NAME FOLDER SERVICE`."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import yaml

from . import parts, sandbox
from .api import Api, ApiError
from .layout import LAB, Lab
from .supervisor import tool

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
# Objects of these kinds define the responses of kwok's kubelet API.
_KWOK_KINDS = ("Logs", "ClusterLogs", "Exec", "ClusterExec")
_CRD_FILES = ("logs", "clusterlogs", "execs", "clusterexecs")


def main() -> None:
    """Run the service named on the command line."""
    name, folder, service = sys.argv[1:]
    lab = Lab.named(name, Path(folder))
    if service == "kwok":
        _kwok(lab)
    elif service == "sim":
        _sim(lab)
    elif service == "runner":
        from .runner import run

        run(lab)
    else:
        next(part for part in parts.KNOWN.values() if part.service == service).serve(lab)


def _kwok(lab: Lab) -> None:
    _apply_crds(Api(lab, "kwok"))
    port = lab.ports()["kwok"]
    stages = sorted((LAB / "kwok").glob("*.yaml"))
    arguments = [
        "/kwok",
        "--kubeconfig=/pki/kwok.kubeconfig",
        *(f"--config=/config/{stage.name}" for stage in stages),
        "--manage-all-nodes=false",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        "--node-lease-duration-seconds=40",
        "--node-ip=127.0.0.1",
        f"--node-port={port}",
        f"--server-address=127.0.0.1:{port}",
        "--tls-cert-file=/pki/server.crt",
        "--tls-private-key-file=/pki/server.key",
        f"--enable-crds={','.join(_KWOK_KINDS)}",
    ]
    files: dict[Path | str, str] = {
        tool("kwok") / "kwok": "/kwok",
        **{stage: f"/config/{stage.name}" for stage in stages},
        lab.shims: "/shims",
        # The same path inside and outside the sandbox, so that a Logs object can contain the path of a log file.
        lab.pod_logs: str(lab.pod_logs),
    }
    files |= {lab.pki / name: f"/pki/{name}" for name in ("kwok.kubeconfig", "server.crt", "server.key")}
    call = sandbox.command(
        arguments,
        files=files,
        environment={"PATH": "/shims", "HOME": "/tmp"},
        # The folder that an Exec object names (lab/sim/agents/driver_pods.go).
        writable={lab.containers: "/containers"},
    )
    os.execv(call[0], call)


def _sim(lab: Lab) -> None:
    program = str(tool("sim") / "sim")
    arguments = [
        program,
        f"--kubeconfig={lab.pki / 'sim.kubeconfig'}",
        f"--pod-logs={lab.pod_logs}",
        f"--containers={lab.containers}",
        f"--health=127.0.0.1:{lab.ports()['sim']}",
        *lab.state().get("sim_options", ()),
    ]
    os.execv(program, arguments)


def _apply_crds(api: Api) -> None:
    """Create kwok's CRDs and wait until the API server serves them."""
    desired = {}
    for file in _CRD_FILES:
        path = tool("kwok").parent / "crds" / f"kwok.x-k8s.io_{file}.yaml"
        crd = yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        desired[crd["metadata"]["name"]] = crd
    for name, crd in desired.items():
        api.apply(f"{_CRDS}/{name}", crd)
    deadline = time.monotonic() + 120
    while not all(_established(api, name) for name in desired):
        if time.monotonic() > deadline:
            raise ApiError(0, "the API server does not serve kwok's CRDs")
        time.sleep(0.05)


def _established(api: Api, name: str) -> bool:
    crd = api.get(f"{_CRDS}/{name}") or {}
    conditions = crd.get("status", {}).get("conditions", [])
    return any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions)


if __name__ == "__main__":
    main()
