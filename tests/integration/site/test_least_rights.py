# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The RBAC rules in `examples/rbac` are sufficient: each playbook runs with only its own, and names a missing one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.modules import gpu_info, gpu_pools_export
from lab import audit, rbac
from lab.layout import Lab as LabLayout
from tests.helpers.cluster import Cluster
from tests.helpers.modules import run_module
from tests.helpers.playbook import run_playbook
from tests.labs import Lab
from tests.programs import REPO, run

NAMESPACES = ("gpu-operator", "node-feature-discovery")
READING = ("plan", "export", "report")
# These send requests on OpenShift only, or need registries or vGPUs.
OTHERS = (
    *(
        "autoscaling",
        "driver_image",
        "license",
        "license_rotate",
        "license_report",
        "mirror",
        "templates",
        "verify_mirror",
        "vsphere_hosts",
    ),
)
# These send no request to a cluster.
OF_NO_CLUSTER = {"awx", "kubeconfigs"}
OF_NODE_GROUPS = ("nodegroups", "delete_nodegroups", "scale", "templates_refresh")
# These ask for a pool before they send a request.
NEED_A_POOL = {"delete_nodegroups", "scale", "templates_refresh"}

pytestmark = pytest.mark.timeout(1800)


def requests_of(lab: Lab, name: str, since: int) -> list[audit.AuditedRequest]:
    """Return the requests of a user since a mark."""
    user = f"{rbac.USER_PREFIX}{name}"
    actual = [request for request in audit.requests(LabLayout.named(lab.name), since) if request.user == user]
    assert actual
    return actual


def refused(lab: Lab, name: str, since: int) -> list[tuple[str, str]]:
    """Return the refused ones of these requests."""
    return [(request.verb, request.uri) for request in requests_of(lab, name, since) if request.status == 403]


def test_every_playbook_has_rights_of_its_own() -> None:
    existing = {path.stem for path in (REPO / "playbooks").glob("*.yml") if not path.stem.startswith("require_")}
    assert existing - OF_NO_CLUSTER == set(rbac.playbooks())


@pytest.mark.parametrize("playbook", READING)
def test_playbooks_that_only_read_have_no_right_to_change(playbook: str) -> None:
    verbs = {verb for role in rbac.objects(playbook) for rule in role["rules"] for verb in rule["verbs"]}
    assert verbs <= {"get", "list", "watch"}


@pytest.mark.parametrize("playbook", sorted({*rbac.playbooks()} - NEED_A_POOL))
def test_no_right_is_a_wildcard(playbook: str) -> None:
    for role in rbac.objects(playbook):
        for rule in role.get("rules", []):
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]


@pytest.mark.usual(110)
@pytest.mark.sampled(1, group="whole runs")
def test_the_playbooks_run_with_the_shipped_rights(lab: Lab) -> None:
    lab.reset()
    layout = LabLayout.named(lab.name)
    as_site = lab.env_as("site")
    since = audit.mark(layout)

    run_playbook("accel.gpu.site", environ=as_site).require_success()
    assert {"accel.gpu", "Helm"} <= {request.agent.partition("/")[0] for request in requests_of(lab, "site", since)}

    second = audit.mark(layout)
    assert run_playbook("accel.gpu.site", environ=as_site).require_success().changed() == 0
    assert [request.uri for request in requests_of(lab, "site", second) if request.mutating] == []

    assert run_playbook("accel.gpu.new_nodes", environ=lab.env_as("new_nodes")).require_success().changed() == 0

    planned = run_playbook("accel.gpu.plan", environ=lab.env_as("plan")).require_success()
    (fleet,) = planned.module_results("accel.gpu.gpu_info")
    assert fleet["gpu_info"]["reachable"]
    assert fleet["gpu_info"]["drift"] == []

    run_playbook("accel.gpu.report", environ=lab.env_as("report")).require_success()
    exported = run_playbook("accel.gpu.export", environ=lab.env_as("export")).require_success()
    (written,) = exported.module_results("accel.gpu.gpu_pools_export")
    assert (written["changing_nodes"], written["remarks"]) == (0, [])
    for playbook in READING:
        assert not [request for request in requests_of(lab, playbook, since) if request.mutating]

    for playbook in ("share", "repair", "upgrade"):
        assert run_playbook(f"accel.gpu.{playbook}", environ=lab.env_as(playbook)).require_success().changed() == 0
    only = ["-e", '{"gpu_sharing_pool_names": ["notebooks"]}']
    run_playbook("accel.gpu.reset", environ=lab.env_as("reset"), arguments=only).require_success()
    assert run_playbook("accel.gpu.share", environ=lab.env_as("share"), arguments=only).require_success().changed() == 1

    as_uninstall = lab.env_as("uninstall")
    run_playbook("accel.gpu.uninstall", environ=as_uninstall, arguments=["--check", "--diff"]).require_success()
    confirmed = ["-e", f"gpu_confirm={lab.name}"]
    removed = run_playbook("accel.gpu.uninstall", environ=as_uninstall, arguments=confirmed).require_success()
    assert {"accel.gpu", "Helm"} <= {
        request.agent.partition("/")[0] for request in requests_of(lab, "uninstall", since)
    }
    # The namespaces contain the Roles that this test has applied.
    remaining = [
        line for result in removed.module_results("accel.gpu.uninstall") for line in result["uninstall"]["kept"]
    ]
    assert [line.partition(":")[0] for line in remaining] == [f"Namespace {name}" for name in NAMESPACES]
    again = run_playbook("accel.gpu.uninstall", environ=as_uninstall, arguments=confirmed).require_success()
    assert again.changed() == 0

    # The playbooks of node groups send no requests to the cluster here: these pools have no node groups.
    ran = [name for name in rbac.playbooks() if name not in (*OF_NODE_GROUPS, *OTHERS)]
    assert {name: refused(lab, name, since) for name in ran} == {name: [] for name in ran}


