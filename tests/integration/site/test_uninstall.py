# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook uninstall in the lab: it removes all managed objects, keeps foreign ones, and survives being killed."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from lab import audit
from lab.layout import Lab as LabLayout
from tests.helpers.foreign import Foreign
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.helpers.playbook_kills import changing_requests, killed_after
from tests.helpers.snapshot import Objects, differences, snapshot, written_by
from tests.labs import Lab
from tests.programs import REPO, run

SITE, UNINSTALL = "accel.gpu.site", "accel.gpu.uninstall"
# The parts of site that create everything that uninstall removes, without the validation.
INSTALL = {"arguments": ["--tags", "nfd,gpu_operator,sharing"]}

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


def kubectl(lab: Lab, *words: str) -> str:
    return run("kubectl", *words, env=lab.env)


def confirmed(lab: Lab) -> dict[str, str]:
    """The variables that confirm a run."""
    return {"gpu_confirm": lab.name}


def played(lab: Lab, name: str, **options: Any) -> PlaybookRun:
    """A run that succeeds; an uninstallation is confirmed."""
    options = {"environ": lab.env, "variables": confirmed(lab) if name == UNINSTALL else None, **options}
    return run_playbook(name, **options).require_success()


def left(actual: PlaybookRun) -> list[str]:
    return [line for result in actual.module_results("accel.gpu.uninstall") for line in result["uninstall"]["kept"]]


@pytest.fixture
def empty(lab: Lab) -> tuple[Foreign, Objects]:
    """An empty cluster with foreign objects, and a snapshot of it."""
    lab.reset()
    foreign = Foreign(lab)
    foreign.create()
    return foreign, snapshot(lab)


@pytest.mark.usual(120)
def test_all_managed_objects_are_removed_and_no_others(lab: Lab, empty: tuple[Foreign, Objects]) -> None:
    foreign, before = empty
    played(lab, SITE)
    used = snapshot(lab)

    sent_requests = run_playbook(UNINSTALL, environ=lab.env)
    assert sent_requests.rc != 0
    assert f"To confirm, add -e gpu_confirm={lab.name}" in sent_requests.failure()
    assert differences(used, snapshot(lab)) == {}
    preview = played(lab, UNINSTALL, arguments=["--check", "--diff"], variables=None)
    warnings = [result.get("warnings") for result in preview.module_results("accel.gpu.uninstall")]
    assert f"A run without --check requires the confirmation -e gpu_confirm={lab.name}" in str(warnings)
    assert preview.changed() == 4
    assert differences(used, snapshot(lab)) == {}

    real = played(lab, UNINSTALL, arguments=["--diff"])
    assert real.changed() == 4
    assert left(real) == left(preview) == []
    removed = [
        sorted(line for result in one.module_results("accel.gpu.uninstall") for line in result["uninstall"]["removed"])
        for one in (preview, real)
    ]
    assert removed[0] == removed[1]

    foreign.require_intact()
    assert differences(before, snapshot(lab)) == {}
    assert written_by(lab, "accel.gpu") == []

    mark = audit.mark(LabLayout.named(lab.name))
    assert played(lab, UNINSTALL).changed() == 0
    assert played(lab, UNINSTALL, arguments=["--check"]).changed() == 0
    sent = [request for request in audit.requests(LabLayout.named(lab.name), mark, "accel.gpu/") if request.mutating]
    assert sent == []


@pytest.mark.usual(120)
@pytest.mark.sampled(1, group="starts of a deletion")
def test_no_way_of_starting_a_deletion_omits_the_confirmation(lab: Lab, tmp_path: Path) -> None:
    """The tasks that delete something, started in the middle of a playbook, by a tag, or in a play of the user."""
    lab.reset()
    played(lab, SITE, **INSTALL)
    used = snapshot(lab)
    refusal = f"To confirm, add -e gpu_confirm={lab.name}"
    role = tmp_path / "role.yml"
    include = {"ansible.builtin.include_role": {"name": "accel.gpu.uninstall"}}
    usual = {"connection": "local", "gather_facts": False}
    interpreter = {"ansible_python_interpreter": "{{ ansible_playbook_python }}"}
    role.write_text(json.dumps([{"hosts": "gpu_clusters", **usual, "vars": interpreter, "tasks": [include]}]))
    for playbook, arguments in (
        (UNINSTALL, ["--start-at-task", "Clean up nodes, ClusterPolicies and ConfigMaps"]),
        (UNINSTALL, ["--tags", "uninstall", "-e", "gpu_confirm=other"]),
        (str(role), []),
        ("accel.gpu.reset", ["--start-at-task", "Configure the nodes of every pool as declared"]),
        ("accel.gpu.reset", ["--tags", "sharing"]),
    ):
        refused = run_playbook(playbook, environ=lab.env, arguments=arguments)
        assert refused.rc != 0, arguments
        assert refusal in refused.failure(), arguments
        assert differences(used, snapshot(lab)) == {}, arguments
    played(lab, "accel.gpu.reset", variables=confirmed(lab))
    # Nothing is left to reset, so no confirmation is needed.
    assert played(lab, "accel.gpu.reset").changed() == 0
    played(lab, UNINSTALL)
    assert played(lab, UNINSTALL, variables=None).changed() == 0


