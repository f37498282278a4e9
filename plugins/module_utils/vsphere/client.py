# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Talks to vCenter with pyvmomi: connection, errors, bulk reads, tasks, privileges."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import http.client
import inspect
import ipaddress
import re
import ssl
import traceback
import typing as t
from dataclasses import dataclass, field
from xml.etree import ElementTree
from xml.parsers import expat

from ..catalog.secrets import without_user_info
from ..core.errors import (
    BROKEN,
    REFUSED,
    SERVER_FAILURES,
    TIMEOUT,
    TLS,
    ConnectionProblem,
    InvalidOptions,
    ModuleFailure,
    ServiceError,
    missing_library,
)
from ..core.http import HTTP_ERRORS, ConnectionPools, no_answer
from ..core.messages import join_words, quote
from ..core.values import get_nested
from ..core.waits import wait_until
from .connection import CONNECTION, VARIABLES

PYVMOMI_IMPORT_ERROR: str | None = None
try:
    from pyVmomi import SoapAdapter, VmomiSupport, vim, vmodl
except ImportError:
    PYVMOMI_IMPORT_ERROR = traceback.format_exc()

_NAMESPACE = "urn:vim25"
# The release of vSphere in which a virtual machine can have several vGPUs, and the oldest one that OpenShift supported.
_OLDEST = (7, 0)
_TASK_INTERVAL = 2.0
_EVENTS = 1000
_RECENT = datetime.timedelta(hours=1)
_MAX_TIMEOUT = 86400
_HOST_NAME, _MAX_HOST_NAME = re.compile(r"[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?"), 253


class VSphereError(ServiceError):
    """A fault of vCenter, or a missing response, for which the status is None."""

    service = "vCenter"
    address_setting = "hostname and port"
    proxy_setting = "proxy_host and proxy_port"

    def __init__(self, message: str, *, fault: str = "", **fields: t.Any) -> None:
        """`fault` is the name of the fault's type, such as NoPermission; `path` is the operation."""
        super().__init__(message, **fields)
        self.fault = fault


class RejectedLogin(ConnectionProblem):
    """vCenter does not accept the user name and the password. No caller tries again, because vCenter locks accounts."""

    code = "login"


@dataclass(frozen=True)
class VCenterOptions:
    """The options of the connection."""

    hostname: str
    username: str
    password: str = field(repr=False)
    port: int = 443
    validate_certs: bool = True
    ca_cert: str | None = None
    proxy_host: str | None = None
    proxy_port: int | None = None
    request_timeout: int = 60

    @classmethod
    def from_params(cls, params: t.Mapping[str, t.Any]) -> VCenterOptions:
        """Create the options from a module's parameters. Raises ConnectionProblem if one that is required is missing, and InvalidOptions."""
        missing = [name for name in ("hostname", "username", "password") if not params.get(name)]
        if missing:
            variables = [VARIABLES[name] for name in missing]
            raise ConnectionProblem(
                f"Not set: {join_words(missing)} of vCenter. Set the options, or the environment variables {join_words(variables)}."
            )
        ranges = (("port", 65535), ("proxy_port", 65535), ("request_timeout", _MAX_TIMEOUT))
        problems = [
            f"{name}: {params[name]} is not a number from 1 to {highest}"
            for name, highest in ranges
            if params.get(name) is not None and not 1 <= params[name] <= highest
        ]
        problems += [
            f"{name}: {quote(without_user_info(params[name]))} is not a host name or an IP address; set it without scheme, brackets and port (the port is the "
            f"option {port})"
            for name, port in (("hostname", "port"), ("proxy_host", "proxy_port"))
            if params.get(name) and not _is_host(params[name])
        ]
        if problems:
            raise InvalidOptions(problems)
        names = [each.name for each in dataclasses.fields(cls)]
        return cls(**{name: params[name] for name in names if params.get(name) is not None})

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"[{self.hostname}]:{self.port}" if ":" in self.hostname else f"{self.hostname}:{self.port}"

    def pools(self) -> ConnectionPools:
        """HTTP connections with the TLS settings and the proxy of these options."""
        proxy = f"http://{self.proxy_host}:{self.proxy_port or 80}" if self.proxy_host else None
        return ConnectionPools(validate_certs=self.validate_certs, ca_cert=self.ca_cert, proxy=proxy)

    def tls_context(self) -> ssl.SSLContext:
        """The TLS settings for connections to vCenter."""
        if not self.validate_certs:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            return context
        try:
            return ssl.create_default_context(cafile=self.ca_cert)
        except (OSError, ssl.SSLError) as error:
            raise ConnectionProblem(
                f"ca_cert: {self.ca_cert} contains no CA certificates that can be read ({error}). Set the path of a PEM file."
            ) from error


