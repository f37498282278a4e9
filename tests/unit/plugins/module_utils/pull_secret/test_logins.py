# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Logins that nodes cannot use are not written into Secrets."""

from __future__ import annotations

from ansible_collections.accel.gpu.plugins.module_utils.pull_secret.secret import unusable_logins
from ansible_collections.accel.gpu.plugins.module_utils.registry.credentials import Login


def test_identity_tokens_are_rejected() -> None:
    logins = {
        "a.example.com": Login("", "", "auth.json", identity_token="t-1"),
        "b.example.com": Login("user", "word", "the option"),
    }
    (problem,) = unusable_logins(logins)
    assert "a.example.com from auth.json is an identity token" in problem
    assert "t-1" not in problem
