# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A registry that limits the number of requests: a real one behind a proxy that answers 429 at one step of a copy, a few times or always."""

from __future__ import annotations

import email.utils
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.registry import images
from ansible_collections.accel.gpu.plugins.modules import driver_image
from tests.faults.api_proxy import Answer, Proxy, Request
from tests.helpers.driver_context import remove_storage, write_context, write_installer
from tests.helpers.modules import run_module
from tests.helpers.registries import Object, Registries
from tests.helpers.registry_images import push_image

pytestmark = [pytest.mark.lab, pytest.mark.usual(10), pytest.mark.timeout(300)]

# The requests of a copy: the method, and the path without query.
STEPS = {
    "ping": ("GET", "/v2/$"),
    "token": ("GET", "/token$"),
    "digest": ("HEAD", "/manifests/"),
    "manifest": ("GET", "/manifests/"),
    "layer": ("GET", "/blobs/sha256:"),
    "layer that exists": ("HEAD", "/blobs/"),
    "start of an upload": ("POST", "/blobs/uploads/"),
    "chunk": ("PATCH", "/blobs/uploads/"),
    "end of an upload": ("PUT", "/blobs/uploads/"),
    "new manifest": ("PUT", "/manifests/"),
}
CODED = b'{"errors": [{"code": "TOOMANYREQUESTS", "message": "slow down"}]}'
PAGE = b"<html><head><title>Busy</title></head><body>Please wait.</body></html>"
FORMS: dict[str, Callable[[], Answer]] = {
    "seconds": lambda: Answer(429, CODED, {"Retry-After": "1"}),
    "date": lambda: Answer(429, CODED, {"Retry-After": email.utils.formatdate(time.time() + 2, usegmt=True)}),
    "date that is over": lambda: Answer(429, CODED, {"Retry-After": "Mon, 01 Jan 2024 00:00:00 GMT"}),
    "code": lambda: Answer(429, CODED),
    "other JSON": lambda: Answer(429, b'{"message": "slow down"}'),
    "page": lambda: Answer(429, PAGE, {"Content-Type": "text/html"}),
    "nothing": lambda: Answer(429, b"", {"Content-Type": "text/plain"}),
}


class Limited:
    """The plain registry behind a proxy with a token service. `limited` are the answers with 429 so far."""

    def __init__(self, registries: Registries, step: str, form: str, times: float) -> None:
        self.registries, self.limited = registries, 0
        method, path = STEPS[step]
        lock = threading.Lock()

        def before(request: Request) -> Answer | None:
            target = request.path.partition("?")[0]
            if request.method == method and re.search(path, target):
                with lock:
                    if self.limited < times:
                        self.limited += 1
                        return FORMS[form]()
            if target == "/token":
                return Answer(200, b'{"token": "t"}')
            if target == "/v2/":
                realm = f'Bearer realm="{self.proxy.url}/token",service="registry"'
                return Answer(401, b"{}", {"WWW-Authenticate": realm})
            return None

        self.proxy = Proxy(f"http://{registries.plain}")
        self.proxy.keeps_host, self.proxy.before = True, before

    @property
    def address(self) -> str:
        return urlsplit(self.proxy.url).netloc

    @property
    def options(self) -> list[Object]:
        return [*self.registries.options(), {"registry": self.address, "plain_http": True}]

    @property
    def entry(self) -> Object:
        """A copy whose two ends are limited, under two tags."""
        names = {name: f"{self.address}/{self.registries.unique}/{name}:1" for name in ("source", "destination")}
        return {**names, "tags": ["2"]}


@contextmanager
def limited(registries: Registries, step: str, form: str, times: float) -> Iterator[Limited]:
    actual = Limited(registries, step, form, times)
    push_image(registries.client(), f"{registries.unique}/source", "1", platforms=("amd64",))
    with actual.proxy.running():
        yield actual


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "_PAUSES", (0.5, 1.0))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("step", STEPS)
def test_a_copy_waits(registries: Registries, step: str, form: str) -> None:
    with limited(registries, step, form, 2) as actual:
        done = registries.copy(actual.entry, registries=actual.options)
        assert not done.get("failed"), done["msg"]
        assert actual.limited == 2
    client = registries.client()
    digest = client.digest(f"{registries.unique}/source", "1")
    assert {client.digest(f"{registries.unique}/destination", tag) for tag in ("1", "2")} == {digest}


@pytest.mark.sampled(1)
@pytest.mark.usual(40)
@pytest.mark.parametrize("form", ["seconds", "nothing"])
@pytest.mark.parametrize("step", STEPS)
def test_a_copy_ends_if_the_registry_never_stops(
    registries: Registries, monkeypatch: pytest.MonkeyPatch, step: str, form: str
) -> None:
    monkeypatch.setattr(images, "_PAUSES", (0.5,))
    with limited(registries, step, form, float("inf")) as actual:
        began = time.monotonic()
        failed = registries.copy(actual.entry, registries=actual.options, request_timeout=2, tool_timeout=60)
        seconds = time.monotonic() - began
        assert failed.get("failed"), failed
        print(f"{step}, {form}: {actual.limited} requests in {seconds:.0f} s: {failed['msg']}")
        assert "limits the number of requests" in failed["msg"]
        assert "run the playbook again later, or log in" in failed["msg"].lower()
        assert actual.address in failed["msg"]
        assert f"{registries.unique}/" in failed["msg"]
        assert seconds < 130
        assert actual.limited < 80
    assert registries.client().digest(f"{registries.unique}/destination", "2") is None


@pytest.mark.sampled(1)
@pytest.mark.usual(20)
@pytest.mark.parametrize("form", ["code", "nothing"])
@pytest.mark.parametrize("step", [name for name in STEPS if name not in ("manifest", "layer")])
def test_the_push_of_a_driver_image_waits(registries: Registries, tmp_path: Path, step: str, form: str) -> None:
    write_installer(tmp_path / "installers", "580.95.05")
    driver = {"type": "vgpu", "version": "580.95.05"}
    options: dict[str, Any] = {
        "gpu_cluster": {"name": "limited", "kubeconfig": str(registries.lab.kubeconfig)},
        "installers": str(tmp_path / "installers"),
        "build_context": str(write_context(tmp_path / "context")),
        "operating_systems": ["rhel9.6"],
        "operator_versions": ["v25.10.1"],
        "storage_root": str(tmp_path / "storage"),
        "storage_driver": "vfs",
    }
    try:
        with limited(registries, step, form, 2) as actual:
            driver["repository"] = f"{actual.address}/{registries.unique}/nvidia"
            pool = {"name": "vdi", "match": {"labels": {"vgpu": "vdi"}}, "sharing": {"mode": "none"}, "driver": driver}
            given = {**options, "gpu_pools": [pool], "registries": actual.options}
            done = run_module(driver_image.main, given, env={"HOME": str(tmp_path)})
            assert not done.get("failed"), done["msg"]
            assert actual.limited == 2
    finally:
        remove_storage(tmp_path / "storage")
    (image,) = done["driver_images"]
    client = registries.client()
    assert {client.digest(f"{registries.unique}/nvidia/driver", tag) for tag in image["tags"]} == set(
        image["digests"].values()
    )
