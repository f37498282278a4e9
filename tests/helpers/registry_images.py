# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small images in a registry of the lab, by the registry's HTTP API (OCI Distribution Specification 1.1)."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import urllib3

_OCI = "application/vnd.oci.image"
_DOCKER = "application/vnd.docker"
# The kind of an image -> media types of the index, the manifest, the config and the layer.
MEDIA_TYPES = {
    "oci": (f"{_OCI}.index.v1+json", f"{_OCI}.manifest.v1+json", f"{_OCI}.config.v1+json", f"{_OCI}.layer.v1.tar+gzip"),
    "docker": (
        f"{_DOCKER}.distribution.manifest.list.v2+json",
        f"{_DOCKER}.distribution.manifest.v2+json",
        f"{_DOCKER}.container.image.v1+json",
        f"{_DOCKER}.image.rootfs.diff.tar.gzip",
    ),
}
ACCEPT = ", ".join(media_type for types in MEDIA_TYPES.values() for media_type in types[:2])
PLATFORMS = ("amd64", "arm64")
AGENT = "accel-gpu-test"


@dataclass(frozen=True)
class RegistryClient:
    """A client of one registry, with TLS if an authority is given."""

    address: str
    authority: Path | None = None
    login: tuple[str, str] | None = None

    @classmethod
    def of(cls, env: Mapping[str, str], name: str) -> RegistryClient:
        """Take the environment of `lab/lab env` and the name of the variable with the address, such as LAB_REGISTRY_TLS."""
        if "_TLS" not in name:
            return cls(env[name])
        password = Path(env["LAB_REGISTRY_PASSWORD_FILE"]).read_text()
        return cls(env[name], Path(env["LAB_REGISTRY_CA"]), (env["LAB_REGISTRY_USER"], password))

    @property
    def url(self) -> str:
        return f"{'https' if self.authority else 'http'}://{self.address}"

    @cached_property
    def _pool(self) -> urllib3.PoolManager:
        authority = {"ca_certs": str(self.authority)} if self.authority else {}
        return urllib3.PoolManager(retries=False, timeout=urllib3.Timeout(30), **authority)  # type: ignore[arg-type]

    def request(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> urllib3.response.BaseHTTPResponse:
        """Send a request; the path can be a full URL. Underscores in the names of headers stand for dashes."""
        sent = {"User-Agent": AGENT, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if self.login:
            sent |= urllib3.make_headers(basic_auth=":".join(self.login))
        return self._pool.request(method, urljoin(self.url, path), body=body, headers=sent, redirect=False)

    def digest(self, repository: str, reference: str) -> str | None:
        """Return the digest of a manifest, or None if the registry does not have it."""
        answer = self.request("HEAD", f"/v2/{repository}/manifests/{reference}", Accept=ACCEPT)
        return answer.headers["Docker-Content-Digest"] if answer.status == 200 else None

    def manifest(self, repository: str, reference: str) -> dict[str, Any]:
        """Return a manifest that the registry has."""
        answer = self.request("GET", f"/v2/{repository}/manifests/{reference}", Accept=ACCEPT)
        assert answer.status == 200, answer.data
        content: dict[str, Any] = json.loads(answer.data)
        return content

    def has_blob(self, repository: str, digest: str) -> bool:
        """Return whether the registry has a layer or a config."""
        return self.request("HEAD", f"/v2/{repository}/blobs/{digest}").status == 200

    def push_blob(self, repository: str, content: bytes) -> str:
        """Push a layer or a config, and return its digest."""
        digest = digest_of(content)
        started = self.request("POST", f"/v2/{repository}/blobs/uploads/")
        assert started.status == 202, started.data
        location = started.headers["Location"]
        path = f"{location}{'&' if '?' in location else '?'}digest={digest}"
        done = self.request("PUT", path, content, Content_Type="application/octet-stream")
        assert done.status == 201, done.data
        return digest

    def push_manifest(self, repository: str, reference: str, manifest: Mapping[str, Any]) -> str:
        """Push a manifest or an index under a tag or its digest, and return its digest."""
        content = json.dumps(manifest).encode()
        name = reference or digest_of(content)
        path = f"/v2/{repository}/manifests/{name}"
        done = self.request("PUT", path, content, Content_Type=str(manifest["mediaType"]))
        assert done.status == 201, done.data
        return digest_of(content)

    def delete(self, repository: str, digest: str) -> None:
        """Delete a manifest and its tags; its layers remain until a garbage collection."""
        answer = self.request("DELETE", f"/v2/{repository}/manifests/{digest}")
        assert answer.status == 202, answer.data


@dataclass(frozen=True)
class PushedImage:
    """An image in a registry: the digest of its index, and those of its manifests and layers by platform."""

    digest: str
    manifests: dict[str, str] = field(default_factory=dict)
    layers: dict[str, str] = field(default_factory=dict)


def digest_of(content: bytes) -> str:
    """Return the digest of a manifest, a config or a layer."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def push_image(
    client: RegistryClient,
    repository: str,
    tag: str,
    *,
    kind: str = "oci",
    platforms: Sequence[str] = PLATFORMS,
    size: int = 4096,
    labels: Mapping[str, str] | None = None,
) -> PushedImage:
    """Push an index with an image of one layer for each platform (linux/...); equal arguments give equal digests."""
    index_type, manifest_type, config_type, layer_type = MEDIA_TYPES[kind]
    manifests, layers, entries = {}, {}, []
    for platform in platforms:
        plain = _archive(f"{repository}:{tag} {platform}", size)
        layer = gzip.compress(plain, mtime=0)
        config = {
            "architecture": platform,
            "os": "linux",
            "config": {"Labels": dict(labels or {})},
            "rootfs": {"type": "layers", "diff_ids": [digest_of(plain)]},
        }
        content = json.dumps(config).encode()
        layers[platform] = client.push_blob(repository, layer)
        manifest = {
            "schemaVersion": 2,
            "mediaType": manifest_type,
            "config": _descriptor(config_type, content, client.push_blob(repository, content)),
            "layers": [_descriptor(layer_type, layer, layers[platform])],
        }
        manifests[platform] = client.push_manifest(repository, "", manifest)
        entry = _descriptor(manifest_type, json.dumps(manifest).encode(), manifests[platform])
        entries.append(entry | {"platform": {"architecture": platform, "os": "linux"}})
    index = {"schemaVersion": 2, "mediaType": index_type, "manifests": entries}
    return PushedImage(client.push_manifest(repository, tag, index), manifests, layers)


def push_layers(client: RegistryClient, repository: str, tag: str, sizes: Sequence[int]) -> str:
    """Push an image for linux/amd64 with layers of these sizes, which cannot be compressed, and return its digest."""
    _index_type, manifest_type, config_type, _layer_type = MEDIA_TYPES["oci"]
    layer_type = f"{_OCI}.layer.v1.tar"
    layers, diff_ids = [], []
    for number, size in enumerate(sizes):
        layer = _archive(f"{repository}:{tag} {number}", size)
        diff_ids.append(client.push_blob(repository, layer))
        layers.append(_descriptor(layer_type, layer, diff_ids[-1]))
    config = {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": diff_ids}}
    content = json.dumps(config).encode()
    described = _descriptor(config_type, content, client.push_blob(repository, content))
    manifest = {"schemaVersion": 2, "mediaType": manifest_type, "config": described, "layers": layers}
    return client.push_manifest(repository, tag, manifest)


def _descriptor(media_type: str, content: bytes, digest: str) -> dict[str, Any]:
    return {"mediaType": media_type, "size": len(content), "digest": digest}


def _archive(seed: str, size: int) -> bytes:
    """Return a tar archive with one file, of random bytes that depend on the seed."""
    data = random.Random(seed).randbytes(size)
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        entry = tarfile.TarInfo("content")
        entry.size = size
        archive.addfile(entry, io.BytesIO(data))
    return target.getvalue()
