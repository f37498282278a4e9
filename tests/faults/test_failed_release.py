# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A failed Helm release: the next run succeeds once the refused request is allowed, although nothing else has changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.faults.api_proxy import Answer, ApiProxy, Request
from tests.helpers.playbook import run_playbook
from tests.labs import Lab
from tests.programs import run

SITE = "accel.gpu.site"
NFD = ["--tags", "nfd"]


def refuse_role_bindings(request: Request) -> Answer | None:
    """Respond to helm like an API server that lets it create everything except bindings."""
    if request.method != "POST" or "clusterrolebindings" not in request.path or "Helm/" not in request.user_agent:
        return None
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": "clusterrolebindings is forbidden by a test",
        "reason": "Forbidden",
        "code": 403,
    }
    return Answer(403, json.dumps(status).encode())


def statuses(lab: Lab) -> list[str]:
    """Return the status of each revision of NFD's release, oldest first."""
    actual = json.loads(run("kubectl", "get", "secrets", "-A", "-l", "owner=helm,name=nfd", "-o", "json", env=lab.env))
    labels = [secret["metadata"]["labels"] for secret in actual["items"]]
    return [label["status"] for label in sorted(labels, key=lambda label: int(label["version"]))]


@pytest.mark.usual(40)
@pytest.mark.sampled(1, group="failures of a release")
def test_the_next_run_upgrades_it_although_chart_and_values_are_equal(lab: Lab, tmp_path: Path) -> None:
    lab.reset()
    proxy = ApiProxy(lab.kubeconfig)
    proxy.before = refuse_role_bindings
    with proxy.running():
        kubeconfig = proxy.kubeconfig(tmp_path / "config")
        environ = lab.env_through(kubeconfig)
        refused = run_playbook(SITE, environ=environ, arguments=NFD)
    assert refused.rc != 0
    assert "forbidden by a test" in refused.failure()
    assert statuses(lab) == ["failed"]
    preview = run_playbook(SITE, environ=lab.env, arguments=[*NFD, "--check"]).require_success()
    assert preview.changed() > 0
    run_playbook(SITE, environ=lab.env, arguments=NFD).require_success()
    assert statuses(lab)[-1] == "deployed"
    assert run_playbook(SITE, environ=lab.env, arguments=NFD).require_success().changed() == 0
