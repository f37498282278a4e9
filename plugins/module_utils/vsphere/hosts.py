# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The graphics of ESXi hosts: what is configured and what is active, the changes of a request, and the restart that makes them active.

vCenter replaces the whole graphics configuration of a host (UpdateGraphicsConfig), so a change begins with the present one. A graphics type becomes active
when Xorg or the host restarts, a mode when the host restarts.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import typing as t
from dataclasses import dataclass

from ..core.errors import InvalidOptions, ModuleFailure
from ..core.messages import abbreviate, as_sentence, join_words
from ..core.waits import WaitTimeout, wait_until
from .client import PYVMOMI_IMPORT_ERROR, Item, VCenter, VSphereError
from .inventory import MIXED_SIZE, MULTI_INSTANCE, SAME_SIZE, SHARED_DIRECT, Inventory, is_reachable, read_gpus
from .settings import vgpu_profiles

if PYVMOMI_IMPORT_ERROR is None:
    from pyVmomi import vim

SHARED = "shared"
GRAPHICS_TYPES = (SHARED, SHARED_DIRECT)
ASSIGNMENT_POLICIES = ("performance", "consolidation")
VGPU_MODES = (SAME_SIZE, MIXED_SIZE, MULTI_INSTANCE)
# The first version of the API with the mode of a GPU.
MODES_SINCE = (8, 0, 3)
# A GPU that no driver of the host runs, and one that is passed through to a virtual machine as a whole. A restart changes neither.
BASIC, DIRECT = "basic", "direct"
NOT_APPLICABLE = ("", "none")
# What must restart before the configuration is active.
NONE, XORG, HOST = "none", "xorg", "host"
# The commands on the host. Source: NVIDIA AI Enterprise User Guide, "Changing the Default Graphics Type".
RESTART_COMMANDS = {
    NONE: "",
    XORG: "/etc/init.d/xorg stop; nv-hostengine -t; sleep 1; nv-hostengine -d; /etc/init.d/xorg start",
    HOST: "esxcli system maintenanceMode set --enable true && esxcli system shutdown reboot --reason 'GPU graphics configuration'",
}
END_MAINTENANCE = "esxcli system maintenanceMode set --enable false"
# Source of the privileges: the types of pyvmomi.
UPDATE_PRIVILEGE, RESTART_PRIVILEGE = "Host.Config.Settings", "Host.Config.Maintenance"
_HOST_PROPERTIES = (
    "name",
    "runtime.connectionState",
    "runtime.powerState",
    "runtime.inMaintenanceMode",
    "runtime.bootTime",
    "config.graphicsInfo",
    "config.graphicsConfig",
    "configManager.graphicsManager",
    "vm",
)
_MACHINE_PROPERTIES = ("name", "runtime.powerState", "config.hardware.device")
# Seconds until vCenter shows what a host has stored, or what it runs with after a restart.
_SHOWN_AFTER = 120.0
_RESTART_INTERVAL = 5.0


class Graphics(t.NamedTuple):
    """The graphics type and the mode of a GPU; the mode is empty if the API has none."""

    graphics_type: str
    vgpu_mode: str


@dataclass(frozen=True)
class GraphicsGpu:
    """An NVIDIA GPU of a host. `explicit`: whether the configuration has an entry for it, which overrides the default type of the host."""

    pci_id: str
    name: str
    memory_gib: int
    configured: Graphics
    active: Graphics
    explicit: bool = True


