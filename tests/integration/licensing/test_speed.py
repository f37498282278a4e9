# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The licenses of 500 nodes are verified in one pass, with one list of nodes and of pods, and a run without changes writes nothing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from lab import audit
from lab.layout import Lab as LabLayout
from tests.helpers.licensing import FLEET, Licensing
from tests.labs import Lab, own_lab

pytestmark = [
    pytest.mark.lab,
    pytest.mark.soak,
    pytest.mark.alone,
    pytest.mark.usual(240),
    pytest.mark.timeout(1500),
]

COUNT, LIMIT = 500, 15.0
# Requests for: the discovery of the platform, the identity of the cluster, the policy, the nodes (two pages), the pods (one page), and the Secret.
READS = 12


@pytest.fixture
def large_lab(tmp_path: Path) -> Iterator[Lab]:
    """A lab with 500 nodes, and without the part metrics, whose egress proxy would take time for each command."""
    fleet = yaml.safe_load(FLEET.read_text())
    fleet["groups"][0]["count"] = COUNT
    (tmp_path / "fleet.yaml").write_text(yaml.safe_dump(fleet))
    with own_lab("licensing-speed", options=["--fleet", str(tmp_path / "fleet.yaml")]) as lab:
        yield lab


def test_500_nodes(large_lab: Lab, tmp_path: Path) -> None:
    licensing = Licensing(large_lab, tmp_path)
    licensing.install()

    layout = LabLayout.named(large_lab.name)
    for compare_files, commands in ((True, 2), (False, 1)):
        since = audit.mark(layout)
        started = time.monotonic()
        actual = licensing.info(compare_files=compare_files, require_licensed=True)["license_info"]
        seconds = time.monotonic() - started
        assert actual["counts"]["licensed"] == COUNT, actual["warnings"]
        sent = [request for request in audit.requests(layout, since) if "license_info" in request.agent]
        executed = [request for request in sent if "/exec?" in request.uri]
        # A list of more than 500 objects has further pages.
        listed = Counter(
            request.resource for request in sent if request.verb == "list" and "continue=" not in request.uri
        )
        print(f"{COUNT} nodes, {commands} commands each: {seconds:.1f} s, {len(sent) - len(executed)} other requests")
        assert len(executed) == commands * COUNT
        assert (listed["nodes"], listed["pods"]) == (1, 1)
        assert len(sent) - len(executed) <= READS
        assert not [request for request in sent if request.mutating and request not in executed]
        assert seconds <= LIMIT

    since = audit.mark(layout)
    started = time.monotonic()
    assert not licensing.license()["changed"]
    assert not licensing.rotate()["changed"]
    print(f"license and license_rotation without changes: {time.monotonic() - started:.1f} s")
    sent = [request for request in audit.requests(layout, since) if "accel.gpu/" in request.agent]
    assert not [request for request in sent if request.mutating and "/exec?" not in request.uri]
