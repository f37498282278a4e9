# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A site without internet access: the mirror has exactly the images that the cluster pulls, `site` runs from it alone, and `verify_mirror` finds differences."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.modules import image_set
from lab.registry import layout
from tests.helpers.modules import run_module
from tests.helpers.planted_secrets import Planted
from tests.helpers.playbook import Playbook, PlaybookRun
from tests.helpers.registries import Object, Registries
from tests.helpers.registry_images import RegistryClient, push_image
from tests.labs import Lab
from tests.programs import REPO, run

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]

INVENTORY = REPO / "inventories" / "lab"
POOLS: list[Object] = yaml.safe_load((INVENTORY / "group_vars" / "gpu_clusters.yml").read_text())["gpu_pools"]
SECRET = "mirror-login"


class Site:
    """A cluster whose variables name a mirror with a login; the plain registry stands for the public ones, behind a line that can be cut."""

    def __init__(self, registries: Registries, folder: Path) -> None:
        self.registries, self.lab, self.folder = registries, registries.lab, folder
        self.mirror = f"{registries.tls}/{registries.unique}"
        self.source = self.lab.env["LAB_REGISTRY_PLAIN_PROXY"]

    @property
    def variables(self) -> Object:
        charts = self.lab.env["LAB_CHARTS"]
        operator = {
            "version": "v25.10.1",
            "chart": f"{charts}/gpu-operator-v25.10.1",
            "registry": self.mirror,
            "image_pull_secrets": [SECRET],
        }
        cluster = {"name": self.lab.name, "operator": operator, "nfd": {"chart": f"{charts}/node-feature-discovery"}}
        return {
            "gpu_cluster": cluster,
            "gpu_pools": POOLS,
            "gpu_registries": self.registries.options(),
            "gpu_mirror_upstreams": self.upstreams,
            "gpu_mirror_operating_systems": ["ubuntu24.04"],
            "gpu_mirror_dest": str(self.folder / "files"),
        }

    @property
    def upstreams(self) -> dict[str, str]:
        return dict.fromkeys(("nvcr.io", "registry.k8s.io"), f"{self.source}/{self.registries.unique}")

    @property
    def environ(self) -> dict[str, str]:
        """The environment of a run whose temporary files are in folders of their own."""
        home, temporary = self.folder / "home", self.folder / "tmp"
        for folder in (home, temporary):
            folder.mkdir(exist_ok=True)
        return {**self.lab.env, "HOME": str(home), "TMPDIR": str(temporary)}

    def start(self, name: str, *arguments: str, **variables: Any) -> Playbook:
        return Playbook(
            f"accel.gpu.{name}",
            environ=self.environ,
            inventory=INVENTORY,
            arguments=arguments,
            variables={**self.variables, **variables},
        )

    def play(self, name: str, *arguments: str, **variables: Any) -> PlaybookRun:
        return self.start(name, *arguments, **variables).wait()

    def await_first_copy(self, playbook: Playbook) -> None:
        """Wait for the certificates that a copy gets, or for the end of the run."""
        while playbook.process.poll() is None and not any((self.folder / "tmp").glob("accel-gpu-ca-*")):
            time.sleep(0.02)

    def needed(self, **options: Any) -> Object:
        """The result of image_set."""
        given = {key: self.variables[key] for key in ("gpu_cluster", "gpu_pools")}
        given["gpu_cluster"] = {**given["gpu_cluster"], "kubeconfig": str(self.lab.kubeconfig)}
        helm = run("bash", "-c", "command -v helm", env=self.lab.env).strip()
        common = {"operating_systems": ["ubuntu24.04"], "upstreams": self.upstreams, "binary_path": helm}
        result = run_module(image_set.main, {**given, **common, "registries": self.registries.options(), **options})
        assert not result.get("failed"), result["msg"]
        actual: Object = result["image_set"]
        return actual

    def publish(self, size: int = 4096) -> list[str]:
        """Push a small image under the name of each public one; returns their destinations in the mirror."""
        copies = self.needed()["copies"]
        for entry in copies:
            repository, _colon, tag = entry["source"].partition("/")[2].rpartition(":")
            push_image(self.registries.client(), repository, tag, size=size)
        return [entry["destination"] for entry in copies]

    def images(self) -> set[str]:
        """The images of all containers of the cluster."""
        pods = json.loads(run("kubectl", "get", "pods", "-A", "-o", "json", env=self.lab.env))["items"]
        return {
            container["image"]
            for pod in pods
            for container in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"])
        }


