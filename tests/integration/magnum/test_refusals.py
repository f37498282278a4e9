# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests that Magnum would accept and then fail, lose or answer with 500: they fail before the first write, with the remedy."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers.magnum import CLUSTER, Magnum

CASES: list[tuple[dict[str, Any], str]] = [
    ({"flavor": "g2.5xlrge"}, "Nova has no flavor g2.5xlrge for this project; available: g2.5xlarge"),
    ({"flavor": "none-like-it"}, "available: g2.5xlarge, g4.p2.40g"),
    ({"flavor": "nodisk"}, "a disk of 0 GB"),
    ({"image": "nowhere"}, "Glance has no image nowhere for this project; available: "),
    ({"image": "coreos-k8s", "flavor": "g2.5xlarge"}, "choose an image of that system"),
    ({"min_node_count": 3, "max_node_count": 2}, "min_node_count (3) must not exceed max_node_count (2)"),
    ({"node_count": 3, "max_node_count": 2}, "node_count (3) is more than max_node_count (2)"),
    ({"node_count": 1, "min_node_count": 2}, "node_count (1) is less than min_node_count (2)"),
    ({"node_labels": {"node-role.kubernetes.io/gpu": "true"}}, "in a Kubernetes namespace that a kubelet must not use"),
    ({"role": "master"}, "Magnum does not create additional groups with this role"),
]


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("args", "message"), CASES)
@pytest.mark.parametrize("check", [True, False])
def test_invalid_arguments_fail_before_the_first_write(
    magnum: Magnum, args: dict[str, Any], message: str, check: bool
) -> None:
    with magnum.watched() as watched:
        refused = magnum.group(check=check, **{"flavor": "m2.medium", "image": "ubuntu-k8s", **args})
    assert refused["code"] == "invalid", refused
    assert message in refused["msg"]
    assert watched == []


@pytest.mark.parametrize("name", ["", "1234", "a/b", "x" * 64, "0d358554-95b3-463f-86fc-21344a3cf48c"])
def test_names(magnum: Magnum, name: str) -> None:
    with magnum.watched() as watched:
        refused = magnum.run("nodegroup", name=name, flavor="m2.medium")
    assert refused["code"] == "invalid", refused
    assert watched == []


def test_the_initial_groups_of_a_cluster(magnum: Magnum) -> None:
    with magnum.watched() as watched:
        refused = magnum.run("nodegroup", name="default-worker", state="absent")
        assert "Magnum does not delete or replace such a group" in refused["msg"]
        kubernetes = {"kubeconfig": magnum.lab.env["KUBECONFIG"]}
        moved = magnum.run("nodegroup", name="default-worker", flavor="m2.medium", recreate=True, kubernetes=kubernetes)
        assert "Magnum does not delete or replace such a group" in moved["msg"]
    assert watched == []


@pytest.mark.parametrize(
    ("limit", "count", "message"), [("instances=3", 4, "3 instances"), ("cores=10", 3, "10 cores")]
)
def test_no_quota(magnum: Magnum, limit: str, count: int, message: str) -> None:
    magnum.fault("no-quota", "--value", limit)
    desired = [{"name": magnum.named(str(index)), "flavor": "m2.large"} for index in range(count)]
    with magnum.watched() as watched:
        refused = magnum.run("nodegroup", nodegroups=desired)
    assert f"The project's quota is {message}, 0 are used, and these node groups need" in refused["msg"]
    assert "larger quota" in refused["msg"]
    assert watched == []


def test_a_user_with_read_access(magnum: Magnum) -> None:
    assert magnum.group(flavor="m2.medium", node_count=0)["changed"]
    assert magnum.group(cloud="lab-reader", flavor="m2.medium", node_count=0)["changed"] is False, "may look"
    refused = magnum.group(cloud="lab-reader", max_node_count=3)
    assert refused["code"] == 403
    assert "Policy doesn't allow nodegroup:update to be performed" in refused["msg"]
    assert "member to make changes" in refused["msg"]


def test_another_project(magnum: Magnum) -> None:
    refused = magnum.run("nodegroup", name="g", cloud="lab-other")
    assert f"Magnum has no cluster {CLUSTER} (cloud lab-other, project other" in refused["msg"]
    assert "Clusters of other projects are not visible" in refused["msg"]


def test_a_wrong_password(magnum: Magnum) -> None:
    refused = magnum.run("nodegroup", name="g", auth={"password": "a-wrong-secret"})
    assert refused["code"] == 401
    assert "does not accept the credentials" in refused["msg"]
    assert "a-wrong-secret" not in str(refused)
