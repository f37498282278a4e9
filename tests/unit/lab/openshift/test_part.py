# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machines of a lab with OpenShift."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import fleet
from lab.layout import Lab
from lab.openshift import releases
from lab.openshift.part import OpenShift


@pytest.mark.parametrize("minor", releases.RELEASES)
def test_the_machines_have_the_operating_system_of_the_release(minor: str, tmp_path: Path) -> None:
    lab, part = Lab.named("one", tmp_path), OpenShift()
    lab.record(openshift=minor)
    part.folder(lab).mkdir()
    machines = fleet.load(part.fleet_file(lab))
    assert {group.os for group in machines.groups} == {releases.find(minor).system}
    assert [group.name for group in machines.groups] == [group.name for group in fleet.load(part.fleet).groups]
