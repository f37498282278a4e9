# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of the node group modules: drains, options of all providers, fields."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass, field

from ..catalog.taints import TAINT_EFFECTS
from ..core.errors import InvalidOptions
from ..core.messages import join_words
from ..core.module import CONFIRM, ArgumentSpec
from ..core.types import Anything, Boolean, Field, Integer, ListOf, MapOf, Rule, Section, Text
from ..core.values import Object, get_nested, set_nested
from ..kube.connection_options import CONNECTION
from ..kube.errors import ApiError
from ..kube.module import LEASE_OPTIONS, ClusterModule, shown_options
from ..nodes.drain import PARALLEL, NodeDrainer, NodeRemoval, SharedLease, progress_by_node
from ..schema import validators
from ..schema.providers import MAX_NODE_COUNT, MIN_NODE_COUNT, NODE_COUNT, NODE_LABELS, NODE_TAINTS
from ..schema.validators import DrainOptions
from .reconciler import INVALID_GROUPS, ReconcileOptions, reconcile
from .spec import label_map, label_text, merge_field, taint_list, taint_map

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from ..schema.providers import ProviderDefinition
    from .reconciler import NodeGroupProvider
    from .spec import NodeGroupSpec, NodeGroupState

# Base classes of modules that drain nodes before they delete machines, with the options of the drain.

DRAIN: ArgumentSpec = {
    "drain": {
        "type": "dict",
        "default": {},
        "options": {**DrainOptions.argument_spec(), "parallel": {"type": "int", "default": PARALLEL}},
    },
}
KUBERNETES: ArgumentSpec = {"kubernetes": {"type": "dict", "options": {**CONNECTION, **LEASE_OPTIONS, **DRAIN}}}


class NodeDrainingModule(ClusterModule):
    """Base of modules that drain nodes. Provides a drainer, whose options (DRAIN) are at the same level as the connection options."""

    @functools.cached_property
    def drainer(self) -> NodeDrainer | None:
        """The drainer; None in subclasses if the options do not request draining."""
        return self.make_drainer(self.client)

    def make_drainer(self, client: Client) -> NodeDrainer:
        """The drainer for the cluster of this client."""
        drain = dict(self.kube_params["drain"])
        parallel = drain.pop("parallel")
        lease, removal = SharedLease(self.lease), self.node_removal(client)
        report = progress_by_node(self.progress)
        return NodeDrainer(client, DrainOptions(**drain), lease, report, parallel=parallel, removal=removal)

    def node_removal(self, client: Client) -> NodeRemoval:
        """The additional work on drained nodes before their machines are removed; none unless a subclass overrides this."""
        return NodeRemoval()


class DrainingModule(NodeDrainingModule):
    """Base of cloud modules that drain nodes before their machines are deleted; the argument spec contains KUBERNETES."""

    records_name = False

    @property
    def kube_params(self) -> dict[str, t.Any]:
        """The option `kubernetes`; empty if it is not set."""
        return self.params.get("kubernetes") or {}

    def name_to_confirm(self) -> str:
        """The name in the option `kubernetes.gpu_cluster`; without it, the cloud's name or ID of the cluster in the option `cluster`."""
        return str((self.kube_params.get("gpu_cluster") or {}).get("name") or self.params["cluster"])

    def shown_params(self) -> dict[str, t.Any]:
        """The parameters to show, with the kubeconfig in the option `kubernetes` hidden."""
        shown = super().shown_params()
        if isinstance(shown.get("kubernetes"), dict):
            shown["kubernetes"] = shown_options(shown["kubernetes"])
        return shown

    @functools.cached_property
    def drainer(self) -> NodeDrainer | None:
        """The drainer for the cluster in the option `kubernetes`; None without this option."""
        if self.params["kubernetes"] is None:
            return None
        try:
            client = self.client
        except ApiError as error:
            # A cluster that does not respond yet may still get nodes; lease() verifies the cluster before a node is
            # drained.
            if not error.unreachable or self._client is None:
                raise
            client = self._client
        return self.make_drainer(client)


