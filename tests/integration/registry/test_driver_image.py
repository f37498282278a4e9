# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""driver_image builds with the real buildah, pushes to a real registry, and its tags are those that the real operator asks for."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.module_utils.images.driver_build import ImageBuilder
from ansible_collections.accel.gpu.plugins.modules import driver_image
from lab.registry import layout
from tests.helpers.driver_context import catalog, remove_storage, write_catalog, write_context, write_installer
from tests.helpers.modules import run_module
from tests.helpers.playbook import Playbook
from tests.helpers.polling import until
from tests.helpers.registries import Object, Registries
from tests.helpers.registry_images import push_image
from tests.labs import Lab
from tests.programs import run

pytestmark = [pytest.mark.lab, pytest.mark.usual(8), pytest.mark.timeout(600)]

VERSION, OLDER = "580.95.05", "570.172.08"
SYSTEMS = ["rhcos4.18", "rhel9.6"]
OPERATORS = ["v25.10.1", "v26.7.0"]
TAGS = [f"{VERSION}-{suffix}" for suffix in ("rhcos4.18", "rhel9", "rhel9.6")]


class Builds:
    """A checkout with installers, and the pools whose images are built from it."""

    def __init__(self, registries: Registries, folder: Path) -> None:
        self.registries, self.folder = registries, folder
        self.context = write_context(folder / "context")
        self.installers = folder / "installers"
        write_installer(self.installers, VERSION)
        write_installer(self.installers, OLDER)
        self.storage = folder / "storage"

    @property
    def repository(self) -> str:
        return f"{self.registries.unique}/nvidia/driver"

    def pool(self, name: str = "vdi", **driver: Any) -> Object:
        given = {
            "type": "vgpu",
            "version": VERSION,
            "repository": f"{self.registries.plain}/{self.registries.unique}/nvidia",
            **driver,
        }
        return {"name": name, "match": {"labels": {"vgpu": name}}, "sharing": {"mode": "none"}, "driver": given}

    def options(self, *pools: Object, **options: Any) -> Object:
        lab = self.registries.lab
        return {
            "gpu_cluster": {"name": lab.name, "kubeconfig": str(lab.kubeconfig)},
            "gpu_pools": list(pools) or [self.pool()],
            "installers": str(self.installers),
            "build_context": str(self.context),
            "operating_systems": SYSTEMS,
            "operator_versions": OPERATORS,
            "storage_root": str(self.storage),
            "storage_driver": "vfs",
            "registries": self.registries.options(),
            **options,
        }

    def run(self, *pools: Object, check: bool = False, **options: Any) -> Object:
        given = self.options(*pools, **options)
        environment = {"HOME": str(self.folder)}
        return run_module(driver_image.main, given, check=check, diff=True, env=environment)

    def leftovers(self) -> list[str]:
        """The locks, and the images in the storage of buildah."""
        storage = ("--root", self.storage, "--runroot", self.storage / "run", "--storage-driver", "vfs")
        locks = [path.name for path in self.storage.glob("accel-gpu-*")]
        return [*locks, *run("buildah", *storage, "images", "--quiet").split()]

    def close(self) -> None:
        """Remove the storage of buildah."""
        remove_storage(self.storage)


@pytest.fixture
def builds(registries: Registries, tmp_path: Path) -> Iterator[Builds]:
    actual = Builds(registries, tmp_path)
    yield actual
    actual.close()


def test_an_image_is_built_once_and_has_every_tag(builds: Builds) -> None:
    predicted = builds.run(check=True)
    with builds.registries.requests() as first:
        done = builds.run()
    assert not done.get("failed"), done["msg"]
    (image,) = done["driver_images"]
    assert (image["action"], image["tags"], image["pools"]) == ("built", TAGS, ["vdi"])
    assert predicted["changed"]
    assert [one["tags"] for one in predicted["driver_images"]] == [TAGS]
    client = builds.registries.client()
    digests = {client.digest(builds.repository, tag) for tag in TAGS}
    assert digests == {image["digests"][TAGS[0]]}
    # One build for all three, because they are built from the same folder.
    assert len([path for path in first.writes if "/manifests/" in path]) == len(TAGS)
    actual = builds.registries.inspect(f"{builds.registries.plain}/{builds.repository}:{TAGS[0]}")
    assert actual["Labels"]["version"] == f"{VERSION}-grid"
    assert actual["Labels"]["accel.gpu/driver-installer"] == f"NVIDIA-Linux-x86_64-{VERSION}-grid.run"
    assert f"DRIVER_BRANCH={VERSION.partition('.')[0]}" in actual["Env"]
    assert "DRIVER_TYPE=vgpu" in actual["Env"]
    assert not list(builds.context.glob("*/drivers/*.run")), "the checkout is not changed"

    with builds.registries.requests() as second:
        again = builds.run()
    assert (again["changed"], again["driver_images"][0]["action"]) == (False, "unchanged")
    assert second.writes == []


