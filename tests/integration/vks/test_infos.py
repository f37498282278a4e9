# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules that only read return the fields of the modules that change."""

from __future__ import annotations

from ansible_collections.accel.gpu.plugins.modules import (
    vks_catalog_info,
    vks_cluster_info,
    vks_nodegroup,
    vks_nodegroup_info,
)
from tests.helpers.vks_modules import CLUSTER, Account


def test_clusters_by_name_id_or_all(account: Account) -> None:
    (cluster,) = account.run(vks_cluster_info.main)["clusters"]
    assert (cluster["name"], cluster["status"], cluster["network"]) == ("demo", "ACTIVE", "TIGERA")
    assert account.run(vks_cluster_info.main, name="demo")["clusters"] == [cluster]
    assert account.run(vks_cluster_info.main, name=cluster["id"])["clusters"] == [cluster]
    assert account.run(vks_cluster_info.main, name="other")["clusters"] == []


def test_groups_and_their_nodes(account: Account) -> None:
    actual = account.run(vks_nodegroup_info.main, cluster=CLUSTER, include_nodes=True)["nodegroups"]
    assert list(actual) == ["default-worker"]
    assert [node["ready"] for node in actual["default-worker"]["nodes"]] == [True, True]
    assert account.run(vks_nodegroup_info.main, cluster=CLUSTER, names=["other"])["nodegroups"] == {}


def test_a_returned_group_can_be_declared(account: Account) -> None:
    """The returned fields of a group as options are no change."""
    reported = account.run(vks_nodegroup_info.main, cluster=CLUSTER)["nodegroups"]["default-worker"]
    computed = ("id", "status", "min_node_count", "max_node_count")
    options = {key: value for key, value in reported.items() if key not in computed}
    start = account.mark()
    assert account.run(vks_nodegroup.main, cluster=CLUSTER, **options)["changed"] is False
    assert account.writes(start) == []


def test_the_catalog_of_some_zones(account: Account) -> None:
    offer = account.run(vks_catalog_info.main, zones=["HCM03-1B"])["catalog"]
    assert {flavor["model"] for flavor in offer["flavors"]} == {"L40S", None}
    assert {model for flavor in offer["flavors"] if "H100" in flavor["name"] for model in flavor["models"]} >= {
        "H100-80GB-HBM3",
        "H100-PCIe",
    }
    assert {flavor["zone"] for flavor in offer["flavors"]} == {"HCM03-1B"}
    assert "subnets" not in offer
    assert offer["quota"] == {"max_node_groups": 20, "max_nodes": 10, "max_clusters": 20, "clusters": 1}
    assert "v1.35.6" in offer["versions"]
    every = account.run(vks_catalog_info.main, zones=["HCM03-1B"], gpu_only=False)["catalog"]
    assert {flavor["gpus"] for flavor in every["flavors"]} > {flavor["gpus"] for flavor in offer["flavors"]}
    refused = account.run(vks_catalog_info.main, zones=["HCM03-1Z"])
    assert "zones: there is no zone 'HCM03-1Z' in this region. Available: HCM03-1" in refused["msg"]


def test_only_read_requests_are_sent(account: Account) -> None:
    account.client = "lab-reader"
    for main in (vks_cluster_info.main, vks_catalog_info.main):
        assert account.run(main)["changed"] is False
    assert account.run(vks_nodegroup_info.main, cluster=CLUSTER)["changed"] is False
    assert account.writes() == []
