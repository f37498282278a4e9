# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUDirect RDMA and Storage, GDRCopy and Fabric Manager: the values, and what excludes them."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.core.values import get_nested
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.schema.variables import validate

GDS = {"gds": {"enabled": True}}
GDRCOPY = {"gdrcopy": {"enabled": True}}
SHARED = {"fabric_manager": {"mode": "shared-nvswitch"}}
T4 = [{"name": "p", "match": {"model": "T4"}}]
V100 = [{"name": "old", "match": {"model": "V100-SXM2-16GB"}}]
H100 = [{"name": "h", "match": {"model": "H100-80GB-HBM3"}}]


def with_driver(**driver: t.Any) -> list[dict[str, t.Any]]:
    return [{**T4[0], "driver": driver}]


def problems(operator: dict[str, t.Any], pools: list[dict[str, t.Any]]) -> list[str]:
    return validate({"name": "c", "operator": operator}, {}, pools)


@pytest.mark.parametrize(
    ("operator", "path", "value"),
    [
        (GDS, ("gds",), {"enabled": True}),
        ({"gds": {"enabled": True, "version": "2.26.6"}}, ("gds",), {"enabled": True, "version": "2.26.6"}),
        ({"gds": {"enabled": False, "version": "2.26.6"}}, ("gds",), None),
        (GDRCOPY, ("gdrcopy",), {"enabled": True}),
        ({"driver": {"rdma": {"enabled": True}}}, ("driver", "rdma"), {"enabled": True}),
        ({"driver": {"rdma": {"use_host_mofed": True}}}, ("driver", "rdma"), {"useHostMofed": True}),
        ({"driver": {"rdma": {}}}, ("driver", "rdma"), None),
        # The user's values are merged over.
        ({**GDS, "values": {"gds": {"env": []}}}, ("gds",), {"enabled": True, "env": []}),
        (
            {"version": "v26.7.0", "driver": SHARED},
            ("driver", "env"),
            [
                {"name": "NVFM_CONFIG_FABRIC_MODE", "value": "1"},
                {"name": "NVFM_CONFIG_FM_CMD_UNIX_SOCKET_PATH", "value": "/run/nvidia-fabricmanager/socket"},
            ],
        ),
    ],
)
def test_values(operator: dict[str, t.Any], path: tuple[str, ...], value: t.Any) -> None:
    plan = derive({"name": "c", "operator": operator}, {}, H100)
    assert get_nested(plan.operator.values, *path) == value


