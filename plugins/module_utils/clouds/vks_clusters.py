# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VKS clusters: catalog, kubeconfig, and the base of the modules."""

from __future__ import annotations

import datetime
import difflib
import functools
import itertools
import re
import time
import typing as t
from dataclasses import dataclass, field

from ansible.module_utils.basic import env_fallback

from ..catalog.models import MODELS, Model, vks_flavor_gpus
from ..core.errors import InvalidOptions, PartialFailure
from ..core.module import ArgumentSpec, BaseModule, merge_specs
from ..core.waits import WaitOptions, call_all, wait_until
from .vks_client import (
    DEFAULT_REGION,
    ENVIRONMENT,
    IAM_VERSIONS,
    VKS_API,
    VSERVER,
    Row,
    VksError,
    VksTransport,
    connect,
    rows_of,
)

# Describes the vServer resources and flavors that a node group refers to, and resolves their names (pure).

_SHOWN = 12


@dataclass(frozen=True)
class CatalogItem:
    """A resource that a group refers to by id.

    note: text that distinguishes the resource from others with the same name. usable: whether the status of the resource allows its use. aliases:
    additional names. An alias can be used only if no other item has the same alias.
    """

    id: str
    name: str
    note: str = ""
    usable: bool = True
    aliases: tuple[str, ...] = ()
    details: t.Mapping[str, t.Any] = field(default_factory=dict)

    def to_result(self) -> dict[str, t.Any]:
        """The item in the format of module results."""
        return {"id": self.id, "name": self.name, "usable": self.usable, **self.details}


class UnresolvedName(Exception):
    """Raised if a name is unknown or ambiguous, or if the resource cannot be used now. The message lists possible names or ids, or the reason."""


def resolve(option: str, requested: str, items: t.Sequence[CatalogItem], place: str) -> str:
    """The id of the only usable item with this id, name or alias. Raises UnresolvedName. If several items match, the message lists all their ids."""
    matches = [item for item in items if item.id == requested]
    matches = matches or [item for item in items if item.name == requested]
    matches = matches or [item for item in items if requested in item.aliases]
    usable = [item for item in matches if item.usable]
    if len(usable) == 1:
        return usable[0].id
    if len(usable) > 1:
        ids = ", ".join(f"{item.id}{f' ({item.note})' if item.note else ''}" for item in usable)
        raise UnresolvedName(
            f"{option}: {requested!r} is the name of {len(usable)} resources in {place}: {ids}. Use the id."
        )
    if matches:
        raise UnresolvedName(
            f"{option}: {requested!r} in {place} is not usable now ({matches[0].note or 'not ACTIVE'})."
        )
    names = [item.name for item in items if item.usable]
    raise UnresolvedName(f"{option}: there is no {requested!r} in {place}. {available(requested, names)}")


def available(requested: str, names: t.Iterable[str]) -> str:
    """A sentence that lists the available names, with similar names first. If there are many names, it lists only the similar ones."""
    known = list(dict.fromkeys(name for name in names if name))
    if not known:
        return "None is available."
    similar = difflib.get_close_matches(requested, known, n=_SHOWN, cutoff=0.5)
    if len(known) <= _SHOWN:
        similar += [name for name in sorted(known) if name not in similar]
    shown = similar or sorted(known)[:_SHOWN]
    more = len(known) - len(shown)
    return f"Available: {', '.join(shown)}{f', and {more} more' if more else ''}."


