# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of agents are converted to the sharing of a pool: exactly, or with the reason why not."""

from __future__ import annotations

import contextlib
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.core import yaml_text
from ansible_collections.accel.gpu.plugins.module_utils.report.export_pools import (
    ExportedLayout,
    Inexpressible,
    export_layout,
    export_sharing,
)
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes import mig, mig_parted, modes
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes.modes import sharing_of
from tests.helpers.variables import anything

V1 = {"version": "v1"}
GPU = "nvidia.com/gpu"


def shares(kind: str = "timeSlicing", *resources: dict[str, t.Any], **options: t.Any) -> dict[str, t.Any]:
    return {**V1, "sharing": {kind: {**options, "resources": list(resources or [{"name": GPU, "replicas": 4}])}}}


TIME = {"mode": "time-slicing", "replicas": 4}
LAX = {"fail_requests_greater_than_one": False}
EXAMPLE_FLAGS = {
    "migStrategy": "none",
    "failOnInitError": True,
    "nvidiaDriverRoot": "/",
    "plugin": {"passDeviceSpecs": False, "deviceListStrategy": "envvar", "deviceIDStrategy": "uuid"},
}
SEVENTHS = {"1g.5gb": 7}
MIXTURE = {"1g.5gb": 2, "3g.20gb": 1}


@pytest.mark.parametrize(
    ("content", "cut", "strategy", "declared"),
    [
        (V1, None, "", {"mode": "none"}),
        ({}, None, "", {"mode": "none"}),
        ({**V1, "flags": {"migStrategy": "none"}}, None, "", {"mode": "none"}),
        # Whole GPUs are the same under every strategy.
        ({**V1, "flags": {"migStrategy": "mixed"}}, None, "single", {"mode": "none"}),
        # As NVIDIA's guides write it: the plugin lets a pod have several shares unless its configuration forbids it.
        (shares(), None, "", {**TIME, **LAX}),
        (shares("timeSlicing", {"name": "gpu", "replicas": 4}), None, "", {**TIME, **LAX}),
        (shares(failRequestsGreaterThanOne=True), None, "", TIME),
        (shares(failRequestsGreaterThanOne=True, renameByDefault=True), None, "", {**TIME, "rename": True}),
        (shares("mps"), None, "", {"mode": "mps", "replicas": 4}),
        # The flags of NVIDIA's example, which are the plugin's own values; the plugin ignores `resources`.
        ({**V1, "flags": EXAMPLE_FLAGS}, None, "", {"mode": "none"}),
        ({**shares(), "flags": EXAMPLE_FLAGS, "resources": {"gpus": [{"pattern": "*", "name": GPU}]}}, None, "", {**TIME, **LAX}),
        ({**V1, "flags": {"plugin": {"deviceListStrategy": ["envvar"]}, "gfd": {}}, "imex": {"channelIDs": [], "required": False}}, None, "", {"mode": "none"}),
        (shares("timeSlicing", {"name": GPU, "replicas": 4, "devices": "all"}), None, "", {**TIME, **LAX}),
        ({**V1, "flags": {"migStrategy": "single"}}, SEVENTHS, "", {"mode": "mig", "layout": SEVENTHS}),
        ({**V1, "flags": {"migStrategy": "mixed"}}, SEVENTHS, "", {"mode": "mig", "layout": SEVENTHS, "strategy": "mixed"}),
        ({**V1, "flags": {"migStrategy": "mixed"}}, MIXTURE, "", {"mode": "mig", "layout": MIXTURE}),
        # The ClusterPolicy takes precedence over the file.
        (V1, SEVENTHS, "single", {"mode": "mig", "layout": SEVENTHS, "strategy": "single"}),
        ({**V1, "flags": {"migStrategy": "mixed"}}, SEVENTHS, "single", {"mode": "mig", "layout": SEVENTHS, "strategy": "single"}),
        # The ClusterPolicy's strategy stands in each pool, so that another layout does not change it.
        (V1, MIXTURE, "mixed", {"mode": "mig", "layout": MIXTURE, "strategy": "mixed"}),
        (
            {**shares(failRequestsGreaterThanOne=True), "flags": {"migStrategy": "single"}},
            SEVENTHS,
            "",
            {"mode": "mig", "layout": SEVENTHS, "replicas": 4},
        ),
    ],
)  # fmt: skip
def test_what_a_pool_can_declare(content: t.Any, cut: t.Any, strategy: str, declared: dict[str, t.Any]) -> None:
    assert export_sharing(content, cut, strategy) == declared


