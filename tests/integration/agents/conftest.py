# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds NVIDIA's own agents if necessary; no cluster is needed."""

from __future__ import annotations

import pytest

from lab import build


@pytest.fixture(scope="session", autouse=True)
def built(request: pytest.FixtureRequest) -> None:
    """Build the agents, the driver's library and the simulator; the first build takes minutes and prints its progress."""
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        build.ensure(["agents", "sim"])
