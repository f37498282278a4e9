# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The message and the result of a run in which nodes could not be changed, and the warnings of a preview."""

from __future__ import annotations

import typing as t
from dataclasses import replace
from unittest import mock

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.errors import InvalidOptions, PartialFailure
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.nodes.ownership import assign_pools
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.sharing.change_plan import (
    EVERYTHING,
    NEW_NODES,
    PRESENT,
    RESET,
    ConfigMaps,
    Scope,
    plan_sharing_changes,
)
from ansible_collections.accel.gpu.plugins.module_utils.sharing.operation import SharingOperation
from ansible_collections.accel.gpu.plugins.module_utils.sharing.reader import (
    INTERRUPTED,
    ClusterState,
    NodeResult,
    StateReader,
)
from ansible_collections.accel.gpu.plugins.module_utils.sharing.rollout import RolloutResult, after_discovery, warnings
from ansible_collections.accel.gpu.plugins.module_utils.sharing.verification import ObservedNodes
from tests.helpers.fleet import node


def test_the_message_names_the_option_that_held_nodes_back() -> None:
    params = {"allow_release": [], "wait_timeout": 1, "expected_policy": {}}
    operation = SharingOperation(mock.Mock(params=params, check_mode=False), EVERYTHING)
    operation._rollout.done.failed["a"] = "why"
    operation._rollout.done.not_started |= {
        "b": "rollout.max_unavailable",
        "c": "rollout.max_unavailable",
        "x": "rollout.pause_on_failure",
    }
    assert operation._failures().splitlines() == [
        "1 node(s) failed:",
        "a: why",
        "2 node(s) were not started (rollout.max_unavailable)",
        "1 node(s) were not started (rollout.pause_on_failure)",
    ]


PLAN = derive(
    {"name": "lab"},
    {},
    [{"name": "notebooks", "match": {"model": "Tesla-T4"}, "sharing": {"mode": "time-slicing", "replicas": 4}}],
)


CPU = Node("cpu-1", ready=True)


def cluster(*nodes: Node) -> ClusterState:
    membership = assign_pools(PLAN.pools, nodes)
    changes = plan_sharing_changes(PLAN, nodes, membership, ConfigMaps())
    return ClusterState({item.name: item for item in nodes}, "1", membership, changes, PLAN)


@pytest.mark.parametrize(
    ("nodes", "predicted", "is_warned"),
    [
        ([], True, False),
        ([CPU], True, False),
        ([], False, True),
        ([replace(CPU, labels={"feature.node.kubernetes.io/system-os_release.ID": "ubuntu"})], True, True),
    ],
)
def test_a_preview_warns_of_pools_without_nodes_once_the_hardware_is_known(
    nodes: list[Node], predicted: bool, is_warned: bool
) -> None:
    """Until then, after_discovery names these pools."""
    state = cluster(*nodes)
    texts = warnings(state, RolloutResult(predicted=predicted), {})
    assert texts == (["No node of the cluster belongs to: notebooks."] if is_warned else [])
    assert is_warned or after_discovery(state)["pools"] == ["notebooks"]


@pytest.mark.parametrize(
    "error", [ApiError("cannot evict", status=403), PartialFailure("b: why (it is left cordoned)")]
)
def test_the_result_of_a_stopped_run_has_the_nodes_as_the_rolling_update_left_them(error: Exception) -> None:
    """The node that was changed and verified is as declared; the message names the one that stays cordoned."""
    before = cluster(node("a"), node("b"))
    changed = node("a", replicas=4, labels={**PLAN.pools[0].node_labels})
    params = {"allow_release": [], "wait": True, "wait_timeout": 1, "report_path": None, "expected_policy": {}}
    operation = SharingOperation(mock.Mock(params=params, check_mode=False, plan=PLAN), EVERYTHING)

    def apply(state: ClusterState, dummy: t.Any) -> None:
        operation._rollout.nodes = {**state.nodes, "a": changed}
        by_node = {change.node: change for change in state.changes.node_changes}
        operation._rollout.done.add(by_node["a"], NodeResult("a", written=True))
        operation._rollout.done.add(by_node["b"], NodeResult("b", INTERRUPTED, failure="stopped", written=True))
        raise error

    with mock.patch.object(operation._rollout, "apply", apply), pytest.raises(type(error)) as caught:
        operation._run(before, mock.MagicMock())
    partial = t.cast("t.Any", caught.value).partial
    result = partial["gpu_sharing"]
    assert partial["changed"] is True
    assert [line.split()[0] for line in result["not_as_declared"]] == ["b"]
    assert (result["changed_nodes"], result["left_cordoned"]) == (["a"], ["b"])
    assert {key: result["pools"]["notebooks"][key] for key in ("changed", "verified")} == {"changed": 1, "verified": 1}
    notes = getattr(caught.value, "__notes__", [])
    assert notes == (
        [] if isinstance(error, PartialFailure) else ["Nodes that stay cordoned: b. The next run continues with them."]
    )


