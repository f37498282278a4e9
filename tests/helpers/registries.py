# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The registries of a lab as the collection's modules see them: their options, the requests that they received, and what skopeo reads there."""

from __future__ import annotations

import json
import os
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible_collections.accel.gpu.plugins.modules import registry_image
from lab.layout import Lab as LabLayout
from lab.registry import layout
from lab.registry import requests as log
from tests.helpers.modules import run_module
from tests.helpers.registry_images import AGENT, RegistryClient
from tests.helpers.toxiproxy import Toxiproxy
from tests.labs import Lab
from tests.programs import run

Object = dict[str, Any]


@dataclass
class Requests:
    """The requests of a block to one registry, without those of the test itself."""

    listed: list[log.RegistryRequest] = field(default_factory=list)

    def count(self) -> Counter[str]:
        """The number of requests by method."""
        return Counter(one.method for one in self.listed)

    @property
    def writes(self) -> list[str]:
        """Method and path of the requests that can change something."""
        return [f"{one.method} {one.path.partition('?')[0]}" for one in self.listed if one.writing]

    @property
    def uploads(self) -> list[str]:
        """The digests of the blobs that were finished."""
        return [
            one.path.partition("digest=")[2].replace("%3A", ":")
            for one in self.listed
            if one.method == "PUT" and "/blobs/uploads/" in one.path and one.status == 201
        ]


@dataclass
class Registries:
    """The plain registry, the one with TLS and a login, and the pull-through cache; `unique` is a folder for the repositories of one test."""

    lab: Lab
    folder: Path
    unique: str = field(default_factory=lambda: f"t{uuid.uuid4().hex[:10]}")

    @property
    def plain(self) -> str:
        return self.lab.env["LAB_REGISTRY_PLAIN"]

    @property
    def tls(self) -> str:
        return self.lab.env["LAB_REGISTRY_TLS"]

    @property
    def cache(self) -> str:
        return self.lab.env["LAB_REGISTRY_CACHE"]

    @property
    def password(self) -> str:
        return Path(self.lab.env["LAB_REGISTRY_PASSWORD_FILE"]).read_text()

    def client(self, name: str = "LAB_REGISTRY_PLAIN") -> RegistryClient:
        """A client of the test itself."""
        return RegistryClient.of(self.lab.env, name)

    def options(self, **tls: Any) -> list[Object]:
        """The option `registries` for all of them; `tls` replaces fields of the entry with TLS."""
        user, authority = self.lab.env["LAB_REGISTRY_USER"], self.lab.env["LAB_REGISTRY_CA"]
        secured = {"username": user, "password": self.password, "ca_cert": authority, **tls}
        proxies = {"LAB_REGISTRY_PLAIN_PROXY": {"plain_http": True}, "LAB_REGISTRY_TLS_PROXY": secured}
        return [
            {"registry": self.plain, "plain_http": True},
            {"registry": self.cache, "plain_http": True},
            {"registry": self.tls, **secured},
            *({"registry": self.lab.env[name], **entry} for name, entry in proxies.items()),
        ]

    def copy(
        self,
        *images: Mapping[str, Any],
        registries: list[Object] | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = False,
        **options: Any,
    ) -> Object:
        """The result of registry_image."""
        given = {"images": list(images), "registries": self.options() if registries is None else registries, **options}
        return run_module(
            registry_image.main, given, check=check, diff=True, env={"HOME": str(self.folder), **(env or {})}
        )

    def copied(self, *images: Mapping[str, Any], **options: Any) -> Object:
        """The result of a successful copy, which check mode predicts and which a second run does not repeat."""
        predicted = self.copy(*images, check=True, **options)
        result = self.copy(*images, **options)
        assert not result.get("failed"), result
        assert (predicted["changed"], predicted["diff"]) == (result["changed"], result["diff"])
        again = self.copy(*images, **options)
        assert not again["changed"], again
        return result

    @contextmanager
    def requests(self, registry: str = layout.PLAIN) -> Iterator[Requests]:
        """The requests of the block to a registry."""
        named, actual = LabLayout.named(self.lab.name), Requests()
        since = log.mark(named, registry)
        yield actual
        actual.listed += [one for one in log.requests(named, registry, since) if AGENT not in one.user_agent]

    def network(self, name: str = "registry-plain-proxy") -> Toxiproxy:
        """The line to a registry."""
        return Toxiproxy(int(self.lab.env["LAB_TOXIPROXY"].rpartition(":")[2]), name=name)

    def inspect(self, image: str) -> Object:
        """The output of skopeo for an image of the plain registry."""
        output = run("skopeo", "inspect", "--tls-verify=false", f"docker://{image}", env=dict(os.environ))
        actual: Object = json.loads(output)
        return actual