@dataclass(frozen=True)
class Flavor:
    """A flavor in one zone.

    gpus: the number of GPUs of a machine. The GPU model is not a field in the API, and is only part of the flavor's name. remaining: the number of
    machines that can still be created, or None if it is unknown.
    """

    id: str
    name: str
    cpus: int
    memory_gib: int
    gpus: int
    zone: str
    remaining: int | None = None
    sold_out: bool = False

    @property
    def available(self) -> bool:
        """Whether another machine with this flavor can be created."""
        return not self.sold_out and self.remaining != 0

    @property
    def models(self) -> tuple[Model, ...]:
        """The possible models of the GPUs. There are several if the name is ambiguous, and none if the name does not contain a model."""
        named_gpus = vks_flavor_gpus(self.name) if self.gpus else None
        return tuple(model for model in MODELS if model.key in named_gpus.keys) if named_gpus else ()

    def to_result(self) -> dict[str, t.Any]:
        """The flavor in the format of module results."""
        fields = {name: value for name, value in vars(self).items() if name != "sold_out"}
        return {
            **fields,
            "model": self.models[0].key if len(self.models) == 1 else None,
            "models": [model.key for model in self.models],
            "available": self.available,
        }


def flavor_of(row: t.Mapping[str, t.Any], zone: str) -> Flavor:
    """The flavor in a row from vServer. If the row does not have the field `gpu`, the number of GPUs is taken from the name."""
    name = str(row.get("name") or "")
    gpus = row.get("gpu")
    remaining = row.get("remainingVms")
    named_gpus = vks_flavor_gpus(name)
    return Flavor(
        id=str(row.get("flavorId") or row.get("id") or row.get("uuid") or ""),
        name=name,
        cpus=number(row.get("cpu")),
        memory_gib=number(row.get("memory")),
        gpus=number(gpus) if gpus is not None or named_gpus is None else named_gpus.count,
        zone=str(row.get("zoneId") or zone),
        remaining=remaining if isinstance(remaining, int) else None,
        sold_out=row.get("isSoldOut") is True,
    )


def flavor_items(flavors: t.Iterable[Flavor]) -> list[CatalogItem]:
    """The flavors as catalog items, including flavors that are sold out, which checks.py reports."""
    return [CatalogItem(flavor.id, flavor.name, note=f"zone {flavor.zone}") for flavor in flavors]


def subnet_item(row: Row) -> CatalogItem:
    """A subnet of a VPC. The zone of the subnet determines which flavors and volume types are available."""
    zone = row.get("zone") or {}
    secondary = [subnet.get("cidr") for subnet in row.get("secondarySubnets") or [] if isinstance(subnet, dict)]
    return _item(
        row,
        note=str(row.get("cidr") or ""),
        details={
            "cidr": row.get("cidr"),
            "zone": zone.get("uuid") or row.get("zoneId"),
            "zone_name": zone.get("name"),
            "secondary_cidrs": [cidr for cidr in secondary if cidr],
        },
    )


def volume_item(row: Row, kind: str) -> CatalogItem:
    """A volume type of a zone. Its aliases are the kind, such as SSD or NVME, and the kind with the IOPS, such as SSD-3000."""
    iops = row.get("iops")
    return _item(
        row,
        note=f"{kind}, {iops} IOPS",
        aliases=tuple(name for name in (kind, f"{kind}-{iops}" if iops else "") if name),
        details={"kind": kind, "iops": iops, "min_gib": row.get("minSize"), "max_gib": row.get("maxSize")},
    )


def plain_item(row: Row) -> CatalogItem:
    """An SSH key or a security group."""
    system = bool(row.get("system") or row.get("isSystem"))
    return _item(row, note=str(row.get("description") or ""), details={"system": system})


def zone_item(row: Row) -> CatalogItem:
    """A zone of the region."""
    return _item(row, usable=row.get("isEnabled") is not False)


def _item(row: Row, **more: t.Any) -> CatalogItem:
    usable = str(row.get("status") or "ACTIVE").upper() in ("ACTIVE", "AVAILABLE", "CREATED", "ENABLED")
    name = str(row.get("name") or row.get("displayName") or "")
    return CatalogItem(str(row.get("uuid") or row.get("id") or ""), name, **{"usable": usable, **more})


def text(value: t.Any) -> str:
    """A value in a response as a string, which is empty if the value is missing."""
    return "" if value is None else str(value)


def number(value: t.Any) -> int:
    """A whole number in a response, or 0 if it is missing."""
    return int(value) if isinstance(value, (int, float)) else 0


# Reads the vServer resources of a project. Each list is read only once.

