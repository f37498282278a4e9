# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fake VKS with the vendor's own clients, as an independent check.

The vendor's modules are not available from Go's module proxy, so these tests need checkouts of its repositories:
`git clone https://github.com/GreenNodeHub/greennode-cli` and `git clone https://github.com/vngcloud/terraform-provider-vngcloud`,
named in ACCEL_GPU_GREENNODE_CLI and ACCEL_GPU_VNGCLOUD_PROVIDER.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.vks import seed
from lab.vks.fake import FakeVks
from tests.helpers.vks import SECRETS, Account, group, running
from tests.programs import REPO

pytestmark = pytest.mark.soak

DRIVER = REPO / "tests" / "helpers" / "vendor" / "provider.go"
# The address of IAM that is compiled into the command line; tests replace it with an environment variable.
IAM_URL = '"https://iam.api.vngcloud.vn/accounts-api/v2/auth/token"'


def checkout(variable: str) -> Path:
    """Return the folder in an environment variable."""
    named = os.environ.get(variable)
    if not named:
        pytest.skip(f"{variable} names no checkout of the vendor's repository")
    return Path(named)


def built(folder: Path, replaced: dict[Path, Path], target: Path, what: str) -> Path:
    """Build a program of a checkout with some files replaced; the checkout is not changed."""
    overlay = target.with_suffix(".json")
    overlay.write_text(json.dumps({"Replace": {str(original): str(other) for original, other in replaced.items()}}))
    subprocess.run(["go", "build", "-overlay", overlay, "-o", target, what], cwd=folder, check=True)
    return target


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeVks]:
    with running(tmp_path_factory.mktemp("vks") / "demo") as actual:
        yield actual


