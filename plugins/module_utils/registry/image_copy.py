# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copies images between registries, archives and layouts. Compares the digests, and copies only images that differ."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import typing as t
from dataclasses import dataclass, field

from ..common.errors import InvalidOptions, ModuleFailure, PartialFailure, ServiceError
from ..common.parallel import run_bounded
from ..schema.messages import abbreviate
from .client import RegistryClient
from .errors import RegistryError
from .image_tools import ImageTools, ToolFailed
from .manifest import Manifest, digest_of, is_among, without_other_platforms
from .reference import LAYOUT, FileReference, ImageReference, Location

# The maximum number of parallel comparisons, and of parallel copies.
_COMPARISONS, _COPIES = 16, 4


@dataclass(frozen=True)
class CopySpec:
    """A source image and its destination, with additional tags for the same repository. Without platforms, all platforms are copied."""

    source: Location
    destination: Location
    tags: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    pull_through: bool = False

    @property
    def name(self) -> str:
        """The destination as text, which identifies the entry."""
        return str(self.destination)

    @property
    def targets(self) -> tuple[Location, ...]:
        """The destination under each tag."""
        if isinstance(self.destination, FileReference):
            return (self.destination,)
        return (self.destination, *(self.destination.with_tag(tag) for tag in self.tags))


@dataclass
class CopyState:
    """The comparison of one entry. `desired` is the digest that every target must have. `actual` contains the current digest of each target, or
    None for a target without an image.
    """

    spec: CopySpec
    source_digest: str = ""
    desired: str = ""
    index: Manifest | None = field(default=None, repr=False)
    actual: dict[str, str | None] = field(default_factory=dict)

    @property
    def different(self) -> list[Location]:
        """The targets without the desired image."""
        return [target for target in self.spec.targets if self.actual.get(str(target)) != self.desired]

    @property
    def action(self) -> str:
        """The effect of a run on the targets: created, updated or unchanged."""
        if not self.different:
            return "unchanged"
        return "updated" if any(self.actual.values()) else "created"

    def result(self) -> dict[str, t.Any]:
        """The entry in the format that the module returns."""
        return {
            "source": str(self.spec.source),
            "destination": str(self.spec.destination),
            "tags": list(self.spec.tags),
            "digest": self.desired,
            "action": self.action,
        }


