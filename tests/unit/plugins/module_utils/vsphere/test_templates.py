# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which template a run uses, builds or deletes, and what it recognizes as its own."""

from __future__ import annotations

import dataclasses
import json
import typing as t
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyVmomi import vim

from ansible_collections.accel.gpu.plugins.module_utils.catalog.openshift import template_content
from ansible_collections.accel.gpu.plugins.module_utils.core.errors import InvalidOptions
from ansible_collections.accel.gpu.plugins.module_utils.vsphere.client import Item
from ansible_collections.accel.gpu.plugins.module_utils.vsphere.inventory import Inventory
from ansible_collections.accel.gpu.plugins.module_utils.vsphere.ova import OvaSource
from ansible_collections.accel.gpu.plugins.module_utils.vsphere.settings import Configuration, set_extra_config
from ansible_collections.accel.gpu.plugins.module_utils.vsphere.templates import (
    DATASTORE_PRIVILEGES,
    FINGERPRINT_KEY,
    FINISHED_KEY,
    FOLDER_PRIVILEGES,
    NETWORK_PRIVILEGES,
    PARENT_PRIVILEGES,
    POOL_PRIVILEGES,
    Fingerprint,
    Resolved,
    Template,
    TemplatePlan,
    TemplateRequest,
    clones_of,
    configure,
    folders_named,
    import_problems,
    in_other_folders,
    is_deletable,
    own_templates,
    plan_templates,
    privilege_problems,
    read_fingerprinted,
    read_templates,
    required_privileges,
    resolve,
)
from tests.helpers.variables import anything

from .objects import Object, gpu, host, inventory

FOLDER = "/DC1/vm/accel-gpu"
CLUSTER = "prod-x7k2p"
PROFILE = "grid_a100-10c"
SOURCE = OvaSource("https://mirror.example.com/rhcos.ova", "a" * 64, "418.94")
NEWER = OvaSource("https://mirror.example.com/newer.ova", "b" * 64, "419.96")
REQUEST = TemplateRequest("vdi", PROFILE, 2, "DC1", "cluster-a", "vsan-a", "VM Network", "accel-gpu", SOURCE)
CONFIGURATION = Configuration(PROFILE, 2, 256)
ESX = host("esx-1", gpu("NVIDIA A100-PCIE-40GB", 40), profiles=[PROFILE, "grid_a100-40c"])
FOLDERS = [Item(FOLDER, "Folder", {"name": "accel-gpu", "parent": "/DC1/vm"})]


def site(*hosts: Item, folders: t.Sequence[Item] = FOLDERS) -> Inventory:
    return inventory(*(hosts or (ESX,)), extra=folders)


def resolved(*, folders: t.Sequence[Item] = FOLDERS, **changed: t.Any) -> Resolved:
    """The request, changed, with its objects."""
    (actual,) = resolve(site(folders=folders), [dataclasses.replace(REQUEST, **changed)])
    return actual


def fingerprint(**changed: t.Any) -> Fingerprint:
    """The fingerprint of a template that was built for the request."""
    base = Fingerprint(CLUSTER, "vdi", "418.94", "a" * 64, CONFIGURATION.to_dict(), "uuid-1")
    return dataclasses.replace(base, **changed)


def machine(
    name: str = "vdi-1",
    own: Fingerprint | None = None,
    *,
    configuration: Configuration = CONFIGURATION,
    finished: bool = True,
    parent: str | None = FOLDER,
    **changed: t.Any,
) -> Item:
    """What vCenter says of a machine that was built with this fingerprint; `changed` has properties with _ for each dot."""
    own = own or fingerprint()
    spec = vim.vm.ConfigSpec()
    configure(spec, dataclasses.replace(own, configuration=configuration.to_dict()))
    set_extra_config(spec, {FINGERPRINT_KEY: own.to_text()})
    done = [vim.option.OptionValue(key=FINISHED_KEY, value=own.instance_uuid)] if finished else []
    values: Object = {
        "name": name,
        "parent": parent,
        "config.template": finished,
        "config.firmware": spec.firmware,
        "config.bootOptions": spec.bootOptions,
        "config.memoryReservationLockedToMax": spec.memoryReservationLockedToMax,
        "config.extraConfig": [*spec.extraConfig, *done],
        "config.hardware.device": [vim.vm.device.VirtualPCIController(), *(each.device for each in spec.deviceChange)],
        "config.instanceUuid": spec.instanceUuid,
        "runtime.powerState": "poweredOff",
    }
    values.update({key.replace("_", "."): value for key, value in changed.items()})
    return Item(f"vm:{name}", "VirtualMachine", {key: value for key, value in values.items() if value is not None})


