# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Releases of the GPU operator in a running lab: an added one runs, an unknown one is an image that cannot be pulled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab import build, operators
from lab.layout import cache as shared_cache
from tests.helpers.polling import until

from .conftest import OwnLab

pytestmark = [pytest.mark.lab, pytest.mark.usual(40)]

ADDED, LATER, UNKNOWN = "v25.10.98", "v25.10.99", "v99.0.0"


@pytest.fixture(scope="module", autouse=True)
def up(own: OwnLab, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A lab with a cache of its own, in which the programs of the shared cache are links."""
    cache = tmp_path_factory.mktemp("cache")
    for folder in shared_cache().iterdir():
        (cache / folder.name).symlink_to(folder)
    (cache / "operators").unlink(missing_ok=True)
    own.variables["ACCEL_GPU_LAB_CACHE"] = str(cache)
    own.command("up")
    own.shell("kubectl create namespace gpu-operator")


def add(own: OwnLab, version: str) -> None:
    folder = build.cached("gpu-operator")
    assert folder is not None
    own.command(
        "operator",
        "add",
        "--version",
        version,
        "--binary",
        str(folder / "bin" / "gpu-operator"),
        "--chart",
        str(folder / "charts" / "gpu-operator"),
    )


def pods(own: OwnLab) -> dict[str, dict[str, Any]]:
    """The operator's pods by the tag of their image."""
    listed = json.loads(own.shell("kubectl get pods -n gpu-operator -l app=gpu-operator -o json"))["items"]
    return {pod["spec"]["containers"][0]["image"].rpartition(":")[2]: pod for pod in listed}


def programs(own: OwnLab) -> list[str]:
    """The releases of the running operators."""
    running = []
    for process in own.processes():
        try:
            words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words and words[0] == b"/usr/bin/gpu-operator":
            root = Path(f"/proc/{process}/root/usr/bin/gpu-operator")
            running += [one.version for one in operators.releases() if one.folder and root.samefile(one.program)]
    return running


def upgrade(own: OwnLab, version: str, tag: str = "") -> None:
    values = "--set nfd.enabled=false,operator.upgradeCRD=false" + (f",operator.version={tag}" if tag else "")
    own.shell(f"helm upgrade --install gpu $LAB_CHARTS/gpu-operator-{version} -n gpu-operator {values}")


def test_an_added_release_runs_and_an_unknown_one_waits_until_it_is_added(
    own: OwnLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCEL_GPU_LAB_CACHE", own.variables["ACCEL_GPU_LAB_CACHE"])
    add(own, ADDED)
    upgrade(own, ADDED)
    until(lambda: programs(own) == [ADDED], limit=60)

    upgrade(own, ADDED, tag=UNKNOWN)
    until(lambda: reason(own, UNKNOWN) == "ImagePullBackOff", limit=60)
    waiting = pods(own)[UNKNOWN]
    assert waiting["status"]["phase"] == "Pending"
    assert f"nvcr.io/nvidia/gpu-operator:{UNKNOWN}: not found" in waiting_state(waiting)["message"]
    assert "Failed to pull image" in own.shell("kubectl get events -n gpu-operator")
    # As on a real cluster, the Deployment keeps the old pod until the new one is ready.
    assert programs(own) == [ADDED]

    upgrade(own, ADDED, tag=LATER)
    until(lambda: reason(own, LATER) == "ImagePullBackOff", limit=60)
    add(own, LATER)
    until(lambda: list(pods(own)) == [LATER] and programs(own) == [LATER], limit=60)


def waiting_state(pod: dict[str, Any]) -> dict[str, str]:
    statuses = pod["status"].get("containerStatuses") or [{"state": {}}]
    actual: dict[str, str] = statuses[0]["state"].get("waiting", {})
    return actual


def reason(own: OwnLab, tag: str) -> str:
    pod = pods(own).get(tag)
    return waiting_state(pod).get("reason", "") if pod else ""