# Defines the format of the tables that describe the settings of node groups (pure).
#
# Each provider has one table, from which all other code derives the settings. An entry defines the module's option, the checks, the request bodies,
# the result, the differences, and whether a change replaces the group. If a pool's `nodes` has the same setting, schema/providers.py contains the type
# of the setting. The settings of a MachineSet are values in an object and not fields of requests, so clouds/machinesets.py reads and writes
# these settings.

STATES = ["present", "absent"]
_TAINT: dict[str, dict[str, t.Any]] = {
    "key": {"type": "str", "required": True, "no_log": False},
    "value": {"type": "str"},
    "effect": {"type": "str", "choices": list(TAINT_EFFECTS), "required": True},
    "state": {"type": "str", "choices": STATES, "default": "present"},
}


def _unchanged(value: t.Any) -> t.Any:
    return value


@dataclass(frozen=True)
class NodeGroupField:
    """One setting of a node group.

    name: the name of the module's option, which results and differences also use.
    api: the path in requests, with keys separated by dots, such as labels.boot_volume_type for one of Magnum's labels.
    api_answer: the path in responses, if it differs from `api`.
    request: the method and the path of the request that changes the setting, or None if a change replaces the group. The path is relative to the
    path of the group.
    type: the type of the values, with its rules. If it is None, the type of the same setting in a pool's `nodes` is used.
    since: the first API version that has this setting, if the module also supports older versions.
    default: the value that a new group gets if the setting is not declared.
    option: attributes of the option that are not derived from the type.
    check: a function that yields the problems in the option's value. It is used instead of the rules of the type.
    normalize: a function that converts the value of the option to a normalized form for comparison.
    decode: a function that converts a value from the API to the same normalized form.
    encode: a function that converts a normalized value to the form that the API expects.
    """

    name: str
    api: str
    request: tuple[str, str] | None = None
    type: Field | None = None
    default: t.Any = None
    option: t.Mapping[str, t.Any] = field(default_factory=dict)
    check: t.Callable[[t.Any], t.Iterator[str]] | None = None
    normalize: t.Callable[[t.Any], t.Any] = _unchanged
    decode: t.Callable[[t.Any], t.Any] = _unchanged
    encode: t.Callable[[t.Any], t.Any] = _unchanged
    api_answer: str = ""
    since: tuple[int, int] | None = None


def node_labels_field(
    api: str, request: tuple[str, str], *key_rules: Rule, since: tuple[int, int] | None = None
) -> NodeGroupField:
    """The setting for node labels, which is derived from the pool's `labels`. key_rules: additional rules for label keys."""
    return NodeGroupField(
        NODE_LABELS,
        api,
        request,
        MapOf(),
        check=lambda labels: node_label_problems(labels, *key_rules),
        normalize=label_map,
        decode=text_map,
        since=since,
    )


def node_taints_field(
    api: str,
    request: tuple[str, str],
    encode: t.Callable[[t.Any], t.Any] = taint_list,
    since: tuple[int, int] | None = None,
) -> NodeGroupField:
    """The setting for node taints, which is derived from the pool's `taints`. Taints are compared as a map."""
    return NodeGroupField(
        NODE_TAINTS,
        api,
        request,
        ListOf(),
        option={"elements": "dict", "options": _TAINT},
        check=node_taint_problems,
        normalize=taint_map,
        decode=taint_map,
        encode=encode,
        since=since,
    )


def text_map(entries: t.Mapping[str, t.Any] | None) -> dict[str, str]:
    """The labels or tags in a response, with keys and values as strings."""
    return {str(key): str(value) for key, value in (entries or {}).items()}


def node_label_problems(labels: t.Mapping[str, t.Any], *key_rules: Rule) -> t.Iterator[str]:
    """Yields a message for each label key or value that Kubernetes or one of the additional rules for keys does not allow."""
    for key, value in labels.items():
        problem = next((problem for rule in (validators.label_key, *key_rules) if (problem := rule(str(key)))), None)
        if problem:
            yield f"node_labels: {str(key)!r} {problem}"
        if value is not None and (problem := validators.label_value(label_text(value))):
            yield f"node_labels.{key}: {label_text(value)!r} {problem}"


