# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two inventories and a person share a cluster: random operations, and after each the proof that it touched nothing of the others."""

from __future__ import annotations

import abc
import json
import os
import random
import signal
import threading
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from lab import audit
from lab.api import Api
from lab.layout import Lab as LabLayout
from lab.nodes import NODES
from tests.faults.api_proxy import Proxy, Request
from tests.helpers.modules import run_module
from tests.helpers.polling import until
from tests.labs import Lab

Object = dict[str, Any]

SERVICE, PERSON = "the service", "person"
# The names of the second inventory are names that replacements of the first one's groups could have.
DECLARED = {"first": ("train", "burst"), "second": ("train-2026", "burst-0002")}
MOST_OF_A_PERSON = 5
# The refusal to create a group beside a copy or a restored replacement that may be the declared group.
UNPROVEN = "no mark proves whose group this is"
# With this number of random operations, some certainly delete a group, and some are killed.
MANY = 100
AGENT = "accel.gpu/"
PODS = "/api/v1/namespaces/default/pods"


class SharedCluster(abc.ABC):
    """The cluster, who owns each of its groups, and one operation of one of the owners at a time."""

    # Two flavors; a group's flavor cannot be changed, so that another one replaces the group.
    flavors: tuple[str, str]
    settings: Mapping[str, Any]
    # Whether the list of the groups is so old at times that a run does what check mode has not predicted.
    lists_late = False
    # Texts of the only failures that a run that is not interrupted may have.
    refusals: Sequence[str] = (UNPROVEN,)

    def __init__(self, chance: random.Random) -> None:
        """Take the source of all decisions; the groups that exist belong to the service."""
        self.chance = chance
        self.owner: dict[str, str] = dict.fromkeys(self.groups(), SERVICE)
        self.deleted: list[str] = []
        self.interrupted = 0

    @abc.abstractmethod
    def groups(self) -> dict[str, Object]:
        """Everything that belongs to each group, without what changes by itself, once no operation is in progress."""

    @abc.abstractmethod
    def identifiers(self, name: str, group: Object) -> set[str]:
        """How requests name a group and what belongs to it."""

    @abc.abstractmethod
    def mark(self) -> Any:
        """The present end of the request logs."""

    @abc.abstractmethod
    def written(self, since: Any) -> set[str]:
        """What the changing requests of the collection since a mark name."""

    @abc.abstractmethod
    def run(self, groups: Sequence[Object], *, check: bool = False, interrupt: bool = False) -> Object | None:
        """The result of a run with these declared groups; None if it was killed."""

    @abc.abstractmethod
    def act_as_person(self, groups: Mapping[str, Object]) -> str:
        """Create, change or delete one of the person's groups; returns what was done."""

    def play(self, count: int) -> None:
        """Perform this number of operations on declared groups; afterwards one run for each group brings it to the declared state."""
        self._settle_all()
        for number in range(count):
            done = self.operate(self.chance.choice([*DECLARED, PERSON]))
            print(f"{number + 1}: {done}", flush=True)
        self._settle_all()
        assert (self.deleted and self.interrupted) or count < MANY

    def operate(self, owner: str) -> str:
        """One random operation; returns what was done."""
        return self.checked(owner, self._act_as_person if owner == PERSON else lambda before: self._run_of(owner))

    def checked(self, owner: str, act: Callable[[Mapping[str, Object]], tuple[str, set[str]]]) -> str:
        """Act for an owner, after which everything of all others is as before.

        act: gets the groups; returns what was done, and the groups that may be gone, since their deletion was named.
        """
        before, since = self.groups(), self.mark()
        done, named = act(before)
        after = self.groups()
        for name in after.keys() - before.keys():
            self.owner[name] = owner
        others = {name for name in before if self.owner[name] != owner}
        assert {name: after.get(name) for name in others} == {name: before[name] for name in others}, done
        written = self.written(since)
        foreign = {text for name in others for text in self.identifiers(name, before[name])}
        assert written.isdisjoint(foreign), (done, written & foreign)
        gone = {name for name in before if after.get(name, {}).get("id") != before[name].get("id")}
        assert gone <= named, (done, gone, named)
        # The log shows every deletion, so that it would show one of another owner's group.
        unseen = {name for name in gone if not written & self.identifiers(name, before[name])}
        assert not unseen or owner == PERSON, (done, unseen, written)
        self.deleted += gone
        return done

    def suggestive_name(self, source: str = "") -> str:
        """A name like that of a replacement of a declared group; of the group that `source` replaces or is, if there is one."""
        names = [name for declared in DECLARED.values() for name in declared]
        bases = [name for name in names if source.startswith(name)] or names
        return f"{self.chance.choice(bases)}-{self.chance.randrange(16**4):04x}"

    def source(self, groups: Collection[str]) -> str:
        """A group whose labels the person copies: mostly one of an inventory."""
        declared = [name for owner in DECLARED for name in self.owned(groups, owner)]
        return self.chance.choice(declared if declared and self.chance.random() < 0.8 else sorted(set(groups) - {""}))

    def owned(self, groups: Collection[str], owner: str = PERSON) -> list[str]:
        """The groups that belong to the owner, in a fixed order."""
        return sorted(name for name in groups if self.owner.get(name) == owner)

    def declare(self, name: str) -> Object:
        """The declaration of a group with random properties."""
        flavor, count = self.chance.choice(self.flavors), self.chance.randint(1, 2)
        return {"name": name, "flavor": flavor, **self.settings, "node_count": count, "recreate": True}

    def _act_as_person(self, before: Mapping[str, Object]) -> tuple[str, set[str]]:
        own = set(self.owned(before))
        return f"{PERSON}: {self.act_as_person(before)}", own

    def _run_of(self, owner: str) -> tuple[str, set[str]]:
        """A run of an inventory; returns what was done, and the groups whose deletion it has named."""
        first, second = self.chance.sample(DECLARED[owner], 2)
        kind = self.chance.random()
        # A group is deleted, renamed, or declared.
        declared = [{"name": first, "state": "absent"}] if kind < 0.3 else []
        if kind < 0.15 or not declared:
            declared.append(self.declare(second))
        interrupt = self.chance.random() < 0.4
        predicted = self.run(declared, check=True)
        assert predicted is not None
        result = self.run(declared, interrupt=interrupt)
        self.interrupted += result is None
        outcome = "killed" if result is None else result.get("msg") or shown(result)
        done = f"{owner}: {declared} -> {outcome}"
        failed = result is not None and bool(result.get("failed"))
        assert not failed or any(text in str(outcome) for text in self.refusals), done
        named = deletions(predicted)
        if self.lists_late:
            named |= deletions(result or {})
        elif result is not None and not failed:
            assert deletions(result) == named, done
        return done, named

    def settle(self, owner: str, name: str) -> None:
        """After a run that is not killed, the declared group is one group, and nothing is left to do."""
        declared = [{"name": name, "flavor": self.flavors[0], **self.settings, "node_count": 1, "recreate": True}]
        self._delete_copies(declared)

        def run(dummy: Mapping[str, Object]) -> tuple[str, set[str]]:
            result = self.run(declared)
            assert result is not None
            assert not result.get("failed"), result
            again = self.run(declared)
            assert again is not None
            assert not again["changed"], again
            assert again["nodegroups"][name]["name"] == result["nodegroups"][name]["name"]
            return f"{owner}: {shown(result)}", deletions(result)

        print(self.checked(owner, run), flush=True)

    def _delete_copies(self, declared: Sequence[Object]) -> None:
        """Follow the advice of a refusal: the person deletes the copies that it names."""
        message = str((self.run(declared, check=True) or {}).get("msg") or "")
        if UNPROVEN not in message:
            return
        # The nodes of no group are listed under an empty name, which would be found in every message.
        copies = [name for name in self.groups() if name and f" {name} has the " in f" {message}"]
        assert copies, message
        for copy in copies:
            assert self.owner[copy] == PERSON, message

            def delete(dummy: Mapping[str, Object], copy: str = copy) -> tuple[str, set[str]]:
                result = self.run([{"name": copy, "state": "absent"}])
                assert result is not None
                assert not result.get("failed"), result
                return f"{PERSON}: {copy} is deleted", {copy}

            print(self.checked(PERSON, delete), flush=True)

    def _settle_all(self) -> None:
        for owner, names in DECLARED.items():
            for name in names:
                self.settle(owner, name)
        declared = [name for name in self.groups() if self.owner[name] in DECLARED]
        assert len(declared) == sum(map(len, DECLARED.values())), declared


