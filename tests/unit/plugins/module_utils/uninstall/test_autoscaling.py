# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An uninstallation removes only the entries of the collection from the objects of the autoscaler."""

from __future__ import annotations

import typing as t

from ansible_collections.accel.gpu.plugins.module_utils.catalog.names import NODEGROUP_MARK
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.autoscaling_objects import merge_priorities
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.scaling_state import merge_limits, with_limits
from ansible_collections.accel.gpu.plugins.module_utils.nodes.ownership import machine_set_mark
from ansible_collections.accel.gpu.plugins.module_utils.uninstall.autoscaling import (
    autoscaling_removals,
    kept_reason,
    without_marks,
    without_own_limits,
    without_priorities,
)

THEIRS = {"type": "NVIDIA-L4", "min": 0, "max": 2}


def test_the_entries_of_others_and_all_other_fields_stay() -> None:
    live: dict[str, t.Any] = {
        "metadata": {"name": "default"},
        "spec": {"logVerbosity": 4, "resourceLimits": {"gpus": [THEIRS]}},
    }
    changed = with_limits(live, merge_limits([THEIRS], {}, {"T4": 8, "NVIDIA-L4": 9}, (), change_foreign=True))
    assert len(changed["spec"]["resourceLimits"]["gpus"]) == 2
    assert without_own_limits(changed) == live
    assert without_own_limits(live) == live


def test_the_expressions_of_others_stay() -> None:
    text = "# theirs\n5:\n- .*\n"
    merged = merge_priorities(text, {}, {"^a$": 5})
    annotations = {"accel.gpu/priorities": '{"^a$":5}', "other": "x"}
    live = {"metadata": {"name": "c", "annotations": annotations}, "data": {"priorities": merged.text, "note": "y"}}
    expected = {"metadata": {"name": "c", "annotations": {"other": "x"}}, "data": {"priorities": text, "note": "y"}}
    assert without_priorities(live) == expected


def test_an_adopted_machine_autoscaler_only_loses_its_mark() -> None:
    live = {"metadata": {"name": "m", "labels": {"accel.gpu/nodegroup": "m", "team": "ml"}}, "spec": {"minReplicas": 0}}
    assert without_marks(live) == {"metadata": {"name": "m", "labels": {"team": "ml"}}, "spec": {"minReplicas": 0}}


def scaler(name: str, target: str, *, manager: str = "accel.gpu", namespace: str = "m") -> dict[str, t.Any]:
    metadata: dict[str, t.Any] = {
        "name": name,
        "namespace": namespace,
        "uid": name,
        "labels": {"accel.gpu/nodegroup": "burst"},
    }
    metadata |= {"annotations": {"accel.gpu/created": "true"}, "managedFields": [{"manager": manager}]}
    return {"metadata": metadata, "spec": {"scaleTargetRef": {"kind": "MachineSet", "name": target}}}


class Cluster:
    """MachineAutoscalers, and MachineSets of node group burst and of another owner."""

    def __init__(self, *scalers: dict[str, t.Any], allowed: bool = True) -> None:
        replacement: dict[str, t.Any] = {
            "name": "burst-ab12",
            "namespace": "m",
            "uid": "2",
            "labels": {"accel.gpu/nodegroup": "burst"},
        }
        copied = {**replacement, "name": "burst-2026", "uid": "3"}
        mark = machine_set_mark({"metadata": replacement}, "burst")
        names: tuple[tuple[str, dict[str, t.Any]], ...] = (
            ("burst", {}),
            ("burst-ab12", replacement),
            ("burst-2026", copied),
        )
        self.machine_sets = [
            {"metadata": {"name": name, "namespace": "m", "annotations": {NODEGROUP_MARK: mark}, **metadata}}
            for name, metadata in names
        ]
        self.scalers, self.allowed = scalers, allowed
        self.deleted: list[str] = []

    def list_known(self, path: str) -> t.Sequence[dict[str, t.Any]]:
        if path.endswith("/machinesets") and not self.allowed:
            raise ApiError(
                'machinesets is forbidden: User "u" cannot list resource',
                status=403,
                reason="Forbidden",
                method="GET",
                path=path,
            )
        return self.machine_sets if path.endswith("/machinesets") else self.scalers

    def get(self, dummy: str) -> None:
        return None

    def delete(self, path: str, *, body: t.Any = None) -> None:
        assert body["preconditions"]["uid"]
        self.deleted.append(path.rpartition("/")[2])


def deleted(cluster: Cluster) -> list[str]:
    for removal in autoscaling_removals(t.cast("t.Any", cluster)):
        if removal.send is not None:
            removal.send()
        else:
            assert removal.kept
            assert not removal.action
    return cluster.deleted


def test_a_copied_machine_autoscaler_is_kept() -> None:
    """The copy has the label and the annotation; even if it was copied with its managed fields, it scales the MachineSet of another owner."""
    own = [scaler("burst", "burst"), scaler("burst-ab12", "burst-ab12"), scaler("gone", "gone")]
    copies = [scaler("burst-2026", "burst-2026"), scaler("by-hand", "burst", manager="kubectl-client-side-apply")]
    cluster = Cluster(*own, *copies)
    assert deleted(cluster) == ["burst", "burst-ab12", "gone"]
    assert [kept_reason(item, cluster.machine_sets) for item in copies] == [
        "it scales MachineSet burst-2026, which does not belong to node group burst",
        "this collection did not create it",
    ]
    assert deleted(Cluster(*own, *copies[1:], allowed=False)) == ["burst", "burst-ab12", "gone"]


def test_a_machineset_of_another_namespace_does_not_count() -> None:
    assert deleted(Cluster(scaler("x", "burst-2026", namespace="other"))) == ["x"]
