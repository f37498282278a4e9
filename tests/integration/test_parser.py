# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's own parser checks the rendered configurations; the lab's simulator contains it."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core import yaml_text
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes import mig, modes
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes.modes import Sharing
from lab import build
from tests.labs import Lab

GOOD = [
    Sharing(),
    *(
        Sharing("time-slicing", replicas, rename=rename, fail_requests_greater_than_one=fail)
        for replicas, rename, fail in itertools.product((2, 3, 4, 8, 48, 250), (False, True), (False, True))
    ),
    *(Sharing("mps", replicas, rename=rename) for replicas, rename in itertools.product((2, 16, 48), (False, True))),
    *(
        Sharing("mig", replicas, mig.parse_layout(layout), strategy, rename=replicas > 1)
        for replicas in (1, 4)
        for layout, strategy in (({"1g.10gb": 7}, "single"), ({"1g.10gb+me": 1, "3g.40gb": 1}, "mixed"))
    ),
]


Judge = Callable[[list[str]], list[str]]


@pytest.fixture
def judged(lab: Lab, tmp_path: Path) -> Judge:
    """The result of NVIDIA's parser for each text: ok, or REJECTED and the reason."""

    def judge(texts: list[str]) -> list[str]:
        files = [tmp_path / f"{number}.yaml" for number in range(len(texts))]
        for file, text in zip(files, texts, strict=True):
            file.write_text(text)
        simulator = build.cached("sim")
        assert simulator is not None
        # It ends with 1 if it rejects one of them.
        done = subprocess.run(
            [simulator / "bin" / "sim", "config", *files], capture_output=True, text=True, env=lab.env, check=False
        )
        assert done.returncode in (0, 1), done.stderr
        return [line.partition(": ")[2] for line in done.stdout.splitlines()]

    return judge


ONE_SHARE = {"version": "v1", "sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 1}]}}}


def test_all_rendered_configurations_are_accepted(judged: Judge) -> None:
    assert judged([yaml_text.render_yaml(modes.device_plugin_config(sharing)) for sharing in GOOD]) == ["ok"] * len(
        GOOD
    )


def test_configurations_that_the_collection_refuses_are_rejected(judged: Judge) -> None:
    (verdict,) = judged([yaml_text.render_yaml(ONE_SHARE)])
    assert verdict.startswith("REJECTED")
    assert "number of replicas must be >= 2" in verdict