@dataclass(frozen=True)
class Item:
    """One object of vCenter with the properties that were read; properties without a value, or that the user may not read, are missing."""

    ref: t.Any
    kind: str
    values: t.Mapping[str, t.Any]

    @property
    def name(self) -> str:
        """The name, in which vCenter writes a slash as %2f."""
        return str(self.values.get("name") or "")

    def get(self, path: str, default: t.Any = None) -> t.Any:
        """A property by its path."""
        return self.values.get(path, default)


def _is_host(text: str) -> bool:
    """Whether a text is a host name or an IP address; IPv6 without brackets and without a zone."""
    if len(text) <= _MAX_HOST_NAME and _HOST_NAME.fullmatch(text):
        return True
    try:
        return "%" not in text and ipaddress.ip_address(text).version == 6
    except ValueError:
        return False


class VCenter:
    """A session with one vCenter. Nothing is sent before the first use; several threads can use the same instance."""

    def __init__(self, options: VCenterOptions, agent: str = "") -> None:
        """Store the options. `agent` is the User-Agent, which vCenter shows with the session."""
        if PYVMOMI_IMPORT_ERROR is not None:
            raise missing_library("pyvmomi>=8.0.3.0.1", "A connection to vCenter")
        self.options, self._agent = options, agent
        self._instance: t.Any = None
        # Called before each change, for example to check that the run still holds the Lease of its cluster.
        self.before_change: t.Callable[[], object] | None = None
        self._logged_in = False
        self.has_written = False

    @functools.cached_property
    def content(self) -> t.Any:
        """The entry to all managers of vCenter; logs in at the first use."""
        version = self._version
        if self.options.proxy_host and not _supports_proxies():
            raise ConnectionProblem(
                "proxy_host needs pyvmomi 9.0.0.0 or newer, because older ones fail behind a proxy. Install a newer pyvmomi."
            )
        stub = SoapAdapter.SoapStubAdapter(
            host=self.options.hostname,
            port=self.options.port,
            version=version,
            sslContext=self.options.tls_context(),
            httpProxyHost=self.options.proxy_host,
            httpProxyPort=self.options.proxy_port or 80,
            httpConnectionTimeout=self.options.request_timeout,
            customHeaders={"User-Agent": self._agent} if self._agent else None,
        )
        self._instance = vim.ServiceInstance("ServiceInstance", stub)
        content = self._convert("RetrieveServiceContent", self._instance.RetrieveContent)
        self._login(content)
        return content

    @property
    def api_version(self) -> tuple[int, ...]:
        """The number of the API's version that vCenter and pyvmomi have in common. pyvmomi drops what a newer version has, without an error."""
        return _number(self._version)

    @functools.cached_property
    def _version(self) -> str:
        """The newest version that pyvmomi and vCenter have in common, from the list that vCenter publishes without a login."""
        options = self.options
        url = f"https://{options.address}/sdk/vimServiceVersions.xml"
        try:
            answer = options.pools().for_url(url).request("GET", url, timeout=options.request_timeout, retries=False)
        except HTTP_ERRORS as error:
            raise self._explained(no_answer(VSphereError, error, method="GET", path=url)) from error
        if answer.status in SERVER_FAILURES:
            raise VSphereError(
                f"vCenter {options.address} is not available (status {answer.status}). Try again later.",
                status=answer.status,
                path=url,
            )
        known = VmomiSupport.GetServiceVersions("vim25")
        supported = supported_versions(answer.data) if answer.status == 200 else set()
        newest = next((version for version in known if VmomiSupport.versionIdMap[version] in supported), None)
        if newest is None:
            raise ConnectionProblem(
                f"{options.address} is not a vCenter with an API that pyvmomi supports: {url} answered with status {answer.status}. "
                f"Check {VSphereError.address_setting}."
            )
        if _number(newest) < _OLDEST:
            raise ConnectionProblem(
                f"vCenter {options.address} and pyvmomi have only version {VmomiSupport.versionIdMap[newest]} of the API in common, but vGPUs need 7.0. "
                "Install a newer pyvmomi, or upgrade vCenter."
            )
        return t.cast("str", newest)

    def _login(self, content: t.Any) -> None:
        options = self.options
        try:
            self._convert("Login", content.sessionManager.Login, options.username, options.password)
        except ServiceError as error:
            if getattr(error, "fault", "") != "InvalidLogin":
                raise
            # Not repeated, because vCenter locks accounts after a few failed logins.
            raise RejectedLogin(
                f"vCenter {options.address} does not accept the user name and the password of {options.username}. Check username and password; "
                "user names contain a domain, such as automation@vsphere.local."
            ) from error
        self._logged_in = True

    def close(self) -> None:
        """End the session, because vCenter limits the number of sessions."""
        if self._logged_in:
            self._logged_in = False
            with contextlib.suppress(VSphereError):
                self._convert("Logout", self.content.sessionManager.Logout)

    def call(self, operation: str, function: t.Callable[..., t.Any], *args: t.Any, writes: bool = False) -> t.Any:
        """The result of a method of a managed object. If the session has expired, which is always noticed before anything is done, logs in again once."""
        self.content  # noqa: B018 (logs in)
        try:
            answer = self._convert(operation, function, *args)
        except VSphereError as error:
            if error.fault != "NotAuthenticated":
                raise
            # vCenter accepts no login with the cookie of another session.
            self._instance._stub.cookie = ""
            self._login(self.content)
            answer = self._convert(operation, function, *args)
        self.has_written = self.has_written or writes
        return answer

    def change(self, operation: str, function: t.Callable[..., t.Any], *args: t.Any) -> t.Any:
        """Call a method that changes something."""
        if self.before_change is not None:
            self.before_change()
        return self.call(operation, function, *args, writes=True)

    def _convert(self, operation: str, function: t.Callable[..., t.Any], *args: t.Any) -> t.Any:
        """Call a method, and convert each of pyvmomi's exceptions to an error of this collection."""
        try:
            return function(*args)
        except vmodl.MethodFault as fault:
            raise fault_error(fault, operation) from fault
        except (OSError, http.client.HTTPException) as error:
            raise self._explained(_no_answer(error, operation)) from error
        except (KeyError, expat.ExpatError) as error:
            # A type that this version of pyvmomi does not know, or a page of a proxy.
            text = f"{operation}: pyvmomi cannot read the response of vCenter ({type(error).__name__}: {error}). Install a newer pyvmomi."
            raise VSphereError(text, status=400, path=operation) from error

    def _explained(self, error: VSphereError) -> VSphereError:
        error.message = (
            f"No response from vCenter {self.options.address} ({error.operation}): {error.message}. {error.remedy}"
        )
        error.args = (error.message,)
        return error

    def read(self, roots: t.Sequence[tuple[t.Any, str]], properties: t.Mapping[str, t.Sequence[str]]) -> list[Item]:
        """Properties of all objects below some roots, with one request for each page of the answer.

        roots: a container (folder, data center) and the kind of the objects below it, or an object itself and an empty kind.
        properties: the property paths of each kind, such as {"HostSystem": ["name", "parent"]}. An object of a subtype counts as its kind.
        """
        collector, query = self.content.propertyCollector, vmodl.query.PropertyCollector
        objects = []
        for root, kind in roots:
            if not kind:
                objects.append(query.ObjectSpec(obj=root))
                continue
            kinds = [getattr(vim, name) for name in kind.split()]
            view = self.call("CreateContainerView", self.content.viewManager.CreateContainerView, root, kinds, True)
            through = query.TraversalSpec(type=vim.view.ContainerView, path="view", skip=False)
            objects.append(query.ObjectSpec(obj=view, skip=True, selectSet=[through]))
        requested = [
            query.PropertySpec(type=getattr(vim, kind), pathSet=list(paths)) for kind, paths in properties.items()
        ]
        spec = query.FilterSpec(objectSet=objects, propSet=requested, reportMissingObjectsInResults=True)
        items: list[Item] = []
        page = self.call("RetrievePropertiesEx", collector.RetrievePropertiesEx, [spec], query.RetrieveOptions())
        while page is not None:
            for content in page.objects:
                kind = next(kind for kind in properties if isinstance(content.obj, getattr(vim, kind)))
                values = {each.name: each.val for each in content.propSet or ()}
                items.append(Item(content.obj, kind, values))
            token = page.token
            page = (
                self.call("ContinueRetrievePropertiesEx", collector.ContinueRetrievePropertiesEx, token)
                if token
                else None
            )
        return items

    def wait_task(self, task: t.Any, what: str, timeout: float) -> t.Any:
        """The result of a task. Raises VSphereError if it failed, and WaitTimeout if it does not end.

        what: a description of the work, with its object. pyVim.task.WaitForTask is not used, because it fails on some running tasks.
        """

        def read() -> t.Any:
            items = self.read([(task, "")], {"Task": ["info"]})
            return items[0].get("info") if items else None

        def describe(info: t.Any) -> str:
            state = "has no state" if info is None else f"is {info.state}"
            return f"{what}: the task {state} in vCenter. Look at it under Recent Tasks; run the playbook again when it has ended."

        info = wait_until(
            read,
            lambda info: info is None or info.state in ("success", "error"),
            timeout=timeout,
            interval=_TASK_INTERVAL,
            first_interval=0.05,
            describe=describe,
            option="wait_timeout",
        )
        if info is not None and info.state == "error":
            raise fault_error(info.error, what)
        return info.result if info is not None else None

    def missing_privileges(self, required: t.Mapping[t.Any, t.Sequence[str]]) -> dict[t.Any, list[str]]:
        """The privileges that the user lacks, by object; `required` contains the privileges that each object needs."""
        manager = self.content.authorizationManager
        session = self.call("RetrieveSession", lambda: self.content.sessionManager.currentSession)
        lacking: dict[t.Any, list[str]] = {}
        privileges = sorted({privilege for needed in required.values() for privilege in needed})
        answers = self.call(
            "HasPrivilegeOnEntities", manager.HasPrivilegeOnEntities, list(required), session.key, privileges
        )
        for answer in answers or ():
            granted = {each.privId for each in answer.privAvailability if each.isGranted}
            if missing := [privilege for privilege in required[answer.entity] if privilege not in granted]:
                lacking[answer.entity] = missing
        return lacking

    def failed_power_ons(self) -> list[PowerOnFailure]:
        """The recent failures to power on virtual machines, the newest of each machine.

        OpenShift's machine controller reports success for a machine that vCenter does not power on; the reason is only in this event.
        """
        self.content  # noqa: B018 (logs in)
        clock = self.call("CurrentTime", self._instance.CurrentTime)
        since = clock - _RECENT
        spec = vim.event.EventFilterSpec(
            eventTypeId=["VmFailedToPowerOnEvent"],
            time=vim.event.EventFilterSpec.ByTime(beginTime=since),
            maxCount=_EVENTS,
        )
        events = self.call("QueryEvents", self.content.eventManager.QueryEvents, spec) or ()
        newest: dict[str, PowerOnFailure] = {}
        for event in sorted(events, key=lambda event: event.createdTime):
            if event.vm is not None:
                reason = getattr(event.reason, "msg", "") or event.fullFormattedMessage or ""
                fault = type(event.reason).__name__.rpartition(".")[2]
                newest[event.vm.name] = PowerOnFailure(event.vm.name, reason, event.createdTime.isoformat(), fault)
        return list(newest.values())


