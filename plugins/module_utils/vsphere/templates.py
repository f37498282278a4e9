# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Templates of virtual machines with vGPUs: what they should be, what they are, and how they are built and collected.

A template is never changed. A new OVA or a new configuration makes a new template beside the old one, because MachineSets keep naming the old one until
they are changed, and because a change in place would need the template to be a virtual machine for a while. The old one is deleted once nothing uses it.

A template carries its fingerprint from the first moment of its import. The fingerprint contains the instance UUID that this collection has chosen for it.
A clone inherits the fingerprint but has another UUID, so it is never mistaken for a template or for an unfinished one.
"""

from __future__ import annotations

import hashlib
import json
import typing as t
import uuid
from dataclasses import dataclass, field

from ..catalog.names import template_name
from ..catalog.vgpu import profile_problem
from ..core.errors import InvalidOptions, ModuleFailure
from ..core.messages import abbreviate, join_words, nearest, quote
from ..core.values import parse_json
from .client import PYVMOMI_IMPORT_ERROR, Item, VCenter, VSphereError
from .inventory import SHARED_DIRECT, SHARED_DIRECT_BY, Host, Inventory, Profile, connected_hosts, mmio_gib
from .ova import MIN_HARDWARE, ImportTarget, OpenOva, OvaError, OvaSource, Upload, import_ova
from .settings import (
    PROPERTIES,
    Configuration,
    extra_config,
    read_settings,
    set_extra_config,
    settings_differences,
    write_settings,
)

if PYVMOMI_IMPORT_ERROR is None:
    from pyVmomi import vim

FINGERPRINT_KEY = "accel-gpu.template"
# Set once the import is complete; its value is the template's instance UUID. Without it, the virtual machine is the rest of a run that was killed.
FINISHED_KEY = "accel-gpu.template-finished"
# ESXi writes this key when a virtual machine is started for the first time, and keeps it.
_STARTED_KEY = "sched.swap.derivedName"
_PROPERTIES = {
    "VirtualMachine": tuple(
        dict.fromkeys(
            (
                *("name", "parent", "config.template", "config.instanceUuid", "config.extraConfig"),
                *("runtime.powerState", "snapshot"),
                *PROPERTIES,
            )
        )
    )
}
# The privileges that building and deleting templates needs, by the object they are checked on. Sources: "Required Privileges" of the methods in the
# vSphere API reference, and the table of OpenShift's documentation for installations on vSphere.
DELETE_PRIVILEGE = "VirtualMachine.Inventory.Delete"
FOLDER_PRIVILEGES = (
    "VApp.Import",
    "VirtualMachine.Config.AddNewDisk",
    "VirtualMachine.Config.AddRemoveDevice",
    "VirtualMachine.Config.AdvancedConfig",
    "VirtualMachine.Config.Resource",
    "VirtualMachine.Config.Settings",
    "VirtualMachine.Inventory.Create",
    DELETE_PRIVILEGE,
    "VirtualMachine.Provisioning.MarkAsTemplate",
)
POOL_PRIVILEGES = ("Resource.AssignVMToPool", "VApp.Import")
DATASTORE_PRIVILEGES = ("Datastore.AllocateSpace",)
NETWORK_PRIVILEGES = ("Network.Assign",)
PARENT_PRIVILEGES = ("Folder.Create",)


@dataclass(frozen=True)
class Fingerprint:
    """What this collection has recorded in a template: the cluster that it belongs to, its name in the options, its OVA, its settings, and its own UUID."""

    cluster: str
    name: str
    release: str
    sha256: str
    configuration: t.Mapping[str, t.Any]
    instance_uuid: str

    def to_text(self) -> str:
        """The value of the extra configuration."""
        values = {
            "cluster": self.cluster,
            "name": self.name,
            "release": self.release,
            "sha256": self.sha256,
            "configuration": dict(self.configuration),
            "uuid": self.instance_uuid,
        }
        return json.dumps(values, separators=(",", ":"), sort_keys=True)

    @classmethod
    def from_text(cls, text: str) -> Fingerprint | None:
        """The recorded fingerprint; None if the text is none, because anybody who may edit the virtual machine can change it."""
        values = parse_json(text, dict)
        if values is None or not isinstance(values.get("configuration"), dict):
            return None
        names = ("cluster", "name", "release", "sha256", "uuid")
        texts = [values.get(name) for name in names]
        if not all(isinstance(text, str) for text in texts):
            return None
        plain = (
            *texts,
            *values["configuration"],
            *(each for each in values["configuration"].values() if isinstance(each, str)),
        )
        if not all(isinstance(text, str) and text.isprintable() for text in plain):
            return None
        if not all(isinstance(each, (str, int)) for each in values["configuration"].values()):
            return None
        cluster, name, release, sha256, instance_uuid = t.cast("list[str]", texts)
        return cls(cluster, name, release, sha256, values["configuration"], instance_uuid)


@dataclass(frozen=True)
class TemplateRequest:
    """A template as it is declared. Names of vCenter's objects may be inventory paths."""

    name: str
    profile: str
    count: int
    datacenter: str
    cluster: str
    datastore: str
    network: str
    folder: str
    source: OvaSource
    resource_pool: str | None = None
    mmio_gib: int | None = None
    # The machines that are cloned from it: see capacity.Demand. driver_version: of their guest driver.
    machines: int | None = None
    max_machines: int | None = None
    recreate: bool = False
    driver_version: str | None = None

    @property
    def label(self) -> str:
        """The beginning of messages about this template."""
        return f"Template {self.name}"


