# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fake VKS in the test's own process, and a plain HTTP client for it."""

from __future__ import annotations

import base64
import http.client
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from lab.cloud_requests import path_of
from lab.cloud_settings import CloudFault
from lab.layout import Lab
from lab.vks import rules, seed
from lab.vks.fake import FakeVks
from lab.vks.iam import CLIENTS

SECRETS = {client: f"{client}-secret" for client in CLIENTS}
Body = dict[str, Any]


@contextmanager
def running(folder: Path, cluster: str = "demo") -> Iterator[FakeVks]:
    """Run a fake VKS without Kubernetes, and check at the end that its responses did not violate the contract."""
    lab = Lab.named(cluster, folder)
    lab.logs.mkdir(parents=True)
    fake = FakeVks(lab, SECRETS, real=False, log=path_of(lab))
    fake.start()
    try:
        yield fake
        assert fake.service.violations == []
    finally:
        fake.stop()


@dataclass
class Answer:
    """A response; a body that is not JSON is text."""

    status: int
    body: Any
    headers: dict[str, str] = field(default_factory=dict)


class Client:
    """A client of the fake VKS with one service account."""

    def __init__(self, url: str, client: str = "lab", secret: str | None = None) -> None:
        self._host, self._client = urlsplit(url).netloc, client
        self._secret = SECRETS[client] if secret is None else secret
        self.token = ""

    def login(self, version: str = "v2") -> Answer:
        """Get a token from IAM, and store it."""
        basic = base64.b64encode(f"{self._client}:{self._secret}".encode()).decode()
        headers = {"Authorization": f"Basic {basic}", "Content-Type": "application/x-www-form-urlencoded"}
        body = urlencode({"grant_type" if version == "v2" else "grantType": "client_credentials"})
        answer = self.send("POST", f"/accounts-api/{version}/auth/token", body.encode(), headers)
        if answer.status == 200:
            self.token = answer.body["access_token" if version == "v2" else "accessToken"]
        return answer

    def vks(self, method: str, path: str, body: Any = None) -> Answer:
        """Send a request to VKS, with a path below /v1."""
        return self._bearing(method, f"/vks/v1{path}", body)

    def vserver(self, method: str, path: str, body: Any = None) -> Answer:
        """Send a request to vServer."""
        return self._bearing(method, f"/vserver/vserver-gateway{path}", body)

    def send(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        """Send a request on a new connection."""
        connection = http.client.HTTPConnection(self._host, timeout=20)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        try:
            return Answer(answer.status, json.loads(content) if content else None, dict(answer.headers.items()))
        except ValueError:
            return Answer(answer.status, content.decode())

    def _bearing(self, method: str, path: str, body: Any) -> Answer:
        headers = {"Authorization": f"Bearer {self.token}", "User-Agent": "test", "Content-Type": "application/json"}
        return self.send(method, path, None if body is None else json.dumps(body).encode(), headers)


class Account(Client):
    """A logged-in client with the only cluster, and common operations of tests."""

    def __init__(self, fake: FakeVks, client: str = "lab") -> None:
        super().__init__(fake.url, client)
        self.fake = fake
        assert self.login().status == 200
        self.cluster = f"/clusters/{self.vks('GET', '/clusters').body['items'][0]['id']}"

    def set(self, name: str, value: str) -> None:
        """Set a guess or a tuning value."""
        rules.check_setting(name, value)
        self.fake.settings.set(f"vks.{name}", value)

    def put(self, name: str, value: object = None, group: str | None = None) -> None:
        """Inject a fault."""
        text = None if value is None else str(value)
        rules.check_fault(name, group, text)
        self.fake.settings.inject(CloudFault(f"vks.{name}", group, text))

    def groups(self) -> dict[str, Body]:
        """Return the groups of the cluster by name, as in lists."""
        listed = self.vks("GET", f"{self.cluster}/node-groups?pageSize=50").body
        return {group["name"]: group for group in listed["items"]}

    def path(self, name: str) -> str:
        """Return the path of a group."""
        return f"{self.cluster}/node-groups/{self.groups()[name]['id']}"

    def create(self, **more: Any) -> Answer:
        """Send a request to create a group."""
        return self.vks("POST", f"{self.cluster}/node-groups", group(**more))

    def created(self, **more: Any) -> str:
        """Create a group, wait until it is ACTIVE, and return its path."""
        answer = self.create(**more)
        assert answer.status < 300, answer
        path = self.path(group(**more)["name"])
        self.settled(path)
        return path

    def settled(self, path: str, status: str = "ACTIVE") -> Body:
        """Wait until a group has a status, and return its details."""
        actual: Body = until(lambda: self.vks("GET", path).body, lambda body: body["status"] == status)
        return actual


def group(name: str = "gpus-1", **more: Any) -> Body:
    """Return the request body of a group of one node with two L40S."""
    zone = seed.ZONES[1]
    return {
        "name": name,
        "numNodes": 1,
        "os": "ubuntu",
        "flavorId": next(
            row["flavorId"] for row in seed.flavors_offered() if row["name"] == "g4-standard-32x128-2L40s"
        ),
        "diskSize": 100,
        "diskType": next(row["id"] for row in seed.volume_types() if row["zone"] == zone),
        "enablePrivateNodes": False,
        "securityGroups": [],
        "sshKeyId": seed.stable_id("ssh", "lab"),
        "upgradeConfig": {"strategy": "SURGE", "maxSurge": 1, "maxUnavailable": 0},
        "subnetId": seed.stable_id("sub", "b"),
        **more,
    }


def until(look: Callable[[], Any], holds: Callable[[Any], bool], seconds: float = 10) -> Any:
    """Wait until a value meets a condition, and return it."""
    deadline = time.monotonic() + seconds
    while not holds(actual := look()):
        assert time.monotonic() < deadline, actual
        time.sleep(0.02)
    return actual
