# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an OpenShift cluster says about its templates: failure domains, the OVA of its release, and the MachineSets that use a template."""

from __future__ import annotations

import functools
import json
import re
import typing as t

from ..catalog.openshift import INFRASTRUCTURE_PATH, FailureDomain, failure_domains, machine_sets_path, machines_path
from ..core.errors import InvalidOptions
from ..core.messages import join_words, quote
from ..core.values import Object, get_nested
from ..kube.fields import name_of
from ..kube.lease import read_uid
from .ova import OvaSource

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from .templates import Template

# The ConfigMap with the boot images of the cluster's release (openshift/machine-config-operator, pkg/controller/common/constants.go). Its key `stream` has
# the format of `openshift-install coreos print-stream-json` (coreos/stream-metadata-go, stream/stream.go).
BOOT_IMAGES_PATH = "/api/v1/namespaces/openshift-machine-config-operator/configmaps/coreos-bootimages"
_ARCHITECTURE = "x86_64"
_STREAM = {"location": r"https?://\S+", "sha256": r"[0-9a-fA-F]{64}", "release": r"[0-9A-Za-z][0-9A-Za-z._-]{0,31}"}
# Phases of a Machine whose virtual machine exists, so that its template is no longer needed for it.
_CLONED = ("Provisioned", "Running", "Deleting", "Failed")


class OpenShift:
    """Reads from one OpenShift cluster on vSphere."""

    def __init__(self, client: Client, namespace: str) -> None:
        """Store the arguments without sending a request. `namespace` is that of the MachineSets."""
        self._client, self._namespace = client, namespace

    def infrastructure(self) -> Object:
        """The Infrastructure object. Raises InvalidOptions if the cluster is not OpenShift on vSphere."""
        body = self._client.get_once(INFRASTRUCTURE_PATH)
        platform = get_nested(body, "status", "platformStatus", "type") or get_nested(
            body, "spec", "platformSpec", "type"
        )
        if body is None or platform != "VSphere":
            what = (
                f"has the platform {platform}" if platform else "has no Infrastructure object, so it is not OpenShift"
            )
            raise InvalidOptions(
                [f"kubernetes: the cluster {what}; templates of virtual machines are used by OpenShift on vSphere"]
            )
        return body

    def infrastructure_name(self) -> str:
        """The unique name of the cluster, with which the names of its machines begin."""
        return str(get_nested(self.infrastructure(), "status", "infrastructureName") or "")

    @functools.cached_property
    def owner(self) -> str:
        """The identity of the cluster in the fingerprints of its templates: a copy of a cluster has the same name, but its kube-system has another UID."""
        uid = read_uid(self._client)
        if not uid:
            raise InvalidOptions(
                [
                    "kubernetes: the user may not read the namespace kube-system, whose UID identifies the owner of templates; allow get on it"
                ]
            )
        return f"{self.infrastructure_name()}/{uid}"

    def vcenters(self) -> dict[str, int | None]:
        """The vCenters of the cluster: host name -> port, which is None if the cluster does not name it."""
        centers = get_nested(self.infrastructure(), "spec", "platformSpec", "vsphere", "vcenters") or ()
        ports = {str(center.get("server") or ""): center.get("port") or None for center in centers}
        ports = ports or {each.server: None for each in self.failure_domains()}
        return {name: port for name, port in ports.items() if name}

    def failure_domains(self) -> list[FailureDomain]:
        """The failure domains of the cluster; none in a cluster that was installed before OpenShift 4.13 without any."""
        return failure_domains(self.infrastructure())

    def source(self) -> OvaSource:
        """The OVA of the cluster's release."""
        return stream_source(self._client.get(BOOT_IMAGES_PATH))

    def templates_in_use(self) -> dict[str, list[str]]:
        """Who names each template: its name, or the last part of its path -> MachineSets, and Machines that are not cloned yet."""
        users: dict[str, list[str]] = {}
        for kind, path in (
            ("MachineSet", machine_sets_path(self._namespace)),
            ("Machine", machines_path(self._namespace)),
        ):
            for item in self._client.list(path):
                template = template_of(item)
                if not template or (kind == "Machine" and get_nested(item, "status", "phase") in _CLONED):
                    continue
                users.setdefault(_key_of(template.rpartition("/")[2]), []).append(f"{kind} {name_of(item)}")
        return users

    def users_of(self, used: t.Mapping[str, list[str]], template: Template) -> list[str]:
        """Who uses a template. The machine controller finds templates by name, by path, or by instance UUID."""
        return [*used.get(template.name, ()), *used.get(template.instance_uuid.lower(), ())]


def _key_of(name: str) -> str:
    """A name; a UUID, by which the machine controller also finds templates, is the same in capitals."""
    return name.lower() if re.fullmatch(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}", name) else name


def template_of(item: Object) -> str:
    """The template that a MachineSet or a Machine names; empty if there is none."""
    spec = get_nested(item, "spec", "template", "spec") or item.get("spec")
    return str(get_nested(spec, "providerSpec", "value", "template") or "")


def find_failure_domain(domains: t.Sequence[FailureDomain], name: str | None) -> FailureDomain:
    """The failure domain with this name or zone; without a name, the only one. Raises InvalidOptions if there is no such failure domain."""
    names = ", ".join(domain.name for domain in domains) or "none"
    if name is None and len(domains) == 1:
        return domains[0]
    if name is None:
        remedy = (
            "set one of them (nodes.zones of the pool)"
            if domains
            else "add a failure domain to it (oc edit infrastructure cluster), or set datacenter, cluster, datastore and network of the module"
        )
        raise InvalidOptions([f"failure_domain: is not set, and the cluster has {len(domains)} ({names}); {remedy}"])
    in_zone = [domain for domain in domains if domain.zone == name]
    domain = next((domain for domain in domains if domain.name == name), in_zone[0] if len(in_zone) == 1 else None)
    if domain is None and in_zone:
        several = ", ".join(domain.name for domain in in_zone)
        raise InvalidOptions([f"failure_domain: {quote(name)} is the zone of several ({several}); set one of them"])
    if domain is None:
        raise InvalidOptions([f"failure_domain: {quote(name)} is not in the Infrastructure object; known: {names}"])
    return domain


def stream_source(config_map: Object | None) -> OvaSource:
    """The OVA in the ConfigMap of the boot images. Raises InvalidOptions if it has none for vSphere.

    Everything in it is checked: the location must not be a file of this machine, without a checksum nothing would be verified, and the name of the
    template contains the release.
    """
    if config_map is None:
        raise InvalidOptions(
            [
                "ova: the cluster has no ConfigMap coreos-bootimages, from which the OVA of its release is known; set url and checksum"
            ]
        )
    try:
        stream = json.loads(get_nested(config_map, "data", "stream") or "null")
    except (ValueError, RecursionError):
        stream = None
    artifact = get_nested(stream, "architectures", _ARCHITECTURE, "artifacts", "vmware")
    disk = get_nested(artifact, "formats", "ova", "disk")
    values = {**(disk if isinstance(disk, dict) else {}), "release": get_nested(artifact, "release")}
    texts = {key: str(values.get(key) or "") for key in _STREAM}
    if wrong := [key for key, pattern in _STREAM.items() if not re.fullmatch(pattern, texts[key])]:
        raise InvalidOptions(
            [
                f"ova: ConfigMap coreos-bootimages has no OVA for {_ARCHITECTURE}, because {join_words(wrong)} is missing or invalid; set url and checksum"
            ]
        )
    return OvaSource(texts["location"], texts["sha256"].lower(), texts["release"])
