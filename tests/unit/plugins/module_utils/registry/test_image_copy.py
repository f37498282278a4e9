# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The requests and copies that follow from the digests of sources and destinations.

The registries are dictionaries: these tests are about decisions. The integration tests use a real registry.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.errors import (
    ConnectionProblem,
    InvalidOptions,
    PartialFailure,
)
from ansible_collections.accel.gpu.plugins.module_utils.registry.client import RegistryClient, RegistryError
from ansible_collections.accel.gpu.plugins.module_utils.registry.images import (
    CopySpec,
    CopyState,
    ImageCopier,
    ImageTools,
    ToolFailed,
)
from ansible_collections.accel.gpu.plugins.module_utils.registry.reference import (
    OCI_INDEX,
    OCI_MANIFEST,
    ImageReference,
    Location,
    Manifest,
    parse_image,
    parse_location,
)


def image(name: str) -> Manifest:
    """An image for one platform."""
    return Manifest(json.dumps({"mediaType": OCI_MANIFEST, "annotations": {"name": name}}).encode(), OCI_MANIFEST)


AMD, ARM, NEW = image("amd64"), image("arm64"), image("new")
PLATFORMS = {"amd64": AMD, "arm64": ARM}


def index(**platforms: Manifest) -> Manifest:
    """An index of images by architecture."""
    manifests = [
        {"digest": child.digest, "platform": {"os": "linux", "architecture": name}} for name, child in platforms.items()
    ]
    return Manifest(json.dumps({"mediaType": OCI_INDEX, "manifests": manifests}).encode(), OCI_INDEX)


BOTH = index(**PLATFORMS)


class World:
    """Registries and archives by reference, and the changes that were made to them, in their order."""

    def __init__(self) -> None:
        self.images: dict[str, Manifest] = {}
        self.done: list[str] = []
        self.failures: dict[str, Exception] = {}

    def put_image(self, name: str, manifest: Manifest) -> World:
        """Store an image under a tag, and by its digest."""
        self.images[name] = manifest
        if "@" not in name and not name.startswith("oci"):
            self.images[f"{parse_image(name).name}@{manifest.digest}"] = manifest
        return self

    # The client.
    def digest(self, reference: ImageReference) -> str | None:
        actual = self.manifest(reference)
        return actual.digest if actual else None

    def manifest(self, reference: ImageReference) -> Manifest | None:
        if str(reference) in self.failures:
            raise self.failures[str(reference)]
        return self.images.get(str(reference))

    def put(self, reference: ImageReference, manifest: Manifest) -> None:
        self.done.append(f"tag {reference}")
        self.put_image(str(reference), manifest)

    # skopeo.
    def require(self, program: str) -> None:
        if program in self.failures:
            raise self.failures[program]

    def inspect(self, location: Location) -> str:
        if str(location) not in self.images:
            raise ToolFailed("skopeo inspect failed. skopeo says: no such file.")
        return self.images[str(location)].data.decode()

    def copy(self, source: Location, destination: Location, *, all_platforms: bool) -> None:
        if f"copy {destination}" in self.failures:
            raise self.failures[f"copy {destination}"]
        self.done.append(f"copy{' all' if all_platforms else ''} {source} {destination}")
        self.put_image(str(destination), self.images[str(source)])

    def copier(self, say: Callable[..., None] | None = None) -> ImageCopier:
        return ImageCopier(cast("RegistryClient", self), cast("ImageTools", self), say)

    def compare(self, *specs: CopySpec) -> list[CopyState]:
        """The comparison."""
        return self.copier().compare(specs)

    def apply(self, *specs: CopySpec) -> list[str]:
        """The changes of a run; a second run makes none."""
        self.copier().copy(self.compare(*specs))
        done, self.done = self.done, []
        again = self.compare(*specs)
        self.copier().copy(again)
        assert (self.done, [state.action for state in again]) == ([], ["unchanged"] * len(specs))
        return done


SOURCE, TARGET = "quay.io/a:1", "r.example.com/b:1"