@pytest.mark.parametrize(
    ("content", "cut", "strategy", "reason"),
    [
        (None, None, "", "is not a map"),
        ({**V1, "sharing": 4}, None, "", "is not a map"),
        ({**V1, "imex": {"channelIDs": [0]}}, None, "", r"\(imex\)"),
        ({**V1, "flags": {"failOnInitError": False}}, None, "", r"\(flags.failOnInitError\)"),
        ({**V1, "flags": {**EXAMPLE_FLAGS, "plugin": {"deviceIDStrategy": "index"}}}, None, "", r"\(flags.plugin\)"),
        ({**V1, "flags": {"plugin": {"passDeviceSpecs": 0}}}, None, "", r"\(flags.plugin\)"),
        ({**V1, "flags": {"plugin": "x"}}, None, "", r"\(flags.plugin\)"),
        ({**V1, "imex": {"channelIDs": [0], "required": False}}, None, "", r"\(imex\)"),
        ({**V1, "sharing": {**shares()["sharing"], "mps": shares("mps")["sharing"]["mps"]}}, None, "", "both time-slicing and mps"),
        (shares("timeSlicing", {"name": "nvidia.com/mig-1g.5gb", "replicas": 2}, {"name": "nvidia.com/mig-3g.20gb", "replicas": 3}), MIXTURE, "mixed", "different replicas"),
        (shares("timeSlicing", {"name": GPU, "replicas": 1}), None, "", "or none"),
        (shares("timeSlicing", {"name": GPU, "replicas": 4, "rename": "x"}), None, "", r"\(sharing.timeSlicing.resources of nvidia.com/gpu\)"),
        (shares("mps", failRequestsGreaterThanOne=False), None, "", r"\(sharing.mps.failRequestsGreaterThanOne\)"),
        # One of two profiles is shared.
        (shares("timeSlicing", {"name": "nvidia.com/mig-1g.5gb", "replicas": 2}), MIXTURE, "mixed", r"\(sharing.timeSlicing.resources of nvidia.com/mig-3g.20gb\)"),
        (shares("mps"), SEVENTHS, "single", "mps on MIG devices"),
        (V1, SEVENTHS, "", "no MIG strategy"),
    ],
)  # fmt: skip
def test_what_none_can(content: t.Any, cut: t.Any, strategy: str, reason: str) -> None:
    with pytest.raises(Inexpressible, match=reason):
        export_sharing(content, cut, strategy)


strange = st.dictionaries(
    st.sampled_from(["version", "flags", "sharing", "timeSlicing", "mps", "resources", "name"]), anything
)


MIXED, SINGLE = {"flags": {"migStrategy": "mixed"}}, {"flags": {"migStrategy": "single"}}
DEFAULT = shares("timeSlicing", {"name": GPU, "replicas": 4})
WHOLE_AND_DEVICES = shares(
    "timeSlicing",
    {"name": "gpu", "replicas": 8},
    {"name": "nvidia.com/mig-1g.5gb", "replicas": 2},
    renameByDefault=True,
)
SEVEN_OF = {"mode": "mig", "layout": SEVENTHS, "strategy": "mixed"}


@pytest.mark.parametrize(
    ("content", "layout", "strategy", "gpus", "declared"),
    [
        # The time-slicing of whole GPUs, which a cluster has by default, on a node without any.
        ({**DEFAULT, **MIXED}, SEVENTHS, "", 0, SEVEN_OF),
        (DEFAULT, SEVENTHS, "mixed", 0, SEVEN_OF),
        # As NVIDIA's guide lists them: all resources of a cluster in one configuration.
        (WHOLE_AND_DEVICES, SEVENTHS, "mixed", 0, {**SEVEN_OF, **LAX, "replicas": 2, "rename": True}),
        (WHOLE_AND_DEVICES, None, "mixed", 0, {**TIME, **LAX, "replicas": 8, "rename": True}),
        (shares("timeSlicing", {"name": "nvidia.com/mig-1g.5gb", "replicas": 2}), None, "mixed", 0, {"mode": "none"}),
        (DEFAULT, {0: {"7g.40gb": 1}, 1: {"1g.5gb": 7}}, "mixed", 2, {"mode": "mig", "layout": {0: {"7g.40gb": 1}, 1: {"1g.5gb": 7}}, "strategy": "mixed"}),
        (DEFAULT, {"1g.5gb+me": 1, "1g.5gb": 6}, "mixed", 0, {"mode": "mig", "layout": {"1g.5gb+me": 1, "1g.5gb": 6}, "strategy": "mixed"}),
        # With the strategy single, the name is that of the MIG devices.
        (DEFAULT, SEVENTHS, "single", 0, {"mode": "mig", "layout": SEVENTHS, "strategy": "single", "replicas": 4, **LAX}),
        # A whole GPU next to MIG devices is shared.
        (DEFAULT, {0: {"7g.40gb": 1}}, "mixed", 2, None),
        (WHOLE_AND_DEVICES, {0: {"1g.5gb": 7}}, "mixed", 2, None),
    ],
)  # fmt: skip
def test_time_slicing_of_resources_that_the_node_lacks_has_no_effect(
    content: t.Any, layout: t.Any, strategy: str, gpus: int, declared: dict[str, t.Any] | None
) -> None:
    if declared is None:
        with pytest.raises(Inexpressible, match=r"different replicas|sharing.timeSlicing.resources of nvidia.com/gpu"):
            export_sharing(content, layout, strategy, gpus)
    else:
        assert export_sharing(content, layout, strategy, gpus) == declared