@dataclass(frozen=True)
class PowerOnFailure:
    """The newest failure to power on a virtual machine: vCenter's reason, the time, and the type of the fault.

    Without a name, it is the reason why vCenter could not be asked.
    """

    name: str
    reason: str
    at: str = ""
    fault: str = ""

    def __str__(self) -> str:
        """The sentences for a message."""
        if not self.name:
            return self.reason
        texts = (f"Virtual machine {self.name} did not start at {self.at}: {self.reason.rstrip('.')}.", self.remedy)
        return " ".join(filter(None, texts))

    @property
    def lasts(self) -> bool:
        """Whether another try does not help as long as nobody changes the hosts, the template or the number of machines."""
        return self._known is not None and self._known.lasts

    @property
    def remedy(self) -> str:
        """What to do about the reason; empty if the reason is none of those that machines with vGPUs have."""
        return self._known.remedy if self._known else ""

    @property
    def _known(self) -> PowerOnReason | None:
        text = self.reason.lower()
        return next(
            (
                known
                for known in _POWER_ON_REASONS
                if self.fault in known.faults or any(word in text for word in known.words)
            ),
            None,
        )


@dataclass(frozen=True)
class PowerOnReason:
    """A reason why vCenter does not start a virtual machine: types of faults, or words in the reason in lower case; the first match counts.

    lasts: as in PowerOnFailure. It makes a run fail after a few refusals, instead of after its time limit.
    """

    faults: tuple[str, ...]
    words: tuple[str, ...]
    remedy: str
    lasts: bool