@pytest.fixture
def site(registries: Registries, tmp_path: Path) -> Iterator[Site]:
    registries.lab.reset()
    actual = Site(registries, tmp_path)
    yield actual
    registries.network().heal()


@pytest.mark.sampled(1, group="whole runs")
@pytest.mark.usual(150)
def test_a_site_runs_from_the_mirror_alone(site: Site) -> None:
    destinations = site.publish()
    predicted = site.play("mirror", "--check").require_success()
    made = site.play("mirror").require_success()
    assert predicted.changed() == made.changed() > 0
    with site.registries.requests(layout.TLS) as again:
        assert site.play("mirror").require_success().changed() == 0
    assert again.writes == []
    digests = json.loads((site.folder / "files" / "digests.json").read_text())
    assert sorted(digests) == sorted(destinations)

    site.registries.network().block()
    planted = Planted()
    planted.add("the password of the registry", site.registries.password)
    installed = site.play("site").require_success()
    assert planted.found_in(installed.stdout + installed.stderr) == []
    images = site.images()
    print(len(images), "images in pods,", len(destinations), "in the mirror")
    assert images <= set(destinations), "the list is complete"
    assert all(image.startswith(site.mirror) for image in images)
    assert site.play("site").require_success().changed() == 0
    verified = site.play("verify_mirror").require_success()
    assert verified.changed() == 0
    assert verified.shown("images that the pools need")

    # One image is lost, another one replaced.
    client = site.registries.client("LAB_REGISTRY_TLS")
    removed, altered = sorted(images)[:2]
    repository = removed.partition("/")[2].rpartition(":")[0]
    client.delete(repository, digests[removed])
    repository, _colon, tag = altered.partition("/")[2].rpartition(":")
    push_image(client, repository, tag, size=100)
    failed = site.play("verify_mirror")
    assert failed.rc != 0
    assert f"{removed}: is missing" in failed.failure()
    assert f"{altered}: has an unexpected digest" in failed.failure()


@pytest.mark.usual(15)
def test_the_list_in_other_forms(site: Site) -> None:
    dest = site.folder / "forms"
    actual = site.needed(dest=str(dest))
    assert [Path(path).name for path in actual["files"]] == ["images.txt", "imageset-config.yaml", "mirror-sets.yaml"]
    listed = [line.split() for line in (dest / "images.txt").read_text().splitlines()]
    assert sorted(listed) == sorted(
        [f"docker://{entry['source']}", f"docker://{entry['destination']}"] for entry in actual["copies"]
    )
    assert all(source.startswith(f"docker://{site.source}/") for source, _destination in listed)
    configuration = yaml.safe_load((dest / "imageset-config.yaml").read_text())
    assert len(configuration["mirror"]["additionalImages"]) == len({entry["source"] for entry in actual["copies"]})
    (tags,) = yaml.safe_load_all((dest / "mirror-sets.yaml").read_text())
    assert (tags["kind"], "restarts all nodes" in tags["metadata"]["annotations"]["accel.gpu/impact"]) == (
        "ImageTagMirrorSet",
        True,
    )
    components = {entry["component"] for entry in actual["images"]}
    assert {"driver/ubuntu24.04", "devicePlugin", "toolkit", "validation/kernel/12.5"} <= components
    both = site.needed(operating_systems=["ubuntu24.04", "rhel9.6"], operator_versions=["v26.7.0"])
    tagged = {entry["component"] for entry in both["images"] if entry["component"].startswith("driver/")}
    assert tagged == {"driver/ubuntu24.04", "driver/rhel9.6", "driver/rhel9"}
    # A second call writes nothing.
    assert (site.needed(dest=str(dest))["files"], sorted(path.name for path in dest.iterdir())) == (
        actual["files"],
        sorted(Path(path).name for path in actual["files"]),
    )


