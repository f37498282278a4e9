# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a CRD is served."""

from __future__ import annotations

import pytest

from lab.api import Object
from lab.openshift import crds


@pytest.mark.parametrize(
    ("crd", "established"),
    [
        ({}, False),
        ({"status": {"conditions": None}}, False),
        ({"status": {"conditions": [{"type": "NamesAccepted", "status": "True"}]}}, False),
        ({"status": {"conditions": [{"type": "Established", "status": "False"}]}}, False),
        ({"status": {"conditions": [{"type": "Established", "status": "True"}]}}, True),
    ],
)
def test_established(crd: Object, established: bool) -> None:
    assert crds.is_established(crd) is established
