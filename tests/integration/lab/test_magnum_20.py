# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's OpenStack with an older Magnum."""

from __future__ import annotations

import pytest

from lab.api import Api
from lab.nodes import NODES, is_ready
from lab.openstack.node_sync import GROUP_LABEL
from tests.helpers.openstack import Cloud
from tests.helpers.polling import until

from .conftest import OwnLab

pytestmark = [pytest.mark.lab, pytest.mark.soak]


@pytest.mark.usual(60)
def test_magnum_20_creates_nodes_and_rejects_node_labels(other: OwnLab) -> None:
    other.command("build", "openstack", "openstack-20")
    other.command("up", "--part", "openstack", "--magnum", "20")
    cloud = Cloud(other.lab)
    answer = cloud.send("GET", "/clusters")
    assert answer.headers["OpenStack-API-Maximum-Version"] == "container-infra 1.11"
    cloud.create(other.name, "gpu-t4", "g2.5xlarge", 2)
    assert cloud.settled(other.name, "gpu-t4")["status"] == "CREATE_COMPLETE"
    actual = list(Api(other.lab).list(NODES, labelSelector=f"{GROUP_LABEL}=gpu-t4"))
    assert [is_ready(node) for node in actual] == [True, True]
    cloud.resize(other.name, "gpu-t4", 1)
    assert cloud.settled(other.name, "gpu-t4")["status"] == "UPDATE_COMPLETE"
    body = {"name": "labeled", "flavor_id": "m2.medium", "node_labels": {"a": "b"}}
    refused = cloud.send("POST", f"/clusters/{other.name}/nodegroups", body)
    assert (refused.status_code, "node_labels" in refused.text) == (400, True)
    cloud.delete(other.name, "gpu-t4")
    until(lambda: not list(Api(other.lab).list(NODES, labelSelector=f"{GROUP_LABEL}=gpu-t4")))
    newer = other.execute("up", "--magnum", "23")
    assert "has the database of Magnum 20, not of 23" in newer.stderr
