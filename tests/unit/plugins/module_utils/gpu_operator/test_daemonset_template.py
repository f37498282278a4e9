# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an operator that has not looked at a policy yet is recognised by."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.daemonset_template import stale_by

Object = dict[str, Any]
CHART = {"helm.sh/chart": "gpu-operator-v25.3.2"}


def daemonset(driver: bool = True) -> Object:
    container = {
        "name": "nvidia-driver-ctr",
        "image": "nvcr.io/nvidia/driver:570.148.08-ubuntu24.04",
        "env": [{"name": "NODE_NAME", "valueFrom": {}}, {"name": "A", "value": "1"}],
    }
    labels = {"app.kubernetes.io/component": "nvidia-driver"} if driver else {}
    return {
        "metadata": {"name": "ds", "labels": labels, "ownerReferences": [{"kind": "ClusterPolicy"}]},
        "spec": {"template": {"metadata": {"labels": {"app": "ds", **CHART}}, "spec": {"containers": [container]}}},
    }


CASES: list[tuple[Object, str]] = [
    ({}, ""),
    ({"daemonsets": {"labels": {**CHART, "app": "else", "app.kubernetes.io/part-of": "else"}}}, ""),
    ({"daemonsets": {"labels": {"helm.sh/chart": "gpu-operator-v25.10.1"}}}, "labels"),
    ({"driver": {"version": "570.148.08", "env": [{"name": "A", "value": "1"}]}}, ""),
    ({"driver": {"version": "580.105.08"}}, "driver"),
    ({"driver": {"env": [{"name": "A", "value": "2"}]}}, "driver"),
    ({"driver": {"env": [{"name": "B", "value": ""}]}}, "driver"),
]


@pytest.mark.parametrize(("spec", "lacking"), CASES)
def test_what_the_template_lacks(spec: Object, lacking: str) -> None:
    expected = [f"DaemonSet ds does not have the policy's {lacking} yet"] if lacking else []
    assert stale_by(spec, daemonset()) == expected
    # The driver's fields are nothing to the other DaemonSets.
    assert stale_by(spec, daemonset(driver=False)) == (expected if lacking == "labels" else [])


def test_a_driver_by_digest() -> None:
    found = daemonset()
    found["spec"]["template"]["spec"]["containers"][0]["image"] = "nvcr.io/nvidia/driver@sha256:0123"
    assert stale_by({"driver": {"version": "sha256:0123"}}, found) == []
