# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests of the lab's own client."""

from __future__ import annotations

from types import SimpleNamespace
from unittest import mock

import pytest

from lab.api import Api, ApiError


@pytest.mark.parametrize(("statuses", "waits"), [([200], []), ([429, 429, 200], [2.0, 2.0])])
def test_a_request_is_repeated_when_the_server_asks_for_it(statuses: list[int], waits: list[float]) -> None:
    api = Api.__new__(Api)
    api._agent = "test"
    answers = [(SimpleNamespace(status=status, reason="", headers={"Retry-After": "2"}), b"{}") for status in statuses]
    with mock.patch.object(Api, "_send", side_effect=answers), mock.patch("time.sleep") as sleep:
        assert api.request("GET", "/version") == {}
    assert [call.args[0] for call in sleep.call_args_list] == waits


def test_a_server_that_stays_overloaded_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api.__new__(Api)
    api._agent = "test"
    monkeypatch.setattr("lab.api._MAX_RETRY", -1.0)
    answer = SimpleNamespace(status=429, reason="Too Many Requests", headers={}), b"{}"
    with mock.patch.object(Api, "_send", return_value=answer), pytest.raises(ApiError, match="Too Many Requests"):
        api.request("GET", "/version")
