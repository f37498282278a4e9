# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads and writes the licensing objects of a cluster, verifies the licenses of its nodes; the options and the report of the modules."""

from __future__ import annotations

import functools
import itertools
import typing as t
from dataclasses import dataclass, replace

from ..catalog.names import LICENSE_CONFIG_KEY, LICENSE_TOKEN_KEY, LIVE_PODS
from ..catalog.vgpu import AUTOMATIC, series_of
from ..core.errors import InvalidOptions
from ..core.messages import WIDTH, Column, abbreviate, abbreviate_nodes, join_words, quote, table, wrap
from ..core.waits import run_bounded
from ..gpu_operator.cluster_policy import driver_of_nodes, is_managed_driver, uses_driver_objects
from ..kube.errors import ApiError, retry_conflicts
from ..kube.fields import manager_of
from ..kube.objects import write_or_dry_run
from ..kube.paths import NODES, NVIDIA_DRIVERS, collection_path, object_path
from ..nodes.node import Node, parse_node
from ..nodes.node_check import driver_pod_to_restart
from ..nodes.ownership import assign_pools
from ..nodes.pool_edit import recorded_rollout
from ..schema.validators import object_name
from .container import LicenseContainers
from .content import (
    CONFIG_MAP,
    NO_OBJECT,
    NO_OPERATOR,
    DesiredFiles,
    LicenseFiles,
    LicenseTarget,
    declared_targets,
    declared_vgpu_types,
    declares_vgpu,
    desired_files,
    has_secret_name,
    kept_files,
    live_target,
    managed_files,
    managed_remedy,
    mounted_targets,
    object_body,
    other_config_warning,
    read_files,
    require_renewal,
    restored_files,
    target_of_driver,
    target_of_pool,
    token_of,
)
from .diagnosis import (
    CONFIG_PATH,
    DRIVER_POD_SELECTOR,
    PARALLEL,
    TOKEN_PATH,
    LicenseNode,
    LicenseObject,
    NodeState,
    PredictedFiles,
    concerns_all,
    expiry_warning,
    license_nodes,
    node_states,
    parse_driver_pods,
)
from .token import (
    ALLOW_CONFIGMAP_OPTION,
    NODE_NAMES_OPTION,
    RESTORE_OPTION,
    SECRET_NAME_OPTION,
    SHORT,
    TOKEN_OPTION,
    TOKEN_PATH_OPTION,
    GriddOptions,
    LicenseService,
    feature_type_of,
    fingerprint,
    proxy_of,
    servers_of,
    utc_now,
)

if t.TYPE_CHECKING:
    import datetime

    from ..core.module import ArgumentSpec
    from ..core.values import Document, Object
    from ..core.waits import Progress
    from ..kube.client import Client
    from ..pools.plan import Membership, Plan, RolloutPlan
    from .diagnosis import LicenseStatus, Reading
    from .module import LicenseTokenModule
    from .token import TokenInfo

# Reads the nodes that need a license in a cluster, their driver pods, and the objects that contain the token.


