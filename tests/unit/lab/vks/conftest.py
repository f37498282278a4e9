# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fake VKS for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.vks.fake import FakeVks
from tests.helpers.vks import Account, running


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeVks]:
    """A fake VKS without Kubernetes."""
    with running(tmp_path / "demo") as actual:
        yield actual


@pytest.fixture
def account(fake: FakeVks) -> Account:
    """A logged-in account of the fake VKS."""
    return Account(fake)