@dataclass(frozen=True)
class Resolved:
    """A request with the objects of vCenter that it names, and the settings that follow from the hosts.

    hosts: the usable ones with the datastore and the network. suitable: also those that are not usable at present. profiles: all of the cluster.
    """

    request: TemplateRequest
    configuration: Configuration
    cluster: Item
    resource_pool: t.Any
    datastore: Item
    network: Item
    hosts: tuple[Host, ...]
    suitable: tuple[Host, ...]
    profile: Profile
    profiles: tuple[Profile, ...]
    folder_path: str
    folder: Item | None
    warnings: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """What a template must have been built from: the OVA, and the settings."""
        return self.request.source.sha256, _digest(self.configuration.to_dict())

    @property
    def base_name(self) -> str:
        """The name of the template in vCenter; the name that is built from the same OVA and settings is always the same."""
        source = self.request.source
        return template_name(self.request.name, source.release or source.sha256[:8], _digest([*self.key]))


def _digest(value: t.Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def resolve(inventory: Inventory, requests: t.Sequence[TemplateRequest]) -> list[Resolved]:
    """Find the objects of all requests. Raises InvalidOptions with all problems."""
    resolved, problems = [], []
    profiles: dict[t.Any, list[Profile]] = {}
    for request in requests:
        try:
            resolved.append(_resolve(inventory, request, profiles))
        except InvalidOptions as error:
            problems += [f"{request.label}: {problem}" for problem in error.problems]
    if problems:
        raise InvalidOptions(problems)
    return resolved


def _resolve(inventory: Inventory, request: TemplateRequest, profiles: dict[t.Any, list[Profile]]) -> Resolved:
    datacenter = inventory.find("Datacenter", request.datacenter, "datacenter")
    cluster = inventory.find("ComputeResource", request.cluster, "cluster", datacenter)
    datastore = inventory.find("Datastore", request.datastore, "datastore", datacenter)
    network = inventory.find("Network", request.network, "network", datacenter)
    pool = inventory.resource_pool(cluster, request.resource_pool, "resource_pool")
    hosts = inventory.hosts_of(cluster)
    connected = connected_hosts(hosts, datastore.ref, network.ref)
    if not connected:
        raise InvalidOptions(
            [
                f"no host of {cluster.name} has both the datastore {datastore.name} and the network {network.name}; set another datastore or network"
            ]
        )
    if cluster.ref not in profiles:
        profiles[cluster.ref] = inventory.profiles(cluster)
    profile = _find_profile(inventory, request.profile, profiles[cluster.ref], cluster.name, hosts)
    mmio = request.mmio_gib or (mmio_gib(profile.gpu_memory_gib, request.count) if profile.gpu_memory_gib else None)
    if mmio is None:
        raise InvalidOptions(
            [
                f"mmio_gib: the hosts of {cluster.name} do not report the memory of their GPUs, from which it is computed; set it"
            ]
        )
    path = _path_in(inventory, datacenter, request.folder)
    folder = next((item for item in inventory.of_kind("Folder") if inventory.path(item) == path), None)
    return Resolved(
        request,
        Configuration(profile.name, request.count, mmio),
        cluster,
        pool,
        datastore,
        network,
        tuple(host for host in connected if host.usable),
        tuple(connected),
        profile,
        tuple(profiles[cluster.ref]),
        path,
        folder,
        tuple(_host_warnings(request, profile, hosts)),
    )


def _find_profile(
    inventory: Inventory, name: str, profiles: t.Sequence[Profile], cluster: str, hosts: t.Sequence[Host]
) -> Profile:
    """The profile with this name in any case; vCenter accepts only the spelling of the hosts."""
    profile = next((profile for profile in profiles if profile.name.lower() == name.lower()), None)
    if profile is None:
        names = [each.name for each in profiles]
        similar = nearest(name, names)
        question = f"did you mean {similar}? " if similar else ""
        reasons = "".join(f". {text}" for text in _without_profiles(inventory, hosts))
        raise InvalidOptions(
            [
                f"profile: no host of {cluster} offers {quote(name)}; {question}known: {abbreviate(names) or 'none'}{reasons}. A host whose GPUs run another "
                "profile may not list it"
            ]
        )
    if problem := profile_problem(profile.name):
        raise InvalidOptions([f"profile: {problem}"])
    return profile


def _without_profiles(inventory: Inventory, hosts: t.Sequence[Host]) -> t.Iterator[str]:
    """Why hosts offer no profile, one sentence without a period for each reason; reads the packages of the hosts that have GPUs."""
    if not any(host.gpus for host in hosts):
        yield "No host reports a GPU of which vCenter knows the memory; check that the GPUs are not passed through"
        return
    silent = [host for host in hosts if host.gpus and not host.known and not host.placeable]
    versions = inventory.manager_versions(silent) if silent else {}
    if lacking := [host.name for host in silent if versions[host.name] == ""]:
        yield f"NVIDIA's vGPU manager is not installed on {abbreviate(lacking)}; install its VIB, and restart the host"
    if unsuitable := [
        host.name for host in silent if versions[host.name] != "" and host.graphics_type not in ("", SHARED_DIRECT)
    ]:
        yield f"The default graphics type of {abbreviate(unsuitable)} is not Shared Direct; set it {SHARED_DIRECT_BY}"


def _host_warnings(request: TemplateRequest, profile: Profile, hosts: t.Sequence[Host]) -> t.Iterator[str]:
    having = [host for host in hosts if host.name in profile.hosts]
    shared = [host.name for host in having if host.graphics_type and host.graphics_type != SHARED_DIRECT]
    if shared:
        yield (
            f"{request.label}: the default graphics type of {join_words(shared)} is not Shared Direct, so no machine with a vGPU starts there; "
            f"set it {SHARED_DIRECT_BY}."
        )


def folder_path(root: str, folder: str) -> str:
    """The inventory path of a folder of virtual machines, which may be a name below the folder `root` of a data center."""
    return "/".join(["" if folder.startswith("/") else root, *filter(None, folder.split("/"))])


def _path_in(inventory: Inventory, datacenter: Item, folder: str) -> str:
    """The path of a folder for templates, which must be below the folder `vm` of the data center."""
    root = inventory.items.get(datacenter.get("vmFolder"))
    base = inventory.path(root) if root else f"{inventory.path(datacenter)}/vm"
    path = folder_path(base, folder)
    if not path.startswith(f"{base}/"):
        raise InvalidOptions(
            [f"folder: {quote(folder)} is not below {base}; templates need a folder of their own there"]
        )
    return path


@dataclass(frozen=True)
class Template:
    """A virtual machine in the folder of the templates, with what it is."""

    ref: t.Any
    name: str
    path: str
    is_template: bool
    powered_on: bool
    has_snapshot: bool
    was_started: bool
    instance_uuid: str
    actual: t.Mapping[str, t.Any]
    fingerprint: Fingerprint | None
    finished: bool

    @property
    def is_own(self) -> bool:
        """Whether this collection has created it: its fingerprint contains its own UUID, which that of a copy does not."""
        return self.fingerprint is not None and self.fingerprint.instance_uuid == self.instance_uuid != ""

    @property
    def is_unfinished(self) -> bool:
        """Whether it is the rest of an import that did not end: own, with all settings recorded, not complete, and as it was imported.

        Anybody who may edit a virtual machine can write a fingerprint into it. One that was started or has a snapshot is somebody's.
        """
        return (
            self.is_own
            and self.fingerprint is not None
            and self.actual.keys() <= self.fingerprint.configuration.keys()
            and not self.finished
            and not self.is_template
            and not self.powered_on
            and not self.was_started
            and not self.has_snapshot
        )

    @property
    def drift(self) -> dict[str, dict[str, t.Any]]:
        """The settings that somebody has changed since it was built: field -> recorded and actual value."""
        recorded = self.fingerprint.configuration if self.fingerprint else {}
        differing = settings_differences(recorded, self.actual)
        if not self.is_template:
            differing["template"] = {"recorded": True, "actual": False}
        return differing

    def to_result(self) -> dict[str, t.Any]:
        """The template as modules return it."""
        fingerprint = self.fingerprint
        return {
            "name": self.name,
            "path": self.path,
            "instance_uuid": self.instance_uuid,
            "release": fingerprint.release if fingerprint else None,
            "sha256": fingerprint.sha256 if fingerprint else None,
            "configuration": dict(self.actual),
            "drift": self.drift if fingerprint else {},
        }


def read_templates(center: VCenter, folders: t.Mapping[str, t.Any]) -> list[Template]:
    """All virtual machines below some folders (path -> reference), sorted by path."""
    if not folders:
        return []
    roots = [(ref, "VirtualMachine") for ref in folders.values()]
    items = center.read(roots, _PROPERTIES)
    paths = {ref: path for path, ref in folders.items()}
    # A machine in a folder below is no template of this collection, because templates are created directly in the folder.
    own = [(item, paths[item.get("parent")]) for item in items if item.get("parent") in paths]
    return sorted((_template(item, path) for item, path in own), key=lambda template: template.path)


def _template(item: Item, folder: str) -> Template:
    extra = extra_config(item)
    instance_uuid = str(item.get("config.instanceUuid") or "")
    return Template(
        item.ref,
        item.name,
        f"{folder}/{item.name}",
        bool(item.get("config.template")),
        str(item.get("runtime.powerState")) == "poweredOn",
        item.get("snapshot") is not None,
        bool(extra.get(_STARTED_KEY)),
        instance_uuid,
        read_settings(item),
        Fingerprint.from_text(extra.get(FINGERPRINT_KEY, "")),
        extra.get(FINISHED_KEY) == instance_uuid != "",
    )


def folders_named(inventory: Inventory, folder: str) -> dict[str, t.Any]:
    """The folders of virtual machines with this name below the root of a data center, or with this inventory path: path -> reference."""
    roots = [
        inventory.items[ref]
        for item in inventory.of_kind("Datacenter")
        if (ref := item.get("vmFolder")) in inventory.items
    ]
    paths = {folder_path(inventory.path(root), folder) for root in roots}
    return {path: item.ref for item in inventory.of_kind("Folder") if (path := inventory.path(item)) in paths}


@dataclass(frozen=True)
class Fingerprinted:
    """A virtual machine or template anywhere in vCenter that has a fingerprint: one of this collection's templates, or a clone of one."""

    item: Item
    fingerprint: Fingerprint

    @property
    def is_clone(self) -> bool:
        """Whether it has inherited the fingerprint."""
        return self.fingerprint.instance_uuid != str(self.item.get("config.instanceUuid") or "")


def read_fingerprinted(center: VCenter) -> list[Fingerprinted]:
    """All virtual machines and templates with a fingerprint, in all folders."""
    paths = ("name", "parent", "config.extraConfig", "config.instanceUuid")
    items = center.read([(center.content.rootFolder, "VirtualMachine")], {"VirtualMachine": paths})
    fingerprints = ((item, Fingerprint.from_text(extra_config(item).get(FINGERPRINT_KEY, ""))) for item in items)
    return [Fingerprinted(item, fingerprint) for item, fingerprint in fingerprints if fingerprint is not None]


def clones_of(machines: t.Iterable[Fingerprinted]) -> dict[str, list[str]]:
    """The clones of each template: instance UUID of the template -> names."""
    clones: dict[str, list[str]] = {}
    for machine in machines:
        if machine.is_clone:
            clones.setdefault(machine.fingerprint.instance_uuid, []).append(machine.item.name)
    return {key: sorted(names) for key, names in clones.items()}


def in_other_folders(
    machines: t.Iterable[Fingerprinted], inventory: Inventory, folders: t.Container[str]
) -> list[tuple[str, Fingerprint]]:
    """The paths of the templates that are not directly in the folders, so that no run sees them: somebody has declared another folder."""
    own = ((inventory.path(machine.item), machine.fingerprint) for machine in machines if not machine.is_clone)
    return sorted((each for each in own if each[0].rpartition("/")[0] not in folders), key=lambda each: each[0])


def other_folder_text(path: str) -> str:
    """The warning about a template in another folder than the declared one."""
    return (
        f"{path} is not in the declared folder, so no run replaces or deletes it. When no MachineSet uses it, delete it with the module vgpu_template (state "
        "absent, and its folder)."
    )


@dataclass
class TemplatePlan:
    """What a run does for one request: use `current`, or build `new_name`; delete what is unfinished; what is superseded and not in use is collected.

    If `current` is a virtual machine, it is made a template again: a run was killed at the end of its import, or somebody has converted it.
    """

    resolved: Resolved
    current: Template | None
    new_name: str
    unfinished: list[Template]
    superseded: list[Template]
    # Own according to the fingerprint and not complete, but not as it was imported.
    unclear: list[Template] = field(default_factory=list)
    collected: list[Template] = field(default_factory=list)
    used: dict[str, list[str]] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The inventory path of the template that MachineSets should use."""
        return self.current.path if self.current else f"{self.resolved.folder_path}/{self.new_name}"

    @property
    def changes(self) -> bool:
        """Whether the run changes anything."""
        return self.current is None or not self.current.is_template or bool(self.unfinished or self.collected)

    @property
    def action(self) -> str:
        """create, update or none."""
        if self.current is None:
            return "create"
        return "none" if self.current.is_template else "update"

    def to_result(self) -> dict[str, t.Any]:
        """The entry of the module's result."""
        request, resolved = self.resolved.request, self.resolved
        return {
            "action": self.action,
            "name": self.path.rpartition("/")[2],
            "path": self.path,
            "release": self.current.fingerprint.release
            if self.current and self.current.fingerprint
            else request.source.release,
            "sha256": request.source.sha256,
            "configuration": resolved.configuration.to_dict(),
            "removed": [template.path for template in (*self.unfinished, *self.collected)],
            "superseded": [template.path for template in self.superseded if template not in self.collected],
            "in_use": {path: users for path, users in self.used.items() if users},
        }


def plan_templates(
    resolved: t.Sequence[Resolved],
    templates: t.Sequence[Template],
    cluster: str,
    users_of: t.Callable[[Template], list[str] | None],
    *,
    are_built: bool = False,
) -> list[TemplatePlan]:
    """What to do for each request.

    cluster: the cluster that the templates belong to; those of other clusters are left alone. users_of: who uses a template; None if that is unknown, in
    which case it is not deleted. are_built: whether the new templates will exist by then.
    """
    return [_plan(each, templates, cluster, users_of, are_built) for each in resolved]


def own_templates(templates: t.Iterable[Template], cluster: str, name: str) -> list[Template]:
    """The templates that this collection has created for a name of a cluster."""
    return [
        template
        for template in templates
        if template.is_own
        and template.fingerprint is not None
        and (template.fingerprint.cluster, template.fingerprint.name) == (cluster, name)
    ]


def _plan(
    resolved: Resolved,
    templates: t.Sequence[Template],
    cluster: str,
    users_of: t.Callable[[Template], list[str] | None],
    are_built: bool,
) -> TemplatePlan:
    here = [template for template in templates if template.path.rpartition("/")[0] == resolved.folder_path]
    own = own_templates(here, cluster, resolved.request.name)
    unfinished = [template for template in own if template.is_unfinished]
    finished = [template for template in own if template.finished]
    current = next((template for template in finished if _is_current(template, resolved)), None)
    taken = {template.name for template in here} - {template.name for template in unfinished}
    plan = TemplatePlan(
        resolved,
        current,
        "" if current else _free_name(resolved, taken),
        unfinished,
        [template for template in finished if template is not current],
        [template for template in own if not template.finished and not template.is_unfinished],
    )
    for template in plan.superseded:
        users = users_of(template)
        plan.used[template.path] = users or []
        # Without a new template that exists, the old one may still be needed.
        if users == [] and (current is not None or are_built) and is_deletable(template):
            plan.collected.append(template)
    return plan


def is_deletable(template: Template) -> bool:
    """Whether an own finished template may be deleted if nothing uses it. A snapshot is somebody's, and linked clones may depend on it."""
    return template.is_own and template.is_template and not template.has_snapshot


def _is_current(template: Template, resolved: Resolved) -> bool:
    fingerprint = template.fingerprint
    return (
        fingerprint is not None
        and (fingerprint.sha256, _digest(fingerprint.configuration)) == resolved.key
        and not template.drift.keys() - {"template"}
        and not template.powered_on
        and not template.has_snapshot
        and not template.was_started
    )


def _free_name(resolved: Resolved, taken: t.Collection[str]) -> str:
    """The name of a new template. A name is taken if a template with the same content was edited by hand."""
    name, number = resolved.base_name, 2
    while name in taken:
        name, number = f"{resolved.base_name}-{number}", number + 1
    return name


def import_problems(plans: t.Iterable[TemplatePlan]) -> list[str]:
    """One line for each new template that no host can receive at present. A template that exists needs none, and neither do machines that run."""
    return [
        f"{each.request.label}: it must be built, but no usable host of {each.cluster.name} has both the datastore {each.datastore.name} and the network "
        f"{each.network.name}; connect a host, or end its maintenance mode"
        for plan in plans
        if plan.current is None and not (each := plan.resolved).hosts
    ]


def required_privileges(plans: t.Iterable[TemplatePlan], inventory: Inventory) -> dict[t.Any, list[str]]:
    """The privileges that the changes need, by the reference of the object."""
    needed: dict[t.Any, set[str]] = {}
    for plan in plans:
        if not plan.changes:
            continue
        resolved = plan.resolved
        folder = resolved.folder
        if folder is None:
            parent = _nearest_folder(inventory, resolved.folder_path)
            needed.setdefault(parent.ref, set()).update(FOLDER_PRIVILEGES, PARENT_PRIVILEGES)
        else:
            needed.setdefault(folder.ref, set()).update(FOLDER_PRIVILEGES)
        if plan.current is None:
            needed.setdefault(resolved.resource_pool, set()).update(POOL_PRIVILEGES)
            needed.setdefault(resolved.datastore.ref, set()).update(DATASTORE_PRIVILEGES)
            needed.setdefault(resolved.network.ref, set()).update(NETWORK_PRIVILEGES)
    return {ref: sorted(names) for ref, names in needed.items()}


def privilege_problems(center: VCenter, inventory: Inventory, plans: t.Sequence[TemplatePlan]) -> list[str]:
    """One line for each object on which the user lacks privileges for the changes."""
    pools = {plan.resolved.resource_pool: f"the resource pool of {plan.resolved.cluster.name}" for plan in plans}
    return _missing_privileges(center, inventory, required_privileges(plans, inventory), pools)


def deletion_problems(center: VCenter, inventory: Inventory, folders: t.Iterable[t.Any]) -> list[str]:
    """One line for each of these folders in which the user may not delete templates."""
    return _missing_privileges(center, inventory, {ref: [DELETE_PRIVILEGE] for ref in folders}, {})


def _missing_privileges(
    center: VCenter,
    inventory: Inventory,
    needed: t.Mapping[t.Any, t.Sequence[str]],
    labels: t.Mapping[t.Any, str],
) -> list[str]:
    missing = center.missing_privileges(needed) if needed else {}
    problems = []
    for ref, names in missing.items():
        item = inventory.items.get(ref)
        where = inventory.path(item) if item is not None else labels.get(ref, str(ref))
        problems.append(
            f"{where}: user {center.options.username} lacks the privileges {join_words(names)}; add them to the user's role on this object or above it"
        )
    return problems


def _nearest_folder(inventory: Inventory, path: str) -> Item:
    """The deepest existing folder on the way to a path."""
    folders = {inventory.path(item): item for item in inventory.of_kind("Folder")}
    while path not in folders:
        path = path.rpartition("/")[0]
    return folders[path]


class TemplateMismatch(ModuleFailure):
    """vCenter has not stored a template as it was sent."""

    code = "mismatch"


class TemplateBuilder:
    """Makes the changes of plans. Several threads may build templates at the same time."""

    def __init__(self, center: VCenter, cluster: str, upload: Upload, wait_timeout: float) -> None:
        """Store the arguments. `cluster` is recorded as the owner of new templates."""
        self._center, self._cluster = center, cluster
        self._upload, self._timeout = upload, wait_timeout

    def make_folder(self, inventory: Inventory, path: str) -> t.Any:
        """The reference of a folder, which is created, with the folders above it, if it does not exist."""
        nearest = _nearest_folder(inventory, path)
        ref, rest = nearest.ref, path[len(inventory.path(nearest)) :].strip("/")
        for name in filter(None, rest.split("/")):
            ref = self._center.change(f"CreateFolder {name}", ref.CreateFolder, name)
        return ref

    def delete(self, template: Template) -> None:
        """Delete a template, or the rest of an import."""
        what = f"the deletion of {template.path}"
        task = self._center.change(what, template.ref.Destroy_Task)
        self._center.wait_task(task, what, self._timeout)

    def mark(self, template: Template) -> None:
        """Make a template of a virtual machine."""
        self._center.change(f"MarkAsTemplate {template.name}", template.ref.MarkAsTemplate)

    def build(self, plan: TemplatePlan, folder: t.Any, ova: OpenOva, on_progress: t.Callable[[int, int], None]) -> str:
        """Import the OVA of a plan, and mark the virtual machine as a template; returns the release of the OVA."""
        resolved, source = plan.resolved, plan.resolved.request.source
        descriptor = ova.descriptor
        if descriptor.hardware < MIN_HARDWARE:
            raise OvaError(
                f"{source.shown} has hardware version {descriptor.hardware}. OpenShift's machine controller clones only version {MIN_HARDWARE} or "
                "newer. Use the OVA of a newer release."
            )
        release = descriptor.release or source.release
        instance_uuid = str(uuid.uuid4())
        fingerprint = Fingerprint(
            self._cluster,
            resolved.request.name,
            release,
            source.sha256,
            resolved.configuration.to_dict(),
            instance_uuid,
        )
        target = ImportTarget(
            folder, resolved.resource_pool, resolved.datastore.ref, resolved.network.ref, resolved.hosts[0].item.ref
        )
        machine = import_ova(
            self._center,
            ova,
            plan.new_name,
            target,
            lambda spec: configure(spec, fingerprint),
            self._upload,
            on_progress,
        )
        try:
            self._correct(machine, plan.new_name, fingerprint)
            self._finish(machine, plan.new_name, instance_uuid)
        except (VSphereError, TemplateMismatch) as error:
            error.add_note("The next run removes the unfinished virtual machine, and begins again.")
            raise
        return release

    def _correct(self, machine: t.Any, name: str, fingerprint: Fingerprint) -> None:
        """Read the virtual machine back, and set what vCenter has not taken from the import. Raises TemplateMismatch if something still differs."""
        differing = self._differences(machine, fingerprint)
        if differing:
            spec = vim.vm.ConfigSpec()
            write_settings(spec, fingerprint.configuration, differing)
            self._reconfigure(machine, name, spec)
            differing = self._differences(machine, fingerprint)
        if differing:
            texts = [
                f"{field} is {each['actual']!r} instead of {each['recorded']!r}" for field, each in differing.items()
            ]
            raise TemplateMismatch(
                f"vCenter has not stored all settings of {name}: {'; '.join(texts)}. Check in vCenter whether the hosts support them."
            )

    def _differences(self, machine: t.Any, fingerprint: Fingerprint) -> dict[str, dict[str, t.Any]]:
        (item,) = self._center.read([(machine, "")], {"VirtualMachine": PROPERTIES})
        return settings_differences(fingerprint.configuration, read_settings(item))

    def _reconfigure(self, machine: t.Any, name: str, spec: t.Any) -> None:
        what = f"the configuration of {name}"
        self._center.wait_task(self._center.change(what, machine.ReconfigVM_Task, spec), what, self._timeout)

    def _finish(self, machine: t.Any, name: str, instance_uuid: str) -> None:
        spec = vim.vm.ConfigSpec()
        set_extra_config(spec, {FINISHED_KEY: instance_uuid})
        self._reconfigure(machine, name, spec)
        self._center.change(f"MarkAsTemplate {name}", machine.MarkAsTemplate)


def configure(spec: t.Any, fingerprint: Fingerprint) -> None:
    """Add the settings and the fingerprint to the specification of a virtual machine that is imported."""
    spec.instanceUuid = fingerprint.instance_uuid
    write_settings(spec, fingerprint.configuration)
    set_extra_config(spec, {FINGERPRINT_KEY: fingerprint.to_text()})