class LicenseCluster:
    """The licensing state of one cluster. Each list is read at most once."""

    def __init__(self, client: Client, plan: Plan, policy: Object | None) -> None:
        """`plan` is adapted to the operator's namespace; `policy` is the active ClusterPolicy."""
        self._client = client
        self._plan = plan
        self.policy = policy
        self.namespace = plan.operator.namespace

    @functools.cached_property
    def drivers(self) -> list[Object]:
        """The NVIDIADriver objects if they describe the driver; otherwise empty."""
        spec = (self.policy or {}).get("spec") or {}
        return list(self._client.list_known(NVIDIA_DRIVERS)) if uses_driver_objects(spec) else []

    @functools.cached_property
    def nodes(self) -> list[Node]:
        """All nodes."""
        return [parse_node(node) for node in self._client.list(NODES)]

    @functools.cached_property
    def membership(self) -> Membership:
        """The nodes of each pool."""
        return assign_pools(self._plan.pools, self.nodes)

    def license_nodes(self) -> list[LicenseNode]:
        """The nodes that need a license, with their current driver pods."""
        path = collection_path("v1", "Pod", self.namespace)
        pods = parse_driver_pods(self._client.list(path, label_selector=DRIVER_POD_SELECTOR, field_selector=LIVE_PODS))
        return license_nodes(self._plan, self.nodes, self.membership, pods)

    def selected_nodes(self, names: t.Collection[str]) -> list[LicenseNode]:
        """The license nodes with these names, or all license nodes if `names` is empty. Raises InvalidOptions if a name is not that of a license node."""
        nodes = self.license_nodes()
        if unknown := sorted(set(names) - {node.name for node in nodes}):
            raise InvalidOptions([f"{NODE_NAMES_OPTION}: {abbreviate(unknown)} is not a vGPU node of this cluster"])
        return [node for node in nodes if not names or node.name in names]

    def unfinished_restarts(self) -> dict[str, str]:
        """The driver pods whose restart a run has begun but not completed, by node."""
        return {node.name: pod for node in self.nodes if (pod := driver_pod_to_restart(node)) is not None}

    def rollouts(self) -> dict[str, RolloutPlan]:
        """The drain settings of each node: those of its pool or, if the node is not in a pool, those that are recorded on the node."""
        of_pools = {pool.name: pool.rollout for pool in self._plan.pools}
        declared = {name: of_pools[pool] for pool, names in self.membership.by_pool.items() for name in names}
        return {node.name: declared.get(node.name) or recorded_rollout(node) for node in self.nodes}

    @functools.cached_property
    def has_vgpu(self) -> bool:
        """Whether the cluster has nodes that need a license, or will have such nodes later."""
        return declares_vgpu(self._plan, self.policy, self.drivers) or bool(self._vgpu_nodes)

    @functools.cached_property
    def _vgpu_nodes(self) -> list[LicenseNode]:
        return license_nodes(self._plan, self.nodes, self.membership, {})

    def series(self, target: LicenseTarget, *, ask_drivers: bool = False) -> set[str]:
        """The series of the vGPU types on the nodes whose driver pods mount the object, from labels and from the pools' variables. With `ask_drivers`,
        also from `nvidia-smi -q` on the nodes whose labels do not show their series.
        """
        nodes = [node for node in self._vgpu_nodes if self._may_mount(node, target)]
        kinds = {series_of(node.vgpu_type) for node in nodes}
        kinds |= {series_of(text) for text in declared_vgpu_types(self._plan, target.pools)}
        if ask_drivers and (unknown := {node.name for node in nodes if series_of(node.vgpu_type) is None}):
            kinds |= {
                series_of(status.vgpu_type)
                for status in self._statuses([node for node in self.license_nodes() if node.name in unknown])
            }
        return {kind for kind in kinds if kind}

    def _statuses(self, nodes: t.Iterable[LicenseNode]) -> list[LicenseStatus]:
        """The license states that drivers report; those that cannot be read are left out."""
        containers = LicenseContainers(self._client)
        calls = [(node.name, functools.partial(containers.status, pod)) for node in nodes if (pod := node.running_pod)]
        outcomes = run_bounded(calls, PARALLEL, fatal=concerns_all)
        return [outcome.value for outcome in outcomes if outcome.value is not None]

    def _may_mount(self, node: LicenseNode, target: LicenseTarget) -> bool:
        if target.pools:
            return node.pool in target.pools
        if not self.drivers:
            return True
        mounted = self._mounted_on(node)
        return mounted is not None and mounted.is_same_object(target)

    @functools.cached_property
    def _drivers_of_nodes(self) -> dict[str, list[Object]]:
        """The NVIDIADrivers that select each node."""
        if not self.drivers:
            return {}
        by_name = {item["metadata"]["name"]: item for item in self.drivers}
        names = driver_of_nodes(self.drivers, [(node.name, node.labels) for node in self.nodes])
        return {node: [by_name[name] for name in selecting] for node, selecting in names.items()}

    def _mounted_on(self, node: LicenseNode) -> LicenseTarget | None:
        """The object that the driver pod of a node mounts. If exactly one NVIDIADriver selects the node, this is the object that the NVIDIADriver refers to;
        otherwise, it is the pool's object or the only object.
        """
        drivers = self._drivers_of_nodes.get(node.name, ())
        if len(drivers) != 1:
            return target_of_pool(self.mounted, node.pool)
        own = target_of_driver(drivers[0])
        return next((each for each in self.mounted if own is not None and each.is_same_object(own)), None)

    def nodes_without_token(self) -> dict[str, list[str]]:
        """The nodes whose NVIDIADriver does not determine an object, by reason. A managed NVIDIADriver may lack the object's name, which is set once the
        object exists.
        """
        reasons: dict[str, list[str]] = {}
        for node in self._vgpu_nodes:
            drivers = self._drivers_of_nodes.get(node.name, ())
            if len(drivers) > 1:
                reasons.setdefault("several NVIDIADrivers select the same node", []).append(node.name)
            elif drivers and target_of_driver(drivers[0]) is None and not is_managed_driver(drivers[0]):
                reasons.setdefault("the NVIDIADriver that selects the node does not name one", []).append(node.name)
        return reasons

    @functools.cached_property
    def mounted(self) -> list[LicenseTarget]:
        """The objects that NVIDIADrivers and the ClusterPolicy refer to."""
        return mounted_targets(self.policy, self.drivers)

    @property
    def no_object_text(self) -> str:
        """Why no driver pod mounts an object, as sentences with the remedy."""
        return NO_OBJECT if self.policy is not None else NO_OPERATOR

    @functools.cached_property
    def expected(self) -> dict[LicenseTarget, LicenseObject]:
        """The content of each mounted object; the content of a Secret is unknown if the user is not allowed to read it."""
        return {target: self._expected(target) for target in self.mounted}

    def expected_of(self, node: LicenseNode) -> LicenseObject | None:
        """The files that a node should use; None if no object is mounted there."""
        target = self._mounted_on(node)
        return self.expected[target] if target is not None else None

    def expect(self, changes: t.Iterable[LicenseObjectChange]) -> list[LicenseNode]:
        """Expect the desired files of these changes, before they are written; returns the license nodes whose driver pods mount these objects."""
        desired = {(change.target.kind, change.target.name): change.desired for change in changes}
        mounted = {target: desired.get((target.kind, target.name)) for target in self.mounted}
        self.expected = {
            target: LicenseObject(target, self.namespace, files.files, files.token)
            if files is not None
            else self.expected[target]
            for target, files in mounted.items()
        }
        return [
            node
            for node in self.license_nodes()
            if (target := self._mounted_on(node)) is not None and mounted[target] is not None
        ]

    def mount_problem(self, nodes: t.Iterable[LicenseNode], target: LicenseTarget, digests: t.Mapping[str, str]) -> str:
        """A sentence that lists the nodes of the target's pools whose driver pods mount a different object with different files; empty if there are none."""
        names = [
            node.name
            for node in nodes
            if node.pod is not None and node.pool in target.pools and self._has_other_files(node, target, digests)
        ]
        if not names:
            return ""
        return (
            f"The driver pods on {abbreviate_nodes(names)} do not mount {target.label(self.namespace)}. They will mount it after the playbook site has added "
            "it to the NVIDIADriver of the pool."
        )

    def _has_other_files(self, node: LicenseNode, target: LicenseTarget, digests: t.Mapping[str, str]) -> bool:
        expected = self.expected_of(node)
        if expected is None or expected.target.is_same_object(target):
            return False
        return not expected.readable or expected.files.digests() != digests

    def mount_problems(self, nodes: t.Sequence[LicenseNode]) -> list[str]:
        """The non-empty sentences that mount_problem() returns for the Secrets that pools declare."""
        texts = []
        for target in declared_targets(self._plan):
            known = next((each for each in self.expected.values() if each.target.is_same_object(target)), None)
            files = (known or self._expected(target)).files
            texts.append(self.mount_problem(nodes, target, files.digests()))
        return [text for text in texts if text]

    def predict(self, provided: t.Mapping[str, t.Any]) -> None:
        """In check mode, expect the files that the module `license` would write; `provided` is the result of that module."""
        by_identity = {(item["kind"], item["name"]): item for item in provided["objects"]}
        if provided["policy"] and not provided["held_back"]:
            self.mounted = [LicenseTarget(kind, name) for kind, name in by_identity]
        self.expected = {
            target: self._predicted(target, by_identity[target.kind, target.name])
            if (target.kind, target.name) in by_identity
            else self.expected[target]
            for target in self.mounted
        }

    def _predicted(self, target: LicenseTarget, item: t.Mapping[str, t.Any]) -> LicenseObject:
        paths = {LICENSE_TOKEN_KEY: TOKEN_PATH, LICENSE_CONFIG_KEY: CONFIG_PATH}
        fingerprints = {paths[key]: digest for key, digest in item["digests"].items()}
        servers = servers_of(LicenseService(**service) for service in item["services"])
        predicted = PredictedFiles(fingerprints, servers, item["proxy"], item["feature_type"])
        return LicenseObject(target, self.namespace, LicenseFiles(), predicted=predicted)

    def _expected(self, target: LicenseTarget) -> LicenseObject:
        try:
            live = self.read(target)
        except ApiError as error:
            if not error.forbidden:
                raise
            return LicenseObject(target, self.namespace, LicenseFiles(), readable=False)
        try:
            files = read_files(target, live, self.namespace)
        except InvalidOptions:
            files = LicenseFiles()
        return LicenseObject(target, self.namespace, files, token_of(files))

    def read(self, target: LicenseTarget) -> Object | None:
        """The object; None if it does not exist."""
        return self._client.get(object_path("v1", target.kind, target.name, self.namespace))


