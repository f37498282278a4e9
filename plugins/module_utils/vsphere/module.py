# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of the modules for vCenter: connection options, the session, and the cluster whose machines use the templates."""

from __future__ import annotations

import functools
import hashlib
import typing as t

from ..catalog.openshift import MACHINE_API_NAMESPACE, FailureDomain
from ..catalog.vgpu import MAX_TEMPLATE_NAME, MAX_VGPUS, mmio_problem, profile_problem
from ..core.errors import InvalidOptions, ServiceError
from ..core.http import ConnectionPools
from ..core.messages import join_words, quote
from ..core.module import ArgumentSpec, merge_specs
from ..core.types import unprintable
from ..kube.connection_options import CONNECTION as KUBE_CONNECTION
from ..kube.module import LEASE_OPTIONS, ClusterModule, shown_options
from .client import VCenter, VCenterOptions, VSphereError
from .connection import CONNECTION, VARIABLES
from .openshift import OpenShift, find_failure_domain
from .ova import OvaSource, Upload, without_credentials
from .templates import TemplateRequest, folder_path

KUBERNETES: ArgumentSpec = {"kubernetes": {"type": "dict", "options": {**KUBE_CONNECTION, **LEASE_OPTIONS}}}
_TEMPLATE: ArgumentSpec = {
    "name": {"type": "str"},
    "profile": {"type": "str"},
    "count": {"type": "int", "default": 1},
    "failure_domain": {"type": "str"},
    "datacenter": {"type": "str"},
    "cluster": {"type": "str"},
    "datastore": {"type": "str"},
    "network": {"type": "str"},
    "resource_pool": {"type": "str"},
    "folder": {"type": "str", "default": "accel-gpu"},
    "mmio_gib": {"type": "int"},
    "machines": {"type": "int"},
    "max_machines": {"type": "int"},
    "recreate": {"type": "bool", "default": False},
    "driver_version": {"type": "str"},
    "url": {"type": "str"},
    "path": {"type": "path"},
    "checksum": {"type": "str"},
}
# The options of one template, and the list of several.
TEMPLATES: ArgumentSpec = {
    **_TEMPLATE,
    "templates": {
        "type": "list",
        "elements": "dict",
        "options": {name: {**option, "required": name == "name"} for name, option in _TEMPLATE.items()},
    },
}
# URLs with signatures may be long.
_TEXTS = [name for name, option in _TEMPLATE.items() if option["type"] == "str" and name != "url"]
_PLACES = ("datacenter", "cluster", "datastore", "network")


