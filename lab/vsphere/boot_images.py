# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the Machine Config Operator does with the templates of MachineSets on vSphere, simulated.

Source: openshift/machine-config-operator, pkg/controller/bootimage (ms_helpers.go, vsphere_helpers.go): which MachineSets it skips, how it finds the failure
domain of a MachineSet, and that a template keeps its name but not its devices.
"""

from __future__ import annotations

import datetime
import json
import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..api import Api, Object
from ..machine_api.machine_sets import MACHINE_SETS
from ..openshift import machine_configuration
from . import images

_INFRASTRUCTURE = "/apis/config.openshift.io/v1/infrastructures/cluster"
_CONFIG_MAP = f"/api/v1/namespaces/{images.NAMESPACE}/configmaps/{images.CONFIG_MAP}"
_STREAM_LABEL = "machineconfiguration.openshift.io/osstream"
_WINDOWS_LABEL = "machine.openshift.io/os-id"
_DEGRADED = "BootImageUpdateDegraded"
_EXPRESSIONS = {
    "In": lambda labels, key, values: labels.get(key) in values,
    "NotIn": lambda labels, key, values: labels.get(key) not in values,
    "Exists": lambda labels, key, values: key in labels,
    "DoesNotExist": lambda labels, key, values: key not in labels,
}


@dataclass(frozen=True)
class Template:
    """A template in the vCenter, and the RHCOS release of its product."""

    path: str
    release: str

    @property
    def name(self) -> str:
        """The last part of its path."""
        return posixpath.basename(self.path)


@dataclass(frozen=True)
class Replace:
    """A plain image takes the place and the name of a template."""

    path: str
    domain: Object


@dataclass(frozen=True)
class Repoint:
    """A MachineSet uses the cluster's own template, which is created if it is missing."""

    name: str
    domain: Object
    missing: bool


@dataclass(frozen=True)
class Problem:
    """The operator cannot update a MachineSet, and is degraded."""

    text: str


def is_selected(machine_set: Object, entries: Sequence[Object]) -> bool:
    """Return whether the operator manages the boot images of a MachineSet; `entries` are those of the status."""
    metadata = machine_set["metadata"]
    template = machine_set["spec"]["template"].get("metadata", {}).get("labels") or {}
    labels = metadata.get("labels") or {}
    if metadata.get("ownerReferences") or labels.get(_STREAM_LABEL, "rhel-9") != "rhel-9":
        return False
    if template.get(_WINDOWS_LABEL) == "Windows":
        return False
    if machine_set.get("status", {}).get("authoritativeAPI", "MachineAPI") != "MachineAPI":
        return False
    entry = next((one for one in entries if machine_configuration.is_of_machine_sets(one)), None)
    if entry is None:
        return False
    selection = entry["selection"]
    if selection["mode"] != "Partial":
        return bool(selection["mode"] == "All")
    return matches(labels, selection["partial"]["machineResourceSelector"])


def matches(labels: Object, selector: Object) -> bool:
    """Return whether labels fulfill a label selector; an empty one selects everything."""
    expressions = selector.get("matchExpressions") or ()
    return (selector.get("matchLabels") or {}).items() <= labels.items() and all(
        _EXPRESSIONS[one["operator"]](labels, one["key"], one.get("values") or ()) for one in expressions
    )


def decide(
    machine_set: Object, templates: Iterable[Template], domains: Sequence[Object], infrastructure: str, release: str
) -> Replace | Repoint | Problem | None:
    """Return what the operator does with a MachineSet that it manages; `release` is that of the cluster's boot images."""
    provider = machine_set["spec"]["template"]["spec"]["providerSpec"]["value"]
    workspace, named = provider["workspace"], provider["template"]
    domain = next((one for one in domains if _is_of(workspace, one)), None)
    if domain is None:
        return Problem(f"no failure domain has the workspace of MachineSet {machine_set['metadata']['name']}")
    own = f"{infrastructure}-rhcos-{domain['name']}"
    known = list(templates)
    inside = [one for one in known if posixpath.dirname(one.path) == workspace["folder"]]
    current = next((one for one in inside if named in (one.name, one.path)), None)
    if current is None:
        return Repoint(own, domain, missing=own not in [one.name for one in inside])
    return None if current.release == release else Replace(current.path, domain)


