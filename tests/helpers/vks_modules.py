# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules vks_* against the fake VKS, and their requests."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible_collections.accel.gpu.plugins.module_utils.clouds import vks_client
from lab import cloud_requests
from lab.layout import Lab
from lab.vks import groups, lifecycle
from lab.vks.dispatch import HttpRequest, HttpResponse
from lab.vks.fake import FakeVks
from lab.vks.rules import VksRules
from tests.helpers import vks
from tests.helpers.modules import run_module

Object = dict[str, Any]
CLUSTER = "demo"
SECRET = vks.SECRETS["lab"]
_PREFIX = "accel.gpu/"


class Account(vks.Account):
    """An account for modules; only their requests are counted."""

    def __init__(self, fake: FakeVks, folder: Path) -> None:
        """Use the fake VKS that runs in this folder."""
        super().__init__(fake)
        self.lab = Lab.named(CLUSTER, folder)
        self.client = "lab"

    @property
    def env(self) -> dict[str, str]:
        """The environment variables of a lab's shell."""
        login = {"GRN_CLIENT_ID": self.client, "GRN_CLIENT_SECRET": vks.SECRETS[self.client]}
        return {**self.fake.addresses(), **login}

    def run(self, main: Callable[[], Any], *, check: bool = False, diff: bool = True, **args: Any) -> Object:
        """A module's result, as from a separate process."""
        vks_client.TOKENS.clear()
        return run_module(main, args, check=check, diff=diff, env=self.env)

    def put_before(self, method: str, fault: str, value: object = None) -> None:
        """Inject a fault just before the first request of this method, so that it affects that request."""
        answer = self.fake.answer

        def watched(request: HttpRequest) -> HttpResponse:
            if request.method == method and request.service != "iam":
                self.fake.answer = answer  # type: ignore[method-assign]
                self.put(fault, value)
            return answer(request)

        self.fake.answer = watched  # type: ignore[method-assign]

    def clear(self) -> None:
        """Clear all faults."""
        self.fake.settings.clear()

    def mark(self) -> int:
        """The present end of the request log."""
        return cloud_requests.mark(self.lab)

    def requests(self, since: int = 0) -> list[str]:
        """Requests since a mark, as METHOD PATH, without logins."""
        actual = cloud_requests.requests(self.lab, since, _PREFIX)
        return [f"{request.method} {request.path}" for request in actual if request.service != "iam"]

    def logins(self, since: int = 0) -> int:
        """The number of token requests."""
        return sum(request.service == "iam" for request in cloud_requests.requests(self.lab, since, _PREFIX))

    def writes(self, since: int = 0) -> list[str]:
        """Write requests, as METHOD PATH with ID in place of ids."""
        actual = cloud_requests.writes(self.lab, since, _PREFIX)
        return [f"{request.method} {_without_ids(request.path)}" for request in actual]

    def groups(self) -> dict[str, Object]:
        """The node groups of the service with all their settings, by name; two of one name are an error."""
        with self.fake.state.lock:
            rules = VksRules.now(self.fake.settings)
            actual = [groups.detail(rules, group) for group in self.fake.state.groups.values()]
        assert len({group["name"] for group in actual}) == len(actual), "two groups of one name"
        return {group["name"]: group for group in actual}

    def all_shown(self) -> bool:
        """Whether the service lists every group: new ones are listed late."""
        with self.fake.state.lock:
            return not any(lifecycle.is_hidden(group, time.time()) for group in self.fake.state.groups.values())

    def log(self) -> str:
        """The whole request log."""
        return cloud_requests.path_of(self.lab).read_text()


def _without_ids(path: str) -> str:
    parts = path.partition("?")[0].split("/")
    return "/".join("ID" if part.startswith(("k8s-", "ng-")) else part for part in parts)
