# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Determines the driver images that the pools need, with every tag that the operator will request (pure)."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ..catalog.driver_images import PUBLIC_REGISTRIES, BuildTarget, build_target, os_tag
from ..registry.reference import ImageReference, InvalidReference, parse_repository
from ..schema.driver import VGPU_TYPE, driver_of_values, effective_driver
from ..schema.messages import join_words, quote

if t.TYPE_CHECKING:
    from ..cluster_state.operating_systems import System
    from ..pools.plan import Plan, PoolPlan


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
) -> tuple[list[DriverImage], list[str]]:
    """The images of all pools with a vGPU driver, and the problems with pools. `systems_of` returns the operating systems of a pool's nodes."""
    inherited = driver_of_values(plan.operator.values)
    needed: dict[tuple[ImageReference, str], tuple[list[str], set[System]]] = {}
    problems: list[str] = []
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
            problems.append(
                f"Pool {pool.name}: the operating system of its nodes is not known yet, because NFD has not labeled any of them. Set "
                "gpu_driver_image_operating_systems (option operating_systems of the module), such as [rhel9.6]"
            )
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
    return images, problems


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