T = t.TypeVar("T")
_PARALLEL = 8
_SIZE = 1000


class VServer:
    """A client for the resources of one project."""

    def __init__(self, transport: VksTransport, project_id: str | None) -> None:
        """Store the arguments without sending a request. If `project_id` is None, the account's project in the region is looked up."""
        self._transport = transport
        self._given = project_id
        self._known: dict[tuple[t.Any, ...], t.Any] = {}

    @property
    def project(self) -> str:
        """The given project id, or else the id of the project of the account's VKS workspace, or else the id of the only project."""
        return self._given or self._once(("project",), self._find_project)

    def subnets(self, vpc: str) -> list[CatalogItem]:
        """The subnets of a VPC."""
        rows = self._rows(f"/v2/{self.project}/networks/{vpc}/subnets", "subnets")
        return [subnet_item(row) for row in rows]

    def zones(self) -> list[CatalogItem]:
        """The zones of the region."""
        return [zone_item(row) for row in self._rows(f"/v1/{self.project}/zones", "zones")]

    def ssh_keys(self) -> list[CatalogItem]:
        """The SSH keys of the project."""
        return [plain_item(row) for row in self._paged(f"/v2/{self.project}/sshKeys", "sshKeys")]

    def security_groups(self) -> list[CatalogItem]:
        """The security groups of the project."""
        return [plain_item(row) for row in self._paged(f"/v2/{self.project}/secgroups", "secgroups")]

    def volume_types(self, zone: str) -> list[CatalogItem]:
        """The volume types of all kinds in a zone."""
        kinds = self._rows(f"/v1/{self.project}/volume_type_zones", "volumeTypeZones", zoneId=zone)
        results = self._each(
            [(f"/v1/{self.project}/{kind.get('id')}/volume_types", "volumeTypes", {}) for kind in kinds]
        )
        return [
            volume_item(row, str(kind.get("name") or ""))
            for kind, rows in zip(kinds, results, strict=True)
            for row in rows
        ]

    def flavors(self, zone: str) -> list[Flavor]:
        """The flavors for workers in a zone, from all families and platforms."""
        families = self._rows(f"/v1/{self.project}/flavor_zones/families", "families")
        pairs = dict.fromkeys(
            (str(family.get("key")), str(code))
            for family in families
            for code in (family.get("condition") or {}).get("codes") or []
        )
        results = self._each(
            [
                (
                    f"/v1/{self.project}/flavors/families/{key}/platforms/{code}/clusters/master/false",
                    "flavors",
                    {"zoneId": zone},
                )
                for key, code in pairs
            ]
        )
        flavors = {
            flavor.id: flavor
            for rows in results
            for flavor in (flavor_of(row, zone) for row in rows)
            # The service may ignore the parameter and return all zones.
            if flavor.zone == zone
        }
        return sorted(flavors.values(), key=lambda flavor: flavor.name)

    def _find_project(self) -> str:
        try:
            workspace = self._transport.get(VKS_API, "/v1/workspace") or {}
            if workspace.get("projectId"):
                return str(workspace["projectId"])
        except VksError as error:
            if not error.not_found and not error.forbidden:
                raise
        rows = rows_of(self._transport.get(VSERVER, "/v1/projects"), "projects")
        ids = [str(row.get("projectId") or row.get("id")) for row in rows]
        if len(ids) == 1:
            return ids[0]
        projects = f"has the projects {', '.join(ids)}" if ids else "has no project"
        raise InvalidOptions([f"project_id: the account {projects} in this region. Set project_id."])

    def _rows(self, path: str, name: str, *, optional: bool = False, **query: t.Any) -> list[Row]:
        """The rows of a list without pages. optional: whether the result is empty if the list does not exist in the zone or project."""
        read = self._transport.find if optional else self._transport.get
        asked = tuple(sorted(query.items()))
        return self._once((path, asked), lambda: rows_of(read(VSERVER, path, query=query), name))

    def _paged(self, path: str, name: str) -> list[Row]:
        """All rows of a list. According to the documentation, page numbers begin with 1, but clients have received the whole list in one response."""

        def read_pages() -> list[Row]:
            rows: dict[str, Row] = {}
            for page in itertools.count(1):
                body = self._transport.get(VSERVER, path, query={"page": page, "size": _SIZE})
                fresh = {str(row.get("id") or row.get("uuid")): row for row in rows_of(body, name)}
                new = fresh.keys() - rows.keys()
                rows.update(fresh)
                last = body.get("totalPage") if isinstance(body, dict) else None
                if not new or not isinstance(last, int) or page >= last:
                    break
            return list(rows.values())

        return self._once((path,), read_pages)

    def _each(self, lists: t.Iterable[tuple[str, str, dict[str, t.Any]]]) -> list[list[Row]]:
        """The rows of several lists, which are read in parallel. Each list is given by its path, name and query."""
        calls = [
            (path, functools.partial(self._rows, path, name, optional=True, **query)) for path, name, query in lists
        ]
        return call_all(calls, _PARALLEL)

    def _once(self, key: tuple[t.Any, ...], ask: t.Callable[[], T]) -> T:
        if key not in self._known:
            self._known[key] = ask()
        return t.cast("T", self._known[key])


