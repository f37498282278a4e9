# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes are emptied before their machines go: by a real API server, with budgets, strangers' cordons, other runs, and a kill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.cluster_state.cordon import LEAVING
from ansible_collections.accel.gpu.plugins.module_utils.common.wait import WaitTimeout
from ansible_collections.accel.gpu.plugins.module_utils.drain.eviction import EvictionRefused
from ansible_collections.accel.gpu.plugins.module_utils.kube.lease import LeaseHeld
from ansible_collections.accel.gpu.plugins.module_utils.kube.paths import NODES, object_path
from tests.faults.api_proxy import Answer
from tests.helpers import emptying
from tests.helpers.drain_fixture import DrainFixture, Object
from tests.helpers.kube import Kube
from tests.helpers.modules import run_module
from tests.helpers.waiting import until
from tests.programs import REPO

DENIED = Answer(403, b'{"kind": "Status", "message": "not any more", "reason": "Forbidden", "code": 403}')


OPEN, OURS = (False, ""), (True, LEAVING)


@pytest.fixture
def drained(kube: Kube) -> Iterator[DrainFixture]:
    nodes = [f"{kube.prefix}-{number}" for number in range(3)]
    for name in nodes:
        metadata = {
            "name": name,
            "labels": {"test": kube.prefix},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        }
        kube.client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        kube.delete_afterwards(f"{NODES}/{name}")
    namespace = kube.namespace()
    until(lambda: kube.client.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/default") is not None, limit=30)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}}
    made = kube.client.create(f"/api/v1/namespaces/{namespace}/configmaps", body)
    owner = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": made["metadata"]["uid"],
        "controller": True,
    }
    kube.delete_afterwards(object_path("coordination.k8s.io/v1", "Lease", kube.prefix, "default"))
    yield DrainFixture(kube, nodes, namespace, owner)
    for name in nodes:
        kube.client.patch(f"{NODES}/{name}", {"spec": {"unschedulable": None}})


def test_all_are_closed_before_anybody_goes_and_nothing_is_sent_twice(drained: DrainFixture) -> None:
    drained.pod("a", 0)
    drained.pod("b", 1)
    drained.pod("stays", 2)
    with drained.kube.watched() as watched:
        emptier = drained.emptier(drained.kube.connect("accel.gpu/test", watched.kubeconfig))
        with emptier:
            assert emptier.empty(drained.nodes[:2]) == [f"{drained.namespace}/a", f"{drained.namespace}/b"]
            assert drained.cordons() == [OURS, OURS, OPEN]
            sent = [word for word in watched.asked() if not word.startswith("GET") and "/leases" not in word]
            patches = [f"PATCH {NODES}/{name}" for name in drained.nodes[:2]]
            assert sorted(sent[:2]) == patches
            assert {word.partition(" ")[2].rpartition("/")[2] for word in sent[2:]} == {"eviction"}
            assert emptier.empty(drained.nodes[:2]) == []
            assert not [word for word in watched.asked() if not word.startswith("GET")]
    assert drained.pods() == ["stays"]


def test_cordons_of_others_stay_and_ours_are_taken_back(drained: DrainFixture) -> None:
    drained.kube.client.patch(f"{NODES}/{drained.nodes[0]}", {"spec": {"unschedulable": True}})
    drained.emptier().empty(drained.nodes[:2])
    assert drained.cordons() == [(True, ""), OURS, OPEN]
    assert drained.emptier().reopen(drained.nodes) == [drained.nodes[1]]
    assert drained.cordons() == [(True, ""), OPEN, OPEN]
    assert drained.emptier().reopen(drained.nodes) == []