def test_nodes_that_are_discovered_during_a_run_are_configured_before_anything_is_verified() -> None:
    """The wait ends early for them. Until they are configured, they differ from the declaration, which is no failure."""
    done = node("a", replicas=4, labels=PLAN.pools[0].node_labels)
    before = cluster(done, node("b", labels={"nvidia.com/gpu.product": None}))
    discovered = cluster(done, node("b"))
    settled = mock.Mock(changed=False, pool_of={})
    after = replace(cluster(done, node("b", replicas=4, labels=PLAN.pools[0].node_labels)), changes=settled)
    params = {"allow_release": [], "wait": True, "wait_timeout": 1, "report_path": None, "expected_policy": {}}
    operation = SharingOperation(mock.Mock(params=params, check_mode=False, plan=PLAN), EVERYTHING)
    watch = operation._watch
    waits = [ObservedNodes(discovered, watch.findings(discovered), []), ObservedNodes(after, {}, [])]
    applied: list[ClusterState] = []
    with (
        mock.patch.object(watch, "wait", side_effect=waits),
        mock.patch.object(operation._rollout, "require_permission_to_evict"),
        mock.patch.object(operation, "_apply", lambda state, dummy: applied.append(state)),
        mock.patch.object(operation._context.reader.configmaps, "remove_entries", return_value=[]),
        mock.patch.object(operation._context.reader, "read", return_value=after),
    ):
        observed = operation._reconcile(replace(before, changes=settled), mock.MagicMock())
    assert [state is discovered for state in applied] == [True]
    assert observed.state is after


@pytest.mark.parametrize(
    ("scope", "fails"),
    [(EVERYTHING, True), (Scope(pools=frozenset({"other"})), False), (Scope(RESET), False), (Scope(NEW_NODES), False)],
)
def test_a_run_fails_if_nodes_that_a_pool_lacks_are_hidden(scope: Scope, fails: bool) -> None:
    params = {"allow_release": [], "wait": True, "wait_timeout": 1, "report_path": None, "expected_policy": {}}
    operation = SharingOperation(mock.Mock(params=params, check_mode=False, plan=PLAN), scope)
    tainted = replace(CPU, taints=({"key": "sku", "value": "gpu", "effect": "NoSchedule"},))
    messages = operation._pools_without_visible_nodes(cluster(tainted))
    assert bool(messages) is fails
    if fails:
        assert messages[0] == "No node of the cluster belongs to: notebooks."
        assert "cpu-1 may belong to pool notebooks: taint sku=gpu:NoSchedule; no pool declares its taint" in messages[1]
    # Other nodes of the pool are visible, or NFD has found no GPU on the node.
    assert operation._pools_without_visible_nodes(cluster(tainted, node("a"))) == []
    examined = replace(CPU, labels={"feature.node.kubernetes.io/cpu-model.family": "6"})
    assert operation._pools_without_visible_nodes(cluster(examined)) == []


DRIVER, EXPORTER = "nvidia-driver-daemonset", "nvidia-dcgm-exporter"


