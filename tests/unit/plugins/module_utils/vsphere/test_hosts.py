# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a request changes in the graphics of a host, what must restart, and what is refused."""

from __future__ import annotations

import dataclasses
import typing as t
from types import SimpleNamespace

import pytest
from pyVmomi import vim

from ansible_collections.accel.gpu.plugins.module_utils.vsphere.client import Item
from ansible_collections.accel.gpu.plugins.module_utils.vsphere.hosts import (
    HOST,
    NONE,
    XORG,
    GpuSetting,
    GraphicsRequest,
    HostGraphics,
    HostMachines,
    host_graphics,
    merged_config,
    mig_problems,
    owed_restart,
    plan_host,
    read_machines,
    required_privileges,
    setting_problems,
    use_problems,
)
from ansible_collections.accel.gpu.plugins.module_utils.vsphere.inventory import MULTI_INSTANCE

from .objects import CONSOLE, graphics_info

FIRST, SECOND = "0000:3b:00.0", "0000:4b:00.0"
# A GPU: PCI id, the configured graphics type and mode (None without an entry), and the active ones.
State = tuple[str, "tuple[str, str] | None", tuple[str, str]]
READY: State = (FIRST, ("sharedDirect", "sameSize"), ("sharedDirect", "sameSize"))


def graphics(
    *states: State,
    default: str = "sharedDirect",
    policy: str = "performance",
    name: str = "NVIDIA A100",
    **changed: t.Any,
) -> HostGraphics:
    """A host in vCenter's words; `changed` has properties with _ for the dot."""
    entries = [
        vim.host.GraphicsConfig.DeviceType(deviceId=pci, graphicsType=entry[0], vgpuMode=entry[1] or None)
        for pci, entry, _active in states
        if entry is not None
    ]
    config = vim.host.GraphicsConfig(
        hostDefaultGraphicsType=default, sharedPassthruAssignmentPolicy=policy, deviceType=entries
    )
    infos = [
        graphics_info(pci, name, graphicsType=active[0], vgpuMode=active[1] or None, memorySizeInKB=40 << 20)
        for pci, _entry, active in states
    ]
    values = {
        "name": "esx-1",
        "runtime.connectionState": "connected",
        "runtime.powerState": "poweredOn",
        "runtime.inMaintenanceMode": False,
        "config.graphicsInfo": [CONSOLE, *infos],
        "config.graphicsConfig": config,
    }
    values.update({key.replace("_", ".", 1): value for key, value in changed.items()})
    return host_graphics(Item("host-1", "HostSystem", values), "/DC1/host/c/esx-1")


def everywhere(graphics_type: str | None = None, mode: str | None = None, **fields: t.Any) -> GraphicsRequest:
    """A request for the host and all its GPUs."""
    return GraphicsRequest(graphics_type, gpus=(GpuSetting(None, graphics_type, mode),), **fields)


def test_the_adapter_of_the_mainboard_is_no_gpu() -> None:
    host = graphics(READY)
    assert [gpu.pci_id for gpu in host.gpus] == [FIRST]
    assert host.gpus[0].memory_gib == 40