def read(*items: Item, folders: t.Mapping[str, t.Any] | None = None) -> list[Template]:
    center: t.Any = SimpleNamespace(read=lambda roots, properties: list(items))
    return read_templates(center, {FOLDER: FOLDER} if folders is None else folders)


def extra(item: Item, **options: str | None) -> list[t.Any]:
    """The extra configuration of a machine with some options changed; a key has __ for the dot."""
    given = {key.replace("__", "."): value for key, value in options.items()}
    kept = [each for each in item.values["config.extraConfig"] if each.key not in given]
    return kept + [vim.option.OptionValue(key=key, value=value) for key, value in given.items() if value is not None]


def vgpus(*profiles: str) -> list[t.Any]:
    kind = vim.vm.device.VirtualPCIPassthrough
    return [kind(key=number, backing=kind.VmiopBackingInfo(vgpu=name)) for number, name in enumerate(profiles)]


def plan(
    *items: Item,
    users: t.Callable[[Template], list[str] | None] = lambda template: [],
    cluster: str = CLUSTER,
    **changed: t.Any,
) -> TemplatePlan:
    """The plan for the request, changed, with these machines in the folder."""
    (actual,) = plan_templates([resolved(**changed)], read(*items), cluster, users)
    return actual


def names(templates: t.Iterable[Template]) -> list[str]:
    return [template.name for template in templates]


# Fingerprints.


TEXTS = st.text(st.characters(categories=["L", "M", "N", "P", "S"], include_characters=" "))


@given(TEXTS, TEXTS, TEXTS, TEXTS, st.dictionaries(TEXTS, st.integers() | TEXTS), TEXTS)
def test_a_fingerprint_is_read_as_it_was_written(
    cluster: str, name: str, release: str, sha256: str, configuration: Object, instance_uuid: str
) -> None:
    own = Fingerprint(cluster, name, release, sha256, configuration, instance_uuid)
    assert Fingerprint.from_text(own.to_text()) == own


GOOD = json.loads(fingerprint().to_text())
NO_TEXT: list[t.Any] = [None, 7, [], True]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "{}",
        "[]",
        '"text"',
        "7",
        "NaN",
        "{" * 100_000,
        "[" * 100_000,
        "\0",
        "\ud800",
        '{"cluster"',
        *(json.dumps({**GOOD, key: value}) for key in GOOD for value in NO_TEXT),
        *(json.dumps({key: value for key, value in GOOD.items() if key != missing}) for missing in GOOD),
        json.dumps({**GOOD, "configuration": "text"}),
        json.dumps([GOOD]),
    ],
)
def test_other_text_is_no_fingerprint(text: str) -> None:
    assert Fingerprint.from_text(text) is None
    (template,) = read(machine(config_extraConfig=[vim.option.OptionValue(key=FINGERPRINT_KEY, value=text)]))
    assert not template.is_own
    assert plan(machine(config_extraConfig=[vim.option.OptionValue(key=FINGERPRINT_KEY, value=text)])).unfinished == []


@given(st.dictionaries(st.sampled_from(sorted(GOOD)), anything), st.sampled_from(["uuid-2", "", None]))
def test_what_a_stranger_writes_is_never_taken_for_a_template(changed: Object, instance_uuid: str | None) -> None:
    text = json.dumps({**GOOD, **changed}, skipkeys=True)
    written = [vim.option.OptionValue(key=key, value=text) for key in (FINGERPRINT_KEY, FINISHED_KEY)]
    item = machine(config_extraConfig=written, config_instanceUuid=instance_uuid, config_template=False)
    (template,) = read(item)
    assert not any((template.is_own, template.finished, template.is_unfinished, is_deletable(template)))
    assert own_templates([template], CLUSTER, "vdi") == []
    json.dumps(template.to_result())
    actual = plan(item)
    assert (actual.current, actual.unfinished, actual.superseded, actual.collected) == (None, [], [], [])


