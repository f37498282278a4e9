# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node groups of VKS, and the inventory of its clusters."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import typing as t

from ..catalog.names import MIG_CONFIG_LABEL, NODEGROUP_MARK
from ..core.errors import InvalidOptions, ServiceError
from ..core.messages import MAX_NAMED
from ..core.types import Text
from ..core.waits import Progress, WaitOptions, call_all
from ..nodegroups.module import (
    NodeGroupField,
    NodeGroupFields,
    node_labels_field,
    node_taints_field,
    require_valid,
    text_map,
)
from ..nodegroups.reconciler import INVALID_GROUPS, CloudRequest, ListedGroup
from ..nodegroups.spec import (
    Differences,
    NodeGroupSpec,
    NodeGroupState,
    field_differences,
    groups_of_spec,
    label_map,
    merge_field,
    taint_list,
)
from ..schema.providers import (
    MAX_NODE_COUNT,
    MIN_NODE_COUNT,
    NODE_COUNT,
    NODE_LABELS,
    VKS,
    claimed_owner,
    group_mark,
    marked_owner,
    may_be_replacement,
)
from ..schema.providers import VKS as DEFINITION
from ..sharing_modes import mig_parted
from .kubeconfig_file import DiscoveredCluster, DiscoveredNodeGroup, KubeconfigLifetime
from .vks_client import DEFAULT_REGION, ENVIRONMENT, PAGE_SIZE, VKS_API, Row, VksError, VksTransport, connect, rows_of
from .vks_clusters import (
    IN_DELETION,
    NAMED,
    NATIVE_ROUTING,
    ZONAL,
    CatalogItem,
    Flavor,
    NameResolver,
    UnresolvedName,
    VksCluster,
    VServer,
    available,
    cluster_of,
    detailed,
    detailed_clusters,
    issue_kubeconfig,
    number,
    read_kubeconfig,
    reason_to_issue,
    text,
)

if t.TYPE_CHECKING:
    from ..nodes.node import Node

# Defines the settings of a VKS node group, and the format of the values in VKS's API (pure).

# The prefixes of the service's own tags. In requests, the service ignores tags with these prefixes (docs, release notes of June 2026).
_RESERVED_TAGS = ("vng.vks.", "vng.vpc.", "vng.billing.", "vks-", "vks-mgmt-")
# The requests that change a group. If any other field changes, the vendor's Terraform provider replaces the group (ForceNew).
METADATA, UPDATE, UPGRADE = ("PATCH", "/metadata"), ("PUT", ""), ("POST", "/upgrade-version")
_STRATEGY = {"max_surge": 1, "max_unavailable": 0}


def _sorted(values: t.Iterable[t.Any] | None) -> list[str]:
    return sorted(map(str, values or ()))


def _system(image: t.Any) -> str:
    """The value of the option `os` for an image's operating system such as Ubuntu 22.04 or Container-Optimized OS."""
    word = text(image).lower().partition(" ")[0]
    return "linux" if word.startswith("container") else word or "ubuntu"


def _tag_problems(tags: t.Iterable[t.Any]) -> t.Iterator[str]:
    for tag in tags:
        if str(tag).startswith(_RESERVED_TAGS):
            yield f"tags: {tag!r} has a prefix of the service's own tags, which the service ignores in requests; choose another key"


def _without_reserved(tags: t.Mapping[str, str]) -> dict[str, str]:
    return {tag: value for tag, value in tags.items() if not tag.startswith(_RESERVED_TAGS)}


def _decoded_strategy(upgrade: t.Mapping[str, t.Any] | None) -> dict[str, int]:
    upgrade = upgrade or {}
    return {
        "max_surge": number(upgrade.get("maxSurge", 1)),
        "max_unavailable": number(upgrade.get("maxUnavailable", 0)),
    }


def _encoded_strategy(strategy: t.Mapping[str, int]) -> dict[str, t.Any]:
    return {"strategy": "SURGE", "maxSurge": strategy["max_surge"], "maxUnavailable": strategy["max_unavailable"]}


