# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NodeDrainer on a real API server: budgets, foreign cordons, blocking pods, parallel runs, and a killed run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.waits import WaitTimeout
from ansible_collections.accel.gpu.plugins.module_utils.kube.lease import LeaseHeld
from ansible_collections.accel.gpu.plugins.module_utils.kube.paths import NODES, object_path
from ansible_collections.accel.gpu.plugins.module_utils.nodes.drain import EvictionRefused, NodeRemoval
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node_check import REMOVAL_REASON
from tests.faults.api_proxy import Answer
from tests.helpers import drain_module
from tests.helpers.drain_fixture import DrainFixture, Object
from tests.helpers.kube import Kube
from tests.helpers.modules import run_module
from tests.helpers.polling import until
from tests.programs import REPO

DENIED = Answer(403, b'{"kind": "Status", "message": "not allowed", "reason": "Forbidden", "code": 403}')


UNCORDONED, CORDONED = (False, ""), (True, REMOVAL_REASON)


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
    created = kube.client.create(f"/api/v1/namespaces/{namespace}/configmaps", body)
    owner = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": created["metadata"]["uid"],
        "controller": True,
    }
    kube.delete_afterwards(object_path("coordination.k8s.io/v1", "Lease", kube.prefix, "default"))
    yield DrainFixture(kube, nodes, namespace, owner)
    for name in nodes:
        kube.client.patch(f"{NODES}/{name}", {"spec": {"unschedulable": None}})


class Recorder(NodeRemoval):
    """Records the calls, and the pods and cordons at that time."""

    def __init__(self, drained: DrainFixture) -> None:
        self.drained = drained
        self.calls: list[tuple[str, list[str], list[str], list[bool]]] = []

    def prepare(self, nodes: Sequence[Node]) -> None:
        self._add("prepare", nodes)

    def cancel(self, nodes: Sequence[Node]) -> None:
        self._add("cancel", nodes)

    def _add(self, call: str, nodes: Sequence[Node]) -> None:
        names = sorted(node.name for node in nodes)
        cordoned = [cordoned for cordoned, dummy in self.drained.cordons()]
        self.calls.append((call, names, self.drained.pods(), cordoned))


def test_what_else_ends_before_the_machines_are_removed(drained: DrainFixture) -> None:
    drained.pod("a", 0)
    drained.pod("stays", 2)
    drainer = drained.drainer()
    drainer.removal = recorder = Recorder(drained)
    drainer.drain(drained.nodes[:2])
    drainer.uncordon(drained.nodes)
    drainer.uncordon(drained.nodes)
    assert recorder.calls == [
        ("prepare", drained.nodes[:2], ["stays"], [True, True, False]),
        # While the nodes are cordoned, so that a run that is killed here is continued.
        ("cancel", drained.nodes[:2], ["stays"], [True, True, False]),
    ]


def test_nothing_else_ends_if_a_node_is_not_drained(drained: DrainFixture) -> None:
    drained.pod("bare", 0, bare=True)
    drainer = drained.drainer()
    drainer.removal = recorder = Recorder(drained)
    with pytest.raises(EvictionRefused):
        drainer.drain(drained.nodes[:2])
    assert recorder.calls == []


def test_all_nodes_are_cordoned_before_the_first_eviction_and_nothing_is_sent_twice(drained: DrainFixture) -> None:
    drained.pod("a", 0)
    drained.pod("b", 1)
    drained.pod("stays", 2)
    with drained.kube.watched() as watched:
        drainer = drained.drainer(drained.kube.connect("accel.gpu/test", watched.kubeconfig))
        with drainer:
            assert drainer.drain(drained.nodes[:2]) == [f"{drained.namespace}/a", f"{drained.namespace}/b"]
            assert drained.cordons() == [CORDONED, CORDONED, UNCORDONED]
            sent = [
                request
                for request in watched.new_requests()
                if not request.startswith("GET") and "/leases" not in request
            ]
            patches = [f"PATCH {NODES}/{name}" for name in drained.nodes[:2]]
            evictions = [request for request in sent if request.endswith("/eviction")]
            # A patch is repeated only after a conflict with another writer of the node.
            assert sorted(set(sent[: sent.index(evictions[0])])) == patches
            assert sent[sent.index(evictions[0]) :] == evictions
            assert len(set(evictions)) == len(evictions)
            assert drainer.drain(drained.nodes[:2]) == []
            assert not [request for request in watched.new_requests() if not request.startswith("GET")]
    assert drained.pods() == ["stays"]


