# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Contains the code that the node group modules of all providers share: options, checks, specs, request bodies, and the call to the reconciler."""

from __future__ import annotations

import functools
import typing as t

from ..common.errors import InvalidOptions
from ..common.module import CONFIRM
from ..common.nested import get_nested, set_nested
from ..nodegroups.group_changes import merge_field
from ..nodegroups.group_reconciler import ReconcileOptions
from ..nodegroups.reconciler import INVALID_GROUPS, reconcile
from ..pools.nodegroup_names import MAX_NODE_COUNT, MIN_NODE_COUNT, NODE_COUNT
from ..schema.messages import join_words
from ..schema.types import Anything, Boolean, Field, Integer, ListOf, Section, Text
from .fields import STATES, NodeGroupField

if t.TYPE_CHECKING:
    from ..drain.module import NodeDrainingModule
    from ..nodegroups.provider import NodeGroupProvider
    from ..nodegroups.spec import NodeGroupSpec, NodeGroupState
    from ..schema.providers import ProviderDefinition

ArgumentSpec = dict[str, dict[str, t.Any]]
Object = dict[str, t.Any]
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
        for name, field in self.fields.items():
            if _is_declared(group, name):
                value = group[name]
                yield from field.check(value) if field.check else self._types[name].problems(value, name)

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
        for name, field in self.fields.items():
            value = declared.get(name)
            if isinstance(value, t.Mapping):
                values[name] = merge_field(field.default or {}, value)
            elif value is not None or field.default is not None:
                values[name] = field.default if value is None else value
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
    """Yields the problems in a group's node count and its limits. The corresponding keys of a pool are checked in schema/nodegroup_checks.py."""
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


def reconcile_nodegroups(
    module: NodeDrainingModule, provider: NodeGroupProvider, specs: t.Sequence[NodeGroupSpec]
) -> dict[str, t.Any]:
    """Reconcile the groups and return the module's result. If the option `name` is set, the result contains this group as `nodegroup`.

    Raises the same errors as reconcile().
    """
    params = module.params
    options = ReconcileOptions(params["wait"], params["wait_timeout"], params["wait_sleep"], max(1, params["parallel"]))
    try:
        reconciled = reconcile(
            provider,
            specs,
            check_mode=module.check_mode,
            options=options,
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