def test_a_copy_is_never_taken_for_a_template() -> None:
    for finished in (True, False):
        original = machine(finished=finished)
        copy = Item("vm:copy", original.kind, {**original.values, "name": "copy", "config.instanceUuid": "uuid-2"})
        (actual,) = read(copy)
        assert actual.fingerprint == fingerprint()
        assert not any((actual.is_own, actual.is_unfinished, actual.finished))
        assert plan(copy).unfinished == plan(copy).superseded == []


@pytest.mark.parametrize("recorded", ["", "uuid-1"])
def test_a_machine_without_uuid_is_never_taken_for_a_template(recorded: str) -> None:
    own = fingerprint(instance_uuid=recorded)
    for finished in (True, False):
        (template,) = read(machine(own=own, finished=finished, config_instanceUuid=None))
        assert not any((template.is_own, template.is_unfinished, template.finished))


# What a template is.


def test_a_template_is_what_it_was_configured_as() -> None:
    (template,) = read(machine())
    assert (template.name, template.path, template.is_template) == ("vdi-1", f"{FOLDER}/vdi-1", True)
    assert template.actual == CONFIGURATION.to_dict()
    assert (template.is_own, template.finished, template.is_unfinished, template.drift) == (True, True, False, {})
    assert template.to_result() == {
        "name": "vdi-1",
        "path": f"{FOLDER}/vdi-1",
        "instance_uuid": "uuid-1",
        "release": "418.94",
        "sha256": "a" * 64,
        "configuration": CONFIGURATION.to_dict(),
        "drift": {},
    }


def test_a_setting_of_another_release_of_the_collection_is_no_change_by_hand() -> None:
    recorded = {**CONFIGURATION.to_dict(), "former": True}
    (template,) = read(machine(own=fingerprint(configuration=recorded)))
    assert template.drift == {}


def test_the_settings_are_added_to_those_of_the_descriptor() -> None:
    kept = vim.option.OptionValue(key="disk.EnableUUID", value="TRUE")
    disk = vim.vm.device.VirtualDeviceSpec(operation="add", device=vim.vm.device.VirtualDisk(key=-1))
    spec: t.Any = vim.vm.ConfigSpec(
        extraConfig=[kept, vim.option.OptionValue(key="pciPassthru.64bitMMIOSizeGB", value="32")], deviceChange=[disk]
    )
    configure(spec, fingerprint())
    assert {each.key: each.value for each in spec.extraConfig} == {
        "disk.EnableUUID": "TRUE",
        "pciPassthru.use64bitMMIO": "TRUE",
        "pciPassthru.64bitMMIOSizeGB": "256",
        FINGERPRINT_KEY: fingerprint().to_text(),
    }
    assert spec.deviceChange[0] is disk
    added = [each.device for each in spec.deviceChange[1:]]
    assert [device.backing.vgpu for device in added] == [PROFILE, PROFILE]
    assert len({each.device.key for each in spec.deviceChange}) == 3
    assert (spec.firmware, spec.bootOptions.efiSecureBootEnabled, spec.memoryReservationLockedToMax) == (
        "efi",
        False,
        True,
    )


BASE = machine()
DRIFT: list[tuple[Object, str, t.Any]] = [
    ({"config_hardware_device": vgpus("grid_a100-40c", "grid_a100-40c")}, "profile", "grid_a100-40c"),
    ({"config_hardware_device": vgpus(PROFILE, "grid_a100-40c")}, "profile", "grid_a100-10c, grid_a100-40c"),
    ({"config_hardware_device": vgpus(PROFILE)}, "count", 1),
    ({"config_hardware_device": vgpus(PROFILE, PROFILE, PROFILE)}, "count", 3),
    ({"config_hardware_device": None}, "count", 0),
    ({"config_extraConfig": extra(BASE, pciPassthru__64bitMMIOSizeGB="128")}, "mmio_gib", 128),
    ({"config_extraConfig": extra(BASE, pciPassthru__64bitMMIOSizeGB=None)}, "mmio_gib", 0),
    ({"config_extraConfig": extra(BASE, pciPassthru__64bitMMIOSizeGB="much")}, "mmio_gib", 0),
    ({"config_extraConfig": extra(BASE, pciPassthru__64bitMMIOSizeGB="-256")}, "mmio_gib", 0),
    ({"config_extraConfig": extra(BASE, pciPassthru__64bitMMIOSizeGB="9" * 5000)}, "mmio_gib", 0),
    ({"config_extraConfig": extra(BASE, pciPassthru__use64bitMMIO="FALSE")}, "mmio_gib", 0),
    ({"config_firmware": "bios"}, "firmware", "bios"),
    ({"config_firmware": None}, "firmware", ""),
    ({"config_bootOptions": vim.vm.BootOptions(efiSecureBootEnabled=True)}, "secure_boot", True),
    ({"config_memoryReservationLockedToMax": False}, "memory_locked", False),
    ({"config_memoryReservationLockedToMax": None}, "memory_locked", False),
]