@dataclass(frozen=True)
class HostGraphics:
    """The graphics of a host at one point in time."""

    item: Item
    path: str
    default_type: str
    assignment_policy: str
    gpus: tuple[GraphicsGpu, ...]

    @property
    def name(self) -> str:
        """Its name in vCenter."""
        return self.item.name

    @property
    def in_maintenance(self) -> bool:
        """Whether it is in maintenance mode."""
        return bool(self.item.get("runtime.inMaintenanceMode"))

    @property
    def state(self) -> str:
        """The state of its connection for messages."""
        state = str(self.item.get("runtime.connectionState", "disconnected"))
        if state == "connected" and not is_reachable(self.item):
            return "not powered on"
        return {"notResponding": "not responding"}.get(state, state)

    def shown(self, *, active: bool) -> str:
        """What is configured or active, for messages."""
        states = [(gpu.pci_id, gpu.active if active else gpu.configured) for gpu in self.gpus]
        words = [f"{pci_id} {' '.join(filter(None, state))}" for pci_id, state in states]
        return ", ".join(words if active else [f"{self.default_type} {self.assignment_policy}", *words])

    @property
    def is_readable(self) -> bool:
        """Whether vCenter knows its configuration."""
        return self.item.get("config.graphicsConfig") is not None

    def to_result(self) -> dict[str, t.Any]:
        """The host as a module returns it."""
        return {
            "name": self.name,
            "path": self.path,
            "connected": is_reachable(self.item),
            "maintenance_mode": self.in_maintenance,
            "graphics_type": self.default_type,
            "assignment_policy": self.assignment_policy,
            "gpus": [
                {
                    "pci_id": gpu.pci_id,
                    "name": gpu.name,
                    "memory_gib": gpu.memory_gib,
                    "graphics_type": {"configured": gpu.configured.graphics_type, "active": gpu.active.graphics_type},
                    "vgpu_mode": {"configured": gpu.configured.vgpu_mode, "active": gpu.active.vgpu_mode},
                }
                for gpu in self.gpus
            ],
        }

    def to_diff(self) -> dict[str, t.Any]:
        """The host as a diff shows it."""
        return {
            "graphics_type": self.default_type,
            "assignment_policy": self.assignment_policy,
            "configured": {gpu.pci_id: gpu.configured._asdict() for gpu in self.gpus},
            "active": {gpu.pci_id: gpu.active._asdict() for gpu in self.gpus},
        }


def read_graphics(center: VCenter, inventory: Inventory, hosts: t.Sequence[Item]) -> list[HostGraphics]:
    """The graphics of some hosts, in their order, with one request."""
    if not hosts:
        return []
    items = {
        item.ref: item for item in center.read([(host.ref, "") for host in hosts], {"HostSystem": _HOST_PROPERTIES})
    }
    return [host_graphics(items[host.ref], inventory.path(host)) for host in hosts if host.ref in items]


def host_graphics(item: Item, path: str) -> HostGraphics:
    """The graphics in the properties of a host."""
    config = item.get("config.graphicsConfig")
    default = str(getattr(config, "hostDefaultGraphicsType", "") or "")
    entries = {each.deviceId.lower(): each for each in getattr(config, "deviceType", None) or ()}
    gpus = []
    for gpu in read_gpus(item):
        entry = entries.get(gpu.pci_id.lower())
        configured = Graphics(
            str(entry.graphicsType) if entry else default, str(getattr(entry, "vgpuMode", None) or "")
        )
        active = Graphics(gpu.graphics_type, gpu.mode)
        gpus.append(GraphicsGpu(gpu.pci_id, gpu.name, gpu.memory_gib, configured, active, entry is not None))
    policy = str(getattr(config, "sharedPassthruAssignmentPolicy", "") or "")
    return HostGraphics(item, path, default, policy, tuple(gpus))


# The changes of a request (pure).


@dataclass(frozen=True)
class GpuSetting:
    """What is requested for the GPU with a PCI id, or for all GPUs of each host; None is kept."""

    pci_id: str | None = None
    graphics_type: str | None = None
    vgpu_mode: str | None = None


@dataclass(frozen=True)
class GraphicsRequest:
    """What is requested for each host; None is kept. `restart`: whether hosts are restarted that must be."""

    graphics_type: str | None = None
    assignment_policy: str | None = None
    gpus: tuple[GpuSetting, ...] = ()
    restart: bool = False

    def setting(self, pci_id: str) -> GpuSetting:
        """What is requested for a GPU: its own setting, with those for all GPUs where it has none."""
        common = next((each for each in self.gpus if each.pci_id is None), GpuSetting())
        own = next((each for each in self.gpus if (each.pci_id or "").lower() == pci_id.lower()), GpuSetting())
        return GpuSetting(own.pci_id, own.graphics_type or common.graphics_type, own.vgpu_mode or common.vgpu_mode)


