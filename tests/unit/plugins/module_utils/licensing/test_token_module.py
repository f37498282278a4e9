# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""license_token_info: where the token comes from, and that no result contains it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.modules import license_token_info
from tests.helpers.license_tokens import DAY, make_token
from tests.helpers.modules import run_module

TOKEN = make_token(hosts=["dls.example.com"], expires=100 * DAY)


def run(env: dict[str, str] | None = None, **options: Any) -> dict[str, Any]:
    result = run_module(license_token_info.main, options, env={"NLS_CLIENT_TOKEN": "", **(env or {})})
    for part in TOKEN.split("."):
        assert part not in json.dumps(result)
    return result


def test_each_source_of_the_token(tmp_path: Path) -> None:
    path = tmp_path / "a.tok"
    path.write_text(f"{TOKEN}\n")
    results = [run(token=TOKEN), run(token_path=str(path)), run({"NLS_CLIENT_TOKEN": TOKEN})]
    fingerprints = {result["license_token"]["fingerprint"] for result in results}
    assert len(fingerprints) == 1
    actual = results[0]["license_token"]
    assert (actual["valid"], actual["problem"], actual["days_left"], actual["server_type"]) == (True, "", 99, "dls")
    assert not results[0]["changed"]
    # An option has precedence over the environment.
    assert run({"NLS_CLIENT_TOKEN": "x"}, token_path=str(path))["license_token"]["fingerprint"] in fingerprints


def test_an_expired_token_is_no_error() -> None:
    actual = run(token=make_token(expires=-DAY))["license_token"]
    assert not actual["valid"]
    assert actual["problem"].startswith("expired at")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "token: is missing; set token, token_path, or the environment variable NLS_CLIENT_TOKEN"),
        (
            {"token": TOKEN, "token_path": "/x"},
            "gpu_licensing_token (option token of the module) and gpu_licensing_token_path",
        ),
        (
            {"token_path": "/nonexistent/a.tok"},
            "gpu_licensing_token_path (option token_path of the module): /nonexistent/a.tok cannot be read: No such file or directory",
        ),
        (
            {"token": f"'{TOKEN}'"},
            "gpu_licensing_token (option token of the module): the token contains characters that no token has",
        ),
        ({"token": TOKEN[:50]}, "gpu_licensing_token (option token of the module): the token has 2 parts instead of 3"),
        ({"token": "e" * 70_000}, "gpu_licensing_token (option token of the module): the token has 70000 bytes"),
    ],
)
def test_failures(options: dict[str, Any], message: str) -> None:
    result = run(**options)
    assert result["code"] == "invalid"
    assert message in result["msg"]


def test_messages_name_the_source_of_the_token(tmp_path: Path) -> None:
    path = tmp_path / "a.tok"
    for text in ("", TOKEN[:50]):
        path.write_text(text)
        assert (
            "gpu_licensing_token_path (option token_path of the module): the token " in run(token_path=str(path))["msg"]
        )
    assert (
        "The environment variable NLS_CLIENT_TOKEN: the token has 2 parts"
        in run({"NLS_CLIENT_TOKEN": TOKEN[:50]})["msg"]
    )