def test_a_mirror_that_the_variables_do_not_name_yet(site: Site, registry_lab: Lab) -> None:
    cluster = {**site.variables["gpu_cluster"], "kubeconfig": str(registry_lab.kubeconfig)}
    cluster["operator"] = {key: text for key, text in cluster["operator"].items() if key != "registry"}
    actual = site.needed(gpu_cluster=cluster, mirror="registry.example.com/mirror")
    assert actual["copies"]
    assert all(entry["destination"].startswith("registry.example.com/mirror/") for entry in actual["images"])


MOMENTS, BEFORE_COPIES = 25, 8


@pytest.fixture(scope="module")
def durations() -> list[float]:
    """The seconds of an uninterrupted run until its first copy and from there to its end, which the first test measures."""
    return []


def parts_of(image: str) -> tuple[str, str]:
    """The repository and the tag of an image."""
    repository, _colon, tag = image.partition("/")[2].rpartition(":")
    return repository, tag


def own_files(folder: Path) -> list[str]:
    """The temporary files and folders of the collection, without Ansible's."""
    return sorted(path.name for path in folder.rglob("*accel-gpu-*"))


def missing_parts(client: RegistryClient, repository: str, tag: str) -> list[str]:
    """The manifests and blobs that the registry lacks of an image whose tag it has."""
    missing: list[str] = []
    for entry in client.manifest(repository, tag)["manifests"]:
        if client.digest(repository, entry["digest"]) is None:
            missing.append(entry["digest"])
            continue
        manifest = client.manifest(repository, entry["digest"])
        blobs = [part["digest"] for part in (manifest["config"], *manifest["layers"])]
        missing += [blob for blob in blobs if not client.has_blob(repository, blob)]
    return missing


@pytest.mark.sampled(1)
@pytest.mark.usual(60)
@pytest.mark.parametrize("moment", range(1, MOMENTS + 1))
def test_a_mirror_is_killed(site: Site, durations: list[float], moment: int) -> None:
    """All processes of the run are killed, or only Ansible's own process group, whose task then continues beside the next run."""
    registries, first, all_processes = site.registries, site.registries.unique, moment % 5 > 0
    registries.network().bandwidth(1000)
    if not durations:
        site.publish(size=100_000)
        measured, began = site.start("mirror"), time.monotonic()
        site.await_first_copy(measured)
        durations.append(time.monotonic() - began)
        measured.wait().require_success()
        durations.append(time.monotonic() - began - durations[0])
    registries.unique = f"{first}/{moment}"
    site.mirror = f"{registries.tls}/{registries.unique}"
    destinations = site.publish(size=100_000)
    planted = Planted()
    planted.add("the password of the registry", registries.password)

    killed = site.start("mirror")
    if moment <= BEFORE_COPIES:
        pause = durations[0] * moment / (BEFORE_COPIES + 1)
    else:
        site.await_first_copy(killed)
        pause = durations[1] * (moment - BEFORE_COPIES) / (MOMENTS - BEFORE_COPIES + 1)
    with contextlib.suppress(subprocess.TimeoutExpired):
        killed.process.wait(pause)
    killed.kill() if all_processes else killed.process.kill()
    expected = {name: registries.client().digest(*parts_of(name)) for name in destinations}
    mirror = registries.client("LAB_REGISTRY_TLS")
    before = {name: mirror.digest(*parts_of(name)) for name in destinations}
    for name in destinations:
        assert before[name] in (None, expected[name])
        assert before[name] is None or missing_parts(mirror, *parts_of(name)) == []
    assert planted.found_below(site.folder) == []
    left = own_files(site.folder)

    converged = site.play("mirror").require_success()
    if all_processes:
        images = converged.module_results("accel.gpu.registry_image")[0]["images"]
        assert {image["destination"]: image["action"] for image in images} == {
            name: "unchanged" if before[name] else "created" for name in destinations
        }
    killed.wait()
    assert killed.alive() == []
    assert json.loads((site.folder / "files" / "digests.json").read_text()) == expected
    for name in destinations:
        assert mirror.digest(*parts_of(name)) == expected[name]
        assert missing_parts(mirror, *parts_of(name)) == []
    assert planted.found_below(site.folder) == []
    assert own_files(site.folder) == []
    done = sum(map(bool, before.values()))
    print(f"moment {moment}: {done} of {len(destinations)} images were in the mirror; temporary files: {left}")
