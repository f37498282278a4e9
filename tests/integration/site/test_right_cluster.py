# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One play reaches one cluster: modules and Helm use the same credentials and the same user, and check the cluster's recorded name."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import audit
from lab.layout import Lab as LabLayout
from tests.helpers.other_cluster import OtherCluster, other_cluster
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.labs import Lab, own_lab
from tests.programs import REPO, run

SITE = "accel.gpu.site"
VARIABLES: dict[str, Any] = yaml.safe_load((REPO / "inventories/lab/group_vars/gpu_clusters.yml").read_text())
# The user of every request of the collection and of Helm in the audit log.
USER = "accel-gpu:deployer"
ONLY_NFD = ["--tags", "pools,nfd"]

pytestmark = pytest.mark.timeout(1200)


def inventory(folder: Path, hosts: dict[str, dict[str, Any]]) -> Path:
    """A host for each name, whose gpu_cluster is the lab's with these keys added."""
    folder.mkdir(exist_ok=True)
    clusters = {name: {**VARIABLES["gpu_cluster"], "name": name, **keys} for name, keys in hosts.items()}
    (folder / "hosts.yml").write_text(
        yaml.safe_dump({"gpu_clusters": {"hosts": {name: {"gpu_cluster": item} for name, item in clusters.items()}}})
    )
    shared = {"gpu_pools": VARIABLES["gpu_pools"], "gpu_defaults": VARIABLES["gpu_defaults"]}
    (folder / "group_vars").mkdir(exist_ok=True)
    (folder / "group_vars" / "gpu_clusters.yml").write_text(yaml.safe_dump(shared))
    return folder


def credential(lab: Lab, folder: Path) -> dict[str, str]:
    """The environment variables of AWX for a bearer token credential of the lab's cluster: an administrator who can impersonate."""
    run("kubectl", "-n", "default", "create", "serviceaccount", "awx", env=lab.env)
    words = ["clusterrolebinding", "awx", "--clusterrole=cluster-admin", "--serviceaccount=default:awx"]
    run("kubectl", "create", *words, env=lab.env)
    words = ["clusterrolebinding", "deployer", "--clusterrole=cluster-admin", f"--user={USER}"]
    run("kubectl", "create", *words, env=lab.env)
    token = run("kubectl", "-n", "default", "create", "token", "awx", env=lab.env).strip()
    cluster = yaml.safe_load(lab.kubeconfig.read_text())["clusters"][0]["cluster"]
    authority = folder / "ca.crt"
    if "certificate-authority-data" in cluster:
        authority.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
    else:
        authority.write_bytes((lab.kubeconfig.parent / cluster["certificate-authority"]).read_bytes())
    return {
        "K8S_AUTH_HOST": cluster["server"],
        "K8S_AUTH_API_KEY": token,
        "K8S_AUTH_VERIFY_SSL": "True",
        "K8S_AUTH_SSL_CA_CERT": str(authority),
    }


@dataclass
class Scenario:
    """The lab's cluster with the recorded name prod, and another one, to which the default kubeconfig leads."""

    lab: Lab
    other: OtherCluster
    folder: Path
    credential: dict[str, str]
    installed: PlaybookRun

    def play(self, hosts: dict[str, dict[str, Any]], env: dict[str, str], *arguments: str) -> PlaybookRun:
        """Run the playbook site, only for NFD, with these hosts and variables."""
        folder = inventory(self.folder / "inventory", hosts)
        return run_playbook(SITE, environ=env, inventory=folder, arguments=[*ONLY_NFD, *arguments])

    def with_kubeconfig(self) -> dict[str, str]:
        """The environment of a user whose default kubeconfig is the lab's."""
        return self.lab.env

    def recorded(self) -> str:
        """The recorded name of the cluster."""
        lease = json.loads(
            run("kubectl", "-n", "kube-system", "get", "lease", "accel-gpu", "-o", "json", env=self.lab.env)
        )
        return str(lease["metadata"]["annotations"]["accel.gpu/cluster-name"])

    def releases(self) -> int:
        """The number of revisions that Helm has written."""
        return len(run("kubectl", "get", "secrets", "-A", "-l", "owner=helm", "-o", "name", env=self.lab.env).split())


