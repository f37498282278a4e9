# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fake IAM: tokens of both generations, and errors."""

from __future__ import annotations

import json

import pytest

from lab.vks.fake import FakeVks
from tests.helpers.vks import Account, Client


def test_tokens_of_both_generations(fake: FakeVks) -> None:
    client = Client(fake.url)
    newer, older = client.login("v2").body, client.login("v1").body
    assert (newer["token_type"], newer["expires_in"], older["expiresIn"]) == ("Bearer", 1800, 1800)
    assert client.vks("GET", "/clusters").status == 200
    client.token = newer["access_token"]
    assert client.vks("GET", "/clusters").status == 200
    assert client.vserver("GET", "/v1/projects").status == 200


def test_requests_without_a_token_are_rejected(fake: FakeVks) -> None:
    client = Client(fake.url)
    assert client.vks("GET", "/clusters").status == 401
    client.token = "made-up"
    assert client.vserver("GET", "/v1/projects").status == 401


def test_failed_logins_lock_the_account(fake: FakeVks) -> None:
    wrong = Client(fake.url, secret="wrong")
    codes = [wrong.login().body["errors"][0]["code"] for dummy in range(6)]
    assert codes == ["AUTHENTICATION_FAILED"] * 5 + ["TOO_MANY_FAILED_LOGINS"]
    assert Client(fake.url).login().body["errors"][0]["code"] == "TOO_MANY_FAILED_LOGINS"
    assert Client(fake.url, "lab-reader").login().status == 200


@pytest.mark.parametrize("status", ["401", "400", "403"])
def test_status_of_a_rejected_login_is_a_guess(account: Account, status: str) -> None:
    account.set("iam-error-status", status)
    assert Client(account.fake.url, secret="wrong").login().status == int(status)


def test_missing_permissions(fake: FakeVks) -> None:
    reader = Account(fake, "lab-reader")
    assert reader.groups()
    assert reader.create().status == 403
    some = Account(fake, "lab-unprivileged")
    path = some.created()
    assert some.vks("PATCH", f"{path}/metadata", {"labels": {"a": "b"}}).status == 403
    assert some.vks("GET", f"{some.cluster}/kubeconfig").status == 403
    assert some.vks("PUT", path, {"numNodes": 2}).status == 202


def test_no_secrets_on_disk(fake: FakeVks, account: Account) -> None:
    account.created()
    written = "".join(path.read_text() for path in fake._file.parents[2].rglob("*") if path.is_file())
    assert "cloud-requests" not in written
    assert '"path": "/v1/clusters"' in written
    for secret in (account.token, "lab-secret"):
        assert secret not in written
    assert account.token not in json.dumps(account.send("GET", "/lab/state", None, {}).body)