# Compares and writes the objects that contain the licensing files.


@dataclass(frozen=True)
class LicenseOptions:
    """The user's options: the token, the parameters of gridd.conf, and the series of vGPU types that no node has yet."""

    token: str | None
    gridd: GriddOptions
    # Whether the token may replace a newer one, or one for another license server.
    replace: bool = False
    series: frozenset[str] = frozenset()
    # Whether objects get their previous files back, instead of a token.
    restore: bool = False


@dataclass(frozen=True)
class LicenseObjectChange:
    """One object with its actual and its desired state. `body` is the body of the request; None if no request is needed."""

    target: LicenseTarget
    live: Object | None
    before: LicenseFiles
    desired: DesiredFiles
    body: Object | None
    # The ConfigMap from which the files were copied.
    migrated_from: LicenseTarget | None = None
    # The ConfigMap that this Secret replaces; None if it contains no token.
    former: LicenseTarget | None = None
    # The tool that manages the object; if it is set, the object is not changed.
    managed_by: str = ""
    # The files that the object keeps beside the desired ones.
    previous: LicenseFiles | None = None

    @property
    def action(self) -> str:
        """The action: created, updated or unchanged."""
        if self.body is None:
            return "unchanged"
        return "created" if self.live is None else "updated"

    def summary(self, namespace: str, now: datetime.datetime) -> dict[str, t.Any]:
        """The object in the format that the module returns."""
        token = self.desired.token.as_dict(now)
        origin = self.migrated_from
        return {
            "kind": self.target.kind,
            "name": self.target.name,
            "namespace": namespace,
            "action": self.action,
            "pools": list(self.target.pools),
            "feature_type": feature_type_of(self.desired.files.config_text),
            "proxy": proxy_of(self.desired.files.config_text),
            "digests": self.desired.files.digests(),
            "managed_by": self.managed_by,
            "previous": fingerprint(self.previous.token)[:SHORT] if self.previous and self.previous.token else "",
            "migrated_from": origin.label(namespace) if origin is not None else "",
            **{
                name: token[name]
                for name in ("fingerprint", "expires", "not_before", "days_left", "server_type", "services")
            },
        }