def test_a_pod_that_nobody_makes_again_is_told_before_anything_is_done(drained: DrainFixture) -> None:
    drained.pod("web", 0)
    drained.pod("experiment", 1, bare=True)
    with drained.kube.watched() as watched:
        emptier = drained.emptier(drained.kube.connect("accel.gpu/test", watched.kubeconfig))
        with pytest.raises(
            EvictionRefused, match=rf"{drained.nodes[1]}: {drained.namespace}/experiment .*drain\.force"
        ) as caught:
            emptier.empty(drained.nodes)
        assert not [word for word in watched.asked() if not word.startswith("GET") and "/leases" not in word]
    assert caught.value.partial == {"pods_left": [f"{drained.namespace}/experiment"]}
    # Of three nodes it is the last to go.
    assert drained.nodes[1] not in drained.emptier().victims(drained.nodes, 2)
    drained.emptier(force=True).empty(drained.nodes)
    assert drained.pods() == []


def test_pods_of_daemonsets_end_with_their_node(drained: DrainFixture) -> None:
    labels = {"app": "logs"}
    template = {
        "metadata": {"labels": labels},
        "spec": {
            "nodeSelector": {"test": drained.kube.prefix},
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": "example.org/main"}],
        },
    }
    body = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "logs"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    drained.kube.client.create(f"/apis/apps/v1/namespaces/{drained.namespace}/daemonsets", body)
    until(lambda: len(drained.pods()) == len(drained.nodes), limit=30)
    before = drained.pods()
    drained.pod("web")
    assert drained.emptier().empty(drained.nodes[:1]) == [f"{drained.namespace}/web"]
    assert drained.pods() == before


def test_what_does_not_become_empty_is_opened_again_with_all_the_others(drained: DrainFixture) -> None:
    drained.pod("free", 0)
    drained.pod("kept", 1)
    drained.budget("kept")
    with pytest.raises(WaitTimeout, match=rf"{drained.nodes[1]} has not become empty.*PodDisruptionBudget") as caught:
        drained.emptier(drain_timeout=4).empty(drained.nodes)
    assert caught.value.partial == {"pods_left": [f"{drained.namespace}/kept"]}
    assert drained.cordons() == [OPEN, OPEN, OPEN]
    assert drained.pods() == ["kept"]


def test_a_node_that_stays_closed_is_named_beside_the_reason(drained: DrainFixture) -> None:
    drained.pod("kept", 0)
    drained.budget("kept")
    with drained.kube.watched() as watched:
        # From the first refused eviction on, no node can be written any more.
        refused = threading.Event()

        def before(request: Any) -> Any:
            if request.path.endswith("/eviction"):
                refused.set()
            if refused.is_set() and request.method == "PATCH":
                return DENIED
            return None

        watched.proxy.before = before
        with pytest.raises(WaitTimeout, match="PodDisruptionBudget") as caught:
            drained.emptier(drained.kube.connect("accel.gpu/test", watched.kubeconfig), drain_timeout=3).empty(
                drained.nodes[:1]
            )
    assert caught.value.partial["left_cordoned"] == drained.nodes[:1]


def test_pods_that_come_although_it_is_closed_are_told(drained: DrainFixture) -> None:
    labels = {"app": "clinging"}
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": drained.nodes[0]},
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "main", "image": "example.org/main"}],
        "terminationGracePeriodSeconds": 0,
    }
    template = {"metadata": {"labels": labels}, "spec": spec}
    body = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "clinging"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }
    drained.kube.client.patch(
        f"{NODES}/{drained.nodes[0]}", {"metadata": {"labels": {"kubernetes.io/hostname": drained.nodes[0]}}}
    )
    drained.kube.client.create(f"/apis/apps/v1/namespaces/{drained.namespace}/replicasets", body)
    until(lambda: len(drained.pods()) == 1, limit=30)
    with pytest.raises(WaitTimeout, match=r"node\.kubernetes\.io/unschedulable"):
        drained.emptier(drain_timeout=5).empty(drained.nodes[:1])
    assert drained.cordons()[0] == OPEN


def test_without_eviction_it_waits_until_all_have_ended(drained: DrainFixture) -> None:
    drained.pod("experiment", 0, bare=True)
    with pytest.raises(WaitTimeout, match=r"experiment has not ended.*drain\.evict"):
        drained.emptier(evict=False, drain_timeout=1).empty(drained.nodes[:1])
    end = threading.Timer(2, drained.kube.client.delete, (object_path("v1", "Pod", "experiment", drained.namespace),))
    end.start()
    assert drained.emptier(evict=False).empty(drained.nodes[:1]) == []
    end.join()
    assert (drained.pods(), drained.cordons()[0]) == ([], OURS)