@pytest.mark.parametrize(("changed", "field", "value"), DRIFT)
def test_a_template_that_was_changed_is_replaced(changed: Object, field: str, value: t.Any) -> None:
    item = machine(**changed)
    (template,) = read(item)
    assert template.drift[field] == {"recorded": CONFIGURATION.to_dict()[field], "actual": value}
    actual = plan(item)
    assert (actual.action, actual.current, names(actual.superseded), actual.collected) == (
        "create",
        None,
        ["vdi-1"],
        [],
    )


@pytest.mark.parametrize(
    "changed",
    [
        # vCenter changes the case of values, and omits boot options that are the default.
        {"config_extraConfig": extra(BASE, pciPassthru__use64bitMMIO="true")},
        {"config_bootOptions": None},
        # What the settings do not contain may be changed.
        {"config_extraConfig": extra(BASE, guestinfo__owner="me")},
    ],
)
def test_what_makes_no_difference(changed: Object) -> None:
    item = machine(**changed)
    (template,) = read(item)
    assert template.drift == {}
    assert plan(item).action == "none"


@pytest.mark.parametrize(
    "changed",
    [
        # The machine controller sizes the disks of clones wrongly if there is a snapshot.
        {"snapshot": "snap"},
        # Clones of a disk that has been booted are not configured by Ignition.
        {"config_extraConfig": extra(BASE, sched__swap__derivedName="/vmfs/volumes/vdi-1.vswp")},
    ],
)
def test_a_template_that_somebody_has_used_otherwise_is_replaced(changed: Object) -> None:
    actual = plan(machine(**changed))
    assert (actual.action, names(actual.superseded)) == ("create", ["vdi-1"])


def test_machines_in_other_folders_are_not_read() -> None:
    items = [machine("b"), machine("a"), machine("below", parent=f"{FOLDER}/below"), machine("lost", parent=None)]
    assert names(read(*items)) == ["a", "b"]
    assert read(*items, folders={}) == []


# Plans.


def test_a_current_template_is_used() -> None:
    actual = plan(machine())
    assert (actual.action, actual.changes, actual.new_name, actual.path) == ("none", False, "", f"{FOLDER}/vdi-1")
    assert actual.to_result() == {
        "action": "none",
        "name": "vdi-1",
        "path": f"{FOLDER}/vdi-1",
        "release": "418.94",
        "sha256": "a" * 64,
        "configuration": CONFIGURATION.to_dict(),
        "removed": [],
        "superseded": [],
        "in_use": {},
    }


def test_without_templates_one_is_built() -> None:
    actual = plan()
    assert (actual.action, actual.changes) == ("create", True)
    assert actual.new_name == actual.resolved.base_name
    assert actual.path == f"{FOLDER}/{actual.new_name}"
    assert actual.to_result()["release"] == "418.94"


