# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of an uninstallation and its diff."""

from __future__ import annotations

from ansible_collections.accel.gpu.plugins.module_utils.core.messages import MAX_LISTED
from ansible_collections.accel.gpu.plugins.module_utils.nodes.ownership import NodeEdit
from ansible_collections.accel.gpu.plugins.module_utils.uninstall.removal import UninstallResult


def edited(number: int) -> NodeEdit:
    return NodeEdit(f"n{number:03}", {}, {"labels": {"a": "1"}}, {"labels": {}})


def test_a_second_patch_of_a_node_is_merged() -> None:
    result = UninstallResult()
    result.add_node(NodeEdit("n", {}, {"labels": {"mig": "x", "a": "1"}}, {"labels": {"mig": "off"}}))
    result.add_node(NodeEdit("n", {}, {"labels": {"mig": "off"}}, {"labels": {}}))
    before, after = result.diff()
    assert before["nodes"] == {"n": {"labels": {"mig": "x", "a": "1"}}}
    assert after["nodes"]["n"]["labels"] == {}
    assert result.as_dict()["nodes_changed"] == 1


def test_names_of_nodes_are_limited() -> None:
    result = UninstallResult()
    for number in range(MAX_LISTED + 20):
        result.add_node(edited(number))
        result.add_kept_on_node(f"n{number:03}", "a pin")
    output = result.as_dict()
    assert (output["nodes_changed"], len(output["names_changed"])) == (120, 100)
    assert output["kept"] == ["120 nodes, n000, n001, n002, n003, n004 and 115 more: a pin"]
    before, after = result.diff()
    assert (len(before["nodes"]), after["nodes_not_shown"]) == (100, 20)
    assert result.changed


def test_duplicates_are_reported_once() -> None:
    result = UninstallResult()
    for dummy in range(2):
        result.add_removed("ConfigMap a/b", ["x"])
        result.add_kept("Namespace a", "it contains ConfigMap c")
        result.add_kept_on_node("n", "a pin")
    assert result.as_dict()["removed"] == ["ConfigMap a/b: deleted"]
    assert result.as_dict()["kept"] == ["Namespace a: it contains ConfigMap c", "node n: a pin"]


def test_the_diff_has_the_taints_of_both_patches_of_a_node() -> None:
    result = UninstallResult()
    result.add_node(NodeEdit("n", {}, {"taints": ["failed=x", "dedicated=new"]}, {"taints": ["dedicated=old"]}))
    result.add_node(NodeEdit("n", {}, {"taints": ["pool=x"]}, {"taints": []}))
    before, after = result.diff()
    assert before["nodes"]["n"]["taints"] == ["failed=x", "dedicated=new", "pool=x"]
    assert after["nodes"]["n"]["taints"] == ["dedicated=old"]
