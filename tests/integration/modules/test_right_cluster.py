# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every module for Kubernetes, including the drain of the node group modules, refuses a cluster other than the named one."""

from __future__ import annotations

import base64
import contextlib
import importlib
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.config import incluster_config

from ansible_collections.accel.gpu.plugins.module_utils.kube import connection
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.module import DrainingModule
from ansible_collections.accel.gpu.plugins.modules import magnum_nodegroup, vks_nodegroup
from tests.faults.api_proxy import Answer, Request
from tests.helpers import drain_module
from tests.helpers.kube import Kube
from tests.helpers.modules import run_module
from tests.helpers.other_cluster import OtherCluster, other_cluster
from tests.helpers.playbook import run_playbook
from tests.programs import REPO, environment

RECORD = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/accel-gpu"
ANNOTATION = "accel.gpu/cluster-name"
CONFIGMAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "right-cluster", "namespace": "default"}}
POOLS = [{"name": "notebooks", "match": {"model": "Tesla-T4"}}]
GROUP: list[str] = yaml.safe_load((REPO / "meta" / "runtime.yml").read_text())["action_groups"]["kube"]
# The minimum options of each module, besides the cluster.
ARGS: dict[str, dict[str, Any]] = {
    "autoscaling": {"gpu_pools": POOLS},
    "cluster_policy": {"gpu_pools": POOLS},
    "driver_image": {"gpu_pools": POOLS},
    "gpu_info": {"gpu_pools": POOLS},
    "gpu_validation": {"gpu_pools": POOLS},
    "image_set": {"gpu_pools": POOLS},
    "pull_secret": {"names": ["login"], "namespaces": ["default"]},
    "helm_release": {
        "release_name": "r",
        "release_namespace": "n",
        "chart_ref": "/nowhere",
        "binary_path": "/bin/true",
    },
    "operator_info": {"gpu_pools": POOLS},
    "kube_object": {"definitions": [CONFIGMAP]},
    "gpu_sharing": {"gpu_pools": POOLS},
    "license": {"gpu_pools": POOLS},
    "license_info": {"gpu_pools": POOLS},
    "license_rotation": {"gpu_pools": POOLS},
    "machineset": {"name": "train", "node_count": 0},
    "machineset_info": {},
    "node_feature_discovery": {"gpu_pools": POOLS},
    "node_metadata": {"sets": [{"label_selectors": [], "labels": {"example.com/right-cluster": "1"}}]},
    "nodegroup_nodes": {"gpu_pools": POOLS},
    "gpu_pools_export": {},
    "olm_subscription": {"namespace": "default", "package": "nfd"},
    "uninstall": {"stage": "new_nodes"},
}
# The node group modules connect to Kubernetes only by DrainingModule.
DRAINING = "draining"
Object = dict[str, Any]


def run(
    name: str, cluster: Object, *, env: dict[str, str] | None = None, check: bool = False, **options: Any
) -> Object:
    """The result of a module for a cluster; gpu_info with the option of the playbook plan that tolerates an unreachable cluster."""
    if name == "autoscaling":
        # For other clouds it sends no request.
        cluster = {**cluster, "cloud": {"machineset": {}}}
    args = {"gpu_cluster": cluster, **options}
    if name == DRAINING:
        return run_module(drain_module.main, {"names": ["nowhere"], "kubernetes": args}, check=check, env=env)
    module = importlib.import_module(f"ansible_collections.accel.gpu.plugins.modules.{name}")
    more = {"allow_unreachable": True} if name == "gpu_info" else {}
    return run_module(module.main, {**ARGS[name], **more, **args}, check=check, diff=True, env=env)


@pytest.fixture
def other() -> Iterator[OtherCluster]:
    """A cluster that must receive no request."""
    with other_cluster() as actual:
        yield actual


@pytest.fixture
def fresh(kube: Kube) -> Iterator[Kube]:
    """The lab's cluster without a recorded name."""
    with contextlib.ExitStack() as stack:
        for path in (RECORD, "/api/v1/namespaces/default/configmaps/right-cluster"):
            kube.client.delete(path)
            stack.callback(kube.client.delete, path)
        yield kube


def recorded(kube: Kube) -> str | None:
    """The recorded name of the cluster."""
    lease = kube.client.get(RECORD) or {}
    name: str | None = (lease.get("metadata", {}).get("annotations") or {}).get(ANNOTATION)
    return name


def record(kube: Kube, name: str) -> None:
    """Record a name in the cluster, by the first change under it."""
    done = run(
        "kube_object",
        {"name": name, "kube_name": kube.client.connection.cluster_name, "kubeconfig": str(kube.kubeconfig)},
    )
    assert done["changed"], done
    assert recorded(kube) == name


