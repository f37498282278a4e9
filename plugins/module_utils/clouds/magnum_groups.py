# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node groups of Magnum, and the inventory of its clusters."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
import re
import typing as t
from dataclasses import dataclass

from ..catalog.names import MAGNUM_NODEGROUP_MARK
from ..core.errors import InvalidOptions, ServiceError
from ..core.messages import abbreviate
from ..core.types import Text
from ..core.waits import call_all
from ..nodegroups.module import NodeGroupField, NodeGroupFields, node_labels_field, node_taints_field
from ..nodegroups.reconciler import CloudRequest, ListedGroup
from ..nodegroups.spec import NodeGroupSpec, NodeGroupState, field_differences, groups_of_spec, merge_field
from ..schema import validators
from ..schema.providers import (
    MAGNUM,
    MAGNUM_NODEGROUP_LABEL,
    MAX_NODE_COUNT,
    MIN_NODE_COUNT,
    NODE_COUNT,
    claimed_owner,
    group_mark,
    marked_owner,
)
from .kubeconfig_file import DiscoveredCluster, DiscoveredNodeGroup, KubeconfigLifetime
from .magnum_client import IN_DELETION, CloudOptions, Glance, Magnum, Nova, OpenStackError, Session, explain, regions_of
from .magnum_clusters import (
    ClusterEndpoint,
    gpus_of,
    kubeconfig_document,
    magnum_label,
    magnum_labels,
    new_certificate_request,
)

if t.TYPE_CHECKING:
    from ..core.values import Document, Object
    from ..nodes.node import Node

# Defines the settings of a Magnum node group, and the format of the values in Magnum's API (pure).

# The request that changes bounds, labels and taints.
PATCH = ("PATCH", "")
# The first microversion that supports node labels and taints (Magnum 23.0).
_NODE_METADATA = (1, 14)


FIELDS = NodeGroupFields(
    MAGNUM,
    (
        NodeGroupField("flavor", "flavor_id", type=Text()),
        NodeGroupField("image", "image_id"),
        NodeGroupField("role", "role"),
        NodeGroupField(
            "labels",
            "labels",
            # Values of any type are accepted.
            check=lambda dummy: iter(()),
            normalize=magnum_labels,
            decode=magnum_labels,
        ),
        NodeGroupField("docker_volume_size", "docker_volume_size"),
        node_labels_field("node_labels", PATCH, validators.kubelet_label, since=_NODE_METADATA),
        node_taints_field("node_taints", PATCH, since=_NODE_METADATA),
    ),
    creation_options={"merge_labels": True},
)


# Creates specs from the options of magnum_nodegroup, and finds the problems that can be detected without a cloud (pure).

Options = t.Mapping[str, t.Any]

# This label of the cluster or the group shows whether an autoscaler is active.
AUTOSCALING_LABEL = "auto_scaling_enabled"


@dataclass(frozen=True)
class MagnumSpec(NodeGroupSpec):
    """A spec with additional data for the request that creates the group."""

    merge_labels: bool = True


def option_problems(group: Options) -> t.Iterator[str]:
    """Yields the problems in a group's options that can be detected without the cloud."""
    if not group["name"]:
        yield "name is empty; a node group needs a name"
    yield from FIELDS.problems(group)


def spec_of(group: Options, *, cluster_labels: t.Mapping[str, str], version: tuple[int, int]) -> MagnumSpec:
    """The spec for the options of one group.

    cluster_labels: the labels of the cluster, which show whether its autoscaler is enabled.
    version: the microversion in use. Settings that need a newer microversion are ignored.
    """
    group = {**group, **dict.fromkeys(FIELDS.newer_than(version))}
    return MagnumSpec(
        **FIELDS.spec_arguments(group),
        autoscaled=_autoscaled(group, cluster_labels),
        merge_labels=bool(group.get("merge_labels", True)),
    )


