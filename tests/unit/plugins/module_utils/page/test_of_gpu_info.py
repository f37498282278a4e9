# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page's facts from Node objects and pods, by the functions that gpu_info itself calls."""

from __future__ import annotations

import typing as t

from ansible_collections.accel.gpu.plugins.module_utils.catalog import mig
from ansible_collections.accel.gpu.plugins.module_utils.cluster_state import gpu_layouts, report_data
from ansible_collections.accel.gpu.plugins.module_utils.cluster_state.gpu_requests import gpu_requests
from ansible_collections.accel.gpu.plugins.module_utils.cluster_state.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.mig import layout
from ansible_collections.accel.gpu.plugins.module_utils.page.document import page
from ansible_collections.accel.gpu.plugins.module_utils.page.facts import Count, NodeFacts, fleet
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.pools.per_node_plan import per_node_plan
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import PoolPlan
from tests.helpers.fleet import node, pod, pool
from tests.helpers.html import parse

MODEL = "A100-SXM4-80GB"
GPU = "nvidia.com/gpu"
LARGE, SMALL = "nvidia.com/mig-3g.40gb", "nvidia.com/mig-1g.10gb"
CUT = {
    "nvidia.com/mig.capable": "true",
    "nvidia.com/mig.config": "cut",
    "nvidia.com/mig.config.state": "success",
    f"{LARGE}.count": "2",
    f"{SMALL}.count": "4",
}


def told(nodes: t.Sequence[Node], of: PoolPlan, pods: t.Sequence[dict[str, t.Any]] = ()) -> dict[str, t.Any]:
    """What gpu_info returns of nodes that all belong to one pool."""
    held = gpu_requests(pods)
    return {
        "cluster": "lab",
        "reachable": True,
        "totals": report_data.totals(nodes),
        "models": report_data.models(nodes),
        "pools": {of.name: {**report_data.declared(of), "nodes": len(nodes), "as_declared": True}},
        "nodes": [report_data.node_row(one, of.name, of, held.get(one.name, [])) for one in nodes],
        "nodes_not_shown": 0,
    }


def facts(*args: t.Any) -> tuple[NodeFacts, ...]:
    return fleet(told(*args)).nodes


def test_shares_and_who_holds_them() -> None:
    nodes = [node("t4-1", replicas=4), node("t4-2", replicas=4)]
    pods = [pod("a", "t4-1", limits={GPU: 1}), pod("b", "t4-1", "Succeeded", {GPU: 1}), pod("c", limits={GPU: 1})]
    info = told(nodes, pool(replicas=4), pods)
    first, second = fleet(info).nodes
    assert first.counts == (Count(GPU, 1, 3, 0, 0, True),)
    assert second.counts == (Count(GPU, 0, 4, 0, 0, True),)
    assert (first.marks, second.marks) == ((), ())
    (tile, _other) = parse(page(info)).find("details")
    assert tile.find("dl", class_="holders")[0].text == "defaulta"
    assert tile.find("title")[0].text == "t4-1: 1 GPU; 4 nvidia.com/gpu offered, 1 held, 3 free"


def test_mig_devices_of_each_gpu() -> None:
    offers = {LARGE: 2, SMALL: 4, GPU: 0}
    one = node("a100-1", model="NVIDIA-A100-SXM4-80GB", gpus=2, labels=dict(CUT), allocatable=offers, capacity=offers)
    (found,) = facts([one], pool(layout={"3g.40gb": 1, "1g.10gb": 2}), [pod("a", "a100-1", limits={SMALL: 4})])
    assert found.gpus == 2
    assert (
        found.cuts == ((("3g.40gb", 1), ("1g.10gb", 2)),) * 2 or found.cuts == ((("1g.10gb", 2), ("3g.40gb", 1)),) * 2
    )
    assert found.counts == (Count(SMALL, 4, 0, 0, 0, True), Count(LARGE, 0, 2, 0, 0, True))
    assert found.marks == ()


def test_a_demand_draws_the_slices_and_each_node_by_its_own_layout() -> None:
    document = {"name": "train", "match": {"model": MODEL}, "sharing": {"mode": "mig", "demand": {"3g.40gb": 1}}}
    plan = derive({"name": "lab"}, {}, [document])
    settled = per_node_plan(plan, {"train": {"a100-1": (layout.read({0: {"3g.40gb": 1}}), 2)}})
    cut = {**CUT, "nvidia.com/mig-1g.10gb.count": None, "nvidia.com/mig-3g.40gb.count": "1"}
    offers = {LARGE: 1, GPU: 1}
    one = node("a100-1", model=f"NVIDIA-{MODEL}", gpus=2, labels=cut, allocatable=offers, capacity=offers)
    info = told([one], settled.pools[0], [])
    geometry = mig.geometry(MODEL)
    assert geometry
    info["pools"]["train"]["cuts"] = gpu_layouts.of_nodes(settled.pools[0], [one], {"a100-1": geometry})
    (found,) = fleet(info).nodes
    assert found.cuts == ((("3g.40gb", 1),), ())
    assert found.marks == ()
    shown = parse(page(info)).find("div", class_="slices")[0]
    assert [text.text for text in shown.find("text")] == ["3g.40gb"]
    assert [title.text for title in shown.find("title")] == ["8 memory slices: 3g.40gb on slices 0 to 3"]
    assert [said.text for said in shown.find("p")] == ["1 GPU", "1 GPU whole"]


def test_a_node_that_is_not_discovered() -> None:
    (found,) = facts([Node("new-1", {"nvidia.com/gpu.present": "true"}, ready=True)], pool())
    assert [mark.word for mark in found.marks] == ["not discovered"]
    assert found.counts == ()
