# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""References to images, and the manifests behind them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import typing as t
from dataclasses import dataclass

from ..core.values import Object, get_nested

# Parses references to images in a registry, or in an archive or layout on this machine (pure).
#
# Sources: github.com/distribution/reference (grammar and lengths), containers/image docs/containers-transports.5.md (the other transports).

# An image outside a registry: an archive (a tar file), or a layout (a folder).
DOCKER_ARCHIVE = "docker-archive"
LAYOUT = "oci"
FILE_TRANSPORTS = ("oci-archive", DOCKER_ARCHIVE, LAYOUT, "dir")
# The registry of names without a host, and its folder for names without a folder.
HUB, HUB_FOLDER = "docker.io", "library"
_HOST = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9.]*[A-Za-z0-9])?(?::[0-9]+)?")
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# A user, with or without a password, before the host. An @ before a digest does not match.
_USER_INFO = re.compile(
    r"(?:[A-Za-z][A-Za-z0-9+.-]*://)?(?P<user>[^/:@]*)(?::(?P<password>.*))?@(?!sha256:)", re.DOTALL
)
_MAX_REPOSITORY = 255


class InvalidReference(ValueError):
    """The string is not an image reference. The message is the end of the sentence "<path>: <text> ..."."""


@dataclasses.dataclass(frozen=True)
class ImageReference:
    """An image in a registry, identified by a tag, a digest, or both. A reference to a repository has neither."""

    registry: str
    repository: str
    tag: str | None = None
    digest: str | None = None

    @property
    def name(self) -> str:
        """The registry and the repository."""
        return f"{self.registry}/{self.repository}"

    @property
    def selector(self) -> str:
        """The last part of a URL in the registry's API: the digest if there is one, otherwise the tag."""
        return self.digest or self.tag or ""

    @property
    def transport(self) -> str:
        """The reference for skopeo and buildah, which accept a tag or a digest, but not both."""
        return f"docker://{self.name}@{self.digest}" if self.digest else f"docker://{self.name}:{self.tag}"

    def with_tag(self, tag: str) -> ImageReference:
        """The image with this tag in the same repository."""
        return dataclasses.replace(self, tag=tag, digest=None)

    def with_digest(self, digest: str) -> ImageReference:
        """The image with this digest in the same repository."""
        return dataclasses.replace(self, tag=None, digest=digest)

    def __str__(self) -> str:
        """The usual notation."""
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.name}{tag}" + (f"@{self.digest}" if self.digest else "")


@dataclasses.dataclass(frozen=True)
class FileReference:
    """An image in an archive or a layout on this machine. `transport` is the complete reference in skopeo's format."""

    transport: str

    @property
    def kind(self) -> str:
        """The transport's name, one of FILE_TRANSPORTS."""
        return self.transport.partition(":")[0]

    @property
    def path(self) -> str:
        """The file or folder. In a `dir` reference, no image name follows the path."""
        rest = self.transport.partition(":")[2]
        return rest if self.kind == "dir" else rest.partition(":")[0]

    def __str__(self) -> str:
        """The usual notation."""
        return self.transport


Location = t.Union[ImageReference, FileReference]  # noqa: UP007 (an old pylint of ansible-test knows no other form)


def parse_location(text: str) -> Location:
    """An image in a registry, an archive or a layout; raises InvalidReference."""
    kind, separator, rest = text.partition(":")
    if separator and kind in FILE_TRANSPORTS:
        if not rest.startswith("/"):
            raise InvalidReference(f"has no absolute path; write {kind}:/path")
        if not rest.isprintable():
            raise InvalidReference("has characters that cannot be printed, such as a line break; use another path")
        return FileReference(text)
    return parse_image(text)


def parse_image(text: str) -> ImageReference:
    """An image in a registry, with a tag, a digest, or both; raises InvalidReference."""
    repository = parse_repository(text, selected=True)
    if not repository.selector:
        raise InvalidReference("has neither a tag nor a digest; write registry/repository:tag")
    return repository


def pulled_name(text: str, *, from_hub: bool = True) -> str:
    """The complete name of an image in a pod: nodes pull a name without a registry from Docker Hub, and a name without a tag or a digest as latest.

    Source: kubernetes.io, "Images", "Image names". from_hub: false on OpenShift, whose nodes search several registries for a name without a registry,
    so it remains incomplete. A name that is not valid remains invalid.
    """
    name, at, digest = text.partition("@")
    host, slash, dummy = name.partition("/")
    if from_hub and not (slash and (host == "localhost" or "." in host or ":" in host)):
        name = f"{HUB}/{name}" if slash else f"{HUB}/{HUB_FOLDER}/{name}"
    if not at and ":" not in name.rpartition("/")[2]:
        name = f"{name}:latest"
    return f"{name}{at}{digest}"


def parse_repository(text: str, *, selected: bool = False) -> ImageReference:
    """A repository without a tag or digest; raises InvalidReference. selected: a tag or digest may follow."""
    if _USER_INFO.match(text):
        raise InvalidReference("contains a user or a password; set username and password in registries")
    if "://" in text and not text.startswith("docker://"):
        raise InvalidReference("is an address; write it without the scheme, as in registry.example.com/nvidia/driver")
    rest = text.removeprefix("docker://")
    rest, at, digest = rest.partition("@")
    host, slash, path = rest.partition("/")
    path, colon, tag = path.partition(":")
    if not slash or not (host == "localhost" or "." in host or ":" in host) or not _HOST.fullmatch(host):
        raise InvalidReference(
            "does not specify a registry; put its host first, as in registry.example.com/nvidia/driver (Docker Hub is docker.io)"
        )
    if (at or colon) and not selected:
        raise InvalidReference("has a tag or a digest; write only registry and repository")
    if not _REPOSITORY.fullmatch(path):
        raise InvalidReference(
            "has an invalid repository; use lower-case letters and digits, with '.', '_' or '-' between them, and '/' between components"
        )
    if len(f"{host}/{path}") > _MAX_REPOSITORY:
        raise InvalidReference(f"is longer than {_MAX_REPOSITORY} characters, which no container runtime accepts")
    if colon and not _TAG.fullmatch(tag):
        raise InvalidReference("has an invalid tag; use letters, digits, '.', '_' and '-', at most 128")
    if at and not DIGEST.fullmatch(digest):
        raise InvalidReference("has an invalid digest; it is sha256: and 64 hexadecimal digits")
    return ImageReference(host, path, tag or None, digest or None)


def password_in(text: str) -> str:
    """The password that was mistakenly put before the host in the name of an image or a registry; empty if there is none."""
    kind, dummy, rest = text.partition(":")
    match = None if kind in FILE_TRANSPORTS and rest.startswith("/") else _USER_INFO.match(text)
    return (match["password"] or "") if match else ""


def tag_problem(tag: str) -> str | None:
    """The reason why a string is not a valid tag; None if it is valid."""
    return None if _TAG.fullmatch(tag) else "is not a tag; use letters, digits, '.', '_' and '-', at most 128"


# Parses and filters the manifests and indexes of images (pure).
#
# Sources: opencontainers/image-spec manifest.md and image-index.md, distribution docs/content/spec/manifest-v2-2.md.

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
# Every request accepts all of these types, because a registry returns 404 for an existing manifest of a type that the request does not accept.
ACCEPTED = (OCI_INDEX, DOCKER_LIST, OCI_MANIFEST, DOCKER_MANIFEST)
INDEXES = frozenset({OCI_INDEX, DOCKER_LIST})


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
