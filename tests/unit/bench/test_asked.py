# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a timed command asked for, and what it changed, as it is read from logs and recaps."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import cloud_requests
from lab.layout import Lab
from tests.performance.bench.asked import Asked, Clouds
from tests.performance.bench.timed import changes

OURS = "accel.gpu/1.0.0 magnum_nodegroup run/1"


def test_of_a_clouds_log_only_what_the_client_asked_since(tmp_path: Path) -> None:
    lab = Lab.named("bench", tmp_path)
    log, path = Clouds(lab), cloud_requests.path_of(lab)
    assert log.mark() == 0
    path.parent.mkdir(parents=True)

    def asked(method: str, where: str, agent: str = OURS, *, internal: bool = False) -> None:
        cloud_requests.write(path, "magnum", method, where, 200, agent, internal=internal)

    asked("GET", "/v1/clusters/before")
    since = log.mark()
    asked("POST", "/v3/auth/tokens")
    asked("GET", "/v1/clusters/c")
    asked("POST", "/v1/clusters/c/nodegroups")
    asked("GET", "/v1/clusters/c", "openstacksdk/4.6.0")
    asked("GET", "/v1/clusters/c", internal=True)
    assert log.since(since, "accel.gpu/") == Asked(requests=3, writes=1)
    assert log.since(since, "openstack") == Asked(requests=1)


@pytest.mark.parametrize(
    ("recap", "found"),
    [
        ("lab : ok=1    changed=1    unreachable=0", {1}),
        ("a : ok=1    changed=0    unreachable=0\nb : ok=1    changed=0    unreachable=0", {0}),
        ("a : ok=1    changed=0    unreachable=0\nb : ok=1    changed=1    unreachable=0", {0, 1}),
        ("ERROR! no recap", set()),
    ],
    ids=["one", "all-alike", "one-of-them", "none"],
)
def test_of_every_host_the_recap_counts(recap: str, found: set[int]) -> None:
    assert changes(recap) == found
