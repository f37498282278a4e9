# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules for vSphere against the simulated vCenter, and what govc shows of the result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from ansible_collections.accel.gpu.plugins.modules import (
    host_graphics,
    vgpu_host_info,
    vgpu_profile_info,
    vgpu_template,
    vgpu_template_info,
)
from lab.vsphere import ova
from tests.helpers.modules import run_module
from tests.helpers.vcenter import VCenter
from tests.programs import REPO

Object = dict[str, Any]
RELEASE = "418.94.202501221327-0"
FOLDER = "/DC1/vm/accel-gpu"
# Exits without any clean-up after the given number of calls that change something, or once the given number of bytes was read for the upload.
_KILLED = """
import importlib, json, os, sys
from ansible_collections.accel.gpu.plugins.module_utils.vsphere import client, ova
from ansible_collections.accel.gpu.plugins import modules
from tests.helpers.modules import run_module
module = importlib.import_module(f"{modules.__name__}.{sys.argv.pop()}")
after = int(sys.argv.pop())
calls, change = 0, client.VCenter.change
def counted(self, *args):
    global calls
    answer = change(self, *args)
    calls += 1
    if calls == after:
        os._exit(9)
    return answer
client.VCenter.change = counted
if after == 0:
    read = ova.TarStream.read
    def cut(self, size=-1):
        data = read(self, 4096)
        cut.blocks += 1
        if cut.blocks == 20:
            os._exit(9)
        return data
    cut.blocks = 0
    ova.TarStream.read = cut
print(run_module(module.main, json.load(sys.stdin)))
"""


class Site:
    """A vCenter with an OVA, and the options of a template."""

    def __init__(self, center: VCenter, folder: Path) -> None:
        """Write the OVA of a release."""
        self.center, self.folder = center, folder
        self.ova = folder / "rhcos.ova"
        self.sha256 = ova.write(self.ova, RELEASE)
        self.connection: Object = {
            "hostname": center.host,
            "port": center.port,
            "username": center.username,
            "password": center.password,
            "ca_cert": str(center.ca),
        }
        self.options: Object = {
            "name": "vdi",
            "profile": "grid_a100-10c",
            "count": 2,
            "datacenter": "DC1",
            "cluster": "cluster-a",
            "datastore": "vsan-a",
            "network": "VM Network",
            "path": str(self.ova),
            "checksum": f"sha256:{self.sha256}",
        }

    def template(self, *, check: bool = False, **options: Any) -> Object:
        """The result of vgpu_template."""
        return run_module(vgpu_template.main, {**self.connection, **self.options, **options}, check=check, diff=True)

    def templates(self, *entries: Object, check: bool = False, **options: Any) -> Object:
        """The result of vgpu_template with several templates."""
        listed = {"templates": [{**self.options, **entry} for entry in entries], **options}
        return run_module(vgpu_template.main, {**self.connection, **listed}, check=check, diff=True)

    def info(self, **options: Any) -> list[Object]:
        """The templates of vgpu_template_info."""
        result = run_module(vgpu_template_info.main, {**self.connection, **options})
        assert "templates" in result, result
        return list(result["templates"])

    def profiles(self, **options: Any) -> Object:
        """The result of vgpu_profile_info."""
        return run_module(vgpu_profile_info.main, {**self.connection, **options})

    def graphics(self, *, check: bool = False, **options: Any) -> Object:
        """The result of host_graphics."""
        return run_module(host_graphics.main, {**self.connection, **options}, check=check, diff=True)

    def checklist(self, **options: Any) -> Object:
        """The result of vgpu_host_info."""
        return run_module(vgpu_host_info.main, {**self.connection, **options})

    def killed(self, after: int, **options: Any) -> None:
        """Run vgpu_template in a process that dies after this number of changing calls; 0: in the middle of the upload."""
        self.kill("vgpu_template", after, **{**self.options, **options})

    def kill(self, module: str, after: int, **options: Any) -> None:
        """Run a module in a process that dies after this number of changing calls."""
        done = subprocess.run(
            [sys.executable, "-c", _KILLED, str(after), module],
            input=json.dumps({**self.connection, **options}),
            env={**os.environ, "PYTHONPATH": f"{REPO / 'build'}:{REPO}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 9, done.stdout + done.stderr

    def machines(self) -> list[str]:
        """The paths of all virtual machines and templates, as govc finds them."""
        return sorted(self.center.govc("find", "/", "-type", "m").split())

    def machine(self, path: str) -> Object:
        """What govc shows of a virtual machine: configuration, devices by kind, and extra configuration."""
        shown = json.loads(self.center.govc("object.collect", "-json", path, "config"))
        config = shown[0]["val"] if isinstance(shown, list) else shown["val"]
        devices = config["hardware"]["device"]
        return {
            "template": config["template"],
            "firmware": config["firmware"],
            "secure_boot": (config.get("bootOptions") or {}).get("efiSecureBootEnabled"),
            "memory_locked": config.get("memoryReservationLockedToMax"),
            "hardware": config["version"],
            "profiles": [device["backing"]["vgpu"] for device in devices if "vgpu" in (device.get("backing") or {})],
            "disks": sum("capacityInKB" in device for device in devices),
            "extra": {each["key"]: each["value"] for each in config["extraConfig"]},
        }
