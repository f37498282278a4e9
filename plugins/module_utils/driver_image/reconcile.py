# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares the driver images in the registry with the declared ones, and builds, copies and tags missing images."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import dataclass, field

from ..common.errors import InvalidOptions, ModuleFailure
from ..registry.client import RegistryClient
from ..registry.image_copy import CopySpec, CopyState, ImageCopier
from ..registry.manifest import Manifest, labels_of
from ..registry.reference import ImageReference
from .build import BuildOptions, BuildSpec, ImageBuilder, find_spec, inputs_of
from .desired_images import DriverImage

Progress = t.Callable[[str], None]


@dataclass
class TargetState:
    """The image of one build target, with its build spec and the digest of each of its tags; the digest is None for a tag without an image."""

    image: DriverImage
    spec: BuildSpec
    actual: dict[str, str | None]
    # The digest of an image in the repository that was built from the same inputs; empty if there is none.
    built: str = ""
    foreign: list[str] = field(default_factory=list)

    @property
    def missing(self) -> list[str]:
        """The tags that do not refer to the image yet."""
        return [tag for tag, digest in self.actual.items() if not digest or digest != self.built]

    @property
    def action(self) -> str:
        """The action that a run takes: unchanged, tagged (the image exists under another tag) or built."""
        if not self.missing:
            return "unchanged"
        return "tagged" if self.built else "built"


class BuiltImages:
    """Images that are built from an installer."""

    def __init__(
        self, client: RegistryClient, builder: ImageBuilder, options: BuildOptions, *, replace_foreign: bool
    ) -> None:
        """`replace_foreign` is true if tags that refer to foreign images are replaced."""
        self._client, self._builder, self._options, self._replace_foreign = client, builder, options, replace_foreign

    def compare(self, images: t.Sequence[DriverImage]) -> list[TargetState]:
        """The state of each image; raises InvalidOptions with all problems."""
        states: list[TargetState] = []
        problems: list[str] = []
        for image in images:
            for target, tags in image.targets.items():
                try:
                    spec = find_spec(target, image.version, self._options)
                except InvalidOptions as error:
                    problems += error.problems
                    continue
                states.append(self._compare(image, spec, tags))
        problems += self._foreign(states)
        if problems:
            raise InvalidOptions(list(dict.fromkeys(problems)))
        return states

    def _foreign(self, states: t.Sequence[TargetState]) -> list[str]:
        """The problems with tags that refer to foreign images, which are replaced only with `replace_foreign`."""
        return [
            f"{state.image.repository.with_tag(tag)}: was not built by this collection. Choose another driver.image, or set force: true to replace it"
            for state in states
            for tag in state.foreign
            if not self._replace_foreign
        ]

    def _refresh(self, state: TargetState) -> None:
        """Read the tags again: another run may have pushed the image while this run waited or built it. Raises InvalidOptions for foreign images."""
        fresh = self._compare(state.image, state.spec, list(state.actual))
        if problems := self._foreign([fresh]):
            raise InvalidOptions(problems)
        state.actual, state.built, state.foreign = fresh.actual, fresh.built, fresh.foreign

    def _compare(self, image: DriverImage, spec: BuildSpec, tags: t.Sequence[str]) -> TargetState:
        references = {tag: image.repository.with_tag(tag) for tag in tags}
        state = TargetState(image, spec, {tag: self._client.digest(one) for tag, one in references.items()})
        read: dict[str, str] = {}
        for tag, digest in state.actual.items():
            if digest is None:
                continue
            if digest not in read:
                read[digest] = self._inputs(image.repository.with_digest(digest))
            if read[digest] == spec.inputs:
                state.built = digest
            elif not read[digest]:
                state.foreign.append(tag)
        return state

    def _inputs(self, image: ImageReference) -> str:
        manifest = self._client.manifest(image)
        if manifest is None or manifest.is_index:
            return ""
        return inputs_of(labels_of(self._client.config(image, manifest)))

    def apply(self, states: t.Sequence[TargetState], report: Progress) -> None:
        """Build and push the images that are missing; each additional tag needs one request.

        Pushed images and the images of a killed run are removed from buildah's storage, even if another image fails. An image that has not been pushed
        yet is kept for the next run.
        """
        specs = {
            state.spec.local_name: state.spec
            for state in states
            if state.action == "built" or self._builder.was_killed(state.spec)
        }
        with contextlib.ExitStack() as stack:
            # All runs lock in the same order, so that two runs never wait for each other.
            for name in sorted(specs):
                stack.enter_context(self._builder.exclusive(specs[name], report))
            try:
                for state in states:
                    self._apply(state, report)
            except BaseException:
                with contextlib.suppress(ModuleFailure):
                    self._remove_pushed(specs, states)
                raise
            self._remove_pushed(specs, states)

    def _remove_pushed(self, specs: t.Mapping[str, BuildSpec], states: t.Sequence[TargetState]) -> None:
        needed = {state.spec.local_name for state in states if state.action == "built"}
        for name, spec in specs.items():
            if name not in needed:
                self._builder.remove(spec)

    def _apply(self, state: TargetState, report: Progress) -> None:
        if state.action == "built":
            self._refresh(state)
        if state.action == "built":
            report(f"building {state.image.repository.with_tag(state.missing[0])}")
            self._builder.build(state.spec)
            self._refresh(state)
        missing = [state.image.repository.with_tag(tag) for tag in state.missing]
        if not missing:
            return
        others = missing
        if not state.built:
            report(f"pushing {missing[0]}")
            self._builder.push(state.spec, missing[0])
            others = missing[1:]
        manifest = self._stored(state, missing[0])
        state.built = manifest.digest
        for reference in others:
            self._client.put(reference, manifest)
        state.actual = dict.fromkeys(state.actual, manifest.digest)

    def _stored(self, state: TargetState, first: ImageReference) -> Manifest:
        manifest = self._client.manifest(first.with_digest(state.built) if state.built else first)
        if manifest is None:
            raise InvalidOptions(
                [f"{first}: the registry does not return the image that it has just stored. Run the playbook again"]
            )
        return manifest


def require_no_replacement(states: t.Iterable[CopyState]) -> None:
    """Raise InvalidOptions for tags that refer to a different image, because an image does not show whether this collection has copied it."""
    problems = [
        f"{name}: is not the image {state.spec.source}. Choose another driver.image, or set force: true to replace it"
        for state in states
        for name, digest in state.actual.items()
        if digest and digest != state.desired
    ]
    if problems:
        raise InvalidOptions(problems)


class CopiedImages:
    """Images that are copied from another repository, for example one on NGC."""

    def __init__(self, client: RegistryClient, copier: ImageCopier, source: ImageReference) -> None:
        """`source` is a repository without a tag."""
        self._client, self._copier, self._source = client, copier, source

    def specs(self, images: t.Sequence[DriverImage]) -> list[CopySpec]:
        """One spec for each tag. If the source lacks a tag, the image of another tag of the same target is copied. Raises InvalidOptions."""
        specs: list[CopySpec] = []
        problems: list[str] = []
        for image in images:
            for target, tags in image.targets.items():
                existing = [tag for tag in tags if self._client.digest(self._source.with_tag(tag)) is not None]
                if not existing:
                    problems.append(
                        f"{self._source}: has none of the tags {', '.join(tags)}. Check the version, and whether the repository has images for {target.folder}"
                    )
                    continue
                specs += [
                    CopySpec(
                        self._source.with_tag(tag if tag in existing else existing[0]), image.repository.with_tag(tag)
                    )
                    for tag in tags
                ]
        if problems:
            raise InvalidOptions(problems)
        return specs
