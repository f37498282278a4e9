# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The catalogs of the lab's OLM: documents, faults and images."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from lab.cloud_settings import CloudFault
from lab.errors import LabError
from lab.olm import bundles, catalogs, proxy
from lab.olm.bundles import Bundle

PACKAGE = bundles.GPU_OPERATOR


def bundle(version: str) -> Bundle:
    container = {"name": "gpu-operator", "image": "nvcr.io/nvidia/gpu-operator@sha256:1"}
    deployment = {"name": "gpu-operator", "spec": {"template": {"spec": {"containers": [container]}}}}
    owned = [{"name": "clusterpolicies.nvidia.com", "kind": "ClusterPolicy", "version": "v1"}]
    csv = {
        "kind": "ClusterServiceVersion",
        "metadata": {"name": f"{PACKAGE}.{version}", "annotations": {"olm.skipRange": f"<{version[1:]}"}},
        "spec": {
            "version": version[1:],
            "customresourcedefinitions": {"owned": owned},
            "install": {"spec": {"deployments": [deployment]}},
        },
    }
    return Bundle(PACKAGE, version, (csv,))


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> catalogs.Package:
    monkeypatch.setattr(bundles, "gpu_operator", bundle)
    return catalogs.package(PACKAGE, ["v25.3.2", "v25.10.1"])


def documents(package: catalogs.Package, *, images: bool = False) -> list[dict[str, Any]]:
    return [json.loads(line) for line in catalogs.text([package], images=images).splitlines()]


def test_a_package_has_a_channel_with_all_releases_and_one_for_each_minor_release(package: catalogs.Package) -> None:
    actual = documents(package)
    assert actual[0]["defaultChannel"] == "v25.10"
    old = {"name": f"{PACKAGE}.v25.3.2", "skipRange": "<25.3.2"}
    new = {"name": f"{PACKAGE}.v25.10.1", "skipRange": "<25.10.1"}
    assert {one["name"]: one["entries"] for one in actual if one["schema"] == "olm.channel"} == {
        "stable": [old, {**new, "replaces": f"{PACKAGE}.v25.3.2"}],
        "v25.3": [old],
        "v25.10": [new],
    }


def test_bundles_contain_their_manifests_and_what_they_own(package: catalogs.Package) -> None:
    actual = documents(package)[-1]
    values = {one["type"]: one["value"] for one in actual["properties"]}
    assert values["olm.package"] == {"packageName": PACKAGE, "version": "25.10.1"}
    assert values["olm.gvk"] == {"group": "nvidia.com", "kind": "ClusterPolicy", "version": "v1"}
    assert json.loads(base64.b64decode(values["olm.bundle.object"]["data"]))["kind"] == "ClusterServiceVersion"
    assert "image" not in actual


def test_bundles_with_images(package: catalogs.Package) -> None:
    image = documents(package, images=True)[-1]["image"]
    assert image == f"registry.lab.invalid/{PACKAGE}-bundle:v25.10.1"


def test_a_broken_deployment_changes_only_the_copy() -> None:
    original = bundle("v25.10.1")
    broken = bundles.with_missing_image(original)
    assert bundles.MISSING_IMAGE in json.dumps(broken.manifests)
    assert bundles.MISSING_IMAGE not in json.dumps(original.manifests)


def test_a_failing_step_is_an_additional_object() -> None:
    assert [one["kind"] for one in bundles.with_failing_step(bundle("v25.10.1")).manifests] == [
        "ClusterServiceVersion",
        "VerticalPodAutoscaler",
    ]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (CloudFault("olm.broken-step", value="1"), "olm.broken-step has no value"),
        (CloudFault("olm.catalog-unreachable", "other"), "unknown CatalogSource 'other'; known: certified-operators"),
    ],
)
def test_invalid_faults(fault: CloudFault, message: str) -> None:
    with pytest.raises(LabError, match=message):
        catalogs.check_fault(fault)


@pytest.mark.parametrize(
    ("image", "staging"),
    [
        ("registry.example.com:5000/a/staging-operators:v4.18", True),
        ("staging-operators", True),
        ("quay.io/b/staging-operators@sha256:12", True),
        ("quay.io/staging-operators/other:1", False),
        ("", False),
    ],
)
def test_the_image_of_the_staging_catalog(image: str, staging: bool) -> None:
    assert proxy.is_staging(image) is staging