def others(lab: Lab, since: int, agent: str) -> list[audit.AuditedRequest]:
    """The requests of a program since a mark that did not impersonate USER."""
    requests = list(audit.requests(LabLayout.named(lab.name), since, agent))
    assert requests, f"no request of {agent}"
    return [request for request in requests if request.impersonated != USER]


@pytest.fixture(scope="module")
def scenario(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenario]:
    """NFD is installed with the environment's credential, although the default kubeconfig leads to another cluster."""
    lab.reset()
    folder = tmp_path_factory.mktemp("right-cluster")
    actual = credential(lab, folder)
    with other_cluster("prod") as other:
        since = audit.mark(LabLayout.named(lab.name))
        environ = {**lab.env, "KUBECONFIG": str(other.kubeconfig(folder / "other")), **actual}
        hosts = {"prod": {"impersonate_user": USER, "impersonate_groups": ["deployers"]}}
        played = run_playbook(
            SITE, environ=environ, inventory=inventory(folder / "first", hosts), arguments=[*ONLY_NFD, "--diff"]
        ).require_success()
        for agent in ("accel.gpu/", "Helm/"):
            assert others(lab, since, agent) == []
        assert other.requests == []
        yield Scenario(lab, other, folder, actual, played)
        assert other.requests == []


@pytest.mark.usual(30)
def test_the_first_change_announces_the_name(scenario: Scenario) -> None:
    assert scenario.installed.changed("prod") > 0
    assert (scenario.recorded(), scenario.releases()) == ("prod", 1)
    diffs = [diff for _name, result in scenario.installed.results("prod") for diff in _diffs(result)]
    assert [diff["after"] for diff in diffs if "cluster_name" in diff["after"]] == [{"cluster_name": "prod"}]


def _diffs(result: Any) -> list[dict[str, Any]]:
    actual = result.get("diff") or []
    return [diff for diff in (actual if isinstance(actual, list) else [actual]) if isinstance(diff.get("after"), dict)]


def test_a_credential_beside_a_kubeconfig_is_refused(scenario: Scenario) -> None:
    """The credential of one cluster, and two hosts with a kubeconfig each."""
    own = str(scenario.lab.kubeconfig)
    hosts = {
        "prod": {"kubeconfig": own, "kube_name": _context(scenario.lab)},
        "test": {"kubeconfig": str(scenario.other.kubeconfig(scenario.folder / "test")), "kube_name": "default"},
    }
    played = scenario.play(hosts, {**scenario.lab.env, **scenario.credential})
    assert played.rc != 0
    for host in hosts:
        assert "K8S_AUTH_API_KEY" in played.failure(host)
        assert f"gpu_cluster.kubeconfig (kubeconfig {hosts[host]['kubeconfig']}" in played.failure(host)
        assert played.changed(host) == 0
    assert "K8S_AUTH_HOST" in played.failure("test")


@pytest.mark.usual(10)
def test_the_second_host_of_one_cluster_is_refused(scenario: Scenario) -> None:
    name = _context(scenario.lab)
    played = scenario.play({"prod": {"kube_name": name}, "test": {"kube_name": name}}, scenario.with_kubeconfig())
    assert (played.stats["prod"]["failures"], played.changed("prod")) == (0, 0)
    assert "gpu_cluster.name is 'test'" in played.failure("test")
    assert "is recorded as 'prod'" in played.failure("test")
    assert (scenario.recorded(), scenario.releases()) == ("prod", 1)


