# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter that gives pools other numbers of nodes."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.accel.gpu.plugins.filter.with_node_counts import FilterModule, with_node_counts

POOL = {"name": "train", "nodes": {"flavor": "f", "count": 1}}


def test_filter() -> None:
    assert FilterModule().filters() == {"with_node_counts": with_node_counts}
    assert with_node_counts([POOL], {"train": 3}) == [{"name": "train", "nodes": {"flavor": "f", "count": 3}}]
    assert with_node_counts([POOL], {}) == [POOL]


def test_refusal() -> None:
    with pytest.raises(AnsibleFilterError, match="its autoscaler chooses the number of nodes"):
        with_node_counts([POOL], {"train": 3}, {"autoscale": {"min": 1, "max": 3}})
