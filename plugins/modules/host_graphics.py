#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configures the graphics of ESXi hosts."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_graphics
short_description: Configure the graphics types and vGPU modes of ESXi hosts
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Sets the default graphics type, the assignment policy, and the graphics type and the mode of NVIDIA GPUs. Everything else in the graphics configuration of
    a host is kept; vCenter replaces the whole configuration.
  - Compares what is configured with what is active, and returns what must restart. The module restarts nothing by default. Without any setting, it only
    returns the state, and with O(restart=host) it makes a configuration active that an earlier run has left.
  - Changes no host whose GPUs are used by virtual machines that are not powered off; the message names them. Nothing is changed if one of the hosts cannot be
    changed.
extends_documentation_fragment:
  - accel.gpu.vsphere
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
  - accel.gpu.attributes.progress
options:
  datacenter:
    description: Name or inventory path of the data center of O(cluster) and O(hosts).
    type: str
  cluster:
    description: Name or inventory path of a compute cluster, all of whose hosts with NVIDIA GPUs are configured. Exactly one of O(cluster) and O(hosts) is
      required.
    type: str
  hosts:
    description: Names or inventory paths of hosts.
    type: list
    elements: str
  graphics_type:
    description:
      - The default graphics type of the host. V(sharedDirect) (Shared Direct) is required for vGPUs. A GPU with an own entry in the configuration keeps its
        type; see O(gpus).
    type: str
    choices: [shared, sharedDirect]
  assignment_policy:
    description: How virtual machines are assigned to GPUs. V(performance) spreads them, V(consolidation) fills one GPU after the other.
    type: str
    choices: [performance, consolidation]
  gpus:
    description: Settings of GPUs. The entry without O(gpus[].pci_id) applies to all NVIDIA GPUs of each host; an entry with it overrides that one.
    type: list
    elements: dict
    default: []
    suboptions:
      pci_id:
        description: PCI id of a GPU, such as C(0000:3b:00.0). Each of the hosts must have it.
        type: str
      graphics_type:
        description: Graphics type of the GPU.
        type: str
        choices: [shared, sharedDirect]
      vgpu_mode:
        description:
          - How the GPU is divided among vGPUs. V(sameSize) and V(mixedSize) are time-sliced, with one or with several sizes at a time. V(multiInstanceGpu) is
            MIG, which MIG-backed profiles need. Requires version 8.0.3 of the API, in vCenter and in pyvmomi.
          - VMware's documentation lists V(multiInstanceGpu) as a state of GPUs, but not as a mode that can be set. If vCenter refuses it, the message contains
            the command for the host. A GPU on which MIG is already on is left as it is.
        type: str
        choices: [sameSize, mixedSize, multiInstanceGpu]
  restart:
    description:
      - Whether hosts are restarted on which the configuration is not active, one after the other. V(host) requires that a host is in maintenance mode, or that
        all its virtual machines are powered off. In the second case, the host is in maintenance mode during the restart. It is never restarted by force.
      - A restart of Xorg, which is sufficient for graphics types, is not possible with vCenter's API. RV(hosts[].restart_command) contains the command.
    type: str
    choices: [never, host]
    default: never
  wait_timeout:
    description: Seconds to wait for each task of vCenter, and for a host to restart.
    type: int
    default: 1800
notes:
  - The user needs C(Host.Config.Settings) on the hosts, and C(Host.Config.Maintenance) with O(restart=host).
  - If a run is killed while a host restarts, the host may stay in maintenance mode. Later runs do not end a maintenance mode that they have not begun, but warn
    of it.
seealso:
  - module: accel.gpu.vgpu_host_info
  - module: accel.gpu.vgpu_profile_info
"""

EXAMPLES = r"""
- name: Configure all hosts of a cluster for vGPUs
  accel.gpu.host_graphics:
    hostname: vcenter.example.com
    username: automation@vsphere.local
    password: "{{ vcenter_password }}"
    cluster: gpu-hosts
    graphics_type: sharedDirect
    gpus: [{graphics_type: sharedDirect}]
  register: result