def _autoscaled(group: Options, cluster_labels: t.Mapping[str, str]) -> bool:
    """Whether the group is autoscaled according to the option `autoscaling`.

    If the option is not set, a group is autoscaled if a label of the cluster or the group enables autoscaling, and the minimum and the maximum are set
    and differ.
    """
    if group.get("autoscaling") is not None:
        return bool(group["autoscaling"])
    low, high = group.get(MIN_NODE_COUNT), group.get(MAX_NODE_COUNT)
    labels = {**cluster_labels, **(group.get("labels") or {})}
    return magnum_label(labels.get(AUTOSCALING_LABEL)) == "true" and None not in (low, high) and low != high


# Builds the bodies of the requests that create and change a Magnum node group, and determines the order in which its size changes (pure).

PATCH_FIELDS = FIELDS.changed_by(PATCH)
# The fields that a resize or a patch changes. All other fields are immutable.
SENT_FIELDS = frozenset({NODE_COUNT, MIN_NODE_COUNT, MAX_NODE_COUNT, *PATCH_FIELDS})


def create_body(spec: MagnumSpec, name: str, count: int | None, cluster: str = "") -> dict[str, t.Any]:
    """The body of the request that creates the group under this name with `count` nodes.

    The group gets its mark as one of Magnum's labels. cluster: the cluster's id, which is a part of the mark.
    """
    settings = FIELDS.creation_body(spec.fields)
    body = {
        "name": name,
        "node_count": count,
        MIN_NODE_COUNT: spec.min_count,
        MAX_NODE_COUNT: spec.max_count,
        # Without labels of its own, a group inherits the labels of the cluster.
        "merge_labels": spec.merge_labels if "labels" in settings else True,
    }
    mark = group_mark(cluster, spec.name, name)
    settings = {**settings, "labels": {**(settings.get("labels") or {}), MAGNUM_NODEGROUP_MARK: mark}}
    return settings | {key: value for key, value in body.items() if value is not None}


def patch_body(current: Size, following: Size, fields: t.Mapping[str, t.Any]) -> list[dict[str, t.Any]]:
    """The body of the request that changes the bounds and the given fields."""
    changed: dict[str, t.Any] = {}
    if following.high != current.high:
        changed[MAX_NODE_COUNT] = following.high
    if following.low != current.low:
        changed[MIN_NODE_COUNT] = following.low
    changed |= {name: patch_value(value) for name, value in FIELDS.encode(fields).items()}
    return [{"op": "replace", "path": f"/{name}", "value": value} for name, value in changed.items()]


def patch_value(value: t.Any) -> str:
    """Convert a map or a list in a patch to a string, because Magnum accepts only strings and parses them as Python literals.

    JSON maps, lists and strings are valid Python literals, except for escapes of characters above U+FFFF. Characters are therefore not escaped.
    """
    return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True)
class Size:
    """The number of nodes in a group, and the bounds of this number. `high` is None if there is no upper limit."""

    count: int
    low: int
    high: int | None


def next_size(current: Size, desired: Size) -> Size:
    """The size after the next request, which changes either the bounds or the count. It equals `current` if no request remains.

    Magnum rejects a patch whose bounds exclude the current count, and a resize to a number outside the current bounds. Bounds that exclude the desired
    count are therefore widened first. Then the count is changed, and finally the bounds get their desired values.
    """
    if current.count == desired.count:
        return desired
    if current.low <= desired.count and (current.high is None or desired.count <= current.high):
        return Size(desired.count, current.low, current.high)
    high = None if current.high is None or desired.high is None else max(current.high, desired.high)
    return Size(current.count, min(current.low, desired.low), high)


# Checks declared groups before the first request, because Magnum accepts most invalid groups and fails later.

# If this label is `true`, the cloud or the image installs NVIDIA's driver, for example in CERN's clusters.
GPU_LABEL = "nvidia_gpu_enabled"
# Operating systems that Magnum's drivers support, but for which NVIDIA publishes no driver container (GPU operator,
# "Platform Support").
_WITHOUT_DRIVER = frozenset({"coreos", "debian", "fedora-atomic", "fedora-coreos", "flatcar"})
# With the driver magnum-capi-helm, Cluster API cannot scale OpenStack machines up from zero (driver_utils, get_auto_scaling).
_NO_SCALE_FROM_ZERO = "capi_helm"
_UNCHANGEABLE = ("CREATE_FAILED", IN_DELETION, "DELETE_FAILED", "DELETE_COMPLETE")
# For each quota: the unit in messages, Nova's names for the limit and the current usage, and the flavor's field with the amount per node. If the field is
# None, each node uses one unit.
_QUOTAS = (
    ("instances", "maxTotalInstances", "totalInstancesUsed", None),
    ("cores", "maxTotalCores", "totalCoresUsed", "vcpus"),
    ("MB of RAM", "maxTotalRAMSize", "totalRAMUsed", "ram"),
)


