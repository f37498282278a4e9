# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Logins that nodes cannot use are not written into Secrets, and what others have written stays."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.registry.credentials import (
    KEY,
    TYPE,
    ForeignSecret,
    Login,
    desired_secret,
    logins_of,
    unusable_logins,
)


def test_identity_tokens_are_rejected() -> None:
    logins = {
        "a.example.com": Login("", "", "auth.json", identity_token="t-1"),
        "b.example.com": Login("user", "word", "the option"),
    }
    (problem,) = unusable_logins(logins)
    assert "a.example.com from auth.json is an identity token" in problem
    assert "t-1" not in problem


def secret(document: Any) -> dict[str, Any]:
    """A Secret with this content."""
    data = {KEY: base64.b64encode(json.dumps(document).encode()).decode()}
    return {"type": TYPE, "metadata": {"resourceVersion": "1"}, "data": data}


def test_settings_of_others_stay() -> None:
    live = secret({"auths": {"b.example.com": {"auth": "eDp5"}}, "credHelpers": {"c.example.com": "x"}})
    desired = desired_secret(live, "name", "namespace", {"a.example.com": Login("u", "p", "s")})
    assert desired is not None
    assert json.loads(base64.b64decode(desired["data"][KEY])) == {
        "auths": {"a.example.com": {"auth": "dTpw"}, "b.example.com": {"auth": "eDp5"}},
        "credHelpers": {"c.example.com": "x"},
    }


@pytest.mark.parametrize("document", [{}, [], {"auths": ["ab"]}, {"auths": None}, {"auths": "ab"}])
def test_contents_that_are_no_logins(document: Any) -> None:
    with pytest.raises(ForeignSecret, match=r"has no valid \.dockerconfigjson"):
        logins_of(secret(document))
