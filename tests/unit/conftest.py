# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hypothesis has no deadline and no health checks, since both depend on chance and on a busy machine, and fewer examples in `make test`, which draws others in each run."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings


def pytest_configure(config: pytest.Config) -> None:
    examples = 25 if "not soak" in config.option.markexpr else 60
    settings.register_profile("unit", deadline=None, max_examples=examples, suppress_health_check=list(HealthCheck))
    settings.load_profile("unit")