# The number of nodes that a spec adds, and their flavor.
_Growth = tuple[int, "Document | None"]


class MagnumChecks:
    """Checks the specs of one cluster. Each resource that the specs refer to is looked up at most once, and only if it is needed."""

    def __init__(self, magnum: Magnum, nova: Nova, glance: Glance, cluster: Document) -> None:
        """Store the arguments without sending a request."""
        self._magnum = magnum
        self._nova = nova
        self._glance = glance
        self._cluster = cluster
        # The names of the groups that were created together with the cluster.
        self.defaults: frozenset[str] = frozenset()

    @functools.cached_property
    def template(self) -> Document | None:
        """The cluster's template, or None if the user is not allowed to read it."""
        return self._magnum.template(str(self._cluster.get("cluster_template_id") or ""))

    def problems(self, specs: t.Sequence[tuple[NodeGroupSpec, NodeGroupState | None]]) -> list[str]:
        """An error message with a remedy for each problem of these specs. The state is None for a group that does not exist yet."""
        if self._cluster.get("status") in _UNCHANGEABLE:
            reason = f": {self._cluster['status_reason']}" if self._cluster.get("status_reason") else ""
            return [
                f"Cluster {self._cluster['name']} is {self._cluster['status']}{reason}. Its node groups cannot be changed. Delete the "
                "cluster and create it again."
            ]
        messages: list[str] = []
        growths: list[_Growth] = []
        for spec, state in specs:
            problems = [*(self._creation_problems(spec) if state is None else ()), *self._count_problems(spec, state)]
            growth = self._growth(spec, state)
            growths += [growth] if growth else []
            messages += [f"Node group {spec.name}: {problem}." for problem in problems]
        return messages + ([] if messages else list(self._quota_problems(growths)))

    def undeletable(self, name: str) -> str:
        """The error message for an attempt to delete a group that was created together with the cluster."""
        return (
            f"Node group {name} was created with cluster {self._cluster['name']}, and Magnum does not delete or replace such a group. "
            "Create an additional group and set node_count of this one to 0, or delete the cluster."
        )

    def _creation_problems(self, spec: NodeGroupSpec) -> t.Iterator[str]:
        if spec.name in self.defaults:
            yield self.undeletable(spec.name).rstrip(".")
        elif problem := MAGNUM.name_rule(spec.name):
            yield f"name: {spec.name!r} {problem}"
        flavor, problem = self._flavor(spec)
        if problem:
            yield problem
        elif flavor and not flavor.get("disk") and not self._boot_volume():
            yield (
                f"flavor {flavor['name']} has a disk of 0 GB, which Magnum rejects unless the cluster's label boot_volume_size sets the "
                "size of a boot volume; choose another flavor"
            )
        if spec.fields.get("image") is not None:
            yield from self._image_problems(str(spec.fields["image"]), flavor, spec)

    def _count_problems(self, spec: NodeGroupSpec, state: NodeGroupState | None) -> t.Iterator[str]:
        count = spec.desired_count(state.count if state else None)
        if count == 0 and (state is None or state.count) and not self._magnum.resizes_to_zero:
            yield "node_count is 0, and this Magnum does not support groups without nodes (they require microversion 1.10); declare 1 or more"
        driver = str((self.template or {}).get("driver") or "") if spec.autoscaled and spec.min_count == 0 else ""
        if _NO_SCALE_FROM_ZERO in driver:
            yield (
                "min_node_count is 0, and the cluster's driver (magnum-capi-helm) cannot scale from zero; declare min_node_count of 1 "
                "or more, or autoscaling: false"
            )

    def _flavor(self, spec: NodeGroupSpec) -> tuple[Document | None, str | None]:
        name = str(spec.fields.get("flavor") or self._cluster.get("flavor_id") or "")
        flavor = self._nova.flavor(name) if name else None
        if flavor is not None or not name:
            return flavor, None
        names = sorted(str(flavor["name"]) for flavor in self._nova.flavors)
        with_gpus = sorted(str(flavor["name"]) for flavor in self._nova.flavors if gpus_of(flavor.get("extra_specs")))
        similar = difflib.get_close_matches(name, names, n=3) or with_gpus or names
        return None, f"Nova has no flavor {name} for this project; {_available(similar)}"

    def _image_problems(self, name: str, flavor: Document | None, spec: NodeGroupSpec) -> t.Iterator[str]:
        images = self._glance.named(name)
        if len(images) > 1:
            ids = ", ".join(str(image["id"]) for image in images)
            yield f"{len(images)} images are called {name}: {ids}; specify the id"
            return
        if not images:
            names = sorted({str(image["name"]) for image in self._glance.images})
            yield f"Glance has no image {name} for this project; {_available(difflib.get_close_matches(name, names, n=3) or names)}"
            return
        image = images[0]
        if image.get("status") != "active":
            yield f"image {name} is {image.get('status')}, so no machine can start from it; choose another image"
        for key, unit in (("disk", "GB"), ("ram", "MB")):
            least = image.get(f"min_{key}") or 0
            available = flavor.get(key) if flavor else None
            if available is not None and least > available and not (key == "disk" and self._boot_volume()):
                yield f"image {name} needs {least} {unit} of {key}, and flavor {flavor['name'] if flavor else ''} has {available}"
        yield from self._system_problems(image, flavor, spec)

    def _system_problems(self, image: Document, flavor: Document | None, spec: NodeGroupSpec) -> t.Iterator[str]:
        system = str(image.get("os_distro") or "").lower()
        expected = str((self.template or {}).get("cluster_distro") or "").lower()
        if system and expected and system != expected:
            yield (
                f"image {image['name']} is {system} (os_distro), and cluster {self._cluster['name']} uses {expected}; choose an image of "
                "that system"
            )
        elif (
            system in _WITHOUT_DRIVER
            and flavor
            and gpus_of(flavor.get("extra_specs"))
            and not self._driver_is_installed(spec)
        ):
            yield (
                f"image {image['name']} is {system}, for which NVIDIA publishes no driver container, so the GPUs of flavor {flavor['name']} "
                f"would have no driver; choose an Ubuntu image, or set the label {GPU_LABEL}=true if the cloud or the image installs one"
            )

    def _driver_is_installed(self, spec: NodeGroupSpec) -> bool:
        labels = {**(self._cluster.get("labels") or {}), **(spec.fields.get("labels") or {})}
        return magnum_label(labels.get(GPU_LABEL)) == "true"

    def _boot_volume(self) -> bool:
        return str((self._cluster.get("labels") or {}).get("boot_volume_size") or "0") not in ("0", "None")

    def _growth(self, spec: NodeGroupSpec, state: NodeGroupState | None) -> _Growth | None:
        current = state.count if state else 0
        count = spec.desired_count(state.count if state else None)
        if count is None:
            # Magnum creates a group with one node by default.
            count = 1 if state is None else current
        if count <= current:
            return None
        flavor = self._nova.flavor(str(state.fields.get("flavor"))) if state else self._flavor(spec)[0]
        return count - current, flavor

    def _quota_problems(self, growths: t.Sequence[_Growth]) -> t.Iterator[str]:
        if not growths:
            return
        limits = self._nova.limits
        for unit, limit, used, field in _QUOTAS:
            most, current = limits.get(limit), limits.get(used) or 0
            needed = sum(nodes * (int((flavor or {}).get(field) or 0) if field else 1) for nodes, flavor in growths)
            # -1 is used for no limit.
            if most is not None and 0 <= most < current + needed:
                yield (
                    f"The project's quota is {most} {unit}, {current} are used, and these node groups need {needed} more. Declare fewer "
                    "nodes, delete unused resources, or ask the cloud's operator for a larger quota."
                )