class Pods:
    """A client of a cluster with one pod of each operand that keeps failing, by node."""

    def __init__(self, failing: dict[str, str]) -> None:
        self._failing = failing

    def list(self, dummy_path: str, field_selector: str) -> list[dict[str, t.Any]]:
        name = field_selector.removeprefix("spec.nodeName=")
        app = self._failing.get(name)
        waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
        pod = {
            "metadata": {"name": f"{app}-x", "labels": {"app": app}},
            "spec": {"nodeName": name},
            "status": {"containerStatuses": [{"name": "main", "restartCount": 43, "state": waiting}]},
        }
        return [pod] if app else []

    def list_known(self, dummy_path: str) -> t.Sequence[dict[str, t.Any]]:
        return ()

    def text(self, *dummy: t.Any) -> str:
        return "insmod: ERROR"


def run_of(failing: dict[str, str], broken: tuple[str, ...], scope: Scope) -> SharingOperation:
    """A run after cluster_policy has found these nodes broken."""
    params = {"allow_release": [], "wait_timeout": 1, "expected_policy": {"broken_nodes": list(broken)}}
    module = mock.Mock(params=params, check_mode=False, plan=PLAN, client=Pods(failing))
    return SharingOperation(module, scope)


@pytest.mark.parametrize(
    ("failing", "broken", "excluded", "failed"),
    [
        ({"b": DRIVER}, ("b",), ["b"], ["b"]),
        # This run may restart the exporter, so only its state at the end counts.
        ({"b": EXPORTER}, ("b",), [], ["b"]),
        # It works again.
        ({}, ("b",), [], []),
        # Without a result of cluster_policy, no pods are read.
        ({"b": DRIVER}, (), [], []),
        # It is in no pool.
        ({"l40s": DRIVER}, ("l40s",), [], []),
        ({"gone": DRIVER}, ("gone",), [], []),
    ],
)
def test_a_broken_node_of_a_pool_is_not_changed_and_fails_the_run(
    failing: dict[str, str], broken: tuple[str, ...], excluded: list[str], failed: list[str]
) -> None:
    state, scope = cluster(node("a"), node("b"), node("l40s", model="NVIDIA-L40S")), Scope()
    operation = run_of(failing, broken, scope)
    ran_with: list[t.Any] = []
    with (
        mock.patch.object(StateReader, "read", return_value=state),
        mock.patch.object(StateReader, "compare", return_value="without them"),
        mock.patch.object(operation, "_run", lambda compared, dummy_lease: ran_with.append(compared)),
    ):
        operation.execute()
    assert (sorted(scope.excluded), ran_with) == (excluded, ["without them" if excluded else state])
    operation._report_broken(operation._failures_of_broken(state))
    assert list(operation._rollout.done.failed) == failed
    assert list(operation._unusual(state)) == failed
    for name in failed:
        app = failing[name]
        for text in (f"pod {app}-x container main: CrashLoopBackOff", "43 restarts", "ERROR", f"describe pod {app}-x"):
            assert text in operation._failures()


def test_a_broken_node_also_fails_a_run_that_does_not_change_its_pool() -> None:
    operation = run_of({"b": DRIVER}, ("b",), Scope(PRESENT, frozenset({"other"})))
    assert list(operation._failures_of_broken(cluster(node("b")))) == ["b"]


def test_a_driver_that_is_starting_again_is_not_left_out_of_the_changes() -> None:
    operation = run_of({"b": DRIVER}, ("b",), Scope())
    running = {"state": {"running": {}}, "lastState": {"terminated": {"exitCode": 1}}}
    container = {"name": "main", "restartCount": 3, "ready": False, **running}
    pod = {
        "metadata": {"name": "x", "labels": {"app": DRIVER}},
        "spec": {"nodeName": "b"},
        "status": {"containerStatuses": [container]},
    }
    with mock.patch.object(Pods, "list", return_value=[pod]):
        assert not operation._exclude_broken(cluster(node("b")))


WHOLE = {"name": "whole", "match": {"model": "Tesla-T4"}, "sharing": {"mode": "none"}}
SHARED = {"name": "shared", "match": {"model": "Tesla-T4"}, "sharing": {"mode": "time-slicing", "replicas": 4}}
CUT = {"name": "cut", "match": {"model": "A100-SXM4-80GB"}, "sharing": {"mode": "mig", "layout": {"3g.40gb": 2}}}
A100 = "NVIDIA-A100-SXM4-80GB"


