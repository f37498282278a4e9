# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The manifests of the pods."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import POOL_KEYS, PoolPlan, ValidationPlan
from ansible_collections.accel.gpu.plugins.module_utils.schema.validation_programs import NODE_PROGRAMS
from ansible_collections.accel.gpu.plugins.module_utils.validation import pods
from ansible_collections.accel.gpu.plugins.module_utils.validation.pods import (
    NodeProgramSite,
    ValidationSite,
    device_pod,
    node_program_pod,
)
from tests.helpers.fleet import node, pool
from tests.helpers.restricted import violations
from tests.helpers.validation import DEFAULTS, workload

WORKLOAD = workload()


def test_manifest() -> None:
    toleration = {"key": "a", "operator": "Exists", "effect": "NoSchedule"}
    of_pool = pool(replicas=4, rename=True, tolerations=(toleration,))
    site = ValidationSite(node("n7"), of_pool.resources * 4, two_shares=of_pool.resource)
    pod = device_pod(of_pool, site, site.holders[2], WORKLOAD)
    spec = pod["spec"]
    assert "nodeName" not in spec
    assert spec["tolerations"] == [toleration]
    assert spec["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu.shared": "1"}
    assert "n7" in str(spec["affinity"])
    assert spec["restartPolicy"] == "Never"
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert pod["metadata"]["labels"]["accel.gpu/validation"] == "notebooks"
    assert len(pod["metadata"]["name"]) <= 63 + len("notebooks")
    pair = device_pod(of_pool, site, site.negative_checks[0], WORKLOAD)
    assert pair["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu.shared": "2"}
    assert "sleep" in str(spec["containers"][0]["command"])
    assert "sleep" not in str(pair["spec"]["containers"][0]["command"])
    assert pair["metadata"]["labels"] == pod["metadata"]["labels"]


@pytest.mark.parametrize(
    ("labels", "options", "user", "problems"),
    [
        ({}, {}, 65534, 1),
        ({"node.openshift.io/os_id": "rhcos"}, {}, None, 0),
        ({"node.openshift.io/os_id": "rhel"}, {"run_as_user": 0}, None, 0),
        ({"node.openshift.io/os_id": "rhcos"}, {"run_as_user": 1000680001}, 1000680001, 0),
        ({}, {"run_as_user": 0}, None, 0),
    ],
)
def test_openshift_admits_them(
    labels: dict[str, str], options: dict[str, int], user: int | None, problems: int
) -> None:
    on = replace(node("n7"), labels=labels)
    work = workload(load_seconds=90, **options)
    site = ValidationSite(on, (pool().resource,), one_more=pool().resource)
    group = NodeProgramSite(NODE_PROGRAMS[1], pool(), (on, on), 8)
    for pod in (device_pod(pool(), site, site.holders[0], work), node_program_pod(group, 0, "", work)):
        assert pod["spec"]["securityContext"].get("runAsUser") == user
        assert len(violations(pod)) == problems, violations(pod)
        # An administrator's pods would else run under anyuid, as the user of the image.
        required = pod["metadata"].get("annotations") == {"openshift.io/required-scc": "restricted-v2"}
        assert required == (bool(labels) and user is None)


def test_a_load_is_an_init_container_with_the_same_device() -> None:
    loading = workload(load_seconds=90)
    site = ValidationSite(node("n7"), (pool().resource,), one_more=pool().resource)
    spec = device_pod(pool(), site, site.holders[0], loading)["spec"]
    [load], [kernel] = spec["initContainers"], spec["containers"]
    assert (load["name"], load["image"], kernel["name"]) == ("load", "registry.example/load_image:1", "kernel")
    assert load["resources"] == kernel["resources"]
    assert spec["activeDeadlineSeconds"] == 300 + 90 + 10
    assert "+ 90" in load["command"][2]
    assert "initContainers" not in device_pod(pool(), site, site.negative_checks[0], loading)["spec"]
    assert "initContainers" not in device_pod(pool(), site, site.holders[0], WORKLOAD)["spec"]


def test_manifests_of_a_program_on_two_nodes() -> None:
    site = NodeProgramSite(NODE_PROGRAMS[1], pool(), (node("a"), node("b")), 8)
    first, second = (
        node_program_pod(site, rank, address, workload(all_reduce_nodes=2))
        for rank, address in ((0, ""), (1, "10.1.2.3"))
    )
    assert [body["metadata"]["name"].rpartition("-")[2] for body in (first, second)] == ["0", "1"]
    containers = [body["spec"]["containers"][0] for body in (first, second)]
    assert [each["resources"]["limits"] for each in containers] == [{"nvidia.com/gpu": "8"}] * 2
    assert [f"--node-rank={rank} " in each["command"][2] for rank, each in enumerate(containers)] == [True, True]
    env = [{entry["name"]: entry for entry in each["env"]} for each in containers]
    assert env[0]["RANK_0"]["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert env[1]["RANK_0"]["value"] == "10.1.2.3"
    assert "a" in str(first["spec"]["affinity"])
    assert first["spec"]["activeDeadlineSeconds"] == 900
    assert containers[0]["name"] == "network-all-reduce"
    assert first["spec"]["volumes"][0]["emptyDir"] == {"medium": "Memory"}


@dataclass(frozen=True)
class _ExtendedPlan(ValidationPlan):
    min_p2p_gbps: int = 0


@dataclass(frozen=True, kw_only=True)
class _ExtendedPool(PoolPlan):
    min_p2p_gbps: int | None = None


def test_programs_read_the_keys_of_the_cluster_and_of_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pods, "POOL_KEYS", (*POOL_KEYS, "min_p2p_gbps"))
    work = replace(WORKLOAD, settings=_ExtendedPlan(**vars(WORKLOAD.settings), min_p2p_gbps=200))
    for declared, expected in ((None, 200), (300, 300)):
        options = work.options_of(_ExtendedPool(**vars(pool()), min_p2p_gbps=declared))
        assert options["min_p2p_gbps"] == expected
        assert {name: options[name] for name in DEFAULTS} == DEFAULTS
