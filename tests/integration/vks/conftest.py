# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An account for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.vks import running
from tests.helpers.vks_modules import CLUSTER, Account


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    """The fake of VNG Cloud's services, with a cluster of one group without GPUs; it must not violate its contract."""
    folder = tmp_path / "fake"
    with running(folder, CLUSTER) as fake:
        yield Account(fake, folder)
