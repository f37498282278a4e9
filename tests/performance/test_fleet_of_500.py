# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Five hundred GPU nodes: a premature ready status is detected, and a second run needs more pages but no other requests."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import yaml

from lab import audit
from lab.layout import Lab as LabLayout
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.labs import Lab
from tests.programs import run

SITE = "accel.gpu.site"
NODES = 500
VARIABLES = {
    "gpu_pools": [{"name": "notebooks", "match": {"model": "T4"}, "sharing": {"mode": "time-slicing", "replicas": 4}}]
}

pytestmark = [pytest.mark.soak, pytest.mark.alone, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def fleet(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab with 500 nodes of one GPU each."""
    path: Path = tmp_path_factory.mktemp("fleet") / "500.yaml"
    group = {"name": "t4", "count": NODES, "model": "T4", "gpus": 1, "cpus": 16, "memory": "64Gi"}
    path.write_text(yaml.safe_dump({"defaults": {"os": "ubuntu-24.04", "driver": "580.95.05"}, "groups": [group]}))
    lab.command("reset", "--fleet", str(path))
    yield lab
    lab.reset()


def operand_pods(lab: Lab) -> Counter[str]:
    """Return the numbers of ready and of waiting DaemonSet pods in the operator's namespace."""
    pods = json.loads(run("kubectl", "get", "pods", "-n", "gpu-operator", "-o", "json", env=lab.env))["items"]
    counts: Counter[str] = Counter()
    for pod in pods:
        if any(owner["kind"] == "DaemonSet" for owner in pod["metadata"].get("ownerReferences", [])):
            conditions = {c["type"]: c["status"] for c in pod["status"].get("conditions", [])}
            counts["ready" if conditions.get("Ready") == "True" else "waiting"] += 1
    return counts


def request_counts(lab: Lab, since: int) -> Counter[tuple[str, str]]:
    """Return the collection's requests by verb and address; all pages of a list count as one request."""
    counts: Counter[tuple[str, str]] = Counter()
    for request in audit.requests(LabLayout.named(lab.name), since, "accel.gpu/"):
        address = urlsplit(request.uri)
        if "continue" not in dict(parse_qsl(address.query)):
            counts[request.verb, address.path] += 1
    return counts


def second_run(lab: Lab) -> Counter[tuple[str, str]]:
    """Run site on a converged cluster and return its requests."""
    since = audit.mark(LabLayout.named(lab.name))
    again: PlaybookRun = run_playbook(SITE, environ=lab.env, variables=VARIABLES).require_success()
    assert again.changed() == 0
    return request_counts(lab, since)


@pytest.mark.usual(400)
def test_site_returns_only_when_every_operand_pod_runs(fleet: Lab) -> None:
    arguments = ["--tags", "nfd,gpu_operator"]
    run_playbook(SITE, environ=fleet.env, variables=VARIABLES, arguments=arguments, timeout=1500).require_success()
    counts = operand_pods(fleet)
    assert counts["waiting"] == 0
    assert counts["ready"] >= 6 * NODES


@pytest.mark.usual(120)
def test_requests_do_not_grow_with_the_fleet(fleet: Lab) -> None:
    run_playbook(SITE, environ=fleet.env, variables=VARIABLES, timeout=1500).require_success()
    at_500 = second_run(fleet)
    fleet.reset()
    options: dict[str, Any] = {"environ": fleet.env, "variables": VARIABLES}
    run_playbook(SITE, **options).require_success()
    at_20 = second_run(fleet)
    assert at_500 == at_20
    assert not {verb for verb, _address in at_500} & set(audit.MUTATING)
