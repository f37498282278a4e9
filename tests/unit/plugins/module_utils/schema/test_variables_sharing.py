# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every mistake of a pool's sharing has its path, its rule and its remedy."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.schema.variables import validate
from tests.helpers.variables import CLUSTER, Document

SLICED: Document = {"mode": "time-slicing", "replicas": 4}

# A pool (beside its name) and the one message about it, which begins with gpu_pools[0].
MISTAKES: list[tuple[dict[t.Any, t.Any], str]] = [
    (
        {"sharing": {"mode": "timeSlicing"}},
        '.sharing.mode: "timeSlicing" is not a valid value; did you mean time-slicing?',
    ),
    ({"sharing": {"mode": "vgpu"}}, '.sharing.mode: "vgpu" is not a valid value; known: none, time-slicing, mps, mig'),
    ({"sharing": {"mode": "mps"}}, ".sharing.replicas: is missing; mps needs the number of shares of a GPU"),
    ({"sharing": {"mode": "mig"}}, ".sharing.layout: is missing; set the MIG devices of each GPU"),
    ({"sharing": {"layout": {"1g.5gb": 1}}}, ".sharing.mode: is missing, but layout is set; set mode: mig"),
    ({"sharing": {"demand": {"1g.5gb": 1}}}, ".sharing.mode: is missing, but demand is set; set mode: mig"),
    (
        {"sharing": {**SLICED, "demand": {"1g.5gb": 1}}},
        ".sharing.demand: has no effect with mode: time-slicing; remove it",
    ),
    ({"sharing": {"mode": "mig", "demand": {}}}, ".sharing.demand: has no MIG device; set mode: none"),
    (
        {"sharing": {"mode": "mig", "demand": {"1g5gb": 1}}},
        ".sharing.demand['1g5gb']: the key \"1g5gb\" is not a MIG profile",
    ),
    (
        {"sharing": {"mode": "mig", "demand": {"1g.5gb": 0}}},
        ".sharing.demand['1g.5gb']: 0 is not allowed: a demand is for at least one device; omit",
    ),
    (
        {"sharing": {"mode": "mig", "demand": {"1g.5gb": 1}, "layout": {"1g.5gb": 1}}},
        ".sharing.demand: cannot be combined with a layout; remove one",
    ),
    (
        {"sharing": {"mode": "mig", "demand": {"1g.5gb": 1}, "strategy": "single"}},
        '.sharing.strategy: "single" needs one profile on every GPU',
    ),
    (
        {"match": {"model": "A30"}, "sharing": {"mode": "mig", "demand": {"3g.24gb": 1}}},
        ".sharing.demand: a A30 has no profile 3g.24gb; it has 1g.6gb,",
    ),
    (
        {"match": {"model": "T4"}, "sharing": {"mode": "mig", "demand": {"1g.5gb": 1}}},
        ".sharing.mode: a T4 does not support mig",
    ),
    (
        {"sharing": {**SLICED, "layout": {"1g.5gb": 1}}},
        ".sharing.layout: has no effect with mode: time-slicing; remove it",
    ),
    (
        {"sharing": {"mode": "mps", "replicas": 4, "fail_requests_greater_than_one": False}},
        ".sharing.fail_requests_greater_than_one: MPS always rejects a request for two shares",
    ),
    (
        {"sharing": {"mode": "mps", "replicas": 49}},
        ".sharing.replicas: 49 is not allowed: the MPS control daemon lets at most 48",
    ),
    (
        {"match": {"model": "V100-SXM2-16GB"}, "sharing": {"mode": "mps", "replicas": 17}},
        ".sharing.replicas: 17 is not allowed: the MPS control daemon lets at most 16 clients share a V100-SXM2-16GB",
    ),
    ({"sharing": {"mode": "mig", "layout": 3}}, ".sharing.layout: 3 is a number, not a layout"),
    ({"sharing": {"mode": "mig", "layout": []}}, ".sharing.layout: is empty; write"),
    (
        {"sharing": {"mode": "mig", "layout": {"3g20gb": 1}}},
        ".sharing.layout['3g20gb']: \"3g20gb\" is not a MIG profile",
    ),
    ({"sharing": {"mode": "mig", "layout": {"3g.20gb": 0}}}, ".sharing.layout['3g.20gb']: 0 is not a count"),
    (
        {"sharing": {"mode": "mig", "layout": [{"3g.20gb": 1}, "x"]}},
        ".sharing.layout[1]: is a string, not the MIG devices of a GPU",
    ),
    (
        {"sharing": {"mode": "mig", "layout": {0: {"3g.20gb": 1}, "1g.5gb": 1}}},
        '.sharing.layout: mixes GPU indices with "1g.5gb"',
    ),
    (
        {"gpus_per_node": 4, "sharing": {"mode": "mig", "layout": {4: {"3g.20gb": 1}}}},
        ".sharing.layout: names GPU 4, but gpus_per_node is 4; the last GPU of a node is 3",
    ),
    (
        {"gpus_per_node": 1, "sharing": {"mode": "mig", "layout": {0: {}}}},
        ".sharing.layout: has no MIG device; set mode: none",
    ),
    (
        {"sharing": {"mode": "mig", "layout": {0: {"3g.20gb": 1}}}},
        ".gpus_per_node: is required with a layout by GPU index",
    ),
    (
        {
            "match": {"model": "RTX-PRO-6000-Max-Q"},
            "sharing": {"mode": "mig", "strategy": "single", "layout": {"1g.24gb": 4}},
        },
        '.sharing.strategy: "single" makes the label nvidia.com/gpu.product of a RTX-PRO-6000-Max-Q "NVIDIA-RTX-PRO-6000-',
    ),
    (
        {
            "match": {"model": "RTX-PRO-6000-Workstation"},
            "sharing": {"mode": "mig", "strategy": "single", "layout": {"1g.24gb": 4}, "replicas": 2},
        },
        '.sharing.strategy: "single" makes the label nvidia.com/gpu.product of a RTX-PRO-6000-Workstation '
        '"NVIDIA-RTX-PRO-6000-Blackwell-Workstation-Edition-MIG-1g.24gb-SHARED", and NFD drops',
    ),
    (
        {"sharing": {"mode": "mig", "strategy": "single", "layout": ["1g.5gb", "2g.10gb"]}},
        '.sharing.strategy: "single" needs one profile on every GPU of a node',
    ),
    (
        {"match": {"model": "T4"}, "sharing": {"mode": "mig", "layout": {"1g.5gb": 1}}},
        ".sharing.mode: a T4 does not support mig; use time-slicing or mps",
    ),
    (
        {"match": {"model": "A30"}, "sharing": {"mode": "mig", "layout": {"3g.20gb": 1}}},
        ".sharing.layout: a A30 has no profile 3g.20gb; it has 1g.6gb",
    ),
    (
        {"match": {"model": "A100-SXM4-40GB"}, "sharing": {"mode": "mig", "layout": ["4g.20gb", "3g.20gb", "1g.5gb"]}},
        ".sharing.layout: a A100-SXM4-40GB has no room for 1 x 1g.5gb + 1 x 3g.20gb + 1 x 4g.20gb together: 4g.20gb on 0-3 and "
        "3g.20gb on 4-7 (memory slices) leave no place for 1g.5gb, which needs one of 0 to 6; the nearest layouts that fit: 1 x",
    ),
    (
        {"sharing": {"mode": "time-slicing"}},
        ".sharing.replicas: is missing; time-slicing needs the number of shares of a GPU",
    ),
    ({"sharing": {"replicas": 4}}, ".sharing.mode: is missing, but replicas is set; set mode: time-slicing"),
    ({"sharing": {"mode": "none", "replicas": 4}}, ".sharing.replicas: has no effect with mode: none"),
    ({"sharing": {"mode": "none", "rename": True}}, ".sharing.rename: has no effect with mode: none"),
    (
        {"sharing": {**SLICED, "replicas": 1}},
        ".sharing.replicas: 1 is not allowed: sharing needs at least 2 (NVIDIA device plugin); for whole GPUs, remove it and set mode: none",
    ),
    (
        {"sharing": {**SLICED, "replicas": 251}},
        ".sharing.replicas: 251 is not allowed: a node cannot run more than 250 pods",
    ),
    (
        {"sharing": {**SLICED, "rename": "yep"}},
        '.sharing.rename: "yep" is a string, not a boolean; write true or false',
    ),
]


