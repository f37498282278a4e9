# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two inventories and a person share an OpenShift cluster: no operation touches a MachineSet, Machine, node or pod of another."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.modules import machineset
from lab.machine_api.machine_sets import MACHINE_SETS, NAMESPACE, machine_set, provider_spec
from lab.nodes import is_ready
from tests.helpers.openshift import OpenShift
from tests.helpers.playbook_kills import kubernetes_proxy, proxied
from tests.helpers.shared_clusters import DECLARED, MOST_OF_A_PERSON, PERSON, Object, SharedKubernetes

MACHINES = f"/apis/machine.openshift.io/v1beta1/namespaces/{NAMESPACE}/machines"
LIKE = "prod-worker-us-east-2a"
ASSIGNED = ("uid", "resourceVersion", "managedFields", "creationTimestamp", "generation")
NODE_LABELS = ("accel.gpu/pool", "team")
MACHINE = "machine.openshift.io/machine"


class SharedOpenShift(SharedKubernetes):
    """MachineSets, and who owns them."""

    flavors = ("g4dn.xlarge", "g4dn.2xlarge")
    settings = {"like": LIKE}
    # A person may have taken a declared name.
    refusals = (*SharedKubernetes.refusals, "was not created by this collection")

    def listed(self) -> dict[str, Object]:
        sets = {item["metadata"]["name"]: item for item in self.api.list(MACHINE_SETS)}
        machines = list(self.api.list(MACHINES))
        nodes = {node["metadata"]["name"] for node in self.api.list("/api/v1/nodes") if is_ready(node)}
        running = {(one.get("status") or {}).get("nodeRef", {}).get("name") for one in machines}
        groups: dict[str, Object] = {
            name: {"id": item["metadata"]["uid"], "machines": {}} for name, item in sets.items()
        }
        of_uid = {group["id"]: group for group in groups.values()}
        for machine in machines:
            (owner,) = machine["metadata"]["ownerReferences"]
            if owner["uid"] not in of_uid:
                # The garbage collector has not deleted it yet.
                return {}
            of_uid[owner["uid"]]["machines"][machine["metadata"]["name"]] = kept(machine)
        for name, item in sets.items():
            groups[name]["object"] = kept(item)
        moving = [one for one in (*sets.values(), *machines) if one["metadata"].get("deletionTimestamp")]
        counts = all(is_settled(item, len(groups[name]["machines"])) for name, item in sets.items())
        return groups if counts and not moving and running <= nodes else {}

    def group_of(self, node: Object, groups: Mapping[str, Object]) -> str:
        machine = node["metadata"].get("annotations", {}).get(MACHINE, "").rpartition("/")[2]
        return next((name for name, group in groups.items() if machine in group["machines"]), "")

    def identifiers(self, name: str, group: Object) -> set[str]:
        machines = {f"machines/{machine}" for machine in group.get("machines", ())}
        return {*super().identifiers(name, group), *machines, f"machinesets/{name}"}

    def declare(self, name: str) -> Object:
        labels = {"accel.gpu/pool": name, "team": self.chance.choice(["a", "b"])}
        return {**super().declare(name), "node_labels": labels}

    def module(self, groups: Sequence[Object], drain: Object) -> tuple[Callable[[], Any], Object]:
        options = {"gpu_cluster": {"name": self.lab.name}, "confirm": [self.lab.name], "drain": drain}
        waits = {"wait_timeout": 60, "wait_sleep": 1, "lease_wait_timeout": 60}
        return machineset.main, {"kubeconfig": self.environ["KUBECONFIG"], **options, **waits, "nodegroups": groups}

    def act_as_person(self, groups: Mapping[str, Object]) -> str:
        own, kind = self.owned(groups), self.chance.random()
        if own and (len(own) >= MOST_OF_A_PERSON or kind < 0.2):
            return self._delete(self.chance.choice(own))
        if own and kind < 0.3:
            count = self.chance.randint(0, 2)
            name = self.chance.choice(own)
            self.api.merge(f"{MACHINE_SETS}/{name}", {"spec": {"replicas": count}})
            return f"{name} gets {count} machines"
        if own and kind < 0.4:
            return self.label_a_node(groups, NODE_LABELS)
        source = self.source(groups)
        name = self._free_name(groups, source)
        if own and kind < 0.55:
            # Labels and annotations of another group are added to an existing MachineSet.
            target = self.chance.choice(own)
            metadata = groups[source]["object"]["metadata"]
            copied = {key: metadata.get(key) for key in ("labels", "annotations")}
            self.api.merge(f"{MACHINE_SETS}/{target}", {"metadata": copied})
            return f"{target} gets the labels and annotations of {source}"
        if kind < 0.6:
            body = machine_set(name, provider_spec("AWS", "us-east-2b"), replicas=self.chance.randint(0, 1))
            self.api.request("POST", MACHINE_SETS, body)
            return f"{name} is created"
        text = json.dumps(self.api.get(f"{MACHINE_SETS}/{source}"))
        # An editor changes metadata.name, sed every occurrence of the name.
        body = json.loads(text.replace(source, name) if self.chance.random() < 0.5 else text)
        body["metadata"] = {key: value for key, value in body["metadata"].items() if key not in ASSIGNED}
        body["metadata"]["name"] = name
        del body["status"]
        self.api.request("POST", MACHINE_SETS, body)
        return f"{name} is created as a copy of {source}"

    def settle(self, owner: str, name: str) -> None:
        if self.owner.get(name) == PERSON and name in self.groups():
            self._delete(name)
            self.groups()
            del self.owner[name]
        super().settle(owner, name)

    def _free_name(self, groups: Mapping[str, Object], source: str) -> str:
        free = sorted({name for names in DECLARED.values() for name in names} - set(groups))
        return self.chance.choice(free) if free and self.chance.random() < 0.1 else self.suggestive_name(source)

    def _delete(self, name: str) -> str:
        self.api.request("DELETE", f"{MACHINE_SETS}/{name}")
        return f"{name} is deleted"


def kept(item: Object) -> Object:
    """The object without what its controllers write."""
    metadata = {
        key: value for key, value in item["metadata"].items() if key not in ("resourceVersion", "managedFields")
    }
    return {"metadata": metadata, "spec": item["spec"]}


def is_settled(item: Object, machines: int) -> bool:
    """Whether a MachineSet has its Machines, all with available nodes."""
    status, count = item.get("status") or {}, item["spec"]["replicas"]
    observed = status.get("observedGeneration") == item["metadata"]["generation"]
    return bool(observed and machines == status.get("replicas", 0) == status.get("availableReplicas", 0) == count)


@pytest.fixture
def shared(openshift: OpenShift, tmp_path: Path) -> Iterator[SharedOpenShift]:
    for time in ("create", "boot", "terminate"):
        openshift.lab.command("cloud", "set", f"machines.{time}-seconds=5")
    with proxied(openshift.lab, [kubernetes_proxy], tmp_path) as (proxies, environ):
        yield SharedOpenShift(openshift.lab, proxies, environ, random.Random(os.environ["ACCEL_GPU_SEED"]))


@pytest.mark.usual(40)
@pytest.mark.parametrize("count", [15, pytest.param(1500, marks=[pytest.mark.soak, pytest.mark.timeout(7200)])])
def test_no_operation_touches_anything_of_another(shared: SharedOpenShift, count: int) -> None:
    shared.play(count)
