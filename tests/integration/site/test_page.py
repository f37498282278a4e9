# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The HTML page of the lab's fleet: every node with its GPUs and the pods that hold them; writing it is no change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helpers.cluster import Cluster
from tests.helpers.html import Element, parse
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.labs import Lab
from tests.programs import run

SITE = "accel.gpu.site"
HOLDER: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "holder-of-three", "namespace": "default"},
    "spec": {
        "nodeSelector": {"accel.gpu/pool": "train-a100"},
        "containers": [
            {"name": "main", "image": "registry.example/none:1", "resources": {"limits": {"nvidia.com/gpu": "3"}}}
        ],
    },
}

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def holding(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node with a pod that holds three GPUs, in a converged cluster."""
    Cluster(lab).share()
    manifest: Path = tmp_path_factory.mktemp("holder") / "pod.yaml"
    manifest.write_text(yaml.safe_dump(HOLDER))
    run("kubectl", "apply", "-f", manifest, env=lab.env)
    run("kubectl", "wait", "--for=condition=Ready", "pod/holder-of-three", "--timeout=120s", env=lab.env)
    yield run("kubectl", "get", "pod", "holder-of-three", "-o", "jsonpath={.spec.nodeName}", env=lab.env).strip()
    run("kubectl", "delete", "-f", manifest, "--wait=false", env=lab.env)


def report(lab: Lab, path: Path, *arguments: str) -> PlaybookRun:
    """Run only the report, with its page."""
    return run_playbook(
        SITE,
        environ=lab.env,
        arguments=["--tags", "report", *arguments],
        variables={"gpu_report_html_path": str(path)},
    ).require_success()


@pytest.mark.sampled(1, group="views of a site")
@pytest.mark.usual(60)
def test_every_node_is_on_the_page_with_the_holders_of_its_gpus(lab: Lab, holding: str, tmp_path: Path) -> None:
    path = tmp_path / "fleet.html"
    assert report(lab, path).changed() == 0
    root = parse(path.read_text(encoding="utf-8"))
    tiles: dict[str, Element] = {tile.find("span", class_="name")[0].text: tile for tile in root.find("details")}
    nodes = json.loads(run("kubectl", "get", "nodes", "-l", "nvidia.com/gpu.present=true", "-o", "json", env=lab.env))
    assert set(tiles) == {node["metadata"]["name"] for node in nodes["items"]}
    assert "8 nvidia.com/gpu allocatable, 3 requested, 5 free" in tiles[holding].find("title")[0].text
    assert "holder-of-three" in tiles[holding].text
    assert [name for name, tile in tiles.items() if "holder-of-three" in tile.text] == [holding]
    assert "All 5 pools are as declared." in root.text


@pytest.mark.sampled(1, group="views of a site")
@pytest.mark.usual(15)
def test_check_mode_writes_the_same_page(lab: Lab, holding: str, tmp_path: Path) -> None:
    checked, real = tmp_path / "checked.html", tmp_path / "real.html"
    assert report(lab, checked, "--check", "--diff").changed() == 0
    report(lab, real)
    assert checked.read_text().split("><") == real.read_text().split("><")
