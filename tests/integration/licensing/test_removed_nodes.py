# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes whose machines will be removed return their licenses, and get them again if they stay."""

from __future__ import annotations

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.connection_options import ConnectionOptions
from ansible_collections.accel.gpu.plugins.module_utils.kube.lease import Lease
from ansible_collections.accel.gpu.plugins.module_utils.licensing.container import LicenseReturn
from ansible_collections.accel.gpu.plugins.module_utils.nodes.drain import NodeDrainer, SharedLease
from ansible_collections.accel.gpu.plugins.module_utils.schema.validators import DrainOptions
from tests.helpers.licensing import Licensing
from tests.helpers.polling import until

pytestmark = [
    pytest.mark.lab,
    pytest.mark.sampled(3, group="licensing"),
    pytest.mark.usual(30),
    pytest.mark.timeout(900),
]


def test_a_removed_node_returns_its_license(licensing: Licensing) -> None:
    client = Client(ConnectionOptions(kubeconfig=str(licensing.lab.kubeconfig)), "tests")
    warnings: list[str] = []
    lease = SharedLease(lambda: Lease(client, "test", namespace="default", name="removed-nodes"))
    drainer = NodeDrainer(
        client, DrainOptions(force=True), lease, lambda node, text: None, removal=LicenseReturn(client, warnings.append)
    )
    drainer.drain(["vdi-1", "vdi-2"])
    until(lambda: {licensing.states()[name]["status"] for name in ("vdi-1", "vdi-2")} == {"Unlicensed (Unrestricted)"})
    assert licensing.states()["vdi-3"]["status"] == "Licensed"
    assert drainer.uncordon(["vdi-1", "vdi-2", "vdi-3"]) == ["vdi-1", "vdi-2"]
    until(lambda: {state["status"] for state in licensing.states().values()} == {"Licensed"})
    assert warnings == []
