# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The OpenShift releases of a lab."""

from __future__ import annotations

import pytest

from lab.errors import LabError
from lab.openshift import releases
from lab.systems import SYSTEMS


@pytest.mark.parametrize("minor", releases.RELEASES)
def test_each_release_has_nodes_of_an_image_based_system(minor: str) -> None:
    release = releases.find(minor)
    assert release.version.startswith(f"{minor}.")
    system = SYSTEMS[release.system]
    assert system.ostree
    assert system.ostree in system.image
    assert system.runtime.startswith("cri-o://")


def test_an_unknown_release_is_rejected_with_the_known_ones() -> None:
    with pytest.raises(LabError, match=r"no OpenShift '4\.1'; choose from 4\.16, 4\.18, 4\.20, 5\.0"):
        releases.find("4.1")
