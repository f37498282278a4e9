# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which texts of others are shown as a URL to open."""

from __future__ import annotations

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.messages import web_url


@pytest.mark.parametrize(
    "text",
    [
        "https://awx.example.com/#/jobs/playbook/7",
        "http://awx.example.com:8052/#/jobs/playbook/7",
        "https://[2001:db8::1]:8443/execution/jobs/playbook/7/output",
        "https://a/" + "b" * 290,
    ],
)
def test_shown(text: str) -> None:
    assert web_url(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "awx.example.com",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "ftp://awx.example.com/",
        "https://",
        "https:///jobs",
        "https://user@awx.example.com/",
        "https://user:password@awx.example.com/",
        "https://awx.example.com@elsewhere.example/",
        "https://awx.example.com/ and more",
        "https://awx.example.com/\nok: [prod]",
        "https://awx.example.com/\n",
        "https://awx.example.com/\x1b[2J",
        "https://awx.example.com/\u202e",
        "https://\u0430wx.example.com/",
        "https://awx.example.com:port/",
        "https://awx.example.com:99999/",
        "https://[awx/",
        "https://awx.example.com/`id`",
        "https://awx.example.com/{{ x }}",
        "https://a/" + "b" * 291,
    ],
)
def test_not_shown(text: str) -> None:
    assert web_url(text) == ""
