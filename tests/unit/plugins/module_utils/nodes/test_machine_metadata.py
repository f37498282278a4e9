# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The entries that a patch removes from a node first leave its Machine; other nodes and other patches cost no request."""

from __future__ import annotations

import json
import typing as t
from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.taints import STARTUP_TAINT
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node_metadata import obsolete_taints, remove_from_machine
from ansible_collections.accel.gpu.plugins.module_utils.nodes.ownership import (
    edit_of,
    undeclared_taints,
    with_recorded_taints,
)
from ansible_collections.accel.gpu.plugins.module_utils.nodes.pool_edit import membership_edit
from ansible_collections.accel.gpu.plugins.module_utils.sharing.rollout import quarantine_patch, uncordon_patch
from ansible_collections.accel.gpu.plugins.module_utils.uninstall.removal import restore_node
from tests.helpers.fleet import node, pool

Object = dict[str, Any]
PATH = "/apis/machine.openshift.io/v1beta1/namespaces/openshift-machine-api/machines/train-x2x4z"
MACHINE = {"machine.openshift.io/machine": "openshift-machine-api/train-x2x4z"}
TEAM = {"key": "team", "value": "a", "effect": "NoSchedule"}
CONFLICT, NOT_FOUND = (ApiError("no", status=status) for status in (409, 404))
FORBIDDEN = ApiError(
    'machines is forbidden: User "u" cannot patch resource "machines" in API group "machine.openshift.io"', status=403
)
EVENT = "lease"


class Server:
    """One Machine, the errors of the next patches, and the requests."""

    def __init__(
        self, taints: list[Object] | None, *errors: ApiError, exists: bool = True, metadata: Object | None = None
    ) -> None:
        spec: Object = {} if taints is None else {"taints": taints}
        if metadata:
            spec["metadata"] = metadata
        self.machine: Object | None = {"metadata": {"resourceVersion": "1"}, "spec": spec} if exists else None
        self.errors, self.requests = list(errors), list[Any]()

    def get(self, path: str) -> Object | None:
        self.requests.append(("GET", path))
        return self.machine

    def patch(self, path: str, body: Object, *, dry_run: bool = False) -> Object:
        self.requests.append(("PATCH", path, body))
        if self.errors:
            if self.machine and self.errors[0].conflict:
                # Another writer adds a taint.
                self.machine = {"metadata": {"resourceVersion": "2"}, "spec": {"taints": [STARTUP_TAINT, TEAM]}}
            raise self.errors.pop(0)
        return body

    def remove(self, actual: Node, patch: Object | None) -> list[Any]:
        removal = edit_of(actual, patch or {}).removal
        if removal is not None:
            remove_from_machine(self, actual.name, removal, lambda: self.requests.append(EVENT))
        return self.requests


def tainted(*taints: Object, annotations: Object | None = None) -> Node:
    return replace(node(), taints=taints, annotations=MACHINE if annotations is None else annotations)


def patch_of(version: str, taints: list[Object] | None) -> Any:
    return "PATCH", PATH, {"metadata": {"resourceVersion": version}, "spec": {"taints": taints}}


STARTING = tainted(STARTUP_TAINT, TEAM)


RELEASED = restore_node(STARTING, reset_mig=True).edit


@pytest.mark.parametrize(
    "patch", [uncordon_patch(STARTING), RELEASED and RELEASED.patch], ids=["uncordon", "uninstall"]
)
@pytest.mark.parametrize(("taints", "kept"), [([STARTUP_TAINT], None), ([TEAM, STARTUP_TAINT], [TEAM])])
def test_the_machine_loses_only_the_startup_taint(
    patch: Object, taints: list[Object], kept: list[Object] | None
) -> None:
    assert Server(taints).remove(STARTING, patch) == [("GET", PATH), EVENT, patch_of("1", kept)]


def test_after_a_conflict_the_machine_is_read_again() -> None:
    requests = Server([STARTUP_TAINT], CONFLICT).remove(STARTING, uncordon_patch(STARTING))
    assert requests == [("GET", PATH), EVENT, patch_of("1", None), ("GET", PATH), EVENT, patch_of("2", [TEAM])]