class VSphereModule(ClusterModule):
    """A module for vCenter. The connection to the cluster is in the option `kubernetes`, if the module has it."""

    records_name = False

    def __init__(self, argument_spec: ArgumentSpec, **kwargs: t.Any) -> None:
        """Compose the argument spec. A module's own options override shared options with the same name."""
        super().__init__(merge_specs(CONNECTION, argument_spec), **kwargs)

    def _load_params(self) -> None:
        """Also remember which options are set by the task, before Ansible adds those of the environment."""
        super()._load_params()
        self._given = {name for name, value in self.params.items() if value not in (None, "")}

    @property
    def kube_params(self) -> dict[str, t.Any]:
        """The option `kubernetes`; empty if it is not set."""
        return self.params.get("kubernetes") or {}

    def shown_params(self) -> dict[str, t.Any]:
        """The parameters to show, without the kubeconfig in the option `kubernetes` and without the credentials in the URLs of OVAs."""
        shown = _without_credentials(super().shown_params())
        if isinstance(shown.get("kubernetes"), dict):
            shown["kubernetes"] = shown_options(shown["kubernetes"])
        if isinstance(shown.get("templates"), list):
            shown["templates"] = [
                _without_credentials(each) if isinstance(each, dict) else each for each in shown["templates"]
            ]
        return shown

    @functools.cached_property
    def center(self) -> VCenter:
        """The session with vCenter, which has not logged in yet. Without the option hostname, it is the vCenter of the cluster in `kubernetes`."""
        hostname, port = self.params["hostname"], self.params["port"]
        if self.openshift is not None:
            hostname, port = self._address_in(self.openshift.vcenters())
        params = {**self.params, "hostname": hostname, "port": port or 443}
        return VCenter(VCenterOptions.from_params(params), self.user_agent)

    def _address_in(self, vcenters: t.Mapping[str, int | None]) -> tuple[str | None, int | None]:
        """The host name and the port of vCenter, one of these of the cluster unless the option hostname names another.

        Raises InvalidOptions if the environment names another one, because a variable that was set for something else must not choose whose hosts and
        virtual machines are changed.
        """
        hostname, port = self.params["hostname"], self.params["port"]
        if not hostname:
            hostname = next(iter(vcenters)) if len(vcenters) == 1 else None
        name = _one_of(vcenters, hostname or "")
        known = vcenters[name] if name else None
        foreign = [] if name or not hostname or "hostname" in self._given else [(VARIABLES["hostname"], hostname)]
        if port and known and port != known and "port" not in self._given:
            foreign.append((VARIABLES["port"], port))
        if foreign:
            variables = join_words(f"{variable} is {value}" for variable, value in foreign)
            those = ", ".join(f"{each}:{of_each}" if of_each else each for each, of_each in vcenters.items())
            raise InvalidOptions(
                [
                    f"hostname: the environment variable {variables}, but the Infrastructure object of the cluster names the vCenter {those or '(none)'}. "
                    "Nothing was changed. Unset the variable, or set the host name and the port that are meant: hostname and port of the module, or "
                    "gpu_cluster.cloud.machineset.vsphere"
                ]
            )
        return hostname, port or known

    @functools.cached_property
    def openshift(self) -> OpenShift | None:
        """The cluster in the option `kubernetes`; None without this option."""
        if self.params.get("kubernetes") is None:
            return None
        # Modules without the option read no MachineSets.
        return OpenShift(self.client, self.params.get("namespace", MACHINE_API_NAMESPACE))

    def has_written(self) -> bool:
        """Whether vCenter or the API server has accepted a write."""
        center = self.__dict__.get("center")
        return (center is not None and center.has_written) or super().has_written()

    def explain_error(self, error: ServiceError) -> str:
        """The message for an error."""
        return error.message if isinstance(error, VSphereError) else super().explain_error(error)

    def run(self, work: t.Callable[[t.Any], dict[str, t.Any]]) -> t.NoReturn:
        """Like BaseModule.run(), but end the session first."""

        def closing(module: VSphereModule) -> dict[str, t.Any]:
            try:
                return work(module)
            finally:
                if "center" in module.__dict__:
                    module.center.close()

        super().run(closing)

    def upload(self) -> Upload:
        """How disks are sent to ESXi hosts."""
        options = self.center.options

        def pinned(thumbprint: str) -> ConnectionPools:
            # vCenter, whose own certificate was verified, names the certificate of the host; hosts often have one that no CA of this machine has signed.
            return ConnectionPools(validate_certs=False, assert_fingerprint=thumbprint.replace(":", ""))

        return Upload(
            options.pools(),
            pinned if options.validate_certs and not options.ca_cert else None,
            options.address,
            options.request_timeout,
        )

    def downloads(self) -> ConnectionPools:
        """The connections to the server of an OVA, which is not vCenter: the CA certificates of the system also apply, and the proxies in the environment."""
        options = self.center.options
        return ConnectionPools(validate_certs=options.validate_certs, ca_cert=options.ca_cert, add_system_cas=True)

    def requests(self) -> list[TemplateRequest]:
        """The declared templates, with the places of their failure domains. Raises InvalidOptions with all problems."""
        self.center  # noqa: B018 (a wrong vCenter is no problem of each template)
        given = self.params["templates"]
        entries = [self.params] if given is None else given
        problems: list[str] = []
        requests = []
        for entry in entries:
            label = f"Template {entry['name']}"
            own_problems = [
                f"{label}: {problem}" for problem in _entry_problems(entry, has_cluster=self.openshift is not None)
            ]
            problems += own_problems
            if not own_problems:
                try:
                    requests.append(self._request(entry))
                except InvalidOptions as error:
                    problems += [f"{label}: {problem}" for problem in error.problems]
        names = [entry["name"] for entry in entries]
        problems += [
            f"Template {name}: is declared more than once"
            for name in sorted({name for name in names if names.count(name) > 1})
        ]
        if problems:
            raise InvalidOptions(problems)
        return requests

    def _request(self, entry: t.Mapping[str, t.Any]) -> TemplateRequest:
        places = {name: entry[name] for name in (*_PLACES, "resource_pool")}
        if self.openshift is not None:
            domains = self.openshift.failure_domains()
            if entry["failure_domain"] or not all(places[name] for name in _PLACES):
                domain = self.failure_domain(self.openshift, entry["failure_domain"])
                places = {name: value or getattr(domain, name) for name, value in places.items()}
            own = self.openshift.infrastructure_name()
            for domain in domains:
                # Without a folder, the machines are in one with the name of the cluster (openshift/installer, pkg/asset/machines/vsphere).
                machines = folder_path(f"/{domain.datacenter.strip('/')}/vm", domain.folder or own)
                if machines == folder_path(f"/{(places['datacenter'] or '').strip('/')}/vm", entry["folder"]):
                    raise InvalidOptions(
                        [
                            f"folder: {entry['folder']} is the folder of the cluster's machines, in which OpenShift replaces templates with its own; set "
                            "another folder"
                        ]
                    )
        return TemplateRequest(
            name=entry["name"],
            profile=entry["profile"],
            count=entry["count"],
            folder=entry["folder"],
            mmio_gib=entry["mmio_gib"],
            **{name: entry[name] for name in ("machines", "max_machines", "recreate", "driver_version")},
            source=self._source(entry),
            **places,
        )

    def failure_domain(self, openshift: OpenShift, name: str | None) -> FailureDomain:
        """The failure domain with this name or zone. Raises InvalidOptions if there is none, or if it is on another vCenter than this run.

        A host name that is not in the Infrastructure object may be an alias of the same vCenter, so it only causes a warning.
        """
        domain = find_failure_domain(openshift.failure_domains(), name)
        hostname = self.center.options.hostname
        if domain.server and domain.server.lower() != hostname.lower():
            text = f"failure domain {domain.name} is on vCenter {domain.server}, but the run is connected to {hostname}"
            if _one_of(openshift.vcenters(), hostname):
                raise InvalidOptions(
                    [f"hostname: {text}, another vCenter of the cluster; set hostname to {domain.server}"]
                )
            self.warn(f"The {text}. If that is not another name of the same vCenter, set hostname to {domain.server}.")
        return domain

    def _source(self, entry: t.Mapping[str, t.Any]) -> OvaSource:
        location = entry["url"] or entry["path"]
        if location is None:
            return self._release_source
        if entry["checksum"]:
            return OvaSource(location, entry["checksum"].removeprefix("sha256:").lower())
        return OvaSource(location, _checksum_of(location))

    @functools.cached_property
    def _release_source(self) -> OvaSource:
        return t.cast("OpenShift", self.openshift).source()