# Reads the clusters of an account.

NATIVE_ROUTING = "CILIUM_NATIVE_ROUTING"
# The status of a cluster that is being deleted.
IN_DELETION = "DELETING"
_PATH = "/v1/clusters"
_CLUSTER_ID = re.compile(r"k8s-[0-9a-f]{4,}[0-9a-f-]*")


@dataclass(frozen=True)
class VksCluster:
    """The cluster data that node groups and kubeconfigs need. All ids are assigned by VNG Cloud.

    subnets: the cluster's own subnets. If there is only one, it is the default for new groups. server: the address of the API server, or None if
    VKS does not return it. private: whether the API server has only a private address. row: the response that contains the data.
    """

    id: str
    name: str
    status: str
    version: str
    vpc: str
    subnets: tuple[str, ...]
    network: str
    node_count: int | None
    private: bool | None
    server: str | None
    created_at: str | None
    row: Row

    @property
    def path(self) -> str:
        """The cluster's path in the API."""
        return f"{_PATH}/{self.id}"

    def to_result(self) -> dict[str, t.Any]:
        """The cluster in the format of module results."""
        fields = {name: value for name, value in vars(self).items() if name != "row"}
        return {**fields, "subnets": list(self.subnets)}


def cluster_of(row: Row) -> VksCluster:
    """The cluster in a response. Fields that a response does not contain are empty or None."""
    subnets = row.get("listSubnetIds") or ([row["subnetId"]] if row.get("subnetId") else [])
    return VksCluster(
        id=str(row.get("id") or ""),
        name=str(row.get("name") or ""),
        status=str(row.get("status") or ""),
        version=str(row.get("version") or ""),
        vpc=str(row.get("vpcId") or ""),
        subnets=tuple(str(subnet) for subnet in subnets),
        network=str(row.get("networkType") or ""),
        node_count=row.get("numNodes"),
        private=row.get("enablePrivateCluster"),
        server=row.get("serviceEndpoint"),
        created_at=row.get("createdAt"),
        row=row,
    )


def detailed_clusters(transport: VksTransport, selects: t.Callable[[VksCluster], bool]) -> list[VksCluster]:
    """The account's clusters in the region that `selects` accepts. They contain their details, and are sorted by name and id."""
    rows = [cluster_of(row) for row in transport.items(_PATH)]
    calls = [(cluster.id, functools.partial(_detail, transport, cluster)) for cluster in rows if selects(cluster)]
    return sorted(filter(None, call_all(calls)), key=lambda cluster: (cluster.name, cluster.id))


