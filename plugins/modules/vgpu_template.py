#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds templates of virtual machines with vGPUs on vSphere."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vgpu_template
short_description: Build vSphere templates with vGPUs from RHCOS, which OpenShift's machine controller clones
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Imports an RHCOS OVA into vCenter as a template whose clones have vGPUs. OpenShift's Machine API sets the size, the network and the disk of each clone,
    but no GPUs, so they must be in the template.
  - A template has O(count) devices of one vGPU profile, locked memory, EFI without secure boot, and an MMIO space for the memory of the GPUs. All of it
    is in the import itself, and the virtual machine carries a fingerprint from its first moment. If a run is killed, the next run removes what is left.
  - A template is never changed. If the release, the OVA or the configuration changes, or if somebody has edited the template, the module builds a new one
    beside it under a new name, RV(templates.NAME.path). A template that this module has built for the cluster is deleted once it is superseded and neither a
    MachineSet nor a Machine that is being created names it. This requires O(kubernetes).
  - Before it changes anything, the module fails if the machines cannot run on the hosts. It compares O(machines) and O(max_machines) with the GPUs of the hosts
    and with the vGPUs that are in use, O(driver_version) with the vGPU managers, and O(feature_type) with the profiles.
  - The OVA is streamed to an ESXi host. It is not stored on the machine that runs the module. Its checksum is verified before vCenter completes the import.
extends_documentation_fragment:
  - accel.gpu.vsphere
  - accel.gpu.drain.cluster
  - accel.gpu.vsphere.template
  - accel.gpu.confirm
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
  - accel.gpu.attributes.progress