def test_two_runs_at_the_same_time(builds: Builds) -> None:
    """They build one image, and neither removes it from buildah's storage before the other has pushed it."""
    task = {"name": "Provide the images", "accel.gpu.driver_image": builds.options()}
    play = {
        "name": "Images",
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {"ansible_python_interpreter": "{{ ansible_playbook_python }}"},
        "tasks": [task],
    }
    path = builds.folder / "images.yml"
    path.write_text(yaml.safe_dump([play]))
    environ = {**builds.registries.lab.env, "HOME": str(builds.folder)}
    with builds.registries.requests() as sent:
        started = [Playbook(str(path), environ=environ, inventory=Path("localhost,")) for dummy in range(2)]
        finished = [playbook.wait().require_success() for playbook in started]
    results = [one.module_results("accel.gpu.driver_image", "localhost")[0] for one in finished]
    assert results[0]["driver_images"][0]["digests"] == results[1]["driver_images"][0]["digests"]
    assert len([one for one in sent.writes if "/manifests/" in one]) == len(TAGS)
    assert builds.leftovers() == []


def test_the_image_of_a_run_that_is_killed_after_its_push_is_removed_by_the_next_run(builds: Builds) -> None:
    child = os.fork()
    if not child:
        ImageBuilder.remove = lambda *dummy: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]
        builds.run()
        os._exit(1)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert len(builds.leftovers()) == 2
    assert not builds.run(check=True)["changed"]
    assert len(builds.leftovers()) == 2
    assert not builds.run()["changed"]
    assert builds.leftovers() == []


def test_what_makes_another_image(builds: Builds) -> None:
    first = builds.run()
    assert first["changed"], first
    # Another operating system of the same folder is another tag only.
    with builds.registries.requests() as sent:
        tagged = builds.run(operating_systems=[*SYSTEMS, "rhel9.8"])
    assert (tagged["driver_images"][0]["action"], sent.uploads) == ("tagged", [])
    write_installer(builds.installers, VERSION, seed=1)
    assert builds.run(check=True)["driver_images"][0]["action"] == "built"
    write_installer(builds.installers, VERSION)
    assert not builds.run(check=True)["changed"]
    assert builds.run(check=True, build_args={"CVE_UPDATES": "openssl"})["changed"]
    (builds.context / "rhel9" / "nvidia-driver").write_text("#!/bin/sh\n")
    rebuilt = builds.run()
    assert rebuilt["driver_images"][0]["action"] == "built"
    assert set(rebuilt["driver_images"][0]["digests"].values()) != set(first["driver_images"][0]["digests"].values())


def test_images_of_others_are_not_replaced(builds: Builds) -> None:
    push_image(builds.registries.client(), builds.repository, TAGS[0])
    with builds.registries.requests() as sent:
        refused = builds.run()
    assert (refused["code"], sent.writes) == ("invalid", [])
    assert f"{builds.repository}:{TAGS[0]}: was not built by this collection" in refused["msg"]
    replaced = builds.run(force=True)
    assert not replaced.get("failed"), replaced


COMPATIBILITY: list[tuple[str, str, str, str]] = [
    # version of the guest driver, version of the manager -> problem, warning
    (VERSION, "570.172.07", "is newer than vGPU manager 570.172.07 of vGPU 18", ""),
    (VERSION, "595.58.02", "", ""),
    (OLDER, "595.58.02", "does not support guest driver 570.172.08 of vGPU 18", ""),
    (VERSION, "580.1.1", "", "The catalog does not have vGPU manager 580.1.1"),
    (VERSION, "999.1.1", "", "The branch of 999.1.1 is unknown"),
]


@pytest.mark.parametrize(("version", "manager", "problem", "warning"), COMPATIBILITY)
def test_drivers_that_the_manager_does_not_support(
    builds: Builds, version: str, manager: str, problem: str, warning: str
) -> None:
    result = builds.run(builds.pool(version=version), manager_version=manager, check=True)
    assert bool(result.get("failed")) is bool(problem), result
    assert problem in result.get("msg", "")
    assert warning in str(result.get("warnings", ""))


