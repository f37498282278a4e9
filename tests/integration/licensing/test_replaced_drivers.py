# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Driver pods that are replaced while their token is rotated."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.helpers.licensing import NEW_HOST, Licensing
from tests.helpers.polling import until

pytestmark = [
    pytest.mark.lab,
    pytest.mark.sampled(3, group="licensing"),
    pytest.mark.usual(60),
    pytest.mark.timeout(900),
]


def test_driver_pods_that_are_replaced_during_a_rotation(licensing: Licensing) -> None:
    licensing.put_token(licensing.token(NEW_HOST))
    nodes = ["vdi-1", "vdi-2", "vdi-3"]
    licensing.fault("license-denied", "vdi-1")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(licensing.rotate, node_names=nodes, wait_timeout=120)
        until(lambda: licensing.states()["vdi-1"]["status"] != "Licensed", limit=60)
        # In the middle of its rotation, and before its turn.
        for name in ("vdi-1", "vdi-2"):
            licensing.delete_driver_pod(name)
        licensing.clear("license-denied", "vdi-1")
        done = running.result(timeout=300)
    assert not done.get("failed"), done["msg"]
    assert done["license_rotation"]["rotated"] == nodes
    states = licensing.states()
    assert {states[name]["token_sha256"] for name in nodes} == {licensing.digest()}
    assert {states[name]["status"] for name in nodes} == {"Licensed"}
    assert not licensing.rotate(node_names=nodes)["changed"]