@dataclass(frozen=True)
class HostPlan:
    """What a request changes on a host: `after` is its state after the run, as far as it is known beforehand."""

    before: HostGraphics
    after: HostGraphics
    updates: bool
    restarts: bool
    # What must restart after the run (NONE, XORG or HOST).
    owed: str

    @property
    def changes(self) -> bool:
        """Whether there is anything to do."""
        return self.updates or self.restarts


def plan_host(host: HostGraphics, request: GraphicsRequest) -> HostPlan:
    """The changes of a host."""
    default = request.graphics_type or host.default_type
    gpus = []
    for gpu in host.gpus:
        configured = _configured(gpu, default, request.setting(gpu.pci_id))
        explicit = gpu.explicit or configured != Graphics(default, "")
        gpus.append(dataclasses.replace(gpu, configured=configured, explicit=explicit))
    policy = request.assignment_policy or host.assignment_policy
    after = dataclasses.replace(host, default_type=default, assignment_policy=policy, gpus=tuple(gpus))
    updates, owed = after != host, owed_restart(after, request)
    if owed == NONE or not request.restart:
        return HostPlan(host, after, updates, False, owed)
    active = tuple(
        gpu if _pending(gpu, request) == NONE else dataclasses.replace(gpu, active=_activated(gpu, request))
        for gpu in gpus
    )
    return HostPlan(host, dataclasses.replace(after, gpus=active), updates, True, NONE)


def _configured(gpu: GraphicsGpu, default: str, setting: GpuSetting) -> Graphics:
    """The configuration of a GPU after the request."""
    graphics_type = gpu.configured.graphics_type if gpu.explicit else default
    if setting.graphics_type and gpu.active.graphics_type != DIRECT:
        graphics_type = setting.graphics_type
    mode = setting.vgpu_mode or gpu.configured.vgpu_mode
    if gpu.active.vgpu_mode == MULTI_INSTANCE == setting.vgpu_mode:
        # MIG is on; if the administrator has switched it on with nvidia-smi, the configuration does not show it.
        mode = gpu.configured.vgpu_mode
    return Graphics(graphics_type, mode if gpu.active.graphics_type != DIRECT else gpu.configured.vgpu_mode)


def _activated(gpu: GraphicsGpu, request: GraphicsRequest) -> Graphics:
    """What a GPU runs with after a restart."""
    mode = gpu.configured.vgpu_mode
    kept = mode in NOT_APPLICABLE or _has_mig_by_hand(gpu, request)
    return Graphics(gpu.configured.graphics_type, gpu.active.vgpu_mode if kept else mode)


def _has_mig_by_hand(gpu: GraphicsGpu, request: GraphicsRequest) -> bool:
    """Whether the administrator has switched MIG on with nvidia-smi, which the configuration does not show, and no other mode is requested."""
    requested = request.setting(gpu.pci_id).vgpu_mode
    return gpu.active.vgpu_mode == MULTI_INSTANCE != gpu.configured.vgpu_mode and requested in (None, MULTI_INSTANCE)


def owed_restart(host: HostGraphics, request: GraphicsRequest) -> str:
    """What must restart before the configuration is active: NONE, XORG or HOST."""
    pending = {_pending(gpu, request) for gpu in host.gpus}
    return next((kind for kind in (HOST, XORG) if kind in pending), NONE)


