# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clusters and their kubeconfigs."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helpers.magnum import CLUSTER, Magnum
from tests.helpers.polling import until


def cluster(magnum: Magnum, *, check: bool = False, **args: Any) -> dict[str, Any]:
    options = {"name": magnum.named("c"), "wait_sleep": 1, "timeout": 120, **args}
    return magnum.run("cluster", check=check, **options)


@pytest.mark.usual(10)
def test_a_cluster_is_created_once_and_never_changed(magnum: Magnum) -> None:
    desired: dict[str, Any] = {
        "cluster_template": "k8s-gpu",
        "labels": {"team": True},
        "node_count": 1,
        "flavor": "m2.medium",
    }
    predicted = cluster(magnum, check=True, **desired)
    done = cluster(magnum, **desired)
    assert not done.get("failed"), done["msg"]
    assert (predicted["changed"], predicted["diff"]) == (done["changed"], done["diff"]) == (True, done["diff"])
    reported = done["magnum_cluster"]
    assert reported["status"] == "CREATE_COMPLETE"
    assert reported["labels"]["nvidia_gpu_enabled"] == "true", "the template's labels are merged"
    assert reported["labels"]["team"] == "true"
    with magnum.watched() as watched:
        assert cluster(magnum, **desired)["changed"] is False
        for field, value in (
            ("labels", {"nvidia_gpu_enabled": False}),
            ("cluster_template", "k8s"),
            ("flavor", "m2.large"),
            ("master_count", 3),
        ):
            refused = cluster(magnum, **{**desired, field: value})
            assert refused["code"] == "invalid"
            assert f": {field} is " in refused["msg"]
            assert "only when it creates a cluster" in refused["msg"]
    assert watched == []
    info = magnum.run("cluster_info", name=magnum.named("c"))["clusters"]
    assert [entry["id"] for entry in info] == [reported["id"]]
    assert cluster(magnum, state="absent", check=True)["changed"]
    assert cluster(magnum, state="absent")["changed"]
    assert cluster(magnum, state="absent")["changed"] is False
    assert magnum.run("cluster_info", name=magnum.named("c"))["clusters"] == []


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({}, "set it to the template from which to create the cluster"),
        ({"cluster_template": "nowhere"}, "Magnum has no template nowhere; available: k8s"),
        ({"cluster_template": "k8s", "flavor": "nope"}, "Nova has no flavor nope"),
        ({"cluster_template": "k8s", "keypair": "nope"}, "no key pair nope; available: lab"),
        ({"cluster_template": "k8s", "master_count": 2}, "odd number"),
        ({"cluster_template": "k8s", "name": "9"}, "starting with a letter"),
    ],
)
def test_invalid_arguments_fail_before_the_first_write(magnum: Magnum, args: dict[str, Any], message: str) -> None:
    with magnum.watched() as watched:
        refused = cluster(magnum, **args)
    assert refused["code"] == "invalid"
    assert message in refused["msg"]
    assert watched == []


def test_no_quota_for_clusters(magnum: Magnum) -> None:
    magnum.fault("no-quota", "--value", "clusters=2")
    with magnum.watched() as watched:
        refused = cluster(magnum, cluster_template="k8s")
    assert "The project's quota is 2 clusters, and it has 2" in refused["msg"]
    assert watched == []


@pytest.mark.usual(8)
def test_two_clusters_of_one_name(magnum: Magnum) -> None:
    """Magnum allows them; a request by name fails with both ids."""
    templates = (magnum.api.get("/clustertemplates") or {})["clustertemplates"]
    body = {"name": magnum.named("c"), "cluster_template_id": templates[0]["uuid"], "keypair": "lab"}
    ids = [magnum.api.send("POST", "/clusters", body).json()["uuid"] for dummy in range(2)]
    # Magnum answers before it has stored a cluster.
    until(lambda: all(magnum.api.get(f"/clusters/{one}") for one in ids))
    cases: list[tuple[str, dict[str, Any]]] = [
        ("nodegroup", {"cluster": magnum.named("c"), "name": "g"}),
        ("nodegroup_info", {"cluster": magnum.named("c")}),
        ("cluster", {"name": magnum.named("c"), "cluster_template": "k8s"}),
        ("cluster", {"name": magnum.named("c"), "state": "absent"}),
        ("kubeconfig_info", {"cluster": magnum.named("c")}),
    ]
    for module, args in cases:
        with magnum.watched() as watched:
            refused = magnum.run(module, **args)
        assert refused["failed"], module
        assert all(one in refused["msg"] for one in ids), module
        assert watched == []
    assert not magnum.run("nodegroup_info", cluster=ids[0]).get("failed"), "an id says which one"