class LicenseObjects:
    """The objects that contain the licensing files of one cluster."""

    def __init__(self, client: Client, cluster: LicenseCluster, options: LicenseOptions) -> None:
        """Store the arguments; no request is sent yet."""
        self._client = client
        self._cluster = cluster
        self._options = options
        # The names of the objects whose files some node could not use yet. The files that they have kept stay in place.
        self.unverified: set[str] = set()

    def select(self, targets: list[LicenseTarget], name: str | None) -> list[LicenseTarget]:
        """The objects to compare. If the user has provided a token, `name` selects one of several objects. Raises InvalidOptions if no object has this name
        or, without a name, if the token may not fit all objects.
        """
        if self._options.token is None or len(targets) == 1:
            return targets
        labels = join_words([target.label_with_pools(self._cluster.namespace) for target in targets])
        if name:
            if chosen := [target for target in targets if target.name == name]:
                return chosen
            raise InvalidOptions(
                [f"{SECRET_NAME_OPTION}: no driver pod mounts {quote(name)}; the driver pods mount {labels}"]
            )
        tokens = [token for target in targets if (token := self._replaceable_token(target)) is not None]
        if any(one.other_licenses_than(other) for one, other in itertools.combinations(tokens, 2)):
            raise InvalidOptions(
                [
                    f"{labels} contain different tokens, but only one token was provided. Set {SECRET_NAME_OPTION} to the name of the Secret that it is for."
                ]
            )
        return targets

    def require_secrets(self, targets: t.Iterable[LicenseTarget], version: str) -> None:
        """Raise InvalidOptions if a ConfigMap would get the token without explicit permission. An existing token may stay in a ConfigMap that is in use."""
        cluster = self._cluster
        named = [each for each in (live_target(cluster.policy), *cluster.mounted) if each is not None]
        for target in targets:
            in_use = self._options.token is None and any(target.is_same_object(each) for each in named)
            if target.kind == CONFIG_MAP and not in_use:
                label = target.label(cluster.namespace)
                remedy = (
                    f"The driver mounts {label}, which more users can read than a Secret. Set driver.licensing_secret of the pool"
                    if has_secret_name(version)
                    else f"GPU operator {version} can mount the token only from {label}, which more users can read than a Secret. Upgrade the operator to "
                    "v25.10 or later"
                )
                raise InvalidOptions(
                    [f"{remedy}, or set {ALLOW_CONFIGMAP_OPTION} to write the token into the ConfigMap anyway."]
                )

    def _replaceable_token(self, target: LicenseTarget) -> TokenInfo | None:
        """The token in an object that is not managed by another tool; None if there is no valid token."""
        live = self._cluster.read(target)
        if live is None or manager_of(live, target.kind):
            return None
        return token_of(read_files(target, live, self._cluster.namespace))

    def compare(self, target: LicenseTarget) -> LicenseObjectChange:
        """The change to one object; raises InvalidOptions if nodes would get no license from it."""
        namespace = self._cluster.namespace
        live = self._cluster.read(target)
        before = read_files(target, live, namespace)
        options = self._options
        series = self._series(target, before)
        origin = self._migration_source(target)
        former = self._former(target, origin)
        if live is not None and (manager := manager_of(live, target.kind)):
            kept = managed_files(target, before, options.token, options.gridd, series, namespace, manager)
            return LicenseObjectChange(target, live, before, kept, None, former=former, managed_by=manager)
        mounted = read_files(origin, self._cluster.read(origin), namespace) if origin is not None else LicenseFiles()
        known = before.completed_by(mounted)
        exists = live is not None or known.token is not None
        if options.restore and before.previous is not None:
            desired = restored_files(target, before, before.previous, series, namespace)
            body = object_body(target, namespace, live, before, desired.files)
            return LicenseObjectChange(target, live, before, desired, body, former=former)
        desired = desired_files(target, known, options.token, options.gridd, series, namespace, exists=exists)
        if options.token is not None and not options.replace:
            require_renewal(target, known, desired, namespace)
        if origin is not None and origin in self._cluster.mounted and not target.pools:
            # An earlier run may have created the Secret, and the ConfigMap may have been changed since. If the Secret contains a token for another
            # license server, that token was put there on purpose.
            if not options.replace:
                require_renewal(origin, mounted, desired, namespace, given=options.token is not None)
            if text := other_config_warning(target, desired.files, origin, mounted, namespace):
                desired = replace(desired, warnings=(*desired.warnings, text))
        previous = kept_files(before, desired.files, verified=target.name not in self.unverified)
        body = object_body(target, namespace, live, before, desired.files, previous)
        copied = origin if known != before else None
        return LicenseObjectChange(target, live, before, desired, body, copied, former, previous=previous)

    def _series(self, target: LicenseTarget, before: LicenseFiles) -> set[str]:
        """The series of the vGPU types that use the object. Drivers are asked only if the labels do not show every series and FeatureType requests one
        product: any other FeatureType fits all series.
        """
        requested = self._options.gridd.feature_type
        if requested is None:
            requested = feature_type_of(before.config_text)
        ask = requested not in (None, AUTOMATIC)
        return self._cluster.series(target, ask_drivers=ask) | self._options.series

    def _migration_source(self, target: LicenseTarget) -> LicenseTarget | None:
        """The ConfigMap that the ClusterPolicy refers to instead of this Secret."""
        live = live_target(self._cluster.policy)
        return live if live is not None and live.kind == CONFIG_MAP and live != target else None

    def _former(self, target: LicenseTarget, origin: LicenseTarget | None) -> LicenseTarget | None:
        """The ConfigMap that a Secret replaces: the one still in use, or one of the same name that an earlier run has copied; None if it contains no token."""
        former = origin or LicenseTarget(CONFIG_MAP, target.name)
        if target.kind == CONFIG_MAP:
            return None
        try:
            live = self._cluster.read(former)
        except ApiError as error:
            if not error.forbidden:
                raise
            return None
        return former if read_files(former, live, self._cluster.namespace).token is not None else None

    def write(self, change: LicenseObjectChange, *, check: bool) -> str | None:
        """Create or patch the object; after a conflict, compare it again. If check mode cannot validate the change, returns the reason."""

        def send(body: Object) -> None:
            metadata = body["metadata"]
            if "resourceVersion" in metadata:
                path = object_path("v1", change.target.kind, metadata["name"], metadata["namespace"])
                self._client.patch(path, body, dry_run=check)
            else:
                path = collection_path("v1", change.target.kind, metadata["namespace"])
                self._client.create(path, body, dry_run=check)

        body = change.body
        if body is None:
            return None
        return write_or_dry_run(
            lambda: retry_conflicts(send, body, lambda: self.compare(change.target).body), check=check
        )