options:
  state:
    description:
      - V(absent) deletes all templates that this module has built with O(name) for the cluster in O(kubernetes), which is required. The module fails if one of
        them is in use.
      - V(collected) only deletes the templates that are superseded and not in use.
    type: str
    choices: [present, absent, collected]
    default: present
  names:
    description:
      - Names of the templates in O(templates) that are built or, with another O(state), deleted. The machines of the others are only counted when the module
        checks whether all machines fit. By default, all templates are built or deleted.
    type: list
    elements: str
  feature_type:
    description:
      - C(FeatureType) in the license configuration of the nodes. The module fails if the types of their vGPUs get no license from it. See
        O(accel.gpu.license#module:feature_type).
    type: int
  released:
    description:
      - Users that a task before this one takes away from the superseded templates, with the words of RV(templates.NAME.in_use). Only check mode with
        O(state=collected) reads this option, to predict which templates the run deletes.
    type: list
    elements: str
    default: []
  wait_timeout:
    description: Seconds to wait for each task of vCenter. Uploads have no time limit while data is sent.
    type: int
    default: 600
notes:
  - The machine that runs the module must reach port 443 of vCenter and of the ESXi hosts.
  - OpenShift replaces the templates of MachineSets with its own boot images, which have no GPU. Exclude the MachineSets first; see M(accel.gpu.boot_images).
seealso:
  - module: accel.gpu.vgpu_template_info
  - module: accel.gpu.vgpu_profile_info
  - module: accel.gpu.machineset
"""

EXAMPLES = r"""
- name: Build a template for the release of the cluster, in one of its failure domains
  accel.gpu.vgpu_template:
    hostname: vcenter.example.com
    username: automation@vsphere.local
    password: "{{ vcenter_password }}"
    ca_cert: /etc/pki/vmca.pem
    kubernetes: {kubeconfig: ~/.kube/prod}
    name: vdi-a
    failure_domain: zone-a
    profile: grid_a100-10c
    count: 1
  register: result

- name: Create machines from it
  accel.gpu.machineset:
    kubeconfig: ~/.kube/prod
    name: vdi-a
    template: "{{ result.templates['vdi-a'].path }}"
    node_count: 2

- name: Build a template from a mirror of the OVA, without access to a cluster
  accel.gpu.vgpu_template:
    hostname: vcenter.example.com
    username: automation@vsphere.local
    password: "{{ vcenter_password }}"
    name: vdi
    datacenter: DC1
    cluster: gpu-hosts
    datastore: vsan
    network: VM Network
    profile: nvidia_l40s-24c
    count: 2
    url: https://mirror.example.com/rhcos-4.18-vmware.x86_64.ova
    checksum: sha256:9b1d3c3b7f0b0c9e6f2a1d4c5e8f7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f
"""

RETURN = r"""
templates:
  description: The templates by their names in the options.
  returned: success
  type: dict
  contains:
    NAME:
      description: The template of this name.
      type: dict
      returned: always
      contains:
        action: {description: 'V(create), V(update) (made a template again), V(delete) or V(none).', type: str, returned: always, sample: none}
        name: {description: Name of the template in vCenter., type: str, returned: unless O(state=absent), sample: vdi-a-418.94.202501221327-0-3fa0c1}
        path:
          description: Inventory path of the template, for the field C(template) of MachineSets.
          type: str
          returned: unless O(state=absent)
          sample: /DC1/vm/accel-gpu/vdi-a-418.94.202501221327-0-3fa0c1
        release: {description: Release of RHCOS., type: str, returned: unless O(state=absent), sample: 418.94.202501221327-0}
        sha256:
          description: SHA-256 of the OVA.
          type: str
          returned: unless O(state=absent)
          sample: 9b1d3c3b7f0b0c9e6f2a1d4c5e8f7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f
        configuration: &configuration
          description: The configuration of the template's virtual machine.
          type: dict
          returned: unless O(state=absent)
          contains:
            profile: {description: The vGPU profile., type: str, returned: always, sample: grid_a100-10c}
            count: {description: Number of vGPUs., type: int, returned: always, sample: 1}
            mmio_gib: {description: Size of the 64-bit MMIO space in GiB., type: int, returned: always, sample: 128}
            firmware: {description: The firmware., type: str, returned: always, sample: efi}
            secure_boot: {description: Whether secure boot is on., type: bool, returned: always, sample: false}
            memory_locked: {description: Whether all memory is reserved., type: bool, returned: always, sample: true}
        removed: {description: Paths of the virtual machines that were deleted., type: list, elements: str, returned: always, sample: []}
        superseded:
          description: Paths of older templates of this name.
          type: list
          elements: str
          returned: unless O(state=absent)
          sample: []
        in_use:
          description: The users of each older template that is in use, by path.
          type: dict
          returned: unless O(state=absent)
          contains:
            PATH: {description: The users of the template with this path., type: list, elements: str, returned: if it is in use, sample: [MachineSet vdi]}
vcenter:
  description: The vCenter, which may be that of the cluster in O(kubernetes).
  returned: success
  type: dict
  contains:
    hostname: {description: Host name or address., type: str, returned: always, sample: vcenter.example.com}
    port: {description: Port., type: int, returned: always, sample: 443}
code:
  description:
    - The reason for the failure.
    - V(not_confirmed) - see O(confirm). V(invalid) - errors in the options, the machines cannot run, or the user lacks privileges.
      V(ova) - the OVA cannot be read or uploaded, or has another checksum. V(login) - vCenter does not accept the user name and the password.
      V(connection) - no usable credentials, or pyvmomi is missing.
      V(unreachable) - vCenter does not respond. V(timeout) - see O(wait_timeout). V(in_use) - a template that should be deleted is in use. V(mismatch) -
      vCenter has not stored all settings. V(partial) - some templates could not be built. V(wrong_cluster) - O(kubernetes) points to a different cluster.
      V(lease_held) - another run holds the Lease. V(lease_lost) - this run lost it. Otherwise, the HTTP status that corresponds to the fault of vCenter.
  returned: failure
  type: raw
  sample: ova
details:
  description:
    - Details of the failure. C(problems) lists all errors in the options or variables. C(reason), C(method) and C(path) describe the failed request.
  returned: failure
  type: dict
  sample: {problems: ["Template vdi: profile: no host of gpu-hosts offers a100-10c; known: grid_a100-10c"]}
"""

import contextlib
import functools
import typing as t

from ..module_utils.catalog.openshift import NAMESPACE_OPTION
from ..module_utils.core.errors import InvalidOptions, ModuleFailure, PartialFailure, ServiceError
from ..module_utils.core.messages import abbreviate, diff_of, join_words
from ..module_utils.core.module import CONFIRM, ArgumentSpec
from ..module_utils.core.waits import run_bounded
from ..module_utils.vsphere.capacity import check
from ..module_utils.vsphere.inventory import Inventory
from ..module_utils.vsphere.module import KUBERNETES, TEMPLATES, VSphereModule
from ..module_utils.vsphere.ova import open_ova
from ..module_utils.vsphere.templates import (
    Template,
    TemplateBuilder,
    TemplatePlan,
    TemplateRequest,
    deletion_problems,
    folders_named,
    import_problems,
    in_other_folders,
    is_deletable,
    other_folder_text,
    own_templates,
    plan_templates,
    privilege_problems,
    read_fingerprinted,
    read_templates,
    resolve,
)

# The number of simultaneous imports; each occupies one connection to an ESXi host.
_PARALLEL = 2
_LACKING = "The user of vCenter lacks privileges:"


class TemplateInUse(ModuleFailure):
    """A template that should be deleted is in use."""

    code = "in_use"


def work(module: VSphereModule) -> dict[str, t.Any]:
    """Build or delete templates."""
    known = {entry["name"] for entry in _entries(module)}
    if unknown := sorted(set(module.params["names"] or ()) - known):
        raise InvalidOptions(
            [f"names: {join_words(unknown)} is not the name of a template; correct it, or declare the template"]
        )
    if module.params["wait_timeout"] < 1:
        raise InvalidOptions([f"wait_timeout: {module.params['wait_timeout']} is not a number of seconds from 1 on"])
    works = {"present": _build, "absent": _delete, "collected": _collect}
    return works[module.params["state"]](module)


def _build(module: VSphereModule) -> dict[str, t.Any]:
    """Compare the templates with the declarations, and make what is missing."""
    requests = module.requests()
    inventory, plans = _plans(module, requests)
    assessment = check(inventory, plans, _owner(module), module.params["feature_type"])
    if assessment.problems:
        raise InvalidOptions(assessment.problems, "The declared machines cannot run on the hosts:")
    for text in assessment.warnings:
        module.warn(text)
    plans = _buildable(module, plans)
    for plan in plans:
        _warn(module, plan)
    _warn_of_release(module, plans)
    _warn_of_other_folders(module, inventory, plans)
    if problems := privilege_problems(module.center, inventory, plans):
        raise InvalidOptions(problems, _LACKING)
    if any(plan.changes for plan in plans) and not module.check_mode:
        with _locked(module):
            # Another run may have changed the templates while this run waited for the Lease.
            inventory, plans = _plans(module, requests)
            plans = _buildable(module, plans)
            result = _result(module, plans)
            _apply(module, inventory, plans, result)
            return result
    return _result(module, plans)


def _collect(module: VSphereModule) -> dict[str, t.Any]:
    """Delete the templates that are superseded and not in use."""
    requests, predicts = module.requests(), module.check_mode
    released = module.params["released"] if predicts else []
    plans = _selected(module, _plans(module, requests, released, are_built=bool(released))[1])
    if any(plan.collected for plan in plans) and not predicts:
        with _locked(module):
            plans = _selected(module, _plans(module, requests)[1])
            builder = _builder(module)
            for plan in plans:
                plan.collected[:] = [template for template in plan.collected if _collects(module, builder, template)]
    results = {
        plan.resolved.request.name: {
            **plan.to_result(),
            "action": "delete" if plan.collected else "none",
            "removed": [template.path for template in plan.collected],
        }
        for plan in plans
    }
    before = {template.path: dict(template.actual) for plan in plans for template in plan.collected}
    diff = diff_of(before, {}, "templates")
    return {"changed": bool(before), "templates": results, "vcenter": _address(module), "diff": diff}


def _collects(module: VSphereModule, builder: TemplateBuilder, template: Template) -> bool:
    """Delete a template that was planned to be deleted, and return whether it was deleted.

    A MachineSet may have been created since the plan; every other run waits for the Lease.
    """
    if users := _users_of(module)(template):
        module.warn(f"{template.path} is kept, because {join_words(users)} uses it now.")
        return False
    builder.delete(template)
    return True


def _plans(
    module: VSphereModule,
    requests: t.Sequence[TemplateRequest],
    released: t.Collection[str] = (),
    *,
    are_built: bool = False,
) -> tuple[Inventory, list[TemplatePlan]]:
    """What to do for each template in the present state of vCenter. released: users that do not count. are_built: see plan_templates()."""
    openshift = module.openshift
    inventory = Inventory.read(module.center)
    resolved = resolve(inventory, requests)
    templates = read_templates(module.center, {each.folder_path: each.folder.ref for each in resolved if each.folder})
    used = functools.cache(openshift.templates_in_use) if openshift else dict

    def users_of(template: Template) -> list[str] | None:
        if openshift is None:
            return None
        return [user for user in openshift.users_of(used(), template) if user not in released]

    return inventory, plan_templates(resolved, templates, _owner(module), users_of, are_built=are_built)


def _selected(module: VSphereModule, plans: t.Sequence[TemplatePlan]) -> list[TemplatePlan]:
    """The plans of the templates that this run builds, or whose superseded templates it deletes."""
    return [plan for plan in plans if _is_selected(module, plan.resolved.request.name)]


def _buildable(module: VSphereModule, plans: t.Sequence[TemplatePlan]) -> list[TemplatePlan]:
    """The plans of the templates that this run builds. Raises InvalidOptions if a new one has no host."""
    selected = _selected(module, plans)
    if problems := import_problems(selected):
        raise InvalidOptions(problems)
    return selected


def _is_selected(module: VSphereModule, name: str) -> bool:
    names = module.params["names"]
    return names is None or name in names


def _entries(module: VSphereModule) -> list[dict[str, t.Any]]:
    """The templates in the options."""
    return [module.params] if module.params["templates"] is None else module.params["templates"]


def _result(module: VSphereModule, plans: t.Sequence[TemplatePlan]) -> dict[str, t.Any]:
    return {
        "changed": any(plan.changes for plan in plans),
        "templates": {plan.resolved.request.name: plan.to_result() for plan in plans},
        "vcenter": _address(module),
        "diff": _diff(plans),
    }


def _owner(module: VSphereModule) -> str:
    """The cluster that the templates belong to; empty without the option `kubernetes`."""
    return module.openshift.owner if module.openshift else ""


def _builder(module: VSphereModule) -> TemplateBuilder:
    return TemplateBuilder(module.center, _owner(module), module.upload(), float(module.params["wait_timeout"]))


@contextlib.contextmanager
def _locked(module: VSphereModule) -> t.Iterator[None]:
    """Hold the Lease of the cluster, and check before each change that this run still holds it."""
    if module.openshift is None:
        yield
        return
    with module.lease() as lease:
        module.center.before_change = lease.check
        try:
            yield
        finally:
            module.center.before_change = None


def _address(module: VSphereModule) -> dict[str, t.Any]:
    return {"hostname": module.center.options.hostname, "port": module.center.options.port}


def _users_of(module: VSphereModule) -> t.Callable[[Template], list[str]]:
    openshift = module.openshift
    if openshift is None:
        raise InvalidOptions(
            ["kubernetes: is required to find out whether a template is in use; set the connection to the cluster"]
        )
    used = openshift.templates_in_use()
    return lambda template: openshift.users_of(used, template)


def _warn(module: VSphereModule, plan: TemplatePlan) -> None:
    name = plan.resolved.request.name
    for text in plan.resolved.warnings:
        module.warn(text)
    for template in plan.superseded:
        if template.drift and plan.current is None:
            fields = "; ".join(
                f"{field}: {each['recorded']} -> {each['actual']}" for field, each in template.drift.items()
            )
            module.warn(f"Template {name}: {template.path} was changed by hand ({fields}). A new template replaces it.")
    for template in (*plan.superseded, *plan.unclear):
        if template in plan.unclear or not is_deletable(template):
            module.warn(f"Template {name}: {_kept_text(template)}")


def _kept_text(template: Template) -> str:
    return (
        f"{template.path} is not needed but is kept, because it is not as this collection has created it: it was started, has a snapshot, or is no longer what "
        "its fingerprint says. Delete it in vCenter if nobody needs it."
    )


def _warn_of_release(module: VSphereModule, plans: t.Sequence[TemplatePlan]) -> None:
    """Warn if a declared OVA is not that of the cluster's release, because nothing else shows that it has become old."""
    declared = [plan for plan in plans if not plan.resolved.request.source.release]
    if module.openshift is None or not declared:
        return
    release = module.openshift.source().release
    for plan in declared:
        recorded = plan.current.fingerprint.release if plan.current and plan.current.fingerprint else ""
        if recorded and recorded != release:
            module.warn(
                f"Template {plan.resolved.request.name}: its OVA is RHCOS {recorded}, but the boot image of the cluster's release is {release}. Declare the "
                "URL and the checksum of that OVA; ConfigMap coreos-bootimages contains them."
            )


def _warn_of_other_folders(module: VSphereModule, inventory: Inventory, plans: t.Sequence[TemplatePlan]) -> None:
    """Warn of the cluster's templates in another folder, if a new one is built: the declared folder may have changed."""
    if all(plan.current for plan in plans):
        return
    declared = {(_owner(module), plan.resolved.request.name) for plan in plans}
    folders = {plan.resolved.folder_path for plan in plans}
    for path, fingerprint in in_other_folders(read_fingerprinted(module.center), inventory, folders):
        if (fingerprint.cluster, fingerprint.name) in declared:
            module.warn(f"Template {fingerprint.name}: {other_folder_text(path)}")


def _diff(plans: t.Sequence[TemplatePlan]) -> dict[str, t.Any]:
    before: dict[str, t.Any] = {}
    after: dict[str, t.Any] = {}
    for plan in plans:
        for template in (*plan.unfinished, *plan.superseded):
            before[template.path] = {**template.actual, "template": template.is_template}
            if template not in (*plan.unfinished, *plan.collected):
                after[template.path] = before[template.path]
        configuration = plan.resolved.configuration.to_dict()
        after[plan.path] = {**configuration, "template": True}
        if plan.current is not None:
            before[plan.path] = {**configuration, "template": plan.current.is_template}
    return diff_of(before, after, "templates")


def _apply(
    module: VSphereModule,
    inventory: Inventory,
    plans: t.Sequence[TemplatePlan],
    result: dict[str, t.Any],
) -> None:
    builder, results = _builder(module), result["templates"]
    for plan in plans:
        for template in plan.unfinished:
            builder.delete(template)
        for template in plan.collected:
            if not _collects(module, builder, template):
                results[plan.resolved.request.name]["removed"].remove(template.path)
        if plan.current is not None and not plan.current.is_template:
            builder.mark(plan.current)
    new = [plan for plan in plans if plan.current is None]
    folders = {
        path: builder.make_folder(inventory, path) for path in sorted({plan.resolved.folder_path for plan in new})
    }
    calls = [
        (
            plan.resolved.request.name,
            functools.partial(_import, module, builder, plan, folders[plan.resolved.folder_path]),
        )
        for plan in new
    ]
    outcomes = run_bounded(calls, _PARALLEL, fatal=lambda error: not isinstance(error, (ModuleFailure, ServiceError)))
    for outcome in outcomes:
        if outcome.ok:
            results[outcome.name]["release"] = outcome.value
        else:
            results[outcome.name]["action"] = "none"
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    for outcome in failed:
        if not isinstance(outcome.error, (ModuleFailure, ServiceError)) or len(outcomes) == 1:
            raise t.cast("Exception", outcome.error)
    if failed:
        texts = [f"Template {outcome.name}: {outcome.error}" for outcome in failed]
        raise PartialFailure("\n".join(texts), {**result, "changed": module.center.has_written})


def _import(module: VSphereModule, builder: TemplateBuilder, plan: TemplatePlan, folder: t.Any) -> str:
    source, name = plan.resolved.request.source, plan.new_name

    def on_progress(done: int, total: int) -> None:
        module.progress.report(f"{name}: {done >> 20} of {total >> 20} MiB uploaded")

    module.progress.report(f"{name}: importing {source.shown}")
    with open_ova(source, module.downloads(), module.center.options.request_timeout) as ova:
        return builder.build(plan, folder, ova, on_progress)


def _delete(module: VSphereModule) -> dict[str, t.Any]:
    """Delete the templates of all names, unless one is in use."""
    removed = _deletable(module)
    before = {template.path: dict(template.actual) for each in removed.values() for template in each}
    if before:
        center = module.center.options.hostname
        module.require_confirmation(f"This deletes from vCenter {center}: {abbreviate(sorted(before))}.")
    if before and not module.check_mode:
        with _locked(module):
            # Another run may have changed the templates, or used one, while this run waited for the Lease.
            removed = _deletable(module)
            builder = _builder(module)
            for template in (template for each in removed.values() for template in each):
                _refuse_if_used(_users_of(module), [template])
                builder.delete(template)
    results = {
        name: {"action": "delete" if each else "none", "removed": [template.path for template in each]}
        for name, each in removed.items()
    }
    diff = diff_of(before, {}, "templates")
    return {"changed": bool(before), "templates": results, "vcenter": _address(module), "diff": diff}


def _deletable(module: VSphereModule) -> dict[str, list[Template]]:
    """The templates to delete by the name in the options. Raises TemplateInUse if one of them is in use."""
    users_of = _users_of(module)
    entries = [entry for entry in _entries(module) if _is_selected(module, entry["name"])]
    inventory = Inventory.read(module.center)
    folders = {path: ref for entry in entries for path, ref in folders_named(inventory, entry["folder"]).items()}
    templates = read_templates(module.center, folders)
    own = {entry["name"]: own_templates(templates, _owner(module), entry["name"]) for entry in entries}
    _refuse_if_used(users_of, [template for each in own.values() for template in each])
    deletable: dict[str, list[Template]] = {name: [] for name in own}
    for name, each in own.items():
        for template in each:
            if is_deletable(template) or template.is_unfinished:
                deletable[name].append(template)
            else:
                module.warn(_kept_text(template))
    used = {template.path.rpartition("/")[0] for each in deletable.values() for template in each}
    if problems := deletion_problems(module.center, inventory, [folders[path] for path in sorted(used)]):
        raise InvalidOptions(problems, _LACKING)
    return deletable


def _refuse_if_used(users_of: t.Callable[[Template], list[str]], templates: t.Iterable[Template]) -> None:
    used = [f"{template.path} ({', '.join(users)})" for template in templates if (users := users_of(template))]
    if used:
        raise TemplateInUse(
            f"{join_words(used)}: in use. Delete these MachineSets first, or have them use another template. The template was not deleted."
        )


def main() -> None:
    """Run the module."""
    spec: ArgumentSpec = {
        **TEMPLATES,
        **KUBERNETES,
        **NAMESPACE_OPTION,
        **CONFIRM,
        "names": {"type": "list", "elements": "str"},
        "feature_type": {"type": "int"},
        "state": {"type": "str", "choices": ["present", "absent", "collected"], "default": "present"},
        "released": {"type": "list", "elements": "str", "default": []},
        "wait_timeout": {"type": "int", "default": 600},
    }
    VSphereModule(spec, mutually_exclusive=[("name", "templates")], required_one_of=[("name", "templates")]).run(work)


if __name__ == "__main__":
    main()
