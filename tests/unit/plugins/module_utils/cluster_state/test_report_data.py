# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The totals of a cluster."""

from __future__ import annotations

from ansible_collections.accel.gpu.plugins.module_utils.cluster_state import report_data
from tests.helpers.fleet import node


def test_totals_count_gpus_not_mig_devices() -> None:
    """With the strategy single, the label nvidia.com/gpu.count is the number of MIG devices."""
    mig = node("a100-1", "A100-SXM4-80GB-MIG-3g.40gb", gpus=16, annotations={"accel.gpu/gpus": "8"})
    nodes = [mig, node("t4-1", gpus=2)]
    results = [report_data.node_result(one, None) for one in nodes]
    found = report_data.cluster_result(nodes, results)
    assert found["totals"]["gpus"] == sum(result["gpus"] for result in results) == 10
    assert sum(model["gpus"] for model in found["models"].values()) == 10