class ImageCopier:
    """Compares images and copies those that differ, in parallel."""

    def __init__(self, client: RegistryClient, tools: ImageTools, say: t.Callable[..., None] | None = None) -> None:
        """say: reports the progress (Progress.report)."""
        self._client, self._tools, self._say = client, tools, say
        self._lock = threading.Lock()
        self._places: dict[str, threading.Lock] = {}

    def compare(self, specs: t.Sequence[CopySpec]) -> list[CopyState]:
        """The state of each entry; sends one request for the source and one for each target. Raises InvalidOptions or PartialFailure with all errors."""
        outcomes = run_bounded(
            [(spec.name, functools.partial(self._compare, spec)) for spec in specs],
            _COMPARISONS,
            fatal=lambda dummy: False,
        )
        errors = [one.error for one in outcomes if one.error is not None]
        if errors and all(isinstance(error, InvalidOptions) for error in errors):
            problems = [problem for error in errors for problem in t.cast("InvalidOptions", error).problems]
            raise InvalidOptions(
                list(dict.fromkeys(problems)), "Nothing was copied, because these images cannot be copied:"
            )
        _raise_failures([(one.name, one.error) for one in outcomes], [], "compared, so nothing was copied")
        return [t.cast("CopyState", one.value) for one in outcomes]

    def require(self, states: t.Sequence[CopyState]) -> None:
        """Raise InvalidOptions or ConnectionProblem if a foreseeable problem prevents a copy, even in check mode."""
        _check_caches([state for state in states if state.different])
        if any(state.desired not in state.actual.values() for state in states):
            self._tools.require("skopeo")

    def copy(self, states: t.Sequence[CopyState]) -> None:
        """Copy the entries that differ; after a failure, the other entries are still copied. Raises PartialFailure with all errors."""
        self.require(states)
        different = [state for state in states if state.different]
        done: list[CopyState] = []

        def report(outcome: t.Any, finished: int) -> None:
            if outcome.ok:
                done.append(outcome.value)
            if self._say is not None:
                text = f"{'copied' if outcome.ok else 'could not copy'} {outcome.name}"
                self._say(text, len(done), len(different), failed=finished - len(done))

        outcomes = run_bounded(
            [(state.spec.name, functools.partial(self._copy, state)) for state in different],
            _COPIES,
            on_done=report,
            fatal=lambda dummy: False,
        )
        _raise_failures([(one.name, one.error) for one in outcomes], done, "copied")

    def _compare(self, spec: CopySpec) -> CopyState:
        state = CopyState(spec)
        state.source_digest = self._digest(spec.source, required=True) or ""
        state.desired = state.source_digest
        if spec.platforms:
            self._select_platforms(state)
        for target in spec.targets:
            state.actual[str(target)] = self._digest(target, required=False)
        if state.desired not in state.actual.values():
            self._require_source(spec.source)
        return state

    def _require_source(self, source: Location) -> None:
        """Raise InvalidOptions if the source image does not exist. A source that is specified by digest is read only if it must be copied."""
        if isinstance(source, ImageReference) and source.digest and self._client.digest(source) is None:
            raise _no_such_image(source)

    def _select_platforms(self, state: CopyState) -> None:
        """Set the desired digest to that of the chosen platforms."""
        source, destination = state.spec.source, state.spec.destination
        if not isinstance(source, ImageReference):
            raise InvalidOptions(
                [f"{source}: platforms is supported only if the source is an image in a registry; remove it"]
            )
        digest, index = select_platforms(self._client, source, state.spec.platforms)
        if index is not None and isinstance(destination, FileReference):
            raise InvalidOptions(
                [
                    f"{destination}: an archive or a layout can contain one platform or all platforms, but {', '.join(sorted(index.children))} are "
                    "selected; select one of them, or remove platforms"
                ]
            )
        state.index, state.desired = index, digest or state.desired

    def _digest(self, location: Location, *, required: bool) -> str | None:
        """The digest; None if the image does not exist."""
        if isinstance(location, ImageReference):
            digest = location.digest if required and location.digest else self._client.digest(location)
        else:
            digest = self._file_digest(location, required=required)
        if digest is None and required:
            raise _no_such_image(location)
        return digest

    def _file_digest(self, location: FileReference, *, required: bool) -> str | None:
        try:
            return digest_of(self._tools.inspect(location).encode(errors="surrogateescape"))
        except ToolFailed:
            if required:
                raise
            # skopeo has no separate exit status for an archive that does not exist.
            return None

    def _copy(self, state: CopyState) -> CopyState:
        missing = state.different
        if state.desired not in state.actual.values():
            missing = missing[self._copy_layers(state, missing[0]) :]
        if missing:
            self._tag(state, t.cast("list[ImageReference]", missing))
        return state

    def _copy_layers(self, state: CopyState, first: Location) -> int:
        """Copy the image to the first target; returns the number of targets that the copy has completed."""
        source, chosen = state.spec.source, bool(state.spec.platforms)
        with self._exclusive(first):
            if state.index is not None and isinstance(source, ImageReference) and isinstance(first, ImageReference):
                # Copies only the manifests of the chosen platforms, without a tag; _tag() writes their index.
                for digest in state.index.digests:
                    self._tools.copy(source.with_digest(digest), first.with_digest(digest), all_platforms=False)
                return 0
            if isinstance(source, ImageReference):
                source = source.with_digest(state.desired)
            self._tools.copy(source, first, all_platforms=not chosen)
        return 1

    def _exclusive(self, target: Location) -> contextlib.AbstractContextManager[t.Any]:
        """A lock that allows only one copy to a repository or a layout at a time.

        The images of a repository share layers. Parallel copies would send such a layer twice, and a registry that stores its layers as files
        (distribution) responds with status 500 if it is asked for a layer while another copy creates the layer's link. skopeo does not lock the index
        of a layout, so one of two images would be lost.
        """
        if isinstance(target, ImageReference):
            place = target.name
        elif target.kind == LAYOUT:
            place = os.path.normpath(target.path)
        else:
            return contextlib.nullcontext()
        with self._lock:
            return self._places.setdefault(place, threading.Lock())

    def _tag(self, state: CopyState, missing: t.Sequence[ImageReference]) -> None:
        """Write the manifest under each tag, with one request for each."""
        manifest = state.index or self._client.manifest(missing[0].with_digest(state.desired))
        if manifest is None:
            raise ToolFailed(
                f"{missing[0].name}: the registry no longer has the image {state.desired}, which existed when the run began. Run the playbook again."
            )
        for target in missing:
            self._client.put(target, manifest)