def arguments(drained: DrainFixture, names: list[str], **more: Any) -> Object:
    drain = {"drain_timeout": more.pop("drain_timeout", 20)}
    kubernetes = {
        "kubeconfig": str(drained.kube.kubeconfig),
        "lease_namespace": drained.namespace,
        "lease_wait_timeout": more.pop("lease_wait_timeout", 40),
        "drain": drain,
    }
    return {"kubernetes": kubernetes, "names": names, **more}


def test_a_killed_run_is_taken_up_by_the_next_one_or_taken_back(drained: DrainFixture) -> None:
    # Only the first node has somebody on it, and is therefore the dearest.
    drained.pod("kept", 0)
    budget = drained.budget("kept")
    command = [sys.executable, "-m", "tests.helpers.emptying"]
    environ = {**os.environ, "PYTHONPATH": f"{REPO / 'build'}:{REPO}"}
    given = json.dumps(arguments(drained, drained.nodes[:1], drain_timeout=60))
    running = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=REPO, text=True, env=environ)
    assert running.stdin is not None
    running.stdin.write(given)
    running.stdin.close()
    until(lambda: drained.cordons()[0] == OURS, limit=30)
    running.kill()
    running.wait()
    assert drained.cordons() == [OURS, OPEN, OPEN]

    drained.kube.client.delete(budget)
    done = run_module(emptying.main, arguments(drained, drained.nodes, count=1))
    assert (done["nodes"], done["evicted"]) == (drained.nodes[:1], [f"{drained.namespace}/kept"])
    again = run_module(emptying.main, arguments(drained, drained.nodes, reopen=True))
    assert again["nodes"] == drained.nodes[:1]
    assert drained.cordons() == [OPEN, OPEN, OPEN]


def test_the_lease_is_held_as_long_as_machines_go(drained: DrainFixture) -> None:
    with drained.emptier(run="first") as first:
        first.empty(drained.nodes[:1])
        with pytest.raises(LeaseHeld, match="first"):
            drained.emptier(run="second").empty(drained.nodes[1:2])
    drained.emptier(run="second").empty(drained.nodes[1:2])
    assert drained.cordons() == [OURS, OURS, OPEN]


def test_the_option_of_a_module(drained: DrainFixture) -> None:
    assert run_module(emptying.main, {"names": ["x"]})["asked"] is False
    drained.pod("kept", 0)
    drained.budget("kept")
    failed = run_module(emptying.main, arguments(drained, drained.nodes[:1], drain_timeout=3))
    assert (failed["failed"], failed["code"], failed["pods_left"]) == (True, "timeout", [f"{drained.namespace}/kept"])
    rules = [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list"]}]
    given = arguments(drained, drained.nodes[:1])
    given["kubernetes"]["kubeconfig"] = str(drained.kube.limited_user(rules))
    denied = run_module(emptying.main, given)
    assert (denied["failed"], denied["code"]) == (True, 403)
    assert "leases" in denied["msg"]
    given["kubernetes"]["kubeconfig"] = "/nowhere/kubeconfig"
    assert run_module(emptying.main, given)["code"] == "connection"


def test_machines_are_told_with_what_a_cloud_knows_them_by(drained: DrainFixture) -> None:
    drained.kube.client.patch(
        f"{NODES}/{drained.nodes[0]}", {"spec": {"providerID": f"openstack:///{drained.kube.prefix}"}}
    )
    address = [{"type": "InternalIP", "address": "192.0.2.7"}]
    drained.kube.client.patch(f"{NODES}/{drained.nodes[0]}/status", {"status": {"addresses": address}})
    found = {machine.name: machine for machine in drained.emptier().machines()}
    assert found[drained.nodes[0]].provider_id == f"openstack:///{drained.kube.prefix}"
    assert "192.0.2.7" in found[drained.nodes[0]].addresses
    assert found[drained.nodes[0]].labels["test"] == drained.kube.prefix
