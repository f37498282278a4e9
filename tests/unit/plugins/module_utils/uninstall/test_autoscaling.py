# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An uninstallation removes only the entries of the collection from the objects of the autoscaler."""

from __future__ import annotations

import typing as t

from ansible_collections.accel.gpu.plugins.module_utils.cluster_state.expander_priorities import merge_priorities
from ansible_collections.accel.gpu.plugins.module_utils.cluster_state.gpu_limits import merge_limits, with_limits
from ansible_collections.accel.gpu.plugins.module_utils.uninstall.autoscaling import (
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