def test_the_catalog_of_nvidia_decides(builds: Builds) -> None:
    listed = write_catalog(builds.folder, catalog([VERSION, "550.163.02"], [VERSION], denied={VERSION: ["550.163.02"]}))
    for manager, problem in ((VERSION, ""), ("550.163.02", "excludes guest driver 580.95.05")):
        result = builds.run(manager_version=manager, catalog_file=str(listed), check=True)
        assert bool(result.get("failed")) is bool(problem), result
        assert problem in result.get("msg", "")


@pytest.mark.parametrize("text", ["[", "5", "driver: 5", "\xff", ""])
def test_files_that_are_no_catalogs(builds: Builds, text: str) -> None:
    path = builds.folder / "catalog.yaml"
    path.write_bytes(text.encode("latin-1"))
    refused = builds.run(manager_version=VERSION, catalog_file=str(path), check=True)
    assert refused["code"] == "invalid"
    assert refused["msg"].startswith(f"catalog_file: {path} ")


INPUTS: list[tuple[str, str, str]] = [
    ("-vgpu-kvm", VERSION, "is the vGPU manager for KVM hosts"),
    ("", VERSION, "is the data center driver"),
    ("-grid", OLDER, "contains driver 570.172.08, but the pools declare 580.95.05"),
]


@pytest.mark.parametrize(("kind", "version", "words"), INPUTS)
def test_wrong_installers(builds: Builds, kind: str, version: str, words: str) -> None:
    path = write_installer(builds.folder / "other", version, kind=kind)
    refused = builds.run(installers=str(path))
    assert refused["code"] == "invalid"
    assert words in refused["msg"]
    missing = builds.run(builds.pool(version="580.105.08"))
    assert "has no installer of driver 580.105.08" in missing["msg"]
    assert "a checkout of NVIDIA's gpu-driver-container" in builds.run(build_context=str(builds.folder))["msg"]


def test_public_registries_are_refused(builds: Builds) -> None:
    public = builds.pool(repository="quay.io/nvidia")
    refused = builds.run(public)
    assert "NVIDIA's license does not allow the publication of the vGPU driver" in refused["msg"]
    doubled = builds.run(builds.pool(version=f"{VERSION}-rhcos4.18"))
    assert doubled["failed"]
    assert "rhcos4.18" in doubled["msg"]


def test_images_are_copied_from_another_repository(builds: Builds) -> None:
    source = f"{builds.registries.unique}/vgpu/vgpu-guest-driver-5"
    image = push_image(builds.registries.client(), source, TAGS[2])
    options: Object = {"source": f"{builds.registries.plain}/{source}", "installers": None, "build_context": None}
    done = builds.run(**options)
    assert not done.get("failed"), done["msg"]
    assert (done["changed"], done["driver_images"][0]["action"]) == (True, "copied")
    # The source has the tag of one release of the operator only.
    for tag in TAGS:
        assert builds.registries.client().digest(builds.repository, tag) == image.digest
    assert not builds.run(**options)["changed"]
    missing = builds.run(builds.pool(version=OLDER), **options)
    assert f"has none of the tags {OLDER}-rhcos4.18" in missing["msg"]


@pytest.mark.usual(60)
def test_the_real_operator_asks_for_a_tag_that_exists(builds: Builds, registry_lab: Lab) -> None:
    """Without operating_systems, they are those of the pool's nodes."""
    helm = f"helm install gpu $LAB_CHARTS/gpu-operator -n gpu-operator --create-namespace --wait --set driver.repository={builds.registries.plain}/{builds.registries.unique}/nvidia,driver.version={VERSION}"
    registry_lab.reset()
    run("bash", "-euc", helm, env=registry_lab.env)
    labeled = ["get", "nodes", "-l", "feature.node.kubernetes.io/system-os_release.VERSION_ID", "-o", "name"]
    until(lambda: run("kubectl", *labeled, env=registry_lab.env).strip())
    everywhere = builds.pool(image="driver")
    everywhere["match"] = {"labels": {"nvidia.com/gpu.present": "true"}}
    done = builds.run(everywhere, operating_systems=[], operator_versions=[])
    assert not done.get("failed"), done["msg"]

    def driver_images() -> set[str]:
        listed = run("kubectl", "get", "daemonsets", "-n", "gpu-operator", "-o", "json", env=registry_lab.env)
        return {
            container["image"]
            for item in json.loads(listed)["items"]
            for container in item["spec"]["template"]["spec"]["containers"]
            if container["name"] == "nvidia-driver-ctr"
        }

    images = until(driver_images)
    (image,) = done["driver_images"]
    assert images <= {f"{image['image']}:{tag}" for tag in image["tags"]}
    with builds.registries.requests(layout.PLAIN) as read:
        assert not builds.run(everywhere, operating_systems=[], operator_versions=[])["changed"]
    assert read.writes == []
