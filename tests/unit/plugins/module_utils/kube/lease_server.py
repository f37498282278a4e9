# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of an API server that a lease talks to, and a clock that the test moves."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable
from typing import Any

from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError

Object = dict[str, Any]


class Clock:
    """A clock that only the test advances."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


class Server:
    """The one Lease of an API server; `while_asked` is called in the middle of a write, when it was carried out."""

    def __init__(self) -> None:
        self.lease: Object | None = None
        self.guard: Callable[[str], None] | None = None
        self.while_asked: Callable[[], None] = lambda: None
        # With what a write is rejected; whether the next write's answer is lost, so that the client sends it again.
        self.failure: ApiError | None = None
        self.answer_lost = False
        self._version = 0

    def get(self, path: str, query: Any = None) -> Object | None:
        return copy.deepcopy(self.lease)

    def create(self, path: str, body: Object, **dummy: Any) -> Object:
        if self.lease is not None:
            raise ApiError("exists", status=409)
        return self._stored({**body, "metadata": {**body["metadata"], "uid": uuid.uuid4().hex}})

    def replace(self, path: str, body: Object, **dummy: Any) -> Object:
        if self.failure is not None:
            raise self.failure
        if self.lease is None:
            raise ApiError("no such lease", status=404)
        if any(body["metadata"][key] != self.lease["metadata"][key] for key in ("uid", "resourceVersion")):
            raise ApiError("modified", status=409)
        stored = self._stored(body)
        self.while_asked()
        if self.answer_lost:
            self.answer_lost = False
            return self.replace(path, body)
        return stored

    def edit(self, **spec: Any) -> None:
        assert self.lease is not None
        self._stored({**self.lease, "spec": {**self.lease["spec"], **spec}})

    def _stored(self, body: Object) -> Object:
        self._version += 1
        self.lease = copy.deepcopy(body)
        self.lease["metadata"]["resourceVersion"] = str(self._version)
        return copy.deepcopy(self.lease)

    @property
    def spec(self) -> Object:
        assert self.lease is not None
        spec: Object = self.lease["spec"]
        return spec
