# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Five thousand nodes of realistic size: the memory and the requests of a list."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.waits import run_bounded
from tests.helpers.gpu_nodes import gpu_node
from tests.helpers.kube import Kube
from tests.programs import REPO

NODES = 5000
PAGES = NODES // 500
MOST_MIB = 150

_LISTER = """
import json, sys
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import parse
from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.connection_options import ConnectionOptions
client = Client(ConnectionOptions(kubeconfig=sys.argv[1]), "lister")
how = {"metadata": {"metadata_only": True}}.get(sys.argv[3], {})
found = client.list("/api/v1/nodes", label_selector=sys.argv[2], **how)
# All nodes are kept as a module keeps them, or none.
count = len(list(map(parse, found))) if sys.argv[3] == "parsed" else sum(1 for _ in found)
# Not ru_maxrss: that begins with what the parent had when it forked.
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) // 1024
print(json.dumps({"count": count, "requests": client.request_count, "mib": peak}))
"""


@pytest.mark.soak
@pytest.mark.usual(120)
def test_a_list_of_all_nodes(kube: Kube) -> None:
    bodies = [gpu_node(f"{kube.prefix}-{index}", 4, {"test": kube.prefix}) for index in range(NODES)]
    created = run_bounded(
        [(body["metadata"]["name"], functools.partial(kube.client.create, "/api/v1/nodes", body)) for body in bodies],
        32,
    )
    try:
        assert all(outcome.ok for outcome in created)
        for part in ("whole", "metadata", "parsed"):
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
