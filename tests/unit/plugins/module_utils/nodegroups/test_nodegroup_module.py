# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of a provider's module: one group or many."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.clouds.magnum_groups import FIELDS as MAGNUM
from ansible_collections.accel.gpu.plugins.module_utils.clouds.vks_groups import FIELDS as VKS
from ansible_collections.accel.gpu.plugins.module_utils.core.types import Integer, MapOf, Text
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.module import NodeGroupField, NodeGroupFields
from ansible_collections.accel.gpu.plugins.module_utils.schema import providers

GROUP = dict.fromkeys(
    name
    for name in VKS.argument_spec
    if name not in ("cluster", "name", "state", "recreate", "nodegroups", "parallel", "confirm")
)


def test_an_option_follows_from_the_type_of_its_field() -> None:
    spec = VKS.argument_spec
    assert spec["disk_size"] == {"type": "int"}
    assert spec["private_nodes"] == {"type": "bool"}
    assert spec["ssh_key"] == {"type": "str", "no_log": False}
    assert spec["security_groups"] == {"type": "list", "elements": "str"}
    assert spec["node_labels"] == {"type": "dict", "aliases": ["labels"]}
    assert spec["node_taints"]["elements"] == "dict"
    assert spec["upgrade_strategy"] == {
        "type": "dict",
        "options": {"max_surge": {"type": "int"}, "max_unavailable": {"type": "int"}},
    }


def test_only_a_provider_with_a_switch_for_autoscaling_has_the_option() -> None:
    assert "autoscaling" not in GROUP
    assert MAGNUM.argument_spec["autoscaling"] == {"type": "bool"}


def test_options_with_defaults_have_none_in_the_list() -> None:
    spec = MAGNUM.argument_spec
    assert spec["merge_labels"] == {"type": "bool", "default": True}
    assert spec["nodegroups"]["options"]["merge_labels"] == {"type": "bool"}


def test_the_options_of_one_group() -> None:
    params = {**GROUP, "name": "train", "node_count": 2, "state": "present", "recreate": False, "nodegroups": None}
    assert VKS.declared_groups(params) == [
        {"name": "train", **GROUP, "node_count": 2, "state": "present", "recreate": False}
    ]


def test_options_beside_the_list_apply_to_groups_without_them() -> None:
    groups = [
        {"name": "a", **GROUP, "state": None, "recreate": None},
        {"name": "b", **GROUP, "state": "present", "recreate": None},
    ]
    params = {**GROUP, "name": None, "state": "absent", "recreate": True, "nodegroups": groups}
    assert [(group["name"], group["state"], group["recreate"]) for group in VKS.declared_groups(params)] == [
        ("a", "absent", True),
        ("b", "present", True),
    ]


def test_a_changed_field_without_a_request_is_an_error() -> None:
    with pytest.raises(NotImplementedError, match="No request changes tags of a node group"):
        VKS.require_sent(["tags", "node_labels"], ["node_labels"])


def test_immutable_fields_need_no_request() -> None:
    VKS.require_sent(["flavor"], [])


# The settings of Magnum in an order in which the map of all labels comes last.
NESTED = NodeGroupFields(
    providers.MAGNUM,
    (
        NodeGroupField("boot_volume_type", "labels.boot_volume_type", type=Text()),
        NodeGroupField(
            "boot_volume_size",
            "labels.boot_volume_size",
            type=Integer(),
            decode=lambda size: size and int(size),
            encode=str,
        ),
        NodeGroupField("labels", "labels", type=MapOf()),
        NodeGroupField("type", "volume.type", type=Text(), api_answer="attached.volume.type"),
    ),
)


@pytest.mark.parametrize(
    ("values", "body"),
    [
        ({}, {}),
        ({"boot_volume_type": "ssd"}, {"labels": {"boot_volume_type": "ssd"}}),
        (
            {"boot_volume_type": "ssd", "boot_volume_size": 50, "labels": {"a": "1", "boot_volume_size": "40"}},
            {"labels": {"a": "1", "boot_volume_type": "ssd", "boot_volume_size": "50"}},
        ),
        ({"type": "ssd", "labels": {"a": "1"}}, {"volume": {"type": "ssd"}, "labels": {"a": "1"}}),
    ],
)
def test_a_setting_may_be_an_entry_of_a_map(values: dict[str, t.Any], body: dict[str, t.Any]) -> None:
    assert NESTED.encode(values) == body
    assert NESTED.creation_body(values) == body


def test_a_body_does_not_change_the_declared_map() -> None:
    labels = {"a": "1"}
    NESTED.encode({"labels": labels, "boot_volume_type": "ssd"})
    assert labels == {"a": "1"}


@pytest.mark.parametrize(
    ("row", "values"),
    [
        ({}, {}),
        ({"labels": None}, {}),
        ({"labels": {"boot_volume_size": "50"}}, {"labels": {"boot_volume_size": "50"}, "boot_volume_size": 50}),
        ({"attached": {"volume": {"type": "ssd"}}, "volume": {"type": "hdd"}}, {"type": "ssd"}),
    ],
)
def test_an_entry_of_a_map_in_a_response(row: dict[str, t.Any], values: dict[str, t.Any]) -> None:
    assert NESTED.decode(row) == {**dict.fromkeys(NESTED.fields), **values}
