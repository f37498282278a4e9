# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A demand of a pool in the lab: it is planned on unused GPUs, and existing devices that serve it stay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.report.text import lines
from ansible_collections.accel.gpu.plugins.modules import gpu_info
from tests.helpers.rolling import POOL, Rolling
from tests.labs import Lab

GPU, THIRD, SEVENTH = "nvidia.com/gpu", "nvidia.com/mig-3g.40gb", "nvidia.com/mig-1g.10gb"


def demand(**profiles: int) -> dict[str, Any]:
    """Return a sharing with this number of devices of each profile in total."""
    names = {"sevenths": "1g.10gb", "thirds": "3g.40gb"}
    return {"mode": "mig", "demand": {names[name]: count for name, count in profiles.items()}}


@pytest.fixture(scope="module")
def pool(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rolling]:
    """Three nodes of two GPUs; the first is partitioned for a demand of 7 and 2 devices."""
    rolling = Rolling(lab).install(tmp_path_factory.mktemp("demand"), nodes=3, gpus=2)
    predicted = rolling.share(demand(sevenths=7, thirds=2), check=True, diff=True)
    done = rolling.share(demand(sevenths=7, thirds=2), diff=True)
    assert not done.get("failed"), done["msg"]
    assert predicted["diff"] == done["diff"]
    assert predicted["changed"] is done["changed"] is True
    yield rolling
    rolling.users.delete_all()


def changed(result: dict[str, Any]) -> list[str]:
    assert not result.get("failed"), result["msg"]
    return [name for name, step in result["gpu_sharing"]["steps"].items() if step["change"].startswith("mig")]


@pytest.mark.sampled(1, group="changes between modes")
@pytest.mark.usual(30)
def test_only_as_many_gpus_are_partitioned_as_the_demand_needs(pool: Rolling) -> None:
    offered = pool.cluster.offered("a100-")
    assert sorted(offered.values(), key=str) == [{GPU: 2}, {GPU: 2}, {SEVENTH: 7, THIRD: 2}]
    again = pool.share(demand(sevenths=7, thirds=2))
    assert again["changed"] is False
    fewer = pool.share(demand(sevenths=3))
    assert changed(fewer) == []
    assert pool.cluster.offered("a100-") == offered


@pytest.mark.sampled(1, group="changes between modes")
@pytest.mark.usual(40)
def test_only_unused_gpus_are_partitioned_and_pods_stay(pool: Rolling) -> None:
    before = pool.cluster.offered("a100-")
    (cut,) = (name for name, item in before.items() if SEVENTH in item)
    busy, idle = sorted(set(before) - {cut})
    pool.users.deployment("on-a-slice", cut, resource=THIRD)
    pool.users.deployment("on-a-whole-gpu", busy, resource=GPU)
    pool.users.wait_running(2)
    with pool.users.watched() as watch:
        more = pool.share(demand(sevenths=7, thirds=4))
    assert changed(more) == [idle]
    assert not watch.gone
    after = pool.cluster.offered("a100-")
    assert after == {**before, idle: {THIRD: 2, GPU: 1}}
    reported = pool.cluster.run(gpu_info.main, gpu_pools=[pool.pool(demand(sevenths=7, thirds=4))])["gpu_info"]
    assert reported["pools"][POOL]["as_declared"] is True
    cuts = reported["pools"][POOL]["gpu_layouts"]
    assert (
        sum(cut["gpus"] for cut in cuts if cut["profiles"])
        == sum(cut["gpus"] for cut in cuts if not cut["profiles"])
        == 3
    )
    devices = {name: sum(cut["gpus"] * cut["profiles"].get(name, 0) for cut in cuts) for name in ("1g.10gb", "3g.40gb")}
    assert devices == {"1g.10gb": 7, "3g.40gb": 4}
    text = "\n".join(lines(reported, "plan"))
    assert "|3g.40gb                        |" in text
    assert "3 GPU(s) whole" in text
    assert "7 x 1g.10gb + 4 x 3g.40gb in total" in text


@pytest.mark.sampled(1, group="changes between modes")
@pytest.mark.usual(10)
def test_an_impossible_demand_fails_before_any_change(pool: Rolling) -> None:
    since = pool.cluster.mark()
    for check in (True, False):
        refused = pool.share(demand(thirds=13), check=check)
        assert refused.get("failed")
        assert (
            "sharing.demand of pool train is 13 x 3g.40gb, but its 3 node(s) have no room for 1 x 3g.40gb of it"
            in refused["msg"]
        )
    reading = ("get", "list", "watch")
    changes = [sent for sent in pool.cluster.requests(since, "gpu_sharing") if not sent.startswith(reading)]
    assert changes == []