@pytest.mark.usual(8)
@pytest.mark.sampled(1)
# No pool of this lab has vGPUs, so the playbooks templates and vsphere_hosts send no request.
@pytest.mark.parametrize("playbook", sorted({*rbac.playbooks()} - NEED_A_POOL - {"templates", "vsphere_hosts"}))
def test_without_rights_a_playbook_names_the_missing_right_and_changes_nothing(lab: Lab, playbook: str) -> None:
    since = audit.mark(LabLayout.named(lab.name))
    environ = lab.env_through(rbac.user_without_rights(LabLayout.named(lab.name)))
    # Without a confirmation or a mirror, playbooks ask for it before the first request.
    needed = {"gpu_confirm": lab.name, "gpu_mirror_registry": "registry.example.com/mirror"}
    played = run_playbook(f"accel.gpu.{playbook}", environ=environ, variables=needed)
    assert played.rc != 0
    message = played.failure()
    assert 'is forbidden: User "accel-gpu:no-rights"' in message
    assert "The user needs a ClusterRole with the rule apiGroups" in message or "The user needs a Role in" in message
    assert "Traceback" not in played.stdout + played.stderr
    assert not [
        request for request in requests_of(lab, "no-rights", since) if request.mutating and request.status < 400
    ]


@pytest.fixture(scope="module")
def installed(lab: Lab) -> Cluster:
    """A cluster with an operator, and nodes that need changes."""
    return Cluster(lab).install()


def _is_refused(words: str, environ: dict[str, str]) -> bool:
    """Whether the API server denies a right."""
    return run("bash", "-c", f"kubectl auth can-i {words} 2>/dev/null || true", env=environ).startswith("no")


Take = Callable[[str, str], dict[str, str]]


@pytest.fixture
def without(installed: Cluster) -> Iterator[Take]:
    """The environment of a playbook's user without the rule for a resource."""
    lab = installed.lab

    def take(playbook: str, resource: str) -> dict[str, str]:
        environ = lab.env_as(playbook)
        role = f"accel-gpu-{playbook}"
        rules = installed.get("clusterrole", role)["rules"]
        kept = [rule for rule in rules if resource not in rule["resources"]]
        assert len(kept) < len(rules)
        (lost,) = (rule for rule in rules if rule not in kept)
        run("kubectl", "patch", "clusterrole", role, "--type=merge", "-p", json.dumps({"rules": kept}), env=lab.env)
        name = f"/{lost['resourceNames'][0]}" if "resourceNames" in lost else ""
        group = f".{lost['apiGroups'][0]}" if lost["apiGroups"][0] else ""
        words = [lost["verbs"][0], f"{resource}{group}{name}", "-A"]
        # The API server watches the role, so the change takes effect later.
        installed.until(lambda: _is_refused(" ".join(words), environ))
        return environ

    yield take
    for playbook in READING:
        lab.env_as(playbook)


CASES: list[tuple[str, str, str, Any]] = [
    *(("plan", resource, verb, gpu_info.main) for resource, verb in (("nodes", "list"), ("pods", "list"))),
    *(
        ("plan", resource, verb, gpu_info.main)
        for resource, verb in (("clusterpolicies", "list"), ("configmaps", "get"))
    ),
    *(("plan", resource, verb, gpu_info.main) for resource, verb in (("deployments", "list"), ("leases", "get"))),
    *(
        ("export", resource, verb, gpu_pools_export.main)
        for resource, verb in (("nodes", "list"), ("daemonsets", "list"))
    ),
    *(
        ("export", resource, verb, gpu_pools_export.main)
        for resource, verb in (("clusterpolicies", "list"), ("configmaps", "get"))
    ),
]


@pytest.mark.usual(4)
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("playbook", "resource", "verb", "main"), CASES, ids=[f"{case[0]}-{case[1]}" for case in CASES]
)
def test_each_right_is_needed_and_named(
    installed: Cluster, without: Take, playbook: str, resource: str, verb: str, main: Any
) -> None:
    environ = without(playbook, resource)
    options: dict[str, Any] = {"gpu_cluster": {"name": installed.lab.name, "kubeconfig": environ["KUBECONFIG"]}}
    if playbook == "plan":
        options |= {
            "gpu_pools": installed.pools({"name": "notebooks", "labels": {"team": "new"}}),
            "include_impact": True,
        }
    result = run_module(main, options, env=environ)
    assert result["failed"] is True
    assert result["code"] == 403
    assert f'resources: ["{resource}"], verbs: ["{verb}"]' in result["msg"]


def test_values_without_permission_are_a_warning(installed: Cluster) -> None:
    environ = installed.lab.env_as("export")
    for namespace in NAMESPACES:
        installed.kubectl("-n", namespace, "delete", "rolebinding", "accel-gpu-export-values", "--ignore-not-found")
    options = {"gpu_cluster": {"name": installed.lab.name, "kubeconfig": environ["KUBECONFIG"]}}
    installed.until(lambda: _is_refused("list secrets -n gpu-operator", environ))
    remarks = run_module(gpu_pools_export.main, options, env=environ)["remarks"]
    assert [remark for remark in remarks if "requires permission to read Secrets in gpu-operator" in remark]
