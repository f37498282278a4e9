# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Benchmark of the modules for vSphere: uploads compared with govc, many templates and hosts without changes, and machines of OpenShift's controllers."""

from __future__ import annotations

import functools
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from lab.vsphere import ova
from lab.vsphere.inventory import host, inventory
from tests.helpers.vcenter import VCenter, start_vcenter
from tests.labs import Lab
from tests.programs import BUILD, REPO

from .request_counts import RequestCounts
from .results import Limit, Measurement, Row, all_runs
from .timer import Timer, resources

TEMPLATES, HOSTS, MACHINES = 12, 40, 2
# The sizes of the OVAs in MiB: the first one is also imported by govc.
SIZES = (1 << 10, 4 << 10)
UPLOAD_RATIO, MAX_MIB, MORE_MIB = 2.0, 60.0, 1.0
REQUESTS, NOTHING_SECONDS, MACHINE_SECONDS = 12, 3.0, 30.0
LAB_OPTIONS = ("--openshift", "--platform", "VSphere")
_RELEASE = "418.94.202501221327-0"
_MODULE = "ansible_collections.accel.gpu.plugins.modules.vgpu_template"
_ZONES = (("a", "grid_a100-10c", "a100"), ("b", "nvidia_l40s-24c", "l40s"))


class VCenterLog:
    """The log of a vCenter that only the measured command uses."""

    def __init__(self, center: VCenter) -> None:
        self._center = center
        self._marks: list[tuple[int, int]] = []

    def mark(self) -> int:
        """Return a mark for the current end of the log."""
        self._marks.append((self._requests(), len(self._center.calls())))
        return len(self._marks) - 1

    def since(self, mark: int, _agent: str) -> RequestCounts:
        """Count the requests after a mark."""
        requests, writes = self._marks[mark]
        return RequestCounts(self._requests() - requests, writes=len(self._center.calls()) - writes)

    def _requests(self) -> int:
        path = self._center.requests_file
        return len(path.read_text().splitlines()) if path.exists() else 0