@pytest.mark.parametrize(
    "changed",
    [{"source": NEWER}, {"count": 1}, {"mmio_gib": 512}, {"profile": "grid_a100-40c"}],
)
def test_another_release_or_configuration_is_another_template(changed: Object) -> None:
    old = machine()
    actual = plan(old, **changed)
    # The old one is needed until the new one exists.
    assert (actual.action, names(actual.superseded), actual.collected) == ("create", ["vdi-1"], [])
    assert actual.new_name != plan().new_name
    request = actual.resolved
    (predicted,) = plan_templates([request], read(old), CLUSTER, lambda template: [], are_built=True)
    assert names(predicted.collected) == ["vdi-1"]
    (predicted,) = plan_templates([request], read(old), CLUSTER, lambda template: ["MachineSet vdi"], are_built=True)
    assert predicted.collected == []
    new = machine(
        "vdi-2",
        fingerprint(
            sha256=request.request.source.sha256, configuration=request.configuration.to_dict(), instance_uuid="uuid-2"
        ),
        configuration=request.configuration,
    )
    after = plan(old, new, **changed)
    assert (after.action, after.path, names(after.collected)) == ("none", f"{FOLDER}/vdi-2", ["vdi-1"])
    assert after.changes
    assert after.to_result()["removed"] == [f"{FOLDER}/vdi-1"]


OLD_AND_NEW = (machine("old", fingerprint(sha256="c" * 64, instance_uuid="uuid-0")), machine("new"))


@pytest.mark.parametrize(
    ("users", "collected", "in_use"),
    [
        ([], ["old"], {}),
        (["MachineSet vdi"], [], {f"{FOLDER}/old": ["MachineSet vdi"]}),
        # It is not known who uses it.
        (None, [], {}),
    ],
)
def test_an_old_template_is_deleted_if_nothing_uses_it(
    users: list[str] | None, collected: list[str], in_use: Object
) -> None:
    actual = plan(*OLD_AND_NEW, users=lambda template: users)
    assert (names(actual.superseded), names(actual.collected)) == (["old"], collected)
    assert actual.changes is bool(collected)
    assert actual.to_result()["in_use"] == in_use


@pytest.mark.parametrize(
    ("changed", "deletable"),
    [
        ({}, True),
        # Linked clones may depend on a snapshot.
        ({"snapshot": "snap"}, False),
        # Somebody has made it a machine.
        ({"config_template": False}, False),
        ({"config_template": False, "runtime_powerState": "poweredOn"}, False),
        ({"config_instanceUuid": "uuid-9"}, False),
    ],
)
def test_an_old_template_that_is_kept(changed: Object, deletable: bool) -> None:
    old = machine("old", fingerprint(sha256="c" * 64, instance_uuid="uuid-0"), **changed)
    (template,) = read(old)
    assert is_deletable(template) is deletable
    assert names(plan(old, machine("new")).collected) == (["old"] if deletable else [])


def test_the_rest_of_a_killed_run_is_deleted() -> None:
    rest = machine(resolved().base_name, finished=False)
    actual = plan(rest)
    assert (actual.action, names(actual.unfinished), actual.superseded) == ("create", [rest.name], [])
    # Its name is free once it is deleted.
    assert actual.new_name == rest.name
    assert actual.to_result()["removed"] == [f"{FOLDER}/{rest.name}"]
    assert plan(rest, machine("vdi-9", fingerprint(instance_uuid="uuid-9"))).changes


@pytest.mark.parametrize(
    "changed",
    [
        # A clone of it, one that somebody has started or marked, and one of which nothing is known.
        {"config_instanceUuid": "uuid-2"},
        {"runtime_powerState": "poweredOn"},
        {"config_template": True},
        {"config_instanceUuid": None},
        {"config_extraConfig": None},
    ],
)
def test_what_is_no_rest_of_a_killed_run(changed: Object) -> None:
    actual = plan(machine("vdi-1", finished=False, **changed))
    assert (actual.action, actual.unfinished, actual.collected) == ("create", [], [])


@pytest.mark.parametrize(
    ("own", "changed"),
    [
        (None, {"snapshot": "snap"}),
        # ESXi writes this key at the first start.
        (None, {"config_extraConfig": extra(machine(finished=False), sched__swap__derivedName="/vmfs/volumes/x.vswp")}),
        (None, {"runtime_powerState": "poweredOn"}),
        (None, {"config_template": True}),
        # A fingerprint that this collection would not have written.
        (fingerprint(configuration={}), {}),
        (fingerprint(configuration={"profile": PROFILE, "count": 2}), {}),
    ],
)
def test_a_fingerprint_alone_deletes_no_virtual_machine(own: Fingerprint | None, changed: Object) -> None:
    item = machine("payroll", own, finished=False, **changed)
    actual = plan(item)
    assert (actual.action, actual.unfinished, actual.superseded) == ("create", [], [])
    assert names(actual.unclear) == ["payroll"]
    # A virtual machine whose name the template would have is also kept.
    assert plan(dataclasses.replace(item, values={**item.values, "name": actual.new_name})).new_name.endswith("-2")


