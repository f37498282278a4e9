# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A token that HTTP cannot carry is not quoted by the refusal."""

from __future__ import annotations

import types
from typing import Any

import pytest
from keystoneauth1 import session as keystone_session
from keystoneauth1 import token_endpoint

from ansible_collections.accel.gpu.plugins.module_utils.clouds.magnum_client import CloudOptions, Service
from ansible_collections.accel.gpu.plugins.module_utils.core.errors import ConnectionProblem

SECRET = "S3cretPlanted"


@pytest.mark.parametrize("token", [f"{SECRET}\n", f"{SECRET}\nsecond", f"{SECRET}€"])
def test_no_header_is_quoted(token: str) -> None:
    auth = token_endpoint.Token("http://127.0.0.1:9", token)
    adapter = keystone_session.Session(auth=auth)

    def request(path: str, method: str, **options: Any) -> Any:
        return adapter.request(f"http://127.0.0.1:9{path}", method, raise_exc=False, **options)

    session: Any = types.SimpleNamespace(
        adapter=lambda kind: types.SimpleNamespace(request=request, get_endpoint=lambda: "http://127.0.0.1:9"),
        require_secure=lambda url: None,
        timeout=1,
        origin="cloud",
        auth_url="http://127.0.0.1:9",
    )
    with pytest.raises(ConnectionProblem, match=r"cloud.*header") as caught:
        Service(session, "container-infra", "Magnum").send("GET", "/clusters")
    assert SECRET not in str(caught.value)


def test_a_token_is_masked_without_its_line_break_too() -> None:
    options = CloudOptions.from_params({"auth": {"token": f"{SECRET}\n"}})
    assert SECRET in options.secrets