@pytest.mark.parametrize("server", [Server([TEAM]), Server(None), Server(None, exists=False)])
def test_a_machine_without_the_taint_is_not_patched(server: Server) -> None:
    """A killed run may have removed it from the Machine only."""
    assert server.remove(STARTING, uncordon_patch(STARTING)) == [("GET", PATH)]


@pytest.mark.parametrize(
    ("actual", "patch"),
    [
        (replace(STARTING, annotations={}), uncordon_patch(STARTING)),
        (replace(STARTING, annotations={"machine.openshift.io/machine": "unusual"}), uncordon_patch(STARTING)),
        (tainted(TEAM), {"spec": {"taints": [TEAM, STARTUP_TAINT]}}),
        (STARTING, {"spec": {"unschedulable": True}}),
        (STARTING, quarantine_patch(STARTING, "drain", "message")),
        (STARTING, uncordon_patch(STARTING, failure="message")),
        (STARTING, uncordon_patch(STARTING, verified=False)),
    ],
    ids=["no Machine", "unusual annotation", "taints are added", "cordon", "quarantine", "rollback", "not verified"],
)
def test_no_request_if_the_node_keeps_the_taint_or_has_no_machine(actual: Node, patch: Object | None) -> None:
    assert Server([STARTUP_TAINT]).remove(actual, patch) == []


def test_a_deleted_machine_is_no_error() -> None:
    assert Server([STARTUP_TAINT], NOT_FOUND).remove(STARTING, uncordon_patch(STARTING))[-1] == patch_of("1", None)


def test_a_missing_permission_is_an_error() -> None:
    with pytest.raises(ApiError) as raised:
        Server([STARTUP_TAINT], FORBIDDEN).remove(STARTING, uncordon_patch(STARTING))
    assert raised.value.lacks_right
    assert raised.value.fails_every_request, "the node keeps its taint, and the run ends"


@pytest.mark.parametrize(
    "name",
    [
        "x/../../../../../../api/v1/nodes/b",
        "openshift-machine-api/a/b",
        "Openshift/a",
        "openshift-machine-api/",
        "a?b/c",
    ],
)
def test_an_annotation_that_is_no_name_leads_to_no_request(name: str) -> None:
    starting = tainted(STARTUP_TAINT, annotations={"machine.openshift.io/machine": name})
    assert Server([STARTUP_TAINT]).remove(starting, uncordon_patch(starting)) == []


def test_the_machine_of_another_node_keeps_its_taint() -> None:
    server = Server([STARTUP_TAINT])
    assert server.machine is not None
    server.machine["status"] = {"nodeRef": {"name": "another"}}
    assert server.remove(STARTING, uncordon_patch(STARTING)) == [("GET", PATH)]


POOL = pool("train", labels={"team": "a"}, taints=(TEAM,), nodegroup=object())


def registered() -> Node:
    """A node that has registered with the labels and taints of the pool's MachineSet."""
    return replace(tainted(TEAM), labels={**node().labels, **POOL.node_labels})


def joined() -> Node:
    """The same node after a run, which has recorded what belongs to the pool."""
    actual = registered()
    edit = membership_edit(actual, POOL)
    assert edit is not None
    assert not edit.labels
    assert "taints" not in edit.patch.get("spec", {}), "only the record is written"
    return replace(actual, annotations={**actual.annotations, **edit.patch["metadata"]["annotations"]})


def test_what_the_pool_no_longer_declares_leaves_the_machine_first() -> None:
    actual = joined()
    assert membership_edit(actual, POOL) is None
    edit = membership_edit(actual, replace(POOL, taints=(), labels={}, node_labels=pool("train").node_labels))
    assert edit is not None
    assert edit.patch["spec"]["taints"] == []
    assert edit.labels == {"team": None}
    labels = {"team": "a", "accel.gpu/pool": "train", "others": "x"}
    requests = Server([TEAM, STARTUP_TAINT], metadata={"labels": labels}).remove(actual, edit.patch)
    spec = {"taints": [STARTUP_TAINT], "metadata": {"labels": {"team": None}}}
    assert requests == [("GET", PATH), EVENT, ("PATCH", PATH, {"spec": spec, "metadata": {"resourceVersion": "1"}})]