def test_a_finished_import_that_was_not_marked_is_marked() -> None:
    actual = plan(machine(config_template=False))
    assert (actual.action, actual.changes, actual.path, actual.superseded) == ("update", True, f"{FOLDER}/vdi-1", [])


def test_a_template_that_was_started_is_replaced() -> None:
    actual = plan(machine(config_template=False, runtime_powerState="poweredOn"))
    assert (actual.action, names(actual.superseded), actual.collected) == ("create", ["vdi-1"], [])


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("other", [{"cluster": "other-a1b2c"}, {"name": "train"}])
def test_templates_of_other_clusters_and_names_are_left_alone(other: Object, finished: bool) -> None:
    actual = plan(machine(own=fingerprint(**other), finished=finished))
    assert (actual.current, actual.unfinished, actual.superseded, actual.collected) == (None, [], [], [])


def test_each_folder_has_templates_of_its_own() -> None:
    other = f"{FOLDER}-b"
    folders = [*FOLDERS, Item(other, "Folder", {"name": "accel-gpu-b", "parent": "/DC1/vm"})]
    actual = read(
        machine("here"),
        machine("there", fingerprint(instance_uuid="uuid-2"), parent=other),
        machine("rest", fingerprint(instance_uuid="uuid-3"), parent=other, finished=False),
        folders={FOLDER: FOLDER, other: other},
    )
    requests = [resolved(folders=folders), resolved(folders=folders, folder="accel-gpu-b")]
    here, elsewhere = plan_templates(requests, actual, CLUSTER, lambda template: [])
    assert (here.path, here.unfinished, here.superseded) == (f"{FOLDER}/here", [], [])
    assert (elsewhere.path, names(elsewhere.unfinished), elsewhere.superseded) == (f"{other}/there", ["rest"], [])


def test_a_taken_name_gets_a_number() -> None:
    base = resolved().base_name
    edited = machine(base, config_firmware="bios")
    stranger = Item("vm:s", "VirtualMachine", {"name": f"{base}-2", "parent": FOLDER})
    assert plan(edited).new_name == f"{base}-2"
    # Machines of both templates are equal.
    assert template_content(plan(edited).new_name) == template_content(base) == base
    assert plan(edited, stranger).new_name == f"{base}-3"
    assert plan(stranger).new_name == base


def test_names() -> None:
    assert resolved().base_name == resolved().base_name
    assert resolved().base_name.startswith("vdi-418.94-")
    # Without a release, the checksum tells files apart.
    assert resolved(source=OvaSource("/x.ova", "d" * 64)).base_name.startswith("vdi-dddddddd-")
    longest = resolved(name="n" * 40, source=OvaSource("x", "e" * 64, "418.94.202501221327-0"))
    # vCenter's limit.
    assert len(f"{longest.base_name}-99") <= 80


# Clones, folders, privileges.


def test_clones_inherit_the_fingerprint_of_their_template() -> None:
    items = [
        machine("template"),
        *(machine(name, config_instanceUuid=f"uuid-{name}") for name in ("b", "a")),
        machine("other", config_extraConfig=None),
        machine("of-another", fingerprint(instance_uuid="uuid-5"), config_instanceUuid="uuid-6"),
    ]
    center: t.Any = SimpleNamespace(read=lambda roots, kinds: items, content=SimpleNamespace(rootFolder="root"))
    assert clones_of(read_fingerprinted(center)) == {"uuid-1": ["a", "b"], "uuid-5": ["of-another"]}