# New groups have the same defaults as groups that the vendor's own client creates (GreenNodeHub/greennode-cli, go/cmd/vks).
FIELDS = NodeGroupFields(
    VKS,
    (
        NodeGroupField("flavor", "flavorId", type=Text(), decode=text),
        NodeGroupField("os", "os", default="ubuntu", decode=_system, api_answer="imageOS"),
        NodeGroupField("disk_size", "diskSize", default=100, decode=number),
        NodeGroupField("disk_type", "diskType", decode=text),
        NodeGroupField("ssh_key", "sshKeyId", decode=text, option={"no_log": False}),
        NodeGroupField("subnet", "subnetId", decode=text),
        NodeGroupField("secondary_subnets", "secondarySubnets", normalize=sorted, decode=_sorted),
        NodeGroupField("security_groups", "securityGroups", UPDATE, default=[], decode=_sorted),
        NodeGroupField("private_nodes", "enablePrivateNodes", default=False, decode=bool),
        NodeGroupField("encrypted_volume", "enabledEncryptionVolume", default=False, decode=bool),
        node_labels_field("labels", METADATA),
        # Like the vendor's client, the collection sends an empty list of taints as null.
        node_taints_field("taints", METADATA, lambda taints: taint_list(taints) or None),
        NodeGroupField(
            "tags",
            "tags",
            METADATA,
            check=_tag_problems,
            normalize=label_map,
            decode=text_map,
            encode=_without_reserved,
        ),
        NodeGroupField(
            "upgrade_strategy",
            "upgradeConfig",
            UPDATE,
            default=_STRATEGY,
            normalize=functools.partial(merge_field, {}),
            decode=_decoded_strategy,
            encode=_encoded_strategy,
        ),
        NodeGroupField(
            "kubernetes_version",
            "kubernetesVersion",
            UPGRADE,
            decode=lambda version: text(version) or None,
        ),
    ),
    # The aliases are the names in VKS's own API.
    aliases={
        "node_count": "num_nodes",
        "min_node_count": "min_size",
        "max_node_count": "max_size",
        "node_labels": "labels",
        "node_taints": "taints",
    },
)


# Creates specs from the options of vks_nodegroup, resolves names to ids, and checks everything that does not need a lookup.

Options = t.Mapping[str, t.Any]


def option_problems(options: Options) -> t.Iterator[str]:
    """Yields the problems in a group's options that can be detected without the service."""
    if problem := VKS.name_rule(options["name"]):
        yield f"name {problem}"
    if options["state"] == "absent":
        return
    yield from FIELDS.problems(options)
    for name in FIELDS.changed_by(METADATA):
        entries = options.get(name) or ()
        removed = [entry for entry in entries if _is_removed(entries, entry)]
        count = len(entries) - len(removed)
        if VKS.max_entries is not None and count > VKS.max_entries:
            yield f"{name} sets {count} entries, and VKS allows {VKS.max_entries}; remove some"


def _is_removed(entries: t.Any, entry: t.Any) -> bool:
    """Whether an entry must be removed from the group. An entry is the key of a label or tag, or a taint."""
    return entries[entry] is None if isinstance(entries, dict) else entry.get("state") == "absent"


def spec_of(options: Options, state: NodeGroupState | None, resolver: NameResolver) -> tuple[NodeGroupSpec, list[str]]:
    """The spec, and a message for each name that cannot be resolved.

    state: the state of the existing group, or None for a new group. Flavors and disk types are looked up in the zone of the group's subnet.
    """
    if options["state"] == "absent":
        return NodeGroupSpec(options["name"], present=False), []
    common = FIELDS.spec_arguments(options)
    fields: dict[str, t.Any] = common["fields"]
    problems: list[str] = []

    def resolved(option: str, name: str) -> str | None:
        try:
            return resolver.resolve(option, name, subnet)
        except UnresolvedName as error:
            problems.append(str(error))
            return None

    subnet = state.fields["subnet"] if state else resolver.default_subnet
    for option in NAMED:
        if option not in fields:
            continue
        if option == "security_groups":
            fields[option] = sorted({id_ for name in fields[option] if (id_ := resolved(option, name))})
        elif subnet or option not in ZONAL:
            fields[option] = resolved(option, fields[option])
        elif not problems:
            problems.append(
                f"subnet: required, because the cluster has several subnets or none, and {option} is looked up in the subnet's zone."
            )
        if option == "subnet":
            subnet = fields[option]
    ranged = common["max_count"] is not None
    spec = NodeGroupSpec(**common, autoscaled=ranged, no_range=not ranged and common["count"] is not None)
    # Several names can cause the same message about the subnet.
    return spec, [f"Node group {spec.name}: {problem}" for problem in dict.fromkeys(problems)]