# The words are narrow, because most reasons have nothing to do with GPUs.
# Sources: cloudfoundry/bosh-vsphere-cpi-release issue 372 (memory reservation); NVIDIA AI Enterprise User Guide, "Changing the Default Graphics Type" (graphics
# resource); the types of faults in the vSphere API reference.
_POWER_ON_REASONS = (
    PowerOnReason(
        (),
        ("sched.mem.min", "memory reservation", "memory is not reserved"),
        "A virtual machine with a vGPU must reserve all its memory. Run site, which replaces a template that was changed.",
        lasts=True,
    ),
    PowerOnReason(
        (),
        ("mmio", "64-bit bar"),
        "The memory-mapped I/O space is too small for the GPUs. Set vgpu.mmio_gib of the pool, or run site, which replaces a template that was changed.",
        lasts=True,
    ),
    PowerOnReason(
        ("InsufficientGraphicsResourcesFault",),
        ("amount of graphics resource", "shareddirect", "shared direct"),
        "Either no host has a GPU left for this vGPU profile, or the default graphics type of the hosts is not Shared Direct; module vgpu_profile_info lists "
        "both. Free a GPU, use fewer nodes or a smaller profile, or set the graphics type (playbook vsphere_hosts).",
        lasts=True,
    ),
    PowerOnReason(
        ("InsufficientHostMemoryCapacityFault", "InsufficientMemoryResourcesFault"),
        ("sufficient memory resources", "memory resources in the parent resource pool"),
        "No usable host with a free GPU, or the resource pool, has enough memory that is not reserved; a virtual machine with a vGPU reserves all its memory. "
        "Stop or move other virtual machines, raise the limit of the resource pool, use fewer nodes, or set a smaller memoryMiB in nodes.provider_spec.",
        lasts=True,
    ),
    PowerOnReason(
        ("InsufficientHostCpuCapacityFault", "InsufficientCpuResourcesFault"),
        ("sufficient cpu resources", "cpu resources in the parent resource pool"),
        "No usable host with a free GPU, or the resource pool, has enough CPU that is not reserved. Stop or move other virtual machines, lower their CPU "
        "reservations, raise the limit of the resource pool, or use fewer nodes.",
        lasts=True,
    ),
    # It ends by itself when a host returns, for example from maintenance mode.
    PowerOnReason(
        ("InsufficientFailoverResourcesFault",),
        ("failover level", "failover resources"),
        "The admission control of vSphere HA keeps resources free for the failure of a host. Reconnect hosts, or end their maintenance mode; use fewer nodes; "
        "or reserve less in vCenter under Configure, vSphere Availability.",
        lasts=False,
    ),
    PowerOnReason(
        ("NoCompatibleHost", "NoCompatibleHostWithAccessToDevice", "VGpuNotSupported"),
        ("for vgpu", "(pcipassthru", "no host is compatible"),
        "No usable host of the cluster can place this vGPU profile; module vgpu_profile_info lists what can be placed. Check the hosts' GPUs and their "
        "maintenance mode, free a GPU, use fewer nodes, or choose another profile.",
        lasts=True,
    ),
)