def _pending(gpu: GraphicsGpu, request: GraphicsRequest) -> str:
    configured, active = gpu.configured, gpu.active
    if active.graphics_type not in GRAPHICS_TYPES:
        return NONE
    requested = request.setting(gpu.pci_id).vgpu_mode
    mode = requested or configured.vgpu_mode
    differs = mode not in (*NOT_APPLICABLE, active.vgpu_mode)
    if active.vgpu_mode in NOT_APPLICABLE and active.graphics_type == SHARED and mode != MULTI_INSTANCE:
        # A GPU that is shared has no mode; it gets one together with its type.
        differs = False
    if _has_mig_by_hand(gpu, request):
        differs = False
    if differs:
        return HOST
    return (
        XORG
        if configured.graphics_type in GRAPHICS_TYPES and configured.graphics_type != active.graphics_type
        else NONE
    )


def setting_problems(plans: t.Sequence[HostPlan], request: GraphicsRequest) -> list[str]:
    """Why the request cannot be applied to the hosts as they are."""
    problems = []
    for plan in plans:
        host = plan.before
        known = {gpu.pci_id.lower(): gpu for gpu in host.gpus}
        for setting in request.gpus:
            if setting.pci_id is None:
                continue
            gpu = known.get(setting.pci_id.lower())
            if gpu is None:
                listed = join_words([each.pci_id for each in host.gpus]) if host.gpus else "none"
                problems.append(f"{host.path}: gpus: no NVIDIA GPU has the PCI id {setting.pci_id}; known: {listed}")
            elif gpu.active.graphics_type == DIRECT:
                problems.append(
                    f"{host.path}: gpus: {gpu.pci_id} ({gpu.name}) is passed through to a virtual machine as a whole; switch passthrough off first (vSphere "
                    "Client: Configure, PCI Devices)"
                )
        if plan.changes and not host.is_readable:
            problems.append(
                f"{host.path}: vCenter shows no graphics configuration; connect the host, and check that the user may read it"
            )
        elif plan.changes and not is_reachable(host.item):
            problems.append(
                f"{host.path}: the host is {host.state}, so it cannot be changed; connect it, or select other hosts"
            )
    return problems


def mig_problems(plan: HostPlan, capable: t.Mapping[str, bool]) -> list[str]:
    """Why MIG cannot be configured. `capable`: whether each GPU model that the vGPU manager reports supports MIG."""
    changed = [
        (gpu, old)
        for gpu, old in zip(plan.after.gpus, plan.before.gpus, strict=True)
        if gpu.configured.vgpu_mode == MULTI_INSTANCE != old.configured.vgpu_mode
    ]
    if changed and not capable:
        return [
            f"{plan.before.path}: vgpu_mode: no vGPU manager reports the GPUs, so MIG cannot be configured; install it, and restart the host"
        ]
    by_model = {_model(name): value for name, value in capable.items()}
    return [
        f"{plan.before.path}: vgpu_mode: {gpu.pci_id} ({gpu.name}) does not support MIG; choose another mode for it (option gpus)"
        for gpu, dummy in changed
        # A name that the manager writes in another way is left to vCenter.
        if by_model.get(_model(gpu.name)) is False
    ]


def _model(name: str) -> str:
    """The name of a GPU without the maker and the spaces, which hosts write in several ways."""
    return "".join(name.lower().split()).removeprefix("nvidia")


@dataclass(frozen=True)
class HostMachines:
    """The virtual machines of a host that are not powered off: those that use its GPUs, and all.

    hidden_gpu_users, hidden: the numbers of those that the user may not read, so that it is not known whether they are powered off.
    """

    gpu_users: tuple[str, ...] = ()
    running: tuple[str, ...] = ()
    hidden_gpu_users: int = 0
    hidden: int = 0


def use_problems(plan: HostPlan, machines: HostMachines) -> list[str]:
    """Why a host must not be changed or restarted while these virtual machines run."""
    path = plan.before.path
    users = [*machines.gpu_users, *_unnamed(machines.hidden_gpu_users)]
    if plan.updates and users:
        return [
            f"{path}: the GPUs are used by {abbreviate(users)}; shut these virtual machines down or move them to another host (drain their nodes first)"
        ]
    names = [*machines.running, *_unnamed(machines.hidden)]
    if plan.restarts and not plan.before.in_maintenance and names:
        return [
            f"{path}: the restart would stop {abbreviate(names)}; put the host into maintenance mode first, or move the virtual machines to another host"
        ]
    return []