def test_uncordon_takes_back_only_its_own_cordons(drained: DrainFixture) -> None:
    drained.kube.client.patch(f"{NODES}/{drained.nodes[0]}", {"spec": {"unschedulable": True}})
    drained.drainer().drain(drained.nodes[:2])
    assert drained.cordons() == [(True, ""), CORDONED, UNCORDONED]
    assert drained.drainer().uncordon(drained.nodes) == [drained.nodes[1]]
    assert drained.cordons() == [(True, ""), UNCORDONED, UNCORDONED]
    assert drained.drainer().uncordon(drained.nodes) == []


def test_a_pod_without_a_controller_blocks_the_drain_before_the_first_change(drained: DrainFixture) -> None:
    drained.pod("web", 0)
    drained.pod("experiment", 1, bare=True)
    with drained.kube.watched() as watched:
        drainer = drained.drainer(drained.kube.connect("accel.gpu/test", watched.kubeconfig))
        with pytest.raises(
            EvictionRefused, match=rf"{drained.nodes[1]}: {drained.namespace}/experiment .*drain\.force"
        ) as caught:
            drainer.drain(drained.nodes)
        assert not [
            request for request in watched.new_requests() if not request.startswith("GET") and "/leases" not in request
        ]
    assert caught.value.partial == {"pods_left": [f"{drained.namespace}/experiment"]}
    # The last of three scale-down candidates.
    assert drained.nodes[1] not in drained.drainer().scale_down_candidates(drained.nodes, 2)
    drained.drainer(force=True).drain(drained.nodes)
    assert drained.pods() == []


def test_pods_of_daemonsets_are_not_evicted(drained: DrainFixture) -> None:
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
    assert drained.drainer().drain(drained.nodes[:1]) == [f"{drained.namespace}/web"]
    assert drained.pods() == before


def test_all_nodes_are_uncordoned_if_one_cannot_be_drained(drained: DrainFixture) -> None:
    drained.pod("free", 0)
    drained.pod("kept", 1)
    drained.budget("kept")
    with pytest.raises(WaitTimeout, match=rf"{drained.nodes[1]} was not drained.*PodDisruptionBudget") as caught:
        drained.drainer(drain_timeout=4).drain(drained.nodes)
    assert caught.value.partial == {"pods_left": [f"{drained.namespace}/kept"]}
    assert drained.cordons() == [UNCORDONED, UNCORDONED, UNCORDONED]
    assert drained.pods() == ["kept"]


def test_a_failure_names_the_nodes_that_stay_cordoned(drained: DrainFixture) -> None:
    drained.pod("kept", 0)
    drained.budget("kept")
    with drained.kube.watched() as watched:
        # After the first eviction request, no node can be patched.
        refused = threading.Event()

        def before(request: Any) -> Any:
            if request.path.endswith("/eviction"):
                refused.set()
            if refused.is_set() and request.method == "PATCH":
                return DENIED
            return None

        watched.proxy.before = before
        with pytest.raises(WaitTimeout, match="PodDisruptionBudget") as caught:
            drained.drainer(drained.kube.connect("accel.gpu/test", watched.kubeconfig), drain_timeout=3).drain(
                drained.nodes[:1]
            )
    assert caught.value.partial["left_cordoned"] == drained.nodes[:1]


def test_pods_that_are_scheduled_to_a_cordoned_node_are_reported(drained: DrainFixture) -> None:
    labels = {"app": "tolerating"}
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
        "metadata": {"name": "tolerating"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }
    drained.kube.client.patch(
        f"{NODES}/{drained.nodes[0]}", {"metadata": {"labels": {"kubernetes.io/hostname": drained.nodes[0]}}}
    )
    drained.kube.client.create(f"/apis/apps/v1/namespaces/{drained.namespace}/replicasets", body)
    until(lambda: len(drained.pods()) == 1, limit=30)
    with pytest.raises(WaitTimeout, match=r"node\.kubernetes\.io/unschedulable"):
        drained.drainer(drain_timeout=5).drain(drained.nodes[:1])
    assert drained.cordons()[0] == UNCORDONED