@pytest.fixture(scope="module")
def environment(fake: FakeVks, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    login = {"GRN_CLIENT_ID": "lab", "GRN_CLIENT_SECRET": SECRETS["lab"]}
    names = {
        "GRN_ACCESS_KEY_ID": "lab",
        "GRN_SECRET_ACCESS_KEY": SECRETS["lab"],
        "GRN_DEFAULT_PROJECT_ID": seed.PROJECT,
    }
    home = {"HOME": str(tmp_path_factory.mktemp("home")), "PATH": os.environ["PATH"]}
    return {**fake.addresses(), **login, **names, **home}


class Grn:
    """The vendor's command line (generation 3)."""

    def __init__(self, program: Path, environment: dict[str, str]) -> None:
        self._program, self._environment = program, environment

    def __call__(self, product: str, *words: str) -> Any:
        """Run a command, and return its output, parsed if it is JSON."""
        address = self._environment["VKS_URL" if product == "vks" else "VKS_VSERVER_URL"]
        call: list[str | Path] = [
            self._program,
            product,
            *words,
            "--endpoint-url",
            address,
            "--allow-untrusted-endpoint",
        ]
        done = subprocess.run(call, env=self._environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"grn {product} {words}: {done.stdout}{done.stderr}"
        try:
            return json.loads(done.stdout)
        except ValueError:
            return done.stdout


@pytest.fixture(scope="module")
def grn(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Grn:
    folder = checkout("ACCEL_GPU_GREENNODE_CLI") / "go"
    path, work = folder / "internal" / "login" / "iamenv.go", tmp_path_factory.mktemp("grn")
    source = path.read_text()
    assert source.count(IAM_URL) == 1
    patched = source.replace(IAM_URL, 'os.Getenv("VKS_IAM_URL")').replace('import "fmt"', 'import (\n"fmt"\n"os"\n)')
    (work / "iamenv.go").write_text(patched)
    return Grn(built(folder, {path: work / "iamenv.go"}, work / "grn", "."), environment)


def test_lifecycle_of_a_group_with_the_command_line(grn: Grn, fake: FakeVks, tmp_path: Path) -> None:
    account = Account(fake)
    (cluster,) = [one["id"] for one in grn("vks", "list-clusters")["items"]]
    of_cluster = ("--cluster-id", cluster)
    desired = group(name="by-grn-1")
    choice = {"flavor-id": "flavorId", "disk-type": "diskType", "ssh-key-id": "sshKeyId", "subnet-id": "subnetId"}
    options = [word for option, name in choice.items() for word in (f"--{option}", desired[name])]
    options += ["--labels", "a=1,b=2", "--taints", "nvidia.com/gpu=:NoSchedule", "--tags", "t=1"]
    new = grn(
        "vks", "create-nodegroup", *of_cluster, "--name", "by-grn-1", *options, "--auto-scale", "minSize=1,maxSize=3"
    )
    of_group = (*of_cluster, "--nodegroup-id", new["id"])
    wait = ("--delay", "1", "--max-attempts", "20")
    grn("vks", "wait", "nodegroup-active", *of_group, *wait)
    detail = grn("vks", "get-nodegroup", *of_group)
    assert (detail["labels"], detail["tags"], detail["autoScaleConfig"]) == (
        {"a": "1", "b": "2"},
        {"t": "1"},
        {"minSize": 1, "maxSize": 3},
    )
    assert detail["taints"] == [{"key": "nvidia.com/gpu", "value": "", "effect": "NoSchedule"}]

    grn("vks", "update-nodegroup", *of_group, "--num-nodes", "2")
    grn("vks", "wait", "nodegroup-active", *of_group, *wait)
    assert [node["ready"] for node in grn("vks", "list-nodes", *of_group)["items"]] == [True, True]
    # The client sends an empty option --taints as null.
    grn("vks", "update-nodegroup-metadata", *of_group, "--labels", "a=3", "--taints", "")
    grn("vks", "wait", "nodegroup-active", *of_group, *wait)
    detail = grn("vks", "get-nodegroup", *of_group)
    assert (detail["labels"], detail["taints"], detail["tags"]) == ({"a": "3"}, [], {"t": "1"})

    account.put("token-expired", 0)
    assert {one["name"] for one in grn("vks", "list-nodegroups", *of_cluster)["items"]} == {
        "default-worker",
        "by-grn-1",
    }
    account.login()
    account.put("server-error", 1)
    assert grn("vks", "get-quota")["maxNodesPerNodeGroup"] == 10

    grn("vks", "update-cluster", *of_cluster, "--k8s-version", seed.VERSIONS[1], "--whitelist-node-cidrs", "0.0.0.0/0")
    grn("vks", "upgrade-nodegroup-version", *of_group, "--k8s-version", seed.VERSIONS[1])
    grn("vks", "wait", "nodegroup-active", *of_group, *wait)
    assert grn("vks", "get-nodegroup", *of_group)["kubernetesVersion"] == seed.VERSIONS[1]
    assert grn("vks", "get-cluster-events", *of_cluster)["items"]

    grn("vks", "generate-kubeconfig", *of_cluster, "--expiration-days", "30")
    account.settled(f"/clusters/{cluster}/kubeconfig")
    grn("vks", "update-kubeconfig", *of_cluster, "--kubeconfig", str(tmp_path / "kubeconfig"))
    assert f"vks_{cluster}" in (tmp_path / "kubeconfig").read_text()

    grn("vks", "delete-nodegroup", *of_group, "--force")
    grn("vks", "wait", "nodegroup-deleted", *of_group, *wait)
    assert list(account.groups()) == ["default-worker"]


def test_lookups_with_the_command_line(grn: Grn, fake: FakeVks) -> None:
    assert {one["name"] for one in grn("vserver", "flavor", "list-families")} == {"gpu", "general"}
    of_cluster = ("--family", "gpu", "--code", "skylake", "--zone-id", seed.ZONES[1])
    assert grn("vserver", "flavor", "list", *of_cluster)
    assert "twin" in json.dumps(grn("vserver", "sshkey", "list"))
    assert "gpu-nodes" in json.dumps(grn("vserver", "secgroup", "list"))
    assert len(grn("vserver", "subnet", "list", "--vpc-id", seed.NETWORK)) == 4
    assert "other" in json.dumps(grn("vserver", "vpc", "list"))


@pytest.mark.usual(120)
def test_lifecycle_of_a_group_with_the_terraform_provider(
    fake: FakeVks, environment: dict[str, str], tmp_path: Path
) -> None:
    folder = checkout("ACCEL_GPU_VNGCLOUD_PROVIDER")
    main = "accel-gpu-check/main.go"
    program = built(folder, {folder / main: DRIVER}, tmp_path / "provider", main)
    account, desired = Account(fake), group()
    first = {
        "cluster_id": account.cluster.rpartition("/")[2],
        "name": "by-tf-1",
        "num_nodes": 1,
        "image_id": seed.image("ubuntu", seed.VERSIONS[0]),
        "flavor_id": desired["flavorId"],
        "disk_type": desired["diskType"],
        "ssh_key_id": desired["sshKeyId"],
        "subnet_id": desired["subnetId"],
        "security_groups": [seed.stable_id("secg", "gpu-nodes")],
        "labels": {"a": "1"},
        "taint": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
        "enable_private_nodes": True,
    }
    second = {**first, "num_nodes": 2, "labels": {"a": "2"}}
    third = {**second, "num_nodes": 3, "auto_scale_config": [{"min_size": 1, "max_size": 4}]}
    steps = [{"name": str(number), "config": config} for number, config in enumerate((first, second, third, None))]
    done = subprocess.run(
        [program], input=json.dumps(steps), env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    message = [json.loads(line)["attributes"] for line in done.stdout.splitlines()]
    assert [one.get("labels.a") for one in message] == ["1", "2", "2", None]
    assert message[0]["taint.0.key"] == "k"
    assert (message[2]["auto_scale_config.0.max_size"], message[3]) == ("4", {})
    assert "by-tf-1" not in account.groups()


def test_responses_match_the_vendors_openapi_file(fake: FakeVks) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    folder = checkout("ACCEL_GPU_VNGCLOUD_PROVIDER")
    published = yaml.safe_load((folder / "client" / "vks" / "api" / "swagger.yaml").read_text())
    account = Account(fake)
    path = account.created(
        name="by-oas-1", labels={"a": "b"}, taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}]
    )
    requests = {
        "ClusterDetailDto": account.cluster,
        "PagingResultDtoClusterDto": "/clusters",
        "PagingResultDtoNodeGroupDto": f"{account.cluster}/node-groups",
        "NodeGroupDetailDto": path,
        "PagingResultDtoNodeDto": f"{path}/nodes",
        "WorkspaceDto": "/workspace",
    }
    for schema, address in requests.items():
        # The file has no nullable fields, although its own examples contain null; NetworkType has other values now.
        body = _without_null(account.vks("GET", address).body)
        body.pop("networkType", None)
        jsonschema.validate(body, {**published, "$ref": f"#/components/schemas/{schema}"})
        known = published["components"]["schemas"][schema]["properties"].keys()
        assert known - {"networkType", "description", "autoScaleConfig", "updatedAt"} <= body.keys(), schema


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_null(one) for key, one in value.items() if one is not None}
    return [_without_null(one) for one in value] if isinstance(value, list) else value