def shown_changes(changes: t.Iterable[LicenseObjectChange], namespace: str) -> tuple[Object, Object]:
    """The content of the objects that change, before and after, for a diff."""
    before: Object = {}
    after: Object = {}
    for change in changes:
        if change.body is not None:
            label = change.target.label(namespace)
            before |= {label: _shown(change.before, change.before.previous)} if change.live is not None else {}
            after[label] = _shown(change.desired.files, change.previous)
    return before, after


def _shown(files: LicenseFiles, previous: LicenseFiles | None) -> Object:
    return {**files.shown(), **({"previous": previous.shown()} if previous is not None else {})}


def require_valid(changes: t.Iterable[LicenseObjectChange], namespace: str) -> None:
    """Raise InvalidOptions if the driver pods would get a token that clients do not accept now."""
    problems = [
        f"The token in {change.target.label(namespace)} {problem.reason}. "
        + (
            managed_remedy(change.target, namespace, change.managed_by)
            if change.managed_by
            else problem.remedy_with(f"set {TOKEN_OPTION} or {TOKEN_PATH_OPTION}")
        )
        for change in changes
        if (problem := change.desired.token.problem(utc_now()))
    ]
    if problems:
        raise InvalidOptions(problems)


# Builds the warnings about the objects that contain the licensing files, and about nodes whose driver pods do not mount these objects.