def test_every_module_is_covered() -> None:
    assert set(ARGS) == set(GROUP)
    assert issubclass(magnum_nodegroup.MagnumNodeGroupModule, DrainingModule)
    assert issubclass(vks_nodegroup.VksNodeGroupModule, DrainingModule)


def test_credentials_of_another_cluster_in_the_environment(kube: Kube, other: OtherCluster) -> None:
    env = {"K8S_AUTH_HOST": other.url, "K8S_AUTH_API_KEY": "key-of-another-cluster", "K8S_AUTH_VERIFY_SSL": "false"}
    with kube.watched() as watched:
        cluster = {"name": kube.client.connection.cluster_name, "kubeconfig": str(watched.kubeconfig)}
        for name, check in itertools.product((*GROUP, DRAINING), (True, False)):
            result = run(name, cluster, env=env, check=check)
            assert (result.get("failed"), result.get("code")) == (True, "wrong_cluster"), (name, result)
            assert f"K8S_AUTH_HOST ({other.url}), K8S_AUTH_API_KEY: the environment contradicts" in result["msg"]
            assert f"gpu_cluster.kubeconfig (kubeconfig {watched.kubeconfig}" in result["msg"]
            assert "key-of-another-cluster" not in str(result)
        assert watched.new_requests() == []
    assert other.requests == []