def test_without_eviction_it_waits_until_the_pods_end(drained: DrainFixture) -> None:
    drained.pod("experiment", 0, bare=True)
    with pytest.raises(WaitTimeout, match=r"rollout\.drain_timeout.*experiment has not terminated.*drain\.evict"):
        drained.drainer(evict=False, drain_timeout=1).drain(drained.nodes[:1])
    end = threading.Timer(2, drained.kube.client.delete, (object_path("v1", "Pod", "experiment", drained.namespace),))
    end.start()
    assert drained.drainer(evict=False).drain(drained.nodes[:1]) == []
    end.join()
    assert (drained.pods(), drained.cordons()[0]) == ([], CORDONED)


def module_arguments(drained: DrainFixture, names: list[str], **more: Any) -> Object:
    drain = {"drain_timeout": more.pop("drain_timeout", 20)}
    kubernetes = {
        "kubeconfig": str(drained.kube.kubeconfig),
        "lease_namespace": drained.namespace,
        "lease_wait_timeout": more.pop("lease_wait_timeout", 40),
        "drain": drain,
    }
    return {"kubernetes": kubernetes, "names": names, **more}


def test_the_next_run_continues_or_uncordons_after_a_killed_run(drained: DrainFixture) -> None:
    # The only node with a pod, so it would be the last candidate.
    drained.pod("kept", 0)
    budget = drained.budget("kept")
    command = [sys.executable, "-m", "tests.helpers.drain_module"]
    environ = {**os.environ, "PYTHONPATH": f"{REPO / 'build'}:{REPO}"}
    options = json.dumps(module_arguments(drained, drained.nodes[:1], drain_timeout=60))
    running = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=REPO, text=True, env=environ)
    assert running.stdin is not None
    running.stdin.write(options)
    running.stdin.close()
    until(lambda: drained.cordons()[0] == CORDONED, limit=30)
    running.kill()
    running.wait()
    assert drained.cordons() == [CORDONED, UNCORDONED, UNCORDONED]

    drained.kube.client.delete(budget)
    done = run_module(drain_module.main, module_arguments(drained, drained.nodes, count=1))
    assert (done["nodes"], done["evicted"]) == (drained.nodes[:1], [f"{drained.namespace}/kept"])
    again = run_module(drain_module.main, module_arguments(drained, drained.nodes, uncordon=True))
    assert again["nodes"] == drained.nodes[:1]
    assert drained.cordons() == [UNCORDONED, UNCORDONED, UNCORDONED]


def test_the_lease_is_held_until_the_end_of_the_block(drained: DrainFixture) -> None:
    with drained.drainer(run="first") as first:
        first.drain(drained.nodes[:1])
        with pytest.raises(LeaseHeld, match="first"):
            drained.drainer(run="second").drain(drained.nodes[1:2])
    drained.drainer(run="second").drain(drained.nodes[1:2])
    assert drained.cordons() == [CORDONED, CORDONED, UNCORDONED]


def test_option_kubernetes_of_a_module(drained: DrainFixture) -> None:
    assert run_module(drain_module.main, {"names": ["x"]})["connected"] is False
    drained.pod("kept", 0)
    drained.budget("kept")
    failed = run_module(drain_module.main, module_arguments(drained, drained.nodes[:1], drain_timeout=3))
    assert (failed["failed"], failed["code"], failed["pods_left"]) == (True, "timeout", [f"{drained.namespace}/kept"])
    rules = [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list"]}]
    options = module_arguments(drained, drained.nodes[:1])
    options["kubernetes"]["kubeconfig"] = str(drained.kube.limited_user(rules))
    denied = run_module(drain_module.main, options)
    assert (denied["failed"], denied["code"]) == (True, 403)
    assert "leases" in denied["msg"]
    options["kubernetes"]["kubeconfig"] = "/nowhere/kubeconfig"
    assert run_module(drain_module.main, options)["code"] == "connection"


def test_cluster_nodes_have_provider_id_and_addresses(drained: DrainFixture) -> None:
    drained.kube.client.patch(
        f"{NODES}/{drained.nodes[0]}", {"spec": {"providerID": f"openstack:///{drained.kube.prefix}"}}
    )
    address = [{"type": "InternalIP", "address": "192.0.2.7"}]
    drained.kube.client.patch(f"{NODES}/{drained.nodes[0]}/status", {"status": {"addresses": address}})
    nodes = {node.name: node for node in drained.drainer().cluster_nodes()}
    assert nodes[drained.nodes[0]].provider_id == f"openstack:///{drained.kube.prefix}"
    assert "192.0.2.7" in nodes[drained.nodes[0]].addresses
    assert nodes[drained.nodes[0]].labels["test"] == drained.kube.prefix