# Converts node groups between VKS's API and the reconciler: responses to states, and specs to request bodies (pure).

RANGE = (MIN_NODE_COUNT, MAX_NODE_COUNT)
# The fields that each request changes.
REQUEST_FIELDS = {
    METADATA: FIELDS.changed_by(METADATA),
    UPDATE: (NODE_COUNT, *RANGE, *FIELDS.changed_by(UPDATE)),
    UPGRADE: FIELDS.changed_by(UPGRADE),
}
_SETTLED, _FAILED = ("ACTIVE",), ("ERROR", "FAILED")


def state_of(
    row: Row, subnet: str | None = None, nodes: t.Sequence[Row] | None = None, cluster: str = ""
) -> NodeGroupState:
    """The state of a group, derived from the group's details. `subnet` is the cluster's subnet, which is used if the group does not have a subnet.

    cluster: the cluster's id, which is a part of the mark of a replacement.

    If `nodes` is given, the group counts as settled only when the desired number of nodes is ready, because the status may be outdated for a
    while after a change. A group with an unknown status counts as having an operation in progress.
    """
    listed = listed_of(row)
    failed = listed.status in _FAILED
    count = number(row.get("numNodes"))
    scaling = row.get("autoScaleConfig")
    mark = text((row.get("labels") or {}).get(NODEGROUP_MARK))
    owner = marked_owner(mark, cluster, listed.name)
    all_ready = nodes is None or sum(node.get("ready") is not False for node in nodes) >= count
    return NodeGroupState(
        id=listed.id,
        name=listed.name,
        status=listed.status,
        settled=listed.settled and (failed or all_ready),
        failed=failed,
        count=count,
        min_count=number(scaling.get("minSize")) if scaling else 0,
        max_count=number(scaling.get("maxSize")) if scaling else None,
        fields=FIELDS.decode({**row, "subnetId": row.get("subnetId") or subnet}),
        addresses=tuple(str(node["fixedIp"]) for node in nodes or () if node.get("fixedIp")),
        machines=tuple(str(node["name"]) for node in nodes or () if node.get("name")),
        owner=owner,
        marked=bool(owner),
        claims={f"label {NODEGROUP_MARK}": claimed_owner(mark)},
    )


def listed_of(row: Row) -> ListedGroup:
    """The group in a row of the list."""
    status = text(row.get("status"))
    return ListedGroup(text(row.get("id")), text(row.get("name")), status, status in (*_SETTLED, *_FAILED))


def create_body(spec: NodeGroupSpec, name: str, count: int | None, subnet: str | None, cluster: str = "") -> Row:
    """The body of POST .../node-groups. All names are already resolved. `subnet` is the cluster's subnet, which is used if the spec does not have a subnet.

    The group gets its mark as a label.
    """
    # A new group always gets the cluster's version.
    fields = {name: value for name, value in spec.fields.items() if name not in REQUEST_FIELDS[UPGRADE]}
    settings = FIELDS.creation_body({**fields, "subnet": fields.get("subnet") or subnet})
    body: Row = {"name": name, "numNodes": 1 if count is None else count, **settings}
    body["labels"] = {**(body.get("labels") or {}), NODEGROUP_MARK: group_mark(cluster, spec.name, name)}
    if spec.max_count is not None:
        body["autoScaleConfig"] = {"minSize": spec.min_count or 0, "maxSize": spec.max_count}
    optional = ("secondarySubnets", "labels", "taints", "tags")
    return {key: value for key, value in body.items() if value or key not in optional}


def change_body(differences: Differences, state: NodeGroupState) -> Row:
    """The body of a request that changes a group. It contains the changed fields. Maps and sets are written as a whole.

    If `autoScaleConfig` is null, autoscaling is disabled. If it is missing, autoscaling is not changed (vngcloud/greennode-mcp, models.py).
    """
    desired = {field: after for field, (dummy, after) in differences.items()}
    body: Row = FIELDS.encode({field: after for field, after in desired.items() if field in FIELDS.fields})
    if NODE_COUNT in desired:
        body["numNodes"] = desired[NODE_COUNT]
    if desired.keys() & set(RANGE):
        high = desired.get(MAX_NODE_COUNT, state.max_count)
        low = desired.get(MIN_NODE_COUNT, state.min_count)
        body["autoScaleConfig"] = None if high is None else {"minSize": low, "maxSize": high}
    return body


