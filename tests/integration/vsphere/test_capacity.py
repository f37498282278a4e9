# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What module vgpu_template refuses because machines could not run on the hosts: before anything is written, with what would work instead.

Each of the two GPU hosts of cluster-a that are not in the mode Multi-Instance GPU has two A100 with 40 GB.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.vsphere import inventory
from tests.helpers.vcenter import start_vcenter
from tests.helpers.vsphere_modules import Site

Object = dict[str, Any]
HOSTS = "esx-a1.example.com: 4; esx-a2.example.com: 4; esx-a3.example.com: 0, "


@pytest.fixture
def changed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A vCenter whose hosts in cluster-a the test changes: a function of the host and its number."""
    objects = inventory.inventory()
    for number, host in enumerate(objects["datacenters"][0]["clusters"][0]["hosts"]):
        request.param(host, number)
    with start_vcenter(tmp_path / "vcenter", objects=objects) as center:
        yield Site(center, tmp_path)


def refused(site: Site, *entries: Object, **options: Any) -> str:
    """The message of a run, which has written nothing; check mode refuses the same."""
    result = site.templates(*entries, **options)
    assert result["failed"], result
    assert result["code"] == "invalid", result
    assert site.center.methods() == []
    assert site.templates(*entries, check=True, **options)["msg"] == result["msg"]
    return str(result["msg"])


REFUSALS: dict[str, tuple[list[Object], Object, str]] = {
    "unknown profile": (
        [{"profile": "grid_a100-11c"}],
        {},
        'profile: no host of cluster-a offers "grid_a100-11c"; did you mean grid_a100-1',
    ),
    "series without CUDA": (
        [{"profile": "grid_a100-10b"}],
        {},
        "profile: grid_a100-10b is of the series B (virtual PC), on which CUDA does not run, so no container could use it; choose a profile of the series C or "
        "Q, such as grid_a100-10c or grid_a100-10q",
    ),
    "wrong license": (
        [{"cluster": "cluster-b", "datastore": "vsan-b", "profile": "nvidia_l40s-24q"}],
        {"feature_type": 4},
        "gpu_licensing_feature_type (option feature_type of the module): FeatureType=4 requests NVIDIA Virtual Compute Server, but vGPU types of the series Q "
        "require 2 (NVIDIA RTX Virtual Workstation) or 1 (NVIDIA vGPU), such as nvidia_l40s-24q. Set 1, or remove it",
    ),
    "too many": (
        [{"machines": 9}],
        {},
        "nodes.count (option machines of the module): the hosts of cluster-a have room for 8 machines with 2 x grid_a100-10c, not for 9 "
        f"({HOSTS}does not offer grid_a100-10c). Set at most 8, use a smaller profile, or add GPUs",
    ),
    "too many for the autoscaler": (
        [{"machines": 1, "max_machines": 9}],
        {},
        "autoscale.max (option max_machines of the module): the hosts of cluster-a have room for 8 machines",
    ),
    "too many vGPUs of a machine": (
        [{"count": 9}],
        {},
        "no host of cluster-a can run a machine with 9 x grid_a100-10c",
    ),
    "mixed sizes": (
        [
            {"name": "a", "count": 1, "machines": 2},
            {"name": "b", "profile": "grid_a100-20c", "count": 1, "machines": 7},
        ],
        {},
        "A GPU in the mode Same Size runs vGPUs of one size, and these have several: grid_a100-10c (10 GiB) and grid_a100-20c (20 GiB). Use profiles of one "
        "size, these numbers, or set the vGPU mode of the GPUs to Mixed Size",
    ),
    "manager too old": (
        [{"driver_version": "595.71.05"}],
        {},
        "driver.version (option driver_version of the module): Guest driver 595.71.05 belongs to vGPU 20, and is newer than vGPU manager 580.95.02 of vGPU 19: "
        "the driver would not load. Use a driver of vGPU 19, such as 580.178.04, or upgrade the manager (esx-a1.example.com, esx-a2.example.com)",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_run_that_could_not_start_machines_is_refused(site: Site, case: str) -> None:
    entries, options, message = REFUSALS[case]
    assert message in refused(site, *entries, **options)


def without_manager(host: Object, number: int) -> None:
    host["vibs"] = []


def older_manager(host: Object, number: int) -> None:
    host["vibs"] = [{**host["vibs"][0], "version": "550.163.02-1OEM"}] if number == 0 else host["vibs"]


def mixed(host: Object, number: int) -> None:
    for card in host["gpus"]:
        card["mode"] = "mixedSize"


@pytest.mark.parametrize("changed", [without_manager], indirect=True)
def test_hosts_without_a_vgpu_manager(changed: Site) -> None:
    message = refused(changed, {})
    assert (
        'profile: no host of cluster-a offers "grid_a100-10c"; known: none. NVIDIA\'s vGPU manager is not installed on esx-a1.example.com, esx-a2.example.com, '
        "esx-a3.example.com; install its VIB, and restart the host"
    ) in message


@pytest.mark.parametrize("changed", [older_manager], indirect=True)
def test_one_host_with_an_older_manager(changed: Site) -> None:
    """A machine may be started there; while the host is in maintenance mode, none is."""
    message = refused(changed, {"driver_version": "580.95.05"})
    assert "is newer than vGPU manager 550.163.02 of vGPU 17" in message
    assert message.rstrip(".").endswith("(esx-a1.example.com)")
    changed.center.govc("host.maintenance.enter", "/DC1/host/cluster-a/esx-a1.example.com")
    changed.center.forget_calls()
    assert changed.templates({"driver_version": "580.95.05"})["changed"]


@pytest.mark.parametrize("changed", [mixed], indirect=True)
def test_mixed_sizes_fit_on_gpus_in_the_other_mode(changed: Site) -> None:
    entries, *_ = REFUSALS["mixed sizes"]
    assert changed.templates(*entries)["changed"]


def test_a_run_needs_few_requests_and_no_privilege_for_versions(site: Site) -> None:
    """Without Host.Config.Image, which the limited user lacks, the versions are not known, and nothing is refused."""
    limited = site.center.limited()
    site.connection |= {"username": limited.username, "password": limited.password}
    assert site.templates({"machines": 8, "driver_version": "595.71.05"})["changed"]


def start(site: Site, template: str, *names: str, on: str = "esx-a1.example.com") -> None:
    """Start clones of a template, as the machine controller does."""
    for name in names:
        words = ("-pool", "/DC1/host/cluster-a/Resources", "-folder", "/DC1/vm/openshift", "-ds", "templates")
        site.center.govc("vm.clone", "-on=true", "-host", f"/DC1/host/cluster-a/{on}", *words, "-vm", template, name)


def test_running_machines_take_their_room(site: Site) -> None:
    built = site.template(machines=8)
    path = built["templates"]["vdi"]["path"]
    start(site, path, "vdi-1", "vdi-2", "vdi-3", "vdi-4")
    start(site, path, "vdi-5", on="esx-a2.example.com")
    site.center.forget_calls()
    # Five of eight run, and there is room for three more.
    again = site.template(machines=8)
    assert (again["changed"], again.get("warnings", [])) == (False, [])
    # For others, these five are in the way.
    message = refused(site, {"machines": 8}, {"name": "more", "machines": 1})
    assert "Templates vdi and more" in message
    message = refused(site, {"name": "more", "machines": 5})
    assert (
        "0 of 5 machines with 2 x grid_a100-10c run, and the hosts of cluster-a have room for 3 more at present, not for 5"
        in message
    )
    assert "esx-a1.example.com: 0, 8 vGPUs in use; esx-a2.example.com: 3" in message
    assert (
        "Set at most 3, use grid_a100-8c, with which they fit, or free GPUs" in message or "use grid_a100-" in message
    )
    # A new profile with recreate needs room for all machines beside the old ones.
    message = refused(site, {"machines": 5, "recreate": True, "mmio_gib": 1024})
    assert "before it deletes the 5 old ones, but the hosts of cluster-a have room for 3 more at present" in message
    # Without recreate, the existing machines stay.
    assert site.template(machines=5, mmio_gib=1024)["changed"]


def test_hosts_in_maintenance_delay_machines(site: Site) -> None:
    site.center.govc("host.maintenance.enter", "/DC1/host/cluster-a/esx-a2.example.com")
    result = site.template(machines=6)
    assert result["changed"]
    assert "2 of 6 new machines do not start before esx-a2.example.com is connected" in str(result["warnings"])


def test_only_named_templates_are_built_but_all_are_counted(site: Site) -> None:
    entries = [{"name": "a", "machines": 4}, {"name": "b", "machines": 5}]
    assert "Templates a and b" in refused(site, *entries, names=["a"])
    assert "names: c is not the name of a template" in refused(site, *entries, names=["a", "c"])
    entries[1]["machines"] = 4
    result = site.templates(*entries, names=["a"])
    assert list(result["templates"]) == ["a"]
    assert site.machines() == [result["templates"]["a"]["path"]]
