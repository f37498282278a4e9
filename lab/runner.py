# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runner: executes the real NFD master, GPU operator and OpenShift's NFD operator while their pods run.

kwok marks a Deployment's pod as Running without a process. This service watches their pods and starts
the real program in bubblewrap with the pod's arguments, environment, volumes and service account. When the pod is deleted,
the process is terminated, so that `helm uninstall` has its real effect.
"""

from __future__ import annotations

import datetime
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from . import image_pull, operator_pod, operators
from .api import Api, ApiError, Object
from .errors import LabError
from .faults import CLUSTER_FAULT, FAULTS_ANNOTATION, FAULTS_NAMESPACE, parse
from .layout import Lab
from .operator_pod import Operator, container_of, program_of
from .registry import layout as registry_layout
from .registry.resolve import Registries
from .supervisor import tool

# Both charts hard-code the first two labels, and OLM's bundle the second; OpenShift's NFD operator sets the third one, and its own pod
# has the last one.
_SELECTORS = (
    "role=master",
    "app=gpu-operator",
    "app=nfd-master",
    "app.kubernetes.io/component=gpu-operator",
    "control-plane=controller-manager",
)
_BACKOFF_FIRST, _BACKOFF_MOST = 1.0, 10.0
_TERM_SECONDS = 2.0
# On a busy machine the default lease of 15 seconds expires, and the program exits. The runner releases the lease instead.
_LEASE = "53822513.nvidia.com"
_OPERATOR_FLAGS = (
    "--metrics-bind-address=0",
    "--health-probe-bind-address=0",
    "--leader-lease-renew-deadline=10m",
)
# A lease that expires on a busy machine would end the process.
_NFD_OPERATOR_FLAGS = ("--metrics-bind-address=0", "--health-probe-bind-address=0", "--leader-elect=false")


def operator_for(container: Object) -> Operator:
    """Return the program for a container's image; raise LabError if the lab does not have its release."""
    if program_of(container) == "nfd-master":
        # The last flag wins. NFD would listen on all interfaces; port -1 disables that.
        return Operator("nfd-master", tool("nfd") / "nfd-master", ("-port=-1",), {})
    if program_of(container) == operator_pod.NFD_OPERATOR:
        folder = tool("cluster-nfd-operator").parent
        files: dict[Path | str, str] = {path: f"/opt/nfd/{path.name}" for path in sorted((folder / "assets").iterdir())}
        return Operator(
            operator_pod.NFD_OPERATOR, folder / "bin" / operator_pod.NFD_OPERATOR, _NFD_OPERATOR_FLAGS, files
        )
    release = operators.find(image_pull.release(container))
    if release is None:
        raise LabError(f"the lab has no GPU operator of image {container['image']}: see 'lab/lab operator list'")
    return Operator(operators.PROGRAM, release.program, _OPERATOR_FLAGS, release.files())


