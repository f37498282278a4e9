# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A copy is killed after each request that changes the registry: the next run completes it, sends no finished layer again, and finds no leftovers."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from tests.faults.api_proxy import Proxy, Request
from tests.helpers.planted_secrets import Planted
from tests.helpers.playbook import Playbook
from tests.helpers.registries import Registries
from tests.helpers.registry_images import push_image

pytestmark = [pytest.mark.lab, pytest.mark.usual(12), pytest.mark.timeout(300)]

PLATFORMS = ("amd64", "arm64")


def write_playbook(path: Path, **options: Any) -> Path:
    """A playbook that calls registry_image once."""
    task = {"name": "Copy", "accel.gpu.registry_image": options}
    play = {
        "name": "Copy",
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {"ansible_python_interpreter": "{{ ansible_playbook_python }}"},
        "tasks": [task],
    }
    path.write_text(yaml.safe_dump([play]))
    return path


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", range(1, 14))
def test_a_copy_is_killed(registries: Registries, tmp_path: Path, number: int) -> None:
    image = push_image(registries.client(), f"{registries.unique}/source", "1", platforms=PLATFORMS, size=500_000)
    target, planted = f"{registries.unique}/target", Planted()
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    proxy = Proxy(f"http://{registries.plain}")
    proxy.keeps_host = True
    playbook: list[Playbook] = []
    started, lock, writes = threading.Event(), threading.Lock(), [0]

    def kill_after(request: Request, status: int) -> None:
        if request.method not in ("POST", "PATCH", "PUT") or status >= 400:
            return
        with lock:
            writes[0] += 1
            if writes[0] != number:
                return
        started.wait()
        playbook[0].kill()

    proxy.after = kill_after
    password = planted.new("the password")
    with proxy.running():
        address = urlsplit(proxy.url).netloc
        logins = [
            *registries.options(),
            {"registry": address, "plain_http": True, "username": "x", "password": password},
        ]
        entry = {
            "source": f"{registries.plain}/{registries.unique}/source:1",
            "destination": f"{address}/{target}:1",
            "tags": ["2"],
        }
        path = write_playbook(tmp_path / "copy.yml", images=[entry], registries=logins)
        environ = {**registries.lab.env, "TMPDIR": str(temporary), "HOME": str(tmp_path)}
        with registries.requests() as first:
            playbook.append(Playbook(str(path), environ=environ, inventory=Path("localhost,")))
            started.set()
            run = playbook[0].wait()
        if writes[0] < number:
            run.require_success()
            pytest.skip("the run had ended")
        assert planted.found_below(temporary) == []
        proxy.after = lambda request, status: None
        with registries.requests() as second:
            again = registries.copy(entry, registries=logins)
    assert not again.get("failed"), again["msg"]
    assert not set(first.uploads) & set(second.uploads)
    client = registries.client()
    assert {client.digest(target, tag) for tag in ("1", "2")} == {image.digest}
    assert planted.found_below(temporary) == []