def test_a_changed_label_leaves_the_machine_too() -> None:
    """Otherwise the Machine API would set the old value again."""
    edit = membership_edit(joined(), replace(POOL, node_labels={**POOL.node_labels, "team": "b"}))
    assert edit is not None
    requests = Server(None, metadata={"labels": {"team": "a"}}).remove(joined(), edit.patch)
    assert requests[-1][2]["spec"] == {"metadata": {"labels": {"team": None}}}


def test_a_released_node_loses_what_it_has_registered_with() -> None:
    edit = membership_edit(joined(), None)
    assert edit is not None
    assert edit.removal is not None
    assert set(edit.labels) >= {"accel.gpu/pool", "team"}
    assert edit.removal.taints == {("team", "NoSchedule")}


@pytest.mark.parametrize(
    ("actual", "changes"), [(replace(registered(), annotations={}), {}), (registered(), {"nodegroup": None})]
)
def test_other_nodes_keep_what_they_had(actual: Node, changes: Object) -> None:
    edit = membership_edit(actual, replace(POOL, **changes))
    assert edit is None


SET_PATH = "/apis/machine.openshift.io/v1beta1/namespaces/openshift-machine-api/machinesets/train"
OWNER = {"kind": "MachineSet", "name": "train", "uid": "1", "controller": True}


class Objects:
    """A Machine with a taint, and its MachineSet."""

    def __init__(
        self, record: Object, template: list[Object], *, forbidden: bool = False, uid: str = "1", managed: bool = True
    ) -> None:
        self.forbidden, self.managed = forbidden, managed
        annotations = {"accel.gpu/registration": json.dumps(record)} if record else {}
        self.objects: Object = {
            PATH: {"metadata": {"ownerReferences": [OWNER]}, "spec": {"taints": [TEAM]}},
            SET_PATH: {
                "metadata": {"uid": uid, "annotations": annotations},
                "spec": {"template": {"spec": {"taints": template}}},
            },
        }

    def get(self, path: str) -> Object | None:
        if self.forbidden:
            raise FORBIDDEN
        return t.cast("Object | None", self.objects.get(path))


@pytest.mark.parametrize(
    ("objects", "is_obsolete"),
    [
        (Objects({"taints": ["team:NoSchedule"]}, [TEAM]), True),
        (Objects({"former_taints": ["team:NoSchedule"]}, []), True),
        (Objects({"former_taints": ["team:NoSchedule"]}, [TEAM]), False),
        (Objects({"taints": []}, [TEAM]), False),
        (Objects({"taints": []}, []), False),
        (Objects({}, []), False),
        (Objects({"taints": ["team:NoSchedule"]}, [TEAM], forbidden=True), False),
        (Objects({"taints": ["team:NoSchedule"]}, [TEAM], uid="2"), False),
        (Objects({"taints": ["team:NoSchedule"]}, [TEAM], managed=False), False),
        (Objects({"taints": 5, "former_taints": {"team:NoSchedule": 1}}, [TEAM]), False),
        (Objects({"former_taints": {"team:NoSchedule": 1}}, []), False),
    ],
    ids=[
        "will be removed",
        "was removed",
        "set again by others",
        "of others",
        "of others, removed",
        "foreign",
        "no right",
        "another set with the name",
        "a copy of a set",
        "a number",
        "a map",
    ],
)
def test_taints_of_a_node_that_no_run_has_seen(objects: Objects, is_obsolete: bool) -> None:
    """The record of its MachineSet decides which of them the collection had set."""
    identity = ("team", "NoSchedule")
    machine = MACHINE["machine.openshift.io/machine"]
    actual = obsolete_taints(objects, machine, {identity, ("by-hand", "NoSchedule")}, {}, lambda item: objects.managed)
    assert actual == ({identity} if is_obsolete else set())
    undeclared = undeclared_taints(registered(), replace(POOL, taints=()))
    assert undeclared == [TEAM]
    edit = membership_edit(with_recorded_taints(registered(), undeclared), replace(POOL, taints=()))
    assert edit is not None
    assert edit.patch["spec"]["taints"] == []
    assert edit.removal is not None
