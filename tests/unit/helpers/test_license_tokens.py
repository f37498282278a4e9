# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command of docs/lab-licensing.md that prints a token."""

from __future__ import annotations

import sys

from ansible_collections.accel.gpu.plugins.module_utils.licensing.token import normalize_token, parse_token, utc_now
from tests.programs import run


def test_the_command_prints_a_valid_token() -> None:
    printed = run(sys.executable, "-m", "tests.helpers.license_tokens")
    assert parse_token(normalize_token(printed)).problem(utc_now()) is None