def disables_autoscaling(differences: Differences) -> bool:
    """Whether the differences include the removal of the group's range."""
    return MAX_NODE_COUNT in differences and differences[MAX_NODE_COUNT][1] is None


def is_shown(differences: Differences, state: NodeGroupState) -> bool:
    """Whether the group's state shows the changes. In a map, only the changed entries are compared, because the service adds its own entries."""
    return all(_is_shown(difference, state.values.get(field)) for field, difference in differences.items())


def _is_shown(difference: tuple[t.Any, t.Any], current: t.Any) -> bool:
    before, desired = difference
    if not isinstance(desired, t.Mapping):
        return bool(current == desired)
    old, now = before or {}, current or {}
    return all(now.get(key) == desired.get(key) for key in {*old, *desired} if old.get(key) != desired.get(key))


# Checks declared groups against the account, the cluster and its zones before the first request.

Specs = t.Sequence["tuple[NodeGroupSpec, NodeGroupState | None]"]
Quota = t.Mapping[str, t.Any]


def group_problems(specs: Specs, cluster: VksCluster, groups: int, quota: Quota, resolver: NameResolver) -> list[str]:
    """An error message with a remedy for each problem of these specs.

    specs: the specs with the states of their groups. The state of a new group is None. groups: the number of node groups in the cluster.
    """
    messages = list(_group_quota(specs, groups, quota))
    if cluster.status in ("ERROR", "FAILED", IN_DELETION):
        messages.append(
            f"Cluster {cluster.name} is {cluster.status}; its node groups cannot be changed until it is ACTIVE."
        )
    for spec, state in specs:
        messages += [
            f"Node group {spec.name}: {problem}"
            for problem in (
                *(_creation_problems(spec, cluster, resolver) if state is None else ()),
                *_version_problems(spec, state, cluster),
                *_node_quota(spec, quota),
                *_flavor_problems(spec, state, resolver),
            )
        ]
    return messages


def _group_quota(specs: Specs, groups: int, quota: Quota) -> t.Iterator[str]:
    most = quota.get("maxNodeGroupsPerCluster")
    new = sum(state is None for dummy, state in specs)
    if isinstance(most, int) and new and groups + new > most:
        yield (
            f"The quota does not allow {new} more node groups: the cluster has {groups} of at most {most} (maxNodeGroupsPerCluster). "
            "Delete some, or ask VNG Cloud for a larger quota."
        )


def _node_quota(spec: NodeGroupSpec, quota: Quota) -> t.Iterator[str]:
    most = quota.get("maxNodesPerNodeGroup")
    for option, value in (("node_count", spec.count), ("max_node_count", spec.max_count)):
        if isinstance(most, int) and value is not None and value > most:
            yield (
                f"{option} is {value}, and the quota is {most} nodes for a group (maxNodesPerNodeGroup). Declare several groups, or ask VNG "
                "Cloud for a larger quota."
            )


def _creation_problems(spec: NodeGroupSpec, cluster: VksCluster, resolver: NameResolver) -> t.Iterator[str]:
    subnet = spec.fields.get("subnet") or resolver.default_subnet
    names = [item.name for item in resolver.subnets()]
    if not subnet:
        yield f"subnet: required, because the cluster has several subnets or none. {available('', names)}"
        return
    subnets = [item for item in resolver.subnets() if item.id == subnet and item.usable]
    if not subnets:
        yield f"subnet: {subnet} is not an active subnet of VPC {cluster.vpc}. {available('', names)}"
        return
    for option in ("flavor", "disk_type", "ssh_key"):
        if not spec.fields.get(option):
            choices = [item.name for item in resolver.choices(option, subnet) if item.usable]
            if option == "flavor":
                choices = _available_flavors(resolver.flavors(subnet))
            yield f"{option}: required for a new group. {available('', choices)}"
    disk_types = [item for item in resolver.choices("disk_type", subnet) if item.id == spec.fields.get("disk_type")]
    yield from _disk_problems(spec, disk_types)
    native, secondary = cluster.network == NATIVE_ROUTING, spec.fields.get("secondary_subnets")
    if native and not secondary:
        cidrs = ", ".join(subnets[0].details["secondary_cidrs"]) or "none yet"
        yield f"secondary_subnets: required by the cluster's network, {NATIVE_ROUTING}. Subnet {subnets[0].name} has {cidrs}."
    elif secondary and not native:
        yield f"secondary_subnets: only for clusters with network {NATIVE_ROUTING}, but the network of this cluster is {cluster.network}; omit them."


