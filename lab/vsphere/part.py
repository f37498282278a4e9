# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The vCenter of an OpenShift cluster as a part of a lab, with OpenShift's own controllers of its machines."""

from __future__ import annotations

import base64
import functools
import json
import os
import secrets
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import yaml

from .. import build, pki
from ..api import Api, ApiError, Object, in_parallel
from ..cloud_settings import CloudFault, CloudSettings, Setting
from ..errors import LabError
from ..files import write_private
from ..layout import LAB, Lab
from ..openshift import crds, objects, releases
from ..part import LabPart
from ..supervisor import tool
from ..tools import PARTS
from . import images, inventory
from .boot_images import BootImages, import_template

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_CRD_FILES = ("ipaddressclaims", "ipaddresses")
_MACHINE_API = "openshift-machine-api"
# The period of the controller of boot images.
_PERIOD = 1.0
_VALUES = {
    "upload-slow": "bytes per second",
    "upload-cut": "bytes",
    "upload-error": "bytes",
    "task-hangs": "a method",
    "task-fails": "a method",
}


class VSphere(LabPart):
    """A simulated vCenter with vGPU hosts, images of RHCOS, and OpenShift's real Machine API; needs the part openshift."""

    name = "vsphere"
    cloud = "vsphere"
    service = "vsphere"
    fleet = LAB / "fleets" / "openshift.yaml"
    faults = {
        "upload-slow": "uploads have at most VALUE bytes per second",
        "upload-cut": "the connection of an upload ends after VALUE bytes",
        "upload-error": "an upload is answered with HTTP 500 after VALUE bytes",
        "uploads-refused": "the ESXi hosts close all connections for uploads",
        "untrusted-certificate": "the ESXi hosts have a self-signed certificate",
        "lease-error": "imports fail; VALUE is the message",
        "lease-hangs": "imports stay in the state initializing",
        "datastore-full": "imports fail because the datastore is full",
        "host-disconnected": "the host that --group names is disconnected",
        "session-expired": "all sessions end once; new logins work",
        "session-expires-in-upload": "all sessions end when an upload begins",
        "task-hangs": "tasks of the method VALUE, such as CloneVM_Task, never end",
        "task-fails": "calls of the method VALUE fail",
        "unavailable": "all requests are answered with HTTP 503",
    }
    settings = {
        "api-version": Setting(
            "8.0.3.0", "version of the API, after a restart", ("7.0.3.0", "8.0.2.0", "8.0.3.0", "9.0.0.0")
        ),
        "lease-seconds": Setting("300", "seconds until an import without progress ends"),
        "reboot-seconds": Setting("1", "seconds that the reboot of a host takes"),
        "mig-by-api": Setting("true", "whether MIG can be configured over the API", ("true", "false")),
    }

    def build(self, lab: Lab) -> None:
        """Build the simulator, the client and the controllers."""
        build.ensure(PARTS["vsphere"])

    def environment(self, lab: Lab) -> dict[str, str]:
        """Return the folders of the programs and the files of the vCenter."""
        tools = build.ensure(PARTS["vsphere"])
        folders = {f"LAB_TOOL_{name.upper().replace('-', '_')}": str(tools[name] / "bin") for name in tools}
        return folders | {"LAB_VSPHERE_API_VERSION": self._version(lab)}

    def prepare(self, lab: Lab) -> None:
        """Write the inventory, the users, the certificates and the images."""
        folder = self.folder(lab)
        for user in (inventory.ADMINISTRATOR, inventory.LIMITED):
            if not (path := self._password_file(lab, user)).exists():
                write_private(path, secrets.token_urlsafe(16))
        (folder / "inventory.json").write_text(json.dumps(inventory.inventory(), indent=2) + "\n")
        if not (path := self.users_file(lab)).exists():
            passwords = (self._password(lab, user) for user in (inventory.ADMINISTRATOR, inventory.LIMITED))
            write_private(path, json.dumps(inventory.users(*passwords), indent=2) + "\n")
        pki.create_authority(folder / "vmca.crt", "VMCA root", folder / "server")
        images.write(folder / "images")
        link = lab.bin / "govc"
        link.unlink(missing_ok=True)
        link.symlink_to(build.ensure(["govc"])["govc"] / "bin" / "govc")

    def serve(self, lab: Lab) -> None:
        """Create the objects that the controllers read, report that, and simulate the operator's updates of boot images."""
        api = Api(lab, "runner")
        folder = tool("machine-api").parent / "crds"
        claims = [yaml.safe_load((folder / f"ipam.cluster.x-k8s.io_{name}.yaml").read_text()) for name in _CRD_FILES]
        in_parallel(lambda crd: api.apply(f"{_CRDS}/{crd['metadata']['name']}", crd), claims)
        crds.wait_established(api, [crd["metadata"]["name"] for crd in claims], 120)
        for path, body in self.objects(lab):
            api.apply(path, body)
        print("vsphere: ready", flush=True)
        controller = BootImages(
            api,
            functools.partial(self.govc, lab),
            self.state(lab) / "machines.json",
            self.folder(lab) / "images",
        )
        while True:
            time.sleep(_PERIOD)
            try:
                controller.reconcile()
            except (ApiError, LabError) as error:
                print(f"vsphere: {error}", flush=True)

    def begin(self, lab: Lab) -> None:
        """Create the template of each failure domain of a new cluster, as OpenShift's installer does."""
        done = self.state(lab) / "templates"
        if done.exists():
            return
        image = self.folder(lab) / "images" / images.file_name(images.release_of(_release(lab)))
        for zone, domain in objects.FAILURE_DOMAINS.items():
            import_template(functools.partial(self.govc, lab), image, images.template(zone), domain["topology"])
        done.touch()

    def inject(self, lab: Lab, fault: CloudFault) -> None:
        """Reject a fault without its value, or of a host that does not exist."""
        name = fault.name.partition(".")[2]
        if name in _VALUES and not fault.value:
            raise LabError(f"the fault '{name}' needs --value: {_VALUES[name]}")
        hosts = [
            host["name"]
            for center in inventory.inventory()["datacenters"]
            for cluster in center["clusters"]
            for host in cluster["hosts"]
        ]
        if name == "host-disconnected" and fault.group not in hosts:
            raise LabError(f"the fault '{name}' needs --group with the name of a host: {', '.join(hosts)}")
        if name != "host-disconnected" and fault.group:
            raise LabError(f"the fault '{name}' is not that of a host: omit --group")

    def exports(self, lab: Lab) -> dict[str, str]:
        """Return the address of the vCenter, its users, its certificate authority, the images, and the settings of govc."""
        ports = lab.ports()
        administrator, limited = inventory.ADMINISTRATOR, inventory.LIMITED
        return self._govc_environment(lab) | {
            "LAB_VSPHERE_HOST": inventory.VCENTER,
            "LAB_VSPHERE_PORT": str(ports["vcenter"]),
            "LAB_VSPHERE_USERNAME": administrator,
            "LAB_VSPHERE_PASSWORD": self._password(lab, administrator),
            "LAB_VSPHERE_LIMITED_USERNAME": limited,
            "LAB_VSPHERE_LIMITED_PASSWORD": self._password(lab, limited),
            "LAB_VSPHERE_USERS": str(self.users_file(lab)),
            "LAB_VSPHERE_CALLS": str(lab.logs / "vsphere-calls.jsonl"),
            "LAB_VSPHERE_CA": str(self.folder(lab) / "vmca.crt"),
            "LAB_OVA_URL": images_url(lab),
            "LAB_GOVC": str(lab.bin / "govc"),
        }

    def objects(self, lab: Lab) -> Iterator[tuple[str, Object]]:
        """Yield the path and the content of each object that OpenShift has on vSphere, besides those of all platforms."""
        server, ports = inventory.VCENTER, lab.ports()
        connection = {
            "server": server,
            "port": ports["vcenter"],
            "insecureFlag": True,
            "datacenters": [inventory.DATACENTER],
        }
        secret = {"secretName": "vsphere-creds", "secretNamespace": "kube-system", "insecureFlag": True}
        config = {"global": secret, "vcenter": {server: connection}}
        yield _config_map(
            "openshift-config",
            objects.CLOUD_CONFIG["name"],
            {objects.CLOUD_CONFIG["key"]: yaml.safe_dump(config, sort_keys=False)},
        )
        user = inventory.ADMINISTRATOR
        credentials = {f"{server}.username": user, f"{server}.password": self._password(lab, user)}
        yield _secret(_MACHINE_API, "vsphere-cloud-credentials", credentials)
        ignition = {
            "ignition": {"version": "3.2.0", "config": {"merge": [{"source": "https://192.0.2.5:22623/config/worker"}]}}
        }
        yield _secret(_MACHINE_API, "worker-user-data", {"userData": json.dumps(ignition), "disableTemplating": "true"})
        body = images.boot_images(self.folder(lab) / "images", images_url(lab), _release(lab))
        yield f"/api/v1/namespaces/{images.NAMESPACE}/configmaps/{images.CONFIG_MAP}", body

    def users_file(self, lab: Lab) -> Path:
        """Return the file with the users and their privileges, which may change while the vCenter runs."""
        return self.state(lab) / "users.json"

    def govc(self, lab: Lab, *words: str) -> str:
        """Return the output of a command of govc."""
        command, environment = [str(lab.bin / "govc"), *words], os.environ | self._govc_environment(lab)
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
        except subprocess.TimeoutExpired as error:
            raise LabError(f"govc {' '.join(words)} did not end after {error.timeout:.0f} s") from None
        if done.returncode:
            raise LabError(f"govc {' '.join(words)} failed: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def _govc_environment(self, lab: Lab) -> dict[str, str]:
        return {
            "GOVC_URL": f"https://{inventory.VCENTER}:{lab.ports()['vcenter']}/sdk",
            "GOVC_USERNAME": inventory.ADMINISTRATOR,
            "GOVC_PASSWORD": self._password(lab, inventory.ADMINISTRATOR),
            "GOVC_TLS_CA_CERTS": str(self.folder(lab) / "vmca.crt"),
            "GOVC_DATACENTER": inventory.DATACENTER,
            "GOVC_PERSIST_SESSION": "false",
        }

    def _password_file(self, lab: Lab, user: str) -> Path:
        return self.folder(lab) / f"{user.partition('@')[0]}.password"

    def _password(self, lab: Lab, user: str) -> str:
        return self._password_file(lab, user).read_text()

    def _version(self, lab: Lab) -> str:
        settings = CloudSettings(lab, {f"{self.cloud}.{key}": setting for key, setting in self.settings.items()})
        return settings.setting("vsphere.api-version")


def images_url(lab: Lab) -> str:
    """Return the URL of the folder with the OVAs."""
    return f"http://127.0.0.1:{lab.ports()['images']}"


def _release(lab: Lab) -> releases.Release:
    return releases.find(lab.state().get("openshift") or releases.DEFAULT)


def _config_map(namespace: str, name: str, data: dict[str, str]) -> tuple[str, Object]:
    metadata = {"name": name, "namespace": namespace}
    path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
    return path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _secret(namespace: str, name: str, data: dict[str, str]) -> tuple[str, Object]:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    metadata = {"name": name, "namespace": namespace}
    path = f"/api/v1/namespaces/{namespace}/secrets/{name}"
    return path, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded}