def _unnamed(number: int) -> list[str]:
    """What stands for virtual machines that the user may not read in a list of names."""
    one = number == 1
    return (
        [f"{'a' if one else number} virtual machine{'' if one else 's'} that the user may not read"] if number else []
    )


def required_privileges(plans: t.Iterable[HostPlan]) -> dict[t.Any, list[str]]:
    """The privileges that the changes need, by host."""
    needed = {
        plan.before.item.ref: [
            *((UPDATE_PRIVILEGE,) if plan.updates else ()),
            *((RESTART_PRIVILEGE,) if plan.restarts else ()),
        ]
        for plan in plans
    }
    return {ref: names for ref, names in needed.items() if names}


# Reads and changes hosts.


class HostsInUse(ModuleFailure):
    """Virtual machines run on hosts that would be changed or restarted."""

    code = "in_use"

    def __init__(self, problems: t.Sequence[str]) -> None:
        """Join the problems."""
        super().__init__("\n".join(["Virtual machines are running. Nothing was changed:", *problems]))
        self.problems = list(problems)


class GraphicsMismatch(ModuleFailure):
    """vCenter does not show what was configured, or a restart has not made it active."""

    code = "mismatch"


def read_machines(center: VCenter, hosts: t.Sequence[HostGraphics]) -> dict[t.Any, HostMachines]:
    """The virtual machines of hosts that are not powered off, by host. A suspended one cannot resume after a change of its GPU."""
    on_gpus = {host.item.ref: {ref for gpu in read_gpus(host.item) for ref in gpu.machines} for host in hosts}
    # The list of a host may lack those that the user may not see; the GPUs name them.
    on_host = {
        ref: list(dict.fromkeys((*host.item.get("vm", ()), *on_gpus[ref]))) for host in hosts for ref in [host.item.ref]
    }
    refs = [(machine, "") for own in on_host.values() for machine in own]
    items = {item.ref: item for item in center.read(refs, {"VirtualMachine": _MACHINE_PROPERTIES})} if refs else {}
    machines = {}
    for host, own in on_host.items():
        running, users, hidden, hidden_users = [], [], 0, 0
        for ref in own:
            item, uses_gpu = items.get(ref), ref in on_gpus[host]
            if item is None or item.get("runtime.powerState") is None:
                hidden += 1
                hidden_users += uses_gpu
            elif str(item.get("runtime.powerState")) != "poweredOff":
                running.append(item.name)
                if uses_gpu or vgpu_profiles(item):
                    users.append(item.name)
        machines[host] = HostMachines(tuple(sorted(users)), tuple(sorted(running)), hidden_users, hidden)
    return machines