class VSphereBenchmark:
    """Measures uploads and runs without changes on a vCenter of their own, and machines in a lab with OpenShift on vSphere."""

    def __init__(self, lab: Lab, folder: Path, rounds: int, say: Callable[[str], None]) -> None:
        """Store the arguments."""
        self._lab, self._folder, self._rounds, self._say = lab, folder, rounds, say

    def uploads(self, sizes: Sequence[int] = SIZES) -> list[Row]:
        """Measure uploads of OVAs of these sizes in MiB; the first one also with govc."""
        with start_vcenter(self._folder / "uploads") as center:
            # The first run also compiles the module.
            self._upload(center, *self._ova(1))
            path, checksum = self._ova(sizes[0])
            own: list[list[Measurement]] = []
            other: list[list[Measurement]] = []
            for number in range(self._rounds):
                self._say(f"round {number + 1}: an OVA of {sizes[0]:,} MiB by vgpu_template, then by govc")
                own.append([self._upload(center, path, checksum)])
                other.append([self._import(center, path)])
            path.unlink()
            fastest = [min(run.seconds for run in all_runs(runs)) for runs in (own, other)]
            memory = max(run.mib or 0 for run in all_runs(own))
            limits = [Limit("fastest / fastest", fastest[0] / fastest[1], UPLOAD_RATIO), Limit("MiB", memory, MAX_MIB)]
            title, per_round = (
                "upload of an OVA",
                tuple(a.seconds / b.seconds for [a], [b] in zip(own, other, strict=True)),
            )
            compared = "govc import.ova, then sha256sum"
            rows = [Row(title, sizes[0], own, compared, other, tuple(limits), _UPLOAD, per_round, "MiB")]
            for size in sizes[1:]:
                self._say(f"an OVA of {size:,} MiB by vgpu_template")
                path, checksum = self._ova(size)
                measured = self._upload(center, path, checksum)
                path.unlink()
                limits = [
                    Limit("MiB", measured.mib or 0, MAX_MIB),
                    Limit("MiB more", abs((measured.mib or 0) - memory), MORE_MIB),
                ]
                rows.append(Row(title, size, [[measured]], limits=tuple(limits), note=_UPLOAD, items="MiB"))
        return rows

    def unchanged(self, templates: int = TEMPLATES, hosts: int = HOSTS) -> list[Row]:
        """Measure runs on a vCenter with these numbers of templates and hosts, where there is nothing to change."""
        objects = inventory()
        for cluster, (zone, _profile, gpu) in zip(objects["datacenters"][0]["clusters"], _ZONES, strict=True):
            cluster["hosts"] = [host(f"esx-{zone}{number}.example.com", gpu) for number in range(hosts // len(_ZONES))]
        path, checksum = self._ova(1)
        with start_vcenter(self._folder / "unchanged", objects=objects) as center, self._connected(center):
            timer = Timer(self._lab, VCenterLog(center), self._inventory())
            desired = [self._template(f"vdi-{number:02}", path, checksum, number) for number in range(templates)]
            self._say(f"building {templates} templates on {hosts} hosts")
            timer.playbook("vsphere.yml", changed=1, templates=desired)
            rows = []
            cases: tuple[tuple[str, int, str, int, str, dict[str, object]], ...] = (
                ("templates without changes", templates, "templates", 0, _NOTHING, {"templates": desired}),
                ("profiles and vGPU managers", hosts, "hosts", hosts, "", {}),
            )
            for title, count, items, more, note, variables in cases:
                self._say(f"{title}: {count} {items}")
                measure = functools.partial(timer.playbook, "vsphere.yml", changed=0, arguments=(), **variables)
                own = [[measure()] for dummy in range(self._rounds)]
                runs = all_runs(own)
                limits = (
                    Limit("seconds in the module", max(run.module_seconds or 0 for run in runs), NOTHING_SECONDS),
                    Limit("requests", max(run.requests for run in runs), REQUESTS + more),
                    Limit("writes", max(run.writes for run in runs), 0),
                )
                rows.append(Row(title, count, own, limits=limits, note=note, items=items))
        return rows

    def machines(self, count: int = MACHINES) -> Row:
        """Measure the creation of a MachineSet, whose machines OpenShift's own controllers clone and start, until they are nodes."""
        names = {"HOST": "HOST", "PORT": "PORT", "USERNAME": "USER", "PASSWORD": "PASSWORD", "CA": "CA_CERT"}
        self._lab.env |= {f"VMWARE_{name}": self._lab.env[f"LAB_VSPHERE_{own}"] for own, name in names.items()}
        timer = Timer(self._lab, inventory=self._inventory())
        template = {
            "name": "bench",
            "failure_domain": "zone-a",
            "profile": _ZONES[0][1],
            "kubernetes": {"kubeconfig": self._lab.env["KUBECONFIG"]},
        }
        _measured, path = self._build(template)
        group = {"name": "bench", "zone": "zone-a", "template": path, "node_count": count}
        own: list[list[Measurement]] = []
        for number in range(self._rounds):
            self._say(f"round {number + 1}: a MachineSet of {count} machines")
            own.append([timer.playbook("vsphere.yml", changed=1, group=group, state="present")])
            timer.playbook("vsphere.yml", changed=1, group=group, state="absent")
        limits = (Limit("seconds", max(run.seconds for run in all_runs(own)), MACHINE_SECONDS),)
        return Row("new MachineSet on vSphere", count, own, limits=limits, note=_MACHINES, items="machines")

    def _ova(self, size: int) -> tuple[Path, str]:
        """Write an OVA with this size in MiB, and return its checksum."""
        path = self._folder / f"rhcos-{size}.ova"
        return path, f"sha256:{ova.write(path, _RELEASE, data_kib=size << 10)}"

    def _template(self, name: str, path: Path, checksum: str, number: int = 0) -> dict[str, Any]:
        zone, profile, _gpu = _ZONES[number % len(_ZONES)]
        return {
            "name": name,
            "profile": profile,
            "datacenter": "DC1",
            "cluster": f"cluster-{zone}",
            "datastore": f"vsan-{zone}",
            "network": "VM Network",
            "path": str(path),
            "checksum": checksum,
        }

    def _upload(self, center: VCenter, path: Path, checksum: str) -> Measurement:
        """Measure the module as a process of its own, whose memory is not that of Ansible."""
        # The kernel writes what was uploaded last to the disk, which would slow down the next upload.
        os.sync()
        with self._connected(center):
            measured, template = self._build(self._template("vdi", path, checksum))
        center.govc("vm.destroy", template)
        return measured

    def _import(self, center: VCenter, path: Path) -> Measurement:
        words = [
            center.govc_program,
            "import.ova",
            "-dc",
            "DC1",
            "-ds",
            "vsan-a",
            "-pool",
            "/DC1/host/cluster-a/Resources",
        ]
        imported = shlex.join(map(str, [*words, "-folder", "/DC1/vm/gpu-templates", "-name", "vdi", path]))
        os.sync()
        command = f"{imported} && sha256sum {shlex.quote(str(path))}"
        measured, _output = resources(["bash", "-c", command], center.govc_environment)
        center.govc("vm.destroy", "/DC1/vm/gpu-templates/vdi")
        return replace(measured, cpu_seconds=None, mib=None)

    def _build(self, options: dict[str, Any]) -> tuple[Measurement, str]:
        """Measure the module vgpu_template as a process of its own, and return the path of the template; the password is in the environment."""
        arguments = self._folder / "arguments.json"
        arguments.write_text(json.dumps({"ANSIBLE_MODULE_ARGS": options}))
        environment = {**self._lab.env, "PYTHONPATH": f"{BUILD}:{REPO}"}
        measured, output = resources([sys.executable, "-m", _MODULE, str(arguments)], environment)
        return measured, json.loads(output)["templates"][options["name"]]["path"]

    def _inventory(self) -> Path:
        path = self._folder / "vcenter.yml"
        path.write_text("gpu_clusters: {hosts: {vcenter: {}}}\n")
        return path

    @contextmanager
    def _connected(self, center: VCenter) -> Iterator[None]:
        """Set the variables of the connection to a vCenter for commands in the lab."""
        variables = {
            "VMWARE_HOST": center.host,
            "VMWARE_PORT": str(center.port),
            "VMWARE_USER": center.username,
            "VMWARE_PASSWORD": center.password,
            "VMWARE_CA_CERT": str(center.ca),
        }
        before = dict(self._lab.env)
        self._lab.env |= variables
        try:
            yield
        finally:
            self._lab.env.clear()
            self._lab.env |= before


_UPLOAD = """An *upload of an OVA* builds a template from a file with `vgpu_template`, which also verifies the checksum of the file. It is compared with
`govc import.ova` followed by `sha256sum`. Its duration and its memory are those of a process that runs only the module, without Ansible. The memory must not depend on the
size of the OVA."""

_NOTHING = f"""*Templates without changes* compares {TEMPLATES} templates in two clusters with {HOSTS // 2} hosts each, and *profiles and vGPU managers* reads what these hosts
offer with `vgpu_profile_info`, which needs one additional request for each host. Requests are counted in the log of the vCenter. No Kubernetes is involved."""

_MACHINES = """In *new MachineSet on vSphere*, OpenShift's own controllers clone a template with a vGPU, and start the virtual machines. The row includes the start of Ansible
and everything until the machines are ready nodes, for which the lab needs a few seconds."""