- name: Show what must restart
  ansible.builtin.debug:
    msg: "{{ result.hosts | rejectattr('restart_owed', 'equalto', 'none') | items2dict(key_name='name', value_name='restart_command') }}"

- name: Switch MIG on for one of the GPUs of a host, and restart the host
  accel.gpu.host_graphics:
    hostname: vcenter.example.com
    username: automation@vsphere.local
    password: "{{ vcenter_password }}"
    hosts: [esx-a3.example.com]
    gpus: [{pci_id: "0000:3b:00.0", vgpu_mode: multiInstanceGpu}]
    restart: host
"""

RETURN = r"""
hosts:
  description: The hosts, sorted by path. In check mode, the state after a run. After a failure, the state at that time, and what the run had done until then.
  returned: success, or if the failure occurred after the run began to change hosts
  type: list
  elements: dict
  contains:
    name: {description: Name of the host., type: str, returned: always, sample: esx-a1.example.com}
    path: {description: Inventory path of the host., type: str, returned: always, sample: /DC1/host/gpu-hosts/esx-a1.example.com}
    connected: {description: Whether it is connected and powered on., type: bool, returned: always, sample: true}
    maintenance_mode: {description: Whether it is in maintenance mode., type: bool, returned: always, sample: false}
    graphics_type: {description: Default graphics type., type: str, returned: always, sample: sharedDirect}
    assignment_policy: {description: Assignment policy., type: str, returned: always, sample: performance}
    gpus:
      description: The NVIDIA GPUs.
      type: list
      elements: dict
      returned: always
      contains:
        pci_id: {description: PCI id of the GPU., type: str, returned: always, sample: '0000:3b:00.0'}
        name: {description: Name of the GPU., type: str, returned: always, sample: NVIDIA A100-PCIE-40GB}
        memory_gib: {description: Memory in GiB., type: int, returned: always, sample: 40}
        graphics_type: &states
          description: The configured and the active value; the mode is empty if the API has none. V(basic) - no driver runs the GPU. V(direct) - it is passed
            through as a whole.
          type: dict
          returned: always
          contains:
            configured: {description: What is configured., type: str, returned: always, sample: sharedDirect}
            active: {description: What the GPU runs with., type: str, returned: always, sample: shared}
        vgpu_mode: *states
    updated: {description: Whether the run changed the configuration., type: bool, returned: always, sample: true}
    restarted: {description: Whether the run restarted the host., type: bool, returned: always, sample: false}
    restart_owed:
      description: What must restart before the configuration is active, V(none), V(xorg) or V(host). A restart of the host also restarts Xorg.
      type: str
      returned: always
      sample: xorg
    restart_command:
      description: The command for it on the host; empty if nothing must restart.
      type: str
      returned: always
      sample: /etc/init.d/xorg stop; nv-hostengine -t; sleep 1; nv-hostengine -d; /etc/init.d/xorg start
code:
  description:
    - The reason for the failure.
    - V(invalid) - errors in the options, hosts that cannot be changed, or missing privileges. V(in_use) - virtual machines run on the hosts. V(mismatch) -
      vCenter does not show what was configured, or a restart has not made it active. V(login) - vCenter does not accept the user name and the password.
      V(connection) - no usable credentials, or pyvmomi is missing. V(unreachable) - vCenter does not respond. V(timeout) - see O(wait_timeout). Otherwise,
      the HTTP status that corresponds to the fault of vCenter.
  returned: failure
  type: raw
  sample: in_use
details:
  description:
    - Details of the failure. C(problems) lists all errors in the options, or all hosts that cannot be changed. C(reason), C(method) and C(path) describe the
      failed request.
  returned: failure
  type: dict
  sample: {problems: ['/DC1/host/gpu-hosts/esx-a1.example.com: the GPUs are used by prod-7x2kd-vdi-a-4kq8z']}
