# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks whether a vGPU guest driver works with the manager on the hypervisor (pure).

Sources: NVIDIA vGPU 19.0 release notes, "Compatibility"; NVIDIA/gpu-driver-container vgpu/src/vgpu-util.go, which reads vgpuDriverCatalog.yaml. The last
number of a guest's version may be lower or higher than the manager's, so releases are compared, never version numbers.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..catalog.vgpu_releases import LONG_TERM_BRANCHES, RELEASES, branch_of, release_with
from ..schema.messages import type_name

Document = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class Compatibility:
    """The result of a check: a problem rejects the versions, and a warning is only shown. Both are empty for compatible versions."""

    problem: str = ""
    warning: str = ""


def check_compatibility(guest: str, manager: str, catalog: Document | None = None) -> Compatibility:
    """Whether a vGPU manager supports a guest driver. `catalog` is NVIDIA's vgpuDriverCatalog.yaml, which overrides the collection's table."""
    guest_branch, host_branch = branch_of(guest), branch_of(manager)
    if catalog is not None:
        return _by_catalog(guest, manager, catalog)
    if (guest_branch is None or host_branch is None) and _major(guest) > _major(manager) > 0:
        return Compatibility(
            problem=f"Guest driver {guest} belongs to a newer branch than vGPU manager {manager}: the driver would not load. Use a driver of branch "
            f"{_major(manager)}, or upgrade the manager."
        )
    if guest_branch is None or host_branch is None:
        unknown = guest if guest_branch is None else manager
        return Compatibility(
            warning=f"The branch of {unknown} is unknown, so it is not verified that guest driver {guest} works with vGPU manager {manager}. "
            "Check NVIDIA's release notes, or set gpu_driver_image_catalog_file (option catalog_file of the module) to the path of vgpuDriverCatalog.yaml."
        )
    if guest_branch > host_branch:
        return Compatibility(
            problem=f"Guest driver {guest} belongs to vGPU {guest_branch}, and is newer than vGPU manager {manager} of vGPU {host_branch}: the driver "
            f"would not load. Use a driver of vGPU {host_branch}{_example(host_branch)}, or upgrade the manager."
        )
    if not _supports(host_branch, guest_branch):
        return Compatibility(
            problem=f"vGPU manager {manager} of vGPU {host_branch} does not support guest driver {guest} of vGPU {guest_branch}. Use a driver of "
            f"vGPU {host_branch}{_example(host_branch)}."
        )
    return Compatibility(warning=_unlisted(guest, manager))


def _major(version: str) -> int:
    """The first number of a version, which increases with each branch; 0 if it is not a number."""
    text = version.partition(".")[0]
    return int(text) if text.isdecimal() else 0


def catalog_problem(document: t.Any) -> str:
    """The reason why a document does not have the format of vgpuDriverCatalog.yaml; empty if it does."""
    if not isinstance(document, dict):
        return "it is empty, or not YAML" if document is None else f"it is {type_name(document)}, not a map"
    return next(_catalog_problems(document), "")


def _catalog_problems(document: Document) -> t.Iterator[str]:
    """The problems with the format; the caller must stop after the first one."""
    for kind, listed in (("branch", str), ("driver", dict)):
        yield from _mismatch(kind, document.get(kind), list)
        for number, entry in enumerate(document.get(kind) or ()):
            path = f"{kind}[{number}]"
            yield from _mismatch(path, entry, dict)
            for name in ("name", "type", "version", "branch"):
                yield from _mismatch(f"{path}.{name}", entry.get(name), str)
            for name in ("allow", "deny"):
                yield from _mismatch(f"{path}.{name}", entry.get(name), dict)
                rules = (entry.get(name) or {}).get(kind) or []
                yield from _mismatch(f"{path}.{name}.{kind}", rules, list)
                for index, rule in enumerate(rules):
                    yield from _mismatch(f"{path}.{name}.{kind}[{index}]", rule, listed)


def _mismatch(path: str, value: t.Any, kind: type) -> t.Iterator[str]:
    """Yield a problem if a value has the wrong type; a number is accepted in place of a string, because a version can be a number."""
    if value is not None and not isinstance(value, (str, int, float) if kind is str else kind):
        yield f"{path} is {type_name(value)}, not {type_name(kind())}"


def _supports(host: int, guest: int) -> bool:
    """Whether the guest belongs to the host's branch, to the branch before it or, if both are long-term branches, to the previous long-term branch."""
    if guest in (host, host - 1):
        return True
    if host not in LONG_TERM_BRANCHES or guest not in LONG_TERM_BRANCHES:
        return False
    return LONG_TERM_BRANCHES.index(host) - LONG_TERM_BRANCHES.index(guest) == 1


def _example(branch: int) -> str:
    newest = next((item.guest for item in RELEASES if item.branch == branch and item.guest), "")
    return f", such as {newest}" if newest else ""


def _unlisted(guest: str, manager: str) -> str:
    """The warning about versions that the table does not contain; empty if it contains both."""
    unknown = []
    if release_with(guest=guest) is None:
        unknown.append(f"guest driver {guest}")
    if release_with(manager=manager) is None:
        unknown.append(f"vGPU manager {manager}")
    if not unknown:
        return ""
    names = " and ".join(unknown)
    return f"The catalog does not have {names}; only the branches were compared. Check NVIDIA's release notes."


def _by_catalog(guest: str, manager: str, catalog: Document) -> Compatibility:
    """The result according to NVIDIA's catalog; if the catalog lacks a version, a warning is added, and the collection's table is used."""
    drivers = [entry for entry in catalog.get("driver") or () if isinstance(entry, dict)]
    branches = {
        (entry.get("type"), entry.get("name")): entry
        for entry in catalog.get("branch") or ()
        if isinstance(entry, dict)
    }
    host = next((one for one in drivers if one.get("type") == "host" and one.get("version") == manager), None)
    own = next((one for one in drivers if one.get("type") == "guest" and one.get("version") == guest), None)
    if host is None or own is None:
        missing = f"vGPU manager {manager}" if host is None else f"guest driver {guest}"
        # The collection's table determines the result; the warning contains the version that NVIDIA's catalog lacks.
        verdict = check_compatibility(guest, manager)
        text = f"vgpuDriverCatalog.yaml does not have {missing}; the newest one is on NVIDIA's licensing portal."
        return Compatibility(verdict.problem, text if not verdict.problem else "")
    if any(one.get("version") == manager for one in (own.get("deny") or {}).get("driver") or ()):
        return Compatibility(
            problem=f"vgpuDriverCatalog.yaml excludes guest driver {guest} for vGPU manager {manager}."
        )
    if any(one.get("version") == manager for one in (own.get("allow") or {}).get("driver") or ()):
        return Compatibility()
    guest_rules = branches.get(("guest", own.get("branch"))) or {}
    host_rules = branches.get(("host", host.get("branch"))) or {}
    if _allows(guest_rules, host.get("branch")) and _allows(host_rules, own.get("branch")):
        return Compatibility()
    return Compatibility(
        problem=f"vgpuDriverCatalog.yaml does not allow guest driver {guest} (branch {own.get('branch')}) for vGPU manager {manager} "
        f"(branch {host.get('branch')}). Use a driver of a branch that it lists for this manager."
    )


def _allows(rules: Document, branch: t.Any) -> bool:
    allowed, denied = ((rules.get(key) or {}).get("branch") or () for key in ("allow", "deny"))
    return branch in allowed and branch not in denied
