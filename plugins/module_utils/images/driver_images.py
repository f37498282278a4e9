# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver images that the pools of a cluster need, built and pushed."""

from __future__ import annotations

import contextlib
import functools
import re
import typing as t
from dataclasses import dataclass, field

from ..catalog.names import NFD_PREFIX
from ..catalog.releases import KERNEL_LABEL, OS_LABELS, PUBLIC_REGISTRIES, BuildTarget, build_target, os_tag
from ..core.errors import InvalidOptions, ModuleFailure
from ..core.messages import join_words, quote
from ..nodes.node import parse_node
from ..nodes.ownership import assign_pools
from ..registry.images import CopySpec, CopyState, ImageCopier
from ..registry.reference import ImageReference, InvalidReference, Manifest, labels_of, parse_repository
from ..schema.driver import VGPU_TYPE, driver_of_values, effective_driver
from .driver_build import BuildOptions, BuildSpec, ImageBuilder, find_spec, inputs_of

if t.TYPE_CHECKING:
    from ..nodes.node import Node
    from ..pools.plan import Plan, PoolPlan
    from ..registry.client import RegistryClient

# Determines the operating systems of the nodes of each pool from NFD's labels; the tags of driver images depend on them (pure).

# ID and VERSION_ID of /etc/os-release.
System = tuple[str, str]
_SYSTEM = re.compile(r"(?P<system>[a-z]+(?:[-_][a-z]+)*)(?P<version>\d+(?:\.\d+)*)")


class NodeSystems:
    """The operating systems of pools: the given ones, or those of the pools' nodes if none are given."""

    def __init__(
        self, given: t.Sequence[str], pools: t.Sequence[PoolPlan], read_nodes: t.Callable[[], t.Iterable[t.Any]]
    ) -> None:
        """`read_nodes` lists the nodes; it is called only for kernels, or if no systems are given. Raises InvalidOptions with all errors in `given`."""
        self._given = parse_systems(given)
        self._pools, self._read_nodes = pools, read_nodes
        self._by_pool: dict[str, set[System]] = {}
        self._all: set[System] = set()
        if self._given:
            return
        nodes = self._nodes
        by_name = {node.name: system for node in nodes if (system := system_of(node))}
        gpu_nodes = {node.name for node in nodes if node.has_gpu}
        self._all = {system for name, system in by_name.items() if name in gpu_nodes} or set(by_name.values())
        for pool, names in assign_pools(pools, nodes).by_pool.items():
            self._by_pool[pool] = {by_name[name] for name in names if name in by_name}

    def of_pool(self, pool: PoolPlan) -> set[System]:
        """The systems of a pool's nodes; those of all GPU nodes if none are known yet."""
        return self._given or self._by_pool.get(pool.name) or self._all

    def of_all(self) -> set[System]:
        """The systems of all GPU nodes; those of all nodes while no GPU is known."""
        return self._given or self._all

    def kernels(self, pool: PoolPlan | None) -> set[tuple[System, str]]:
        """The pairs of system and kernel of a pool's nodes, or of all GPU nodes if the pool has none. The tags of precompiled drivers contain both."""
        names = assign_pools(self._pools, self._nodes).by_pool.get(pool.name, ()) if pool else ()
        chosen = [node for node in self._nodes if node.name in set(names)] or [
            node for node in self._nodes if node.has_gpu
        ]
        return {(system, kernel) for node in chosen if (system := system_of(node)) and (kernel := kernel_of(node))}

    @functools.cached_property
    def _nodes(self) -> list[Node]:
        return [parse_node(item) for item in self._read_nodes()]


def parse_systems(texts: t.Sequence[str]) -> set[System]:
    """Parse operating systems, for example rhel9.6 or ubuntu22.04; raises InvalidOptions with all errors."""
    matches = [_SYSTEM.fullmatch(text) for text in texts]
    problems = [
        f"operating_systems[{index}]: {text!r} is not an operating system; specify ID and VERSION_ID from /etc/os-release, such as rhel9.6"
        for index, (text, match) in enumerate(zip(texts, matches, strict=True))
        if match is None
    ]
    if problems:
        raise InvalidOptions(problems)
    return {(match["system"], match["version"]) for match in matches if match}


def system_of(node: Node) -> System | None:
    """The operating system of a node; None if NFD has not labeled it."""
    system, version = (node.labels.get(f"{NFD_PREFIX}{label}", "") for label in OS_LABELS)
    return (system, version) if system and version else None