def node_taint_problems(taints: t.Sequence[t.Mapping[str, t.Any]]) -> t.Iterator[str]:
    """Yields a message for each taint key or value that Kubernetes does not allow, and for each repeated taint."""
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        path, key, value = f"node_taints[{index}]", str(taint["key"]), str(taint.get("value") or "")
        if problem := validators.label_key(key):
            yield f"{path}.key: {key!r} {problem.replace('label key', 'taint key')}"
        if problem := validators.label_value(value):
            yield f"{path}.value: {value!r} {problem.replace('label value', 'taint value')}"
        if (key, taint["effect"]) in seen:
            yield f"{path}: repeats key {key} and effect {taint['effect']}; a node can have only one taint with this key and effect, so keep only one of them"
        seen.add((key, taint["effect"]))


# Contains the code that the node group modules of all providers share: options, checks, specs, request bodies, and the call to the reconciler.

Options = t.Mapping[str, t.Any]

_NUMBERS = (NODE_COUNT, MIN_NODE_COUNT, MAX_NODE_COUNT)
# The type of an Ansible option for each type in the schema.
_TYPES: dict[type[Field], str] = {
    Text: "str",
    Integer: "int",
    Boolean: "bool",
    Anything: "dict",
    ListOf: "list",
    Section: "dict",
}