def find_cluster(transport: VksTransport, name: str) -> VksCluster:
    """The cluster with this id or name. The details of the cluster are included only if they do not need an extra request.

    Raises InvalidOptions if the cluster does not exist, or if several clusters have the name.
    """
    if _CLUSTER_ID.fullmatch(name):
        cluster = _detail(transport, cluster_of({"id": name}))
        if cluster is not None:
            return cluster
    rows = [cluster_of(row) for row in transport.items(_PATH)]
    matches = [row for row in rows if row.id == name] or [row for row in rows if row.name == name]
    if len(matches) > 1:
        ids = ", ".join(f"{row.id} ({row.status})" for row in matches)
        raise InvalidOptions([f"cluster: {len(matches)} clusters are called {name!r}: {ids}. Use the id."])
    if not matches:
        names = available(name, [row.name for row in rows])
        raise InvalidOptions([f"cluster: there is no {name!r} in this account and region. {names}"])
    return matches[0]


def detailed(transport: VksTransport, cluster: VksCluster) -> VksCluster:
    """The cluster with its details. Raises InvalidOptions if the cluster has been deleted since it was listed."""
    complete = cluster if cluster.vpc else _detail(transport, cluster)
    if complete is None:
        raise InvalidOptions(
            [f"cluster: {cluster.name} ({cluster.id}) was deleted during this run. Run the playbook again."]
        )
    return complete


def _detail(transport: VksTransport, cluster: VksCluster) -> VksCluster | None:
    """The cluster with its details, or None if the cluster no longer exists."""
    row = transport.find(VKS_API, cluster.path)
    return cluster_of({**cluster.row, **row}) if row else None


# Resolves the names in a group's options by looking them up in the project, the cluster's VPC and the subnet's zone.

# Ids are not looked up, so a run that uses only ids sends no request for them.
_ID = re.compile(r"(flav|vtype|ssh|secg|sub)-[0-9a-f]{4,}[0-9a-f-]*")
# The options that refer to resources. The subnet is first, because the options in ZONAL are looked up in the subnet's zone.
NAMED = ("subnet", "flavor", "disk_type", "ssh_key", "security_groups")
ZONAL = ("flavor", "disk_type")


class NameResolver:
    """Resolves names for the groups of one cluster. Each list is read at most once, and only if a name must be looked up in it."""

    def __init__(self, vserver: VServer, read_cluster: t.Callable[[], VksCluster]) -> None:
        """Store the arguments without sending a request. `read_cluster` returns the cluster with its details."""
        self._vserver = vserver
        self._read_cluster = read_cluster

    @functools.cached_property
    def cluster(self) -> VksCluster:
        """The cluster with its details."""
        return self._read_cluster()

    @property
    def default_subnet(self) -> str | None:
        """The cluster's subnet, or None if the cluster does not have exactly one subnet."""
        return self.cluster.subnets[0] if len(self.cluster.subnets) == 1 else None

    def resolve(self, option: str, name: str, subnet: str | None) -> str:
        """The id of the resource that an option in NAMED refers to. Raises UnresolvedName. `subnet` is needed only for options in ZONAL."""
        if _ID.fullmatch(name):
            return name
        if option in ZONAL and all(item.id != subnet for item in self.subnets()):
            # If the VPC does not have the subnet, nothing can be looked up in the subnet's zone.
            resolve("subnet", str(subnet), self.subnets(), self._place("subnet", subnet))
        try:
            return resolve(option, name, self.choices(option, subnet), self._place(option, subnet))
        except UnresolvedName as error:
            zones = self._zones_with(name) if option == "flavor" else []
            if not zones:
                raise
            raise UnresolvedName(f"{error} To use it, choose a subnet in zone {' or '.join(zones)}.") from None

    def choices(self, option: str, subnet: str | None) -> list[CatalogItem]:
        """The resources that an option in NAMED can refer to."""
        if option in ZONAL:
            zone = self._zone(str(subnet))[0]
            return flavor_items(self._vserver.flavors(zone)) if option == "flavor" else self._vserver.volume_types(zone)
        if option == "subnet":
            return self.subnets()
        return self._vserver.ssh_keys() if option == "ssh_key" else self._vserver.security_groups()

    def subnets(self) -> list[CatalogItem]:
        """The subnets of the cluster's VPC."""
        return self._vserver.subnets(self.cluster.vpc)

    def flavors(self, subnet: str) -> list[Flavor]:
        """The flavors of the subnet's zone."""
        return self._vserver.flavors(self._zone(subnet)[0])

    def system_groups(self) -> set[str]:
        """The ids of the security groups that the service itself adds to machines."""
        return {item.id for item in self._vserver.security_groups() if item.details.get("system")}

    def zone_text(self, subnet: str) -> str:
        """The subnet's zone as text, for messages."""
        return f"zone {self._zone(subnet)[1] or '(unknown)'}"

    def _zone(self, subnet: str) -> tuple[str, str]:
        """The id and the name of the subnet's zone, or empty strings if the zone is unknown."""
        details: t.Mapping[str, t.Any] = next((item.details for item in self.subnets() if item.id == subnet), {})
        return str(details.get("zone") or ""), str(details.get("zone_name") or details.get("zone") or "")

    def _place(self, option: str, subnet: str | None) -> str:
        """The place where the choices of an option are looked up, for messages."""
        if option in ZONAL:
            return self.zone_text(str(subnet))
        return f"VPC {self.cluster.vpc}" if option == "subnet" else f"project {self._vserver.project}"

    def _zones_with(self, flavor: str) -> list[str]:
        return [
            zone.name
            for zone in self._vserver.zones()
            if zone.usable and any(flavor == other.name for other in self._vserver.flavors(zone.id))
        ]


