# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checklist of what ESXi hosts need to run the vGPUs of pools: evidence from vCenter, and the remedy with its command (pure)."""

from __future__ import annotations

import dataclasses
import shlex
import textwrap
import typing as t
from dataclasses import dataclass

from ..catalog.releases import branch_of
from ..catalog.vgpu import vgpu_type
from ..core.messages import WIDTH, abbreviate, as_sentence, join_words, option_of_role, printable
from .hosts import (
    BASIC,
    DIRECT,
    END_MAINTENANCE,
    HOST,
    NONE,
    NOT_APPLICABLE,
    RESTART_COMMANDS,
    XORG,
    GraphicsGpu,
    GraphicsRequest,
    HostGraphics,
    owed_restart,
)
from .inventory import MULTI_INSTANCE, SHARED_DIRECT, SHARED_DIRECT_BY, Host, runs_profile

OK, WARNING, PROBLEM = "ok", "warning", "problem"
_PROFILE_OPTION, _DRIVER_OPTION = (
    option_of_role("vgpu.profile", "profile"),
    option_of_role("driver.version", "driver_version"),
)
_INSTALL = "esxcli software vib install -d /vmfs/volumes/DATASTORE/NVD-VMware-x86_64-VERSION-bundle.zip && esxcli system shutdown reboot --reason vGPU"
_SHOW_BIOS = "nvidia-smi -q | grep -i 'vgpu mode'"


@dataclass(frozen=True)
class Check:
    """One line of the checklist, about a host or a pool: the evidence and, unless the status is OK, the remedy with the command for it."""

    subject: str
    check: str
    status: str
    evidence: str
    remedy: str = ""
    command: str = ""

    def to_result(self) -> dict[str, t.Any]:
        """The line as the module returns it. It is text for people, so names from vCenter cannot change the terminal."""
        return t.cast("dict[str, t.Any]", printable(dataclasses.asdict(self)))


@dataclass(frozen=True)
class PoolNeeds:
    """What the nodes of a pool in one cluster of vSphere need from its hosts. `driver_version` is that of the guest driver, None if it is not declared."""

    name: str
    profile: str
    driver_version: str | None = None


@dataclass(frozen=True)
class HostEvidence:
    """What is known about a host; `manager` is the version of the vGPU manager, empty if it is not installed, None if it is not known."""

    graphics: HostGraphics
    offers: Host
    manager: str | None

    @property
    def name(self) -> str:
        """Its name in vCenter."""
        return self.offers.name


# The problem and the warning of a guest driver with a vGPU manager; both are empty if they fit.
Compatibility = t.Callable[[str, str], tuple[str, str]]


def host_checks(host: HostEvidence, pools: t.Sequence[PoolNeeds], compatibility: Compatibility) -> list[Check]:
    """The checks of one host."""
    return [
        *_connection_checks(host),
        *_manager_checks(host),
        *_driver_checks(host, pools, compatibility),
        *_graphics_checks(host),
    ]


def _connection_checks(host: HostEvidence) -> t.Iterator[Check]:
    if not host.offers.reachable:
        text = f"the host is {host.graphics.state}; the other values are the last that vCenter knows"
        yield Check(host.name, "connection", PROBLEM, text, "Connect the host in vCenter.")
    elif host.graphics.in_maintenance:
        yield Check(
            host.name,
            "connection",
            WARNING,
            "the host is in maintenance mode, so no virtual machine starts on it",
            "End the maintenance mode when the host is ready.",
            END_MAINTENANCE,
        )


def _manager_checks(host: HostEvidence) -> t.Iterator[Check]:
    if host.manager:
        branch = branch_of(host.manager)
        yield Check(host.name, "manager", OK, f"vGPU manager {host.manager}" + (f" (vGPU {branch})" if branch else ""))
    elif host.manager == "":
        yield Check(
            host.name,
            "manager",
            PROBLEM,
            "the vGPU manager is not installed",
            "Install it in maintenance mode, from NVIDIA's licensing portal and for this release of ESXi; with vSphere Lifecycle Manager, add it to the image "
            "of the cluster.",
            _INSTALL,
        )
    else:
        proof = (
            "profiles are offered, so it is installed" if host.offers.known else "whether it is installed is not known"
        )
        yield Check(
            host.name,
            "manager",
            WARNING,
            f"the version of the vGPU manager cannot be read; {proof}",
            "Give the user the privilege Host.Config.Image on the host, or connect the host.",
        )