@pytest.mark.parametrize(
    ("state", "request_", "updates", "owed", "configured"),
    [
        # Nothing is requested.
        (READY, GraphicsRequest(), False, NONE, ("sharedDirect", "sameSize")),
        ((FIRST, ("sharedDirect", ""), ("shared", "")), GraphicsRequest(), False, XORG, ("sharedDirect", "")),
        # The type.
        ((FIRST, ("shared", ""), ("shared", "")), everywhere("sharedDirect"), True, XORG, ("sharedDirect", "")),
        ((FIRST, None, ("shared", "")), everywhere("sharedDirect"), False, XORG, ("sharedDirect", "")),
        (READY, everywhere("sharedDirect"), False, NONE, ("sharedDirect", "sameSize")),
        # A GPU that is shared has no mode before it is shared directly.
        ((FIRST, ("shared", "sameSize"), ("shared", "none")), GraphicsRequest(), False, NONE, ("shared", "sameSize")),
        (
            (FIRST, ("shared", "sameSize"), ("shared", "none")),
            everywhere("sharedDirect"),
            True,
            XORG,
            ("sharedDirect", "sameSize"),
        ),
        # No driver runs the GPU, or it is passed through: a restart changes nothing.
        ((FIRST, ("sharedDirect", ""), ("basic", "")), GraphicsRequest(), False, NONE, ("sharedDirect", "")),
        ((FIRST, ("shared", ""), ("basic", "")), everywhere("sharedDirect"), True, NONE, ("sharedDirect", "")),
        (
            (FIRST, ("shared", ""), ("direct", "")),
            everywhere("sharedDirect", MULTI_INSTANCE),
            False,
            NONE,
            ("shared", ""),
        ),
        # The mode.
        (READY, everywhere(mode="mixedSize"), True, HOST, ("sharedDirect", "mixedSize")),
        (READY, everywhere(mode=MULTI_INSTANCE), True, HOST, ("sharedDirect", MULTI_INSTANCE)),
        (READY, everywhere("shared", MULTI_INSTANCE), True, HOST, ("shared", MULTI_INSTANCE)),
        (
            (FIRST, ("sharedDirect", "mixedSize"), ("sharedDirect", "sameSize")),
            GraphicsRequest(),
            False,
            HOST,
            ("sharedDirect", "mixedSize"),
        ),
        (
            (FIRST, ("sharedDirect", MULTI_INSTANCE), ("sharedDirect", "sameSize")),
            GraphicsRequest(),
            False,
            HOST,
            ("sharedDirect", MULTI_INSTANCE),
        ),
        # MIG that was switched on with nvidia-smi is not in the configuration.
        (
            (FIRST, ("sharedDirect", "sameSize"), ("sharedDirect", MULTI_INSTANCE)),
            GraphicsRequest(),
            False,
            NONE,
            ("sharedDirect", "sameSize"),
        ),
        (
            (FIRST, ("sharedDirect", ""), ("sharedDirect", MULTI_INSTANCE)),
            everywhere("sharedDirect", MULTI_INSTANCE),
            False,
            NONE,
            ("sharedDirect", ""),
        ),
        (
            (FIRST, ("sharedDirect", "sameSize"), ("sharedDirect", MULTI_INSTANCE)),
            everywhere(mode="sameSize"),
            False,
            HOST,
            ("sharedDirect", "sameSize"),
        ),
        (
            (FIRST, ("sharedDirect", MULTI_INSTANCE), ("sharedDirect", MULTI_INSTANCE)),
            everywhere(mode="sameSize"),
            True,
            HOST,
            ("sharedDirect", "sameSize"),
        ),
    ],
)
def test_a_request_changes_only_what_differs(
    state: State, request_: GraphicsRequest, updates: bool, owed: str, configured: tuple[str, str]
) -> None:
    plan = plan_host(graphics(state), request_)
    assert (plan.updates, plan.restarts, plan.owed) == (updates, False, owed)
    assert plan.after.gpus[0].configured == configured
    assert plan.after.gpus[0].active == plan.before.gpus[0].active
    # With a restart, nothing is owed afterwards, and a second run changes nothing.
    restarting = dataclasses.replace(request_, restart=True)
    done = plan_host(graphics(state), restarting)
    assert (done.updates, done.restarts, done.owed) == (updates, owed != NONE, NONE)
    again = plan_host(done.after, restarting)
    assert (again.updates, again.restarts) == (False, False)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ((), ("shared", "shared")),
        ((GpuSetting(None, "sharedDirect"),), ("sharedDirect", "sharedDirect")),
        ((GpuSetting(SECOND, "sharedDirect"),), ("shared", "sharedDirect")),
        ((GpuSetting(SECOND.upper(), "sharedDirect"),), ("shared", "sharedDirect")),
        ((GpuSetting(None, "sharedDirect"), GpuSetting(SECOND, "shared")), ("sharedDirect", "shared")),
        ((GpuSetting(None, "sharedDirect"), GpuSetting(SECOND, None, "mixedSize")), ("sharedDirect", "sharedDirect")),
    ],
)
def test_the_setting_of_a_gpu_overrides_that_of_all(
    settings: tuple[GpuSetting, ...], expected: tuple[str, str]
) -> None:
    states: list[State] = [(pci, ("shared", "sameSize"), ("shared", "sameSize")) for pci in (FIRST, SECOND)]
    plan = plan_host(graphics(*states), GraphicsRequest(gpus=settings))
    assert tuple(gpu.configured.graphics_type for gpu in plan.after.gpus) == expected