def _version_problems(spec: NodeGroupSpec, state: NodeGroupState | None, cluster: VksCluster) -> t.Iterator[str]:
    version = spec.fields.get("kubernetes_version")
    current = state.fields.get("kubernetes_version") if state else None
    if version and version not in (current, cluster.version):
        yield (
            f"kubernetes_version: {version} is not the cluster's version, {cluster.version}, the only version to which nodes can be upgraded. Declare "
            "that version, or upgrade the cluster first."
        )


def _disk_problems(spec: NodeGroupSpec, disk_types: t.Sequence[CatalogItem]) -> t.Iterator[str]:
    size = spec.fields.get("disk_size")
    if size is None or not disk_types:
        return
    low, high = disk_types[0].details.get("min_gib"), disk_types[0].details.get("max_gib")
    if isinstance(low, int) and size < low:
        yield f"disk_size: {size} GiB is less than the minimum of {disk_types[0].name}, {low} GiB."
    if isinstance(high, int) and size > high:
        yield f"disk_size: {size} GiB is more than the maximum of {disk_types[0].name}, {high} GiB."


def _flavor_problems(spec: NodeGroupSpec, state: NodeGroupState | None, resolver: NameResolver) -> t.Iterator[str]:
    """Yields the problems with a flavor: too few available machines, or GPUs that do not support MIG even though the labels request it."""
    subnet = spec.fields.get("subnet") or (state.fields["subnet"] if state else resolver.default_subnet)
    flavor_id = spec.fields.get("flavor") or (state.fields["flavor"] if state else None)
    current, default = (state.count, state.count) if state else (0, 1)
    count = spec.desired_count(state.count if state else None)
    added = max(0, (default if count is None else count) - current)
    profile = (spec.fields.get(NODE_LABELS) or {}).get(MIG_CONFIG_LABEL)
    needs_mig = profile is not None and not str(profile).startswith(mig_parted.DISABLED)
    if not flavor_id or not subnet or not (added or needs_mig or state is None):
        return
    flavors, zone = resolver.flavors(subnet), resolver.zone_text(subnet)
    flavor = next((each for each in flavors if each.id == flavor_id), None)
    if flavor is None:
        if state is None:
            yield f"flavor: {flavor_id} is not in {zone}. {available('', _available_flavors(flavors))}"
        return
    alternatives = available(flavor.name, _available_flavors(flavors))
    if added and not flavor.available:
        yield f"flavor: {flavor.name} is sold out in {zone}. {alternatives}"
    elif flavor.remaining is not None and added > flavor.remaining:
        yield f"flavor: {zone} has {flavor.remaining} of {flavor.name} left, and {added} are needed. {alternatives}"
    if needs_mig and flavor.gpus and flavor.models and not any(model.mig_capable for model in flavor.models):
        yield (
            f"node_labels: {MIG_CONFIG_LABEL}={profile} needs MIG, which the {flavor.models[0].key} of {flavor.name} does not support. "
            "Remove the label, or choose a flavor whose GPU supports it (H100)."
        )


def _available_flavors(flavors: t.Iterable[Flavor]) -> list[str]:
    return [flavor.name for flavor in flavors if flavor.available]


# Implements NodeGroupProvider (nodegroups/reconciler.py) for the node groups of one VKS cluster.


