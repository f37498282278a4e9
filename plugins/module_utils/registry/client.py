# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads and writes the manifests in one or more registries."""

from __future__ import annotations

import typing as t

from .errors import RegistryError
from .manifest import ACCEPTED, InvalidManifest, Manifest, digest_of, json_object
from .reference import DIGEST, ImageReference
from .transport import RegistryTransport

Object = dict[str, t.Any]
_DIGEST_HEADER = "Docker-Content-Digest"


class RegistryClient:
    """Reads and writes manifests by reference, in any registry; safe for use by many threads."""

    def __init__(self, transport_of: t.Callable[[str], RegistryTransport]) -> None:
        """transport_of: returns the transport for a registry; each call must return the same object."""
        self._transport_of = transport_of

    def digest(self, image: ImageReference) -> str | None:
        """The digest of an image, normally from a single request; None if the image does not exist."""
        try:
            answer = self._manifests("HEAD", image, image.selector)
        except RegistryError as error:
            if error.not_found:
                return None
            if error.status != 405:
                raise
        else:
            digest = answer.headers.get(_DIGEST_HEADER) or ""
            if DIGEST.fullmatch(digest) and image.digest in (None, digest):
                return digest
        # The registry does not return the header, or does not support HEAD.
        manifest = self.manifest(image)
        return manifest.digest if manifest else None

    def manifest(self, image: ImageReference) -> Manifest | None:
        """The manifest or index of an image; None if the image does not exist."""
        try:
            answer = self._manifests("GET", image, image.selector)
        except RegistryError as error:
            if error.not_found:
                return None
            raise
        media_type = (answer.headers.get("Content-Type") or "").partition(";")[0].strip()
        try:
            _verify(answer.data, image.digest)
            manifest = Manifest(answer.data, media_type)
            manifest = manifest if media_type in ACCEPTED else Manifest(answer.data, manifest.declared_type)
            manifest.check()
        except InvalidManifest as error:
            raise _invalid(error, image, f"manifests/{image.selector}", answer.status) from None
        return manifest

    def put(self, image: ImageReference, manifest: Manifest) -> None:
        """Write a manifest whose blobs the repository already contains. The same bytes have the same digest under each tag."""
        self._transport_of(image.registry).request(
            "PUT",
            image.repository,
            f"manifests/{image.selector}",
            data=manifest.data,
            content_type=manifest.media_type,
        )

    def config(self, image: ImageReference, manifest: Manifest) -> Object:
        """The configuration of an image for one platform, which contains labels, the creation time and the platform; empty if the image has none."""
        if not manifest.config_digest:
            return {}
        path = f"blobs/{manifest.config_digest}"
        answer = self._transport_of(image.registry).request("GET", image.repository, path)
        try:
            _verify(answer.data, manifest.config_digest)
            config = json_object(answer.data)
        except InvalidManifest as error:
            raise _invalid(error, image, path, answer.status) from None
        return config

    def _manifests(self, method: str, image: ImageReference, selector: str) -> t.Any:
        transport = self._transport_of(image.registry)
        return transport.request(method, image.repository, f"manifests/{selector}", accept=ACCEPTED)


def _verify(data: bytes, digest: str | None) -> None:
    """Raise InvalidManifest if a registry has returned something other than what the digest identifies."""
    if digest and digest_of(data) != digest:
        raise InvalidManifest(f"the response has the digest {digest_of(data)} instead of {digest}")


def _invalid(error: InvalidManifest, image: ImageReference, path: str, status: int) -> RegistryError:
    return RegistryError(
        f"{error}", registry=image.registry, status=status, method="GET", path=f"/v2/{image.repository}/{path}"
    )