def object_warnings(
    cluster: LicenseCluster, changes: t.Sequence[LicenseObjectChange], *, min_days: int, given: bool
) -> t.Iterator[str]:
    """Return all warnings; call this function only after the objects have been written. `given` shows whether the user has provided the token."""
    namespace = cluster.namespace
    written = [change.target.label_with_pools(namespace) for change in changes if not change.managed_by]
    if len(written) > 1 and given and any(change.action == "created" for change in changes):
        yield (
            f"{join_words(written)} contain the same token. If one of them needs a different token, run the playbook with that token, and set "
            f"{SECRET_NAME_OPTION} to the name of that object."
        )
    for change in changes:
        label = change.target.label(namespace)
        yield from change.desired.warnings
        for text in change.desired.token.warnings:
            yield f"The token in {label}: {text}."
        expected = LicenseObject(change.target, namespace, change.desired.files, change.desired.token)
        if text := expiry_warning(expected, utc_now(), min_days):
            yield text
        if change.former is not None and not any(change.former.is_same_object(each.target) for each in changes):
            yield (
                f"{label} replaces {change.former.label(namespace)}, which still contains a token. Delete it once the driver has restarted on every node."
            )
    yield from _node_warnings(cluster, changes)


def _node_warnings(cluster: LicenseCluster, changes: t.Iterable[LicenseObjectChange]) -> t.Iterator[str]:
    for reason, names in cluster.nodes_without_token().items():
        yield f"No licensing Secret is assigned to {abbreviate_nodes(names)}: {reason}."
    declared = [change for change in changes if change.target.pools]
    nodes = cluster.license_nodes() if declared else []
    for change in declared:
        if text := cluster.mount_problem(nodes, change.target, change.desired.files.digests()):
            yield text


# Reads the license states of a cluster's current nodes, repeatedly while a run waits.

if t.TYPE_CHECKING:

    class ReadAll(t.Protocol):
        """A function that reads nodes."""

        def __call__(self, nodes: t.Sequence[LicenseNode], *, on_done: t.Callable[[int], None]) -> dict[str, Reading]:
            """Return the readings by name; `on_done` is called with the number of nodes that were read."""