@pytest.fixture
def connections(fresh: Kube, monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[str], Object]]:
    """Ways to connect to the lab's cluster, which has the recorded name prod, for a run with the cluster name test."""
    record(fresh, "prod")
    document = yaml.safe_load(fresh.kubeconfig.read_text())
    folder = fresh.folder
    rules = [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]}]
    token = yaml.safe_load(fresh.limited_user(rules).read_text())["users"][0]["user"]["token"]
    cluster = document["clusters"][0]["cluster"]
    server = cluster["server"]
    if "certificate-authority-data" in cluster:
        authority = folder / "ca.crt"
        authority.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
    else:
        authority = fresh.kubeconfig.parent / cluster["certificate-authority"]
    same = fresh.kubeconfig_with(document["users"][0]["user"] | _absolute_user(document, fresh.kubeconfig.parent))
    renamed = yaml.safe_load(same.read_text())
    for entry in (*renamed["contexts"], *renamed["clusters"]):
        entry["name"] = "default"
    renamed["contexts"][0]["context"]["cluster"] = renamed["current-context"] = "default"
    same.write_text(yaml.safe_dump(renamed))

    def in_cluster(name: str) -> Object:
        (folder / "token").write_text(token)
        with monkeypatch.context() as patch:
            patch.setattr(connection, "_IN_CLUSTER_TOKEN", str(folder / "token"))
            patch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(folder / "token"))
            patch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(authority))
            patch.setenv("HOME", str(folder))
            patch.delenv("KUBECONFIG", raising=False)
            host, _colon, port = server.removeprefix("https://").rpartition(":")
            return run(name, {"name": "test"}, env={"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port})

    variables = {"K8S_AUTH_HOST": server, "K8S_AUTH_API_KEY": token, "K8S_AUTH_SSL_CA_CERT": str(authority)}
    return {
        "names that all clusters have": lambda name: run(
            name, {"name": "test", "kube_name": "default", "kubeconfig": str(same)}
        ),
        "environment": lambda name: run(name, {"name": "test"}, env=variables),
        "option host": lambda name: run(name, {"name": "test"}, host=server, api_key=token, ca_cert=str(authority)),
        "in cluster": in_cluster,
    }


def _absolute_user(document: Object, folder: Path) -> Object:
    user = document["users"][0]["user"]
    return {key: str(folder / user[key]) for key in ("client-certificate", "client-key") if key in user}


def test_a_cluster_with_another_recorded_name(fresh: Kube, connections: dict[str, Callable[[str], Object]]) -> None:
    version = fresh.require(RECORD)["metadata"]["resourceVersion"]
    for way, reach in connections.items():
        for name in (*GROUP, DRAINING):
            result = reach(name)
            assert (result.get("failed"), result.get("code")) == (True, "wrong_cluster"), (way, name, result)
            assert "gpu_cluster.name is 'test'" in result["msg"], (way, name)
            assert "is recorded as 'prod'" in result["msg"]
            assert "-e gpu_renamed_from=prod" in result["msg"]
    assert fresh.require(RECORD)["metadata"]["resourceVersion"] == version


def test_the_uid_of_another_cluster(fresh: Kube) -> None:
    uid = fresh.require("/api/v1/namespaces/kube-system")["metadata"]["uid"]
    own = {"name": fresh.client.connection.cluster_name, "kubeconfig": str(fresh.kubeconfig), "uid": uid}
    reported = run("gpu_info", own)["gpu_info"]["identity"]
    assert (reported["uid"], reported["recorded_name"], reported["name_to_record"]) == (uid, None, own["name"])
    assert run("gpu_pools_export", {**own, "uid": None})["gpu_cluster"]["uid"] == uid
    other = "00000000-0000-4000-8000-000000000000"
    for name in (*GROUP, DRAINING):
        result = run(name, {**own, "uid": other})
        assert (result["failed"], result["code"]) == (True, "wrong_cluster"), name
        assert repr(uid) in result["msg"]
        assert repr(other) in result["msg"]
    assert recorded(fresh) is None
    without_rights = {"name": own["name"], "kubeconfig": str(fresh.limited_user([]))}
    refused = run("node_metadata", {**without_rights, "uid": uid})
    assert (refused["code"], 'resources: ["leases"], verbs: ["get"]' in refused["msg"]) == (403, True)


def test_the_name_is_recorded_by_the_first_change_and_renamed_in_one_step(fresh: Kube) -> None:
    own = {"name": "prod", "kube_name": fresh.client.connection.cluster_name, "kubeconfig": str(fresh.kubeconfig)}
    predicted = run("kube_object", own, check=True)
    assert predicted["diff"][-1]["after"] == {"cluster_name": "prod"}
    assert run("gpu_info", own)["changed"] is False
    assert fresh.client.get(RECORD) is None
    first = run("kube_object", own)
    assert (first["changed"], first["diff"]) == (True, predicted["diff"])
    again = run("kube_object", own)
    assert (again["changed"], again["diff"], recorded(fresh)) == (False, [], "prod")

    late = {**own, "name": "production"}
    for name in (*GROUP, DRAINING):
        assert "is recorded as 'prod'" in str(run(name, late, check=True)), name
        assert "is recorded as 'prod'" not in str(run(name, late, check=True, renamed_from="prod")), name
    reported = run("gpu_info", late, renamed_from="prod")["gpu_info"]["identity"]
    assert (reported["recorded_name"], reported["name_to_record"], recorded(fresh)) == ("prod", "production", "prod")
    predicted = run("kube_object", late, check=True, renamed_from="prod")
    assert (predicted["changed"], recorded(fresh)) == (True, "prod")
    renamed = run("kube_object", late, renamed_from="prod")
    assert (renamed["changed"], renamed["diff"]) == (True, predicted["diff"])
    (diff,) = renamed["diff"]
    assert (diff["before"], diff["after"]) == ({"cluster_name": "prod"}, {"cluster_name": "production"})
    assert recorded(fresh) == "production"
    for previous in ("prod", None):
        assert run("kube_object", late, renamed_from=previous)["changed"] is False
    assert "is recorded as 'production'" in run("kube_object", own)["msg"]


PLAY = """
- hosts: all
  connection: local
  gather_facts: false
  vars: {ansible_python_interpreter: "{{ ansible_playbook_python }}"}
  tasks:
    - accel.gpu.kube_object: {gpu_cluster: "{{ gpu_cluster }}", definitions: ["{{ definition }}"]}
"""


def test_two_hosts_of_one_run_with_one_cluster_are_refused(fresh: Kube) -> None:
    """Both have found no recorded name before either creates the Lease."""
    both = threading.Barrier(2, timeout=120)

    def hold(request: Request) -> Answer | None:
        if request.method == "POST" and request.path.partition("?")[0].endswith("/leases"):
            both.wait()
        return None

    with fresh.watched() as watched:
        watched.proxy.before = hold
        cluster = {"kube_name": fresh.client.connection.cluster_name, "kubeconfig": str(watched.kubeconfig)}
        hosts = {name: {"gpu_cluster": {"name": name, **cluster}} for name in ("prod", "test")}
        (fresh.folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
        (fresh.folder / "play.yml").write_text(PLAY)
        played = run_playbook(
            str(fresh.folder / "play.yml"),
            environ=environment(),
            inventory=fresh.folder / "hosts.yml",
            variables={"definition": CONFIGMAP},
        )
    (loser,) = [name for name in hosts if played.stats[name]["failures"]]
    (winner,) = set(hosts) - {loser}
    assert (recorded(fresh), played.changed(winner), played.changed(loser)) == (winner, 1, 0)
    assert f"gpu_cluster.name is '{loser}'" in played.failure(loser)
    assert f"is recorded as '{winner}'" in played.failure(loser)
