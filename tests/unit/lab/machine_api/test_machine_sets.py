# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The MachineSets of a new cluster."""

from __future__ import annotations

import pytest

from lab.machine_api.machine_sets import ZONES, machine_sets
from lab.openshift.objects import PLATFORMS


@pytest.mark.parametrize("platform", PLATFORMS)
def test_one_machine_set_for_each_zone(platform: str) -> None:
    actual = list(machine_sets(platform))
    assert len({one["metadata"]["name"] for one in actual}) == len(ZONES[platform]) == 2
    for one in actual:
        labels = one["spec"]["template"]["metadata"]["labels"]
        assert one["spec"]["selector"]["matchLabels"].items() <= labels.items()
        assert labels["machine.openshift.io/cluster-api-machineset"] == one["metadata"]["name"]