class HostConfigurator:
    """Makes the changes of plans, one host after the other."""

    def __init__(
        self,
        center: VCenter,
        request: GraphicsRequest,
        wait_timeout: float,
        report: t.Callable[[str], object] = lambda dummy: None,
    ) -> None:
        """Store the arguments. `report` receives the progress."""
        self._center, self._request, self._timeout, self._report = center, request, wait_timeout, report
        # What `apply` has done to its host so far.
        self._updated = self._restarted = False

    def mig_capable(self, host: HostGraphics) -> dict[str, bool]:
        """Whether each GPU model that the vGPU manager of a host reports supports MIG."""
        manager = host.item.get("configManager.graphicsManager")
        devices = self._center.call("RetrieveVgpuDeviceInfo", manager.RetrieveVgpuDeviceInfo) or ()
        return {str(each.deviceName): bool(each.migCapable) for each in devices}

    def privilege_problems(self, plans: t.Sequence[HostPlan]) -> list[str]:
        """One line for each host on which the user lacks privileges for the changes."""
        needed = required_privileges(plans)
        missing = self._center.missing_privileges(needed) if needed else {}
        paths = {plan.before.item.ref: plan.before.path for plan in plans}
        return [
            f"{paths[ref]}: user {self._center.options.username} lacks the privileges {join_words(names)}; add them to the user's role on this object or "
            "above it"
            for ref, names in missing.items()
        ]

    def check_use(self, plans: t.Sequence[HostPlan]) -> None:
        """Raise HostsInUse if virtual machines are in the way of the changes."""
        changed = [plan for plan in plans if plan.changes]
        machines = read_machines(self._center, [plan.before for plan in changed])
        if problems := [text for plan in changed for text in use_problems(plan, machines[plan.before.item.ref])]:
            raise HostsInUse(problems)

    def apply(self, path: str, ref: t.Any) -> HostPlan:
        """Configure and, if requested, restart a host; returns the plan with the state that vCenter shows afterwards."""
        self._updated = self._restarted = False
        # Others may have changed the host since the run began, and what is written replaces all of it.
        plan = plan_host(self._read(ref, path), self._request)
        if problems := setting_problems([plan], self._request):
            raise InvalidOptions(problems)
        self.check_use([plan])
        host = plan.before
        if plan.updates:
            host = self._update(plan)
        if self._request.restart and owed_restart(host, self._request) != NONE:
            host = self._restart(host)
        return self._done(plan.before, host)

    def done(self, plan: HostPlan) -> HostPlan:
        """What `apply` has done to the host of a plan before it failed, with the state that vCenter shows; what was written if vCenter does not respond."""
        configuring = plan_host(plan.before, dataclasses.replace(self._request, restart=False))
        host = configuring.after if self._updated else plan.before
        with contextlib.suppress(VSphereError):
            host = self._read(plan.before.item.ref, plan.before.path)
        return self._done(plan.before, host)

    def _done(self, before: HostGraphics, after: HostGraphics) -> HostPlan:
        return HostPlan(before, after, self._updated, self._restarted, owed_restart(after, self._request))

    def _read(self, ref: t.Any, path: str) -> HostGraphics:
        items = self._center.read([(ref, "")], {"HostSystem": _HOST_PROPERTIES})
        if not items:
            raise VSphereError(f"{path} no longer exists in vCenter. Run the playbook again.", status=404, path=path)
        return host_graphics(items[0], path)

    def _update(self, plan: HostPlan) -> HostGraphics:
        host = plan.before
        manager = host.item.get("configManager.graphicsManager")
        self._report(f"{host.name}: the graphics configuration changes")
        try:
            self._center.change(
                f"The graphics configuration of {host.path}", manager.UpdateGraphicsConfig, merged_config(plan)
            )
        except VSphereError as error:
            if error.fault == "InvalidArgument" and _sets_mig(plan):
                error.message = f"{as_sentence(error.message)} {_MIG_BY_HAND}"
                error.args = (error.message,)
            raise
        self._updated = True

        def describe(shown: HostGraphics) -> str:
            actual, expected = shown.shown(active=False), plan.after.shown(active=False)
            return (
                f"{host.path}: vCenter has accepted the graphics configuration but shows {actual} instead of {expected}. Check the host in vCenter (Configure, "
                "Graphics); ESXi must be as new as vCenter for modes of GPUs."
            )

        try:
            return wait_until(
                lambda: self._read(host.item.ref, host.path),
                lambda shown: not plan_host(shown, self._request).updates,
                timeout=_SHOWN_AFTER,
                first_interval=0.1,
                describe=describe,
                option="",
            )
        except WaitTimeout as error:
            raise GraphicsMismatch(str(error)) from error

    def _restart(self, host: HostGraphics) -> HostGraphics:
        """Restart a host without running virtual machines. It is in maintenance mode meanwhile, so that none starts, and never restarted by force."""
        ref, before = host.item.ref, host.item.get("runtime.bootTime")
        if not host.in_maintenance:
            self._enter_maintenance(host)
        try:
            self._report(f"{host.name}: the host restarts")
            what = f"the restart of {host.path}"
            self._center.wait_task(self._center.change(what, ref.RebootHost_Task, False), what, self._timeout)
        except VSphereError:
            if not host.in_maintenance:
                with contextlib.suppress(VSphereError, WaitTimeout):
                    self._exit_maintenance(host)
            raise
        self._restarted = True
        kept = "" if host.in_maintenance else " It is still in maintenance mode."
        wait_until(
            lambda: self._read(ref, host.path),
            lambda shown: is_reachable(shown.item) and shown.item.get("runtime.bootTime") != before,
            timeout=self._timeout,
            interval=_RESTART_INTERVAL,
            first_interval=0.2,
            describe=lambda shown: (
                f"{host.path} is {shown.state} after the command to restart; look at its console.{kept}"
            ),
        )
        if not host.in_maintenance:
            self._exit_maintenance(host)

        def describe(shown: HostGraphics) -> str:
            advice = (
                f" {_MIG_BY_HAND}"
                if any(MULTI_INSTANCE in (gpu.active.vgpu_mode, gpu.configured.vgpu_mode) for gpu in shown.gpus)
                else ""
            )
            return f"{host.path} has restarted, but its GPUs still run with {shown.shown(active=True)}. Check the vGPU manager of the host.{advice}"

        try:
            return wait_until(
                lambda: self._read(ref, host.path),
                lambda shown: owed_restart(shown, self._request) == NONE,
                timeout=_SHOWN_AFTER,
                first_interval=0.1,
                describe=describe,
                option="",
            )
        except WaitTimeout as error:
            raise GraphicsMismatch(str(error)) from error

    def _enter_maintenance(self, host: HostGraphics) -> None:
        what = f"the maintenance mode of {host.path}"
        seconds = int(self._timeout)
        # vCenter ends the task after this time, so that the host does not enter maintenance mode later.
        task = self._center.change(what, host.item.ref.EnterMaintenanceMode_Task, seconds, False)
        try:
            self._center.wait_task(task, what, self._timeout)
        except WaitTimeout:
            with contextlib.suppress(VSphereError):
                self._center.change(f"the end of {what}", task.CancelTask)
            raise

    def _exit_maintenance(self, host: HostGraphics) -> None:
        what = f"the end of the maintenance mode of {host.path}"
        task = self._center.change(what, host.item.ref.ExitMaintenanceMode_Task, int(self._timeout))
        self._center.wait_task(task, what, self._timeout)