def refusal(spec: dict[str, t.Any], pool: dict[str, t.Any], *nodes: Node, wait: bool = True) -> tuple[str, int]:
    """The message with which a run is refused (empty: it is not), and how often it has read the ClusterPolicy."""
    plan, read = derive({"name": "lab"}, {}, [pool]), []

    class WithPolicy(Pods):
        def list_known(self, path: str) -> t.Sequence[dict[str, t.Any]]:
            read.append(path)
            return [{"metadata": {"name": "cluster-policy", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec}]

    params = {"allow_release": [], "wait_timeout": 1, "expected_policy": {}, "wait": wait}
    operation = SharingOperation(
        mock.Mock(params=params, check_mode=False, plan=plan, client=WithPolicy({})), EVERYTHING
    )
    membership = assign_pools(plan.pools, nodes)
    changes = plan_sharing_changes(plan, nodes, membership, ConfigMaps())
    state = ClusterState({item.name: item for item in nodes}, "1", membership, changes, plan)
    with (
        mock.patch.object(StateReader, "read", return_value=state),
        mock.patch.object(operation, "_run", return_value={}),
    ):
        try:
            operation.execute()
        except InvalidOptions as error:
            return str(error), len(read)
    return "", len(read)


OFF: dict[str, t.Any] = {"enabled": False}


@pytest.mark.parametrize(
    ("spec", "pool", "words"),
    [
        ({"devicePlugin": OFF}, SHARED, "spec.devicePlugin.enabled is false, but pool shared needs it"),
        ({"devicePlugin": {"enabled": "false"}}, SHARED, "spec.devicePlugin.enabled is false"),
        ({"gfd": OFF}, SHARED, "spec.gfd.enabled is false, but pool shared needs it"),
        ({"migManager": OFF}, CUT, "spec.migManager.enabled is false, but pool cut needs it"),
        ({"devicePlugin": OFF}, CUT, "spec.devicePlugin.enabled is false, but pool cut needs it"),
        # Nothing that these pools need is missing.
        ({"migManager": OFF}, SHARED, ""),
        ({"dcgm": OFF, "dcgmExporter": OFF, "nodeStatusExporter": OFF}, SHARED, ""),
        (
            {"devicePlugin": OFF},
            {"name": "own", "match": {"model": "Tesla-T4"}, "labels": {"nvidia.com/gpu.deploy.device-plugin": "false"}},
            "",
        ),
    ],
)
def test_a_run_is_refused_if_an_operand_that_a_pool_needs_is_switched_off(
    spec: dict[str, t.Any], pool: dict[str, t.Any], words: str
) -> None:
    model = A100 if pool is CUT else "Tesla-T4"
    message, dummy = refusal(spec, pool, node("a", model=model, labels={"nvidia.com/mig.capable": "true"}))
    assert (words in message) if words else not message
    assert not words or "ClusterPolicy cluster-policy: " in message


def as_declared(pool: dict[str, t.Any], **given: t.Any) -> Node:
    """A node on which a run has already set everything."""
    plan = derive({"name": "lab"}, {}, [pool])
    plain = node("a", model="Tesla-T4", **given)
    change = plan_sharing_changes(plan, [plain], assign_pools(plan.pools, [plain]), ConfigMaps()).node_changes[0]
    assert change.edit is not None
    metadata = change.edit.patch["metadata"]
    labels = {**plain.labels, **{key: value for key, value in metadata["labels"].items() if value is not None}}
    return replace(plain, labels=labels, annotations={**plain.annotations, **(metadata.get("annotations") or {})})


def test_a_device_plugin_that_was_switched_off_after_a_run_is_named_before_the_wait() -> None:
    lost = as_declared(WHOLE, allocatable={"nvidia.com/gpu": 0}, capacity={"nvidia.com/gpu": 1})
    message, dummy = refusal({"devicePlugin": OFF}, WHOLE, lost)
    assert "spec.devicePlugin.enabled is false, but pool whole needs it" in message
    assert refusal({"devicePlugin": OFF}, WHOLE, lost, wait=False) == ("", 0)
    assert refusal({}, WHOLE, lost) == ("", 1)


def test_a_run_without_changes_and_differences_does_not_read_the_policy() -> None:
    assert refusal({"devicePlugin": OFF}, WHOLE, as_declared(WHOLE)) == ("", 0)