@pytest.mark.parametrize(("pool", "message"), MISTAKES)
def test_mistake_of_a_pools_sharing(pool: dict[t.Any, t.Any], message: str) -> None:
    problems = validate(CLUSTER, {}, [{"name": "p", **pool}])
    assert len(problems) == 1
    assert problems[0].startswith(f"gpu_pools[0]{message}")
    assert "; " in problems[0]


MPS: Document = {"mode": "mps", "replicas": 4}
LAX: Document = {"fail_requests_greater_than_one": False}
STRICT: Document = {"fail_requests_greater_than_one": True}
RULE = "sharing.fail_requests_greater_than_one: MPS always rejects a request for two shares (NVIDIA device plugin)"
INHERITED = f"gpu_defaults.{RULE}, but gpu_pools[0] (p) inherits false; remove it"


@pytest.mark.parametrize(
    ("defaults", "sharing", "problems"),
    [
        ({**MPS, **LAX}, {}, [INHERITED]),
        (LAX, MPS, [INHERITED]),
        (MPS, LAX, [f"gpu_pools[0].{RULE}; remove it"]),
        ({**MPS, **LAX}, LAX, [f"gpu_pools[0].{RULE}; remove it"]),
        # A pool that does not inherit the value may be of another mode, or set its own value.
        ({**MPS, **LAX}, SLICED, []),
        (LAX, {**MPS, **STRICT}, []),
        ({**MPS, **STRICT}, {}, []),
    ],
)
def test_a_value_that_the_mode_does_not_allow_is_rejected_where_it_is_set(
    defaults: Document, sharing: Document, problems: list[str]
) -> None:
    assert validate(CLUSTER, {"sharing": defaults}, [{"name": "p", "sharing": sharing}]) == problems


def test_a_value_of_the_defaults_that_several_pools_must_not_inherit_is_reported_once() -> None:
    pools = [{"name": name, "match": {"labels": {"team": name}}} for name in ("a", "b")]
    problem = f"gpu_defaults.{RULE}, but gpu_pools[0] (a), gpu_pools[1] (b) inherit false; remove it"
    assert validate(CLUSTER, {"sharing": {**MPS, **LAX}}, pools) == [problem]
    assert validate(CLUSTER, {"sharing": {**MPS, **LAX}}, []) == []