class NodeGroupFields:
    """The settings of a provider's node groups, and the values that are derived from these settings."""

    def __init__(
        self,
        definition: ProviderDefinition,
        fields: t.Sequence[NodeGroupField],
        *,
        creation_options: t.Mapping[str, bool] | None = None,
        aliases: t.Mapping[str, str] | None = None,
        other_options: ArgumentSpec | None = None,
        location_options: t.Mapping[str, t.Any] | None = None,
    ) -> None:
        """Derive the options from the fields.

        creation_options: boolean options that apply only to the request that creates a group, with their defaults. aliases: additional names of
        options. other_options: options of a group that are not settings. location_options: the options that identify the location of the groups,
        which by default is the required option `cluster`.
        """
        self._definition = definition
        self.fields = {field.name: field for field in fields}
        self._types = {field.name: field.type or definition.nodes_fields[field.name] for field in fields}
        self.immutable_fields = frozenset(field.name for field in fields if field.request is None)
        options: ArgumentSpec = {
            **{number: {"type": "int"} for number in _NUMBERS},
            **({"autoscaling": {"type": "bool"}} if definition.autoscaling_option else {}),
            **{field.name: {**_option(self._types[field.name]), **field.option} for field in fields},
            **(other_options or {}),
        }
        for name, alias in (aliases or {}).items():
            options[name]["aliases"] = [alias]
        self._group = options
        self._location = (
            {"cluster": {"type": "str", "required": True}} if location_options is None else location_options
        )
        # An option that is set next to `nodegroups` applies to each group that does not set the same option.
        self._shared: ArgumentSpec = {
            "state": {"type": "str", "choices": STATES, "default": "present"},
            "recreate": {"type": "bool", "default": False},
            **{name: {"type": "bool", "default": default} for name, default in (creation_options or {}).items()},
        }

    @property
    def argument_spec(self) -> ArgumentSpec:
        """The module's options, except those for the connection, waits and drains."""
        shared_of_one = {
            name: {key: value for key, value in option.items() if key != "default"}
            for name, option in self._shared.items()
        }
        return {
            **self._location,
            "name": {"type": "str"},
            **self._group,
            **self._shared,
            "nodegroups": {
                "type": "list",
                "elements": "dict",
                "options": {"name": {"type": "str", "required": True}, **self._group, **shared_of_one},
            },
            "parallel": {"type": "int", "default": 32},
            **CONFIRM,
        }

    @property
    def constraints(self) -> dict[str, t.Any]:
        """The constraints between options, as arguments of AnsibleModule."""
        return {
            "mutually_exclusive": [("nodegroups", option) for option in ("name", *self._group)],
            "required_one_of": [("name", "nodegroups")],
        }

    def declared_groups(self, params: Options) -> list[dict[str, t.Any]]:
        """The options of each declared group."""
        if params["nodegroups"] is None:
            return [{name: params[name] for name in ("name", *self._group, *self._shared)}]
        return [
            {**group, **{name: params[name] if group[name] is None else group[name] for name in self._shared}}
            for group in params["nodegroups"]
        ]

    def changed_by(self, request: tuple[str, str]) -> tuple[str, ...]:
        """The fields that a request changes."""
        return tuple(name for name, field in self.fields.items() if field.request == request)

    def newer_than(self, version: tuple[int, int]) -> tuple[str, ...]:
        """The fields that this version of the API does not support."""
        return tuple(name for name, field in self.fields.items() if field.since and field.since > version)

    def require_sent(self, differing: t.Iterable[str], sent: t.Collection[str]) -> None:
        """Raise an error if no request changes a differing field that is not immutable, because the change would never take place."""
        lost = sorted({*differing} - {*sent} - self.immutable_fields)
        if lost:
            raise NotImplementedError(f"No request changes {', '.join(lost)} of a node group")

    def problems(self, group: Options) -> t.Iterator[str]:
        """Yields the problems in a group's options that can be detected without the cloud."""
        yield from _size_problems(group, self._definition)
        for name, item in self.fields.items():
            if _is_declared(group, name):
                value = group[name]
                yield from item.check(value) if item.check else self._types[name].problems(value, name)

    def spec_arguments(self, group: Options) -> Object:
        """The arguments of a NodeGroupSpec that are derived from the options in the same way for every provider."""
        return {
            "name": group["name"],
            "present": group.get("state") != "absent",
            "count": group.get(NODE_COUNT),
            "min_count": group.get(MIN_NODE_COUNT),
            "max_count": group.get(MAX_NODE_COUNT),
            "recreate": bool(group.get("recreate")),
            "fields": {
                name: field.normalize(group[name]) for name, field in self.fields.items() if _is_declared(group, name)
            },
        }

    def decode(self, row: Object) -> Object:
        """The fields of a group in an API response, converted for comparison."""
        return {
            name: field.decode(get_nested(row, *(field.api_answer or field.api).split(".")))
            for name, field in self.fields.items()
        }

    def encode(self, values: Options) -> Object:
        """The part of a request body that sets these normalized values."""
        body: Object = {}
        # A map is written before the entries of the map that are separate settings, so that it does not overwrite them.
        for name in sorted(values, key=lambda name: self.fields[name].api.count(".")):
            field = self.fields[name]
            value = field.encode(values[name])
            set_nested(body, field.api.split("."), dict(value) if isinstance(value, t.Mapping) else value)
        return body

    def creation_body(self, declared: Options) -> Object:
        """The part of the creation request that sets the declared fields, and the defaults of fields that are not declared."""
        values: Object = {}
        for name, item in self.fields.items():
            value = declared.get(name)
            if isinstance(value, t.Mapping):
                values[name] = merge_field(item.default or {}, value)
            elif value is not None or item.default is not None:
                values[name] = item.default if value is None else value
        return self.encode(values)


def _is_declared(group: Options, name: str) -> bool:
    """Whether an option is declared. As in the variables, an empty string counts as not declared."""
    return group.get(name) not in (None, "")


def _option(kind: Field) -> dict[str, t.Any]:
    """The attributes of an option of this type."""
    option: dict[str, t.Any] = {"type": next(name for known, name in _TYPES.items() if isinstance(kind, known))}
    if isinstance(kind, ListOf):
        option["elements"] = _option(kind.item)["type"]
    if isinstance(kind, Section):
        option["options"] = {name: _option(inner) for name, inner in kind.fields.items()}
    return option


