# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Derives from an operator's pod the command that runs its program, with the pod's arguments, files and service account."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import sandbox
from .api import Api, Object
from .layout import Lab

_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
# Longer than any lab runs; the program rereads the file in any case.
_TOKEN_SECONDS = 30 * 24 * 3600
OS_ANNOTATION = "lab.accel.gpu/os"
OS_RELEASE = "os-release"


@dataclass(frozen=True)
class Operator:
    """A real program, the flags that prevent it from opening ports, and the files of its image."""

    name: str
    program: Path
    flags: tuple[str, ...]
    files: Mapping[Path | str, str]


# The programs that really run; the simulator handles the other containers of these images.
NFD_OPERATOR = "node-feature-discovery-operator"
PROGRAMS = ("nfd-master", "gpu-operator", NFD_OPERATOR)


def container_of(pod: Object) -> Object | None:
    """Return the pod's container that runs one of the operators."""
    return next((dict(container) for container in pod["spec"]["containers"] if program_of(container) in PROGRAMS), None)


def program_of(container: Object) -> str:
    """Return the name of the program that a container runs; empty if only its image defines it."""
    return str((container.get("command") or [""])[0].rpartition("/")[2])


def call(lab: Lab, api: Api, operator: Operator, pod: Object, container: Object) -> list[str]:
    """Write the files that the pod mounts into the pod's own folder, and return the bubblewrap command."""
    folder = folder_of(lab, pod)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    inside = f"/usr/bin/{operator.name}"
    files: dict[Path | str, str] = {operator.program: inside}
    files |= dict(operator.files.items())
    files[_service_account(lab, api, pod, folder)] = _ACCOUNT
    files |= _volumes(api, pod, container, folder)
    environment = _environment(api, pod, container)
    environment |= {
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(lab.ports()["kube-apiserver"]),
        "HOME": "/tmp",
        "PATH": "/usr/bin",
    }
    arguments = [*container["command"][1:], *container.get("args", []), *operator.flags]
    return sandbox.command([inside, *arguments], files=files, environment=environment, proc=True)


def folder_of(lab: Lab, pod: Object) -> Path:
    """Return the folder for the files of a pod."""
    return lab.run / str(pod["metadata"]["uid"])


def write_os_release(api: Api, lab: Lab, pod: Object, *, broken: bool) -> None:
    """Write the node's /etc/os-release to the pod's mount, or delete it (the fault `operator-broken`)."""
    folder = folder_of(lab, pod) / "host-etc"
    if not folder.is_dir():
        return
    if broken:
        (folder / OS_RELEASE).unlink(missing_ok=True)
        return
    node = api.get(f"/api/v1/nodes/{pod['spec']['nodeName']}") or {"metadata": {}}
    text = node["metadata"].get("annotations", {}).get(OS_ANNOTATION, '{"id": "ubuntu", "version_id": "24.04"}')
    system = json.loads(text)
    (folder / OS_RELEASE).write_text(f'ID={system["id"]}\nVERSION_ID="{system["version_id"]}"\n')


def _service_account(lab: Lab, api: Api, pod: Object, folder: Path) -> Path:
    """Request a token of the pod's service account, so that the program has exactly the permissions of its chart."""
    namespace, name = pod["metadata"]["namespace"], pod["spec"]["serviceAccountName"]
    bound = {"kind": "Pod", "apiVersion": "v1", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": [], "expirationSeconds": _TOKEN_SECONDS, "boundObjectRef": bound},
    }
    answer = api.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", request)
    account = folder / "serviceaccount"
    account.mkdir(mode=0o700)
    (account / "token").write_text(answer["status"]["token"])
    (account / "namespace").write_text(namespace)
    shutil.copyfile(lab.pki / "ca.crt", account / "ca.crt")
    return account


def _volumes(api: Api, pod: Object, container: Object, folder: Path) -> dict[Path | str, str]:
    mounted: dict[Path | str, str] = {}
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", [])}
    for mount in container.get("volumeMounts", []):
        volume, path = volumes[mount["name"]], mount["mountPath"]
        here = folder / "volumes" / mount["name"]
        if volume.get("hostPath", {}).get("path") == f"/etc/{OS_RELEASE}":
            # Mount the folder instead of the file, so that the file can be deleted and created while the program runs.
            here = folder / "host-etc"
            here.mkdir()
            mounted[here] = path.rpartition("/")[0]
        elif content := _content(api, pod, volume):
            here.mkdir(parents=True)
            for name, data in content.items():
                (here / name).write_bytes(data)
            mounted[here] = path
    return mounted


def _content(api: Api, pod: Object, volume: Object) -> dict[str, bytes]:
    """Return the files of a ConfigMap or Secret volume; the operators need no other kinds."""
    for kind, key in (("configMap", "name"), ("secret", "secretName")):
        if source := volume.get(kind):
            files = _read(api, pod, kind, source[key])
            items = source.get("items")
            return {item["path"]: files[item["key"]] for item in items if item["key"] in files} if items else files
    return {}


def _read(api: Api, pod: Object, kind: str, name: str) -> dict[str, bytes]:
    plural = "configmaps" if kind == "configMap" else "secrets"
    source = api.get(f"/api/v1/namespaces/{pod['metadata']['namespace']}/{plural}/{name}") or {}
    if kind == "secret":
        return {key: base64.b64decode(value) for key, value in source.get("data", {}).items()}
    return {key: value.encode() for key, value in source.get("data", {}).items()}


def _environment(api: Api, pod: Object, container: Object) -> dict[str, str]:
    environment: dict[str, str] = {}
    for variable in container.get("env", []):
        source: dict[str, Any] = variable.get("valueFrom", {})
        if "fieldRef" in source:
            value = _field(pod, source["fieldRef"]["fieldPath"])
        elif "configMapKeyRef" in source:
            reference = source["configMapKeyRef"]
            value = _read(api, pod, "configMap", reference["name"]).get(reference["key"], b"").decode()
        elif "secretKeyRef" in source:
            reference = source["secretKeyRef"]
            value = _read(api, pod, "secret", reference["name"]).get(reference["key"], b"").decode()
        else:
            value = variable.get("value", "")
        environment[variable["name"]] = value
    return environment


def _field(pod: Object, path: str) -> str:
    """Return the value at a downward-API path such as `metadata.namespace`."""
    value: Any = pod
    for step in path.split("."):
        value = value.get(step, "") if isinstance(value, dict) else ""
    return str(value)
