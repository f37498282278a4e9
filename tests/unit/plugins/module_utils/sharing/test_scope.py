# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes that a run selects by labels."""

from __future__ import annotations

from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node, parse_selector
from ansible_collections.accel.gpu.plugins.module_utils.sharing.change_plan import Scope
from tests.helpers.fleet import node


def test_a_selector_without_gpu_nodes_is_a_warning() -> None:
    nodes = [node("t4", labels={"zone": "a"}), Node("cpu", labels={"zone": "b"})]
    texts = {
        text: list(Scope(requirements=tuple(parse_selector(text))).warnings(nodes)) for text in ("zone=a", "zone=b")
    }
    assert texts["zone=a"] == []
    assert texts["zone=b"] == [
        "gpu_sharing_label_selectors (option label_selectors of the module) selects none of the 1 GPU nodes, so no node is changed."
    ]
    assert list(Scope().warnings(nodes)) == []