def spec(source: str = SOURCE, destination: str = TARGET, **fields: Any) -> CopySpec:
    """An entry."""
    return CopySpec(parse_location(source), parse_location(destination), **fields)


def world(source: Manifest = BOTH) -> World:
    """The source with both platforms."""
    actual = World().put_image(SOURCE, source)
    for child in PLATFORMS.values():
        actual.put_image(f"quay.io/a@{child.digest}", child)
    return actual


def test_an_equal_image_costs_one_request_for_each_tag() -> None:
    actual = world().put_image(TARGET, BOTH).put_image("r.example.com/b:2", BOTH)
    (state,) = actual.compare(spec(tags=("2",)))
    assert (state.action, state.different, state.desired) == ("unchanged", [], BOTH.digest)
    assert actual.apply(spec(tags=("2",))) == []


def test_a_new_image_is_copied_once_and_tagged() -> None:
    (state,) = world().compare(spec(tags=("2",)))
    assert (state.action, state.actual) == ("created", {TARGET: None, "r.example.com/b:2": None})
    assert state.result()["digest"] == BOTH.digest
    assert world().apply(spec(tags=("2",))) == [f"copy all quay.io/a@{BOTH.digest} {TARGET}", "tag r.example.com/b:2"]


def test_a_different_image_is_replaced() -> None:
    actual = world().put_image(TARGET, NEW)
    assert [state.action for state in actual.compare(spec())] == ["updated"]
    assert actual.apply(spec()) == [f"copy all quay.io/a@{BOTH.digest} {TARGET}"]


@pytest.mark.parametrize(("existing", "missing"), [(TARGET, "r.example.com/b:2"), ("r.example.com/b:2", TARGET)])
def test_an_image_under_another_tag_is_only_tagged(existing: str, missing: str) -> None:
    actual = world().put_image(existing, BOTH)
    assert [state.action for state in actual.compare(spec(tags=("2",)))] == ["updated"]
    assert actual.apply(spec(tags=("2",))) == [f"tag {missing}"]


def test_a_source_by_digest_is_not_asked_for_its_digest() -> None:
    actual = world()
    source = f"quay.io/a@{BOTH.digest}"
    actual.put_image(TARGET, BOTH)
    actual.failures[source] = RegistryError("must not be read", registry="quay.io", status=500)
    (state,) = actual.compare(spec(source))
    assert state.desired == BOTH.digest


def test_a_missing_source_by_digest_is_noticed_before_any_copy() -> None:
    source = f"quay.io/a@{NEW.digest}"
    with pytest.raises(InvalidOptions, match=f"{source}: this image does not exist"):
        world().compare(spec(source), spec(destination="r.example.com/c:1"))


def test_what_prevents_a_copy_is_known_before_it() -> None:
    actual = world().put_image("r.example.com/b:2", BOTH)
    actual.failures["skopeo"] = ConnectionProblem("skopeo is not installed on this machine.")
    # Another tag needs no program.
    actual.copier().require(actual.compare(spec(tags=("2",))))
    with pytest.raises(ConnectionProblem, match="skopeo is not"):
        actual.copier().require(actual.compare(spec()))
    with pytest.raises(InvalidOptions, match="the pull-through cache returns no image"):
        actual.copier().require(actual.compare(spec(pull_through=True)))


def test_a_manifest_that_is_not_utf_8() -> None:
    actual = world().put_image("oci:/layout:1", NEW)
    data = b'{"a": "\xff"}'
    actual.inspect = lambda location: data.decode(errors="surrogateescape")  # type: ignore[method-assign]
    (state,) = actual.compare(spec("oci:/layout:1"))
    assert state.desired == Manifest(data, OCI_MANIFEST).digest


@pytest.mark.parametrize(
    "destinations",
    [("oci:/a:0", "oci:/a/:1", "oci:/./a:2", "oci:/a:3"), tuple(f"r.example.com/b:{tag}" for tag in range(4))],
)
def test_images_are_copied_to_a_layout_or_repository_one_after_another(destinations: tuple[str, ...]) -> None:
    actual, lock = world(), threading.Lock()
    copy, together = actual.copy, list[str]()

    def alone(source: Location, destination: Location, *, all_platforms: bool) -> None:
        if not lock.acquire(blocking=False):
            together.append(str(destination))
            return
        time.sleep(0.05)
        copy(source, destination, all_platforms=all_platforms)
        lock.release()

    actual.copy = alone  # type: ignore[method-assign]
    actual.apply(*(spec(destination=destination) for destination in destinations))
    assert together == []


