# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The entries that the MIG manager generates on each node are merged into one file, and each of them is correct on every node."""

from __future__ import annotations

import random
import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.nodes.mig import merge_generated, parse_generated
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import Plan
from ansible_collections.accel.gpu.plugins.module_utils.sharing.change_plan import mig_entries
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes import mig_parted
from tests.helpers.fleet import node
from tests.helpers.mig import generated_entries, generated_of

A40, A80, A30 = "NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-SXM4-80GB", "NVIDIA-A30"
OF_40, OF_80, OF_30 = (generated_entries(key) for key in ("A100-SXM4-40GB", "A100-SXM4-80GB", "A30"))
SEVEN: list[dict[str, t.Any]] = [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 7}}]
FOUR: list[dict[str, t.Any]] = [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 4}}]


def planned(*models: str) -> Plan:
    """A plan with a pool of each of these models, every GPU in one part."""
    whole = {"A100-SXM4-40GB": "7g.40gb", "A100-SXM4-80GB": "7g.80gb", "A30": "4g.24gb"}
    pools = [
        {"name": f"p{at}", "match": {"model": model}, "sharing": {"mode": "mig", "layout": {whole[model]: 1}}}
        for at, model in enumerate(models)
    ]
    return derive({"name": "lab"}, {}, pools)


NO_POOLS = planned()


def of(
    *published: tuple[str, str, t.Mapping[str, t.Any]],
    static: t.Mapping[str, t.Any] | None = None,
    plan: Plan = NO_POOLS,
) -> t.Any:
    """The result for nodes with a name, a product and a generated configuration; `static` is the live ConfigMap."""
    nodes = [node(name, product, labels={"nvidia.com/gpu.memory": None}) for name, product, dummy in published]
    return merge_generated(
        plan, parse_generated(generated_of(name, content) for name, dummy, content in published), nodes, static or {}
    )


def test_one_model_has_what_was_generated_for_it() -> None:
    actual = of(("n1", A80, OF_80), ("n2", A80, OF_80))
    assert actual == (OF_80, ())
    assert {"all-disabled", "all-enabled", "all-balanced", "all-1g.10gb.me"} <= set(actual.entries)


def test_each_of_two_models_gets_its_own() -> None:
    actual = of(("n1", A80, OF_80), ("n2", A40, OF_40), ("n3", A30, OF_30))
    assert set(actual.entries) == {*OF_80, *OF_40, *OF_30}
    assert actual.warnings == ()
    of_both = {tuple(part["device-filter"]): part["mig-devices"] for part in actual.entries["all-1g.10gb"]}
    assert of_both == {("0x20B210DE",): {"1g.10gb": 7}, ("0x20B010DE",): {"1g.10gb": 4}}
    assert len(actual.entries["all-balanced"]) == 3
    # The same on all that have it.
    assert actual.entries["all-disabled"] == OF_80["all-disabled"]
    assert actual.entries["all-7g.80gb"] == OF_80["all-7g.80gb"]


def test_models_with_the_same_layout_share_a_part() -> None:
    actual = of(("n1", A80, {"x": SEVEN}), ("n2", "NVIDIA-H100-80GB-HBM3", {"x": SEVEN}), ("n3", A40, {"x": FOUR}))
    assert [(part["device-filter"], part["mig-devices"]["1g.10gb"]) for part in actual.entries["x"]] == [
        (["0x20B010DE"], 4),
        (["0x20B210DE", "0x233010DE"], 7),
    ]


def test_a_node_of_several_models_has_filters_already() -> None:
    mixed = [{"device-filter": ["0x20b210de"], **SEVEN[0]}, {"device-filter": "0x20B010DE", **FOUR[0]}]
    actual = of(("n1", A80, {"x": mixed}), ("n2", A30, {"x": [{**SEVEN[0], "mig-devices": {"1g.6gb": 4}}]}))
    assert {part["device-filter"][0]: part["mig-devices"] for part in actual.entries["x"]} == {
        "0x20B210DE": {"1g.10gb": 7},
        "0x20B010DE": {"1g.10gb": 4},
        "0x20B710DE": {"1g.6gb": 4},
    }


@pytest.mark.parametrize(
    ("actual", "nodes"),
    [
        ([("n1", A80, {"x": SEVEN}), ("n2", A80, {"x": FOUR})], "n1, n2"),
        ([("n1", A80, {"x": SEVEN}), ("n2", "NVIDIA-X1", {"x": FOUR})], "n1, n2"),
        ([("n1", A80, {"x": SEVEN}), ("n2", "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", {"x": FOUR})], "n1, n2"),
    ],
    ids=["one model", "a model that the catalog lacks", "one model, of which one is cut"],
)
def test_ambiguous_entries_are_left_out_and_reported(actual: list[t.Any], nodes: str) -> None:
    assert of(*actual) == (
        {},
        (
            f"MIG configuration x of {nodes} differs between GPUs that the catalog's PCI ids cannot distinguish, and is not added.",
        ),
    )


