# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which object the driver pod of each node mounts."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.licensing.cluster import LicenseCluster
from ansible_collections.accel.gpu.plugins.module_utils.licensing.content import SECRET, LicenseTarget
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from tests.helpers.license_api import LicenseApi, cluster_policy, gpu_node, license_secret, vgpu_pool
from tests.helpers.license_tokens import make_token

ONE, TWO = make_token(hosts=["one.example.com"]), make_token(hosts=["two.example.com"])


def driver(name: str, secret: str | None, *, kind: str = "vgpu", **selector: str) -> dict[str, Any]:
    """An NVIDIADriver that was created manually."""
    config = {"licensingConfig": {"secretName": secret}} if secret else {}
    return {"metadata": {"name": name}, "spec": {"driverType": kind, "nodeSelector": selector, **config}}


def api(*drivers: dict[str, Any]) -> LicenseApi:
    """Two nodes with vGPUs of different classes, each of another team, and one node of a third team."""
    nodes = [
        gpu_node("a", "NVIDIA-A100-10C", team="a"),
        gpu_node("b", "NVIDIA-L40S-24Q", team="b"),
        gpu_node("c", team="c"),
    ]
    actual = LicenseApi([cluster_policy(useNvidiaDriverCRD=True)], list(drivers), nodes)
    return actual.add(license_secret("one", ONE, "FeatureType=4\n"), license_secret("two", TWO, "FeatureType=2\n"))


TWO_DRIVERS = (driver("x", "one", team="a"), driver("y", "two", team="b"))


def cluster(actual: LicenseApi) -> LicenseCluster:
    return LicenseCluster(cast(Any, actual), derive({"name": "prod"}, {}, []), actual.policies[0])


@pytest.mark.parametrize(
    ("drivers", "expected"),
    [
        (TWO_DRIVERS, {"a": "one", "b": "two", "c": None}),
        ((*TWO_DRIVERS, driver("z", None, team="c")), {"a": "one", "b": "two", "c": None}),
        ((*TWO_DRIVERS, driver("z", "one", team="c")), {"a": "one", "b": "two", "c": "one"}),
        # A node with another driver mounts nothing, even if there is only one Secret.
        ((driver("x", "one", team="a"), driver("y", None, team="b")), {"a": "one", "b": None, "c": "one"}),
        ((driver("x", "one", team="a"), driver("y", "two", kind="gpu", team="b")), {"a": "one", "b": None, "c": "one"}),
        # The operator accepts no two drivers for one node.
        ((*TWO_DRIVERS, driver("z", "two", team="a")), {"a": None, "b": "two", "c": None}),
        ((driver("x", "one"),), {"a": "one", "b": "one", "c": "one"}),
    ],
)
def test_a_node_has_the_secret_of_its_driver(drivers: tuple[Any, ...], expected: dict[str, str | None]) -> None:
    actual = cluster(api(*drivers))
    targets = {node.name: actual.expected_of(node) for node in actual.license_nodes()}
    assert {name: item.target.name if item else None for name, item in targets.items()} == expected
    tokens = {"one": ONE, "two": TWO}
    for item in filter(None, targets.values()):
        assert item.files.token == tokens[item.target.name].encode()


def test_the_classes_of_the_nodes_of_a_driver() -> None:
    actual = cluster(api(*TWO_DRIVERS, driver("z", None, team="c")))
    assert actual.series(LicenseTarget(SECRET, "one")) == {"C"}
    assert actual.series(LicenseTarget(SECRET, "two")) == {"Q"}


def test_each_secret_is_verified_for_the_nodes_of_its_driver() -> None:
    actual = api(*TWO_DRIVERS, driver("z", None, team="c"))
    result = actual.license()
    assert [entry["feature_type"] for entry in result["license"]["objects"]] == [4, 2], result
    assert (
        "No licensing Secret is assigned to node c: the NVIDIADriver that selects the node does not name one."
        in str(result["warnings"])
    )
    conflicting = api(*TWO_DRIVERS, driver("z", "two", team="a")).license()
    assert "No licensing Secret is assigned to node a: several NVIDIADrivers select the same node." in str(
        conflicting["warnings"]
    )
    managed = driver("z", None, team="c")
    managed["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "accel.gpu"}
    for drivers in (TWO_DRIVERS, (*TWO_DRIVERS, managed)):
        assert "No licensing Secret is assigned to" not in str(api(*drivers).license().get("warnings"))


def test_a_rotation_needs_only_the_secrets_of_its_nodes() -> None:
    actual = api(*TWO_DRIVERS, driver("z", "three", team="z"))
    # No node has this one yet.
    assert "Not rotated" in str(actual.rotation()["warnings"])
    expired = make_token(hosts=["two.example.com"], expires=-60)
    actual.add(license_secret("two", expired, "FeatureType=2\n"))
    assert "The token in Secret gpu-operator/two expired at" in actual.rotation()["msg"]
    assert "The token in Secret gpu-operator/two expired at" in actual.rotation(node_names=["b"])["msg"]
    assert "Not rotated: node a." in str(actual.rotation(node_names=["a"])["warnings"])


def test_a_token_in_place_of_a_node_is_not_shown() -> None:
    result = api(*TWO_DRIVERS).rotation(node_names=["a", ONE])
    assert "is not a vGPU node of this cluster" in result["msg"]
    assert ONE[:40] not in json.dumps(result)
    long = "worker-with-a-long-name-1.production-cluster-one.internal.example-corporation"
    for name in (long, long.replace(".internal", "")):
        assert name in api(*TWO_DRIVERS).rotation(node_names=[name])["msg"]


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        ("one", ""),
        # The same files.
        ("copy", ""),
        (
            "two",
            "The driver pods on node a do not mount Secret gpu-operator/two. They will mount it after the playbook site has added it to the NVIDIADriver of the "
            "pool.",
        ),
    ],
)
def test_a_pool_declares_another_secret_than_the_one_that_its_driver_names(declared: str, text: str) -> None:
    """All three modules notice it. The pool of a node without a driver pod is not noticed."""
    actual = api(driver("x", "one", **{"accel.gpu/pool": "vdi"}))
    actual.add(license_secret("copy", ONE, "FeatureType=4\n"), license_secret("two", TWO, "FeatureType=4\n"))
    pool: dict[str, Any] = {"pool": "vdi", "accel.gpu/pool": "vdi"}
    actual.nodes = [gpu_node(name, **pool) for name in ("a", "b")]
    # The driver does not run: no command is sent to it.
    metadata = {"name": "driver-a", "namespace": "gpu-operator"}
    actual.pods = [{"metadata": metadata, "spec": {"nodeName": "a"}, "status": {"phase": "Pending"}}]
    pools = [vgpu_pool("vdi", declared)]
    written = actual.license(pools)
    assert not written.get("failed"), written["msg"]
    assert ("do not mount" in str(written.get("warnings"))) == bool(text)
    assert text in str(written.get("warnings"))
    assert [each for each in actual.info(pools)["license_info"]["problems"] if "mount" in each] == [text][: bool(text)]
    rotated = actual.rotation(pools, provided=written["license"])
    assert rotated.get("msg", "") == (f"No node was rotated. {text}" if text else "")
