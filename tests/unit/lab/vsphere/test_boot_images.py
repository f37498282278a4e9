# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated updates of boot images on vSphere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab.machine_api.machine_sets import machine_set, provider_spec
from lab.openshift import machine_configuration, releases
from lab.openshift.objects import FAILURE_DOMAINS, INFRASTRUCTURE
from lab.vsphere import inventory
from lab.vsphere.boot_images import Problem, Replace, Repoint, Template, decide, is_selected, saved_templates

NEW, OLD = "9.8.20260428-0", "9.8.20260301-0"
OUTSIDE = f"{inventory.TEMPLATES_FOLDER}/gpu-10c"
INSIDE = f"{inventory.MACHINES_FOLDER}/gpu-10c"
OWN = f"{INFRASTRUCTURE}-rhcos-zone-a"
DOMAINS = list(FAILURE_DOMAINS.values())


def group(template: str = OUTSIDE, workspace: dict[str, str] | None = None) -> dict[str, Any]:
    provider = provider_spec("VSphere", "zone-a") | {"template": template}
    provider["workspace"] = provider["workspace"] | (workspace or {})
    return machine_set("prod-gpu", provider, replicas=1)


@pytest.mark.parametrize(
    ("template", "templates", "expected"),
    [
        ("gpu-10c", [Template(INSIDE, NEW)], None),
        (INSIDE, [Template(INSIDE, NEW)], None),
        ("gpu-10c", [Template(INSIDE, OLD)], Replace(INSIDE, DOMAINS[0])),
        (INSIDE, [Template(INSIDE, OLD)], Replace(INSIDE, DOMAINS[0])),
        (OUTSIDE, [Template(OUTSIDE, NEW)], Repoint(OWN, DOMAINS[0], missing=True)),
        (OUTSIDE, [Template(OUTSIDE, OLD)], Repoint(OWN, DOMAINS[0], missing=True)),
        ("gpu-10c", [Template(OUTSIDE, NEW)], Repoint(OWN, DOMAINS[0], missing=True)),
        (
            OUTSIDE,
            [Template(OUTSIDE, NEW), Template(f"{inventory.MACHINES_FOLDER}/{OWN}", NEW)],
            Repoint(OWN, DOMAINS[0], missing=False),
        ),
    ],
)
def test_a_template_in_the_folder_is_replaced_and_another_one_is_left(
    template: str, templates: list[Template], expected: object
) -> None:
    assert decide(group(template), templates, DOMAINS, INFRASTRUCTURE, NEW) == expected


@pytest.mark.parametrize(
    "workspace",
    [
        {"resourcePool": "/DC1/host/cluster-a/Resources/gpu"},
        {"datastore": "/DC1/datastore/templates"},
        {"server": "other.example.com"},
        {"datacenter": "DC2"},
        {"vmGroup": "gpus"},
    ],
)
def test_a_workspace_that_is_no_failure_domains_degrades_the_operator(workspace: dict[str, str]) -> None:
    assert isinstance(decide(group(OUTSIDE, workspace), [], DOMAINS, INFRASTRUCTURE, NEW), Problem)


def test_a_path_with_a_slash_more_is_the_same_resource_pool() -> None:
    same = group(INSIDE, {"resourcePool": "/DC1/host/cluster-a//Resources/"})
    assert decide(same, [Template(INSIDE, NEW)], DOMAINS, INFRASTRUCTURE, NEW) is None


def entry(mode: str, resource: str = "machinesets", **selector: Any) -> dict[str, Any]:
    partial = {"partial": {"machineResourceSelector": selector}} if mode == "Partial" else {}
    return {"resource": resource, "apiGroup": "machine.openshift.io", "selection": {"mode": mode, **partial}}


ALL = entry("All")


