# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Converts the entries of `images` to specs, and finds all problems in them (pure)."""

from __future__ import annotations

import os
import re
import typing as t

from ..schema.messages import quote
from .image_copy import CopySpec
from .reference import (
    DOCKER_ARCHIVE,
    LAYOUT,
    FileReference,
    ImageReference,
    InvalidReference,
    Location,
    parse_location,
    tag_problem,
)

_PLATFORM = re.compile(r"[a-z0-9]+/[a-z0-9_]+(?:/[a-z0-9]+)?")

Document = t.Mapping[str, t.Any]


def parse_specs(images: t.Sequence[Document]) -> tuple[list[CopySpec], list[str]]:
    """The specs and the problems. Two entries that write the same tag are a problem."""
    specs: list[CopySpec] = []
    problems: list[str] = []
    targets: dict[str, str] = {}
    files: dict[str, tuple[str, str]] = {}
    for index, entry in enumerate(images):
        path = f"images[{index}]"
        before = len(problems)
        source = _location(f"{path}.source", entry["source"], problems)
        destination = _location(f"{path}.destination", entry["destination"], problems)
        problems += _field_problems(path, entry, destination)
        if len(problems) > before or source is None or destination is None:
            continue
        spec = CopySpec(source, destination, tuple(entry["tags"]), tuple(entry["platforms"]), entry["pull_through"])
        for target in map(str, spec.targets):
            if target in targets:
                problems.append(f"{path}: {target} is also written by {targets[target]}; remove one of them")
            targets[target] = path
        if isinstance(destination, FileReference):
            # Only a layout can contain several images; a copy to an archive or to a folder replaces the existing image.
            kind, other = files.setdefault(os.path.normpath(destination.path), (destination.kind, path))
            if other != path and (kind, destination.kind) != (LAYOUT, LAYOUT):
                problems.append(
                    f"{path}: {destination.path} is also the destination of {other}, but can contain only one image; use a different path"
                )
        specs.append(spec)
    return specs, problems


def _location(path: str, text: str, problems: list[str]) -> Location | None:
    try:
        return parse_location(text)
    except InvalidReference as error:
        problems.append(f"{path}: {quote(text)} {error}")
        return None


def _field_problems(path: str, entry: Document, destination: Location | None) -> t.Iterator[str]:
    if isinstance(destination, ImageReference) and destination.digest:
        yield f"{path}.destination: {entry['destination']!r} contains a digest, but the image determines the digest; specify a tag instead"
    if isinstance(destination, FileReference) and destination.kind == DOCKER_ARCHIVE:
        yield f"{path}.destination: {DOCKER_ARCHIVE} cannot keep digests; use oci-archive instead"
    if isinstance(destination, FileReference) and entry["tags"]:
        yield f"{path}.tags: has no effect for an archive or a layout; remove it"
    if isinstance(destination, FileReference) and entry["pull_through"]:
        yield f"{path}.pull_through: is supported only for a registry, not for an archive or a layout; remove it"
    for number, tag in enumerate(entry["tags"]):
        if problem := tag_problem(tag):
            yield f"{path}.tags[{number}]: {tag!r} {problem}"
    for number, platform in enumerate(entry["platforms"]):
        if not _PLATFORM.fullmatch(platform):
            yield f"{path}.platforms[{number}]: {platform!r} is not a platform; use os/architecture, such as linux/amd64"
