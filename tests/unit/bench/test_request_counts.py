# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counts of a measured command's requests in logs, and of changes in recaps."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import cloud_requests
from lab.layout import Lab
from tests.performance.bench.request_counts import CloudLog, RequestCounts
from tests.performance.bench.timer import changes

USER_AGENT = "accel.gpu/1.0.0 magnum_nodegroup run/1"


def test_cloud_log_counts_requests_of_the_client_after_the_mark(tmp_path: Path) -> None:
    lab = Lab.named("bench", tmp_path)
    log, path = CloudLog(lab), cloud_requests.path_of(lab)
    assert log.mark() == 0
    path.parent.mkdir(parents=True)

    def log_request(method: str, url: str, agent: str = USER_AGENT, *, internal: bool = False) -> None:
        cloud_requests.write(path, "magnum", method, url, 200, agent, internal=internal)

    log_request("GET", "/v1/clusters/before")
    since = log.mark()
    log_request("POST", "/v3/auth/tokens")
    log_request("GET", "/v1/clusters/c")
    log_request("POST", "/v1/clusters/c/nodegroups")
    log_request("GET", "/v1/clusters/c", "openstacksdk/4.6.0")
    log_request("GET", "/v1/clusters/c", internal=True)
    assert log.since(since, "accel.gpu/") == RequestCounts(requests=3, writes=1)
    assert log.since(since, "openstack") == RequestCounts(requests=1)


@pytest.mark.parametrize(
    ("recap", "actual"),
    [
        ("lab : ok=1    changed=1    unreachable=0", {1}),
        ("a : ok=1    changed=0    unreachable=0\nb : ok=1    changed=0    unreachable=0", {0}),
        ("a : ok=1    changed=0    unreachable=0\nb : ok=1    changed=1    unreachable=0", {0, 1}),
        ("ERROR! no recap", set()),
    ],
    ids=["one", "all-alike", "one-of-them", "none"],
)
def test_changes_of_all_hosts(recap: str, actual: set[int]) -> None:
    assert changes(recap) == actual