def _supports_proxies() -> bool:
    """Whether pyvmomi passes all arguments to its own proxy connection; release 8.0.3.0.1 does not."""
    port = inspect.signature(SoapAdapter.HTTPProxyConnection.__call__).parameters["port"]
    return port.default is not inspect.Parameter.empty


def _number(version: str) -> tuple[int, ...]:
    """The number of one of pyvmomi's versions, such as (8, 0, 3, 0)."""
    return tuple(int(part) for part in VmomiSupport.versionIdMap[version].split(".") if part.isdecimal())


def supported_versions(document: bytes) -> set[str]:
    """The versions in vimServiceVersions.xml: the current one and those before it. vCenter's file begins with a comment."""
    if b"<!DOCTYPE" in document or b"<!ENTITY" in document:
        return set()
    try:
        root = ElementTree.fromstring(document)
    except ElementTree.ParseError:
        return set()
    return {
        (version.text or "").strip()
        for namespace in root.findall("namespace")
        if namespace.findtext("name") == _NAMESPACE
        for version in (*namespace.findall("version"), *namespace.findall("priorVersions/version"))
    }


def _no_answer(error: Exception, operation: str) -> VSphereError:
    """The error for a broken connection."""
    reason, sent = BROKEN, True
    if isinstance(error, TimeoutError):
        reason = TIMEOUT
    elif isinstance(error, ssl.SSLCertVerificationError):
        reason, sent = TLS, False
    elif isinstance(error, ConnectionRefusedError):
        reason, sent = REFUSED, False
    return VSphereError(str(error) or type(error).__name__, reason=reason, sent=sent, path=operation)


