# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory plugin with Ansible's own inventory, over simulated clouds."""

from __future__ import annotations

import dataclasses
import importlib
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible import constants
from ansible.errors import AnsibleParserError
from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from ansible_collections.accel.gpu.plugins.inventory import clusters
from ansible_collections.accel.gpu.plugins.module_utils.clouds import kubeconfig_file
from ansible_collections.accel.gpu.plugins.module_utils.clouds.kubeconfig_file import (
    DiscoveredCluster,
    DiscoveredNodeGroup,
    KubeconfigLifetime,
)
from ansible_collections.accel.gpu.plugins.module_utils.core.errors import ConnectionProblem, ServiceError
from tests.helpers import certificates

SERVER = "https://192.0.2.1:6443"
T4 = DiscoveredNodeGroup("gpu", "CREATE_COMPLETE", 2, "g2", 1, ("Tesla-T4",))


class Cloud:
    """One cloud in one region; `requests` records its calls."""

    def __init__(self, cloud: str, region: str, *names: str, provider: str = "magnum", days: float = 365) -> None:
        self.provider, self.cloud, self.region, self._names, self._days = provider, cloud, region, names, days
        self.requests: list[str] = []
        self.error: Exception | None = None
        self.ready = True
        self.status_in_deletion = "DELETE_IN_PROGRESS"

    def discover(self, expected: Callable[[str, str], bool]) -> list[DiscoveredCluster]:
        self.requests.append("discover")
        if self.error is not None:
            raise self.error
        clusters = [self.found(name) for name in self._names]
        return [cluster for cluster in clusters if expected(cluster.name, cluster.status)]

    def found(self, name: str) -> DiscoveredCluster:
        status = "CREATE_COMPLETE" if self.ready else "CREATE_IN_PROGRESS"
        return DiscoveredCluster(
            self.provider,
            self.cloud,
            self.region,
            f"id-{self.cloud}-{self.region}-{name}",
            name,
            self.status_in_deletion if name.startswith("going") else status,
            "v1.30.1",
            SERVER if self.ready else "",
            self.ready,
            {"cloud": self.cloud, "cluster": name},
            (T4,) if name.startswith("gpu") else (),
        )

    def kubeconfig(self, cluster: DiscoveredCluster, dummy: KubeconfigLifetime) -> str:
        self.requests.append(f"kubeconfig {cluster.name}")
        if self.error is not None:
            raise self.error
        return certificates.kubeconfig(cluster.name, cluster.server, self._days)

    def explain(self, error: Exception) -> str:
        return str(error)


@pytest.fixture
def parse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., InventoryData]:
    """Parses an inventory file over some clouds; the plugin's warnings are in `parse.warned`."""
    options = yaml.safe_load(clusters.DOCUMENTATION)["options"]
    for fragment in ("constructed", "inventory_cache"):
        module = importlib.import_module(f"ansible.plugins.doc_fragments.{fragment}")
        options.update(yaml.safe_load(module.ModuleDocFragment.DOCUMENTATION)["options"])
    constants.config.initialize_plugin_configuration_definitions("inventory", "accel.gpu.clusters", options)

    def parsed(sources: list[Cloud], *, fresh: bool = False, **written: Any) -> InventoryData:
        monkeypatch.setattr(clusters, "sources_of", lambda entries, environ: sources)
        document = {"plugin": "accel.gpu.clusters", "clouds": [{"magnum": {"cloud": "any"}}], **written}
        path = tmp_path / "fleet.clusters.yml"
        path.write_text(yaml.safe_dump(document))
        plugin = clusters.InventoryModule()
        plugin._load_name = "accel.gpu.clusters"
        plugin.display = Display(warned)
        assert plugin.verify_file(str(path))
        actual = InventoryData()
        plugin.parse(actual, DataLoader(), str(path), cache=not fresh)
        # As Ansible does after every inventory.
        plugin.update_cache_if_changed()
        return actual

    warned: list[str] = []
    parsed.warned = warned  # type: ignore[attr-defined]
    return parsed


class Display:
    """Keeps the warnings."""

    def __init__(self, warned: list[str]) -> None:
        self._warned = warned

    def warning(self, text: str, *dummy: Any, **more: Any) -> None:
        self._warned.append(text)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *dummy, **more: None