def _without_credentials(options: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Options of a template to show."""
    url = options.get("url")
    return {**options, "url": without_credentials(url)} if isinstance(url, str) else dict(options)


def _one_of(vcenters: t.Iterable[str], hostname: str) -> str | None:
    """The vCenter with this host name in any case."""
    return next((name for name in vcenters if name.lower() == hostname.lower()), None)


def _entry_problems(entry: t.Mapping[str, t.Any], *, has_cluster: bool) -> t.Iterator[str]:
    """The problems of one template that can be found without vCenter."""
    for option, value in entry.items():
        if option in _TEXTS and isinstance(value, str) and (problem := unprintable(value)):
            yield f"{option}: {problem}"
    name = entry["name"] or ""
    if not name.strip() or "/" in name or len(name) > MAX_TEMPLATE_NAME:
        yield f"name: must have 1 to {MAX_TEMPLATE_NAME} characters without a slash, because the release and a checksum are added to it"
    if not entry["profile"]:
        yield "profile: is not set; set a vGPU profile, such as grid_a100-10c (module vgpu_profile_info lists them)"
    elif problem := profile_problem(entry["profile"]):
        yield f"profile: {problem}"
    if not 1 <= entry["count"] <= MAX_VGPUS:
        yield f"count: {entry['count']} is not a number of vGPUs from 1 to {MAX_VGPUS}"
    if entry["mmio_gib"] is not None and (problem := mmio_problem(entry["mmio_gib"])):
        yield f"mmio_gib: {problem}"
    for option in ("machines", "max_machines"):
        if (entry[option] or 0) < 0:
            yield f"{option}: {entry[option]} is negative; set the number of virtual machines that are cloned from the template"
    if None not in (entry["machines"], entry["max_machines"]) and entry["machines"] > entry["max_machines"] >= 0:
        yield f"max_machines: {entry['max_machines']} is less than machines, which is {entry['machines']}; raise it, or omit it"
    missing = [place for place in _PLACES if not entry[place]]
    if missing and not has_cluster:
        yield f"{', '.join(missing)}: not set; set them, or set kubernetes, so that the failure domain is read from the cluster"
    if any(part in (".", "..") or not part.strip() for part in entry["folder"].strip("/").split("/")):
        yield f"folder: {quote(entry['folder'])} contains an empty part, a dot or two dots; use names with one slash between them"
    if entry["url"] and entry["path"]:
        yield "url and path: are mutually exclusive"
    if entry["url"] and not entry["url"].startswith(("https://", "http://")):
        yield "url: must begin with https:// or http://"
    elif entry["url"] and not entry["url"].isprintable():
        yield "url: contains an invisible character; remove it (this includes line breaks)"
    if not (entry["url"] or entry["path"]) and not has_cluster:
        yield "url, path: not set; set one of them, or set kubernetes, so that the OVA of the cluster's release is used"
    checksum = (entry["checksum"] or "").removeprefix("sha256:")
    if entry["url"] and not checksum:
        yield "checksum: is required with url; set sha256: and the SHA-256 of the file"
    if checksum and (
        len(checksum) != hashlib.sha256().digest_size * 2
        or not all(each in "0123456789abcdefABCDEF" for each in checksum)
    ):
        yield "checksum: is not a SHA-256; set sha256: and 64 hexadecimal digits"


def _checksum_of(path: str) -> str:
    """The SHA-256 of a file."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InvalidOptions([f"path: {path} cannot be read: {error.strerror}"]) from error