def _available(names: t.Sequence[str]) -> str:
    return f"available: {abbreviate(names)}" if names else "there are none"


# Implements NodeGroupProvider (nodegroups/reconciler.py) for the node groups of one Magnum cluster.

# Node labels that contain the name of the node's group: the label that Heat's drivers and the cluster autoscaler's
# provider use, and the label that magnum-capi-helm uses.
GROUP_LABELS = (MAGNUM_NODEGROUP_LABEL, "capi.stackhpc.com/node-group")
# With these drivers, Cluster API chooses the nodes to remove and drains them itself.
_CLUSTER_API_DRIVERS = ("capi", "cluster_api")
_SERVER_PREFIX = "openstack://"
# What names of nodes cannot contain; the driver of Cluster API replaces it.
_NO_NAME = re.compile(r"[^a-z0-9]+")

_Spec = t.TypeVar("_Spec", bound=NodeGroupSpec)


class MagnumProvider:
    """The node group provider for one Magnum cluster."""

    immutable_fields = FIELDS.immutable_fields
    machine_fields: frozenset[str] = frozenset()
    max_name_length = MAGNUM.max_name_length
    # A driver stores a request only after it has forwarded the request to Heat or Helm, which takes a few seconds.
    patience = 20.0
    takes_requests_anytime = False
    in_cluster = False

    def __init__(
        self, magnum: Magnum, nova: Nova, glance: Glance, cluster: Object, specs: t.Sequence[MagnumSpec]
    ) -> None:
        """Store the arguments without sending a request. `cluster` is Magnum's response."""
        self._magnum = magnum
        self._nova = nova
        self._glance = glance
        self._cluster = cluster
        self._specs = {spec.name: spec for spec in specs}
        self._checks = MagnumChecks(magnum, nova, glance, cluster)
        self._states: list[NodeGroupState] = []
        # The names of all groups of the cluster.
        self._names: frozenset[str] = frozenset()
        # The ids of groups that had failed before this run. The failed operation of each group is retried once.
        self._retryable: set[str] = set()

    @property
    def cluster_id(self) -> str:
        """The cluster's id."""
        return str(self._cluster["uuid"])

    @property
    def defaults(self) -> frozenset[str]:
        """The names of the groups that were created together with the cluster, as far as they have been read."""
        return self._checks.defaults

    @functools.cached_property
    def can_choose_nodes(self) -> bool:
        """Whether the cluster's driver removes the nodes that a request specifies."""
        driver = str((self._checks.template or {}).get("driver") or "")
        return not any(name in driver for name in _CLUSTER_API_DRIVERS)

    def read(self, selects: t.Callable[[str], bool]) -> list[NodeGroupState]:
        """All groups whose name `selects` accepts. Each group is read separately, because the list contains wrong bounds and no labels."""
        ids = [group["uuid"] for group in self._rows() if selects(group["name"])]
        groups = self._magnum.complete_nodegroups(self.cluster_id, ids)
        defaults = [group["name"] for group in groups if group.get("is_default")]
        self._checks.defaults = frozenset(defaults)
        undeletable = [name for name in defaults if name in self._specs and not self._specs[name].present]
        if undeletable:
            raise InvalidOptions([self._checks.undeletable(name) for name in undeletable])
        self._states = [self._state(group) for group in groups]
        self._retryable = {state.id for state in self._states if state.failed}
        return self._states

    def check(self, specs: t.Sequence[tuple[NodeGroupSpec, NodeGroupState | None]]) -> list[str]:
        """The problems that MagnumChecks finds in these specs."""
        return self._checks.problems([(spec if state else self._complete(spec), state) for spec, state in specs])

    def list_groups(self) -> list[ListedGroup]:
        """The groups in Magnum's list, which contains the correct statuses."""
        return [ListedGroup(row["uuid"], row["name"], _status(row), _is_settled(row)) for row in self._rows()]

    def get(self, group: str) -> NodeGroupState | None:
        """The group's current state."""
        row = self._magnum.nodegroup(self.cluster_id, group)
        return self._state(row) if row else None

    def create(self, spec: NodeGroupSpec, name: str, count: int | None) -> None:
        """Request the creation of a group. A replacement inherits undeclared settings from the old group."""
        complete = self._complete(t.cast("MagnumSpec", spec))
        body = create_body(complete, name, complete.count if count is None else count, self.cluster_id)
        self._magnum.create_nodegroup(self.cluster_id, body)

    def requests(self, state: NodeGroupState, spec: NodeGroupSpec, leaving: t.Sequence[Node]) -> list[CloudRequest]:
        """A list with only the next request, because all later requests depend on its effect."""
        desired = {field: after for field, (dummy, after) in field_differences(spec, state).items()}
        FIELDS.require_sent(desired, SENT_FIELDS)
        current = Size(state.count, state.min_count, state.max_count)
        size = next_size(
            current,
            Size(
                desired.get(NODE_COUNT, state.count),
                desired.get(MIN_NODE_COUNT, state.min_count),
                desired.get(MAX_NODE_COUNT, state.max_count),
            ),
        )
        fields = {field: desired[field] for field in PATCH_FIELDS if field in desired}
        if size.count != current.count:
            return [self._resize(state, size.count, leaving)]
        if size != current or fields:
            return [self._patch(state, current, size, fields)]
        if state.id in self._retryable and state.failed and state.fields.get("role") != "master":
            # A resize makes every driver run a complete update, which retries a failed operation.
            return [self._resize(state, state.count, ())]
        return []

    def stop_autoscaling(self, state: NodeGroupState) -> None:
        """Do nothing, because the cloud's autoscaler ignores a group once its deletion has been requested."""

    def delete(self, state: NodeGroupState) -> None:
        """Request the deletion of a group."""
        self._magnum.delete_nodegroup(self.cluster_id, state.id)

    def members(self, state: NodeGroupState, nodes: t.Sequence[Node]) -> list[Node]:
        """The nodes that belong to the group: those with an address that Magnum returns, and those whose label and name both contain the group's name.

        Anyone can set the label on a node, so it does not count alone. Magnum's Heat drivers return the addresses; Cluster API puts the name of the group
        into the names of its nodes. The names of the cluster and of another group may contain the group's name, too; the longest name counts.
        """
        addresses, part, cluster = set(state.addresses), _name_part(state.name), _name_part(str(self._cluster["name"]))
        longer = [other for name in self._names if part in (other := _name_part(name)) and other != part]

        def is_named_after_group(node: Node) -> bool:
            name = f"-{node.name}".removeprefix(cluster[:-1])
            return part in name and not any(other in name for other in longer)

        return [
            node
            for node in nodes
            if addresses & set(node.addresses)
            or (any(node.labels.get(key) == state.name for key in GROUP_LABELS) and is_named_after_group(node))
        ]

    def is_busy(self, error: ServiceError) -> bool:
        """Whether another operation is in progress, or the cluster is still being created and its API server does not have an address yet."""
        return isinstance(error, OpenStackError) and (error.no_address_yet or error.in_progress)

    def events(self, state: NodeGroupState) -> list[str]:
        """The cluster's faults and status."""
        cluster = self._magnum.find_cluster(self.cluster_id) or {}
        faults = [f"{name}: {text}" for name, text in sorted((cluster.get("faults") or {}).items())]
        reason = str(cluster.get("status_reason") or "")
        status = f"The cluster is {cluster.get('status')}"
        return [*faults, f"{status}: {reason}" if reason else status]

    def _rows(self) -> list[Object]:
        """Magnum's list of the groups."""
        rows = self._magnum.nodegroups(self.cluster_id)
        self._names = frozenset(str(row["name"]) for row in rows)
        return rows

    def _complete(self, spec: _Spec) -> _Spec:
        """The spec. If the group exists, undeclared settings get the values of the existing group."""
        existing = groups_of_spec(spec.name, self._states)
        if not existing:
            return spec
        old = existing[0]
        fields = {name: value for name, value in old.fields.items() if value is not None}
        for name, value in spec.fields.items():
            fields[name] = merge_field(fields.get(name) or {}, value) if isinstance(value, t.Mapping) else value
        return dataclasses.replace(
            spec,
            count=old.count if spec.count is None else spec.count,
            min_count=old.min_count if spec.min_count is None else spec.min_count,
            max_count=old.max_count if spec.max_count is None else spec.max_count,
            fields=fields,
        )

    def _resize(self, state: NodeGroupState, count: int, leaving: t.Sequence[Node]) -> CloudRequest:
        servers = [
            node.provider_id.rpartition("/")[2] for node in leaving if node.provider_id.startswith(_SERVER_PREFIX)
        ]
        resizing = f"resize from {state.count} to {count} nodes"

        def send() -> None:
            self._retryable.discard(state.id)
            self._magnum.resize(self.cluster_id, state.id, count, servers)

        return CloudRequest(
            resizing if count != state.count else f"retry after {state.status}",
            send,
            lambda now: now.count == count and not now.failed,
        )

    def _patch(self, state: NodeGroupState, current: Size, size: Size, fields: t.Mapping[str, t.Any]) -> CloudRequest:
        patch = patch_body(current, size, fields)
        return CloudRequest(
            f"change {', '.join(part['path'][1:] for part in patch)}",
            lambda: self._magnum.patch_nodegroup(self.cluster_id, state.id, patch),
            lambda now: (
                (now.min_count, now.max_count) == (size.low, size.high)
                and all(now.fields.get(name) == value for name, value in fields.items())
            ),
        )

    def _state(self, group: Object) -> NodeGroupState:
        status = _status(group)
        unsupported = FIELDS.newer_than(self._magnum.version)
        fields = {name: value for name, value in FIELDS.decode(group).items() if name not in unsupported}
        mark = (group.get("labels") or {}).get(MAGNUM_NODEGROUP_MARK)
        owner = marked_owner(str(mark) if mark else None, self.cluster_id, str(group["name"]))
        for kind in ("flavor", "image"):
            fields[kind] = self._as_declared(kind, owner or str(group["name"]), fields[kind])
        return NodeGroupState(
            id=str(group["uuid"]),
            name=str(group["name"]),
            status=status,
            settled=_is_settled(group),
            failed=status.endswith("_FAILED"),
            count=int(group.get("node_count") or 0),
            reason=str(group.get("status_reason") or ""),
            min_count=int(group.get("min_node_count") or 0),
            # 0 is also used for no limit.
            max_count=group.get("max_node_count") or None,
            fields=fields,
            addresses=tuple(group.get("node_addresses") or ()),
            owner=owner,
            marked=bool(owner),
            claims={f"label {MAGNUM_NODEGROUP_MARK}": claimed_owner(str(mark) if mark else None)},
        )

    def _as_declared(self, kind: str, group: str, stored: str | None) -> str | None:
        """The declared name or id of a flavor or image if the stored one refers to the same object, or else the stored one.

        Magnum stores the name or id exactly as the request contained it.
        """
        spec = self._specs.get(group)
        declared = spec.fields.get(kind) if spec else None
        if declared in (None, stored) or stored is None:
            return stored
        return declared if self._ids_of(kind, stored) & self._ids_of(kind, str(declared)) else stored

    def _ids_of(self, kind: str, name: str) -> set[t.Any]:
        flavor = self._nova.flavor(name) if kind == "flavor" else None
        ids = self._glance.named(name) if kind == "image" else [flavor] if flavor else []
        return {item["id"] for item in ids}