def entries(host: HostGraphics, request: GraphicsRequest) -> t.Any:
    config = merged_config(plan_host(host, request))
    return (
        config.hostDefaultGraphicsType,
        config.sharedPassthruAssignmentPolicy,
        [(each.deviceId, each.graphicsType, each.vgpuMode) for each in config.deviceType],
    )


def test_what_is_sent_carries_over_everything_else() -> None:
    foreign: State = ("0000:99:00.0", ("shared", ""), ("shared", ""))
    host = graphics(READY, (SECOND, None, ("shared", "")), default="shared", policy="consolidation")
    host.item.get("config.graphicsConfig").deviceType.append(
        vim.host.GraphicsConfig.DeviceType(deviceId=foreign[0], graphicsType="shared", vgpuMode="mixedSize")
    )
    kept = [(FIRST, "sharedDirect", "sameSize"), (foreign[0], "shared", "mixedSize")]
    assert entries(host, GraphicsRequest("sharedDirect")) == ("sharedDirect", "consolidation", kept)
    assert entries(host, GraphicsRequest(None, "performance")) == ("shared", "performance", kept)
    request = GraphicsRequest(gpus=(GpuSetting(SECOND, "sharedDirect", "mixedSize"),))
    assert entries(host, request) == ("shared", "consolidation", [*kept, (SECOND, "sharedDirect", "mixedSize")])


def problems(host: HostGraphics, request: GraphicsRequest) -> list[str]:
    return setting_problems([plan_host(host, request)], request)


UNPREPARED: State = (FIRST, ("shared", "sameSize"), ("shared", "sameSize"))


@pytest.mark.parametrize(
    ("host", "request_", "words"),
    [
        (graphics(UNPREPARED), everywhere("sharedDirect"), None),
        (graphics(READY), GraphicsRequest(gpus=(GpuSetting("0000:99:00.0", "shared"),)), f"known: {FIRST}"),
        (graphics(), GraphicsRequest(gpus=(GpuSetting(FIRST, "shared"),)), "known: none"),
        (graphics((FIRST, None, ("direct", ""))), GraphicsRequest(gpus=(GpuSetting(FIRST, "shared"),)), "as a whole"),
        (graphics(UNPREPARED, runtime_connectionState="disconnected"), everywhere("sharedDirect"), "is disconnected"),
        (
            graphics(UNPREPARED, runtime_connectionState="notResponding"),
            everywhere("sharedDirect"),
            "is not responding",
        ),
        (graphics(UNPREPARED, runtime_powerState="standBy"), everywhere("sharedDirect"), "is not powered on"),
        (graphics(UNPREPARED, config_graphicsConfig=None), everywhere("sharedDirect"), "no graphics configuration"),
        # Nothing is to be done, so the state does not matter.
        (graphics(READY, runtime_connectionState="disconnected"), everywhere("sharedDirect"), None),
        (
            graphics((FIRST, ("sharedDirect", ""), ("shared", "")), runtime_connectionState="disconnected"),
            GraphicsRequest(restart=True),
            "is disconnected",
        ),
    ],
)
def test_what_cannot_be_applied(host: HostGraphics, request_: GraphicsRequest, words: str | None) -> None:
    messages = problems(host, request_)
    assert len(messages) == (words is not None), messages
    assert words is None or words in messages[0]


