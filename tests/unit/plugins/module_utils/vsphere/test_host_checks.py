# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checklist of hosts and pools: status, evidence, remedy and command of each line."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.images.driver_build import check_compatibility
from ansible_collections.accel.gpu.plugins.module_utils.vsphere.host_checks import (
    OK,
    PROBLEM,
    WARNING,
    Check,
    HostEvidence,
    PoolNeeds,
    checklist_lines,
    host_checks,
    pool_checks,
)
from ansible_collections.accel.gpu.plugins.module_utils.vsphere.inventory import MULTI_INSTANCE, Host, read_gpus

from .test_hosts import FIRST, READY, SECOND, State, graphics

SHARED: State = (FIRST, ("shared", ""), ("shared", ""))
OWING: State = (FIRST, ("sharedDirect", ""), ("shared", ""))
TEN = "grid_a100-10c"
POOL = PoolNeeds("vdi", TEN, "580.95.05")
SLICED = PoolNeeds("vdi", "grid_a100-3-20c", "580.95.05")


def evidence(
    *states: State,
    manager: str | None = "580.95.02",
    known: t.Sequence[str] = (TEN,),
    placeable: t.Sequence[str] | None = None,
    **changed: t.Any,
) -> HostEvidence:
    """What is known about a host."""
    shown = graphics(*(states or (READY,)), **changed)
    room = tuple(known if placeable is None else placeable)
    return HostEvidence(shown, Host(shown.item, tuple(read_gpus(shown.item)), tuple(known), room, ""), manager)


def compatibility(guest: str, manager: str) -> tuple[str, str]:
    verdict = check_compatibility(guest, manager)
    return verdict.problem, verdict.warning


def checks(host: HostEvidence, *pools: PoolNeeds) -> dict[str, Check]:
    """The checks of a host by name; each occurs once."""
    listed = host_checks(host, pools or (POOL,), compatibility)
    by_name = {check.check: check for check in listed}
    assert len(by_name) == len(listed)
    return by_name


def test_names_from_vcenter_cannot_change_the_terminal() -> None:
    gpu = "0000:3b:00.0 \x9b2J\u202e"
    result = Check("esx\x1b[2J", "graphics", PROBLEM, f"no driver runs {gpu}", "Restart.", "reboot").to_result()
    assert all(text.isprintable() for text in result.values())
    assert (result["subject"], result["check"]) == ("esx\\u001b[2J", "graphics")


def test_a_host_that_is_ready() -> None:
    assert {name: (check.status, check.evidence) for name, check in checks(evidence()).items()} == {
        "manager": (OK, "vGPU manager 580.95.02 (vGPU 19)"),
        "driver": (OK, "guest driver 580.95.05 of vdi fits"),
        "graphics": (OK, "Shared Direct is configured and active: 1 x NVIDIA A100 in mode sameSize"),
    }


@pytest.mark.parametrize(
    ("host", "name", "status", "text", "remedy", "command"),
    [
        (evidence(runtime_connectionState="disconnected"), "connection", PROBLEM, "is disconnected", "Connect", ""),
        (evidence(runtime_inMaintenanceMode=True), "connection", WARNING, "maintenance mode", "End", "--enable false"),
        (evidence(manager=""), "manager", PROBLEM, "not installed", "Install it", "esxcli software vib install -d"),
        (evidence(manager=None), "manager", WARNING, "so it is installed", "Host.Config.Image", ""),
        (evidence(manager=None, known=()), "manager", WARNING, "is not known", "Host.Config.Image", ""),
        (evidence(manager="550.163.02"), "driver", PROBLEM, "of vdi", "newer than vGPU manager", ""),
        (evidence(manager="999.1"), "driver", WARNING, "of vdi", "is unknown", ""),
        (
            evidence(default="shared"),
            "graphics",
            PROBLEM,
            "default graphics type shared",
            "Shared Direct",
            "hosts_names=esx-1",
        ),
        (
            evidence(READY, (SECOND, ("shared", ""), ("shared", ""))),
            "graphics",
            PROBLEM,
            f"{SECOND} shared",
            "Shared Direct",
            "gpu_vsphere_hosts_apply=true",
        ),
        (
            evidence((FIRST, ("sharedDirect", ""), ("shared", ""))),
            "graphics",
            PROBLEM,
            "shared is active",
            "Restart Xorg",
            "/etc/init.d/xorg",
        ),
        (
            evidence((FIRST, ("sharedDirect", MULTI_INSTANCE), ("sharedDirect", "sameSize"))),
            "graphics",
            PROBLEM,
            "sameSize is active",
            "Restart the host",
            "esxcli system shutdown reboot",
        ),
        (
            evidence((FIRST, ("sharedDirect", ""), ("basic", ""))),
            "graphics",
            PROBLEM,
            f"no driver runs {FIRST}",
            "Install",
            "reboot",
        ),
        (evidence((FIRST, None, ("direct", ""))), "graphics", WARNING, "as a whole", "passthrough off", ""),
        (evidence(known=()), "bios", PROBLEM, "no vGPU profile", "SR-IOV", "nvidia-smi -q"),
    ],
)
def test_what_a_host_lacks(host: HostEvidence, name: str, status: str, text: str, remedy: str, command: str) -> None:
    check = checks(host)[name]
    assert (check.subject, check.status) == ("esx-1", status)
    assert text in check.evidence
    assert remedy in check.remedy
    assert command in check.command
    assert bool(command) == bool(check.command)


