# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shipped RBAC rules on OpenShift: they are sufficient for each playbook, and a missing one ends the run with its name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from lab import audit, rbac
from lab.layout import Lab as LabLayout
from tests.helpers.openshift import CLUSTER_POLICY, GPU_CSV, GPU_NAMESPACE, NFD_CSV, NFD_NAMESPACE, OpenShift
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.helpers.polling import until
from tests.labs import Lab
from tests.programs import REPO, run

INVENTORY = REPO / "inventories" / "openshift"
HOST = "openshift"
ALPHA = "/apis/operators.coreos.com/v1alpha1/namespaces"
NFD_OBJECT = f"/apis/nfd.openshift.io/v1/namespaces/{NFD_NAMESPACE}/nodefeaturediscoveries/nfd-instance"
CREATED = (
    CLUSTER_POLICY,
    NFD_OBJECT,
    f"{ALPHA}/{GPU_NAMESPACE}/subscriptions/gpu-operator-certified",
    f"{ALPHA}/{NFD_NAMESPACE}/subscriptions/nfd",
    f"{ALPHA}/{GPU_NAMESPACE}/clusterserviceversions/{GPU_CSV}",
    f"{ALPHA}/{NFD_NAMESPACE}/clusterserviceversions/{NFD_CSV}",
)
# Existing nodes only. Playbooks of node groups then send no request; test_site.py and test_scaling.py run those, and test_site.py `site`.
POOLS = yaml.safe_load((INVENTORY / "group_vars" / "gpu_clusters.yml").read_text())["gpu_pools"][:2]
PLAYBOOKS = {"plan", "export", "share", "repair", "reset", "new_nodes", "uninstall"}

pytestmark = pytest.mark.timeout(1200)


def play(lab: Lab, name: str, environ: dict[str, str] | None = None, *arguments: str, **variables: Any) -> PlaybookRun:
    variables = {"gpu_pools": POOLS, **variables}
    return run_playbook(
        f"accel.gpu.{name}", environ=environ or lab.env, inventory=INVENTORY, variables=variables, arguments=arguments
    )


def sited(lab: Lab) -> OpenShift:
    """A cluster after the playbook site with these pools."""
    lab.become("openshift-existing-nodes", lambda: play(lab, "site").require_success())
    return OpenShift(lab)


@pytest.mark.sampled(1, group="runs on OpenShift")
@pytest.mark.usual(150)
def test_the_playbooks_run_with_the_shipped_rights(openshift_lab: Lab) -> None:
    lab, openshift = openshift_lab, sited(openshift_lab)
    layout = LabLayout.named(lab.name)
    mark = audit.mark(layout)
    newer = {"name": lab.name, "distribution": "openshift", "operator": {"version": "v25.10.9"}}
    planned = play(lab, "plan", lab.env_as("plan"), gpu_cluster=newer).require_success()
    assert planned.shown("operator: upgrade from v25.10.1 to v25.10.9"), (
        "its own Subscription is not an adopted operator"
    )

    play(lab, "export", lab.env_as("export")).require_success()
    for name in ("share", "repair", "new_nodes"):
        assert play(lab, name, lab.env_as(name)).require_success().changed(HOST) == 0, name
    play(lab, "reset", lab.env_as("reset"), gpu_sharing_pool_names=["notebooks"]).require_success()
    assert play(lab, "share", lab.env_as("share")).require_success().changed(HOST) > 0

    environ, confirm = lab.env_as("uninstall"), {"gpu_confirm": [lab.name]}
    play(lab, "uninstall", environ, "--check", "--diff").require_success()
    assert all(openshift.get(path) for path in CREATED)
    play(lab, "uninstall", environ, **confirm).require_success()
    assert [path for path in CREATED if openshift.get(path)] == []
    assert play(lab, "uninstall", environ, **confirm).require_success().changed(HOST) == 0

    users = {f"{rbac.USER_PREFIX}{name}": name for name in rbac.playbooks()}
    requests = [request for request in audit.requests(layout, mark) if request.user in users]
    assert {users[request.user] for request in requests} == PLAYBOOKS
    refused = {
        f"{request.user} {request.verb} {request.uri.partition('?')[0]}"
        for request in requests
        if request.status == 403
    }
    # The MIG profiles of each node, which are optional (plan.yaml): without them, the catalog is used.
    profiles = f"list /api/v1/namespaces/{GPU_NAMESPACE}/configmaps"
    assert refused <= {f"{rbac.USER_PREFIX}{name} {profiles}" for name in ("plan", "export")}


Take = Callable[[str, str], dict[str, str]]


@pytest.fixture
def without(openshift_lab: Lab) -> Iterator[Take]:
    """The environment of a playbook's user without the rule for a resource."""
    lab, openshift, taken = openshift_lab, sited(openshift_lab), []

    def take(playbook: str, resource: str) -> dict[str, str]:
        environ = lab.env_as(playbook)
        taken.append(playbook)
        path = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/accel-gpu-{playbook}"
        rules = openshift.get(path)["rules"]
        kept = [rule for rule in rules if resource not in rule["resources"]]
        assert len(kept) == len(rules) - 1
        openshift.client.patch(path, {"rules": kept})
        words = f"kubectl auth can-i list {resource} -A 2>/dev/null || true"
        # The API server watches the role, so the change takes effect later.
        until(lambda: run("bash", "-c", words, env=environ).startswith("no"), limit=60)
        return environ

    yield take
    for playbook in taken:
        lab.env_as(playbook)


@pytest.mark.sampled(1, group="runs on OpenShift")
@pytest.mark.usual(60)
@pytest.mark.parametrize("resource", ["subscriptions", "nodefeaturediscoveries"])
@pytest.mark.parametrize("playbook", ["plan", "uninstall"])
def test_what_may_not_be_read_does_not_count_as_absent(
    openshift_lab: Lab, without: Take, playbook: str, resource: str
) -> None:
    environ = without(playbook, resource)
    played = play(openshift_lab, playbook, environ, gpu_confirm=[openshift_lab.name])
    assert played.rc != 0
    assert f'resources: ["{resource}"], verbs: ["list"]' in played.failure(HOST), json.dumps(played.document)[-2000:]
    assert all(OpenShift(openshift_lab).get(path) for path in CREATED), "nothing is deleted before the failure"
