# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""license_server_info: the look-ups of licenses and leases, its failures, and that no result contains the key."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.http import Retrier
from ansible_collections.accel.gpu.plugins.module_utils.licensing.servers import (
    Access,
    LicenseServiceClient,
    LicenseServiceError,
    explain,
)
from ansible_collections.accel.gpu.plugins.modules import license_server_info
from tests.helpers.modules import run_module

KEY = "planted-key-0123456789"
BASE = "/v1/org/lic-a/virtual-groups"
VCS, VWS = "NVIDIA Virtual Compute Server", "NVIDIA RTX Virtual Workstation"
POOL = {"licensePoolFeatures": [{"licenseServerFeatureId": "f1", "totalAllotment": 10, "inUse": 4}]}
ANSWERS: dict[str, Any] = {
    BASE: {"virtualGroups": [{"id": 1}, {"id": 2}, {"name": "without an id"}, "x"]},
    f"{BASE}/1/license-servers": {
        "licenseServers": [
            {
                "id": "s1",
                "name": "one",
                "serviceInstanceId": "i1",
                "licenseServerFeatures": [{"id": "f1", "productName": VCS}, {"id": "f2", "featureName": VWS}],
            }
        ]
    },
    f"{BASE}/1/license-servers/s1/license-pools": {
        "licensePools": [POOL, POOL, {"licensePoolFeatures": [{"licenseServerFeatureId": "f2", "totalAllotment": 5}]}]
    },
    f"{BASE}/1/leases": {"clients": [{"leases": [{}, {}]}, {"leases": [{}]}, {}]},
    f"{BASE}/2/license-servers": {},
}


class Server(ThreadingHTTPServer):
    """Answers from ANSWERS, or always with one status or body."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.body = 200, b""
        self.instances: list[str | None] = []

    @property
    def service(self) -> LicenseServiceClient:
        access = Access(f"http://127.0.0.1:{self.server_port}/", KEY)
        return LicenseServiceClient(access, "test", Retrier(sleep=lambda dummy: None))


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        assert self.headers["X-API-KEY"] == KEY
        if self.path.endswith("/leases"):
            self.server.instances.append(self.headers["x-nv-service-instance-id"])
        actual = ANSWERS.get(self.path)
        self.send_response(self.server.status if actual is not None else 404)
        self.end_headers()
        self.wfile.write(self.server.body or json.dumps(actual).encode())

    def log_message(self, template: str, *arguments: Any) -> None:
        """Stay quiet."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


@pytest.mark.parametrize("group", [None, 1])
def test_licenses_and_leases_of_an_organization(server: Server, group: int | None) -> None:
    assert server.service.read("lic-a", group).as_dict() == {
        "servers": ["one"],
        "products": [
            {"name": VWS, "total": 5, "in_use": 0, "free": 5},
            {"name": VCS, "total": 20, "in_use": 8, "free": 12},
        ],
        "total": 25,
        "in_use": 8,
        "leases": 3,
    }
    assert server.instances == ["i1"]


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (401, "does not accept the API key for GET /v1/org/lic-a/virtual-groups. Create a key with the access type"),
        (404, "cannot find /v1/org/lic-a/virtual-groups. Check gpu_licensing_org (option org of the module), "),
        (500, "rejected GET /v1/org/lic-a/virtual-groups with 500"),
        (302, "rejected GET /v1/org/lic-a/virtual-groups with 302"),
    ],
)
def test_rejected_requests(server: Server, status: int, message: str) -> None:
    server.status, server.body = status, f"you sent {KEY}".encode()
    with pytest.raises(LicenseServiceError) as caught:
        server.service.read("lic-a", None)
    assert message in explain(caught.value)
    assert KEY not in explain(caught.value)


def test_odd_values_cause_no_traceback(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    features = [{"id": ["f1"], "productName": VCS}, {"id": {}}, {"id": "f2", "productName": {}}]
    odd = {"id": "\ud800", "name": ["x"], "licenseServerFeatures": features}
    pool = {"licensePoolFeatures": [{"licenseServerFeatureId": ["f1"], "totalAllotment": "7", "inUse": True}]}
    monkeypatch.setitem(ANSWERS, f"{BASE}/1/license-servers", {"licenseServers": [odd]})
    monkeypatch.setitem(ANSWERS, f"{BASE}/1/license-servers/%3F/license-pools", {"licensePools": [pool, None]})
    actual = server.service.read("lic-a", 1)
    assert actual.as_dict()["products"] == [{"name": VCS, "total": 0, "in_use": 0, "free": 0}]
    with pytest.raises(LicenseServiceError, match="cannot find"):
        server.service.read("\ud800", 1)


@pytest.mark.parametrize("body", [b"[]", b"<html>", b"{"])
def test_answers_that_are_no_objects(server: Server, body: bytes) -> None:
    server.body = body
    with pytest.raises(LicenseServiceError, match="is not a JSON object"):
        server.service.read("lic-a", None)


@pytest.mark.parametrize(
    ("options", "env", "message"),
    [
        (
            {},
            "",
            "gpu_licensing_api_key (option api_key of the module): is missing; set it, or set the environment variable NLS_API_KEY",
        ),
        (
            {"api_key": KEY, "api_url": "http://x"},
            "",
            "gpu_licensing_api_url (option api_url of the module): must begin with https://",
        ),
        ({"api_url": "https://127.0.0.1:1", "request_timeout": 1}, KEY, "The license service does not respond to GET"),
    ],
)
def test_failures(options: dict[str, Any], env: str, message: str) -> None:
    result = run_module(license_server_info.main, {"org": "lic-a", **options}, env={"NLS_API_KEY": env})
    assert result["failed"]
    assert message in result["msg"]
    assert KEY not in json.dumps(result)