class _Running:
    """The process of one pod, restarted with back-off when it exits."""

    def __init__(self, pod: Object, container: Object, operator: Operator) -> None:
        self.pod, self.container, self.operator = pod, container, operator
        self.process: subprocess.Popen[bytes] | None = None
        self._delay, self._next = 0.0, 0.0

    @property
    def name(self) -> str:
        metadata = self.pod["metadata"]
        return f"{metadata['namespace']}/{metadata['name']}"

    def keep(self, lab: Lab, api: Api, *, broken: bool) -> None:
        """Start the process if it is not running and its back-off is over."""
        if self.process and self.process.poll() is None:
            return
        if self.process:
            print(f"runner: {self.name} exited with {self.process.returncode}", flush=True)
            self.process, self._next = None, time.monotonic() + self._delay
        if time.monotonic() < self._next:
            return
        self._delay = min(max(_BACKOFF_FIRST, self._delay * 2), _BACKOFF_MOST)
        if self.operator.name == operators.PROGRAM:
            _release_lease(api, self.pod["metadata"]["namespace"])
        call = operator_pod.call(lab, api, self.operator, self.pod, self.container)
        operator_pod.write_os_release(api, lab, self.pod, broken=broken)
        self.process = subprocess.Popen(
            call, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self._log(lab, api, self.process.stdout)
        print(f"runner: {self.name} runs {self.operator.name} as process {self.process.pid}", flush=True)

    def stop(self, lab: Lab) -> None:
        """Terminate the process and delete its files."""
        if self.process:
            self.process.terminate()
            try:
                self.process.wait(_TERM_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            print(f"runner: {self.name} was deleted; stopped its {self.operator.name}", flush=True)
        shutil.rmtree(operator_pod.folder_of(lab, self.pod), ignore_errors=True)

    def _log(self, lab: Lab, api: Api, output: IO[bytes] | None) -> None:
        """Provide the program's output to `kubectl logs`, through a Logs object of kwok."""
        metadata = self.pod["metadata"]
        path = lab.pod_logs / f"{metadata['namespace']}_{metadata['name']}_{self.container['name']}.log"
        threading.Thread(target=_copy_log, args=(output, path.open("a")), daemon=True).start()
        owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        logs = {
            "apiVersion": "kwok.x-k8s.io/v1alpha1",
            "kind": "Logs",
            "metadata": {"name": metadata["name"], "namespace": metadata["namespace"], "ownerReferences": [owner]},
            "spec": {"logs": [{"containers": [self.container["name"]], "logsFile": str(path)}]},
        }
        api.apply(f"/apis/kwok.x-k8s.io/v1alpha1/namespaces/{metadata['namespace']}/logs/{metadata['name']}", logs)


def _release_lease(api: Api, namespace: str) -> None:
    """Release the lease of an operator that no longer runs, so that its successor does not wait for the end of the lease."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{_LEASE}"
    if (api.get(path) or {}).get("spec", {}).get("holderIdentity"):
        api.merge(path, {"spec": {"holderIdentity": ""}})


def _copy_log(output: IO[bytes] | None, log: IO[str]) -> None:
    """Write a process's output in the log format of a container runtime: time, stream, line."""
    with log:
        for line in output or ():
            now = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
            log.write(f"{now} stdout F {line.decode(errors='replace').rstrip()}\n")
            log.flush()


class Runner:
    """Runs one process for every running operator pod."""

    def __init__(self, lab: Lab) -> None:
        self._lab, self._api = lab, Api(lab, "runner")
        self._changed = threading.Condition()
        self._desired: dict[str, Object] = {}
        self._broken = False
        self._running: dict[str, _Running] = {}
        self._errors: dict[str, str] = {}
        self._pulls: dict[str, image_pull.ImagePull] = {}
        self._registries = Registries(lab) if registry_layout.is_in(lab) else None

    def run(self) -> None:
        """Watch pods and faults forever, and start and stop processes accordingly."""
        for selector in _SELECTORS:
            self._watch("/api/v1/pods", self._on_pod, labelSelector=selector)
        if self._registries:
            self._watch("/api/v1/pods", self._on_pending, fieldSelector="status.phase=Pending")
        self._watch("/api/v1/namespaces", self._on_namespace, fieldSelector=f"metadata.name={FAULTS_NAMESPACE}")
        threading.Thread(target=self._pull_forever, daemon=True).start()
        print("runner: watching the pods of the NFD master and the GPU operator", flush=True)
        broken = False
        while True:
            with self._changed:
                # A process can also exit on its own, which causes no event.
                self._changed.wait(0.5)
                desired, was_broken, broken = dict(self._desired), broken, self._broken
            for uid in [uid for uid in self._running if uid not in desired]:
                self._running.pop(uid).stop(self._lab)
            for uid, pod in desired.items():
                self._keep(uid, pod, broken=broken)
            if broken != was_broken:
                for running in self._running.values():
                    operator_pod.write_os_release(self._api, self._lab, running.pod, broken=broken)

    def _keep(self, uid: str, pod: Object, *, broken: bool) -> None:
        container = container_of(pod)
        if container is None:
            return
        try:
            if uid not in self._running:
                operator = operator_for(container)
                if self._has_leader(pod, operator):
                    return
                self._running[uid] = _Running(pod, container, operator)
            self._running[uid].keep(self._lab, self._api, broken=broken)
        except (ApiError, LabError, OSError) as error:
            # Log each error only once.
            if self._errors.get(uid) != str(error):
                print(f"runner: cannot start {pod['metadata']['name']} yet: {error}", flush=True)
            self._errors[uid] = str(error)

    def _has_leader(self, pod: Object, operator: Operator) -> bool:
        """Return whether another pod of the namespace runs the GPU operator, for whose end a real successor waits by the lease."""
        namespace = pod["metadata"]["namespace"]
        return operator.name == operators.PROGRAM and any(
            running.operator.name == operator.name and running.pod["metadata"]["namespace"] == namespace
            for running in self._running.values()
        )

    def _pull_forever(self) -> None:
        """Advance the pulls; on a thread, because a slow registry must not delay the operators."""
        while True:
            with self._changed:
                self._changed.wait(0.5)
                pulls = list(self._pulls.values())
            for pull in pulls:
                self._pull(pull)

    def _pull(self, pull: image_pull.ImagePull) -> None:
        try:
            pull.advance(self._api)
        except (ApiError, LabError, OSError) as error:
            print(f"runner: image of {pull.pod['metadata']['name']}: {error}", flush=True)

    def _on_pod(self, kind: str, pod: Object) -> None:
        gone = kind == "DELETED" or "deletionTimestamp" in pod["metadata"]
        uid = pod["metadata"]["uid"]
        with self._changed:
            if gone:
                self._desired.pop(uid, None)
            elif pod.get("status", {}).get("phase") == "Running" and container_of(pod):
                self._desired[uid] = pod
            self._note_pull(pod, gone=gone)
            self._changed.notify_all()

    def _on_pending(self, kind: str, pod: Object) -> None:
        """Note a pod that waits for its images; DELETED also means that it is no longer Pending."""
        with self._changed:
            self._note_pull(pod, gone=kind == "DELETED" or "deletionTimestamp" in pod["metadata"])
            self._changed.notify_all()

    def _note_pull(self, pod: Object, *, gone: bool) -> None:
        uid = pod["metadata"]["uid"]
        if gone or not image_pull.is_waiting(pod, self._registries):
            self._pulls.pop(uid, None)
        elif uid not in self._pulls:
            self._pulls[uid] = image_pull.ImagePull(pod, self._registries)

    def _on_namespace(self, kind: str, namespace: Object) -> None:
        faults = parse(namespace["metadata"].get("annotations", {}).get(FAULTS_ANNOTATION, ""))
        with self._changed:
            self._broken = CLUSTER_FAULT in faults and kind != "DELETED"
            self._changed.notify_all()

    def _watch(self, path: str, handle: Callable[[str, Object], None], **query: str) -> None:
        """Start a thread that calls `handle` for every matching object and each change of one."""
        threading.Thread(target=self._watch_forever, args=(path, handle, query), daemon=True).start()

    def _watch_forever(self, path: str, handle: Callable[[str, Object], None], query: dict[str, str]) -> None:
        known: dict[str, Object] = {}
        while True:
            try:
                page = self._api.request("GET", f"{path}?" + "&".join(f"{key}={value}" for key, value in query.items()))
                listed = {item["metadata"]["uid"]: item for item in page["items"]}
                for uid in [uid for uid in known if uid not in listed]:
                    handle("DELETED", known.pop(uid))
                for uid, item in listed.items():
                    known[uid] = item
                    handle("ADDED", item)
                for event in self._api.watch(path, page["metadata"]["resourceVersion"], **query):
                    if event["type"] != "BOOKMARK":
                        known[event["object"]["metadata"]["uid"]] = event["object"]
                        handle(event["type"], event["object"])
            except ApiError as error:
                if error.status != 410:
                    print(f"runner: {path}: {error}", flush=True)
                    time.sleep(1)


def run(lab: Lab) -> None:
    """Run the runner of a lab until the process is terminated."""
    shutil.rmtree(lab.run, ignore_errors=True)
    lab.run.mkdir(parents=True)
    Runner(lab).run()
