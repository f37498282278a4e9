# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""DaemonSets that still need a managed ConfigMap."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.uninstall.removal import unfinished_daemonsets

Object = dict[str, Any]


def daemonset(mounts: list[str], desired: int = 2, updated: int = 2, observed: int = 3) -> Object:
    volumes = [{"name": name, "configMap": {"name": name}} for name in mounts]
    return {
        "metadata": {"name": "plugin", "generation": 3},
        "spec": {"template": {"spec": {"volumes": [*volumes, {"name": "h", "hostPath": {}}]}}},
        "status": {
            "desiredNumberScheduled": desired,
            "updatedNumberScheduled": updated,
            "observedGeneration": observed,
        },
    }


@pytest.mark.parametrize(
    ("actual", "line"),
    [
        (daemonset(["other"]), ""),
        (daemonset(["managed"]), "DaemonSet plugin still mounts managed"),
        (daemonset([], updated=1), "DaemonSet plugin: 1 of 2 pods are updated"),
        (daemonset([], observed=2), "DaemonSet plugin: 2 of 2 pods are updated"),
    ],
)
def test_who_still_needs_a_configmap(actual: Object, line: str) -> None:
    assert unfinished_daemonsets([actual], ["managed"]) == ([line] if line else [])
