# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Everything that the plan rejects is left out with the reason, and no content of a cluster ends the export."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.report import export_pools
from ansible_collections.accel.gpu.plugins.module_utils.report.export_pools import (
    ExportedPools,
    LiveConfig,
    leave_out_rejected,
)
from ansible_collections.accel.gpu.plugins.module_utils.schema.variables import validate
from tests.helpers.fleet import node
from tests.unit.plugins.module_utils.report.test_pools import CONFIG, MIGS, NONE, PLUGIN, POLICY, TIME, found, pinned


def shares_of(replicas: int) -> dict[str, t.Any]:
    resources = [{"name": "nvidia.com/gpu", "replicas": replicas}]
    return {"sharing": {"timeSlicing": {"failRequestsGreaterThanOne": True, "resources": resources}}}


EXTREME = {"data": {**PLUGIN["data"], "extreme": json.dumps({"version": "v1", **shares_of(16384)})}}


def test_a_node_whose_sharing_the_plan_rejects_is_left_out_with_the_reason() -> None:
    live = LiveConfig(POLICY, EXTREME, MIGS)
    result = found(node("n1", labels={CONFIG: "extreme"}), node("n2", "NVIDIA-L4"), live=live)
    assert [pool["name"] for pool in result.pools] == ["l4"]
    (remark,) = result.remarks
    assert remark.startswith(
        "n1: not exported, because the variables do not allow its sharing: sharing.replicas: 16384"
    )
    derive({"name": "lab"}, {}, result.pools)


def test_a_managed_pool_whose_sharing_the_plan_rejects_has_none() -> None:
    live = LiveConfig(POLICY, EXTREME, MIGS)
    (pool,) = found(pinned("n1", "a", labels={CONFIG: "extreme"}), live=live).pools
    assert pool == {"name": "a", "match": {"model": "T4"}}


@pytest.mark.parametrize(
    ("fields", "left", "words"),
    [
        ({"driver": {"type": "gpu", "color": "red"}}, {}, "pool a: without driver, because the variables do not allow it: driver.color"),
        ({"labels": {"nvidia.com/gpu.count": "1", "team": "x"}}, {"labels": {"team": "x"}}, "pool a: a value of labels is not exported"),
        ({"labels": {"nvidia.com/gpu.count": "1"}}, {}, "labels['nvidia.com/gpu.count']"),
        (
            {"taints": [{"key": "node.kubernetes.io/x", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule"}]},
            {"taints": [{"key": "a", "effect": "NoSchedule"}]},
            "pool a: a value of taints is not exported, because the variables do not allow it: taints[0].key",
        ),
        ({"rollout": {"max_unavailable": "{{ x }}"}}, {}, "pool a: without rollout"),
        ({"startup_taint": True}, {}, "pool a: without startup_taint"),
        ({"gpus_per_node": 0}, {}, "pool a: without gpus_per_node"),
        ({"match": {"labels": {"{{ x }}": "1"}}}, None, "pool a: not exported, because the variables do not allow it: match.labels"),
        ({"name": "A B"}, None, "pool A B: not exported, because the variables do not allow it: name"),
        ({"sharing": {"mode": "none", "replicas": 4}}, None, "pool a: not exported"),
    ],
)  # fmt: skip
def test_what_the_plan_rejects_is_left_out_with_the_reason(fields: t.Any, left: t.Any, words: str) -> None:
    base = {"name": "a", "match": {"labels": {"x": "y"}}, "sharing": {"mode": "none"}}
    other = {"name": "b", "match": {"model": "T4"}, "sharing": TIME}
    exported = ExportedPools([{**base, **fields}, other])
    leave_out_rejected({"name": "lab"}, exported)
    assert exported.pools == ([{**base, **left}] if left is not None else []) + [other]
    (remark,) = exported.remarks
    assert words in remark
    derive({"name": "lab"}, {}, exported.pools)


def test_of_two_pools_that_contradict_each_other_the_managed_one_is_kept() -> None:
    exported = ExportedPools([{"name": name, "match": {"model": "T4"}} for name in ("a", "b")], managed={"b"})
    leave_out_rejected({"name": "lab"}, exported)
    assert [pool["name"] for pool in exported.pools] == ["b"]
    assert "pool a: not exported" in exported.remarks[0]
    both = ExportedPools([{"name": name, "match": {"model": "T4"}} for name in ("a", "b")], managed={"a", "b"})
    leave_out_rejected({"name": "lab"}, both)
    assert both.pools == [{"name": "a", "match": {"model": "T4"}}, {"name": "b"}]


def test_a_rejected_entry_costs_a_validation_of_its_own_pool_only(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def counted(cluster: t.Any, operator: t.Any, pools_: t.Any) -> list[str]:
        sizes.append(len(pools_))
        return validate(cluster, operator, pools_)

    monkeypatch.setattr(export_pools, "validate", counted)
    bad = {f"nvidia.com/gpu.{number}": "1" for number in range(3)}
    match = [{"labels": {"x": str(number)}} for number in range(30)]
    exported = ExportedPools(
        [{"name": f"p{number}", "match": each, "labels": {"team": "x", **bad}} for number, each in enumerate(match)]
    )
    leave_out_rejected({"name": "lab"}, exported)
    assert [pool["labels"] for pool in exported.pools] == [{"team": "x"}] * 30
    assert len(exported.remarks) == 90
    assert sum(sizes) == 30 * 4 + 30


@pytest.mark.parametrize("text", ["", "\n", "# nothing yet\n", "---\n# nothing\n"])
def test_an_empty_configuration_has_no_settings(text: str) -> None:
    live = LiveConfig(POLICY, {"data": {"whole": text}}, MIGS)
    assert found(node("n1"), live=live).pools == [{"name": "t4", "match": {"model": "T4"}, "sharing": NONE}]


@pytest.mark.parametrize(
    "text",
    [
        "when: 2026-99-99",
        "a: &a [*a]",
        "\t- x",
        "x: !!python/name:os.system",
        "&" + "[" * 2000,
        "\n".join(["a0: &a0 [x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12))]),
    ],
)
def test_no_text_ends_the_export(text: str) -> None:
    """An impossible date, text that contains itself or expands without limit, and text that YAML cannot read."""
    result = found(
        node("n1"),
        node("n2", labels={CONFIG: "four"}),
        live=LiveConfig(POLICY, {"data": {**PLUGIN["data"], "whole": text}}, MIGS),
    )
    assert [pool["sharing"] for pool in result.pools] == [TIME]
    assert "n1: not exported" in " ".join(result.remarks)
