# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan announces a change of tolerations exactly if the run changes the DaemonSets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.cluster_policy import DesiredPolicy, plan_change
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.report.data import toleration_changes

Object = dict[str, Any]

GPU = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
TAINT = {"key": "team", "value": "x", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("daemonsets", "taints", "adds"),
    [
        ({}, [], None),
        ({"tolerations": []}, [], None),
        ({"tolerations": [GPU]}, [], None),
        ({}, [TAINT], ["team=x:NoSchedule"]),
        ({"tolerations": [{"key": "other", "operator": "Exists"}]}, [], ["nvidia.com/gpu:NoSchedule"]),
    ],
)
def test_announced_changes_are_those_of_the_run(
    daemonsets: Object, taints: list[Object], adds: list[str] | None
) -> None:
    plan = derive({"name": "lab"}, {}, [{"name": "t4", "match": {"model": "Tesla-T4"}, "taints": taints}])
    live = {"metadata": {"name": "gpu-cluster-policy", "resourceVersion": "1"}, "spec": {"daemonsets": daemonsets}}
    nfd = SimpleNamespace(configures_discovery=False)
    detection = SimpleNamespace(plan=plan, policy=live, findings={"nfd": nfd})
    announced = toleration_changes(cast("Any", None), cast("Any", detection))
    assert [change["adds"] for change in announced] == ([adds] if adds else [])
    change = plan_change(live, DesiredPolicy.derive(plan, live), seeded=False)
    assert bool(change.driver_paths) == bool(adds)
