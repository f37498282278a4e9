# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The catalogs of a lab as file-based catalogs: packages, channels and bundles, as settings and faults determine them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..cloud_settings import CloudFault, CloudSettings, Setting
from ..errors import LabError
from ..layout import Lab
from ..tools import OPERATORS
from . import bundles
from .bundles import GPU_OPERATOR, NFD, Bundle

CLOUD = "olm"
NAMESPACE = "openshift-marketplace"
# The CatalogSources, and the packages that each offers; the last one exists only with the setting `staging`.
STAGING = "staging-operators"
CATALOGS: Mapping[str, tuple[str, ...]] = {
    "certified-operators": (GPU_OPERATOR,),
    "redhat-operators": (NFD,),
    STAGING: (GPU_OPERATOR, NFD),
}
_VERSIONS = tuple(sorted(OPERATORS, key=lambda version: [int(number) for number in version[1:].split(".")]))
SETTINGS = {
    "gpu-operator": Setting(
        ",".join(_VERSIONS),
        "the versions of gpu-operator-certified in certified-operators",
        (",".join(_VERSIONS), *_VERSIONS),
    ),
    "bundles": Setting(
        "inline",
        "whether the catalogs contain the bundles, or only their images, which OLM unpacks with Jobs",
        ("inline", "images"),
    ),
    "staging": Setting(
        "off", f"whether the CatalogSource {STAGING} exists, with all versions of both packages", ("off", "on")
    ),
}
UNREACHABLE, BROKEN_DEPLOYMENT, BROKEN_STEP, UNPACK_HANGS = (
    "catalog-unreachable",
    "broken-deployment",
    "broken-step",
    "unpack-hangs",
)
FAULTS = {
    UNREACHABLE: "the server of a catalog (--group NAME of the CatalogSource) refuses connections",
    BROKEN_DEPLOYMENT: f"the newest version of {GPU_OPERATOR} has an image that no registry has: its Deployment never becomes ready",
    BROKEN_STEP: f"the newest version of {GPU_OPERATOR} contains an object whose CRD is missing: its InstallPlan fails",
    UNPACK_HANGS: "the Jobs that unpack bundles (setting bundles=images) do not deliver the bundle",
}


def of(lab: Lab) -> CloudSettings:
    """Return the settings and faults of a lab, with those of OLM."""
    return CloudSettings(lab, {f"{CLOUD}.{name}": setting for name, setting in SETTINGS.items()})


def check_fault(fault: CloudFault) -> None:
    """Reject a fault for an unknown catalog, or with a value."""
    if fault.value is not None:
        raise LabError(f"{fault.name} has no value")
    if fault.group is not None and fault.group not in CATALOGS:
        raise LabError(f"unknown CatalogSource '{fault.group}'; known: {', '.join(CATALOGS)}")


@dataclass(frozen=True)
class Package:
    """A package in a catalog: its bundles, the oldest first, and its channels with the names of their entries."""

    name: str
    description: str
    default_channel: str
    channels: Mapping[str, Sequence[str]]
    bundles: Sequence[Bundle]


def package(name: str, versions: Sequence[str]) -> Package:
    """Return a package with these versions of the GPU operator; NFD has one version."""
    if name == NFD:
        only = bundles.nfd()
        return Package(NFD, "Node Feature Discovery Operator", "stable", {"stable": [only.name]}, [only])
    built = [bundles.gpu_operator(version) for version in versions]
    # One channel for each minor release, and one with all of them.
    channels: dict[str, list[str]] = {"stable": [one.name for one in built]}
    for one in built:
        channels.setdefault(one.version.rpartition(".")[0], []).append(one.name)
    return Package(name, "NVIDIA GPU Operator", list(channels)[-1], channels, built)


def render(package: Package, *, images: bool) -> Iterator[dict[str, Any]]:
    """Yield a package as documents of a file-based catalog; with `images`, bundles refer to their image."""
    description = package.description
    yield {
        "schema": "olm.package",
        "name": package.name,
        "defaultChannel": package.default_channel,
        "description": description,
    }
    known = {one.name: one for one in package.bundles}
    for name, entries in package.channels.items():
        yield {
            "schema": "olm.channel",
            "package": package.name,
            "name": name,
            "entries": [
                _entry(known[entry], previous) for entry, previous in zip(entries, [None, *entries[:-1]], strict=True)
            ],
        }
    for bundle in package.bundles:
        yield _bundle(bundle, images=images)


def image_of(bundle: Bundle) -> str:
    """Return the image of a bundle."""
    return f"registry.lab.invalid/{bundle.package}-bundle:{bundle.version}"


def served(settings: CloudSettings, catalog: str) -> list[Package] | None:
    """Return the packages that the server of a catalog offers now, or None if it is unreachable."""
    if settings.fault(f"{CLOUD}.{UNREACHABLE}", catalog):
        return None
    chosen = settings.setting(f"{CLOUD}.gpu-operator").split(",")
    versions = _VERSIONS if catalog == STAGING else [one for one in _VERSIONS if one in chosen]
    packages = []
    for name in CATALOGS[catalog]:
        one = package(name, versions)
        if name == GPU_OPERATOR:
            newest = one.bundles[-1]
            if settings.fault(f"{CLOUD}.{BROKEN_DEPLOYMENT}", catalog):
                newest = bundles.with_missing_image(newest)
            if settings.fault(f"{CLOUD}.{BROKEN_STEP}", catalog):
                newest = bundles.with_failing_step(newest)
            one = Package(one.name, one.description, one.default_channel, one.channels, [*one.bundles[:-1], newest])
        packages.append(one)
    return packages


def text(packages: Sequence[Package], *, images: bool) -> str:
    """Return packages as a catalog file."""
    documents = [document for one in packages for document in render(one, images=images)]
    return "".join(f"{json.dumps(document, default=str)}\n" for document in documents)


def _entry(bundle: Bundle, previous: str | None) -> dict[str, str]:
    entry = {"name": bundle.name}
    if previous:
        entry["replaces"] = previous
    # As in the published catalog, an entry also replaces all older versions.
    if skipped := bundle.csv["metadata"].get("annotations", {}).get("olm.skipRange"):
        entry["skipRange"] = skipped
    return entry


def _bundle(bundle: Bundle, *, images: bool) -> dict[str, Any]:
    spec = bundle.csv["spec"]
    properties: list[dict[str, Any]] = [
        {"type": "olm.package", "value": {"packageName": bundle.package, "version": str(spec["version"])}}
    ]
    for owned in spec.get("customresourcedefinitions", {}).get("owned", []):
        group = owned["name"].partition(".")[2]
        value = {"group": group, "kind": owned["kind"], "version": owned["version"]}
        properties.append({"type": "olm.gvk", "value": value})
    properties += [{"type": "olm.bundle.object", "value": {"data": _encode(one)}} for one in bundle.manifests]
    document = {"schema": "olm.bundle", "name": bundle.name, "package": bundle.package, "properties": properties}
    return document | ({"image": image_of(bundle)} if images else {})


def _encode(manifest: Mapping[str, Any]) -> str:
    return base64.b64encode(json.dumps(manifest, default=str, separators=(",", ":")).encode()).decode()
