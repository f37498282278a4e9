#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Excludes the MachineSets of this collection from the updates of OpenShift's boot images."""

from __future__ import annotations

DOCUMENTATION = r"""
module: boot_images
short_description: Exclude MachineSets with GPUs from OpenShift's updates of boot images on vSphere
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - On vSphere, OpenShift's Machine Config Operator replaces the templates of MachineSets with its own boot image, which has no GPU. OpenShift 4.22 and later do
    this by default, and OpenShift 4.20 and 4.21 only if the MachineConfiguration C(cluster) selects MachineSets.
  - The module restricts the selection in C(spec.managedBootImages.machineManagers) to MachineSets without the label C(accel.gpu/nodegroup), which every
    MachineSet of this collection has. OpenShift continues to update all other MachineSets, which need no label. Entries for other resources are kept.
  - If the selection already excludes the MachineSets, for example because its mode is C(None), nothing is changed. A selection that others have set and that
    includes the MachineSets is only changed with O(narrow).
  - On OpenShift 4.20 and 4.21, a MachineConfiguration without a selection is not changed, because a selection would switch on the updates of other MachineSets.
    A warning describes what to do when the cluster is upgraded.
  - On older releases, on other platforms, and on clusters without this API, the module does nothing.
extends_documentation_fragment:
  - accel.gpu.kube
  - accel.gpu.wait
  - accel.gpu.lease
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
  - accel.gpu.attributes.progress
options:
  namespace:
    description: Namespace of the MachineSets.
    type: str
    default: openshift-machine-api
  names:
    description:
      - Names of node groups whose MachineSets may not exist yet. The existing MachineSets of this collection are always included.
    type: list
    elements: str
    default: []
  narrow:
    description:
      - Whether a selection that others have set may be restricted. The mode C(All) becomes C(Partial), and a selector gets one more condition. With V(false),
        the module fails instead, and its message contains the entry to set.
    type: bool
    default: false
notes:
  - The module is done when the status of the MachineConfiguration shows that the operator has adopted the selection.
  - MachineSets that the operator skips are not considered, for example those with an owner or with a different stream of the operating system.
seealso:
  - module: accel.gpu.machineset
  - module: accel.gpu.vgpu_template
"""

EXAMPLES = r"""
- name: Exclude the MachineSets with vGPUs before the first one is created
  accel.gpu.boot_images:
    gpu_cluster: "{{ gpu_cluster }}"
    names: [desktops]

- name: Also restrict a selection that an administrator has set
  accel.gpu.boot_images:
    gpu_cluster: "{{ gpu_cluster }}"
    narrow: true
"""

RETURN = r"""
boot_images:
  description: The selection of the MachineSets whose templates OpenShift replaces, after the run or, in check mode, as predicted.
  returned: success, or if the wait was not successful
  type: dict
  contains:
    mode:
      description:
        - V(All), V(Partial) or V(None). V(None) also if OpenShift manages no templates by default or at all.
      type: str
      returned: always
      sample: Partial
    guarded:
      description:
        - Whether the MachineConfiguration excludes the MachineSets of this collection. V(false) if it does not need to, because this release or platform does
          not replace their templates.
      type: bool
      returned: always
      sample: true
    narrowed:
      description: Whether this run has restricted a selection that others have set.
      type: bool
      returned: always
      sample: false
code:
  description:
    - The reason for the failure. V(invalid) - errors in the options, or a selection of others includes the MachineSets and O(narrow) is V(false).
      V(timeout) - see O(wait_timeout). V(wrong_cluster) - the connection points to a different cluster. V(connection) - no usable connection settings.
      V(unreachable) - the API server does not respond. V(lease_held) - another run holds the Lease. V(lease_lost) - this run lost it. Otherwise, the
      HTTP status of the API server's error.
  returned: failure
  type: raw
  sample: invalid
details:
  description:
    - Details of the failure. C(problems) lists all errors. C(reason), C(method) and C(path) describe the failed request.
  returned: failure
  type: dict
  sample: {problems: ["names[0]: \"Desktops\" is not valid"]}
"""

import typing as t

from ..module_utils.catalog.openshift import (
    BOOT_IMAGES_SINCE,
    MACHINE_CONFIGURATION_API,
    MACHINE_CONFIGURATION_PATH,
    NAMESPACE_OPTION,
    machine_sets_path,
)
from ..module_utils.clouds.boot_images import (
    UNMANAGED,
    Guard,
    declared_selection,
    guard_of,
    guarded_machinesets,
    is_guarded,
    refusal,
    state_text,
    upgrade_warning,
)
from ..module_utils.clouds.machineset_groups import MachineApi
from ..module_utils.core.errors import InvalidOptions
from ..module_utils.core.messages import diff_of, quote
from ..module_utils.core.module import ArgumentSpec
from ..module_utils.core.values import Document, Object, get_nested
from ..module_utils.core.waits import WaitOptions
from ..module_utils.kube.errors import retry_conflicts
from ..module_utils.kube.module import GpuModule
from ..module_utils.kube.objects import write_or_dry_run
from ..module_utils.schema.providers import MACHINESET

