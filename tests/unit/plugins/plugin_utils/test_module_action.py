# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which progress lines are shown, and how often an unchanged line is repeated."""

from __future__ import annotations

import time
from unittest import mock

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.waits import Progress
from ansible_collections.accel.gpu.plugins.plugin_utils import module_action


def test_an_unchanged_line_is_repeated_while_the_module_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"_POLL": 0.01, "_INTERVAL": 0.02, "_REPEAT": 0.3}.items():
        monkeypatch.setattr(module_action, name, seconds)
    shown: list[str] = []
    display = mock.Mock()
    display.display.side_effect = lambda text, **_options: shown.append(text)
    monkeypatch.setattr(module_action, "Display", lambda: display)
    reader = module_action._Reader("prod", hide_text=False)
    with reader as path:
        progress = Progress(path)
        reader.follow()
        end = time.monotonic() + 1
        while time.monotonic() < end:
            progress.report("122/128 operand pods ready")
            time.sleep(0.02)
    assert set(shown) == {"prod: 122/128 operand pods ready"}
    assert 2 <= len(shown) <= 4


def test_progress_cannot_change_the_terminal() -> None:
    shown = module_action._Reader("prod", hide_text=False)._format({"text": "pulling \x1b[2J\u202ex\nok: [prod]"})
    assert shown == r"prod: pulling \u001b[2J\u202ex\nok: [prod]"