def _size_problems(group: Options, definition: ProviderDefinition) -> t.Iterator[str]:
    """Yields the problems in a group's node count and its limits. The corresponding keys of a pool are checked in schema/pool.py."""
    low, high, count = (group.get(name) for name in (MIN_NODE_COUNT, MAX_NODE_COUNT, NODE_COUNT))
    for option in (NODE_COUNT, MIN_NODE_COUNT):
        if (group.get(option) or 0) < 0:
            yield f"{option} is {group[option]}; it must not be negative"
    if definition.autoscaling_option:
        # If a limit is not declared, the reconciler uses the limit of the existing group.
        if high is not None and high < 1:
            yield f"{MAX_NODE_COUNT} is {high}, which {definition.title} interprets as no limit; set 1 or more, or omit it"
        if group.get("autoscaling") and (low is None or high is None):
            yield f"autoscaling needs {MIN_NODE_COUNT} and {MAX_NODE_COUNT}"
    elif (low is None) != (high is None):
        yield f"{MIN_NODE_COUNT} and {MAX_NODE_COUNT} must be set together"
    elif low is not None and high is not None:
        if low > high:
            yield f"{MIN_NODE_COUNT} ({low}) must not exceed {MAX_NODE_COUNT} ({high})"
        elif high == 0:
            yield f"{MAX_NODE_COUNT} is 0, but an autoscaler needs 1 or more; for no nodes, remove the range and set {NODE_COUNT}: 0"
        elif count is not None and not low <= count <= high:
            yield f"{NODE_COUNT} ({count}) is not between {MIN_NODE_COUNT} ({low}) and {MAX_NODE_COUNT} ({high}); change one of them"


def require_valid(groups: t.Iterable[Options], option_problems: t.Callable[[Options], t.Iterator[str]]) -> None:
    """Raise InvalidOptions with the problems of all groups, if there are any."""
    problems = [f"Node group {group['name']}: {problem}." for group in groups for problem in option_problems(group)]
    if problems:
        raise InvalidOptions(problems, INVALID_GROUPS)


def reconcile_options(params: Options) -> ReconcileOptions:
    """The options for the reconciler in a module's options."""
    return ReconcileOptions(params["wait"], params["wait_timeout"], params["wait_sleep"], max(1, params["parallel"]))


def reconcile_nodegroups(
    module: NodeDrainingModule, provider: NodeGroupProvider, specs: t.Sequence[NodeGroupSpec]
) -> dict[str, t.Any]:
    """Reconcile the groups and return the module's result. If the option `name` is set, the result contains this group as `nodegroup`.

    Raises the same errors as reconcile().
    """
    params = module.params
    try:
        reconciled = reconcile(
            provider,
            specs,
            check_mode=module.check_mode,
            options=reconcile_options(params),
            drainer=module.drainer,
            progress=module.progress,
            confirm_deletion=functools.partial(_confirm_deletion, module),
        )
    except Exception as error:
        _add_single(getattr(error, "partial", None) or {}, params["name"])
        raise
    for text in reconciled.warnings:
        module.warn(text)
    result = reconciled.result()
    _add_single(result, params["name"])
    return result


def _confirm_deletion(module: NodeDrainingModule, groups: t.Sequence[NodeGroupState]) -> None:
    listed = ", ".join(f"{group.name} ({group.count} node{'' if group.count == 1 else 's'})" for group in groups)
    name = module.name_to_confirm()
    unmarked = [group.name for group in groups if not group.marked]
    module.require_confirmation(
        f"This deletes {len(groups)} node group(s){f' of cluster {name}' if name else ''}, with all their nodes: {listed}.",
        f"No mark of this collection shows that it has created or adopted {join_words(unmarked)}." if unmarked else "",
    )


def _add_single(result: dict[str, t.Any], name: str | None) -> None:
    if name is not None and "nodegroups" in result:
        result["nodegroup"] = result["nodegroups"][name]