if t.TYPE_CHECKING:
    from ..module_utils.catalog.releases import Release

_SPEC: ArgumentSpec = {
    **NAMESPACE_OPTION,
    "names": {"type": "list", "elements": "str", "default": []},
    "narrow": {"type": "bool", "default": False},
}


def work(module: GpuModule) -> dict[str, t.Any]:
    """Compare the selection with the MachineSets, restrict it if it includes them, and wait until the operator has adopted it."""
    params, client = module.params, module.client
    _check_names(params["names"])
    live = client.get(MACHINE_CONFIGURATION_PATH)
    if is_guarded(live):
        return _result(Guard(declared_selection(live) or UNMANAGED))
    api = MachineApi(client, params["namespace"])
    release = api.release()
    if not _replaces_templates(api, release, live):
        return _result(Guard(UNMANAGED, by_default=True))
    machinesets = guarded_machinesets(params["names"], client.list_known(machine_sets_path(params["namespace"])))
    guard = _guard(params, live, release, machinesets)
    result = _result(guard)
    if guard.changed:
        with module.lease() as lease:
            lease.check()
            result = _apply(module, live, guard, lambda now: _guard(params, now, release, machinesets))
    if guard.by_default:
        module.warn(upgrade_warning(release))
    elif params["wait"] and not module.check_mode:
        WaitOptions(params["wait_timeout"], params["wait_sleep"], module.progress).until(
            lambda: client.get(MACHINE_CONFIGURATION_PATH),
            lambda now: is_guarded(now, machinesets),
            describe=state_text,
            partial=lambda now: result,
            progress_text=lambda now: "waiting for the Machine Config Operator to adopt the selection of boot images",
        )
    return result


def _check_names(names: t.Sequence[str]) -> None:
    problems = [
        f"names[{index}]: {quote(name)} {problem}"
        for index, name in enumerate(names)
        if (problem := MACHINESET.name_rule(name))
    ]
    if problems:
        raise InvalidOptions(problems)


def _replaces_templates(api: MachineApi, release: Release, live: Object | None) -> bool:
    """Whether OpenShift can replace templates in this cluster: in this release, on vSphere, and with the API of the object, which may not exist yet."""
    if release < BOOT_IMAGES_SINCE:
        return False
    if get_nested(api.infrastructure(), "status", "platformStatus", "type") not in (None, "VSphere"):
        return False
    served = live or api.client.get(f"/apis/{MACHINE_CONFIGURATION_API}") or {}
    return live is not None or any(each["kind"] == "MachineConfiguration" for each in served.get("resources") or ())


def _guard(
    params: t.Mapping[str, t.Any], live: Object | None, release: Release, machinesets: t.Sequence[Document]
) -> Guard:
    """The guard for the object as it is. Raises InvalidOptions if it restricts a selection of others without permission."""
    guard = guard_of(live, release, machinesets)
    if guard.narrowed is not None and not params["narrow"]:
        raise InvalidOptions([refusal(guard, machinesets)])
    return guard


def _apply(
    module: GpuModule, live: Object | None, guard: Guard, compute: t.Callable[[Object | None], Guard]
) -> dict[str, t.Any]:
    """Send the guard and return the result. After a conflict, the guard is computed again, and may no longer be needed."""
    sent = (live, guard)

    def send(now: tuple[Object | None, Guard]) -> Object:
        return module.client.apply(
            MACHINE_CONFIGURATION_PATH,
            now[1].body(now[0]),
            dry_run=module.check_mode,
            # Without a selection of others, an owner of the same fields can only be one that has just appeared.
            force_conflicts=now[1].narrowed is not None,
            field_validation="Strict",
        )

    def recompute() -> tuple[Object | None, Guard] | None:
        nonlocal sent
        now = module.client.get(MACHINE_CONFIGURATION_PATH)
        sent = (now, compute(now))
        return sent if sent[1].changed else None

    unchecked = write_or_dry_run(lambda: retry_conflicts(send, sent, recompute), check=module.check_mode)
    before, guard = sent
    if not guard.changed:
        return _result(guard)
    managers = {"machineManagers": get_nested(before, "spec", "managedBootImages", "machineManagers") or []}
    after = {"machineManagers": guard.managers(before)}
    return _result(guard, diff_of(managers, after, "spec.managedBootImages of MachineConfiguration cluster", unchecked))


def _result(guard: Guard, diff: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
    return {
        "changed": diff is not None,
        "boot_images": {
            "mode": guard.selection["mode"],
            "guarded": not guard.by_default,
            "narrowed": diff is not None and guard.narrowed is not None,
        },
        "diff": diff or diff_of({}, {}),
    }


def main() -> None:
    """Run the module."""
    GpuModule(_SPEC, wait=True, lease=True).run(work)


if __name__ == "__main__":
    main()