# The status that corresponds to a type of fault; all others count as 400, because a repetition would fail as well.
_STATUSES = {
    "NotAuthenticated": 401,
    "InvalidLogin": 401,
    "NoPermission": 403,
    "RestrictedByAdministrator": 403,
    "ManagedObjectNotFound": 404,
    "NotFound": 404,
    "DuplicateName": 409,
    "AlreadyExists": 409,
    "FileAlreadyExists": 409,
    "TaskInProgress": 409,
    "ConcurrentAccess": 409,
    "HostCommunication": 503,
    "HostNotConnected": 503,
    "HostNotReachable": 503,
}
_REMEDIES = {
    "DuplicateName": "Remove or rename the object with this name.",
    "FileAlreadyExists": "The datastore has a folder with this name that belongs to another object; rename or remove it.",
    "InsufficientDisks": "Free space on the datastore, or choose another one.",
    "NoDiskSpace": "Free space on the datastore, or choose another one.",
    "OutOfBounds": "Free space on the datastore, or choose another one.",
    "HostNotConnected": "Reconnect the host in vCenter, or put it into maintenance mode so that another one is used.",
    "HostCommunication": "Check the host in vCenter.",
    "HostNotReachable": "Check the host in vCenter.",
    "TaskInProgress": "Wait for the other task of this object, and run the playbook again.",
    "ManagedObjectNotFound": "It was removed during the run; run the playbook again.",
    "RestrictedVersion": "vCenter's license does not allow this operation.",
}


def fault_error(fault: t.Any, operation: str) -> VSphereError:
    """The error for one of vCenter's faults."""
    name = type(fault).__name__.rpartition(".")[2]
    text = str(getattr(fault, "msg", "") or "").strip().rstrip(".")
    if not text or text == name:
        inner = getattr(fault, "faultMessage", None) or ()
        text = "; ".join(str(each.message) for each in inner if each.message) or name
    # A session that has expired is a subtype of a missing permission.
    if name == "NoPermission":
        needed = join_words(_privileges_of(fault))
        text = f"the user lacks the privilege {needed} on {_label(fault.object)}"
        remedy = "Add it to the user's role on this object or on one above it."
    else:
        remedy = _REMEDIES.get(name, "")
    message = f"{operation} failed in vCenter: {text}. {remedy}".strip()
    return VSphereError(message, fault=name, status=_STATUSES.get(name, 400), path=operation)


def _privileges_of(fault: t.Any) -> list[str]:
    missing = [privilege for each in getattr(fault, "missingPrivileges", None) or () for privilege in each.privilegeIds]
    return missing or [str(fault.privilegeId)]


def _label(ref: t.Any) -> str:
    return f"{type(ref).__name__.rpartition('.')[2]} {ref._moId}" if ref is not None else "an object"


def start_failures(module: t.Any, machines: t.Mapping[str, str]) -> list[PowerOnFailure]:
    """Why virtual machines do not start, according to vCenter; never fails. The option `vcenter` of a module contains the credentials.

    machines: their names and vCenters.
    """
    given = {name: value for name, value in (module.params["vcenter"] or {}).items() if value is not None}
    declared = get_nested(module.params["gpu_cluster"], "cloud", "machineset", "vsphere") or {}
    names = {name: value for name, value in declared.items() if name in CONNECTION and value is not None}
    options = {"port": 443, **given, **names}
    # The password must not be sent to a server that only a Machine names, because others may create Machines.
    if not options.get("username") or not options.get("hostname"):
        return [
            PowerOnFailure(
                "",
                "Set the host name, the user and the password of vCenter (option vcenter, or the variables VMWARE_*), so that its reason is shown here.",
            )
        ]
    try:
        center = VCenter(VCenterOptions.from_params(options), module.user_agent)
        try:
            return [failure for failure in center.failed_power_ons() if failure.name in machines]
        finally:
            center.close()
    except (ModuleFailure, ServiceError) as error:
        return [PowerOnFailure("", f"The reason is not known, because vCenter cannot be asked: {error}")]
