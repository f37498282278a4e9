# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Driver images of pools on the real operator: a vGPU pool beside a bare-metal pool, and OpenShift's tags."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helpers.driver_context import remove_storage, write_context, write_installer
from tests.helpers.license_tokens import make_token
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.helpers.polling import until
from tests.helpers.registries import Object, Registries
from tests.labs import Lab, own_lab
from tests.programs import REPO, run

pytestmark = [pytest.mark.lab, pytest.mark.soak, pytest.mark.usual(300), pytest.mark.timeout(1800)]

OLD, NEW = "570.172.08", "580.95.05"
SECRET = "licensing"
FLEET = {
    "defaults": {"os": "ubuntu-24.04"},
    "groups": [
        {"name": "a100", "count": 2, "model": "NVIDIA-A100-SXM4-80GB", "gpus": 1, "labels": {"rack": "a"}},
        {"name": "vdi", "count": 2, "model": "Tesla-T4", "gpus": 1, "labels": {"rack": "vdi"}},
    ],
}
FOREIGN: Object = {
    "apiVersion": "nvidia.com/v1alpha1",
    "kind": "NVIDIADriver",
    "metadata": {"name": "foreign"},
    "spec": {
        "driverType": "gpu",
        "image": "driver",
        "repository": "nvcr.io/nvidia",
        "version": OLD,
        "nodeSelector": {"rack": "elsewhere"},
    },
}


class Drivers:
    """Playbooks for pools whose vGPU images are built into the plain registry."""

    def __init__(self, registries: Registries, folder: Path, inventory: Path, cluster: Object) -> None:
        self.registries, self.lab, self.folder = registries, registries.lab, folder
        self.inventory, self.cluster = inventory, cluster
        self.installers, self.context = folder / "installers", write_context(folder / "context")
        for version in (OLD, NEW):
            write_installer(self.installers, version)
        self.storage = folder / "storage"

    def vgpu(self, version: str) -> Object:
        repository = f"{self.registries.plain}/{self.registries.unique}/nvidia"
        return {"type": "vgpu", "version": version, "repository": repository, "licensing_secret": SECRET}

    def play(self, name: str, *pools: Mapping[str, Any], **variables: Any) -> PlaybookRun:
        given = {
            "gpu_cluster": self.cluster,
            "gpu_pools": list(pools),
            "gpu_driver_image_installers": str(self.installers),
            "gpu_driver_image_build_context": str(self.context),
            "gpu_driver_image_storage_root": str(self.storage),
            "gpu_driver_image_storage_driver": "vfs",
            "gpu_registries": self.registries.options(),
            "gpu_operator_allow_driver_rollout": True,
            **variables,
        }
        arguments = ("--tags", "nfd,gpu_operator,sharing") if name == "site" else ()
        return run_playbook(
            f"accel.gpu.{name}",
            environ=self.lab.env,
            inventory=self.inventory,
            variables=given,
            arguments=arguments,
            timeout=1200,
        )

    def pods(self, namespace: str) -> dict[str, tuple[str, str]]:
        """UID and image of the driver pod of each node."""
        listed = json.loads(run("kubectl", "get", "pods", "-n", namespace, "-o", "json", env=self.lab.env))["items"]
        return {
            pod["spec"]["nodeName"]: (pod["metadata"]["uid"], container["image"])
            for pod in listed
            for container in pod["spec"]["containers"]
            if container["name"] == "nvidia-driver-ctr"
        }

    def create_license(self, namespace: str) -> None:
        """The Secret that driver pods of vGPU pools mount."""
        token = self.folder / "client.tok"
        token.write_text(make_token())
        exists = run("kubectl", "get", "namespace", namespace, "--ignore-not-found", "-o", "name", env=self.lab.env)
        if not exists.strip():
            run("kubectl", "create", "namespace", namespace, env=self.lab.env)
        files = (f"--from-file=client_configuration_token.tok={token}", "--from-literal=gridd.conf=FeatureType=1")
        run("kubectl", "create", "secret", "generic", SECRET, "-n", namespace, *files, env=self.lab.env)

    def close(self) -> None:
        """Remove the storage of buildah."""
        remove_storage(self.storage)


