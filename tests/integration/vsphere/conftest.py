# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated vCenter for each test, and the modules that talk to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.vcenter import start_vcenter
from tests.helpers.vsphere_modules import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A vCenter with the lab's inventory, and an OVA."""
    with start_vcenter(tmp_path / "vcenter") as center:
        yield Site(center, tmp_path)