def test_the_role_accepts_the_variables_of_a_remedy() -> None:
    """It refuses a restart without gpu_vsphere_hosts_apply."""
    listed = [*host_checks(evidence(OWING), (POOL,), compatibility), *pool_checks(SLICED, [evidence()], compatibility)]
    restarting = [check for check in listed if "gpu_vsphere_hosts_restart=true" in check.remedy + check.command]
    assert len(restarting) == 2
    assert all("gpu_vsphere_hosts_apply=true" in check.remedy + check.command for check in restarting)


def test_a_host_without_a_gpu_and_one_without_a_manager_have_no_further_lines() -> None:
    shown = graphics()
    bare = HostEvidence(shown, Host(shown.item, (), (), (), ""), "")
    assert {name: check.status for name, check in checks(bare).items()} == {"manager": PROBLEM, "graphics": WARNING}


def test_drivers_are_grouped_by_version() -> None:
    pools = [POOL, PoolNeeds("lab", TEN, "580.95.05"), PoolNeeds("other", TEN)]
    assert checks(evidence(), *pools)["driver"].evidence == "guest driver 580.95.05 of vdi and lab fits"


@pytest.mark.parametrize(
    ("pool", "hosts", "status", "text", "remedy"),
    [
        (POOL, [evidence()], OK, "can be placed now on esx-1", ""),
        (PoolNeeds("vdi", TEN.upper(), "580.95.05"), [evidence()], OK, "can be placed now on esx-1", ""),
        (POOL, [evidence(placeable=())], WARNING, "no further vGPU can be placed", "Free a GPU"),
        (
            POOL,
            [evidence(runtime_inMaintenanceMode=True)],
            WARNING,
            "no further vGPU can be placed",
            "maintenance mode",
        ),
        # No host that offers the profile can run it.
        (POOL, [evidence(runtime_connectionState="disconnected")], PROBLEM, "esx-1 is disconnected", "listed above"),
        (POOL, [evidence(SHARED)], PROBLEM, f"esx-1 runs with {FIRST} shared", "listed above"),
        (POOL, [evidence(OWING)], PROBLEM, f"esx-1 runs with {FIRST} shared", "listed above"),
        (POOL, [evidence(SHARED), evidence(placeable=())], WARNING, "no further vGPU can be placed", "Free a GPU"),
        (POOL, [evidence(SHARED), evidence()], OK, "can be placed now on esx-1", ""),
        (POOL, [evidence(known=["grid_a100-20c"])], PROBLEM, "no host offers", "Offered: grid_a100-20c."),
        (POOL, [evidence(known=())], PROBLEM, "no host offers", "no profile at all"),
        (POOL, [], PROBLEM, "no host offers", "no profile at all"),
        (POOL, [evidence(manager="550.163.02")], PROBLEM, "does not support guest driver", "Upgrade the vGPU manager"),
        (POOL, [evidence(manager="550.163.02"), evidence()], OK, "can be placed now on esx-1", ""),
        (POOL, [evidence(manager=None)], OK, "can be placed now on esx-1", ""),
        (SLICED, [evidence()], PROBLEM, "no host offers", "needs MIG"),
        (
            SLICED,
            [
                evidence(
                    (FIRST, ("sharedDirect", MULTI_INSTANCE), ("sharedDirect", MULTI_INSTANCE)),
                    known=["grid_a100-1-5c"],
                )
            ],
            PROBLEM,
            "no host offers",
            "Offered: grid_a100-1-5c.",
        ),
    ],
)
def test_a_pool_needs_a_host(pool: PoolNeeds, hosts: list[HostEvidence], status: str, text: str, remedy: str) -> None:
    (check,) = pool_checks(pool, hosts, compatibility)
    assert (check.subject, check.check, check.status) == ("vdi", "profile", status)
    assert text in check.evidence
    assert remedy in check.remedy
    assert bool(remedy) == bool(check.remedy)


def test_a_pool_without_a_declared_driver_is_noted() -> None:
    (first, second) = pool_checks(PoolNeeds("vdi", TEN), [evidence()], compatibility)
    assert (first.status, second.check, second.status) == (OK, "driver", WARNING)


def test_the_lines_of_a_checklist() -> None:
    lines = checklist_lines(
        "Cluster /DC1/host/a",
        [
            Check("esx-1", "manager", OK, "vGPU manager 1"),
            Check("a-pool", "profile", PROBLEM, "word " * 30, "Do it", "run $x 'y'"),
        ],
    )
    assert lines[:2] == ["Cluster /DC1/host/a", "  ok       esx-1   manager    vGPU manager 1"]
    assert lines[2].startswith("  problem  a-pool  profile    word word")
    assert lines[-2:] == ["           Do it.", "           $ run $x 'y'"]
    assert max(map(len, lines)) <= 110


def test_a_command_quotes_the_name_of_a_host() -> None:
    host = evidence(default="shared", name="NVIDIA A100")
    odd = HostEvidence(
        host.graphics,
        Host(type(host.offers.item)("r", "HostSystem", {**host.offers.item.values, "name": "a; b"}), (), (), (), ""),
        "",
    )
    assert checks(odd)["graphics"].command.endswith("-e gpu_vsphere_hosts_names='a; b'")
