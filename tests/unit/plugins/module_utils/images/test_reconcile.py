# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The builds, pushes and requests that follow from the labels and digests of the images in a registry.

The registry and buildah's storage are dictionaries: these tests are about decisions. The integration tests use the real programs.
"""

from __future__ import annotations

import builtins
import contextlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.releases import BuildTarget
from ansible_collections.accel.gpu.plugins.module_utils.core.errors import InvalidOptions
from ansible_collections.accel.gpu.plugins.module_utils.images import driver_build
from ansible_collections.accel.gpu.plugins.module_utils.images.driver_build import (
    INPUTS_LABEL,
    BuildOptions,
    BuildSpec,
    ImageBuilder,
)
from ansible_collections.accel.gpu.plugins.module_utils.images.driver_images import (
    BuiltImages,
    CopiedImages,
    DriverImage,
    require_no_replacement,
)
from ansible_collections.accel.gpu.plugins.module_utils.registry.client import RegistryClient
from ansible_collections.accel.gpu.plugins.module_utils.registry.images import (
    CopySpec,
    CopyState,
    ImageCopier,
    ToolFailed,
)
from ansible_collections.accel.gpu.plugins.module_utils.registry.reference import (
    OCI_INDEX,
    OCI_MANIFEST,
    ImageReference,
    Manifest,
    parse_image,
    parse_repository,
)

VERSION = "580.95.05"
REPOSITORY = "registry.example.com/nvidia/driver"
OLD, NEW = f"{VERSION}-rhel9.6", f"{VERSION}-rhel9"


class World:
    """A registry whose images are their labels, and the changes in their order."""

    def __init__(self) -> None:
        self.images: dict[str, Manifest] = {}
        self.done: list[str] = []
        self.builds = 0
        # The images in buildah's storage, those that may be used there, and the work of another run while this one waits for them.
        self.stored: set[str] = set()
        self.held: list[str] = []
        self.while_waiting: Callable[[], Any] = lambda: None
        self.while_building: Callable[[], Any] = lambda: None
        # Whether the lock of a killed run is there, and the images whose push fails.
        self.killed = False
        self.unreachable: set[str] = set()

    def store(self, tag: str, labels: dict[str, str], media_type: str = OCI_MANIFEST) -> None:
        """Store an image under a tag and its digest."""
        manifest = Manifest(json.dumps({"config": {"digest": "sha256:c"}, "labels": labels}).encode(), media_type)
        self.put(parse_image(f"{REPOSITORY}:{tag}"), manifest)
        self.done.clear()

    # The client.
    def digest(self, image: ImageReference) -> str | None:
        actual = self.manifest(image)
        return actual.digest if actual else None

    def manifest(self, image: ImageReference) -> Manifest | None:
        return self.images.get(str(image))

    def config(self, dummy: ImageReference, manifest: Manifest) -> dict[str, Any]:
        return {"config": {"Labels": manifest.document["labels"]}}

    def put(self, image: ImageReference, manifest: Manifest) -> None:
        self.done.append(f"tag {image.tag}")
        self.images |= {str(image): manifest, str(image.with_digest(manifest.digest)): manifest}

    # buildah.
    @contextlib.contextmanager
    def exclusive(self, spec: BuildSpec, dummy: Any) -> Iterator[None]:
        self.while_waiting()
        self.held.append(spec.local_name)
        try:
            yield
        finally:
            self.held.remove(spec.local_name)

    def build(self, spec: BuildSpec) -> None:
        assert spec.local_name in self.held
        if spec.local_name not in self.stored:
            self.done.append(f"build {spec.folder}")
        self.stored.add(spec.local_name)
        self.while_building()

    def was_killed(self, dummy: BuildSpec) -> bool:
        return self.killed

    def remove(self, spec: BuildSpec) -> None:
        assert spec.local_name in self.held
        self.stored.discard(spec.local_name)

    def push(self, spec: BuildSpec, image: ImageReference) -> None:
        assert spec.local_name in self.stored
        if image.registry in self.unreachable:
            raise ToolFailed("no answer")
        # Two builds from the same inputs have different digests, as with real layers.
        self.builds += 1
        labels = {**spec.labels(), "build": str(self.builds)}
        manifest = Manifest(json.dumps({"config": {"digest": "sha256:c"}, "labels": labels}).encode(), OCI_MANIFEST)
        self.put(image, manifest)
        self.done[-1] = f"push {image.tag}"

    def built(self, options: BuildOptions, *, replace_foreign: bool = False) -> BuiltImages:
        """Images that are built."""
        return BuiltImages(
            cast("RegistryClient", self), cast("ImageBuilder", self), options, replace_foreign=replace_foreign
        )

    def run(self, options: BuildOptions, *images: DriverImage, replace_foreign: bool = False) -> list[str]:
        """The changes of a run; a second run makes none, and all tags of a folder name one image."""
        built = self.built(options, replace_foreign=replace_foreign)
        built.apply(built.compare(images), lambda dummy: None)
        done, self.done = self.done, []
        again = built.compare(images)
        built.apply(again, lambda dummy: None)
        assert (self.done, {state.action for state in again}) == ([], {"unchanged"})
        assert (self.stored, self.held) == (set(), [])
        assert all(len(set(state.actual.values())) == 1 for state in again)
        return done


@pytest.fixture
def options(tmp_path: Path) -> BuildOptions:
    """A context with two folders, and one installer."""
    for folder in ("rhel9", "ubuntu22.04"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "Dockerfile").write_text("FROM scratch\n")
    installer = tmp_path / f"NVIDIA-Linux-x86_64-{VERSION}-grid.run"
    installer.write_text("driver")
    return BuildOptions(context=str(tmp_path), installers=str(installer))


def image(**folders: tuple[str, ...]) -> DriverImage:
    """The driver image of one pool."""
    targets = {BuildTarget(folder): tags for folder, tags in (folders or {"rhel9": (NEW, OLD)}).items()}
    return DriverImage(("vdi",), parse_repository(REPOSITORY), VERSION, targets)


def test_an_image_is_built_once_for_all_tags_of_its_folder(options: BuildOptions) -> None:
    world = World()
    (state,) = world.built(options).compare([image()])
    assert (state.action, state.missing, state.built) == ("built", [NEW, OLD], "")
    assert world.run(options, image()) == ["build rhel9", f"push {NEW}", f"tag {OLD}"]


def test_each_folder_is_built(options: BuildOptions) -> None:
    ubuntu = f"{VERSION}-ubuntu22.04"
    both = image(**{"rhel9": (NEW,), "ubuntu22.04": (ubuntu,)})
    assert World().run(options, both) == ["build rhel9", f"push {NEW}", "build ubuntu22.04", f"push {ubuntu}"]


@pytest.mark.parametrize(("existing", "missing"), [(NEW, OLD), (OLD, NEW)])
def test_a_further_tag_needs_no_build(options: BuildOptions, existing: str, missing: str) -> None:
    world = World()
    assert world.run(options, image(rhel9=(existing,))) == ["build rhel9", f"push {existing}"]
    (state,) = world.built(options).compare([image()])
    assert (state.action, state.missing) == ("tagged", [missing])
    assert world.run(options, image()) == [f"tag {missing}"]


def test_tags_with_two_builds_from_the_same_inputs_get_one_image(options: BuildOptions) -> None:
    world = World()
    world.run(options, image(rhel9=(NEW,)))
    first = world.images.pop(f"{REPOSITORY}:{NEW}")
    world.run(options, image(rhel9=(OLD,)))
    world.images[f"{REPOSITORY}:{NEW}"] = first
    (done,) = world.run(options, image())
    assert done in (f"tag {OLD}", f"tag {NEW}")


def test_another_input_leads_to_a_build(options: BuildOptions) -> None:
    world = World()
    world.run(options, image())
    (Path(options.context) / "rhel9" / "Dockerfile").write_text("FROM scratch\nUSER 0\n")
    assert world.run(options, image()) == ["build rhel9", f"push {NEW}", f"tag {OLD}"]


@pytest.mark.parametrize(
    ("labels", "media_type"),
    [({}, OCI_MANIFEST), ({"maintainer": "x"}, OCI_MANIFEST), ({INPUTS_LABEL: "x"}, OCI_INDEX)],
)
def test_images_of_others_are_kept(options: BuildOptions, labels: dict[str, str], media_type: str) -> None:
    world = World()
    world.store(OLD, labels, media_type)
    with pytest.raises(InvalidOptions) as raised:
        world.built(options).compare([image()])
    assert raised.value.problems == [
        f"{REPOSITORY}:{OLD}: was not built by this collection. Choose another driver.image, or set force: true to replace it"
    ]
    assert world.run(options, image(), replace_foreign=True) == ["build rhel9", f"push {NEW}", f"tag {OLD}"]


def test_all_problems_are_reported_once(options: BuildOptions) -> None:
    world = World()
    world.store(OLD, {})
    broken = BuildOptions(context=options.context, installers="/nowhere")
    with pytest.raises(InvalidOptions) as raised:
        world.built(broken).compare([image(), image(**{"ubuntu22.04": (f"{VERSION}-ubuntu22.04",)})])
    assert raised.value.problems == ["installers: there is no file or directory /nowhere"]


def test_files_that_cannot_be_read(options: BuildOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> str:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(driver_build, "_file_digest", refuse)
    with pytest.raises(InvalidOptions) as raised:
        World().built(options).compare([image()])
    assert raised.value.problems == [f"{options.installers}: cannot be read: Permission denied"]


@pytest.mark.parametrize("refused", ["listdir", "open"])
def test_folders_and_files_without_permission(
    options: BuildOptions, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    def refuse(path: str, *dummy: Any, **more: Any) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os if refused == "listdir" else builtins, refused, refuse)
    folder = replace(options, installers=os.path.dirname(options.installers))
    with pytest.raises(InvalidOptions, match=": cannot be read: Permission denied"):
        World().built(folder).compare([image()])


def test_pipes_in_all_folders_are_reported(options: BuildOptions) -> None:
    for folder in ("rhel9", "ubuntu22.04"):
        os.mkfifo(Path(options.context) / folder / "pipe")
    with pytest.raises(InvalidOptions) as raised:
        World().built(options).compare([image(rhel9=(NEW,), **{"ubuntu22.04": (f"{VERSION}-ubuntu22.04",)})])
    assert len(raised.value.problems) == 2


def specs(world: World, *images: DriverImage) -> list[tuple[str, str]]:
    """The copies from a repository with the images of a world."""
    source = parse_repository("nvcr.io/nvidia/vgpu/vgpu-guest-driver-5")
    client, copier = cast("RegistryClient", world), cast("ImageCopier", None)
    return [(str(spec.source), str(spec.destination)) for spec in CopiedImages(client, copier, source).specs(images)]


def test_copied_tags_that_the_source_lacks_get_the_image_of_their_folder() -> None:
    world, source = World(), "nvcr.io/nvidia/vgpu/vgpu-guest-driver-5"
    world.images[f"{source}:{OLD}"] = Manifest(b"{}", OCI_MANIFEST)
    assert specs(world, image()) == [
        (f"{source}:{OLD}", f"{REPOSITORY}:{NEW}"),
        (f"{source}:{OLD}", f"{REPOSITORY}:{OLD}"),
    ]
    world.images[f"{source}:{NEW}"] = Manifest(b"{} ", OCI_MANIFEST)
    assert specs(world, image()) == [(f"{source}:{tag}", f"{REPOSITORY}:{tag}") for tag in (NEW, OLD)]


def test_a_source_without_the_version() -> None:
    ubuntu = f"{VERSION}-ubuntu22.04"
    with pytest.raises(InvalidOptions) as raised:
        specs(World(), image(**{"rhel9": (NEW, OLD), "ubuntu22.04": (ubuntu,)}))
    assert raised.value.problems == [
        f"nvcr.io/nvidia/vgpu/vgpu-guest-driver-5: has none of the tags {tags}. Check the version, and whether the repository has images for {folder}"
        for tags, folder in ((f"{NEW}, {OLD}", "rhel9"), (ubuntu, "ubuntu22.04"))
    ]


def test_a_copy_replaces_no_other_image() -> None:
    name = f"{REPOSITORY}:{OLD}"
    spec = CopySpec(parse_image(f"nvcr.io/nvidia/vgpu/driver:{OLD}"), parse_image(name))
    for actual in (None, "sha256:a"):
        require_no_replacement([CopyState(spec, desired="sha256:a", actual={name: actual})])
    with pytest.raises(InvalidOptions, match=f"{name}: is not the image nvcr.io"):
        require_no_replacement([CopyState(spec, desired="sha256:a", actual={name: "sha256:b"})])


def test_an_image_for_two_repositories_is_built_and_removed_once(options: BuildOptions) -> None:
    other = replace(image(), repository=parse_repository("registry.example.com/other/driver"))
    assert World().run(options, image(), other) == [
        "build rhel9",
        *(text for dummy in range(2) for text in (f"push {NEW}", f"tag {OLD}")),
    ]


def test_an_image_that_another_run_has_built_in_the_meantime(options: BuildOptions) -> None:
    world, other = World(), World()
    other.run(options, image(rhel9=(NEW,)))
    world.while_waiting = lambda: world.images.update(other.images)
    assert world.run(options, image()) == [f"tag {OLD}"]


def test_the_image_that_a_run_killed_after_its_push_has_left(options: BuildOptions) -> None:
    world = World()
    world.run(options, image())
    built = world.built(options)
    states = built.compare([image()])
    world.stored.add(states[0].spec.local_name)
    built.apply(states, lambda dummy: None)
    assert world.stored, "without a lock of a killed run, the programs are not called"
    world.killed = True
    built.apply(states, lambda dummy: None)
    assert (world.stored, world.done) == (set(), [])


def test_after_a_failure_only_an_image_that_is_not_pushed_stays(options: BuildOptions) -> None:
    world, tag = World(), f"{VERSION}-ubuntu22.04"
    other = DriverImage(
        ("b",), parse_repository("other.example.com/x/driver"), VERSION, {BuildTarget("ubuntu22.04"): (tag,)}
    )
    world.unreachable = {"other.example.com"}
    built = world.built(options)
    states = built.compare([image(), other])
    with pytest.raises(ToolFailed, match="no answer"):
        built.apply(states, lambda dummy: None)
    assert world.stored == {states[1].spec.local_name}
    world.unreachable, world.done = set(), []
    assert world.run(options, image(), other) == [f"push {tag}"]


@pytest.mark.parametrize("moment", ["while_waiting", "while_building"])
def test_an_image_of_others_that_appears_during_the_run_is_kept(options: BuildOptions, moment: str) -> None:
    world = World()
    built = world.built(options)
    states = built.compare([image()])
    setattr(world, moment, lambda: world.store(OLD, {"maintainer": "x"}))
    with pytest.raises(InvalidOptions, match=f"{OLD}: was not built by this collection"):
        built.apply(states, lambda dummy: None)
    assert not any(text.startswith(("push", "tag")) for text in world.done)


def test_an_image_that_another_machine_has_pushed_during_the_build(options: BuildOptions) -> None:
    world, other = World(), World()
    other.run(options, image(rhel9=(NEW,)))
    world.while_building = lambda: world.images.update(other.images)
    assert world.run(options, image()) == ["build rhel9", f"tag {OLD}"]
