# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which progress lines are shown, how often an unchanged line is repeated, and how a run names itself."""

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


@pytest.mark.parametrize(
    ("host", "job", "name", "url"),
    [
        ("https://awx.example.com", "7", "awx-7", "https://awx.example.com/#/jobs/playbook/7"),
        ("https://awx.example.com/", "7", "awx-7", "https://awx.example.com/#/jobs/playbook/7"),
        ("http://10.0.0.1:8052", "7", "awx-7", "http://10.0.0.1:8052/#/jobs/playbook/7"),
        # Nobody has set AWX's address.
        ("https://towerhost", "7", "awx-7", ""),
        ("https://platformhost", "7", "awx-7", ""),
        ("https://admin:secret@awx.example.com", "7", "awx-7", ""),
        ("https://awx.example.com/?token=secret", "7", "awx-7", ""),
        ("https://awx.example.com\nok: [prod]", "7", "awx-7", ""),
        ("ftp://awx.example.com", "7", "awx-7", ""),
        ("awx.example.com", "7", "awx-7", ""),
        ("https://awx.example.com/" + "a" * 300, "7", "awx-7", ""),
        ("https://awx.example.com", "../7", "awx-../7", ""),
        ("https://awx.example.com", "", "", ""),
        # JOB_ID alone is not AWX's.
        ("", "7", "", ""),
    ],
)
def test_a_job_names_itself_and_its_page(
    monkeypatch: pytest.MonkeyPatch, host: str, job: str, name: str, url: str
) -> None:
    monkeypatch.delenv("AWX_JOB_ID", raising=False)
    monkeypatch.setenv("AWX_HOST", host)
    monkeypatch.setenv("JOB_ID", job)
    assert module_action.run_url() == url
    assert module_action.run_id() == name or (not name and not module_action.run_id().startswith("awx-"))