def test_templates_in_other_folders_than_the_declared_one() -> None:
    """Those of all clusters; clones are machines, and those in the folder are seen by every run."""
    items = [
        machine("here", parent=FOLDER),
        machine("old", parent="/DC1/vm"),
        machine("clone", parent="/DC1/vm", config_instanceUuid="uuid-2"),
        machine("other", parent="/DC1/vm", config_extraConfig=None),
    ]
    center: t.Any = SimpleNamespace(read=lambda roots, kinds: items, content=SimpleNamespace(rootFolder="root"))
    outside = in_other_folders(read_fingerprinted(center), inventory(*FOLDERS), [FOLDER])
    assert [(path, each.name) for path, each in outside] == [("/DC1/vm/old", "vdi")]


@pytest.mark.parametrize(
    ("folder", "paths"),
    [
        ("accel-gpu", [FOLDER]),
        ("/DC1/vm/accel-gpu/", [FOLDER]),
        ("accel-gpu/", [FOLDER]),
        ("gpu", []),
        ("/DC2/vm/accel-gpu", []),
    ],
)
def test_folders(folder: str, paths: list[str]) -> None:
    assert list(folders_named(site(), folder)) == paths


def privileges(actual: TemplatePlan, folders: t.Sequence[Item] = FOLDERS) -> dict[t.Any, list[str]]:
    return required_privileges([actual], site(folders=folders))


BUILDING = {
    "pool-root": sorted(POOL_PRIVILEGES),
    "vsan-a": sorted(DATASTORE_PRIVILEGES),
    "net-a": sorted(NETWORK_PRIVILEGES),
}


def test_the_privileges_follow_from_the_changes() -> None:
    assert privileges(plan(machine())) == {}
    assert privileges(plan()) == {FOLDER: sorted(FOLDER_PRIVILEGES), **BUILDING}
    # Nothing is imported.
    assert privileges(plan(*OLD_AND_NEW)) == {FOLDER: sorted(FOLDER_PRIVILEGES)}
    assert privileges(plan(machine(config_template=False))) == {FOLDER: sorted(FOLDER_PRIVILEGES)}


@pytest.mark.parametrize(
    ("folder", "nearest"), [("accel-gpu", "/DC1/vm"), ("accel-gpu/a/b", "/DC1/vm"), ("/DC1/vm/x", "/DC1/vm")]
)
def test_a_folder_that_does_not_exist_is_created_in_the_nearest(folder: str, nearest: str) -> None:
    needed = privileges(plan(folder=folder, folders=[]), folders=[])
    assert needed == {nearest: sorted([*FOLDER_PRIVILEGES, *PARENT_PRIVILEGES]), **BUILDING}


def test_missing_privileges_are_named_with_the_object() -> None:
    missing = {FOLDER: ["VApp.Import"], "pool-root": ["Resource.AssignVMToPool"]}
    center: t.Any = SimpleNamespace(
        missing_privileges=lambda needed: missing, options=SimpleNamespace(username="u@vsphere.local")
    )
    first, second = privilege_problems(center, site(), [plan()])
    assert first.startswith(f"{FOLDER}: user u@vsphere.local lacks the privileges VApp.Import; add them")
    assert second.startswith("/DC1/host/cluster-a/Resources: ")
    center = SimpleNamespace(missing_privileges=None)
    assert privilege_problems(center, site(), [plan(machine())]) == []


# Requests.


@pytest.mark.parametrize(
    ("changed", "configuration"),
    [
        ({}, Configuration(PROFILE, 2, 256)),
        # vCenter accepts only the spelling of the hosts.
        ({"profile": "GRID_A100-10C", "count": 1}, Configuration(PROFILE, 1, 128)),
        ({"mmio_gib": 1024}, Configuration(PROFILE, 2, 1024)),
    ],
)
def test_the_settings_follow_from_the_hosts(changed: Object, configuration: Configuration) -> None:
    actual = resolved(**changed)
    assert actual.configuration == configuration
    assert (actual.folder_path, actual.resource_pool, names_of_hosts(actual)) == (FOLDER, "pool-root", ["esx-1"])
    assert actual.warnings == ()


@pytest.mark.parametrize(
    ("folder", "path"),
    [
        ("gpu", "/DC1/vm/gpu"),
        ("gpu/a100", "/DC1/vm/gpu/a100"),
        ("gpu//a100/", "/DC1/vm/gpu/a100"),
        ("/DC1/vm/gpu/", "/DC1/vm/gpu"),
        ("//DC1/vm//gpu", "/DC1/vm/gpu"),
    ],
)
def test_the_path_of_a_folder(folder: str, path: str) -> None:
    actual = resolved(folder=folder)
    assert (actual.folder_path, actual.folder) == (path, None)