@pytest.fixture
def drivers(registries: Registries, tmp_path: Path) -> Iterator[Drivers]:
    lab = registries.lab
    (tmp_path / "fleet.yaml").write_text(yaml.safe_dump(FLEET))
    lab.reset(tmp_path / "fleet.yaml")
    charts = lab.env["LAB_CHARTS"]
    cluster = {
        "name": lab.name,
        "operator": {"version": "v25.10.1", "chart": f"{charts}/gpu-operator-v25.10.1"},
        "nfd": {"chart": f"{charts}/node-feature-discovery"},
    }
    actual = Drivers(registries, tmp_path, REPO / "inventories" / "lab", cluster)
    yield actual
    actual.close()


def test_a_vgpu_pool_beside_a_bare_metal_pool(drivers: Drivers) -> None:
    bare = {"name": "train", "match": {"labels": {"rack": "a"}}, "driver": {"version": "580.105.08"}}
    vdi = {"name": "vdi", "match": {"labels": {"rack": "vdi"}}, "sharing": {"mode": "none"}}
    old, new = ({**vdi, "driver": drivers.vgpu(version)} for version in (OLD, NEW))
    systems = {"gpu_driver_image_operating_systems": ["ubuntu24.04"]}
    assert drivers.play("driver_image", bare, old, **systems).require_success().changed() == 1
    drivers.create_license("gpu-operator")
    drivers.play("site", bare, old).require_success()
    first = drivers.pods("gpu-operator")
    own = f"{drivers.registries.plain}/{drivers.registries.unique}/nvidia/driver"
    assert {node.partition("-")[0]: image for node, (_uid, image) in first.items()} == {
        "a100": "nvcr.io/nvidia/driver:580.105.08-ubuntu24.04",
        "vdi": f"{own}:{OLD}-ubuntu24.04",
    }
    manifest = drivers.folder / "foreign.json"
    manifest.write_text(json.dumps(FOREIGN))
    run("kubectl", "apply", "-f", manifest, env=drivers.lab.env)

    # The nodes have labels now, so no operating systems are declared.
    assert drivers.play("driver_image", bare, new).require_success().changed() == 1
    drivers.play("site", bare, new).require_success()

    def rolled() -> bool:
        return {image for node, (_uid, image) in drivers.pods("gpu-operator").items() if node.startswith("vdi")} == {
            f"{own}:{NEW}-ubuntu24.04"
        }

    until(rolled, limit=300)
    second = drivers.pods("gpu-operator")
    assert {node: uid for node, uid in second.items() if node.startswith("a100")} == {
        node: uid for node, uid in first.items() if node.startswith("a100")
    }
    foreign = json.loads(run("kubectl", "get", "nvidiadriver", "foreign", "-o", "json", env=drivers.lab.env))
    assert {key: foreign["spec"][key] for key in FOREIGN["spec"]} == FOREIGN["spec"]
    assert drivers.play("driver_image", bare, new).require_success().changed() == 0


def test_the_operator_on_openshift_asks_for_a_tag_that_exists(tmp_path: Path) -> None:
    with own_lab("images", "registry", options=["--openshift"]) as lab:
        _check_openshift(lab, tmp_path)


def _check_openshift(lab: Lab, folder: Path) -> None:
    registries = Registries(lab, folder)
    cluster: Object = {"name": lab.name, "distribution": "openshift", "operator": {"version": "v25.10.1"}}
    drivers = Drivers(registries, folder, REPO / "inventories" / "openshift", cluster)
    # A driver is selected before the nodes have labels with their models, so an administrator's label names the nodes.
    run("kubectl", "label", "nodes", "t4-1", "t4-2", "a100-1", "team=vdi", env=lab.env)
    pool = {"name": "vdi", "match": {"labels": {"team": "vdi"}}, "driver": drivers.vgpu(NEW)}
    made = drivers.play(
        "driver_image",
        pool,
        gpu_driver_image_operating_systems=["rhcos4.18"],
        gpu_driver_image_operator_versions=["v25.10.1", "v26.7.0"],
    )
    made.require_success()
    drivers.create_license("nvidia-gpu-operator")
    drivers.play("site", pool).require_success()
    images = {image for _uid, image in until(lambda: drivers.pods("nvidia-gpu-operator")).values()}
    assert images == {f"{registries.plain}/{registries.unique}/nvidia/driver:{NEW}-rhcos4.18"}
    drivers.close()
