# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""List options of modules as text: names with spaces, line breaks or brackets; what is wrong is found before a cluster is asked."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.modules import gpu_sharing
from tests.helpers.modules import run_module
from tests.helpers.variables import LAB_POOLS

CLUSTER = {"name": "lab", "kubeconfig": "/nonexistent"}
NO_CLUSTER = "The kubeconfig /nonexistent does not exist."


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pool_names": "notebooks"}, NO_CLUSTER),
        ({"pool_names": "notebooks, inference"}, NO_CLUSTER),
        ({"pool_names": "notebooks\ninference\n"}, NO_CLUSTER),
        ({"pool_names": "[notebooks, inference]"}, NO_CLUSTER),
        ({"pool_names": '["notebooks"]'}, NO_CLUSTER),
        ({"pool_names": ""}, NO_CLUSTER),
        ({"pool_names": ["notebooks", " inference "]}, NO_CLUSTER),
        ({"pool_names": ","}, "pool_names: contains no name; use comma-separated names"),
        (
            {"pool_names": "notebook"},
            "gpu_sharing_pool_names (option pool_names of the module): notebook is not a declared pool",
        ),
        (
            {"pool_names": "", "state": "reset"},
            "gpu_sharing_pool_names (option pool_names of the module): names no pool; list the pools to reset",
        ),
        (
            {"pool_names": [], "state": "reset"},
            "gpu_sharing_pool_names (option pool_names of the module): names no pool; list the pools to reset",
        ),
        ({"state": "reset"}, NO_CLUSTER),
        ({"label_selectors": "zone in (a, b), !spare"}, NO_CLUSTER),
        ({"label_selectors": "zone in (a, b"}, "gpu_sharing_label_selectors (option label_selectors of the module): "),
    ],
)
def test_text_for_a_list(options: dict[str, t.Any], message: str) -> None:
    result = run_module(gpu_sharing.main, {"gpu_cluster": CLUSTER, "gpu_pools": LAB_POOLS, **options})
    assert result["failed"] is True
    assert message in result["msg"]