@pytest.mark.sampled(1, group="whole runs")
def test_settings_that_lead_helm_to_another_cluster_are_refused_before_any_change(scenario: Scenario) -> None:
    variable, value = "HELM_KUBEAPISERVER", scenario.other.url
    hosts = {
        "prod": {"kube_name": _context(scenario.lab), "nfd": {**VARIABLES["gpu_cluster"]["nfd"], "values": {"x": 1}}}
    }
    played = scenario.play(hosts, {**scenario.with_kubeconfig(), variable: value})
    assert f"{variable} ({value})" in played.failure("prod")
    assert (played.changed("prod"), scenario.releases()) == (0, 1)


@pytest.mark.soak
@pytest.mark.usual(30)
def test_a_rename_needs_one_run(scenario: Scenario) -> None:
    name = _context(scenario.lab)
    hosts, renaming = {"production": {"kube_name": name}}, ("-e", "gpu_renamed_from=prod")
    shown = run_playbook(
        "accel.gpu.plan",
        environ=scenario.lab.env,
        inventory=inventory(scenario.folder / "inventory", hosts),
        arguments=renaming,
    ).require_success()
    assert shown.shown("the next run that changes the cluster renames it from prod to production")
    assert scenario.recorded() == "prod"
    renamed = scenario.play(hosts, scenario.with_kubeconfig(), *renaming).require_success()
    assert (renamed.changed("production"), scenario.recorded()) == (1, "production")
    for arguments in (renaming, ()):
        again = scenario.play(hosts, scenario.with_kubeconfig(), *arguments).require_success()
        assert again.changed("production") == 0
    assert "is recorded as 'production'" in scenario.play(
        {"prod": {"kube_name": name}}, scenario.with_kubeconfig()
    ).failure("prod")


def leading_elsewhere(other: OtherCluster, kubeconfig: Path) -> dict[str, Any]:
    """Every connection option of the installed kubernetes.core.helm, with all aliases."""
    values: dict[str, Any] = {"context": "bb", "kubeconfig": str(kubeconfig), "host": other.url, "api_key": "planted"}
    values |= {"validate_certs": False, "ca_cert": "/nowhere/ca.crt", "binary_path": "/bin/false"}
    spec = import_module("ansible_collections.kubernetes.core.plugins.module_utils.helm_args_common").HELM_AUTH_ARG_SPEC
    return {name: values[option] for option in spec for name in (option, *spec[option].get("aliases", []))}


def play_of(role: str, defaults: dict[str, Any], path: Path) -> str:
    """A playbook of one role, with defaults for kubernetes.core.helm."""
    play = {
        "hosts": "gpu_clusters",
        "connection": "local",
        "gather_facts": False,
        "vars": {"ansible_python_interpreter": "{{ ansible_playbook_python }}"},
        "module_defaults": {
            "group/accel.gpu.kube": {"gpu_cluster": "{{ gpu_cluster }}"},
            "group/kubernetes.core.helm": defaults,
            "kubernetes.core.helm": defaults,
        },
        "roles": [f"accel.gpu.{role}"],
    }
    path.write_text(yaml.safe_dump([play]))
    return str(path)


@pytest.mark.usual(30)
@pytest.mark.sampled(1, group="whole runs")
def test_the_environment_of_the_play_is_that_of_helm(scenario: Scenario, tmp_path: Path) -> None:
    """Regression: helm had the address and the token of the environment in which ansible-playbook was started."""
    name, releases = scenario.recorded(), scenario.releases()
    values = {"worker": {"annotations": {"example.com/revision": "environment"}}}
    declared = {"nfd": {**VARIABLES["gpu_cluster"]["nfd"], "values": values}, "impersonate_user": USER}
    playbook = Path(play_of("nfd", {}, tmp_path / "play.yml"))
    (play,) = yaml.safe_load(playbook.read_text())
    playbook.write_text(yaml.safe_dump([{**play, "environment": scenario.credential}]))
    elsewhere = {"K8S_AUTH_HOST": scenario.other.url, "K8S_AUTH_API_KEY": "token-of-another-cluster"}
    run_playbook(
        str(playbook),
        environ={**scenario.lab.env, "KUBECONFIG": "", **elsewhere},
        inventory=inventory(tmp_path / "inventory", {name: declared}),
    ).require_success()
    assert scenario.releases() == releases + 1
    assert scenario.other.requests == []


