# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of Node objects and pods, read by the functions that gpu_info calls."""

from __future__ import annotations

import typing as t

from ansible_collections.accel.gpu.plugins.module_utils.catalog import mig
from ansible_collections.accel.gpu.plugins.module_utils.nodes import node_check
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.nodes.pods import gpu_requests
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive, per_node_plan
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import PoolPlan
from ansible_collections.accel.gpu.plugins.module_utils.report import data
from ansible_collections.accel.gpu.plugins.module_utils.report.view_model import GpuNode, ResourceUsage, build_page
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes import mig as layout
from ansible_collections.accel.gpu.plugins.plugin_utils.report_page.render import render
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


def info_of(nodes: t.Sequence[Node], pool: PoolPlan, pods: t.Sequence[dict[str, t.Any]] = ()) -> dict[str, t.Any]:
    """The result of gpu_info for nodes that all belong to one pool."""
    held = gpu_requests(pods)
    results = [data.node_result(one, pool.name, pool, held.get(one.name, [])) for one in nodes]
    return {
        "cluster": "lab",
        "reachable": True,
        **data.cluster_result(nodes, results),
        "pools": {pool.name: {**data.declared_pool(pool), "nodes": len(nodes), "as_declared": True}},
        "nodes": results,
        "nodes_not_shown": 0,
    }


def nodes_of(*args: t.Any) -> tuple[GpuNode, ...]:
    return build_page(info_of(*args)).nodes


def test_shares_and_their_pods() -> None:
    nodes = [node("t4-1", replicas=4), node("t4-2", replicas=4)]
    pods = [pod("a", "t4-1", limits={GPU: 1}), pod("b", "t4-1", "Succeeded", {GPU: 1}), pod("c", limits={GPU: 1})]
    info = info_of(nodes, pool(replicas=4), pods)
    first, second = build_page(info).nodes
    assert first.usage == (ResourceUsage(GPU, 1, 3, 0, 0, True),)
    assert second.usage == (ResourceUsage(GPU, 0, 4, 0, 0, True),)
    assert (first.badges, second.badges) == ((), ())
    (tile, _other) = parse(render(info)).find("details")
    assert [part.text.strip() for name in ("dt", "dd") for part in tile.find(name)] == ["default", "a"]
    assert tile.find("title")[0].text == "t4-1: 1 GPU; 4 nvidia.com/gpu allocatable, 1 requested, 3 free"


def test_mig_devices_of_each_gpu() -> None:
    offers = {LARGE: 2, SMALL: 4, GPU: 0}
    one = node("a100-1", model="NVIDIA-A100-SXM4-80GB", gpus=2, labels=dict(CUT), allocatable=offers, capacity=offers)
    (only,) = nodes_of([one], pool(layout={"3g.40gb": 1, "1g.10gb": 2}), [pod("a", "a100-1", limits={SMALL: 4})])
    assert only.gpus == 2
    assert (
        only.gpu_layouts == ((("3g.40gb", 1), ("1g.10gb", 2)),) * 2
        or only.gpu_layouts == ((("1g.10gb", 2), ("3g.40gb", 1)),) * 2
    )
    assert only.usage == (ResourceUsage(SMALL, 4, 0, 0, 0, True), ResourceUsage(LARGE, 0, 2, 0, 0, True))
    assert only.badges == ()


def test_a_demand_draws_the_slices_and_each_node_by_its_own_layout() -> None:
    document = {"name": "train", "match": {"model": MODEL}, "sharing": {"mode": "mig", "demand": {"3g.40gb": 1}}}
    plan = derive({"name": "lab"}, {}, [document])
    settled = per_node_plan(plan, {"train": {"a100-1": (layout.parse_layout({0: {"3g.40gb": 1}}), 2)}})
    cut = {**CUT, "nvidia.com/mig-1g.10gb.count": None, "nvidia.com/mig-3g.40gb.count": "1"}
    offers = {LARGE: 1, GPU: 1}
    one = node("a100-1", model=f"NVIDIA-{MODEL}", gpus=2, labels=cut, allocatable=offers, capacity=offers)
    info = info_of([one], settled.pools[0], [])
    geometry = mig.geometry(MODEL)
    assert geometry
    info["pools"]["train"]["gpu_layouts"] = node_check.node_layouts(settled.pools[0], [one], {"a100-1": geometry})
    (only,) = build_page(info).nodes
    assert only.gpu_layouts == ((("3g.40gb", 1),), ())
    assert only.badges == ()
    shown = parse(render(info)).find("div", class_="layouts")[0]
    assert [text.text for text in shown.find("text")] == ["3g.40gb"]
    assert [title.text for title in shown.find("title")] == ["8 memory slices: 3g.40gb on slices 0 to 3"]
    assert [line.text for line in shown.find("p")] == ["1 GPU", "1 GPU not partitioned"]


def test_a_node_that_is_not_discovered() -> None:
    (only,) = nodes_of([Node("new-1", {"nvidia.com/gpu.present": "true"}, ready=True)], pool())
    assert [badge.text for badge in only.badges] == ["not discovered"]
    assert only.usage == ()