def test_what_is_there_stays_and_is_said_where_it_means_something_else() -> None:
    both = [{"device-filter": ["0x20B210DE"], **SEVEN[0]}, {"device-filter": ["0x20B010DE"], **FOUR[0]}]
    assert of(("n1", A80, {"x": SEVEN}), ("n2", A40, {"x": FOUR}), static={"x": both}) == ({}, ())
    assert of(("n1", A80, {"x": SEVEN}), static={"x": SEVEN}) == ({}, ())
    assert of(("n1", A80, {"x": SEVEN}), ("n2", A40, {"x": FOUR}), static={"x": SEVEN}) == (
        {},
        ("MIG configuration x of n2 differs from what the MIG manager has generated, and is kept.",),
    )
    assert of(("n1", "NVIDIA-X1", {"x": SEVEN}), static={"x": both}).warnings
    assert not of(
        ("n1", "NVIDIA-X1", {"all-enabled": OF_80["all-enabled"]}), static=mig_parted.default_entries([])
    ).warnings


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        "x",
        [{}],
        [{**SEVEN[0], "color": "red"}],
        [{"devices": "all", "mig-enabled": True}],
        [{"devices": "all", "mig-enabled": False, "mig-devices": {"1g.10gb": 7}}],
        [{"devices": 0, "mig-enabled": False}],
        [{**SEVEN[0], "device-filter": [5]}],
    ],
)
def test_what_nvidias_parser_would_refuse_is_not_taken(content: t.Any) -> None:
    assert of(("n1", A80, {"x": content})) == ({}, ())


@pytest.mark.parametrize("name", ["", "a+b", "x" * 64, "mig-1x1g.10gb-0123abcd"])
def test_invalid_label_values_and_managed_names_are_not_used(name: str) -> None:
    assert of(("n1", A80, {name: SEVEN})) == ({}, ())


def test_order_of_nodes_changes_nothing(rng: random.Random) -> None:
    nodes = [("n1", A80, OF_80), ("n2", A40, OF_40), ("n3", A30, OF_30), ("n4", "NVIDIA-X1", {"x": SEVEN})]
    first = of(*nodes)
    rng.shuffle(nodes)
    assert of(*nodes) == first


def test_what_is_usual_for_a_pool_s_model_stands_beside_what_is_generated_for_another() -> None:
    plan = planned("A100-SXM4-80GB")
    actual = of(("n2", A40, OF_40), plan=plan)
    assert [(part["device-filter"], part["mig-devices"]) for part in actual.entries["all-1g.10gb"]] == [
        (["0x20B010DE"], {"1g.10gb": 4}),
        (["0x20B210DE"], {"1g.10gb": 7}),
    ]
    assert "all-disabled" not in actual.entries
    assert actual.warnings == ()
    # An ambiguous default stays.
    actual = of(("n2", "NVIDIA-X1", {"all-1g.10gb": FOUR}), plan=plan)
    assert actual.entries == {}
    assert actual.warnings == (
        "MIG configuration all-1g.10gb of n2 differs from what the MIG manager has generated, and is kept.",
    )


def test_entries_are_added_once_and_never_change_or_disappear() -> None:
    plan = planned("A100-SXM4-80GB")
    name = plan.pools[0].mig_key
    actual = of(("n1", A80, OF_80), plan=plan)
    assert (set(actual.entries), actual.warnings) == ({"all-balanced"}, ())
    first = mig_entries(plan.mig, [name], None, actual)
    assert set(first.added) == {*OF_80, name}
    configmap = {"data": {mig_parted.KEY: mig_parted.render_configuration(first.after)}}
    live = mig_parted.parse_configmap(configmap)
    assert not mig_entries(plan.mig, [name], configmap, of(("n1", A80, OF_80), static=live, plan=plan)).changed
    # Another node whose MIG manager has not read the managed ConfigMap yet, then no node that generates.
    actual = of(("n3", A30, OF_30), static=live, plan=plan)
    later = mig_entries(plan.mig, [name], configmap, actual)
    assert set(later.added) == set(OF_30) - set(OF_80)
    assert actual.warnings == (
        "MIG configuration all-balanced of n3 differs from what the MIG manager has generated, and is kept.",
    )
    assert {key: later.after[key] for key in live} == live
    configmap = {"data": {mig_parted.KEY: mig_parted.render_configuration(later.after)}}
    assert not mig_entries(plan.mig, [name], configmap).changed
    assert {*OF_80, *OF_30} <= set(mig_parted.parse_configmap(configmap))
