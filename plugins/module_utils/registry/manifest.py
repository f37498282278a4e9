# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parses and filters the manifests and indexes of images (pure).

Sources: opencontainers/image-spec manifest.md and image-index.md, distribution docs/content/spec/manifest-v2-2.md.
"""

from __future__ import annotations

import hashlib
import json
import typing as t
from dataclasses import dataclass

from ..common.nested import get_nested
from .reference import DIGEST

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
# Every request accepts all of these types, because a registry returns 404 for an existing manifest of a type that the request does not accept.
ACCEPTED = (OCI_INDEX, DOCKER_LIST, OCI_MANIFEST, DOCKER_MANIFEST)
INDEXES = frozenset({OCI_INDEX, DOCKER_LIST})

Object = dict[str, t.Any]


class InvalidManifest(ValueError):
    """A registry returned something that is not a manifest."""


@dataclass(frozen=True)
class Manifest:
    """A manifest or an index. `data` contains exactly the bytes that were read, because the digest depends on every byte."""

    data: bytes
    media_type: str

    @property
    def digest(self) -> str:
        """The digest of the bytes."""
        return digest_of(self.data)

    @property
    def document(self) -> Object:
        """The parsed bytes; raises InvalidManifest."""
        return json_object(self.data)

    @property
    def declared_type(self) -> str:
        """The media type in the bytes, for a registry that does not return it; raises InvalidManifest."""
        media_type = self.document.get("mediaType")
        return media_type if isinstance(media_type, str) else ""

    @property
    def is_index(self) -> bool:
        """Whether this is an index, which lists the manifests of several platforms."""
        return self.media_type in INDEXES

    @property
    def children(self) -> dict[str, str]:
        """The digest of the manifest for each platform in an index. Attestations, whose platform is unknown, are ignored. Raises InvalidManifest.

        If a platform has several manifests, the first one is returned, because container runtimes use the first one.
        """
        digests: dict[str, str] = {}
        for entry in entries_of(self.document, "manifests"):
            platform = image_platform(entry.get("platform"))
            if platform and not platform.startswith("unknown/"):
                digests.setdefault(platform, _digest(entry.get("digest")))
        return digests

    @property
    def digests(self) -> list[str]:
        """The digests of all manifests in an index, without duplicates. Raises InvalidManifest."""
        return list(dict.fromkeys(_digest(entry.get("digest")) for entry in entries_of(self.document, "manifests")))

    @property
    def config_digest(self) -> str:
        """The digest of the configuration of an image; empty for an index. Raises InvalidManifest."""
        digest = get_nested(self.document, "config", "digest")
        return _digest(digest) if digest else ""

    @property
    def size(self) -> int:
        """The total size of all layers and the configuration, in bytes; 0 for an index. Raises InvalidManifest."""
        document = self.document
        parts = [document.get("config") or {}, *entries_of(document, "layers")]
        sizes = [part.get("size") or 0 for part in parts if isinstance(part, dict)]
        if len(sizes) < len(parts) or not all(isinstance(size, int) for size in sizes):
            raise InvalidManifest("a part of the image has no valid size")
        return sum(sizes)

    def check(self) -> None:
        """Raise InvalidManifest if a part cannot be read."""
        for part in ("children", "config_digest", "size"):
            getattr(self, part)


def digest_of(data: bytes) -> str:
    """The digest of a manifest or blob."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def json_object(data: bytes) -> Object:
    """The JSON object in the bytes that a registry returned; raises InvalidManifest."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise InvalidManifest("the response is not a JSON object")
    return document


def entries_of(document: Object, field: str) -> list[Object]:
    """The objects in a list of a manifest; raises InvalidManifest."""
    entries = document.get(field) or []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InvalidManifest(f"its field {field} is not a list of objects")
    return entries


def _digest(value: t.Any) -> str:
    """Validate a digest that a registry returned, because it becomes part of an address; raises InvalidManifest."""
    if not isinstance(value, str) or not DIGEST.fullmatch(value):
        raise InvalidManifest("it refers to an invalid digest")
    return value


def image_platform(value: t.Any) -> str:
    """A platform as a string, such as linux/amd64 or linux/arm64/v8; empty if it is not given."""
    if not isinstance(value, dict):
        return ""
    parts = (value.get("os"), value.get("architecture"), value.get("variant"))
    return "/".join(str(part) for part in parts if part)


def without_other_platforms(index: Manifest, platforms: t.Sequence[str]) -> Manifest:
    """The index with only the manifests for these platforms. Every run creates the same bytes, and therefore the same digest."""
    document = index.document
    kept = [
        entry
        for entry in entries_of(document, "manifests")
        if is_among(image_platform(entry.get("platform")), platforms)
    ]
    text = json.dumps({**document, "manifests": kept}, indent=3, ensure_ascii=False)
    return Manifest(text.encode(), index.media_type)


def is_among(platform: str, platforms: t.Sequence[str]) -> bool:
    """Whether a platform is in the list. An entry without a variant, such as linux/arm64, includes all variants."""
    return any(platform == one or platform.startswith(f"{one}/") for one in platforms)


def labels_of(config: Object) -> Object:
    """The labels in the configuration of an image."""
    settings = config.get("config")
    labels = settings.get("Labels") if isinstance(settings, dict) else None
    return labels if isinstance(labels, dict) else {}