class VksProvider:
    """The node group provider for one VKS cluster. It is thread-safe."""

    immutable_fields = FIELDS.immutable_fields
    machine_fields: frozenset[str] = frozenset()
    max_name_length = DEFINITION.max_name_length
    # A PUT request contains only the number of nodes, and the service chooses the nodes to remove.
    can_choose_nodes = False
    takes_requests_anytime = False
    in_cluster = False

    def __init__(self, transport: VksTransport, vserver: VServer, cluster: VksCluster, *, patience: float) -> None:
        """Store the arguments without sending a request. patience: the number of seconds that NodeGroupProvider describes."""
        self.patience = patience
        self._transport = transport
        self._cluster = cluster
        self._resolver = NameResolver(vserver, functools.partial(detailed, transport, cluster))
        self._groups = f"{cluster.path}/node-groups"
        self._states: dict[str, NodeGroupState] = {}

    def specs_of(self, groups: t.Sequence[Options]) -> list[NodeGroupSpec]:
        """The specs that the options declare. Raises InvalidOptions with all problems."""
        require_valid(groups, option_problems)
        longest, names = self.max_name_length, [options["name"] for options in groups]
        states = self.read(lambda group: any(may_be_replacement(group, name, longest) for name in names))
        specs: list[NodeGroupSpec] = []
        problems: list[str] = []
        for options in groups:
            state = next(iter(groups_of_spec(options["name"], states)), None)
            spec, new_problems = spec_of(options, state, self._resolver)
            specs.append(self._with_system_groups(spec, state))
            problems += new_problems
        if problems:
            raise InvalidOptions(problems, INVALID_GROUPS)
        return specs

    def read(self, selects: t.Callable[[str], bool]) -> list[NodeGroupState]:
        """All groups whose name `selects` accepts, with their details. Each group is read only once.

        Raises InvalidOptions if two groups have the same name.
        """
        rows = [row for row in self._rows if selects(str(row.get("name")))]
        _refuse_duplicates(rows)
        return self._details(rows)

    def read_all(self) -> list[NodeGroupState]:
        """All groups with their details, regardless of their names."""
        return self._details(self._rows)

    def check(self, specs: t.Sequence[tuple[NodeGroupSpec, NodeGroupState | None]]) -> list[str]:
        """The problems that checks.py finds in these specs."""
        quota = self._transport.get(VKS_API, "/v1/quota") or {}
        return group_problems(specs, self._resolver.cluster, len(self._rows), quota, self._resolver)

    def list_groups(self) -> list[ListedGroup]:
        """The groups in the service's list. Raises InvalidOptions if two groups have the same name."""
        rows = self._transport.items(self._groups)
        _refuse_duplicates(rows)
        return [listed_of(row) for row in rows]

    def get(self, group: str) -> NodeGroupState | None:
        """The state of the group, including its nodes. The group counts as settled only when the desired number of nodes is ready."""
        row = self._detail(group)
        if row is None:
            return None
        state = self._state(row)
        return self._state(row, self.nodes(state)) if state.settled and not state.failed else state

    def create(self, spec: NodeGroupSpec, name: str, count: int | None) -> None:
        """Request the creation of a group. It is not an error if an earlier request, whose response was lost, has created the group."""
        body = create_body(spec, name, count, self._resolver.default_subnet, self._cluster.id)
        try:
            self._transport.send(VKS_API, "POST", self._groups, body=body)
        except VksError as error:
            if error.status not in (400, 409, 422) or all(group.name != name for group in self.list_groups()):
                raise

    def requests(self, state: NodeGroupState, spec: NodeGroupSpec, leaving: t.Sequence[Node]) -> list[CloudRequest]:
        """The requests in order. Metadata is changed first, so that new nodes register with it, and an upgrade is requested last."""
        differences = dict(field_differences(self._with_system_groups(spec, state), state))
        steps = [(request, REQUEST_FIELDS[request]) for request in (METADATA, UPDATE, UPGRADE)]
        if disables_autoscaling(differences):
            # The range is removed in a separate request, because the service may ignore a number of nodes while the
            # group has a range.
            steps.insert(1, (UPDATE, RANGE))
        requests = []
        for request, fields in steps:
            part = {field: differences.pop(field) for field in fields if field in differences}
            if part:
                requests.append(self._request(state, request, part))
        FIELDS.require_sent(differences, ())
        return requests

    def stop_autoscaling(self, state: NodeGroupState) -> None:
        """Do nothing, because the cloud's autoscaler ignores a group once its deletion has been requested."""

    def delete(self, state: NodeGroupState) -> None:
        """Request the deletion of a group. A failed group can be deleted only by force."""
        query = {"forceDelete": True} if state.failed else None
        try:
            self._transport.send(VKS_API, "DELETE", self._path(state), query=query)
        except VksError as error:
            if not error.not_found:
                raise

    def members(self, state: NodeGroupState, nodes: t.Sequence[Node]) -> list[Node]:
        """The group's nodes, which are matched by address or name. VKS returns both."""
        rows = self.nodes(state)
        names = {str(row.get("name")) for row in rows}
        addresses = {str(row["fixedIp"]) for row in rows if row.get("fixedIp")}
        return [node for node in nodes if node.name in names or addresses & set(node.addresses)]

    def is_busy(self, error: ServiceError) -> bool:
        """Whether the group or its cluster is being processed."""
        return isinstance(error, VksError) and error.busy

    def events(self, state: NodeGroupState) -> list[str]:
        """The cluster's latest events that mention the group. Groups do not have events of their own."""
        query = {"page": 0, "pageSize": PAGE_SIZE}
        rows = rows_of(self._transport.get(VKS_API, f"{self._cluster.path}/events", query=query))
        matching = [row for row in rows if state.name in str(row.get("message")) or state.id in str(row.get("message"))]
        matching.sort(key=lambda row: str(row.get("createdAt")))
        parts = ("createdAt", "type", "action", "message")
        return [" ".join(str(row[part]) for part in parts if row.get(part)) for row in matching[-MAX_NAMED:]]

    def nodes(self, state: NodeGroupState) -> list[Row]:
        """The group's nodes in VKS, or an empty list if the group no longer exists."""
        try:
            return self._transport.items(f"{self._path(state)}/nodes")
        except VksError as error:
            if error.not_found:
                return []
            raise

    def _request(self, state: NodeGroupState, request: tuple[str, str], differences: Differences) -> CloudRequest:
        method, path = request
        body = change_body(differences, state)
        return CloudRequest(
            f"change {', '.join(differences)}",
            lambda: self._transport.send(VKS_API, method, self._path(state) + path, body=body),
            functools.partial(is_shown, differences),
        )

    def _with_system_groups(self, spec: NodeGroupSpec, state: NodeGroupState | None) -> NodeGroupSpec:
        """The spec with the declared security groups and those that the service itself has added."""
        declared = spec.fields.get("security_groups")
        if state is None or declared is None:
            return spec
        undeclared = set(state.fields["security_groups"]) - set(declared)
        kept = undeclared & self._resolver.system_groups() if undeclared else undeclared
        if not kept:
            return spec
        return dataclasses.replace(spec, fields={**spec.fields, "security_groups": sorted(kept | set(declared))})

    @functools.cached_property
    def _rows(self) -> list[Row]:
        return self._transport.items(self._groups)

    def _details(self, rows: t.Sequence[Row]) -> list[NodeGroupState]:
        ids = [str(row.get("id")) for row in rows]
        unread = [(group, functools.partial(self._detail, group)) for group in ids if group not in self._states]
        for state in map(self._state, filter(None, call_all(unread))):
            self._states[state.id] = state
        return [self._states[group] for group in ids if group in self._states]

    def _detail(self, group: str) -> Row | None:
        return t.cast("Row | None", self._transport.find(VKS_API, f"{self._groups}/{group}"))

    def _state(self, row: Row, nodes: t.Sequence[Row] | None = None) -> NodeGroupState:
        # The cluster is only read for a group without a subnet.
        subnet = None if row.get("subnetId") else self._resolver.default_subnet
        return state_of(row, subnet, nodes, self._cluster.id)

    def _path(self, state: NodeGroupState) -> str:
        return f"{self._groups}/{state.id}"


