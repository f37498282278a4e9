# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check mode of a stage patches a node like a run."""

from __future__ import annotations

from dataclasses import dataclass
from unittest import mock

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.kube.objects import NOT_CHECKED
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.nodes.ownership import NodeEdit
from ansible_collections.accel.gpu.plugins.module_utils.uninstall.removal import Stage

MISSING_RIGHT = ApiError('User "u" cannot patch resource "nodes"', status=403)


@dataclass(kw_only=True)
class LabelStage(Stage):
    """Removes a label from each node."""

    def node_edit(self, node: Node) -> NodeEdit | None:
        patch = {"metadata": {"labels": {"a": None}, "resourceVersion": node.resource_version}}
        return NodeEdit(node.name, patch, {"labels": {"a": "b"}}, {"labels": {}})


@pytest.mark.parametrize(
    ("responses", "exists", "unchecked"),
    [
        ([None], True, ""),
        # The kubelet has written the node since it was listed.
        ([ApiError("no", status=409), None], True, ""),
        ([ApiError("no", status=404)], False, ""),
        ([MISSING_RIGHT], True, NOT_CHECKED),
    ],
)
def test_check_mode_patches_a_node_like_a_run(responses: list[ApiError | None], exists: bool, unchecked: str) -> None:
    raw = {"metadata": {"name": "n1", "resourceVersion": "2"}} if exists else None
    client = mock.Mock(strategic_merge=mock.Mock(side_effect=responses), get=mock.Mock(return_value=raw))
    stage = LabelStage(client=client, progress=mock.Mock(), waiting=None, nodes=[Node("n1", resource_version="1")])
    stage.preview()
    assert (stage.result.unchecked or "") == unchecked
    assert client.strategic_merge.call_count == len(responses)
    assert all(call.kwargs == {"dry_run": True} for call in client.strategic_merge.call_args_list)
