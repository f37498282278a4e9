# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage before Helm: the diff of check mode is that of the run, also for a node whose MIG layout is reset first."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import cast
from unittest import mock

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.errors import InvalidOptions
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.nodes.ownership import POOL_OWNER
from ansible_collections.accel.gpu.plugins.module_utils.nodes.pods import PodOnNode
from ansible_collections.accel.gpu.plugins.module_utils.uninstall import removal, stages
from ansible_collections.accel.gpu.plugins.module_utils.uninstall.objects import ComponentRemoval, Components
from ansible_collections.accel.gpu.plugins.module_utils.uninstall.stages import BeforeHelm

MIG, STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"
OWN_LABELS = {"accel.gpu/pool": "train", MIG: "accel-1"}
NODE = Node(
    "a100-1",
    labels={**OWN_LABELS, STATE: "success", "nvidia.com/gpu.deploy.mig-manager": "true"},
    annotations={POOL_OWNER.labels: json.dumps(sorted(OWN_LABELS))},
    ready=True,
    resource_version="1",
)

FOREIGN = mock.Mock(managed=False)


def stage() -> BeforeHelm:
    return BeforeHelm(
        client=mock.Mock(),
        progress=mock.Mock(),
        waiting=None,
        components=Components(ComponentRemoval(FOREIGN), ComponentRemoval(FOREIGN)),
        run_id="r",
        allow_driver_rollout=False,
        reset_mig=True,
        count_interrupted_nodes=mock.Mock(),
        restart_mig_managers=mock.Mock(),
        policies=[{"metadata": {"name": "cluster-policy"}}],
        nodes=[NODE],
    )


def test_the_removed_mig_devices_are_in_the_preview_and_in_the_result_of_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    preview = stage()
    preview.preview()
    run = replace(stage(), waiting=mock.Mock())
    reset = mock.Mock(return_value=mock.Mock(wait=lambda: [replace(NODE, labels={})]))
    monkeypatch.setattr(stages, "MigReset", reset)
    monkeypatch.setattr(run, "patch_nodes", mock.Mock())
    run._await_mig_reset(mock.Mock())
    assert (
        preview.result.removed
        == run.result.removed
        == ["MIG devices of node a100-1: removed by the MIG manager; no former layout is recorded"]
    )


def test_the_diff_has_the_state_after_the_reset_of_the_layout() -> None:
    preview = stage()
    preview.preview()

    run = stage()
    for labels in (NODE.labels, {**NODE.labels, MIG: "all-disabled", STATE: "success"}):
        edit = run.node_edit(replace(NODE, labels=labels))
        assert edit is not None
        run.result.add_node(edit)
    run._report_mig_reset([NODE])
    assert preview.result.diff() == run.result.diff()
    before, after = preview.result.diff()
    assert before["nodes"]["a100-1"]["labels"] == {**OWN_LABELS, STATE: "success"}
    assert after["nodes"]["a100-1"]["labels"] == {}


@pytest.mark.parametrize("reset_mig", [True, False])
@pytest.mark.parametrize("ready", [True, False])
def test_a_partitioned_node_that_is_not_ready_ends_the_run_before_its_records_are_lost(
    reset_mig: bool, ready: bool
) -> None:
    run = replace(stage(), nodes=[replace(NODE, ready=ready)], reset_mig=reset_mig)
    if ready or not reset_mig:
        run._require_ready_nodes()
        return
    with pytest.raises(InvalidOptions, match=r"a100-1: not ready, .* gpu_uninstall_reset_mig=false"):
        run._require_ready_nodes()


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        ([PodOnNode("lab", "train", "u", {"nvidia.com/mig-1g.10gb": 1})], "a100-1: lab/train"),
        # It may hold a device, but does not have to; the MIG manager decides.
        ([PodOnNode("lab", "debugger", "u", access=("privileged container main",))], ""),
        ([], ""),
    ],
)
def test_pods_with_gpus_end_the_run_before_any_node_changes(
    monkeypatch: pytest.MonkeyPatch, pods: list[PodOnNode], words: str
) -> None:
    listed = mock.Mock(gpu_pods={"a100-1": pods, "other": [PodOnNode("a", "b", "c", {"nvidia.com/gpu": 1})]})
    monkeypatch.setattr(removal, "pods_by_node", mock.Mock(return_value=listed))
    monkeypatch.setattr(removal, "pods_on", mock.Mock())
    run = stage()
    monkeypatch.setattr(run, "patch_nodes", mock.Mock())
    assert [words in text for text in run.warnings()] == ([True] if words else [])
    if words:
        with pytest.raises(InvalidOptions, match=f"{words}.*Nothing has been changed"):
            run.remove(mock.Mock())
    else:
        run.remove(mock.Mock())
    assert cast(mock.Mock, run.patch_nodes).called is not bool(words)


def test_the_configmaps_are_read_only_for_nodes_with_former_labels() -> None:
    policy = {"metadata": {"name": "p"}, "spec": {"devicePlugin": {"config": {"name": "theirs"}}}}
    managed = [{"manager": "helm", "fieldsV1": {"f:data": {"f:x10": {}}}}]
    configmap = {"metadata": {"managedFields": managed}, "data": {"x10": "", "config.yaml": "mig-configs: {all-x: []}"}}
    run = replace(stage(), policies=[policy])
    run.client.get = mock.Mock(return_value=configmap)  # type: ignore[method-assign]
    run._read_entries([policy])
    assert not run.client.get.called
    former = json.dumps({"labels": {MIG: "all-x", "nvidia.com/device-plugin.config": "x10"}})
    run.nodes = [replace(NODE, annotations={**NODE.annotations, "accel.gpu/former-labels": former})]
    run._read_entries([policy])
    assert (run.entries.mig, "x10" in run.entries.plugin) == (frozenset({"all-x"}), True)
    assert len(run.client.get.mock_calls) == 2
    run._read_entries([])
    assert run.entries.plugin == frozenset()


@pytest.mark.parametrize(
    ("manager", "kept"),
    [("accel.gpu", ""), ("argocd-controller", "another tool created it, as a copy of an object of this collection")],
)
def test_a_copied_policy_is_neither_deleted_nor_changed(manager: str, kept: str) -> None:
    """For example, the policy was exported, with its annotations, and is now applied by GitOps."""
    record = {"accel.gpu/created": "true", "accel.gpu/previous-spec": '{"mig": {"strategy": "mixed"}}'}
    metadata = {"name": "cluster-policy", "uid": "u", "annotations": record, "managedFields": [{"manager": manager}]}
    policy = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": metadata}
    removals = list(stage()._policy_removals(policy))
    assert [(removal.kept, removal.send is None) for removal in removals] == [(kept, bool(kept))]