def _refuse_duplicates(rows: t.Sequence[Row]) -> None:
    names = [str(row.get("name")) for row in rows]
    problems = [
        f"{names.count(name)} node groups are called {name}: "
        f"{', '.join(str(row.get('id')) for row in rows if row.get('name') == name)}. Delete all but one; names must be unique."
        for name in sorted({name for name in names if names.count(name) > 1})
    ]
    if problems:
        raise InvalidOptions(problems)


# Discovers the clusters of an account in VNG Cloud's VKS, for the inventory plugin.

# Issuing a kubeconfig takes a few seconds.
_TIMEOUT, _INTERVAL = 120.0, 1.0


class VksSource:
    """One account in one region."""

    provider = VKS.key
    cloud = VKS.key
    status_in_deletion = IN_DELETION

    def __init__(self, settings: t.Mapping[str, t.Any], environ: t.Mapping[str, str], user_agent: str) -> None:
        """Store the arguments without sending a request. environ: the environment variables, which contain the account's secrets."""
        self._settings = settings
        self._user_agent = user_agent
        self._params = _params(settings, environ)
        self.region = str(self._params["region"])

    @functools.cached_property
    def _transport(self) -> VksTransport:
        return connect(self._params, self._user_agent)

    @functools.cached_property
    def _vserver(self) -> VServer:
        return VServer(self._transport, self._params.get("project_id"))

    def discover(self, selects: t.Callable[[str, str], bool]) -> list[DiscoveredCluster]:
        """The clusters whose name and status `selects` accepts. Flavors are read once, and only if a cluster has a node group."""
        clusters = detailed_clusters(self._transport, lambda cluster: selects(cluster.name, cluster.status))
        names = [cluster.name for cluster in clusters]
        groups = call_all([(cluster.id, functools.partial(self._groups, cluster)) for cluster in clusters])
        return [
            self._discovered(cluster, states, unique=names.count(cluster.name) == 1)
            for cluster, states in zip(clusters, groups, strict=True)
        ]

    def kubeconfig(self, cluster: DiscoveredCluster, lifetime: KubeconfigLifetime) -> str:
        """The service's kubeconfig for a cluster. A new kubeconfig is issued if there is none, or if the existing one expires soon."""
        target = cluster_of({"id": cluster.id, "name": cluster.name})
        current = read_kubeconfig(self._transport, target)
        now = datetime.datetime.now(datetime.UTC)
        if reason_to_issue(current, lifetime.renew_before, now) or not current.ready:
            wait = WaitOptions(_TIMEOUT, _INTERVAL, Progress(None))
            current = issue_kubeconfig(self._transport, target, current, days=lifetime.days, wait=wait)
        return current.text

    def explain(self, error: Exception) -> str:
        """The message for an error that this source has raised."""
        return str(error)

    def _groups(self, cluster: VksCluster) -> list[NodeGroupState]:
        return VksProvider(self._transport, self._vserver, cluster, patience=0.0).read_all()

    @functools.cached_property
    def _flavors(self) -> dict[str, Flavor]:
        """All flavors of the region by id. If the account is not allowed to read flavors, the result is empty and the GPUs are unknown."""
        try:
            zones = [zone.id for zone in self._vserver.zones() if zone.usable]
            return {flavor.id: flavor for zone in zones for flavor in self._vserver.flavors(zone)}
        except VksError as error:
            if not (error.forbidden or error.not_found):
                raise
            return {}

    def _discovered(
        self, cluster: VksCluster, states: t.Sequence[NodeGroupState], *, unique: bool
    ) -> DiscoveredCluster:
        connection = {option: self._settings[option] for option in VKS.connection_options if self._settings.get(option)}
        return DiscoveredCluster(
            provider=self.provider,
            cloud=self.cloud,
            region=self.region,
            id=cluster.id,
            name=cluster.name,
            status=cluster.status,
            version=cluster.version,
            server=cluster.server or "",
            ready=cluster.status == "ACTIVE",
            settings={**connection, "cluster": cluster.name if unique else cluster.id, "region": self.region},
            groups=tuple(self._group(state) for state in states),
        )

    def _group(self, state: NodeGroupState) -> DiscoveredNodeGroup:
        flavor_id = str(state.fields["flavor"])
        flavor = self._flavors.get(flavor_id)
        return DiscoveredNodeGroup(
            name=state.name,
            status=state.status,
            count=state.count,
            flavor=flavor.name if flavor else flavor_id,
            gpus=flavor.gpus if flavor else None,
            models=tuple(model.key for model in flavor.models) if flavor else (),
        )


def sources(settings: t.Mapping[str, t.Any], environ: t.Mapping[str, str], user_agent: str) -> list[VksSource]:
    """A list with the source for the account."""
    return [VksSource(settings, environ, user_agent)]


def _params(settings: t.Mapping[str, t.Any], environ: t.Mapping[str, str]) -> dict[str, t.Any]:
    """The options of the VKS modules, from the plugin's entry or else from the environment.

    The entry can specify the names of the environment variables that contain the credentials of its account.
    """
    params: dict[str, t.Any] = {
        option: next((environ[name] for name in names if environ.get(name)), None)
        for option, names in ENVIRONMENT.items()
    }
    params |= {option: value for option, value in settings.items() if value is not None}
    for option in ("client_id", "client_secret"):
        if name := settings.get(f"{option}_env"):
            params[option] = environ.get(name)
    return {**params, "region": params["region"] or DEFAULT_REGION}
