# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A release that a user has added to the lab: a site with it, and upgrades from it and to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helpers.cluster import NAMESPACE, Cluster
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.labs import LAB, Lab
from tests.programs import run

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800), pytest.mark.usual(240)]

# Both are the program, chart and CRDs of v25.3.2.
OLDER, NEWER = "v25.3.98", "v25.10.98"
PINNED = "v25.10.1"
FLEET = {"groups": [{"name": "t4", "count": 2, "model": "Tesla-T4", "gpus": 1}, {"name": "cpu", "count": 1}]}


@pytest.fixture(scope="module")
def cluster(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = Path(run(LAB, "build", "gpu-operator-25.3").splitlines()[-1].split(maxsplit=1)[1])
    files = ["--binary", str(folder / "bin" / "gpu-operator"), "--chart", str(folder / "charts" / "gpu-operator")]
    for version in (OLDER, NEWER):
        lab.command("operator", "add", "--version", version, *files)
    fleet = tmp_path_factory.mktemp("added") / "fleet.yaml"
    fleet.write_text(yaml.safe_dump(FLEET))
    lab.reset(fleet)
    yield Cluster(lab)
    for version in (OLDER, NEWER):
        lab.command("operator", "remove", version)


def play(cluster: Cluster, version: str) -> PlaybookRun:
    charts = cluster.lab.env["LAB_CHARTS"]
    variables: dict[str, Any] = {
        "gpu_cluster": {
            "name": cluster.lab.name,
            "operator": {"version": version, "chart": f"{charts}/gpu-operator-{version}"},
            "nfd": {"chart": f"{charts}/node-feature-discovery"},
        },
        "gpu_pools": [{"name": "notebooks", "match": {"model": "Tesla-T4"}, "gpus_per_node": 1}],
        "gpu_operator_allow_driver_rollout": True,
    }
    return run_playbook("accel.gpu.site", environ=cluster.lab.env, variables=variables, timeout=1200)


@pytest.mark.parametrize("version", [OLDER, PINNED, NEWER])
def test_the_site_has_the_release(cluster: Cluster, version: str) -> None:
    """The first case installs the operator, and the others upgrade it."""
    play(cluster, version).require_success()
    deployment = cluster.get("deployment", "gpu-operator", "-n", NAMESPACE)
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"].endswith(f":{version}")
    assert deployment["metadata"]["labels"]["helm.sh/chart"] == f"gpu-operator-{version}"
    assert play(cluster, version).require_success().changed() == 0