def test_clusters_become_hosts_in_groups(parse: Any, tmp_path: Path) -> None:
    actual = parse(
        [Cloud("cern", "RegionOne", "gpu-a", "plain"), Cloud("vks", "HCM-3", "other", provider="vks")],
        keyed_groups=[{"key": "gpu_discovered.version", "prefix": "version"}],
        groups={"has_gpus": "gpu_discovered.gpus > 0", "named": "short == 'gpu'"},
        compose={"short": "gpu_cluster.name[:3]"},
    )
    groups = {name: sorted(host.name for host in group.get_hosts()) for name, group in actual.groups.items()}
    assert {name: hosts for name, hosts in groups.items() if hosts and name != "all"} == {
        "gpu_clusters": ["gpu-a", "other", "plain"],
        "magnum": ["gpu-a", "plain"],
        "vks": ["other"],
        "cloud_cern": ["gpu-a", "plain"],
        "cloud_vks": ["other"],
        "region_RegionOne": ["gpu-a", "plain"],
        "region_HCM_3": ["other"],
        "model_Tesla_T4": ["gpu-a"],
        "has_gpus": ["gpu-a"],
        "named": ["gpu-a"],
        "version_v1_30_1": ["gpu-a", "other", "plain"],
    }
    host = actual.get_host("gpu-a").get_vars()
    path = tmp_path / "kubeconfigs" / "gpu-a.kubeconfig"
    assert host["gpu_cluster"] == {
        "name": "gpu-a",
        "kubeconfig": str(path),
        "cloud": {"magnum": {"cloud": "cern", "cluster": "gpu-a"}},
    }
    assert host["gpu_discovered"]["node_groups"][0]["model"] == "Tesla-T4"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_missing_foreign_or_expiring_kubeconfig_is_fetched(parse: Any, tmp_path: Path) -> None:
    cloud = Cloud("cern", "", "prod", days=2)
    parse([cloud])
    assert cloud.requests == ["discover", "kubeconfig prod"]
    # It expires before the three days are over.
    parse([cloud])
    assert cloud.requests.count("kubeconfig prod") == 2
    cloud.requests.clear()
    parse([cloud], renew_before=1)
    assert cloud.requests == ["discover"]

    path = tmp_path / "kubeconfigs" / "prod.kubeconfig"
    for text in (certificates.kubeconfig("prod", "https://192.0.2.9", 300), "not a kubeconfig", "{}"):
        path.write_text(text)
        cloud.requests.clear()
        parse([cloud], renew_before=1)
        assert cloud.requests == ["discover", "kubeconfig prod"]
    path.chmod(0o644)
    cloud.requests.clear()
    parse([cloud], renew_before=1)
    assert cloud.requests == ["discover"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

    path.unlink()
    parse([cloud], write_kubeconfigs=False)
    assert not path.exists()


def test_the_name_in_the_kubeconfig_is_a_variable_where_it_differs(parse: Any, tmp_path: Path) -> None:
    (tmp_path / "kubeconfigs").mkdir()
    text = certificates.kubeconfig("kubernetes-admin@prod", SERVER, 300)
    (tmp_path / "kubeconfigs" / "prod.kubeconfig").write_text(text)
    actual = parse([Cloud("vks", "HCM-3", "prod", provider="vks")])
    assert actual.get_host("prod").get_vars()["gpu_cluster"]["kube_name"] == "kubernetes-admin@prod"


def test_the_kubeconfig_of_another_cluster_is_not_used(parse: Any, tmp_path: Path) -> None:
    (tmp_path / "kubeconfigs").mkdir()
    text = certificates.kubeconfig("prod", "https://elsewhere.example:6443", 300)
    (tmp_path / "kubeconfigs" / "prod.kubeconfig").write_text(text)
    cloud = Cloud("cern", "RegionOne", "prod", "other")
    with pytest.raises(AnsibleParserError, match=r"cluster prod: .* has the server https://elsewhere\.example:6443"):
        parse([cloud], write_kubeconfigs=False)
    assert sorted(parse([cloud], write_kubeconfigs=False, fail_on_errors=False).hosts) == ["other"]
    assert "has the server https://elsewhere.example:6443" in parse.warned[0]
    assert sorted(parse([cloud]).hosts) == ["other", "prod"]


def test_a_cluster_in_creation_is_a_host_without_a_kubeconfig(parse: Any, tmp_path: Path) -> None:
    cloud = Cloud("cern", "RegionOne", "prod")
    cloud.ready = False
    actual = parse([cloud])
    assert actual.get_host("prod") is not None
    assert cloud.requests == ["discover"]
    assert parse.warned == ["prod (cloud cern, region RegionOne) is CREATE_IN_PROGRESS: it has no kubeconfig yet"]


def test_a_cluster_that_is_being_deleted_is_no_host(parse: Any) -> None:
    other = Cloud("vng", "", "going-b", "b", provider="vks")
    other.status_in_deletion = "DELETING"
    assert sorted(parse([Cloud("cern", "", "going-a", "a"), other]).hosts) == ["a", "b"]


def test_the_cache_saves_all_requests_but_those_for_a_lost_kubeconfig(parse: Any, tmp_path: Path) -> None:
    cloud = Cloud("cern", "", "gpu-a", "prod")
    options = {"cache": True, "cache_plugin": "jsonfile", "cache_connection": str(tmp_path / "cache")}
    first = parse([cloud], **options)
    cloud.requests.clear()
    again = parse([cloud], **options)
    assert cloud.requests == []
    assert again.get_host("gpu-a").get_vars() == first.get_host("gpu-a").get_vars()
    kept = "".join(path.read_text() for path in (tmp_path / "cache").iterdir())
    assert "Tesla-T4" in kept
    assert "client-" not in kept
    (tmp_path / "kubeconfigs" / "prod.kubeconfig").unlink()
    parse([cloud], **options)
    assert cloud.requests == ["kubeconfig prod"]
    cloud.requests.clear()
    # As `ansible-inventory --flush-cache` and meta: refresh_inventory ask.
    parse([cloud], fresh=True, **options)
    assert cloud.requests == ["discover"]


def test_changed_clouds_or_names_have_an_entry_of_their_own_in_the_cache(parse: Any, tmp_path: Path) -> None:
    cloud, other = Cloud("cern", "", "prod", "test"), Cloud("other", "", "prod")
    options = {"cache": True, "cache_plugin": "jsonfile", "cache_connection": str(tmp_path / "cache")}
    assert sorted(parse([cloud], names=["prod"], **options).hosts) == ["prod"]
    assert sorted(parse([cloud], names=["prod", "test"], **options).hosts) == ["prod", "test"]
    assert sorted(parse([cloud], names=["prod"], **options).hosts) == ["prod"]
    assert cloud.requests.count("discover") == 2
    written = [{"magnum": {"cloud": "other"}}]
    assert sorted(parse([other], names=["prod", "test"], clouds=written, **options).hosts) == ["prod"]


@pytest.mark.parametrize("error", [ConnectionProblem("no such cloud"), ServiceError("overloaded", status=503)])
def test_a_failing_cloud_is_reported_or_left_out(parse: Any, error: Exception) -> None:
    bad, good = Cloud("cern", "RegionOne", "a"), Cloud("other", "", "b")
    bad.error = error
    with pytest.raises(AnsibleParserError, match=rf"cloud cern, region RegionOne: {error}"):
        parse([bad, good])
    actual = parse([bad, good], fail_on_errors=False)
    assert sorted(actual.hosts) == ["b"]
    assert parse.warned == [f"cloud cern, region RegionOne: {error} (omitted)"]


def test_a_bug_is_not_reported_as_a_failure_of_the_cloud(parse: Any) -> None:
    bad = Cloud("cern", "", "a")
    bad.error = KeyError("uuid")
    with pytest.raises(KeyError):
        parse([bad], fail_on_errors=False)


def test_names_and_mistakes_in_the_file(parse: Any) -> None:
    cloud = Cloud("cern", "", "prod-a", "prod-b", "test")
    assert sorted(parse([cloud], names=["prod-*", "none"]).hosts) == ["prod-a", "prod-b"]
    with pytest.raises(AnsibleParserError, match=r"clouds\[0\]\.vks\.regions: .*region"):
        parse([cloud], clouds=[{"vks": {"regions": []}}])


def test_only_files_of_the_plugins_name_are_accepted() -> None:
    plugin = clusters.InventoryModule()
    assert not plugin.verify_file(__file__)


def test_the_written_file_is_a_kubeconfig(parse: Any, tmp_path: Path) -> None:
    parse([Cloud("cern", "", "prod")])
    config = kubeconfig_file.read(str(tmp_path / "kubeconfigs" / "prod.kubeconfig"))
    assert config is not None
    held = kubeconfig_file.existing(config)
    assert held is not None
    assert (held.context, held.server) == ("prod", SERVER)


@pytest.mark.parametrize("cached", [False, True])
def test_each_account_of_a_region_issues_the_kubeconfigs_of_its_clusters(
    parse: Any, tmp_path: Path, *, cached: bool
) -> None:
    first, second = (Cloud("vks", "HCM-3", name, provider="vks") for name in ("one", "two"))
    cache = {"cache": True, "cache_plugin": "jsonfile", "cache_connection": str(tmp_path / "cache")} if cached else {}
    if cached:
        parse([first, second], write_kubeconfigs=False, **cache)
    parse([first, second], write_kubeconfigs=True, **cache)
    assert first.requests == ["discover", "kubeconfig one"]
    assert second.requests == ["discover", "kubeconfig two"]


def test_a_cluster_of_two_entries_is_one_host(parse: Any) -> None:
    actual = parse([Cloud("cern", "RegionOne", "prod"), Cloud("cern", "RegionOne", "prod", "test")])
    assert sorted(actual.hosts) == ["prod", "test"]


def test_text_of_a_cloud_is_no_template(parse: Any, tmp_path: Path) -> None:
    hostile = "{{ lookup('pipe', 'id') }}"
    cloud = Cloud("cern", "", "plain", hostile, "../../outside", "esc\x1b[2J")
    cloud.found = lambda name, original=cloud.found: dataclasses.replace(original(name), version=hostile)  # type: ignore[method-assign, misc]
    actual = parse([cloud], compose={"copied": "gpu_discovered.version"})
    assert set(actual.hosts) == {"plain"}
    variables = actual.get_host("plain").get_vars()
    for text in (variables["gpu_discovered"]["version"], variables["copied"]):
        assert text == hostile
        assert Templar(DataLoader(), variables={"x": text}).template(text) == hostile
    assert len(parse.warned) == 3
    assert not any("\x1b" in text for text in parse.warned)
    assert not list(tmp_path.parent.glob("outside*"))