def _name_part(name: str) -> str:
    """How the names of nodes contain the name of a group or cluster."""
    return f"-{_NO_NAME.sub('-', name.lower()).strip('-')}-"


def _status(group: Object) -> str:
    return str(group.get("status") or "CREATE_IN_PROGRESS")


def _is_settled(group: Object) -> bool:
    return not _status(group).endswith("_IN_PROGRESS")


# Discovers the clusters of a project in a cloud with Magnum, for the inventory plugin.


class MagnumSource:
    """One cloud from clouds.yaml in one region. If `region` is None, this is the only region of the cloud."""

    provider = MAGNUM.key
    status_in_deletion = IN_DELETION

    def __init__(self, cloud: str, region: str | None, aliases: t.Mapping[str, str], user_agent: str) -> None:
        """Store the arguments without sending a request. aliases: maps the cloud operator's names for GPUs to models of the catalog."""
        self.cloud, self.region = cloud, region or ""
        self._aliases = aliases
        self._user_agent = user_agent

    @functools.cached_property
    def _session(self) -> Session:
        options = {"cloud": self.cloud, **({"region_name": self.region} if self.region else {})}
        return Session(CloudOptions.from_params(options), self._user_agent)

    @functools.cached_property
    def _magnum(self) -> Magnum:
        return Magnum(self._session)

    def discover(self, selects: t.Callable[[str, str], bool]) -> list[DiscoveredCluster]:
        """The clusters whose name and status `selects` accepts.

        This method reads the list of clusters, and then sends two requests for each cluster. Clusters are read in parallel.
        """
        rows = [
            cluster
            for cluster in self._magnum.clusters()
            if selects(str(cluster["name"]), str(cluster.get("status") or ""))
        ]
        names = [str(cluster["name"]) for cluster in rows]
        nova = Nova(self._session)
        details = call_all([(str(row["uuid"]), functools.partial(self._details, str(row["uuid"]))) for row in rows])
        return [
            self._discovered(cluster, groups, nova, unique=names.count(str(cluster["name"])) == 1)
            for cluster, groups in filter(None, details)
        ]

    def kubeconfig(self, cluster: DiscoveredCluster, dummy: KubeconfigLifetime) -> str:
        """A new kubeconfig with a certificate that the cluster's CA has signed. Magnum determines how long the certificate is valid."""
        endpoint = ClusterEndpoint(cluster.name, cluster.server, self._magnum.ca(cluster.id))
        request = new_certificate_request()
        return kubeconfig_document(endpoint, request.key, self._magnum.sign(cluster.id, request.csr))

    def explain(self, error: Exception) -> str:
        """The message for an error that this source has raised, with the name of the cloud."""
        return explain(error, self._session.origin) if isinstance(error, OpenStackError) else str(error)

    def _details(self, cluster_id: str) -> tuple[Object, list[Object]] | None:
        cluster = self._magnum.find_cluster(cluster_id)
        return (cluster, self._magnum.nodegroups(cluster_id)) if cluster is not None else None

    def _discovered(
        self, cluster: Object, groups: t.Sequence[Object], nova: Nova, *, unique: bool
    ) -> DiscoveredCluster:
        address = str(cluster.get("api_address") or "")
        name, cluster_id = str(cluster["name"]), str(cluster["uuid"])
        region = self.region or self._session.region
        settings: Object = {"cloud": self.cloud, "cluster": name if unique else cluster_id}
        if region:
            settings["region_name"] = region
        return DiscoveredCluster(
            provider=self.provider,
            cloud=self.cloud,
            region=region,
            id=cluster_id,
            name=name,
            status=str(cluster.get("status") or ""),
            version=str(cluster.get("coe_version") or ""),
            server=address,
            ready=bool(address),
            settings=settings,
            groups=tuple(self._group(group, nova) for group in groups),
        )

    def _group(self, group: Object, nova: Nova) -> DiscoveredNodeGroup:
        flavor = nova.flavor(str(group.get("flavor_id") or ""))
        gpus = gpus_of(flavor.get("extra_specs"), self._aliases) if flavor else None
        return DiscoveredNodeGroup(
            name=str(group["name"]),
            status=str(group.get("status") or ""),
            count=int(group.get("node_count") or 0),
            flavor=str(flavor["name"] if flavor else group.get("flavor_id") or ""),
            gpus=gpus.count if gpus else 0 if flavor and flavor.get("extra_specs") is not None else None,
            models=gpus.models if gpus else (),
        )


def sources(settings: t.Mapping[str, t.Any], dummy_environ: t.Mapping[str, str], user_agent: str) -> list[MagnumSource]:
    """A source for each region in `region_names`. By default, there is a source for each of the cloud's regions in clouds.yaml."""
    cloud = str(settings["cloud"])
    regions: t.Sequence[str | None] = settings.get("region_names") or regions_of(cloud) or [None]
    return [MagnumSource(cloud, region, settings.get("gpu_aliases") or {}, user_agent) for region in regions]