def _is_of(workspace: Object, domain: Object) -> bool:
    topology = domain["topology"]
    return (workspace["server"], workspace["datacenter"], workspace["datastore"], workspace.get("vmGroup")) == (
        domain["server"],
        topology["datacenter"],
        topology["datastore"],
        topology.get("hostGroup"),
    ) and posixpath.normpath(workspace["resourcePool"]) == posixpath.normpath(topology["resourcePool"])


def saved_templates(path: Path) -> list[Template]:
    """Return the templates in the file of the simulated vCenter."""
    try:
        machines: list[dict[str, Any]] = json.loads(path.read_text())
    except FileNotFoundError:
        return []
    templates = []
    for one in machines:
        products = (one["config"].get("vAppConfig") or {}).get("product") or [{}]
        if one["template"]:
            templates.append(Template(f"{one['folder']}/{one['name']}", products[0].get("version", "")))
    return templates


class Govc(Protocol):
    """Runs a command of govc."""

    def __call__(self, *words: str) -> str:
        """Return its output."""


class BootImages:
    """The controller of one cluster."""

    def __init__(self, api: Api, govc: Govc, machines: Path, folder: Path) -> None:
        """Take the vCenter's file, and the folder with the images."""
        self._api, self._govc, self._machines, self._folder = api, govc, machines, folder

    def reconcile(self) -> None:
        """Update the boot images of all MachineSets that the operator manages."""
        live = self._api.get(machine_configuration.PATH) or {}
        status = live.get("status") or {}
        if status.get("observedGeneration") != live.get("metadata", {}).get("generation"):
            return
        entries = status.get("managedBootImagesStatus", {}).get("machineManagers") or []
        selected = [one for one in self._api.list(MACHINE_SETS) if is_selected(one, entries)]
        problems = [text for one in selected if (text := self._update(one))]
        self._report(status, problems)

    def _update(self, machine_set: Object) -> str:
        infrastructure, config = self._api.get(_INFRASTRUCTURE), self._api.get(_CONFIG_MAP)
        if infrastructure is None or config is None:
            return ""
        vmware = json.loads(config["data"]["stream"])["architectures"]["x86_64"]["artifacts"]["vmware"]
        domains = infrastructure["spec"]["platformSpec"]["vsphere"]["failureDomains"]
        name = infrastructure["status"]["infrastructureName"]
        image = self._folder / posixpath.basename(vmware["formats"]["ova"]["disk"]["location"])
        action = decide(machine_set, saved_templates(self._machines), domains, name, vmware["release"])
        if isinstance(action, Problem):
            return action.text
        if isinstance(action, Replace):
            self._import(image, f"mco-tmp-{posixpath.basename(action.path)}", action.domain)
            temporary = f"{posixpath.dirname(action.path)}/mco-tmp-{posixpath.basename(action.path)}"
            self._govc("vm.destroy", action.path)
            self._govc("object.rename", temporary, posixpath.basename(action.path))
            print(f"vsphere: replaced {action.path} with {image.name}", flush=True)
        elif action is not None:
            if action.missing:
                self._import(image, action.name, action.domain)
            provider = {"template": action.name}
            body = {"spec": {"template": {"spec": {"providerSpec": {"value": provider}}}}}
            self._api.merge(f"{MACHINE_SETS}/{machine_set['metadata']['name']}", body)
            print(f"vsphere: MachineSet {machine_set['metadata']['name']} uses {action.name}", flush=True)
        return ""

    def _import(self, image: Path, name: str, domain: Object) -> None:
        import_template(self._govc, image, name, domain["topology"])

    def _report(self, status: Object, problems: list[str]) -> None:
        condition = {
            "type": _DEGRADED,
            "status": "True" if problems else "False",
            "reason": "MachineSetsDegraded" if problems else "AsExpected",
            "message": "; ".join(problems),
        }
        before: Object = next((one for one in status.get("conditions") or () if one["type"] == _DEGRADED), {})
        if condition.items() <= before.items():
            return
        condition["lastTransitionTime"] = _now()
        others = [one for one in status.get("conditions") or () if one["type"] != _DEGRADED]
        self._api.merge(f"{machine_configuration.PATH}/status", {"status": {"conditions": [*others, condition]}})


def import_template(govc: Govc, image: Path, name: str, topology: Object) -> None:
    """Create a plain template from an image in a failure domain."""
    path = f"{topology['folder']}/{name}"
    place = (
        "-folder",
        topology["folder"],
        "-pool",
        topology["resourcePool"],
        "-ds",
        posixpath.basename(topology["datastore"]),
    )
    govc("import.ova", "-name", name, *place, str(image))
    govc("vm.markastemplate", path)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
