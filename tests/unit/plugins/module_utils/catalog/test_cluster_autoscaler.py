# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of the cluster autoscaler's objects."""

from __future__ import annotations

from ansible_collections.accel.gpu.plugins.module_utils.catalog.openshift import group_id


def test_the_name_of_a_node_group() -> None:
    assert group_id("openshift-machine-api", "prod-t4") == "MachineSet/openshift-machine-api/prod-t4"