@given(anything | strange | strange.map(lambda inner: {"sharing": inner}))
def test_whatever_stands_there_gives_a_sharing_or_a_reason(content: t.Any) -> None:
    with contextlib.suppress(Inexpressible):
        sharing_of(export_sharing(content))


@given(
    anything
    | st.lists(st.dictionaries(st.sampled_from(["devices", "mig-enabled", "mig-devices", "device-filter"]), anything))
)
def test_whatever_an_entry_is_gives_a_layout_or_a_reason(entry: t.Any) -> None:
    with contextlib.suppress(Inexpressible):
        export_layout(entry, 2, A100)


A100 = ("20b0",)
EACH = [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb": 7}}]
OFF = {"devices": "all", "mig-enabled": False}


def on(devices: t.Any, **profiles: int) -> dict[str, t.Any]:
    return {
        "devices": devices,
        "mig-enabled": True,
        "mig-devices": {key.replace("_", "."): n for key, n in profiles.items()},
    }


@pytest.mark.parametrize(
    ("entry", "gpus", "cut"),
    [
        ([OFF], 8, ExportedLayout()),
        (EACH, 0, ExportedLayout({"1g.5gb": 7})),
        ([{**EACH[0], "device-filter": "0x20B010DE"}], 8, ExportedLayout({"1g.5gb": 7})),
        ([{**EACH[0], "device-filter": ["0x233510DE"]}, OFF], 8, ExportedLayout()),
        ([on([0]), OFF], 2, None),
        ([on([0], **{"7g_40gb": 1}), {"devices": [1], "mig-enabled": False}], 2, ExportedLayout({0: {"7g.40gb": 1}}, 2)),
        # A later part overwrites an earlier one.
        ([OFF, on([1], **{"7g_40gb": 1})], 2, ExportedLayout({1: {"7g.40gb": 1}}, 2)),
        ([on("all", **{"7g_40gb": 1}), on([1], **{"1g_5gb": 7})], 2, ExportedLayout({0: {"7g.40gb": 1}, 1: {"1g.5gb": 7}}, 2)),
        ([on([0, 1], **{"7g_40gb": 1}), on([2], **{"1g_5gb": 7})], 2, None),
        ([on([0], **{"7g_40gb": 1}), OFF], 0, None),
        ("all", 2, None),
    ],
)  # fmt: skip
def test_layout(entry: t.Any, gpus: int, cut: ExportedLayout | None) -> None:
    if cut is None:
        with pytest.raises(Inexpressible):
            export_layout(entry, gpus, A100)
    else:
        assert export_layout(entry, gpus, A100) == cut


def test_an_unknown_model_is_not_looked_up_by_its_pci_ids() -> None:
    with pytest.raises(Inexpressible, match="catalog does not contain its model"):
        export_layout([{**EACH[0], "device-filter": "0x20B010DE"}], 8, ())


profiles, counts = st.sampled_from(["1g.5gb", "2g.10gb", "3g.20gb"]), st.integers(1, 3)
of_gpu = st.dictionaries(profiles, counts, min_size=1, max_size=2)
others = st.lists(of_gpu | st.just({}), max_size=3)
written = of_gpu | st.tuples(of_gpu, others).map(lambda drawn: dict(enumerate([drawn[0], *drawn[1]])))


@given(written, st.sampled_from([1, 2]), st.booleans(), st.booleans(), st.sampled_from(["", "mixed"]))
def test_what_a_pool_declares_comes_back_with_the_same_entries(
    cut: t.Any, replicas: int, rename: bool, fail: bool, strategy: str
) -> None:
    document = {"mode": "mig", "layout": cut, "rename": rename, "fail_requests_greater_than_one": fail}
    document |= {"replicas": replicas} if replicas > 1 else {}
    declared = sharing_of(document | ({"strategy": strategy} if strategy else {}))
    entry = mig_parted.entry(declared.layout, 4)
    content = yaml_text.parse_yaml(yaml_text.render_yaml(modes.device_plugin_config(declared)))
    live = mig_parted.parse_configmap({"data": {"config.yaml": mig_parted.render_configuration({"x": entry})}})["x"]
    back = export_layout(live, 4, A100)
    again = sharing_of(export_sharing(content, back.layout))
    assert modes.plugin_entry_name(again) == modes.plugin_entry_name(declared)
    assert [mig.on_gpu(again.layout, index) for index in range(4)] == [
        mig.on_gpu(declared.layout, index) for index in range(4)
    ]
    assert mig_parted.entry_name(mig_parted.entry(again.layout, back.gpus_per_node)) == mig_parted.entry_name(entry)