def _driver_checks(host: HostEvidence, pools: t.Sequence[PoolNeeds], compatibility: Compatibility) -> t.Iterator[Check]:
    versions: dict[str, list[str]] = {}
    for pool in pools:
        if pool.driver_version:
            versions.setdefault(pool.driver_version, []).append(pool.name)
    for version, names in sorted(versions.items() if host.manager else ()):
        problem, warning = compatibility(version, t.cast("str", host.manager))
        text = f"guest driver {version} of {join_words(names)}"
        if problem:
            yield Check(host.name, "driver", PROBLEM, text, problem)
        elif warning:
            yield Check(host.name, "driver", WARNING, text, warning)
        else:
            yield Check(host.name, "driver", OK, f"{text} fits")


def _graphics_checks(host: HostEvidence) -> t.Iterator[Check]:
    graphics, name = host.graphics, host.name
    gpus = [gpu for gpu in graphics.gpus if gpu.active.graphics_type != DIRECT]
    for gpu in graphics.gpus:
        if gpu not in gpus:
            text = f"{gpu.pci_id} ({gpu.name}) is passed through to a virtual machine as a whole"
            yield Check(
                name,
                "graphics",
                WARNING,
                text,
                "For vGPUs, switch passthrough off (vSphere Client: Configure, PCI Devices).",
            )
    if not gpus:
        if not graphics.gpus:
            yield Check(
                name,
                "graphics",
                WARNING,
                "vCenter shows no NVIDIA GPU",
                "Check the GPU in the BIOS, and restart the host.",
                "lspci | grep -i nvidia",
            )
        return
    wrong = [gpu for gpu in gpus if gpu.configured.graphics_type != SHARED_DIRECT]
    owed = owed_restart(graphics, GraphicsRequest())
    idle = [gpu for gpu in gpus if gpu.active.graphics_type == BASIC]
    if wrong or graphics.default_type != SHARED_DIRECT:
        text = f"default graphics type {graphics.default_type or 'unknown'}"
        if wrong:
            text += ", " + ", ".join(f"{gpu.pci_id} {gpu.configured.graphics_type or 'unknown'}" for gpu in wrong)
        yield Check(
            name,
            "graphics",
            PROBLEM,
            text,
            f"Set Shared Direct {SHARED_DIRECT_BY}.",
            _apply(name),
        )
    elif owed != NONE:
        what = "Xorg" if owed == XORG else "the host"
        text = f"Shared Direct is configured, but {graphics.shown(active=True)} is active"
        yield Check(
            name,
            "graphics",
            PROBLEM,
            text,
            f"Restart {what} while no virtual machine uses the GPUs. The playbook vsphere_hosts restarts the host with gpu_vsphere_hosts_apply=true and "
            "gpu_vsphere_hosts_restart=true, and the module host_graphics with restart=host.",
            RESTART_COMMANDS[owed],
        )
    elif idle:
        text = f"no driver runs {join_words([gpu.pci_id for gpu in idle])}"
        yield Check(
            name, "graphics", PROBLEM, text, "Install the vGPU manager, and restart the host.", RESTART_COMMANDS[HOST]
        )
    else:
        yield Check(name, "graphics", OK, f"Shared Direct is configured and active: {_summary(gpus)}")
        if host.manager != "" and not host.offers.known:
            yield Check(
                name,
                "bios",
                PROBLEM,
                "the GPUs offer no vGPU profile",
                "Switch on SR-IOV, VT-d or AMD-Vi, and memory-mapped I/O above 4 GB in the BIOS. The command must show Host VGPU Mode: SR-IOV for GPUs since "
                "Ampere.",
                _SHOW_BIOS,
            )


def _apply(host: str) -> str:
    playbook = "ansible-playbook -i INVENTORY accel.gpu.vsphere_hosts -e gpu_vsphere_hosts_apply=true"
    return f"{playbook} -e gpu_vsphere_hosts_names={shlex.quote(host)}"


def _summary(gpus: t.Sequence[GraphicsGpu]) -> str:
    kinds: dict[str, int] = {}
    for gpu in gpus:
        mode = "" if gpu.active.vgpu_mode in NOT_APPLICABLE else f" in mode {gpu.active.vgpu_mode}"
        kinds[f"{gpu.name}{mode}"] = kinds.get(f"{gpu.name}{mode}", 0) + 1
    return join_words([f"{count} x {kind}" for kind, count in kinds.items()])


def pool_checks(pool: PoolNeeds, hosts: t.Sequence[HostEvidence], compatibility: Compatibility) -> list[Check]:
    """The checks of one pool against the hosts of its cluster."""
    checks = [_profile_check(pool, hosts, compatibility)]
    if not pool.driver_version:
        text = "the version of the guest driver is not declared, so it is not compared with the vGPU managers"
        checks.append(
            Check(pool.name, "driver", WARNING, text, f"Declare driver.type: vgpu and {_DRIVER_OPTION} of the pool.")
        )
    return checks


