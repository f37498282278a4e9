# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a module waits for the lease: its own option, gpu_cluster.lease, or the default."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.errors import InvalidOptions
from ansible_collections.accel.gpu.plugins.module_utils.core.types import lease_settings
from ansible_collections.accel.gpu.plugins.module_utils.kube.module import ClusterModule


class Module(ClusterModule):
    """A module that acquires the Lease, without Ansible."""

    def __init__(self, cluster: Any) -> None:
        self.params = {"gpu_cluster": cluster, "lease_wait_timeout": None}


@pytest.mark.parametrize(
    ("cluster", "option", "seconds"),
    [
        (None, None, 300),
        ({"name": "one"}, None, 300),
        ({"lease": None}, None, 300),
        ({"lease": {"wait_timeout": ""}}, None, 300),
        ({"lease": {"wait_timeout": "60"}}, None, 60),
        ({"lease": {"wait_timeout": 0}}, None, 0),
        ({"lease": {"wait_timeout": 60}}, 0, 0),
    ],
)
def test_the_first_one_that_is_set(cluster: Any, option: int | None, seconds: int) -> None:
    assert lease_settings(cluster or {}, option)["wait_timeout"] == seconds


@pytest.mark.parametrize(
    ("lease", "message"),
    [
        (
            {"wait_timeout": -1},
            r"gpu_cluster\.lease\.wait_timeout: -1 is not allowed: set a number from 0 to 2147483647",
        ),
        ({"wait_timeout": "5m"}, r"gpu_cluster\.lease\.wait_timeout: .5m. is a string, not a whole number"),
        ({"timeout": 5}, r"gpu_cluster\.lease\.timeout: is not a known key; did you mean wait_timeout\?"),
    ],
)
def test_what_is_refused_before_the_connection(lease: Any, message: str) -> None:
    with pytest.raises(InvalidOptions, match=message):
        _ = Module({"lease": lease}).client
