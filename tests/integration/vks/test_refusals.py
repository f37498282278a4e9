# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Impossible requests fail before the first write: all problems at once, with the available alternatives."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.modules import vks_nodegroup
from lab.vks import seed
from tests.helpers.vks_modules import CLUSTER, Account, Object

TWIN = "ng-00000000-0000-4000-8000-000000000001"
NEW = {"flavor": "g3-standard-16x128-1A40", "disk_type": "SSD", "ssh_key": "lab"}


def group(**more: Any) -> Object:
    return {"name": "train", **NEW, **more}


def refused(account: Account, *groups: Object, check: bool = False, **more: Any) -> Object:
    """The module's failure; no write request was sent."""
    done = account.run(vks_nodegroup.main, check=check, cluster=CLUSTER, nodegroups=list(groups), **more)
    assert done.get("failed"), done
    assert done["code"] == "invalid", done["msg"]
    assert account.writes() == []
    return done


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"flavor": "g3-standard-16x128-1A4O"},
            "there is no 'g3-standard-16x128-1A4O' in zone HCM03-1A. Available: g3-standard-16x128-1A40, ",
        ),
        ({"flavor": "g4-standard-16x64-1L40s"}, "To use it, choose a subnet in zone HCM03-1B."),
        ({"flavor": "flav-00000000"}, "flavor: flav-00000000 is not in zone HCM03-1A. Available: "),
        ({"flavor": None}, "flavor: required for a new group. Available: "),
        ({"disk_type": "NVMe"}, "disk_type: there is no 'NVMe' in zone HCM03-1A."),
        ({"disk_type": "NVME"}, "disk_type: 'NVME' is the name of 2 resources in zone HCM03-1A: "),
        (
            {"disk_type": None},
            "disk_type: required for a new group. Available: nvme-iops3000, nvme-iops5000, ssd-iops3000.",
        ),
        ({"ssh_key": "lba"}, "ssh_key: there is no 'lba' in project "),
        ({"ssh_key": None}, "ssh_key: required for a new group. Available: "),
        (
            {"security_groups": ["gpu-nodes", "twin"]},
            f"security_groups: 'twin' is the name of 2 resources in project {seed.PROJECT}: secg-",
        ),
        ({"security_groups": ["going"]}, "security_groups: 'going' in project "),
        ({"subnet": "d"}, "subnet: there is no 'd' in VPC "),
        ({"subnet": "going"}, "subnet: 'going' in VPC "),
        ({"subnet": "sub-00000000"}, "subnet: there is no 'sub-00000000' in VPC "),
        ({"node_count": 11}, "node_count is 11, and the quota is 10 nodes for a group (maxNodesPerNodeGroup)."),
        ({"min_node_count": 1, "max_node_count": 11}, "max_node_count is 11, and the quota is 10 nodes for a group"),
        ({"disk_type": "SSD", "disk_size": 6000}, "disk_size: 6000 is not allowed: VKS allows at most 5000 GiB"),
        (
            {"secondary_subnets": ["10.1.0.0/24"]},
            "secondary_subnets: only for clusters with network CILIUM_NATIVE_ROUTING",
        ),
        (
            {"kubernetes_version": "v1.30.0"},
            "kubernetes_version: v1.30.0 is not the cluster's version",
        ),
        (
            {"node_labels": {"nvidia.com/mig.config": "all-1g.10gb"}},
            "which the A40 of g3-standard-16x128-1A40 does not support.",
        ),
    ],
)
def test_unavailable_values(account: Account, more: Object, message: str) -> None:
    reported = refused(account, group(**more), check=True)
    assert message in reported["msg"]
    assert reported["msg"].startswith("Node group train: ")
    assert refused(account, group(**more))["msg"] == reported["msg"]


@pytest.mark.parametrize("label", ["all-disabled", None])
def test_mig_can_be_disabled_on_any_gpu_and_enabled_where_the_gpu_supports_it(
    account: Account, label: str | None
) -> None:
    labels = {"nvidia.com/mig.config": label}
    assert account.run(vks_nodegroup.main, check=True, cluster=CLUSTER, **group(node_labels=labels))["changed"]
    h100 = {
        "flavor": "g5-standard-16x120x300NVMe-1H100",
        "subnet": "b",
        "node_labels": {"nvidia.com/mig.config": "all-1g.10gb"},
    }
    assert account.run(vks_nodegroup.main, check=True, cluster=CLUSTER, **group(**h100))["changed"]