@pytest.mark.parametrize(
    ("operator", "pools", "words"),
    [
        (GDS, T4, []),
        ({**GDS, **GDRCOPY, "driver": {"rdma": {"enabled": True}}}, T4, []),
        ({**GDS, "driver": {"precompiled": True, "version": "580"}}, T4, ["gds.enabled: the operator rejects"]),
        ({**GDRCOPY, "driver": {"precompiled": True, "version": "580"}}, T4, ["gdrcopy.enabled: the operator rejects"]),
        ({**GDS, "driver": {"kernel_module_type": "proprietary"}}, T4, ['"proprietary" excludes gds']),
        ({**GDS, "driver": {"version": "550.54.14"}}, T4, ["kernel_module_type: is missing; gds needs the open"]),
        ({**GDS, "driver": {"version": "550.54.14", "kernel_module_type": "open"}}, T4, []),
        ({**GDS, "driver": {"version": "580.95.05"}}, T4, []),
        ({"gds": {"enabled": True, "version": "2.16.1"}, "driver": {"version": "550.54.14"}}, T4, []),
        ({"gds": {"enabled": True, "version": "2.26.6-ubuntu22.04"}}, T4, ["ends with the tag of an operating system"]),
        (GDS, V100, ["gpu_pools[0] (old) has GPUs V100-SXM2-16GB, which the open kernel modules do not support"]),
        ({"driver": {"enabled": False}, **GDS}, T4, ["gds.enabled: has no effect with driver.enabled: false"]),
        ({"driver": {"enabled": False, "rdma": {"enabled": True}}}, T4, ["rdma.enabled: has no effect"]),
        ({"driver": {"enabled": False, "rdma": {"enabled": False}}, "gds": {"enabled": False}}, T4, []),
        ({"version": "v23.9.2", **GDRCOPY}, T4, ["gdrcopy.enabled: is not supported by operator v23.9.2"]),
        ({"driver": SHARED}, H100, ["fabric_manager.mode: is not supported by operator v25.10.1"]),
        ({"version": "v26.7.0", "driver": SHARED}, H100, []),
        ({"version": "v26.7.0", "driver": SHARED}, T4, ["no pool has GPUs that NVSwitches connect"]),
        (
            GDS,
            with_driver(kernel_module_type="proprietary"),
            ['gpu_pools[0].driver.kernel_module_type: "proprietary" excludes gds'],
        ),
        (
            GDS,
            with_driver(version="550.144.03"),
            ["gpu_pools[0].driver.kernel_module_type: is missing; gds needs the open"],
        ),
        (
            GDS,
            with_driver(version="550.144.03", kernel_module_type="auto"),
            ["gpu_pools[0].driver.kernel_module_type: "],
        ),
        (GDS, with_driver(version="550.144.03", kernel_module_type="open"), []),
        (GDS, with_driver(version="580.105.08", kernel_module_type="auto"), []),
        # What a pool does not declare is that of the operator.
        ({**GDS, "driver": {"kernel_module_type": "open"}}, with_driver(version="550.144.03"), []),
        (
            {**GDS, "driver": {"kernel_module_type": "proprietary"}},
            with_driver(version="580.105.08"),
            ["gpu_cluster.operator.driver"],
        ),
        (
            GDS,
            with_driver(precompiled=True, version="580"),
            ["gpu_pools[0].driver.precompiled: the operator rejects GPUDirect Storage"],
        ),
        (
            GDRCOPY,
            with_driver(precompiled=True, version="580"),
            ["gpu_pools[0].driver.precompiled: the operator rejects GDRCopy"],
        ),
        (GDRCOPY, with_driver(version="550.144.03", kernel_module_type="proprietary"), []),
        # A pool of unknown model may have NVSwitches.
        ({"version": "v26.7.0", "driver": SHARED}, [*T4, {"name": "pinned"}], []),
        ({"version": "v26.7.0", "driver": {"fabric_manager": {"mode": "shared"}}}, H100, ["did you mean"]),
    ],
)
def test_constraints(operator: dict[str, t.Any], pools: list[dict[str, t.Any]], words: list[str]) -> None:
    messages = problems(operator, pools)
    assert len(messages) == len(words), messages
    assert all(word in text for word, text in zip(words, messages, strict=True)), messages


_BUILT = st.fixed_dictionaries(
    {},
    optional={
        "version": st.sampled_from(["550.144.03", "580.105.08"]),
        "kernel_module_type": st.sampled_from(["auto", "open", "proprietary"]),
        "precompiled": st.just(False),
    },
)
_PRECOMPILED = st.fixed_dictionaries(
    {"precompiled": st.just(True), "version": st.sampled_from(["550", "580"])},
    optional={"kernel_module_type": st.sampled_from(["auto", "open", "proprietary"])},
)


@given(
    st.one_of(_BUILT, _PRECOMPILED),
    st.sampled_from([{}, GDS, GDRCOPY, {**GDS, **GDRCOPY}, {"gds": {"enabled": True, "version": "2.16.1"}}]),
)
def test_the_driver_of_a_pool_is_checked_like_that_of_the_operator(
    driver: dict[str, t.Any], features: dict[str, t.Any]
) -> None:
    of_operator = problems({**features, "driver": driver}, T4)
    of_pool = problems(features, with_driver(**driver))
    assert len(of_pool) == len(of_operator), (of_operator, of_pool)
    assert all(text.startswith("gpu_pools[0].driver.") for text in of_pool)