class LicenseVerification:
    """The license states of all nodes. Each read lists the nodes and pods once, and reads the state only of nodes where it may have changed."""

    def __init__(
        self,
        cluster: t.Callable[[], LicenseCluster],
        read_all: ReadAll,
        progress: Progress,
    ) -> None:
        """Store the arguments; no request is sent yet. `cluster` returns a new LicenseCluster, from which nothing has been read yet, and `read_all`
        returns the readings of nodes.
        """
        self._new_cluster = cluster
        self._read_all = read_all
        self._progress = progress
        self._readings: dict[str, Reading] = {}
        self.cluster = cluster()
        self.states: list[NodeState] = []

    def read(self) -> list[NodeState]:
        """The current nodes with their states; nodes with a problem come first."""
        cluster = self._new_cluster()
        nodes = cluster.license_nodes()
        known = {state.node.name: state for state in self.states}
        pending = [node for node in nodes if _is_outdated(known.get(node.name), node)]
        self._readings |= self._read_all(
            pending,
            on_done=lambda count: self._progress.report("reading the licenses of nodes", count, len(pending)),
        )
        self.cluster = cluster
        return self._evaluate(nodes)

    def check_services(self, containers: LicenseContainers) -> list[NodeState]:
        """Check the license servers from the nodes that need a license now, but have none; returns the states of all nodes."""
        unlicensed = [state.node for state in self.states if state.is_missing and state.reading.is_unlicensed]
        for name, services in containers.check_all(unlicensed, self.cluster.expected_of).items():
            self._readings[name] = replace(self._readings[name], services=services)
        return self._evaluate([state.node for state in self.states])

    def _evaluate(self, nodes: t.Iterable[LicenseNode]) -> list[NodeState]:
        self.states = node_states(nodes, self._readings, self.cluster.expected_of, utc_now())
        return self.states


def _is_outdated(known: NodeState | None, node: LicenseNode) -> bool:
    """Whether a node must be read, for the first time or again: the node has no license but needs one, or its driver pod has changed, for example because
    the node was replaced.
    """
    if known is None or known.node.pod != node.pod:
        return True
    return not known.reading.is_licensed and not node.not_required


# Parses the options of the module `license`.

# The options of the modules that rotate nodes.
ROTATION_OPTIONS: ArgumentSpec = {
    "preflight": {"type": "bool", "default": True},
    "restart_drivers": {"type": "bool", "default": False},
    "restart_timeout": {"type": "int", "default": 1200},
    "wait_timeout": {"type": "int", "default": 300},
    "wait_sleep": {"type": "int", "default": 1},
}


def license_options(module: LicenseTokenModule, names: t.Iterable[str]) -> LicenseOptions:
    """The parsed options. Raises InvalidOptions with all problems, before the cluster is read. `names` lists the options that must not contain a token."""
    params = module.params
    module.refuse_tokens_in(names)
    gridd = GriddOptions.from_params(params)
    problems = gridd.problems()
    if params["secret_name"] and object_name(params["secret_name"]):
        problems.append(f"secret_name: {quote(params['secret_name'])} is not the name of a Secret")
    kinds = {name: series_of(name) for name in params["vgpu_types"]}
    problems += [
        f"vgpu_types: {quote(name)} is not a vGPU type; use a name such as A100-10C"
        for name, kind in kinds.items()
        if not kind
    ]
    token = None
    try:
        token, info = module.license_token, module.license_token_info
        if info is not None and (problem := info.problem(utc_now())) is not None:
            problems.append(f"{module.token_source}: the token {problem.reason}. {problem.remedy}.")
    except InvalidOptions as error:
        problems += error.problems
    if params["restore"] and not params["rotate"]:
        problems.append(f"{RESTORE_OPTION}: requires rotate, because running drivers must load the restored files")
    if problems:
        raise InvalidOptions(problems)
    series = frozenset(kind for kind in kinds.values() if kind)
    return LicenseOptions(None if params["restore"] else token, gridd, params["replace"], series, params["restore"])


# Formats the licensing states of several clusters as text for a terminal (pure).