def test_problems_of_all_groups_are_reported_at_once(account: Account) -> None:
    reported = refused(
        account,
        group(name="first", flavor="nope"),
        group(name="second", ssh_key="nope", disk_type="nope"),
        group(name="third"),
    )
    assert [problem.split(":")[0] for problem in reported["details"]["problems"]] == [
        "Node group first",
        "Node group second",
        "Node group second",
    ]


def test_a_sold_out_flavor_is_reported_with_the_available_ones(account: Account) -> None:
    account.put("sold-out", "g3-standard-16x128-1A40")
    reported = refused(account, group())
    assert "g3-standard-16x128-1A40 is sold out in zone HCM03-1A. Available: " in reported["msg"]
    assert "Available: g3-standard" not in reported["msg"]


def test_a_group_with_a_sold_out_flavor_can_change_but_not_grow(account: Account) -> None:
    args: Object = {"cluster": CLUSTER, "wait_sleep": 1, **group(node_count=2)}
    assert not account.run(vks_nodegroup.main, **args).get("failed")
    account.put("sold-out")
    assert not account.run(vks_nodegroup.main, **{**args, "node_labels": {"a": "1"}}).get("failed")
    assert "is sold out" in account.run(vks_nodegroup.main, **{**args, "node_count": 3})["msg"]
    assert not account.run(vks_nodegroup.main, **{**args, "node_count": 1}).get("failed")


def test_more_nodes_than_available(account: Account) -> None:
    account.set("max-nodes", "100")
    assert (
        "zone HCM03-1A has 20 of g3-standard-16x128-1A40 left, and 21 are needed."
        in refused(account, group(node_count=21))["msg"]
    )


def test_no_quota_for_another_group(account: Account) -> None:
    account.set("max-groups", "2")
    reported = refused(account, group(), group(name="other"))
    assert (
        "The quota does not allow 2 more node groups: the cluster has 1 of at most 2 (maxNodeGroupsPerCluster)."
        in reported["msg"]
    )


def test_two_groups_of_one_name_are_refused_with_their_ids(account: Account) -> None:
    account.set("duplicate-names", "allowed")
    account.run(vks_nodegroup.main, cluster=CLUSTER, wait_sleep=1, **group())
    with account.fake.state.lock:
        (one,) = [group for group in account.fake.state.groups.values() if group["name"] == "train"]
        account.fake.state.groups[TWIN] = {**one, "id": TWIN}
    start = account.mark()
    reported = account.run(vks_nodegroup.main, cluster=CLUSTER, **group())
    assert f"2 node groups are called train: {one['id']}, {TWIN}. Delete all but one" in reported["msg"]
    assert account.writes(start) == []


def test_two_clusters_of_one_name_are_refused_with_their_ids(account: Account) -> None:
    with account.fake.state.lock:
        (one,) = account.fake.state.clusters.values()
        account.fake.state.clusters[f"k8s-{TWIN[3:]}"] = {**one, "id": f"k8s-{TWIN[3:]}"}
    reported = refused(account, group())
    assert (
        f"cluster: 2 clusters are called 'demo': {one['id']} (ACTIVE), k8s-{TWIN[3:]} (ACTIVE). Use the id."
        in reported["msg"]
    )
    assert account.run(vks_nodegroup.main, check=True, **{"cluster": one["id"], **group()})["changed"]


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ({"subnetId": None, "listSubnetIds": []}, "subnet: required, because the cluster has several subnets or none"),
        (
            {"networkType": "CILIUM_NATIVE_ROUTING"},
            "secondary_subnets: required by the cluster's network, CILIUM_NATIVE_ROUTING.",
        ),
        ({"status": "ERROR"}, "Cluster demo is ERROR"),
    ],
)
def test_options_that_a_cluster_does_not_support(account: Account, cluster: Object, message: str) -> None:
    with account.fake.state.lock:
        (one,) = account.fake.state.clusters.values()
        one.update(cluster)
    assert message in refused(account, group())["msg"]


def test_recreate_needs_the_kubeconfig(account: Account) -> None:
    account.run(vks_nodegroup.main, cluster=CLUSTER, wait_sleep=1, **group())
    reported = account.run(vks_nodegroup.main, cluster=CLUSTER, **group(os="rocky", recreate=True))
    assert "Set kubernetes.kubeconfig" in reported["msg"]
