# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Five thousand nodes, as fat as real ones: the memory and the requests that a list costs."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.bulk import run_bounded
from tests.helpers.kube import Kube
from tests.programs import REPO

NODES = 5000
PAGES = NODES // 500
MOST_MIB = 150

_LISTER = """
import json, sys
from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.config import ConnectionOptions
client = Client(ConnectionOptions(kubeconfig=sys.argv[1]), "lister")
count = sum(1 for _ in client.list("/api/v1/nodes", label_selector=sys.argv[2], metadata_only=sys.argv[3] == "metadata"))
# Not ru_maxrss: that begins with what the parent had when it forked.
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) // 1024
print(json.dumps({"count": count, "requests": client.request_count, "mib": peak}))
"""


def fat_node(prefix: str, index: int) -> dict[str, Any]:
    """About 10 KB: the labels of NFD, and fifty images."""
    features = {f"feature.node.kubernetes.io/f{number}": "true" for number in range(80)}
    digest = "a" * 64
    images = [
        {"names": [f"registry.example/some/image-{number}@sha256:{digest}"], "sizeBytes": 10**9} for number in range(50)
    ]
    metadata = {"name": f"{prefix}-{index}", "labels": {"test": prefix, **features}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"images": images}}


@pytest.mark.soak
@pytest.mark.usual(120)
def test_a_list_of_all_nodes(kube: Kube) -> None:
    bodies = [fat_node(kube.prefix, index) for index in range(NODES)]
    made = run_bounded(
        [(body["metadata"]["name"], functools.partial(kube.client.create, "/api/v1/nodes", body)) for body in bodies],
        32,
    )
    try:
        assert all(outcome.ok for outcome in made)
        for part in ("whole", "metadata"):
            command = [sys.executable, "-c", _LISTER, str(kube.kubeconfig), f"test={kube.prefix}", part]
            done = subprocess.run(
                command,
                cwd=REPO,
                env={**os.environ, "PYTHONPATH": "build"},
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            cost = json.loads(done.stdout)
            assert (cost["count"], cost["requests"]) == (NODES, PAGES)
            assert cost["mib"] <= MOST_MIB, cost
    finally:
        kube.client.delete("/api/v1/nodes", query={"labelSelector": f"test={kube.prefix}"})