def names_of_hosts(actual: Resolved) -> list[str]:
    return [each.name for each in actual.hosts]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"datacenter": "DC9"}, 'datacenter: "DC9" does not exist; did you mean DC1? known: DC1'),
        ({"cluster": "b"}, 'cluster: "b" does not exist in data center DC1; known: cluster-a'),
        ({"datastore": "b"}, 'datastore: "b" does not exist in data center DC1; known: vsan-a'),
        ({"network": "b"}, 'network: "b" does not exist in data center DC1; known: VM Network'),
        ({"resource_pool": "b"}, 'resource_pool: "b" is no resource pool of cluster-a'),
        ({"profile": "grid_t4-4q"}, 'profile: no host of cluster-a offers "grid_t4-4q"; known: '),
        ({"folder": "/DC1/host/x"}, 'folder: "/DC1/host/x" is not below /DC1/vm'),
        ({"folder": "/DC2/vm/x"}, "is not below /DC1/vm"),
        ({"folder": "/"}, "is not below /DC1/vm"),
        ({"folder": "/DC1/vm"}, "is not below /DC1/vm"),
        ({"folder": ""}, "is not below /DC1/vm"),
    ],
)
def test_a_request_that_names_what_does_not_exist(changed: Object, message: str) -> None:
    with pytest.raises(InvalidOptions) as raised:
        resolved(**changed)
    (problem,) = raised.value.problems
    assert problem.startswith("Template vdi: ")
    assert message in problem


def test_all_problems_are_reported() -> None:
    requests = [dataclasses.replace(REQUEST, name=name, cluster="b") for name in ("one", "two")]
    with pytest.raises(InvalidOptions) as raised:
        resolve(site(), requests)
    assert [problem.partition(":")[0] for problem in raised.value.problems] == ["Template one", "Template two"]


@pytest.mark.parametrize(
    ("actual", "message"),
    [
        (host("esx-1", profiles=[PROFILE]), "mmio_gib: the hosts of cluster-a do not report the memory of their GPUs"),
        (host("esx-1"), "profile: no host of cluster-a offers"),
        (
            host("esx-1", network=[]),
            "no host of cluster-a has both the datastore vsan-a and the network VM Network",
        ),
    ],
)
def test_hosts_that_cannot_have_the_machines(actual: Item, message: str) -> None:
    with pytest.raises(InvalidOptions) as raised:
        resolve(site(actual), [REQUEST])
    assert message in raised.value.problems[0]


@pytest.mark.parametrize(
    ("built", "changed", "messages"),
    [
        (True, {"runtime_inMaintenanceMode": True}, []),
        (True, {"runtime_connectionState": "notResponding"}, []),
        (
            False,
            {"runtime_inMaintenanceMode": True},
            [
                "Template vdi: it must be built, but no usable host of cluster-a has both the datastore vsan-a and the network VM Network"
            ],
        ),
        (False, {}, []),
    ],
)
def test_only_a_new_template_needs_a_usable_host(built: bool, changed: Object, messages: list[str]) -> None:
    card = gpu("NVIDIA A100-PCIE-40GB", 40)
    requests = resolve(site(host("esx-1", card, profiles=[PROFILE], **changed)), [REQUEST])
    plans = plan_templates(requests, read(machine()) if built else [], CLUSTER, lambda _template: [])
    assert [problem.partition(";")[0] for problem in import_problems(plans)] == messages


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"config_graphicsConfig": SimpleNamespace(hostDefaultGraphicsType="shared")},
            "the default graphics type of esx-1 is not Shared Direct, so no machine with a vGPU starts there; set it with the playbook vsphere_hosts",
        ),
    ],
)
def test_warnings(changed: Object, message: str) -> None:
    card = gpu("NVIDIA A100-PCIE-40GB", 40)
    (actual,) = resolve(site(host("esx-1", card, profiles=[PROFILE], **changed)), [REQUEST])
    (warning,) = actual.warnings
    assert warning.startswith("Template vdi: ")
    assert message in warning