def kernel_of(node: Node) -> str:
    """The kernel of a node; empty if NFD has not labeled it."""
    return node.labels.get(f"{NFD_PREFIX}{KERNEL_LABEL}", "")


# Determines the driver images that the pools need, with every tag that the operator will request (pure).


@dataclass(frozen=True)
class DriverImage:
    """The driver image of one or several pools: its repository, the bare version, and the operating systems for which it is needed.

    `targets` contains the tags by build target; all tags of a target refer to the same image.
    """

    pools: tuple[str, ...]
    repository: ImageReference
    version: str
    targets: dict[BuildTarget, tuple[str, ...]]

    @property
    def tags(self) -> tuple[str, ...]:
        """All tags, sorted."""
        return tuple(sorted(tag for tags in self.targets.values() for tag in tags))


def desired_images(
    plan: Plan,
    systems_of: t.Callable[[PoolPlan], t.Collection[System]],
    operator_versions: t.Collection[str],
    *,
    allow_public_registry: bool,
) -> tuple[list[DriverImage], list[str], list[str]]:
    """The images of all pools with a vGPU driver, the problems with pools, and the pools whose operating systems are not known.

    `systems_of` returns the operating systems of a pool's nodes.
    """
    inherited = driver_of_values(plan.operator.values)
    needed: dict[tuple[ImageReference, str], tuple[list[str], set[System]]] = {}
    problems: list[str] = []
    unknown_pools: list[str] = []
    for pool in plan.pools:
        driver = effective_driver(inherited, pool.driver)
        if driver.get("type") != VGPU_TYPE:
            continue
        target = _repository(pool, driver, allow_public_registry=allow_public_registry)
        if isinstance(target, str):
            problems.append(target)
            continue
        version = driver.get("version")
        if not isinstance(version, str) or not re.match(r"\d+\.", version):
            problems.append(
                f"Pool {pool.name}: driver.version is {quote('' if version is None else version)}; set the version of the image, such as 580.95.05"
            )
            continue
        systems = systems_of(pool)
        if not systems:
            unknown_pools.append(pool.name)
            continue
        names, known = needed.setdefault((target, version), ([], set()))
        names.append(pool.name)
        known.update(systems)
    images = []
    for (repository, version), (names, known) in needed.items():
        targets, unknown = tags_by_target(version, known, operator_versions)
        problems += [
            f"Pool {join_words(names)}: gpu-driver-container has no directory for the operating system {name}"
            for name in unknown
        ]
        images.append(DriverImage(tuple(names), repository, version, targets))
    return images, problems, unknown_pools


def tags_by_target(
    version: str, systems: t.Collection[System], operator_versions: t.Collection[str]
) -> tuple[dict[BuildTarget, tuple[str, ...]], list[str]]:
    """The tags by build target, and the operating systems for which gpu-driver-container has no folder.

    During an upgrade of the operator, the old and the new release may request different tags of the same image, so both tags are included.
    """
    targets: dict[BuildTarget, set[str]] = {}
    unknown = []
    for system, number in sorted(systems):
        suffixes = {os_tag(system, number, operator) for operator in operator_versions}
        target = build_target(f"{system}{number}")
        if target is None:
            unknown.append(f"{system}{number}")
        else:
            targets.setdefault(target, set()).update(f"{version}-{suffix}" for suffix in suffixes)
    return {target: tuple(sorted(tags)) for target, tags in sorted(targets.items())}, unknown


def _repository(pool: PoolPlan, driver: t.Mapping[str, t.Any], *, allow_public_registry: bool) -> ImageReference | str:
    """The repository of a pool's image or the problem with it."""
    text = f"{driver.get('repository') or ''}/{driver.get('image') or 'driver'}"
    try:
        repository = parse_repository(text)
    except InvalidReference as error:
        return f"Pool {pool.name}: the image {quote(text)} of its driver {error}"
    if repository.registry in PUBLIC_REGISTRIES and not allow_public_registry:
        return (
            f"Pool {pool.name}: {repository.registry} is a public registry, and NVIDIA's license does not allow the publication of the vGPU driver. Use a "
            "private registry in driver.repository; or set allow_public_registry: true, if only licensed users can read this repository"
        )
    return repository


# Compares the driver images in the registry with the declared ones, and builds, copies and tags missing images.

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
