# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab with the real NFD and GPU operator, installed by plain Helm: the simulator is tested without the collection."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.integration.sim.cluster import OPERATOR, VALUES, Cluster
from tests.labs import Lab
from tests.programs import run

WORKER = {
    "sources": {
        "pci": {"deviceClassWhitelist": ["02", "0200", "0207", "0300", "0302"], "deviceLabelFields": ["vendor"]}
    }
}


@pytest.fixture(scope="package")
def installed(lab: Lab) -> Cluster:
    """The default fleet with both charts, every operand ready, and ConfigMaps for device plugin and MIG manager."""
    lab.reset()
    charts = lab.env["LAB_CHARTS"]
    helm = ["helm", "upgrade", "--install", "--create-namespace", "--wait", "--namespace"]
    worker = f"worker.config={json.dumps(WORKER)}"
    run(*helm, "node-feature-discovery", "nfd", f"{charts}/node-feature-discovery", "--set-json", worker, env=lab.env)
    cluster = Cluster.of(lab)
    cluster.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": OPERATOR}})
    cluster.configs({"none": "version: v1\n"})
    cluster.mig_configs()
    run(*helm, OPERATOR, "gpu-operator", f"{charts}/gpu-operator", "--set", VALUES, env=lab.env)
    cluster.wait(cluster.settled, limit=90, what="the operator's DaemonSets")
    return cluster


@pytest.fixture
def cluster(installed: Cluster) -> Iterator[Cluster]:
    """The same cluster for every test: what a test changed on nodes and configs is undone after it."""
    yield installed
    installed.undo()