# Reads a cluster's kubeconfig from VKS, and requests a new one if there is none or if the existing one expires soon.
#
# Results never contain a kubeconfig.

NONE, CREATING, ACTIVE, ERROR = "NONE", "CREATING", "ACTIVE", "ERROR"
_DAY = 86400.0
_FIRST_PAUSE = 0.2


@dataclass(frozen=True)
class VksKubeconfig:
    """The service's kubeconfig for a cluster.

    status: the status that the API returns. expires_at: the time of expiry in the service's own format, or None if the time is unknown.
    """

    status: str
    text: str = field(default="", repr=False)
    expires_at: str | None = None
    renewal_warning: bool = False

    @property
    def ready(self) -> bool:
        """Whether the kubeconfig can be used."""
        return self.status == ACTIVE and bool(self.text.strip())


def read_kubeconfig(transport: VksTransport, cluster: VksCluster) -> VksKubeconfig:
    """The current kubeconfig of a cluster in VKS."""
    body = transport.get(VKS_API, f"{cluster.path}/kubeconfig") or {}
    return VksKubeconfig(
        str(body.get("status") or NONE),
        str(body.get("kubeConfig") or ""),
        str(body["expirationAt"]) if body.get("expirationAt") else None,
        bool(body.get("renewalWarning")),
    )


def reason_to_issue(current: VksKubeconfig, renew_before: float, now: datetime.datetime) -> str:
    """The reason why a new kubeconfig is needed. It is empty if the current one is valid for `renew_before` more days or is being created."""
    if current.status == CREATING:
        return ""
    if not current.ready:
        return f"VKS has none ({current.status})"
    if current.renewal_warning:
        return "VKS warns that it expires soon"
    end = _time(current.expires_at)
    if end is not None and (end - now).total_seconds() < renew_before * _DAY:
        return f"it expires at {current.expires_at}"
    return ""


def issue_kubeconfig(
    transport: VksTransport, cluster: VksCluster, before: VksKubeconfig, *, days: int, wait: WaitOptions
) -> VksKubeconfig:
    """Request a new kubeconfig, and wait for it. Raises WaitTimeout, PartialFailure and VksError."""

    def request() -> bool:
        # After a lost response, the current kubeconfig shows whether the request was carried out.
        current = read_kubeconfig(transport, cluster)
        if current.status != CREATING and not _is_new(current, before):
            transport.send(VKS_API, "POST", f"{cluster.path}/kubeconfig", body={"expirationDays": days})
        return True

    start = time.monotonic()
    wait_until(
        request,
        bool,
        timeout=wait.timeout,
        interval=wait.interval,
        describe=lambda dummy: f"The kubeconfig of cluster {cluster.name} could not be requested.",
    )
    seconds_left = max(0.0, wait.timeout - (time.monotonic() - start))
    return await_kubeconfig(transport, cluster, before, WaitOptions(seconds_left, wait.interval, wait.progress))