# MIG is a documented state of a GPU (HostGraphicsInfoVgpuMode), but not among the documented modes that can be set (HostGraphicsConfigVgpuMode).
_MIG_BY_HAND = "vSphere's API does not set MIG on every release: run nvidia-smi -i PCI_ID -mig 1 (or -mig 0) on the host, restart the host, and run this again."


def _sets_mig(plan: HostPlan) -> bool:
    return any(gpu.configured.vgpu_mode == MULTI_INSTANCE for gpu in plan.after.gpus)


def merged_config(plan: HostPlan) -> t.Any:
    """The present configuration with the changes of the plan. What the plan does not change is carried over, also what only other releases know."""
    config = copy.deepcopy(plan.before.item.get("config.graphicsConfig"))
    config.hostDefaultGraphicsType = plan.after.default_type
    config.sharedPassthruAssignmentPolicy = plan.after.assignment_policy
    entries = {each.deviceId.lower(): each for each in config.deviceType or ()}
    for old, gpu in zip(plan.before.gpus, plan.after.gpus, strict=True):
        if not gpu.explicit or (gpu.configured == old.configured and old.explicit):
            continue
        entry = entries.get(gpu.pci_id.lower())
        if entry is None:
            entry = vim.host.GraphicsConfig.DeviceType(deviceId=gpu.pci_id)
            config.deviceType = [*(config.deviceType or ()), entry]
        entry.graphicsType = gpu.configured.graphics_type
        if gpu.configured.vgpu_mode not in NOT_APPLICABLE:
            entry.vgpuMode = gpu.configured.vgpu_mode
    return config