@pytest.mark.parametrize(
    ("spec", "minor", "expected"),
    [
        ({}, "4.16", []),
        ({"managedBootImages": {"machineManagers": [ALL]}}, "4.18", []),
        ({}, "4.20", []),
        ({"managedBootImages": {"machineManagers": [ALL]}}, "4.20", [ALL]),
        ({}, "5.0", [ALL]),
        ({"managedBootImages": {}}, "5.0", [ALL]),
        ({"managedBootImages": {"machineManagers": []}}, "5.0", []),
        ({"managedBootImages": {"machineManagers": [entry("None")]}}, "5.0", [entry("None")]),
        (
            {"managedBootImages": {"machineManagers": [entry("None", "controlplanemachinesets")]}},
            "5.0",
            [entry("None", "controlplanemachinesets"), ALL],
        ),
    ],
)
def test_the_status_has_the_default_of_the_release(
    spec: dict[str, Any], minor: str, expected: list[dict[str, Any]]
) -> None:
    assert machine_configuration.machine_managers(spec, releases.find(minor), "VSphere") == expected
    assert machine_configuration.machine_managers({}, releases.find(minor), "AWS") == []


GUARD = entry("Partial", matchExpressions=[{"key": "accel.gpu/template", "operator": "DoesNotExist"}])


@pytest.mark.parametrize(
    ("entries", "labels", "expected"),
    [
        ([], {}, False),
        ([ALL], {}, True),
        ([entry("None")], {}, False),
        ([entry("None", "controlplanemachinesets"), ALL], {}, True),
        ([entry("All", "controlplanemachinesets")], {}, False),
        ([entry("Partial", matchLabels={"update": "yes"})], {"update": "yes"}, True),
        ([entry("Partial", matchLabels={"update": "yes"})], {}, False),
        ([entry("Partial")], {}, True),
        ([GUARD], {}, True),
        ([GUARD], {"accel.gpu/template": "x"}, False),
        ([entry("Partial", matchExpressions=[{"key": "a", "operator": "In", "values": ["b"]}])], {"a": "b"}, True),
        ([entry("Partial", matchExpressions=[{"key": "a", "operator": "NotIn", "values": ["b"]}])], {"a": "b"}, False),
        ([entry("Partial", matchExpressions=[{"key": "a", "operator": "Exists"}])], {}, False),
        ([ALL], {"machineconfiguration.openshift.io/osstream": "rhel-10"}, False),
        ([ALL], {"machineconfiguration.openshift.io/osstream": "rhel-9"}, True),
    ],
)
def test_selected_machine_sets(entries: list[dict[str, Any]], labels: dict[str, str], expected: bool) -> None:
    one = group()
    one["metadata"]["labels"] |= labels
    assert is_selected(one, entries) is expected


def test_machine_sets_of_others_are_skipped() -> None:
    owned, windows, migrated = group(), group(), group()
    owned["metadata"]["ownerReferences"] = [{"kind": "MachineDeployment"}]
    windows["spec"]["template"]["metadata"]["labels"]["machine.openshift.io/os-id"] = "Windows"
    migrated["status"] = {"authoritativeAPI": "ClusterAPI"}
    assert [is_selected(one, [ALL]) for one in (owned, windows, migrated)] == [False] * 3


def test_templates_are_read_from_the_vcenters_file(tmp_path: Path) -> None:
    path = tmp_path / "machines.json"
    assert saved_templates(path) == []
    product = {"vAppConfig": {"product": [{"version": NEW}]}}
    machine = {"name": "m", "folder": inventory.MACHINES_FOLDER, "template": False, "config": product}
    template = {"name": "gpu-10c", "folder": inventory.TEMPLATES_FOLDER, "template": True, "config": product}
    bare = {"name": "bare", "folder": inventory.TEMPLATES_FOLDER, "template": True, "config": {}}
    path.write_text(json.dumps([machine, template, bare]))
    assert saved_templates(path) == [Template(OUTSIDE, NEW), Template(f"{inventory.TEMPLATES_FOLDER}/bare", "")]
