# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Custom resources of operators that OLM installs: the fields that gpu_cluster determines."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive

Object = dict[str, Any]


def spec(**operator: Any) -> Object:
    return derive({"name": "c", "distribution": "openshift", "operator": operator}, {}, []).operator.values


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ({}, {}),
        # A version alone would become an image without a name.
        (
            {"driver": {"version": "580.105.08"}},
            {"driver": {"repository": "nvcr.io/nvidia", "image": "driver", "version": "580.105.08"}},
        ),
        (
            {"driver": {"version": "580.105.08"}, "values": {"driver": {"repository": "registry.example/nvidia"}}},
            {"driver": {"repository": "registry.example/nvidia", "image": "driver", "version": "580.105.08"}},
        ),
        ({"driver": {"enabled": False}}, {"driver": {"enabled": False}}),
        ({"gdrcopy": {"enabled": True}}, {"gdrcopy": {"enabled": True}}),
        (
            {"gdrcopy": {"enabled": True, "version": "v2.5.1"}},
            {"gdrcopy": {"repository": "nvcr.io/nvidia/cloud-native", "image": "gdrdrv", "enabled": True, "version": "v2.5.1"}},
        ),
        ({"values": {"operator": {"runtimeClass": "x"}}}, {"operator": {"runtimeClass": "x"}}),
        ({"repo_config": "mirrors"}, {"driver": {"repoConfig": {"configMapName": "mirrors"}}}),
    ],
)  # fmt: skip
def test_policy_values(operator: Object, expected: Object) -> None:
    assert spec(**operator) == expected


def test_pull_secrets_reach_every_operand_that_the_release_has() -> None:
    old, new = (spec(version=version, image_pull_secrets=["s"]) for version in ("v25.10.1", "v26.3.0"))
    assert old["driver"] == new["driver"] == {"imagePullSecrets": ["s"]}
    assert "operator" not in old
    assert "kataSandboxDevicePlugin" not in old
    assert "kataSandboxDevicePlugin" in new


def discovery_spec(**values: Any) -> Object:
    return derive({"name": "c", "distribution": "openshift", "nfd": {"values": values}}, {}, []).nfd.values


def test_nfd_publishes_the_label_that_the_operator_reads() -> None:
    config = yaml.safe_load(discovery_spec()["workerConfig"]["configData"])
    assert config["sources"]["pci"]["deviceLabelFields"] == ["vendor"]
    assert {"0300", "0302"} <= set(config["sources"]["pci"]["deviceClassWhitelist"])
    assert config == derive({"name": "c"}, {}, []).nfd.values["worker"]["config"], "as on other clusters"
    (rule,) = config["sources"]["custom"]
    assert rule["labels"] == {"kernel-loadedmodule.nouveau": "true"}
    mine = discovery_spec(operand={"image": "x"}, workerConfig={"configData": "mine"})
    assert mine == {"operand": {"image": "x"}, "workerConfig": {"configData": "mine"}}


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        ({}, ("helm", "gpu-operator", "helm", "node-feature-discovery")),
        ({"distribution": "k3s"}, ("helm", "gpu-operator", "helm", "node-feature-discovery")),
        ({"distribution": "openshift"}, ("olm", "nvidia-gpu-operator", "olm", "openshift-nfd")),
        (
            {"distribution": "openshift", "operator": {"installer": "helm"}},
            ("helm", "gpu-operator", "olm", "openshift-nfd"),
        ),
        ({"operator": {"installer": "olm"}}, ("olm", "nvidia-gpu-operator", "helm", "node-feature-discovery")),
        ({"distribution": "openshift", "nfd": {"namespace": "x"}}, ("olm", "nvidia-gpu-operator", "olm", "x")),
    ],
)
def test_the_installer_determines_the_names(cluster: Object, expected: tuple[str, ...]) -> None:
    plan = derive({"name": "c", **cluster}, {}, [])
    assert (plan.operator.installer, plan.operator.namespace, plan.nfd.installer, plan.nfd.namespace) == expected
    assert plan.config.namespace == plan.validation.namespace == plan.operator.namespace


def test_without_a_distribution_the_plan_for_openshift_is_at_hand() -> None:
    plan = derive({"name": "c"}, {}, [])
    assert plan.on_openshift is not None
    assert plan.on_openshift() == derive({"name": "c", "distribution": "openshift"}, {}, [])
    assert derive({"name": "c", "distribution": "k3s"}, {}, []).on_openshift is None
    assert "on_openshift" not in plan.as_dict()


@pytest.mark.parametrize("version", ["25.10.1", "v25.10.1"])
def test_versions(version: str) -> None:
    plan = derive({"name": "c", "distribution": "openshift", "operator": {"version": version}}, {}, [])
    assert plan.operator.version == "v25.10.1", "as in the name of the ClusterServiceVersion"
    assert plan.nfd.version == "", "NFD's versions follow those of OpenShift"
    pinned = derive({"name": "c", "distribution": "openshift", "nfd": {"version": "4.18.0-202501230001"}}, {}, [])
    assert pinned.nfd.version == "4.18.0-202501230001"