"""

import typing as t

from ..module_utils.core.errors import InvalidOptions, ModuleFailure, ServiceError
from ..module_utils.core.messages import abbreviate, diff_of
from ..module_utils.core.module import ArgumentSpec
from ..module_utils.vsphere.client import Item
from ..module_utils.vsphere.hosts import (
    ASSIGNMENT_POLICIES,
    END_MAINTENANCE,
    GRAPHICS_TYPES,
    MODES_SINCE,
    RESTART_COMMANDS,
    VGPU_MODES,
    GpuSetting,
    GraphicsRequest,
    HostConfigurator,
    HostPlan,
    mig_problems,
    plan_host,
    read_graphics,
    setting_problems,
)
from ..module_utils.vsphere.inventory import MULTI_INSTANCE, Inventory
from ..module_utils.vsphere.module import VSphereModule


def work(module: VSphereModule) -> dict[str, t.Any]:
    """Compare the hosts with the settings, and configure and restart those that differ."""
    request = _request(module)
    inventory = Inventory.read(module.center)
    hosts = read_graphics(module.center, inventory, _hosts(module, inventory))
    if module.params["cluster"]:
        hosts = [host for host in hosts if host.gpus]
    elif problems := [
        f"hosts: {host.path} has no NVIDIA GPU; remove it, or check the GPU in the BIOS"
        for host in hosts
        if not host.gpus
    ]:
        raise InvalidOptions(problems)
    plans = [plan_host(host, request) for host in hosts]
    configurator = HostConfigurator(
        module.center, request, float(module.params["wait_timeout"]), module.progress.report
    )
    _check(module, configurator, plans, request)
    for plan in plans:
        _warn(module, plan, request)
    result = _result(plans)
    if module.check_mode:
        return result
    for number, plan in enumerate(plans):
        if plan.changes:
            try:
                plans[number] = configurator.apply(plan.before.path, plan.before.item.ref)
            except (ModuleFailure, ServiceError) as error:
                untouched = [plan_host(each.before, GraphicsRequest()) for each in plans[number + 1 :]]
                done = [*plans[:number], configurator.done(plan), *untouched]
                error.partial = {**_result(done), "changed": module.has_written()}
                raise
    return {**_result(plans), "diff": result["diff"]}


def _request(module: VSphereModule) -> GraphicsRequest:
    """The settings in the options. Raises InvalidOptions with all problems that can be found without the hosts."""
    params = module.params
    settings = [GpuSetting(each["pci_id"] or None, each["graphics_type"], each["vgpu_mode"]) for each in params["gpus"]]
    problems = []
    if params["hosts"] is not None and not params["hosts"]:
        problems.append("hosts: is empty; set at least one host")
    ids = [(each.pci_id or "").lower() for each in settings]
    problems += [
        f"gpus: {f'{pci_id} is' if pci_id else 'all GPUs (no pci_id) are'} listed more than once"
        for pci_id in sorted(set(ids))
        if ids.count(pci_id) > 1
    ]
    problems += [
        f"gpus[{number}]: sets nothing; set graphics_type or vgpu_mode"
        for number, each in enumerate(settings)
        if not (each.graphics_type or each.vgpu_mode)
    ]
    if params["wait_timeout"] < 1:
        problems.append(f"wait_timeout: {params['wait_timeout']} is not a number of seconds from 1 on")
    if problems:
        raise InvalidOptions(problems)
    if any(each.vgpu_mode for each in settings) and module.center.api_version < MODES_SINCE:
        version = ".".join(map(str, module.center.api_version))
        raise InvalidOptions(
            [
                f"gpus[].vgpu_mode: needs version 8.0.3 of the API, but vCenter {module.center.options.hostname} and pyvmomi have only {version} in common, "
                "which would ignore it. Upgrade vCenter and pyvmomi, or remove vgpu_mode; MIG can be set with nvidia-smi -i PCI_ID -mig 1 on the host"
            ]
        )
    return GraphicsRequest(
        params["graphics_type"], params["assignment_policy"], tuple(settings), params["restart"] == "host"
    )


def _hosts(module: VSphereModule, inventory: Inventory) -> list[Item]:
    """The selected hosts, sorted by path."""
    params = module.params
    datacenter = inventory.find("Datacenter", params["datacenter"], "datacenter") if params["datacenter"] else None
    if params["cluster"]:
        cluster = inventory.find("ComputeResource", params["cluster"], "cluster", datacenter)
        return sorted((host.item for host in inventory.hosts_of(cluster)), key=inventory.path)
    hosts, problems = {}, []
    for name in params["hosts"]:
        try:
            host = inventory.find("HostSystem", name, "hosts", datacenter)
            hosts[host.ref] = host
        except InvalidOptions as error:
            problems += error.problems
    if problems:
        raise InvalidOptions(problems)
    return sorted(hosts.values(), key=inventory.path)


def _check(
    module: VSphereModule, configurator: HostConfigurator, plans: t.Sequence[HostPlan], request: GraphicsRequest
) -> None:
    """Refuse what cannot be done on one of the hosts, before anything is changed."""
    problems = setting_problems(plans, request)
    if not problems and any(each.vgpu_mode == MULTI_INSTANCE for each in request.gpus):
        for plan in plans:
            if plan.updates:
                problems += mig_problems(plan, configurator.mig_capable(plan.before))
    if problems:
        raise InvalidOptions(problems, "The hosts cannot be configured. Nothing was changed:")
    if lacking := configurator.privilege_problems(plans):
        raise InvalidOptions(lacking, "The user of vCenter lacks privileges:")
    configurator.check_use(plans)


def _warn(module: VSphereModule, plan: HostPlan, request: GraphicsRequest) -> None:
    if plan.before.in_maintenance:
        module.warn(
            f"{plan.before.path} stays in maintenance mode, because this run has not begun it, so no virtual machine starts there. An administrator, or an "
            f"earlier run that was killed, has put it there. When the host is ready, end it in vCenter, or on the host: {END_MAINTENANCE}"
        )
    own = [
        gpu.pci_id
        for gpu in plan.after.gpus
        if request.graphics_type and gpu.explicit and gpu.configured.graphics_type != request.graphics_type
        if not request.setting(gpu.pci_id).graphics_type
    ]
    if own:
        module.warn(
            f"{plan.before.path}: {abbreviate(own)} keeps another graphics type than the default of the host, because its own setting overrides it. To "
            "change it, set gpus."
        )


def _result(plans: t.Sequence[HostPlan]) -> dict[str, t.Any]:
    hosts = [
        {
            **plan.after.to_result(),
            "updated": plan.updates,
            "restarted": plan.restarts,
            "restart_owed": plan.owed,
            "restart_command": RESTART_COMMANDS[plan.owed],
        }
        for plan in plans
    ]
    before = {plan.before.path: plan.before.to_diff() for plan in plans}
    after = {plan.before.path: plan.after.to_diff() for plan in plans}
    return {
        "changed": any(plan.changes for plan in plans),
        "hosts": hosts,
        "diff": diff_of(before, after, "graphics of hosts"),
    }


def main() -> None:
    """Run the module."""
    gpu: ArgumentSpec = {
        "pci_id": {"type": "str"},
        "graphics_type": {"type": "str", "choices": list(GRAPHICS_TYPES)},
        "vgpu_mode": {"type": "str", "choices": list(VGPU_MODES)},
    }
    spec: ArgumentSpec = {
        "datacenter": {"type": "str"},
        "cluster": {"type": "str"},
        "hosts": {"type": "list", "elements": "str"},
        "graphics_type": {"type": "str", "choices": list(GRAPHICS_TYPES)},
        "assignment_policy": {"type": "str", "choices": list(ASSIGNMENT_POLICIES)},
        "gpus": {"type": "list", "elements": "dict", "options": gpu, "default": []},
        "restart": {"type": "str", "choices": ["never", "host"], "default": "never"},
        "wait_timeout": {"type": "int", "default": 1800},
    }
    VSphereModule(spec, mutually_exclusive=[("cluster", "hosts")], required_one_of=[("cluster", "hosts")]).run(work)


if __name__ == "__main__":
    main()