def await_kubeconfig(
    transport: VksTransport, cluster: VksCluster, before: VksKubeconfig, wait: WaitOptions
) -> VksKubeconfig:
    """Wait for a kubeconfig that differs from `before`. Raises WaitTimeout, PartialFailure and VksError."""
    started = before.status == CREATING

    def done(current: VksKubeconfig) -> bool:
        nonlocal started
        started = started or current.status == CREATING
        if current.status == ERROR and (started or before.status != ERROR):
            raise PartialFailure(
                f"VKS failed to create a kubeconfig for cluster {cluster.name} (status ERROR). Try again, or create it in the console."
            )
        return current.ready and (started or _is_new(current, before))

    return wait_until(
        lambda: read_kubeconfig(transport, cluster),
        done,
        timeout=wait.timeout,
        interval=wait.interval,
        first_interval=_FIRST_PAUSE,
        describe=lambda current: f"The kubeconfig of cluster {cluster.name} is {current.status}.",
        progress_text=lambda current: f"kubeconfig of {cluster.name}: {current.status}",
        progress=wait.progress,
    )


def _is_new(current: VksKubeconfig, before: VksKubeconfig) -> bool:
    return current.ready and (current.text, current.expires_at) != (before.text, before.expires_at)


def _time(text: str | None) -> datetime.datetime | None:
    """Parse a time from the service: ISO 8601, or seconds or milliseconds since 1970."""
    if not text:
        return None
    try:
        if text.isdecimal():
            seconds = int(text)
            return datetime.datetime.fromtimestamp(seconds / (1000 if seconds > 10**11 else 1), datetime.UTC)
        parsed = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=datetime.UTC)


# Defines the base class of the VKS modules, with the connection options and the clients for one account.


def _option(name: str, **more: t.Any) -> dict[str, t.Any]:
    names = ENVIRONMENT.get(name)
    return {"type": "str", **({"fallback": (env_fallback, list(names))} if names else {}), **more}


CONNECTION: ArgumentSpec = {
    "client_id": _option("client_id"),
    "client_secret": _option("client_secret", no_log=True),
    "region": _option("region", default=DEFAULT_REGION),
    "iam_url": _option("iam_url"),
    "iam_version": _option("iam_version", choices=list(IAM_VERSIONS)),
    "vks_url": _option("vks_url"),
    "vserver_url": _option("vserver_url"),
    "project_id": _option("project_id"),
    "validate_certs": {"type": "bool", "default": True},
    "ca_cert": {"type": "path"},
    "request_timeout": {"type": "int", "default": 30},
}
WAIT: ArgumentSpec = {
    "wait": {"type": "bool", "default": True},
    "wait_timeout": {"type": "int", "default": 3600, "aliases": ["timeout"]},
    "wait_sleep": {"type": "int", "default": 15},
}


class VksModule(BaseModule):
    """The base class of modules that send requests to VNG Cloud's Kubernetes service."""

    def __init__(self, argument_spec: ArgumentSpec, **kwargs: t.Any) -> None:
        """Compose the argument spec. A module's own options override shared options with the same name."""
        super().__init__(merge_specs(CONNECTION, argument_spec), **kwargs)

    @functools.cached_property
    def transport(self) -> VksTransport:
        """The transport for requests to the services. Raises the same errors as connect()."""
        return connect(self.params, self.user_agent)

    @functools.cached_property
    def vserver(self) -> VServer:
        """The client for the resources of the account's project."""
        return VServer(self.transport, self.params["project_id"])

    def cluster(self, name: str) -> VksCluster:
        """The cluster with this name or id. Raises InvalidOptions if there is no such cluster, or if the name is ambiguous."""
        return find_cluster(self.transport, name)