def test_one_platform_is_an_image_without_an_index() -> None:
    assert world().apply(spec(platforms=("linux/arm64",))) == [f"copy quay.io/a@{ARM.digest} {TARGET}"]
    assert world().apply(spec(destination="oci-archive:/a.tar", platforms=("linux/amd64",))) == [
        f"copy quay.io/a@{AMD.digest} oci-archive:/a.tar"
    ]


def test_several_platforms_are_copied_before_their_index() -> None:
    actual = world(index(**PLATFORMS, s390x=NEW))
    chosen = spec(platforms=("linux/amd64", "linux/arm64"), tags=("2",))
    (state,) = actual.compare(chosen)
    assert state.index is not None
    assert state.index.children == {"linux/amd64": AMD.digest, "linux/arm64": ARM.digest}
    assert actual.apply(chosen) == [
        f"copy quay.io/a@{AMD.digest} r.example.com/b@{AMD.digest}",
        f"copy quay.io/a@{ARM.digest} r.example.com/b@{ARM.digest}",
        f"tag {TARGET}",
        "tag r.example.com/b:2",
    ]
    assert actual.images[TARGET].digest == state.desired


def test_platforms_of_an_image_without_an_index() -> None:
    assert world(AMD).apply(spec(platforms=("linux/amd64",))) == [f"copy quay.io/a@{AMD.digest} {TARGET}"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (spec("quay.io/other:1"), "quay.io/other:1: this image does not exist; check the repository and the tag"),
        (
            spec(platforms=("linux/amd64", "linux/s390x", "windows/amd64")),
            "quay.io/a:1: has no image for linux/s390x, windows/amd64; its platforms are linux/amd64, linux/arm64",
        ),
        (
            spec(destination="oci:/a", platforms=("linux/amd64", "linux/arm64")),
            "oci:/a: an archive or a layout can contain one platform or all platforms, but linux/amd64, linux/arm64 are selected",
        ),
        (
            spec("oci:/layout", platforms=("linux/amd64",)),
            "oci:/layout: platforms is supported only if the source is an image in a registry; remove it",
        ),
    ],
)
def test_entries_that_cannot_be_copied(given: CopySpec, message: str) -> None:
    actual = world().put_image("oci:/layout", BOTH)
    with pytest.raises(InvalidOptions) as raised:
        actual.compare(given)
    assert str(raised.value).startswith(message)


def test_archives() -> None:
    with pytest.raises(ToolFailed, match="no such file"):
        world().compare(spec("oci:/nowhere"))
    actual = world().put_image("oci-archive:/a.tar", NEW)
    assert actual.apply(spec("oci-archive:/a.tar")) == [f"copy all oci-archive:/a.tar {TARGET}"]
    actual = world()
    assert actual.apply(spec(destination="oci:/layout:1")) == [f"copy all quay.io/a@{BOTH.digest} oci:/layout:1"]


def test_nothing_is_sent_to_a_pull_through_cache() -> None:
    actual = world().put_image(TARGET, BOTH)
    assert actual.apply(spec(pull_through=True)) == []
    for existing, text in ((NEW, NEW.digest), (None, "no image")):
        actual = world()
        if existing is not None:
            actual.put_image(TARGET, existing)
        states = actual.compare(spec(pull_through=True), spec(destination="r.example.com/c:1"))
        with pytest.raises(InvalidOptions, match=f"the pull-through cache returns {text} instead of {BOTH.digest}"):
            actual.copier().copy(states)
        assert actual.done == []


