# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each mode's sentence about the performance of its pods has the numbers that apply."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes.modes import MODES, PodExpectation

PERFORMANCE: list[tuple[str, dict[str, t.Any], list[str], list[str]]] = [
    ("whole", {"mode": "none"}, [], []),
    (
        "time-slicing",
        {"mode": "time-slicing", "replicas": 4, "memory_mib_per_share": 3840},
        [
            "busy pods get 0.226 of the GPU each (10 % is lost to switching)",
            "up to 7 ms alongside 3 busy pods",
            "memory is not divided",
        ],
        ["3840", "beyond"],
    ),
    (
        "measured on this model",
        {"mode": "time-slicing", "replicas": 4, "model": "NVIDIA-H200"},
        ["busy pods get 0.226 of the GPU each"],
        ["on an H200"],
    ),
    (
        "measured on another model",
        {"mode": "time-slicing", "replicas": 4, "model": "Tesla-T4"},
        ["on an H200, busy pods get 0.226 of the GPU each"],
        [],
    ),
    (
        "mps, measured on another model",
        {"mode": "mps", "replicas": 4, "memory_mib_per_share": 11517, "model": "NVIDIA-L40S"},
        ["on an H200, busy pods get 0.244", "11517 MiB of memory each; on an H200, 0.8 GiB of it should stay free"],
        [],
    ),
    (
        "mig in turn, measured on another model",
        {"mode": "mig", "replicas": 2, "profiles": {"1g.10gb"}, "model": "A100-SXM4-80GB"},
        ["on each device, pods take turns: on an H200, busy pods get 0.452 of it each"],
        [],
    ),
    ("of two", {"mode": "time-slicing", "replicas": 2}, ["0.452 of the GPU", "up to 3 ms alongside 1 busy pod;"], []),
    ("of many", {"mode": "time-slicing", "replicas": 20}, ["0.045 of", "44 ms", "not measured beyond 8 pods"], []),
    (
        "mps",
        {"mode": "mps", "replicas": 4, "memory_mib_per_share": 35942},
        [
            "0.244 of the GPU each, with the same latency as a pod that runs alone",
            "a hard limit, even while other pods are idle",
            "35942 MiB",
            "34.3 GiB usable",
        ],
        ["switching"],
    ),
    ("mps, memory unknown", {"mode": "mps", "replicas": 3}, ["0.327 of", "memory is divided"], ["MiB"]),
    (
        "mps, no memory",
        {"mode": "mps", "replicas": 48, "memory_mib_per_share": 320},
        ["320 MiB", "too little"],
        ["usable"],
    ),
    (
        "mig",
        {"mode": "mig", "profiles": {"2g.10gb", "3g.20gb"}, "model": "NVIDIA-A100-PCIE-40GB"},
        ["3g.20gb has 42 of 108 SMs and 20 GB; 2g.10gb has 28 of 108 SMs and 10 GB; devices do not share"],
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
        ["16 of 132", "on each device, pods take turns: busy pods get 0.452 of it each", "its memory is not divided"],
        [],
    ),
]


@pytest.mark.parametrize(
    ("pool", "contained", "absent"), [case[1:] for case in PERFORMANCE], ids=[case[0] for case in PERFORMANCE]
)
def test_performance(pool: dict[str, t.Any], contained: list[str], absent: list[str]) -> None:
    pods = PodExpectation(**{key: value for key, value in pool.items() if key != "mode"})
    sentence = MODES[pool["mode"]].performance(pods)
    assert [words for words in contained if words not in sentence] == []
    assert [words for words in absent if words in sentence] == []
    assert bool(sentence) is bool(contained)
    assert not sentence.endswith(".")