def _profile_check(pool: PoolNeeds, hosts: t.Sequence[HostEvidence], compatibility: Compatibility) -> Check:
    """Whether hosts offer the profile. It does not compare the number of nodes with the room on the hosts."""
    offering = [host for host in hosts if _has(host.offers.known, pool) or _has(host.offers.placeable, pool)]
    if not offering:
        return _missing_profile(pool, hosts)
    where = abbreviate([host.name for host in offering])
    able = [host for host in offering if host.offers.reachable and runs_profile(pool.profile, host.offers)]
    if not able:
        text = f"{pool.profile} is offered by {where}, but cannot run there: {abbreviate([_state(host) for host in offering], separator='; ')}"
        return Check(
            pool.name, "profile", PROBLEM, text, "Correct the problems of these hosts, which are listed above."
        )
    broken = [
        host
        for host in able
        if host.manager and pool.driver_version and compatibility(pool.driver_version, host.manager)[0]
    ]
    if len(broken) == len(able):
        where = abbreviate([host.name for host in able])
        text = f"{pool.profile} is offered by {where}, whose vGPU manager does not support guest driver {pool.driver_version}"
        return Check(
            pool.name, "profile", PROBLEM, text, f"Upgrade the vGPU manager, or declare another {_DRIVER_OPTION}."
        )
    placeable = [
        host.name for host in able if host.offers.usable and _has(host.offers.placeable, pool) and host not in broken
    ]
    if not placeable:
        text = f"{pool.profile} is offered by {where}, but no further vGPU can be placed at present"
        return Check(
            pool.name, "profile", WARNING, text, "Free a GPU before the pool grows; end the maintenance mode of hosts."
        )
    return Check(
        pool.name,
        "profile",
        OK,
        f"{pool.profile} is offered by {where}, and can be placed now on {abbreviate(placeable)}",
    )


def _state(host: HostEvidence) -> str:
    graphics = host.graphics
    return (
        f"{host.name} {f'runs with {graphics.shown(active=True)}' if host.offers.reachable else f'is {graphics.state}'}"
    )


def _has(profiles: t.Iterable[str], pool: PoolNeeds) -> bool:
    return pool.profile.lower() in (name.lower() for name in profiles)


def _missing_profile(pool: PoolNeeds, hosts: t.Sequence[HostEvidence]) -> Check:
    text = f"no host offers {pool.profile}"
    plain = [host for host in hosts if any(gpu.active.vgpu_mode != MULTI_INSTANCE for gpu in host.graphics.gpus)]
    kind = vgpu_type(pool.profile)
    if kind and kind.slices and plain:
        remedy = (
            f"The profile needs MIG, which divides the GPUs of a host for all pools. Choose the hosts, such as {plain[0].name}, and set their mode; their "
            "other profiles disappear."
        )
        command = (
            f"{_apply(plain[0].name)} -e gpu_vsphere_hosts_vgpu_mode={MULTI_INSTANCE} -e gpu_vsphere_hosts_restart=true"
        )
        return Check(pool.name, "profile", PROBLEM, text, remedy, command)
    known = sorted({name for host in hosts for name in host.offers.known})
    listed = (
        f"Offered: {abbreviate(known, 20)}."
        if known
        else "The hosts offer no profile at all; correct the problems of the hosts."
    )
    return Check(pool.name, "profile", PROBLEM, text, f"Correct {_PROFILE_OPTION}, or prepare the hosts. {listed}")


def checklist_lines(title: str, checks: t.Sequence[Check]) -> list[str]:
    """The checklist as text: a line for each check, and the remedy and the command below those that are not OK."""
    lines = [title]
    names = max([len(check.subject) for check in checks], default=0)
    for check in checks:
        head = f"  {check.status:<8} {check.subject:<{names}}  {check.check:<10} "
        lines += textwrap.wrap(
            check.evidence,
            WIDTH + names,
            initial_indent=head,
            subsequent_indent=" " * len(head),
            break_on_hyphens=False,
        )
        if check.remedy:
            lines += textwrap.wrap(
                as_sentence(check.remedy),
                WIDTH + names,
                initial_indent=" " * 11,
                subsequent_indent=" " * 11,
                break_on_hyphens=False,
            )
        # A command is one line, so that it can be copied.
        lines += [f"           $ {check.command}"] if check.command else []
    return lines