@pytest.mark.usual(10)
def test_a_cluster_is_created_once_if_the_response_is_lost(magnum: Magnum) -> None:
    magnum.fault("lost-reply", "--value", "1")
    done = cluster(magnum, cluster_template="k8s")
    assert not done.get("failed"), done["msg"]
    assert len(magnum.run("cluster_info", name=magnum.named("c"))["clusters"]) == 1


def test_a_node_group_of_a_cluster_in_creation(magnum: Magnum) -> None:
    """Until its API server has an address, Magnum creates no node group: 404 and then 409."""
    assert cluster(magnum, cluster_template="k8s", labels={"lab_delay": "2"}, wait=False)["changed"]
    name = magnum.named("c")
    created = magnum.run("nodegroup", cluster=name, name=magnum.named("g"), flavor="m2.medium", node_count=0)
    assert not created.get("failed"), created["msg"]
    assert magnum.live("g", name)["status"] == "CREATE_COMPLETE"


@pytest.mark.usual(5)
def test_the_api_server_accepts_the_kubeconfig(magnum: Magnum, tmp_path: Path) -> None:
    own, dest = magnum.lab.name, tmp_path / "config"
    args: dict[str, Any] = {"cluster": own, "dest": str(dest)}
    predicted = magnum.run("kubeconfig", check=True, **args)
    assert not dest.exists()
    written = magnum.run("kubeconfig", **args)
    assert not written.get("failed"), written["msg"]
    assert (predicted["changed"], predicted["diff"]) == (True, written["diff"])
    assert stat.S_IMODE(os.stat(dest).st_mode) == 0o600
    user = yaml.safe_load(dest.read_text())["users"][0]["user"]
    assert user["client-key-data"] not in str(written)
    message = subprocess.run(
        ["kubectl", "--kubeconfig", dest, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"],
        env=magnum.lab.env,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert message.stdout == "admin"

    before = dest.read_bytes()
    with magnum.watched() as watched:
        assert magnum.run("kubeconfig", **args)["changed"] is False
    assert watched == []
    assert dest.read_bytes() == before
    info = magnum.run("kubeconfig_info", cluster=own, path=str(dest))["kubeconfig"]
    assert info["valid"]
    assert info["expires_at"] == written["kubeconfig"]["expires_at"]
    other = magnum.run("kubeconfig_info", cluster=CLUSTER, path=str(dest))["kubeconfig"]
    assert (other["valid"], other["reason"]) == (False, f"its context is {own}, but the cluster is {CLUSTER}")

    dest.chmod(0o644)
    loosened = magnum.run("kubeconfig", **args)
    assert loosened["kubeconfig"]["reason"] == "users other than its owner can read it"
    assert stat.S_IMODE(os.stat(dest).st_mode) == 0o600


def test_a_foreign_file_is_not_replaced(magnum: Magnum, tmp_path: Path) -> None:
    for name, text in (("notes", "hello: world\n"), ("theirs", (Path(magnum.lab.env["KUBECONFIG"])).read_text())):
        path = tmp_path / name
        document = yaml.safe_load(text)
        if name == "theirs":
            document["contexts"].append({"name": "mine", "context": {}})
        path.write_text(yaml.safe_dump(document))
        before = path.read_bytes()
        refused = magnum.run("kubeconfig", cluster=CLUSTER, dest=str(path))
        assert refused["code"] == "invalid"
        assert path.read_bytes() == before
    nowhere = magnum.run("kubeconfig", cluster=CLUSTER, dest=str(tmp_path / "no" / "folder"), check=True)
    assert "does not exist; create it first" in nowhere["msg"]


def test_the_catalog_of_the_cloud(magnum: Magnum) -> None:
    catalog = magnum.run("catalog_info", gpu_aliases={"a100": "A100-PCIE-40GB"})["catalog"]
    gpus = {flavor["name"]: flavor["gpus"] for flavor in catalog["flavors"]}
    assert gpus["m2.medium"] is None
    assert (gpus["g2.5xlarge"]["model"], gpus["g2.5xlarge"]["count"]) == ("T4", 1)
    assert (gpus["g4.p2.40g"]["model"], gpus["g4.p2.40g"]["count"]) == ("A100-PCIE-40GB", 2)
    assert (gpus["vgpu1.small"]["kind"], gpus["vgpu1.small"]["model"]) == ("vgpu", "T4")
    assert (gpus["pgpu1.large"]["kind"], gpus["pgpu1.large"]["model"]) == ("gpu", None)
    assert catalog["extra_specs_readable"]
    assert catalog["keypairs"] == ["lab"]
    assert {"k8s", "k8s-gpu"} <= {template["name"] for template in catalog["cluster_templates"]}
    assert catalog["quota"]["clusters"]["used"] == 2
    assert catalog["microversion"]["used"] == ("1.14" if magnum.release == "23" else "1.11")
