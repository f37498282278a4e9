# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node group whose machines are nodes of a cluster: they are drained before they are deleted."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.helpers.magnum import Magnum

LABEL = "magnum.openstack.org/nodegroup"


def nodes(magnum: Magnum, group: str) -> list[dict[str, Any]]:
    listed = subprocess.run(
        ["kubectl", "get", "nodes", "-l", f"{LABEL}={group}", "-o", "json"],
        env=magnum.lab.env,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return list(json.loads(listed.stdout)["items"])


def own(magnum: Magnum, **args: Any) -> dict[str, Any]:
    kubernetes = {"kubeconfig": magnum.lab.env["KUBECONFIG"]}
    done = magnum.run("nodegroup", cluster=magnum.lab.name, name=magnum.named("g"), kubernetes=kubernetes, **args)
    assert not done.get("failed"), done["msg"]
    return done


@pytest.mark.sampled(1, group="killed runs")
@pytest.mark.usual(60)
def test_a_group_moves_to_another_flavor_and_is_deleted(magnum: Magnum) -> None:
    name = magnum.named("g")
    own(magnum, flavor="g2.5xlarge", node_count=2, max_node_count=3, role="gpu", labels={"x": "1"})
    old = {node["metadata"]["name"] for node in nodes(magnum, name)}
    assert len(old) == 2
    predicted = own(magnum, flavor="g4.p2.40g", recreate=True, check=True)
    moved = own(magnum, flavor="g4.p2.40g", recreate=True)
    assert predicted["diff"] == moved["diff"]
    called = moved["nodegroup"]["name"]
    assert called.startswith(f"{name}-")
    # Fields that are not declared keep their values.
    kept = {key: moved["nodegroup"][key] for key in ("node_count", "max_node_count", "role")}
    assert kept == {"node_count": 2, "max_node_count": 3, "role": "gpu"}
    assert moved["nodegroup"]["labels"]["x"] == "1"
    assert nodes(magnum, name) == []
    assert len(nodes(magnum, called)) == 2
    # The new group is the declared one from then on.
    assert own(magnum, flavor="g4.p2.40g")["changed"] is False
    assert own(magnum, node_count=1)["changed"]
    assert len(nodes(magnum, called)) == 1
    assert own(magnum, state="absent")["changed"]
    assert nodes(magnum, called) == []
