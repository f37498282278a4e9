# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses: regions, IAM's two generations, and where a token is never sent."""

from __future__ import annotations

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.clouds.vks_client import endpoints
from ansible_collections.accel.gpu.plugins.module_utils.core.errors import InvalidOptions


def test_a_region_is_enough() -> None:
    existing = endpoints({"region": "HAN"})
    assert existing.vks == "https://vks-han-1.api.vngcloud.vn"
    assert existing.vserver == "https://han-1.api.vngcloud.vn/vserver/vserver-gateway"
    assert (existing.iam, existing.iam_version) == ("https://iam.api.vngcloud.vn/accounts-api/v2/auth/token", "v2")


@pytest.mark.parametrize(
    ("given", "address", "version"),
    [
        (
            {"iam_url": "http://127.0.0.1:8/accounts-api/v1/auth/token"},
            "http://127.0.0.1:8/accounts-api/v1/auth/token",
            "v1",
        ),
        (
            {"iam_url": "https://iam.example/accounts-api/v2/auth/token/"},
            "https://iam.example/accounts-api/v2/auth/token",
            "v2",
        ),
        ({"iam_url": "https://iam.example"}, "https://iam.example/accounts-api/v2/auth/token", "v2"),
        (
            {"iam_url": "https://iam.example/accounts-api", "iam_version": "v1"},
            "https://iam.example/accounts-api/v1/auth/token",
            "v1",
        ),
        ({"iam_version": "v1"}, "https://iamapis.vngcloud.vn/accounts-api/v1/auth/token", "v1"),
    ],
)
def test_the_generation_of_iam_is_said_by_option_or_address(given: dict[str, str], address: str, version: str) -> None:
    existing = endpoints(given)
    assert (existing.iam, existing.iam_version) == (address, version)


def test_an_address_may_end_with_the_version() -> None:
    assert (
        endpoints({"vks_url": "https://vks.console.greennode.ai/vks-api/v1/"}).vks
        == "https://vks.console.greennode.ai/vks-api"
    )


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"region": "BKK"}, "region: 'BKK' is unknown; known regions: HCM-3, HAN."),
        ({"vks_url": "http://vks.example"}, "vks_url: 'http://vks.example' would send the token unencrypted"),
        ({"iam_url": "http://10.0.0.1"}, "iam_url: 'http://10.0.0.1/accounts-api/v2/auth/token' would send"),
        ({"vserver_url": "vserver.example"}, "is not a URL of the form https://HOST/PATH"),
        ({"vks_url": "https://me:hunter2@vks.example"}, "vks_url: the URL contains credentials"),
        ({"vks_url": "https://vks.example/?a=b"}, "has a query"),
        (
            {"iam_url": "https://i/accounts-api/v2/auth/token", "iam_version": "v1"},
            "iam_version: v1, but iam_url ends with",
        ),
    ],
)
def test_what_is_refused(given: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidOptions) as raised:
        endpoints(given)
    assert says in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_all_problems_are_reported_together() -> None:
    with pytest.raises(InvalidOptions) as raised:
        endpoints({"region": "BKK", "vks_url": "http://vks.example", "iam_url": "ftp://iam"})
    assert len(raised.value.problems) == 3