def deletions(result: Object) -> set[str]:
    """The groups whose deletion a result names."""
    groups = result.get("nodegroups", {}).values()
    return {str(text).partition(" ")[0] for group in groups for text in group.get("deletes", [])}


def shown(result: Object) -> str:
    """What a run did with each group."""
    return ", ".join(
        f"{name}: {group['action']} {group['name']} {group.get('deletes', '')}"
        for name, group in result["nodegroups"].items()
    )


class Killer:
    """Kills a child process after one of the changing requests that the proxies forward."""

    def __init__(self, proxies: Sequence[Proxy]) -> None:
        """Watch these proxies."""
        self._lock, self._pid, self._left = threading.Lock(), 0, 0
        for proxy in proxies:
            proxy.after = self._after

    def run(self, after: int, main: Callable[[], Any], args: Mapping[str, Any], **options: Any) -> Object | None:
        """The result of a module in a child process; None if it was killed after this number of changing requests (0: never)."""
        reading, writing = os.pipe()
        with self._lock:
            self._left = after
            self._pid = os.fork()
            if not self._pid:
                _report(writing, main, args, **options)
        os.close(writing)
        with os.fdopen(reading) as file:
            text = file.read()
        dummy, status = os.waitpid(self._pid, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            return None
        result: Object = json.loads(text)
        assert "traceback" not in result, result["traceback"]
        return result

    def _after(self, request: Request, status: int) -> None:
        if not request.mutating or status >= 400 or "accel.gpu" not in request.user_agent:
            return
        with self._lock:
            self._left -= 1
            if not self._left:
                os.kill(self._pid, signal.SIGKILL)


def _report(writing: int, main: Callable[[], Any], args: Mapping[str, Any], **options: Any) -> None:
    """In a child process: write the module's result, and end."""
    try:
        try:
            text = json.dumps(run_module(main, args, **options))
        except BaseException:
            text = json.dumps({"traceback": traceback.format_exc()})
        with os.fdopen(writing, "w") as file:
            file.write(text)
    finally:
        os._exit(0)


class SharedKubernetes(SharedCluster):
    """A cluster of the lab whose nodes belong to groups and run pods. Runs are processes that are killed; drains are real."""

    # A pod without a controller stays if the run is not allowed to evict it.
    refusals: Sequence[str] = (UNPROVEN, "Save the data of pods without a controller")

    def __init__(self, lab: Lab, proxies: Sequence[Proxy], environ: dict[str, str], chance: random.Random) -> None:
        """Runs use this environment, which leads through the proxies."""
        self.lab, self.environ = lab, environ
        self.layout = LabLayout.named(lab.name)
        self.api = Api(self.layout)
        self._killer = Killer(proxies)
        self._pods = 0
        super().__init__(chance)

    @abc.abstractmethod
    def listed(self) -> dict[str, Object]:
        """Each group with its `id` and settings; None while an operation is in progress."""

    @abc.abstractmethod
    def group_of(self, node: Object, groups: Mapping[str, Object]) -> str:
        """The name of the group of a node, empty for other nodes; StopIteration if the node is newer or older than the groups."""

    @abc.abstractmethod
    def module(self, groups: Sequence[Object], drain: Object) -> tuple[Callable[[], Any], Object]:
        """The module, and its options."""

    def groups(self) -> dict[str, Object]:
        """Each group with its nodes and their pods; under the empty name, nodes without a group."""
        groups: dict[str, Object] = until(self._read, limit=120)
        return groups

    def identifiers(self, name: str, group: Object) -> set[str]:
        pods = (f"pods/{pod}" for node in group["nodes"].values() for pod in node["pods"])
        return {*pods, *(f"nodes/{node}" for node in group["nodes"])}

    def mark(self) -> Any:
        return audit.mark(self.layout)

    def written(self, since: Any) -> set[str]:
        sent = [request for request in audit.requests(self.layout, since, AGENT) if request.mutating]
        assert all(request.name or request.verb == "create" for request in sent), "a collection is changed as a whole"
        return {f"{request.resource}/{request.name}" for request in sent}

    def run(self, groups: Sequence[Object], *, check: bool = False, interrupt: bool = False) -> Object | None:
        after = self.chance.randint(1, 6) if interrupt else 0
        main, options = self.module(groups, {"force": interrupt or self.chance.random() < 0.8})
        return self._killer.run(after, main, options, check=check, diff=True, env=self.environ)

    def operate(self, owner: str) -> str:
        done = super().operate(owner)
        self._place_pods()
        return done

    def label_a_node(self, groups: Mapping[str, Object], keys: Collection[str]) -> str:
        """The person gives one of their nodes labels of a node of another group."""
        own = [node for name in self.owned(groups) for node in sorted(groups[name]["nodes"])]
        others = list(groups[self.source(groups)]["nodes"].values())
        if not own or not others:
            return "no node to label"
        target, labels = self.chance.choice(own), self.chance.choice(others)["labels"]
        copied = {key: value for key, value in labels.items() if key in keys}
        self.api.merge(f"{NODES}/{target}", {"metadata": {"labels": copied}})
        return f"node {target} gets the labels {copied}"

    def settle(self, owner: str, name: str) -> None:
        for pod in self.api.list(PODS):
            self.api.request("DELETE", f"{PODS}/{pod['metadata']['name']}")
        super().settle(owner, name)

    def _read(self) -> dict[str, Object] | None:
        groups, nodes = self.listed(), {node["metadata"]["name"]: node for node in self.api.list(NODES)}
        pods = list(self.api.list(PODS))
        if not groups or any(pod["metadata"].get("deletionTimestamp") for pod in pods):
            return None
        complete: dict[str, Object] = {name: {**group, "nodes": {}} for name, group in {"": {}, **groups}.items()}
        try:
            group_of = {name: self.group_of(node, groups) for name, node in nodes.items()}
        except StopIteration:
            return None
        for name, node in nodes.items():
            complete[group_of[name]]["nodes"][name] = {
                **{key: node["metadata"].get(key) for key in ("uid", "labels", "annotations")},
                **{key: node["spec"].get(key) for key in ("taints", "unschedulable")},
                "pods": {
                    pod["metadata"]["name"]: pod["metadata"]["uid"]
                    for pod in pods
                    if pod["spec"].get("nodeName") == name
                },
            }
        return complete

    def _place_pods(self) -> None:
        """Some nodes get a pod without a controller."""
        for name, group in sorted(self.groups().items()):
            for node, shown in sorted(group["nodes"].items()):
                if name and not shown["pods"] and self.chance.random() < 0.3:
                    self._pods += 1
                    metadata = {"name": f"work-{self._pods}"}
                    spec = {"nodeName": node, "containers": [{"name": "c", "image": "x"}]}
                    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
                    spec["terminationGracePeriodSeconds"] = 0
                    self.api.request("POST", PODS, {**body, "spec": spec})
