# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab with vGPU nodes: its playbooks and modules, its tokens, and the state of its nodes."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.accel.gpu.plugins.modules import license as license_module
from ansible_collections.accel.gpu.plugins.modules import license_info, license_rotation
from lab import audit
from lab.layout import Lab as LabLayout
from tests.helpers.cluster import NAMESPACE, Cluster
from tests.helpers.license_nodes import PID_FILE
from tests.helpers.license_tokens import make_token
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.helpers.polling import until
from tests.labs import Lab
from tests.programs import REPO, run

FLEET = REPO / "tests" / "integration" / "licensing" / "fleet.yaml"
SECRET, NODES = "licensing-config", 20
TOKEN_KEY = "client_configuration_token.tok"
# The license servers of the first token, and of the next one.
FIRST_HOST, NEW_HOST = "dls-a.example.com", "dls-b.example.com"
_STATE = "lab.accel.gpu/license"

Object = dict[str, Any]


class Licensing:
    """The lab and its vGPU pool."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder, self.cluster = lab, folder, Cluster(lab)
        self.pool: Object = {
            "name": "vdi",
            "match": {"labels": {"pool": "vdi"}},
            "sharing": {"mode": "none"},
            "driver": {
                "type": "vgpu",
                "version": "580.95.05",
                "repository": "registry.example.com/nvidia",
                "licensing_secret": SECRET,
            },
        }

    @property
    def variables(self) -> Object:
        """The variables of the cluster."""
        charts = self.lab.env["LAB_CHARTS"]
        operator = {"version": "v25.10.1", "chart": f"{charts}/gpu-operator"}
        nfd = {"chart": f"{charts}/node-feature-discovery"}
        return {"gpu_cluster": {"name": self.lab.name, "operator": operator, "nfd": nfd}, "gpu_pools": [self.pool]}

    def token(self, *hosts: str, **options: Any) -> Path:
        """A file with a token."""
        text = make_token(hosts=hosts or (FIRST_HOST,), **options)
        path = self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:8]}.tok"
        path.write_text(text)
        return path

    def install(self) -> None:
        """Install the operator and license every node."""
        self.play("site", token=self.token(), arguments=("--tags", "nfd,gpu_operator,licensing")).require_success()

    def play(
        self, name: str, *, token: Path | None = None, arguments: tuple[str, ...] = (), environ: Mapping[str, str] | None = None, **variables: Any
    ) -> PlaybookRun:  # fmt: skip
        """Run a playbook with a token of any license server; a failure is returned, too."""
        licensing = {"gpu_licensing_token_path": str(token), "gpu_licensing_replace": True} if token else {}
        given = {**self.variables, **licensing, **variables}
        return run_playbook(
            f"accel.gpu.{name}", environ={**self.lab.env, **(environ or {})}, variables=given, arguments=arguments
        )

    def license(self, token: Path | None = None, *, pools: list[Object] | None = None, **options: Any) -> Object:
        """The result of the module license with a token of any license server."""
        given = {"token_path": str(token), "replace": True} if token else {}
        return self._run(license_module.main, pools, **{**given, **options})

    def put_token(self, token: Path) -> None:
        """Write a token of any license server into the Secret without a trial, as a user may do with kubectl."""
        data = {"data": {TOKEN_KEY: base64.b64encode(token.read_bytes()).decode()}}
        self.cluster.kubectl("patch", "secret", SECRET, "-n", NAMESPACE, "--type=merge", "--patch", json.dumps(data))

    def info(self, *, pools: list[Object] | None = None, **options: Any) -> Object:
        """The result of the module license_info."""
        return self._run(license_info.main, pools, **options)

    def rotate(self, *, pools: list[Object] | None = None, **options: Any) -> Object:
        """The result of the module license_rotation."""
        return self._run(license_rotation.main, pools, **options)

    def _run(self, main: Any, pools: list[Object] | None, **options: Any) -> Object:
        result = self.cluster.run(main, gpu_pools=[self.pool] if pools is None else pools, diff=True, **options)
        result.pop("invocation", None)
        return result

    def secret(self, name: str = SECRET) -> Object:
        """The Secret."""
        actual: Object = self.cluster.get("secret", name, "-n", NAMESPACE)
        return actual

    def digest(self, name: str = SECRET) -> str:
        """The digest of the token in the Secret."""
        return hashlib.sha256(base64.b64decode(self.secret(name)["data"][TOKEN_KEY])).hexdigest()

    def states(self) -> dict[str, Object]:
        """The state of the license of each vGPU node, as the lab has it."""
        nodes = self.cluster.nodes()
        return {
            name: json.loads(node["metadata"]["annotations"][_STATE])
            for name, node in nodes.items()
            if _STATE in node["metadata"].get("annotations", {})
        }

    def pods(self) -> dict[str, tuple[str, int]]:
        """UID and restarts of every pod of the cluster that runs."""
        items = self.cluster.get("pods", "-A", "--field-selector", "status.phase=Running")["items"]
        return {
            f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": (
                pod["metadata"]["uid"],
                sum(each["restartCount"] for each in pod["status"].get("containerStatuses", ())),
            )
            for pod in items
        }

    def run_gpu_pods(self) -> None:
        """One pod with the GPU of each node."""
        self.cluster.kubectl("create", "deployment", "busy", "--image=registry.example.com/busy", f"--replicas={NODES}")
        self.cluster.kubectl("set", "resources", "deployment", "busy", "--limits=nvidia.com/gpu=1")

        def ready() -> bool:
            status = self.cluster.get("deployment", "busy")["status"]
            return bool(status.get("readyReplicas") == NODES and status.get("updatedReplicas") == NODES)

        until(ready, limit=120)
        until(lambda: len([name for name in self.pods() if name.startswith("default/busy")]) == NODES, limit=60)

    def mark(self) -> int:
        """The current end of the audit log."""
        return audit.mark(LabLayout.named(self.lab.name))

    def pod_changes(self, since: int) -> list[str]:
        """The pods that any client has created, deleted or evicted since a mark, by the audit log."""
        return [
            f"{request.verb} {request.uri} by {request.agent}"
            for request in audit.requests(LabLayout.named(self.lab.name), since)
            if request.resource == "pods"
            and request.verb in ("create", "delete", "deletecollection")
            and not request.uri.partition("?")[0].endswith("/exec")
        ]

    def driver_pods(self, node: str) -> list[str]:
        """The names of the driver pods of a node; for a moment, there may be none or two."""
        selector = ("-l", "app.kubernetes.io/component=nvidia-driver", f"--field-selector=spec.nodeName={node}")
        return [pod["metadata"]["name"] for pod in self.cluster.get("pods", "-n", NAMESPACE, *selector)["items"]]

    def driver_pod(self, node: str) -> str:
        """The name of the only driver pod of a node."""
        (name,) = self.driver_pods(node)
        return name

    def delete_driver_pod(self, node: str) -> None:
        """Delete the driver pod of a node, which its DaemonSet replaces."""
        self.cluster.kubectl("delete", "pod", "-n", NAMESPACE, self.driver_pod(node), "--wait=false")

    def run(self, node: str, *command: str) -> str:
        """The output of a command in the driver pod of a node."""
        options = ("-n", NAMESPACE, self.driver_pod(node), "-c", "nvidia-driver-ctr")
        return str(self.cluster.kubectl("exec", *options, "--", *command))

    def kill_client(self, node: str) -> str:
        """End the license client with SIGKILL, which leaves its PID file, and return its process ID."""
        # The pod may be new; a command cannot run in it before its container is ready.
        pid = str(until(lambda: self._client(node)))
        self.run(node, "kill", "-KILL", pid)
        return pid

    def _client(self, node: str) -> str:
        """The process ID of the license client; empty as long as no command can run in the only driver pod of the node."""
        pods = self.driver_pods(node)
        if len(pods) != 1:
            return ""
        words = f"kubectl exec -n {NAMESPACE} {pods[0]} -c nvidia-driver-ctr -- cat {PID_FILE}"
        return run("bash", "-c", f"{words} 2>/dev/null || true", env=self.lab.env).strip()

    def take_license(self, node: str) -> None:
        """End the license of a node, and wait until its driver reports this; the license server grants no other one."""
        self.fault("license-denied", node)
        self.kill_client(node)
        until(lambda: self.states()[node]["status"] != "Licensed")

    def fault(self, fault: str, node: str) -> None:
        """Inject a fault into one node."""
        self.lab.command("fault", "inject", fault, "--nodes", node)

    def clear(self, fault: str, node: str) -> None:
        """End a fault."""
        self.lab.command("fault", "clear", fault, "--nodes", node)