@pytest.mark.parametrize(
    ("state", "capable", "words"),
    [
        (READY, {"NVIDIA A100": True}, ""),
        (READY, {"NVIDIAA100": True}, ""),
        (READY, {"NVIDIA A100": False}, "does not support MIG"),
        (READY, {"A100": False, "NVIDIA A30": True}, "does not support MIG"),
        # A name that cannot be compared is left to vCenter.
        (READY, {"another": False}, ""),
        (READY, {}, "no vGPU manager reports the GPUs"),
        # MIG is configured already.
        ((FIRST, ("sharedDirect", MULTI_INSTANCE), ("sharedDirect", "sameSize")), {}, ""),
    ],
)
def test_mig_needs_a_gpu_that_supports_it(state: State, capable: dict[str, bool], words: str) -> None:
    messages = mig_problems(plan_host(graphics(state), everywhere(mode=MULTI_INSTANCE)), capable)
    assert bool(messages) == bool(words)
    assert not words or words in messages[0]


IDLE, USED = HostMachines(), HostMachines(("vm-1",), ("vm-1", "vm-2"))
RESTART = everywhere("sharedDirect", restart=True)


@pytest.mark.parametrize(
    ("machines", "request_", "maintenance", "words"),
    [
        (IDLE, RESTART, False, ""),
        (USED, everywhere("sharedDirect"), False, "the GPUs are used by vm-1;"),
        (HostMachines((), ("vm-2",)), everywhere("sharedDirect"), False, ""),
        (HostMachines((), ("vm-2",)), RESTART, False, "the restart would stop vm-2;"),
        (HostMachines((), ("vm-2",)), RESTART, True, ""),
        (HostMachines(hidden=2), RESTART, False, "2 virtual machines that the user may not read"),
        (HostMachines(hidden=2), RESTART, True, ""),
        (HostMachines(hidden=1), everywhere("sharedDirect"), False, ""),
        (
            HostMachines(hidden_gpu_users=1, hidden=1),
            everywhere("sharedDirect"),
            True,
            "the GPUs are used by a virtual machine that the user may not read;",
        ),
        (
            HostMachines(("vm-1",), hidden_gpu_users=2, hidden=2),
            RESTART,
            False,
            "used by vm-1, 2 virtual machines that the user may not read;",
        ),
        (USED, GraphicsRequest(), False, ""),
    ],
)
def test_running_machines_are_in_the_way(
    machines: HostMachines, request_: GraphicsRequest, maintenance: bool, words: str
) -> None:
    host = graphics(UNPREPARED, runtime_inMaintenanceMode=maintenance)
    messages = use_problems(plan_host(host, request_), machines)
    assert bool(messages) == bool(words), messages
    assert not words or words in messages[0]


def test_a_machine_that_the_user_may_not_read_uses_a_gpu_if_the_gpu_names_it() -> None:
    """vCenter leaves out the machine, or the machine's properties, or even its entry in the list of the host."""
    host = graphics(UNPREPARED, vm=["vm-1", "vm-2", "vm-3"])
    host.item.get("config.graphicsInfo")[1].vm = ["vm-1", "vm-2", "vm-4"]
    readable = [
        Item("vm-2", "VirtualMachine", {}),
        Item("vm-3", "VirtualMachine", {"name": "plain", "runtime.powerState": "poweredOn"}),
    ]
    center: t.Any = SimpleNamespace(read=lambda refs, _properties: readable)
    assert read_machines(center, [host]) == {"host-1": HostMachines((), ("plain",), hidden_gpu_users=3, hidden=3)}


def test_privileges_are_those_of_the_changes() -> None:
    update, restart = everywhere("sharedDirect"), GraphicsRequest(restart=True)
    owing = graphics((FIRST, ("sharedDirect", ""), ("shared", "")))
    assert required_privileges([plan_host(graphics(READY), update)]) == {}
    assert required_privileges([plan_host(graphics(UNPREPARED), update)]) == {"host-1": ["Host.Config.Settings"]}
    assert required_privileges([plan_host(owing, restart)]) == {"host-1": ["Host.Config.Maintenance"]}


def test_the_mode_of_one_gpu_makes_the_restart_of_the_host_necessary() -> None:
    host = graphics(
        (FIRST, ("sharedDirect", "sameSize"), ("shared", "sameSize")),
        (SECOND, ("sharedDirect", "mixedSize"), ("sharedDirect", "sameSize")),
    )
    assert owed_restart(host, GraphicsRequest()) == HOST
    assert owed_restart(dataclasses.replace(host, gpus=host.gpus[:1]), GraphicsRequest()) == XORG
