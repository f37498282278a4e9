# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fields of nodes.provider_spec, and labels, that MachineSets get from other keys."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.schema.variables import validate

CLUSTER: dict[str, t.Any] = {"name": "c", "cloud": {"machineset": {}}}


def problems(nodes: dict[str, t.Any], **pool: t.Any) -> list[str]:
    return validate(CLUSTER, {}, [{"name": "p", "nodes": {"flavor": "g4dn.xlarge", "count": 1, **nodes}, **pool}])


@pytest.mark.parametrize(
    ("provider_spec", "message"),
    [
        ({"instanceType": "m5.large"}, "instanceType: has its own key; set flavor instead"),
        ({"vmSize": "x"}, "vmSize: has its own key; set flavor instead"),
        ({"template": "x"}, "template: has its own key; set template instead"),
        ({"gpus": []}, "gpus: has its own key; set accelerators instead"),
        ({"a.b": 1}, '"a.b" is not the name of a field'),
        ({"a": {5: 6}}, "5 is not the name of a field"),
        ({"password": "PLANTED-secret-1"}, "password: contains a secret"),
        ({"userData": "token: PLANTED-secret-2\n"}, "userData: may contain secrets"),
        ({"gcpMetadata": [{"key": "api_key", "value": "PLANTED-secret-4"}]}, "value: contains a secret"),
        ({"tags": [{"name": "api_key", "value": "PLANTED-secret-3"}]}, "value: contains a secret"),
    ],
)
def test_a_field_is_neither_that_of_another_key_nor_a_secret(provider_spec: dict[str, t.Any], message: str) -> None:
    (problem,) = problems({"provider_spec": provider_spec})
    assert problem.startswith("gpu_pools[0].nodes.provider_spec")
    assert message in problem
    assert "PLANTED" not in problem


def test_a_zone_has_one_place() -> None:
    placement = {"placement": {"availabilityZone": "us-east-2a"}}
    assert problems({"provider_spec": placement}) == []
    (problem,) = problems({"provider_spec": placement, "zones": ["us-east-2b"]})
    assert "provider_spec.placement.availabilityZone: is derived from zones; remove one of them" in problem


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("cluster-api/accelerator", "from model and sharing"),
        ("topology.kubernetes.io/zone", "is derived from the zone of the MachineSet; set nodes.zones instead"),
        ("topology.ebs.csi.aws.com/zone", "is derived from the zone of the MachineSet"),
    ],
)
def test_labels_that_an_autoscaler_reads_are_derived(label: str, message: str) -> None:
    (problem,) = problems({}, labels={label: "mine"})
    assert problem.startswith("gpu_pools[0].labels")
    assert message in problem


def test_fields_without_a_key_are_free() -> None:
    assert problems({"provider_spec": {"numCPUs": 16, "userDataSecret": {"name": "worker-user-data"}}}) == []
