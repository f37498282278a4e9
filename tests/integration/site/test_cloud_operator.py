# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster whose cloud installs an operator at its creation, as CERN's Magnum does: that operator serves the pools, and stays unmanaged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from lab.layout import Lab as LabLayout
from lab.openstack.lab_cluster import NAMESPACE, RELEASE
from tests.helpers.openstack import Cloud
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.helpers.polling import until
from tests.labs import Lab, own_lab
from tests.programs import REPO, run

INVENTORY = REPO / "inventories" / "lab-magnum"
WRITTEN = yaml.safe_load((INVENTORY / "group_vars" / "openstack_magnum.yml").read_text())
# The cloud's NFD is not managed and tolerates no taint of a pool: the nodes would never be discovered.
POOLS = [{key: value for key, value in pool.items() if key != "taints"} for pool in WRITTEN["gpu_pools"]]

pytestmark = [pytest.mark.timeout(1200), pytest.mark.soak]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """A lab whose project has no cluster yet."""
    with own_lab("cern", "openstack") as lab:
        cloud = Cloud(LabLayout.named(lab.name))
        assert cloud.send("DELETE", f"/clusters/{lab.name}").status_code == 204
        # During the deletion of a cluster, Magnum responds with 400 for a moment: the group of its control plane is deleted first.
        until(lambda: cloud.send("GET", f"/clusters/{lab.name}").status_code == 404)
        yield lab


def play(lab: Lab, name: str, *arguments: str) -> PlaybookRun:
    """Run a playbook with a cluster whose template installs the cloud's own operator."""
    cluster = {**WRITTEN["gpu_cluster"], "cloud": {"magnum": {"cloud": "lab", "template": "k8s-gpu"}}}
    environ = {**lab.env, "MAGNUM_CLUSTER": lab.name}
    options: dict[str, Any] = {
        "variables": {"gpu_cluster": cluster, "gpu_pools": POOLS},
        "arguments": arguments,
        "timeout": 1000,
    }
    return run_playbook(name, environ=environ, inventory=INVENTORY, **options).require_success()


def get(lab: Lab, *words: str) -> list[dict[str, Any]]:
    actual: list[dict[str, Any]] = json.loads(run("kubectl", "get", *words, "-o", "json", env=lab.env))["items"]
    return actual


@pytest.mark.usual(100)
def test_the_operator_of_the_cloud_is_the_only_one_and_shares_as_declared(lab: Lab) -> None:
    played = play(lab, "accel.gpu.site")
    (validation,) = played.module_results("accel.gpu.gpu_validation", "magnum")
    statuses = {pool: proof["status"] for pool, proof in validation["gpu_validation"]["pools"].items()}
    assert statuses == {"notebooks": "verified", "train": "verified"}
    operators = [
        item["metadata"] for item in get(lab, "deployments", "-A", "-l", "app.kubernetes.io/component=gpu-operator")
    ]
    assert [(item["namespace"], item["annotations"]["meta.helm.sh/release-name"]) for item in operators] == [
        (NAMESPACE, RELEASE)
    ]
    assert len(get(lab, "clusterpolicies")) == 1
    releases = {secret["metadata"]["labels"]["name"] for secret in get(lab, "secrets", "-A", "-l", "owner=helm")}
    assert releases == {RELEASE, "cern-magnum-node-feature-discovery"}
    assert play(lab, "accel.gpu.site").changed("magnum") == 0
