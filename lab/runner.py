# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runner: executes the real NFD master and GPU operator for exactly as long as their pods run.

kwok makes a Deployment's pod Running without a process. This service watches the pods of the two operators and starts
the real program in bubblewrap with that pod's own arguments, environment, volumes and service account. When the pod
goes, the process goes, so that `helm uninstall` uninstalls.
"""

from __future__ import annotations

import datetime
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from typing import IO

from . import build, operator_pod
from .api import Api, ApiError, Object
from .errors import LabError
from .faults import CLUSTER_FAULT, FAULTS_ANNOTATION, FAULTS_NAMESPACE, parse
from .layout import Lab
from .operator_pod import Operator, container_of, program_of
from .supervisor import tool

# Both charts hard-code the first two labels, and OLM's bundle the second; the last is what OpenShift's NFD operator gives.
_SELECTORS = ("role=master", "app=gpu-operator", "app=nfd-master")
_BACKOFF_FIRST, _BACKOFF_MOST = 1.0, 10.0
_TERM_SECONDS = 2.0


# What the image of an operator's pod holds where it is not the release that every lab has, by the image's tag.
_OTHER_RELEASES = {"v25.3.2": "gpu-operator-25.3"}


def operator_for(container: Object) -> Operator:
    """Return what a container's image would hold; a release that was never built is a LabError."""
    if program_of(container) == "nfd-master":
        # The last flag wins. Neither may listen: NFD's port would do so on all interfaces, and -1 is one that cannot.
        return Operator("nfd-master", tool("nfd") / "nfd-master", ("-port=-1",), {})
    other = _OTHER_RELEASES.get(container["image"].rpartition(":")[2])
    folder = build.cached(other) if other else tool("gpu-operator").parent
    if folder is None:
        raise LabError(f"the program of {container['image']} is not built: run 'lab/lab build {other}'")
    files = {below: f"/opt/gpu-operator/{below.name}" for below in sorted((folder / "assets").iterdir())}
    files[folder / "manifests"] = "/opt/gpu-operator/manifests"
    flags = ("--metrics-bind-address=0", "--health-probe-bind-address=0")
    return Operator("gpu-operator", folder / "bin" / "gpu-operator", flags, files)