def test_all_comparisons_are_reported_together() -> None:
    actual = world()
    actual.failures["quay.io/x:1"] = RegistryError(
        "denied", registry="quay.io", status=403, method="HEAD", path="/v2/x"
    )
    with pytest.raises(PartialFailure) as raised:
        actual.compare(spec("quay.io/x:1", "r.example.com/x:1"), spec("quay.io/y:1", "r.example.com/y:1"), spec())
    lines = str(raised.value).splitlines()
    assert lines[0] == "2 of 3 images were not compared, so nothing was copied:"
    assert lines[1].startswith("r.example.com/x:1: Registry quay.io denies the request")
    assert lines[2].startswith("r.example.com/y:1: quay.io/y:1: this image does not exist")


def test_a_rejected_login_is_reported_once_for_all_images() -> None:
    actual = world()
    for name in "abcdefg":
        actual.failures[f"quay.io/{name}:1"] = RegistryError(
            "", registry="quay.io", status=401, method="HEAD", path=f"/v2/{name}"
        )
    with pytest.raises(PartialFailure) as raised:
        actual.compare(*(spec(f"quay.io/{name}:1", f"r.example.com/{name}:1") for name in "abcdefg"))
    head, line = str(raised.value).splitlines()
    assert head == "7 of 7 images were not compared, so nothing was copied:"
    assert line.startswith("r.example.com/a:1, ")
    assert " and 2 more: Registry quay.io requires other credentials (HEAD /v2/a)" in line


def test_all_missing_sources_are_reported_together() -> None:
    actual = world()
    missing = [spec(f"quay.io/{name}:1", f"r.example.com/{name}:1") for name in "xyx"]
    with pytest.raises(InvalidOptions) as raised:
        actual.compare(*missing, spec("quay.io/z:1", "r.example.com/z:1", platforms=("linux/amd64",)), spec())
    assert str(raised.value).splitlines()[0] == "Nothing was copied, because these images cannot be copied:"
    assert raised.value.problems == [
        f"quay.io/{name}:1: this image does not exist; check the repository and the tag" for name in "xyz"
    ]
    assert actual.done == []


def test_other_images_are_copied_after_a_failure() -> None:
    actual, progress = world(), list[tuple[str, int, int, int]]()

    def say(text: str, done: int, total: int, *, failed: int) -> None:
        progress.append((text, done, total, failed))

    actual.failures[f"copy {TARGET}"] = ToolFailed("skopeo copy failed.")
    states = actual.compare(spec(), spec(destination="r.example.com/c:1"))
    with pytest.raises(ToolFailed, match="skopeo copy failed") as raised:
        actual.copier(say).copy(states)
    assert [entry["destination"] for entry in raised.value.partial["images"]] == ["r.example.com/c:1"]
    assert actual.done == [f"copy all quay.io/a@{BOTH.digest} r.example.com/c:1"]
    # What has failed does not count as copied.
    assert set(progress) <= {(f"could not copy {TARGET}", n, 2, 1) for n in (0, 1)} | {
        ("copied r.example.com/c:1", 1, 2, n) for n in (0, 1)
    }
    assert progress[-1][1:] == (1, 2, 1)


def test_a_bug_is_raised_as_it_is() -> None:
    actual = world()
    actual.failures[SOURCE] = KeyError("bug")
    with pytest.raises(KeyError, match="bug"):
        actual.compare(spec(), spec("quay.io/y:1", "r.example.com/y:1"))


def test_two_manifests_of_one_platform() -> None:
    """Both are in the index, so both are copied; the first one is the image of the platform."""
    document = {**BOTH.document, "manifests": [*BOTH.document["manifests"], *index(amd64=NEW).document["manifests"]]}
    actual = world(Manifest(json.dumps(document).encode(), OCI_INDEX)).put_image("quay.io/a:new", NEW)
    done = actual.apply(spec(platforms=("linux/amd64", "linux/arm64")))
    copied = [f"copy quay.io/a@{one.digest} r.example.com/b@{one.digest}" for one in (AMD, ARM, NEW)]
    assert done == [*copied, f"tag {TARGET}"]
    assert actual.apply(spec(platforms=("linux/amd64",), destination="r.example.com/c:1")) == [
        f"copy quay.io/a@{AMD.digest} r.example.com/c:1"
    ]