@pytest.mark.usual(50)
@pytest.mark.sampled(1, group="whole runs")
def test_defaults_of_the_play_do_not_lead_helm_to_another_cluster(scenario: Scenario, tmp_path: Path) -> None:
    """The last test of this cluster, since it uninstalls."""
    bb = scenario.other.kubeconfig(tmp_path / "bb", "bb")
    document, other = (yaml.safe_load(path.read_text()) for path in (scenario.lab.kubeconfig, bb))
    for kind in ("contexts", "clusters", "users"):
        document[kind] += other[kind]
    both = tmp_path / "both"
    both.write_text(yaml.safe_dump(document))
    # The environment also determines where Helm stores its records.
    environ = {**scenario.lab.env, "KUBECONFIG": str(both), "HELM_DRIVER": "configmap"}
    name, defaults = scenario.recorded(), leading_elsewhere(scenario.other, bb)
    steps: list[tuple[str, dict[str, Any], int]] = [
        ("nfd", {"context": "bb"}, 2),
        ("nfd", defaults, 3),
        ("uninstall", defaults, 0),
    ]
    for role, options, releases in steps:
        values = {"worker": {"annotations": {"example.com/revision": str(releases)}}}
        declared = {"kube_name": _context(scenario.lab), "nfd": {**VARIABLES["gpu_cluster"]["nfd"], "values": values}}
        playbook = play_of(role, options, tmp_path / "play.yml")
        run_playbook(
            playbook,
            environ=environ,
            inventory=inventory(tmp_path / "inventory", {name: declared}),
            variables={"gpu_confirm": name},
        ).require_success()
        assert scenario.releases() == releases, role
        assert not run("kubectl", "get", "configmaps", "-A", "-l", "owner=helm", "-o", "name", env=scenario.lab.env)
    assert scenario.other.requests == []


def _context(lab: Lab) -> str:
    return str(yaml.safe_load(lab.kubeconfig.read_text())["current-context"])


@pytest.mark.soak
@pytest.mark.usual(120)
def test_two_real_clusters_and_the_credential_of_one(lab: Lab, tmp_path: Path) -> None:
    """Regression: both hosts used the cluster of the credential, since all names in the kubeconfigs are `default`."""
    lab.reset()
    with own_lab("second") as second:
        hosts: dict[str, dict[str, Any]] = {}
        for name, each in (("prod", lab), ("test", second)):
            document = yaml.safe_load(each.kubeconfig.read_text())
            for entry in (*document["contexts"], *document["clusters"]):
                entry["name"] = "default"
            document["contexts"][0]["context"]["cluster"] = document["current-context"] = "default"
            path = each.kubeconfig.parent / "default-names"
            path.write_text(yaml.safe_dump(document))
            hosts[name] = {"kubeconfig": str(path), "kube_name": "default"}
        folder = inventory(tmp_path / "inventory", hosts)
        environ = {**lab.env, **credential(second, tmp_path)}
        played = run_playbook(SITE, environ=environ, inventory=folder, arguments=ONLY_NFD)
        assert {host: played.changed(host) for host in hosts} == {"prod": 0, "test": 0}
        assert "K8S_AUTH_HOST" in played.failure("prod")
        for each in (lab, second):
            assert not run("kubectl", "get", "secrets", "-A", "-l", "owner=helm", "-o", "name", env=each.env).split()
        run_playbook(SITE, environ=lab.env, inventory=folder, arguments=ONLY_NFD).require_success()
        hosts["prod"], hosts["test"] = hosts["test"], hosts["prod"]
        swapped = run_playbook(
            SITE, environ=lab.env, inventory=inventory(tmp_path / "swapped", hosts), arguments=ONLY_NFD
        )
        assert "gpu_cluster.name is 'prod'" in swapped.failure("prod")
        assert "is recorded as 'test'" in swapped.failure("prod")
        assert "is recorded as 'prod'" in swapped.failure("test")