class _Running:
    """The process of one pod: started again when it ends, each time a little later."""

    def __init__(self, pod: Object, container: Object, operator: Operator) -> None:
        self.pod, self.container, self.operator = pod, container, operator
        self.process: subprocess.Popen[bytes] | None = None
        self._delay, self._next = 0.0, 0.0

    @property
    def name(self) -> str:
        metadata = self.pod["metadata"]
        return f"{metadata['namespace']}/{metadata['name']}"

    def keep(self, lab: Lab, api: Api, *, broken: bool) -> None:
        """Start the process if it does not run and its back-off is over."""
        if self.process and self.process.poll() is None:
            return
        if self.process:
            print(f"runner: {self.name} exited with {self.process.returncode}", flush=True)
            self.process, self._next = None, time.monotonic() + self._delay
        if time.monotonic() < self._next:
            return
        self._delay = min(max(_BACKOFF_FIRST, self._delay * 2), _BACKOFF_MOST)
        call = operator_pod.call(lab, api, self.operator, self.pod, self.container)
        operator_pod.write_os_release(api, lab, self.pod, broken=broken)
        self.process = subprocess.Popen(
            call, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self._log(lab, api, self.process.stdout)
        print(f"runner: {self.name} runs {self.operator.name} as process {self.process.pid}", flush=True)

    def stop(self, lab: Lab) -> None:
        """End the process, and forget its files."""
        if self.process:
            self.process.terminate()
            try:
                self.process.wait(_TERM_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            print(f"runner: {self.name} is gone, and so is its {self.operator.name}", flush=True)
        shutil.rmtree(operator_pod.folder_of(lab, self.pod), ignore_errors=True)

    def _log(self, lab: Lab, api: Api, output: IO[bytes] | None) -> None:
        """Give `kubectl logs` what the program says, through a Logs object of kwok."""
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


def _copy_log(output: IO[bytes] | None, log: IO[str]) -> None:
    """Write a process's lines in the format of a container runtime: time, stream, full line."""
    with log:
        for line in output or ():
            now = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
            log.write(f"{now} stdout F {line.decode(errors='replace').rstrip()}\n")
            log.flush()


class Runner:
    """Keeps one process for every running operator pod."""

    def __init__(self, lab: Lab) -> None:
        self._lab, self._api = lab, Api(lab, "runner")
        self._changed = threading.Condition()
        self._wanted: dict[str, Object] = {}
        self._broken = False
        self._running: dict[str, _Running] = {}
        self._trouble: dict[str, str] = {}

    def run(self) -> None:
        """Follow pods and faults for ever, and keep the processes as they demand."""
        for selector in _SELECTORS:
            self._follow("/api/v1/pods", self._see_pod, labelSelector=selector)
        self._follow("/api/v1/namespaces", self._see_namespace, fieldSelector=f"metadata.name={FAULTS_NAMESPACE}")
        print("runner: watching the pods of the NFD master and the GPU operator", flush=True)
        broken = False
        while True:
            with self._changed:
                # Processes may also end by themselves, which nothing announces.
                self._changed.wait(0.5)
                wanted, was_broken, broken = dict(self._wanted), broken, self._broken
            for uid in [uid for uid in self._running if uid not in wanted]:
                self._running.pop(uid).stop(self._lab)
            for uid, pod in wanted.items():
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
                self._running[uid] = _Running(pod, container, operator_for(container))
            self._running[uid].keep(self._lab, self._api, broken=broken)
        except (ApiError, LabError, OSError) as error:
            # Once is enough to be found in the log.
            if self._trouble.get(uid) != str(error):
                print(f"runner: {pod['metadata']['name']} cannot be started yet: {error}", flush=True)
            self._trouble[uid] = str(error)

    def _see_pod(self, kind: str, pod: Object) -> None:
        gone = kind == "DELETED" or "deletionTimestamp" in pod["metadata"]
        uid = pod["metadata"]["uid"]
        with self._changed:
            if gone:
                self._wanted.pop(uid, None)
            elif pod.get("status", {}).get("phase") == "Running":
                self._wanted[uid] = pod
            self._changed.notify()

    def _see_namespace(self, kind: str, namespace: Object) -> None:
        faults = parse(namespace["metadata"].get("annotations", {}).get(FAULTS_ANNOTATION, ""))
        with self._changed:
            self._broken = CLUSTER_FAULT in faults and kind != "DELETED"
            self._changed.notify()

    def _follow(self, path: str, see: Callable[[str, Object], None], **query: str) -> None:
        """Call `see` for every object that matches and for each change of one, in a thread, for ever."""
        threading.Thread(target=self._follow_for_ever, args=(path, see, query), daemon=True).start()

    def _follow_for_ever(self, path: str, see: Callable[[str, Object], None], query: dict[str, str]) -> None:
        seen: dict[str, Object] = {}
        while True:
            try:
                page = self._api.request("GET", f"{path}?" + "&".join(f"{key}={value}" for key, value in query.items()))
                listed = {item["metadata"]["uid"]: item for item in page["items"]}
                for uid in [uid for uid in seen if uid not in listed]:
                    see("DELETED", seen.pop(uid))
                for uid, item in listed.items():
                    seen[uid] = item
                    see("ADDED", item)
                for event in self._api.watch(path, page["metadata"]["resourceVersion"], **query):
                    if event["type"] != "BOOKMARK":
                        seen[event["object"]["metadata"]["uid"]] = event["object"]
                        see(event["type"], event["object"])
            except ApiError as error:
                if error.status != 410:
                    print(f"runner: {path}: {error}", flush=True)
                    time.sleep(1)


def run(lab: Lab) -> None:
    """Be the runner of a lab until the process is ended."""
    shutil.rmtree(lab.run, ignore_errors=True)
    lab.run.mkdir(parents=True)
    Runner(lab).run()