def stepped(lab: Lab, name: str, performed: Sequence[str], *arguments: str) -> tuple[int, str]:
    """The exit status and the output of a run with --step whose user performs only the tasks whose names contain one of these texts."""
    environ = {**lab.env, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_DEPRECATION_WARNINGS": "0"}
    command = ["ansible-playbook", name, "-i", str(REPO / "inventories" / "lab"), "--step", *arguments]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, cwd=REPO, env=environ, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        output = ""
        while character := process.stdout.read(1):
            output += character.decode(errors="replace")
            # Ansible repeats each question as a heading.
            if output.endswith("(c)ontinue: ") and output.count("(c)ontinue: ") % 2:
                question = output.rpartition("Perform task: ")[2]
                process.stdin.write(b"y\n" if any(text in question for text in performed) else b"n\n")
                process.stdin.flush()
    return process.returncode, " ".join(output.split())


@pytest.mark.usual(120)
@pytest.mark.sampled(1, group="starts of a deletion")
def test_steps_omit_no_confirmation(lab: Lab) -> None:
    """The user performs only the tasks that delete something; a confirmed run without the first tasks succeeds."""
    lab.reset()
    played(lab, SITE, **INSTALL)
    used = snapshot(lab)
    before, helm, after = "Clean up nodes", ("Helm",), "Delete residue"
    reset = "Configure the nodes of every pool as declared"
    refusal = f"To confirm, add -e gpu_confirm={lab.name}"
    for playbook, performed, message in (
        (UNINSTALL, [before, *helm, after], refusal),
        (UNINSTALL, [after], "Helm release gpu-operator/gpu-operator still exists: uninstall it first"),
        ("accel.gpu.reset", [reset], refusal),
    ):
        rc, output = stepped(lab, playbook, performed)
        assert rc != 0, output[-3000:]
        assert message in output, output[-3000:]
        assert differences(used, snapshot(lab)) == {}, performed
    # Without the list of the releases, nothing is uninstalled.
    rc, output = stepped(lab, UNINSTALL, helm)
    assert rc != 0
    assert differences(used, snapshot(lab)) == {}

    confirmation = ("-e", json.dumps(confirmed(lab)))
    rc, output = stepped(lab, UNINSTALL, [before, *helm, "include", after, "Report"], *confirmation)
    assert rc == 0, output[-3000:]
    assert played(lab, UNINSTALL).changed() == 0


@pytest.mark.usual(120)
def test_foreign_objects_stay_and_are_reported(lab: Lab, empty: tuple[Foreign, Objects]) -> None:
    """In managed namespaces, of managed kinds, in a managed ConfigMap, and on nodes of pools."""
    foreign, before = empty
    played(lab, SITE, **INSTALL)
    kubectl(lab, "-n", "gpu-operator", "create", "configmap", "dashboards", "--from-literal=kept=yes")
    entry = json.dumps({"data": {"their-own": "version: v1"}})
    kubectl(lab, "-n", "gpu-operator", "patch", "configmap", "accel-gpu-device-plugin", "--type=merge", "-p", entry)
    feature = {
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
        "kind": "NodeFeatureRule",
        "metadata": {"name": "their-rule"},
        "spec": {"rules": []},
    }
    run("bash", "-c", f"kubectl apply -f - <<'E'\n{json.dumps(feature)}\nE", env=lab.env)
    kubectl(lab, "label", "node", "t4-1", "nvidia.com/gpu.deploy.dcgm-exporter=false", "--overwrite")

    actual = played(lab, UNINSTALL)
    reported = "\n".join(left(actual))
    assert "Namespace gpu-operator: it contains ConfigMap accel-gpu-device-plugin, ConfigMap dashboards" in reported
    assert "ConfigMap gpu-operator/accel-gpu-device-plugin: it has foreign entries: their-own" in reported
    assert "nodefeaturerules.nfd.k8s-sigs.io: foreign objects need it: NodeFeatureRule their-rule" in reported
    assert "node t4-1: label nvidia.com/gpu.deploy.dcgm-exporter=false" in reported

    foreign.require_intact()
    after = differences(before, snapshot(lab))
    assert set(after) == {
        "Namespace gpu-operator",
        "ConfigMap gpu-operator/accel-gpu-device-plugin",
        "ConfigMap gpu-operator/dashboards",
        "ConfigMap gpu-operator/kube-root-ca.crt",
        "ServiceAccount gpu-operator/default",
        "CustomResourceDefinition nodefeaturerules.nfd.k8s-sigs.io",
        # Kubernetes keeps one for each group and version with a kind.
        "APIService v1alpha1.nfd.k8s-sigs.io",
        "NodeFeatureRule their-rule",
        "Node t4-1",
    }
    assert after["ConfigMap gpu-operator/accel-gpu-device-plugin"][1]["data"] == {"their-own": "version: v1"}
    namespace = after["Namespace gpu-operator"][1]["metadata"]
    assert set(namespace["labels"]) == {"kubernetes.io/metadata.name"}
    assert "annotations" not in namespace
    assert played(lab, UNINSTALL).changed() == 0


@pytest.mark.usual(60)
def test_site_restores_a_cluster_after_a_killed_uninstallation(lab: Lab, tmp_path: Path) -> None:
    lab.reset()
    played(lab, SITE, **INSTALL)
    requests = changing_requests(lab, UNINSTALL, tmp_path, variables=confirmed(lab))
    policy = next(number for number, request in enumerate(requests, 1) if "/clusterpolicies/" in request.path)
    played(lab, SITE, **INSTALL)
    killed = killed_after(lab, UNINSTALL, policy, tmp_path, variables=confirmed(lab))
    assert killed is not None
    assert "/clusterpolicies/" in killed.path
    played(lab, SITE, **INSTALL)
    assert played(lab, SITE, **INSTALL).changed() == 0


def kill_at(lab: Lab, folder: Path, choose: Callable[[int], list[int]]) -> None:
    """An uninstallation that is killed after each of the chosen requests and repeated reaches the state of an uninterrupted one."""
    lab.reset()
    foreign = Foreign(lab)
    foreign.create()
    before = snapshot(lab)
    played(lab, SITE, **INSTALL)
    total = len(changing_requests(lab, UNINSTALL, folder, variables=confirmed(lab)))
    assert total > 20
    for point in choose(total):
        played(lab, SITE, **INSTALL)
        killed_after(lab, UNINSTALL, point, folder, variables=confirmed(lab))
        played(lab, UNINSTALL)
        assert differences(before, snapshot(lab)) == {}
        assert written_by(lab, "accel.gpu") == []
        assert played(lab, UNINSTALL).changed() == 0
    foreign.require_intact()


@pytest.mark.usual(150)
def test_uninstall_is_killed_anywhere(lab: Lab, tmp_path: Path, rng: random.Random) -> None:
    kill_at(lab, tmp_path, lambda total: [rng.randint(1, total)])


@pytest.mark.soak
@pytest.mark.usual(3600)
@pytest.mark.timeout(3 * 3600)
def test_uninstall_is_killed_after_each_request(lab: Lab, tmp_path: Path) -> None:
    kill_at(lab, tmp_path, lambda total: list(range(1, total + 1)))


@pytest.mark.usual(75)
def test_without_the_right_to_list_a_namespace_it_stays(lab: Lab) -> None:
    lab.reset()
    played(lab, SITE, **INSTALL)
    environ = lab.env_as("uninstall")
    reported = left(played(lab, UNINSTALL, environ=environ))
    assert reported
    assert all("you do not have permission to list all of its objects" in line for line in reported)
    assert played(lab, UNINSTALL, environ=environ).changed() == 0
