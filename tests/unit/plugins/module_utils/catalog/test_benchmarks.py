# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What sharing costs: the rules agree with what was measured, and the one line of a pool says what applies to it."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.catalog import benchmarks, mig, models
from ansible_collections.accel.gpu.plugins.module_utils.catalog.benchmarks import BUSY, SMS, WAITING, line

LINES: list[tuple[str, dict[str, t.Any], list[str], list[str]]] = [
    ("whole", {"mode": "none"}, [], []),
    (
        "time-slicing",
        {"mode": "time-slicing", "replicas": 4, "memory_mib_per_share": 3840},
        [
            "busy pods get 0.226 of the card each (10 % goes to switching)",
            "up to 7 ms beside 3 busy pods",
            "memory is not divided",
        ],
        ["3840", "beyond"],
    ),
    ("of two", {"mode": "time-slicing", "replicas": 2}, ["0.452 of the card", "up to 3 ms beside 1 busy pod;"], []),
    ("of many", {"mode": "time-slicing", "replicas": 20}, ["0.045 of", "44 ms", "not measured beyond 8 pods"], []),
    (
        "mps",
        {"mode": "mps", "replicas": 4, "memory_mib_per_share": 35942},
        [
            "0.244 of the card each, with the latency of a pod alone",
            "a hard cap, also beside idle",
            "35942 MiB",
            "34.3 GiB to plan",
        ],
        ["switching"],
    ),
    ("mps, memory unknown", {"mode": "mps", "replicas": 3}, ["0.327 of", "memory is divided"], ["MiB"]),
    (
        "mps, no memory",
        {"mode": "mps", "replicas": 48, "memory_mib_per_share": 320},
        ["320 MiB", "too little"],
        ["plan"],
    ),
    (
        "mig",
        {"mode": "mig", "profiles": {"2g.10gb", "3g.20gb"}, "model": "NVIDIA-A100-PCIE-40GB"},
        ["3g.20gb has 42 of 108 SMs and 20 GB; 2g.10gb has 28 of 108 SMs and 10 GB; no device takes"],
        ["CERN", "busy"],
    ),
    ("mig, measured", {"mode": "mig", "profiles": {"3g.71gb"}, "model": "H200"}, ["60 of 132 SMs and 71424 MiB"], []),
    (
        "mig, the whole",
        {"mode": "mig", "profiles": {"7g.40gb"}, "model": "A100-SXM4-40GB"},
        ["98 of 108", "9 % of the SMs"],
        [],
    ),
    ("mig, all of it", {"mode": "mig", "profiles": {"7g.141gb"}, "model": "H200"}, ["132 of 132 SMs"], ["CERN"]),
    (
        "mig, slices",
        {"mode": "mig", "profiles": {"1g.6gb"}, "model": "A30"},
        ["1g.6gb has 1 of 4 compute slices and 6 GB"],
        [],
    ),
    ("mig, any model", {"mode": "mig", "profiles": {"1g.6gb+me"}}, ["1g.6gb+me has 1 compute slice and 6 GB"], []),
    (
        "mig, two models",
        {"mode": "mig", "profiles": {"2g.9gb"}, "model": "H200"},
        ["2g.9gb has 2 compute slices and 9 GB"],
        [],
    ),
    (
        "mig in turn",
        {"mode": "mig", "replicas": 2, "profiles": {"1g.18gb"}, "model": "H200"},
        ["16 of 132", "on each, busy pods get 0.452 of it each", "its memory is not divided"],
        [],
    ),
]


@pytest.mark.parametrize(("of", "said", "unsaid"), [case[1:] for case in LINES], ids=[case[0] for case in LINES])
def test_the_line_of_a_pool(of: dict[str, t.Any], said: list[str], unsaid: list[str]) -> None:
    found = line(**of)
    assert [words for words in said if words not in found] == []
    assert [words for words in unsaid if words in found] == []
    assert bool(found) is bool(said)
    assert not found.endswith(".")


@pytest.mark.parametrize("row", BUSY, ids=str)
def test_the_rules_say_what_was_measured(row: benchmarks.Busy) -> None:
    assert row.share * row.pods == pytest.approx(benchmarks.TOTAL[row.mode], rel=0.03)
    assert 0.9 < row.fairness <= 1


@pytest.mark.parametrize("row", [row for row in WAITING if row.mode == "time-slicing"], ids=str)
def test_nobody_waited_longer_than_the_line_says(row: benchmarks.Waiting) -> None:
    alone = WAITING[0].p99_ms
    assert row.median_ms <= row.p99_ms <= alone + benchmarks.wait_ms(row.busy + 1)


def test_parts_of_a_gpu_are_no_more_than_it() -> None:
    for key, (whole, of_profile) in SMS.items():
        geometry = mig.geometry(key)
        assert geometry is not None
        assert {profile.id for profile in geometry.profiles} == set(of_profile)
        assert all(profile.most * of_profile[profile.id] <= whole for profile in geometry.profiles)
    assert max(benchmarks.H200_MIB.values()) < next(model.memory_mib for model in models.MODELS if model.key == "H200")


def test_the_webinars_loss_by_mig_is_that_of_the_sms() -> None:
    found = SMS["A100-PCIE-40GB"]
    lost = 100 * (1 - found[1][0] / found[0])
    assert benchmarks.WEBINAR_MIG.per_cent == pytest.approx([lost] * 3, abs=0.4)


@given(st.sampled_from(["time-slicing", "mps"]), st.integers(2, 249))
def test_more_pods_never_get_more(mode: str, replicas: int) -> None:
    assert benchmarks.share(mode, replicas + 1) < benchmarks.share(mode, replicas) < 1 / replicas * 1.01
    assert benchmarks.wait_ms(replicas + 1) > benchmarks.wait_ms(replicas)
