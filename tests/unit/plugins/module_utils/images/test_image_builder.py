# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The calls of buildah, and the build context that it gets."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.releases import BuildTarget
from ansible_collections.accel.gpu.plugins.module_utils.core.errors import ConnectionProblem
from ansible_collections.accel.gpu.plugins.module_utils.images.driver_build import (
    BuildOptions,
    BuildSpec,
    ImageBuilder,
    find_spec,
)
from ansible_collections.accel.gpu.plugins.module_utils.registry.images import ImageTools
from ansible_collections.accel.gpu.plugins.module_utils.registry.reference import parse_image

VERSION = "580.95.05"
GUEST = f"NVIDIA-Linux-x86_64-{VERSION}-grid.run"


class Buildah:
    """The calls, and the files of the context at the time of the build."""

    def __init__(self, *images: str) -> None:
        self.calls: list[list[str]] = []
        self.context: dict[str, str] = {}
        self._images = images

    def buildah(self, arguments: Sequence[str]) -> str:
        self.calls.append(list(arguments))
        return "".join(f"{name}\n" for name in self._images)

    def build(self, arguments: Sequence[str], context: str, dockerfile: str) -> None:
        self.calls.append(list(arguments))
        assert dockerfile == (Path(context) / "Dockerfile").read_text()
        files = [path for path in Path(context).rglob("*") if path.is_file()]
        self.context = {str(path.relative_to(context)): path.read_text() for path in files}

    def push(self, *call: Any) -> None:
        self.calls.append([*call[0], *map(str, call[1:])])


@pytest.fixture
def spec(tmp_path: Path) -> BuildSpec:
    """A build with a catalog, and with an installer of another build in the user's checkout."""
    drivers = tmp_path / "context" / "rhel9" / "drivers"
    drivers.mkdir(parents=True)
    (drivers.parent / "Dockerfile").write_text("ARG DRIVER_TYPE\nFROM scratch\n")
    (drivers / "README.md").write_text("empty")
    (drivers / "NVIDIA-Linux-x86_64-570.172.08-grid.run").write_text("old driver")
    (tmp_path / GUEST).write_text("driver")
    (tmp_path / "catalog.yaml").write_text("version: 1\n")
    return find_spec(
        BuildTarget("rhel9"),
        VERSION,
        BuildOptions(str(tmp_path / "context"), str(tmp_path / GUEST), catalog_file=str(tmp_path / "catalog.yaml")),
    )


def builder(buildah: Buildah, tmp_path: Path) -> ImageBuilder:
    """A builder with its own temporary folder."""
    folder = tmp_path / "temporary" / "module"
    folder.mkdir(parents=True, exist_ok=True)
    return ImageBuilder(cast("ImageTools", buildah), str(folder))


def test_the_context_has_only_the_installer_of_this_build(spec: BuildSpec, tmp_path: Path) -> None:
    buildah, before = Buildah(), sorted((tmp_path / "context").rglob("*"))
    builder(buildah, tmp_path).build(spec)
    assert buildah.context == {
        "Dockerfile": "ARG DRIVER_TYPE\nFROM scratch\n",
        "drivers/README.md": "empty",
        f"drivers/{GUEST}": "driver",
        "drivers/vgpuDriverCatalog.yaml": "version: 1\n",
    }
    # The user's checkout is unchanged, and the copy is gone.
    assert sorted((tmp_path / "context").rglob("*")) == before
    assert list((tmp_path / "temporary").rglob("*")) == [tmp_path / "temporary" / "module"]


def test_the_calls(spec: BuildSpec, tmp_path: Path) -> None:
    buildah = Buildah()
    options = replace(spec.options, storage_root="/s", storage_driver="vfs", isolation="oci")
    stored = replace(spec, options=options, inputs="0123")
    storage = ["--root", "/s", "--runroot", "/s/run", "--storage-driver", "vfs"]
    actual = builder(buildah, tmp_path)
    actual.build(stored)
    actual.push(stored, parse_image(f"registry.example.com/driver:{VERSION}-rhel9"))
    labels = {
        "accel.gpu/inputs": "0123",
        "accel.gpu/driver-version": VERSION,
        "accel.gpu/driver-installer": GUEST,
        "accel.gpu/build-folder": "rhel9",
    }
    assert buildah.calls == [
        [*storage, "images", "--format", "{{.Name}}:{{.Tag}}"],
        [
            *storage,
            *("bud", "--isolation", "oci", "--format", "docker", "--pull", "--platform", "linux/amd64"),
            *("--tag", stored.local_name, "--build-arg", "DRIVER_TYPE=vgpu"),
            *(part for name, value in labels.items() for part in ("--label", f"{name}={value}")),
        ],
        [*storage, "push", stored.local_name, f"registry.example.com/driver:{VERSION}-rhel9"],
    ]


def test_an_image_is_removed_if_it_is_in_the_storage(spec: BuildSpec, tmp_path: Path) -> None:
    images = ["images", "--format", "{{.Name}}:{{.Tag}}"]
    for stored, calls in (("localhost/other:1", [images]), (spec.local_name, [images, ["rmi", spec.local_name]])):
        buildah = Buildah(stored)
        builder(buildah, tmp_path).remove(spec)
        assert buildah.calls == calls


def test_the_lock_shows_that_a_run_was_killed(spec: BuildSpec, tmp_path: Path) -> None:
    stored = replace(spec, options=replace(spec.options, storage_root=str(tmp_path / "storage")))
    actual = builder(Buildah(), tmp_path)
    assert not actual.was_killed(stored)
    with actual.exclusive(stored, lambda dummy: None):
        assert not actual.was_killed(stored), "the run is still going on"
        (lock,) = (tmp_path / "storage").iterdir()
    assert not actual.was_killed(stored), "the run has ended"
    lock.touch()
    assert actual.was_killed(stored)


def test_the_image_of_a_killed_run_is_not_built_again(spec: BuildSpec, tmp_path: Path) -> None:
    buildah = Buildah("localhost/other:1", spec.local_name)
    builder(buildah, tmp_path).build(spec)
    assert buildah.calls == [["images", "--format", "{{.Name}}:{{.Tag}}"]]


@pytest.mark.parametrize(
    "error", [shutil.Error([("a", "b", "No space left on device")]), OSError(28, "No space left on device", "a")]
)
def test_no_room_for_the_context(
    spec: BuildSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(*dummy: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr(shutil, "copytree", refuse)
    with pytest.raises(ConnectionProblem, match=r"The build context cannot be copied to .*: No space left on device"):
        builder(Buildah(), tmp_path).build(spec)
    assert list((tmp_path / "temporary").rglob("*")) == [tmp_path / "temporary" / "module"]


def test_links_in_the_checkout_are_not_written_through(spec: BuildSpec, tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "context" / "rhel9", tmp_path / "elsewhere"
    (folder / "drivers").rename(elsewhere)
    (folder / "drivers").symlink_to(elsewhere)
    (tmp_path / "mine.yaml").write_text("mine")
    (elsewhere / "vgpuDriverCatalog.yaml").symlink_to(tmp_path / "mine.yaml")
    before = sorted(elsewhere.iterdir())
    buildah = Buildah()
    builder(buildah, tmp_path).build(spec)
    assert buildah.context["drivers/vgpuDriverCatalog.yaml"] == "version: 1\n"
    assert (tmp_path / "mine.yaml").read_text() == "mine"
    assert sorted(elsewhere.iterdir()) == before