@dataclass(frozen=True)
class ClusterReport:
    """One cluster: its name, and the results of license_info and license_server_info, either of which may have failed."""

    name: str
    result: Document

    @property
    def info(self) -> Document | None:
        """The result of license_info; None if the cluster could not be read."""
        result = self.result.get("license_info")
        return result if isinstance(result, dict) else None

    @property
    def objects(self) -> t.Sequence[Document]:
        """The objects that contain the tokens."""
        return (self.info or {}).get("objects") or ()

    @property
    def servers(self) -> Document:
        """The licenses and leases of the organization; empty if they were not read."""
        return self.result.get("license_servers") or {}

    @property
    def days_left(self) -> int | None:
        """Whole days until the first token expires; None if no token expires."""
        return (self.info or {}).get("days_left")

    @property
    def first_expiry(self) -> str:
        """The day on which the first token expires; empty if no token expires."""
        return min((item["expires"][:10] for item in self.objects if item.get("expires")), default="")

    @property
    def hosts(self) -> list[str]:
        """The license servers of all tokens."""
        return list(dict.fromkeys(each["host"] for item in self.objects for each in item.get("services") or ()))

    def count(self, state: str) -> int | None:
        """The number of nodes in a state; None if the cluster could not be read."""
        return None if self.info is None else int((self.info.get("counts") or {}).get(state) or 0)

    @property
    def problems(self) -> list[str]:
        """The reasons for an alarm in a monitoring system, as sentences; empty if there are none."""
        if self.info is None:
            return [f"The cluster could not be read: {self.result.get('msg') or 'unknown error'}"]
        nodes, licensed, not_required = (self.count(state) or 0 for state in ("nodes", "licensed", "not_required"))
        problems = list(self.info.get("problems") or ())
        if failure := self.result.get("license_servers_failure"):
            problems.append(f"The license servers could not be read: {failure}")
        if nodes > licensed + not_required:
            # The result does not name the product that the unlicensed nodes need.
            exhausted = [each for each in self.servers.get("products") or () if each["total"] and each["free"] <= 0]
            problems += [
                f"All {each['total']} licenses of {each['name']} in the license pools are in use." for each in exhausted
            ]
        return problems

    @property
    def texts(self) -> list[str]:
        """The problems and the warnings of license_info, without duplicates."""
        return list(dict.fromkeys([*self.problems, *((self.info or {}).get("warnings") or ())]))


def report_problems(result: Document) -> list[str]:
    """The reasons for an alarm about a cluster in a monitoring system, as sentences; empty if there are none."""
    return ClusterReport("", result).problems


def report_lines(results: t.Mapping[str, Document], width: int = WIDTH) -> list[str]:
    """One table with a line for each cluster, followed by the problems of each cluster.

    If the licenses and leases of the license servers were read, the table has columns for them. Several clusters may share these licenses.
    """
    reports = [ClusterReport(name, result) for name, result in sorted(results.items())]
    servers = _SERVER_COLUMNS if any(report.servers for report in reports) else ()
    columns = (*_NODE_COLUMNS, *servers, *_TOKEN_COLUMNS)
    lines = table(columns, reports, width)
    for report in reports:
        if texts := report.texts:
            lines += ["", *wrap([(report.name, text) for text in texts], width)]
    return lines


def _column(
    head: str, value: t.Callable[[ClusterReport], t.Any], *, number: bool = False, cuts: bool = False
) -> Column:
    """A column that shows a dash for a value that could not be read or does not exist."""

    def shown(report: ClusterReport) -> t.Any:
        text = value(report)
        return "-" if text is None or text == "" else text

    return Column(head, shown, number, cuts)


_NODE_COLUMNS = (
    _column("CLUSTER", lambda report: report.name, cuts=True),
    _column("NODES", lambda report: report.count("nodes"), number=True),
    _column("LICENSED", lambda report: report.count("licensed"), number=True),
    _column("UNLICENSED", lambda report: report.count("unlicensed"), number=True),
    _column("UNKNOWN", lambda report: report.count("unknown"), number=True),
    _column("OUTDATED", lambda report: report.count("outdated"), number=True),
)
_SERVER_COLUMNS = (
    _column("LICENSES", lambda report: report.servers.get("total"), number=True),
    _column("LEASES", lambda report: report.servers.get("leases"), number=True),
)
_TOKEN_COLUMNS = (
    _column("TOKEN EXPIRES", lambda report: report.first_expiry),
    _column("DAYS LEFT", lambda report: report.days_left, number=True),
    _column("LICENSE SERVER", lambda report: ", ".join(report.hosts), cuts=True),
)