def select_platforms(
    client: RegistryClient, source: ImageReference, platforms: t.Sequence[str]
) -> tuple[str | None, Manifest | None]:
    """The digest of an image with only these platforms, and its index if there are several of them. Both are None if the image has no index.

    Raises InvalidOptions if the image lacks a platform.
    """
    manifest = client.manifest(source)
    if manifest is None or not manifest.is_index:
        return None, None
    chosen = {name: digest for name, digest in manifest.children.items() if is_among(name, platforms)}
    missing = [name for name in platforms if not any(is_among(one, [name]) for one in chosen)]
    if missing:
        raise InvalidOptions(
            [
                f"{source}: has no image for {', '.join(missing)}; its platforms are {', '.join(sorted(manifest.children))}"
            ]
        )
    if len(chosen) == 1:
        return next(iter(chosen.values())), None
    index = without_other_platforms(manifest, platforms)
    return index.digest, index


def _no_such_image(location: Location) -> InvalidOptions:
    return InvalidOptions([f"{location}: this image does not exist; check the repository and the tag"])


def _check_caches(different: t.Iterable[CopyState]) -> None:
    """Raise InvalidOptions if a pull-through cache returns a wrong image or none. The image cannot be copied, because a cache accepts no pushed images."""
    problems = [
        f"{state.spec.destination}: the pull-through cache returns {next(iter(state.actual.values())) or 'no image'} instead of {state.desired}. Check "
        "the address of the registry that it reads from, its credentials there, and for how long it keeps tags"
        for state in different
        if state.spec.pull_through
    ]
    if problems:
        raise InvalidOptions(problems, "The caches do not have these images:")


def _same_cause(failed: t.Sequence[tuple[str, Exception]]) -> list[list[tuple[str, Exception]]]:
    """The failures grouped by cause. If a registry does not respond or rejects a login, all images in that registry fail in the same way."""
    groups: dict[t.Any, list[tuple[str, Exception]]] = {}
    for name, error in failed:
        key: t.Any = name
        if isinstance(error, RegistryError) and (error.unreachable or error.status == 401):
            key = (error.registry, error.status, error.reason, error.login)
        groups.setdefault(key, []).append((name, error))
    return list(groups.values())


def _raise_failures(outcomes: t.Sequence[tuple[str, Exception | None]], done: t.Sequence[CopyState], verb: str) -> None:
    """Raise one error for all failures; an unexpected exception is raised unchanged."""
    failed = [(name, error) for name, error in outcomes if error is not None]
    if not failed:
        return
    for dummy, error in failed:
        if not isinstance(error, ServiceError | ModuleFailure):
            raise error
    partial = {"changed": bool(done), "images": [state.result() for state in done]}
    if len(failed) == 1:
        error = t.cast("ServiceError | ModuleFailure", failed[0][1])
        error.partial = {**error.partial, **partial}
        raise error
    lines = [f"{abbreviate([name for name, dummy in group])}: {group[0][1]}" for group in _same_cause(failed)]
    raise PartialFailure(f"{len(failed)} of {len(outcomes)} images were not {verb}:\n" + "\n".join(lines), partial)
