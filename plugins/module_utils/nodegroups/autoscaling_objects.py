# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ClusterAutoscaler, MachineAutoscalers and priorities that pools need (pure)."""

from __future__ import annotations

import copy
import json
import re
import typing as t
from dataclasses import dataclass

from ..catalog.names import CREATED_ANNOTATION, FIELD_MANAGER, GPU_RESOURCE, NODEGROUP_LABEL, PRIORITIES_ANNOTATION
from ..catalog.openshift import (
    ACCELERATOR_LABEL,
    API_VERSION,
    AUTOSCALER_KIND,
    AUTOSCALER_NAME,
    MACHINE_API_VERSION,
    MACHINE_AUTOSCALER_API_VERSION,
    MACHINE_AUTOSCALER_KIND,
    MACHINE_SET_KIND,
    PRIORITY_CONFIGMAP,
    PRIORITY_KEY,
    group_id,
)
from ..core import yaml_text
from ..core.messages import join_words
from ..core.values import Document, Object, duration_seconds, get_nested, merge_patch, parse_json, set_nested
from ..kube.fields import has_records, is_deleting, same_object, shown, writers
from ..nodes.ownership import machine_set_owner, set_record
from ..pools.plan import future_node
from ..schema.variables import merge
from .scaling_state import (
    LIMITS_PATH,
    AutoscalerState,
    gpus_in_use,
    gpus_of_node,
    limit_entries,
    merge_limits,
    recorded_limits,
    with_limits,
)
from .spec import MachineSet, node_template, parse_machine_set

if t.TYPE_CHECKING:
    from ..pools.plan import NodeGroupMember, Plan, PoolPlan

# Reads and merges the collection's expressions in the ConfigMap of the Priority expander (pure).
#
# The value of the key `priorities` is YAML: lists of regular expressions by priority (kubernetes/autoscaler, expander/priority/priority.go). In block
# YAML, foreign lines keep their text and order. Any other notation is replaced with block YAML that has the same content.

# The expressions by priority, as the autoscaler reads them.
Priorities = dict[int, list[str]]
# This collection's expressions, each with its priority.
Record = dict[str, int]


@dataclass(frozen=True)
class PriorityChanges:
    """The text and the record after a merge. If the text cannot be merged, `problem` contains the reason."""

    text: str
    record: Record
    problem: str = ""


def expression_of(namespace: str, machine_set: str) -> str:
    """The expression that matches only the node group of this MachineSet."""
    return f"^{re.escape(group_id(namespace, machine_set)).replace(re.escape('/'), '/').replace(re.escape('-'), '-')}$"


def priorities_text(configmap: Document | None) -> str:
    """The text of the ConfigMap; empty if there is none."""
    return str(get_nested(dict(configmap or {}), "data", PRIORITY_KEY) or "")


def priorities_of(configmap: Document | None) -> Priorities | None:
    """The expressions by priority; None if the ConfigMap has no text, or if the autoscaler cannot read the text."""
    text = priorities_text(configmap)
    return parse(text) if text else None


def recorded_priorities(configmap: Document | None) -> Record:
    """This collection's recorded expressions, with their priorities."""
    text = get_nested(dict(configmap or {}), "metadata", "annotations", PRIORITIES_ANNOTATION)
    record = parse_json(text, dict) or {}
    return {str(key): value for key, value in record.items() if isinstance(value, int)}


def parse(text: str) -> Priorities | None:
    """The expressions by priority; None if the autoscaler cannot read the text."""
    is_empty = all(line.strip().startswith("#") for line in text.splitlines() if line.strip())
    document = {} if is_empty else yaml_text.parse_yaml(text)
    if not isinstance(document, dict):
        return None
    for key, expressions in document.items():
        is_list = isinstance(expressions, list) and all(isinstance(item, str) for item in expressions)
        if not isinstance(key, int) or isinstance(key, bool) or not is_list:
            return None
    return document


def merge_priorities(
    text: str, record: Record, desired: t.Mapping[str, int], kept: t.Collection[str] = ()
) -> PriorityChanges:
    """Replace the recorded expressions, except those in `kept`, with the desired ones. Identical foreign expressions are reused."""
    present = parse(text)
    if present is None:
        return PriorityChanges(
            text, record, "is not a map from numbers to lists of expressions, so the autoscaler ignores it"
        )
    merged = {**{expression: record[expression] for expression in kept if expression in record}, **desired}
    removed = {expression: priority for expression, priority in record.items() if merged.get(expression) != priority}
    foreign = {
        (priority, expression)
        for priority, expressions in present.items()
        for expression in expressions
        if record.get(expression) != priority
    }
    added = {
        expression: priority
        for expression, priority in sorted(merged.items())
        if (priority, expression) not in foreign and record.get(expression) != priority
    }
    # If a recorded expression is no longer in the ConfigMap, it is added again.
    missing = {
        expression: priority
        for expression, priority in merged.items()
        if record.get(expression) == priority and expression not in present.get(priority, [])
    }
    own = {expression: priority for expression, priority in merged.items() if (priority, expression) not in foreign}
    content = _changed(present, removed, {**added, **missing})
    if content == present:
        return PriorityChanges(text, own)
    edited = _edited(text, removed, {**added, **missing})
    if parse(edited) != content:
        edited = yaml_text.render_yaml(content) if content else ""  # type: ignore[arg-type]
    return PriorityChanges(edited, own)


def _changed(present: Priorities, removed: Record, added: Record) -> Priorities:
    content: Priorities = {}
    for priority, expressions in present.items():
        rest = [expression for expression in expressions if removed.get(expression) != priority]
        if rest or not expressions:
            content[priority] = rest
    for expression, priority in sorted(added.items()):
        content[priority] = [*content.get(priority, []), expression]
    return content


def _edited(text: str, removed: Record, added: Record) -> str:
    """Edit the lines of the text; the result is correct only if each priority is a block with one line for each expression."""
    blocks: list[tuple[int | None, list[str]]] = [(None, [])]
    for line in text.splitlines():
        key = re.fullmatch(r"(\d+):\s*", line)
        if key:
            blocks.append((int(key[1]), [line]))
        else:
            blocks[-1][1].append(line)
    edited: list[str] = []
    remaining = dict(sorted(added.items()))
    for priority, lines in blocks:
        gone = [expression for expression, old in removed.items() if old == priority]
        rest = [line for line in lines if not any(_is_line_of(line, expression) for expression in gone)]
        new = [expression for expression, desired_priority in remaining.items() if desired_priority == priority]
        for expression in new:
            del remaining[expression]
        indent = next((match[1] for line in lines if (match := re.match(r"(\s*)- ", line))), "  ")
        rest += [f"{indent}- {_quoted(expression)}" for expression in new]
        if priority is None or len(rest) > 1 or len(lines) == len(rest):
            edited += rest
    for expression, priority in remaining.items():
        header = f"{priority}:"
        if header not in edited:
            edited.append(header)
        edited.insert(edited.index(header) + 1, f"  - {_quoted(expression)}")
    return "".join(f"{line}\n" for line in edited)


def _is_line_of(line: str, expression: str) -> bool:
    match = re.fullmatch(r"\s*- (.*?)\s*", line)
    return match is not None and match[1] in (expression, _quoted(expression), f'"{expression}"')


def _quoted(expression: str) -> str:
    quoted = expression.replace("'", "''")
    return f"'{quoted}'"


# Sets declared fields of an object, except those that another field manager has set to another value (pure).

Path = tuple[str, ...]
UNKNOWN_MANAGER = "an unknown manager"


@dataclass(frozen=True)
class ForeignField:
    """A field of another manager whose value differs from the declared one."""

    path: str
    value: t.Any
    declared: t.Any
    managers: str

    def __str__(self) -> str:
        """Describe the field for messages."""
        return f"{self.path} is {_text(self.value)} (set by {self.managers}), but {_text(self.declared)} is declared"


@dataclass(frozen=True)
class FieldChanges:
    """The object with the declared fields, and the foreign fields, which are changed only if `change_foreign` is set."""

    desired: Object
    foreign: tuple[ForeignField, ...] = ()


def set_fields(live: Document, fields: t.Mapping[Path, t.Any], *, change_foreign: bool) -> FieldChanges:
    """Set the fields at the given paths of an object."""
    desired = copy.deepcopy(dict(live))
    foreign: list[ForeignField] = []
    for path, declared in fields.items():
        value = get_nested(dict(live), *path)
        if value is not None and _is_same(value, declared):
            continue
        managers = "" if value is None else other_managers(live, path)
        if managers:
            foreign.append(ForeignField(".".join(path), value, declared, managers))
        if change_foreign or not managers:
            set_nested(desired, path, copy.deepcopy(declared))
    return FieldChanges(desired, tuple(foreign))


def other_managers(live: Document, path: Path) -> str:
    """The names of other managers that own a field; empty if only this collection or the server has written it."""
    if not has_records(live):
        return UNKNOWN_MANAGER
    names = [name for name in writers(live, path) if name != FIELD_MANAGER]
    return join_words(names) if names else ""


def leaves(document: Document, prefix: Path = ()) -> dict[Path, t.Any]:
    """The values of a document by their paths; lists and empty maps count as single values."""
    values: dict[Path, t.Any] = {}
    for key, value in document.items():
        if isinstance(value, dict) and value:
            values.update(leaves(value, (*prefix, key)))
        else:
            values[(*prefix, key)] = value
    return values


def _is_same(value: t.Any, declared: t.Any) -> bool:
    """Whether two values are equal, or are equal durations in different notations."""
    if value == declared:
        return type(value) is type(declared) or not isinstance(value, bool)
    if isinstance(value, str) and isinstance(declared, str):
        seconds = duration_seconds(value)
        return seconds is not None and seconds == duration_seconds(declared)
    return False


def _text(value: t.Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


# Finds the pools' MachineSets that the autoscaler scales, and computes the GPU limits for them (pure).

# The actions of the module machineset that create a new MachineSet.
_CREATED = ("create", "recreate")


@dataclass(frozen=True)
class Target:
    """A MachineSet that the autoscaler scales between `low` and `high` nodes. `group` is the declared name of its node group."""

    pool: PoolPlan
    group: str
    machine_set: MachineSet
    low: int
    high: int
    priority: int | None = None

    @property
    def name(self) -> str:
        """The name of the MachineSet, and of a new MachineAutoscaler for it."""
        return self.machine_set.name


def find_targets(
    plan: Plan, machine_sets: t.Sequence[Document], predicted: t.Mapping[str, Document], namespace: str
) -> tuple[list[Target], list[str]]:
    """The MachineSets of all pools with `autoscale`, and a problem for each node group of these pools that has no MachineSet.

    predicted: in check mode, the results of the module machineset by group name, for MachineSets that the run creates or changes.
    """
    targets: list[Target] = []
    problems: list[str] = []
    for pool in plan.pools:
        if pool.nodegroup is None or not pool.nodegroup.autoscaled:
            continue
        for member in pool.nodegroup.members:
            machine_set = _machine_set_of(pool, member, machine_sets, predicted.get(member.name) or {}, namespace)
            if isinstance(machine_set, str):
                problems.append(f"Pool {pool.name}: {machine_set}")
            else:
                low, high = member.min_node_count or 0, member.max_node_count or 1
                targets.append(Target(pool, member.name, machine_set, low, high, pool.nodegroup.priority))
    return targets, problems


def _machine_set_of(
    pool: PoolPlan,
    member: NodeGroupMember,
    machine_sets: t.Sequence[Document],
    predicted: Document,
    namespace: str,
) -> MachineSet | str:
    """The MachineSet of a node group in its state after the run, or the reason why there is none."""
    name = member.name
    own = [
        item
        for item in machine_sets
        if owner_of(item) == name
        and (item["metadata"]["name"] == name or machine_set_owner(item, new=True) == name)
        and not is_deleting(item)
    ]
    own.sort(key=lambda item: (item["metadata"]["name"] != name, item["metadata"]["name"]))
    if predicted.get("action") in _CREATED:
        return _predicted(
            pool, {"metadata": {"name": predicted.get("name") or name, "namespace": namespace}}, predicted
        )
    if own:
        return _predicted(pool, own[0], predicted) if predicted else parse_machine_set(own[0])
    if any(item["metadata"]["name"] == name for item in machine_sets):
        return (
            f"MachineSet {name} in namespace {namespace} was not created by this collection. Set nodes.adopt: true in the pool, and run the role "
            "nodegroups."
        )
    return f"there is no MachineSet {name} in namespace {namespace}. Run the role nodegroups first, which creates it."


def _predicted(pool: PoolPlan, live: Document, predicted: Document) -> MachineSet:
    """The MachineSet with the labels, annotations and node count that the run will set."""
    changed = copy.deepcopy(dict(live))
    annotations = {**(live["metadata"].get("annotations") or {}), **(predicted.get("annotations") or {})}
    changed["metadata"]["annotations"] = annotations
    labels = predicted.get("node_labels")
    if labels is None:
        labels = get_nested(changed, "spec", "template", "spec", "metadata", "labels") or {}
    template = changed.setdefault("spec", {}).setdefault("template", {}).setdefault("spec", {})
    template["metadata"] = {"labels": {key: value for key, value in labels.items() if value is not None}}
    changed["spec"]["replicas"] = predicted.get("node_count") or changed["spec"].get("replicas") or 0
    return parse_machine_set(changed)


def owner_of(item: Document) -> str | None:
    """The declared name of the node group that an object belongs to; None if it is not managed by this collection."""
    return t.cast("str | None", (item["metadata"].get("labels") or {}).get(NODEGROUP_LABEL))


def desired_limits(targets: t.Iterable[Target], state: AutoscalerState) -> dict[str, int]:
    """The limit for each GPU type: the GPUs of all pools with their maximum number of nodes, or the GPUs in use if there are more.

    The autoscaler counts the GPUs that the template expects until a node exists, and then the GPUs that a node offers. The larger number is used here.
    """
    limits: dict[str, int] = {}
    for target in targets:
        kind, count = _gpus_per_node(target, state)
        if kind and count:
            limits[kind] = limits.get(kind, 0) + count * target.high
    used: dict[str, int] = {}
    for kind, count in gpus_in_use(state):
        used[kind] = used.get(kind, 0) + count
    return {kind: max(count, used.get(kind, 0)) for kind, count in sorted(limits.items())}


def _gpus_per_node(target: Target, state: AutoscalerState) -> tuple[str, int]:
    machine_set = target.machine_set
    template = node_template(machine_set, state.rules)
    dummy, offered = gpus_of_node(machine_set, template, state)
    declared = (future_node(target.pool).resources or {}).get(GPU_RESOURCE, 0)
    expected = template.resources.get(GPU_RESOURCE, 0)
    return machine_set.labels.get(ACCELERATOR_LABEL, ""), max(offered, expected, declared)


def types_in_use(machine_sets: t.Iterable[MachineSet], scaled: t.Collection[str]) -> set[str]:
    """The GPU types of the MachineSets named in `scaled`."""
    types = {item.labels.get(ACCELERATOR_LABEL, "") for item in machine_sets if item.name in scaled}
    return types - {""}


# Plans the changes to the ClusterAutoscaler, the MachineAutoscalers and the ConfigMap of the Priority expander (pure).

Action = t.Literal["created", "updated", "unchanged", "deleted"]

# The spec of a new ClusterAutoscaler. Booting a node and installing its driver takes up to 20 minutes; during this time, the autoscaler
# must neither replace nor remove the node.
NEW_SPEC: Object = {"maxNodeProvisionTime": "30m", "scaleDown": {"enabled": True, "delayAfterAdd": "20m"}}
SCALE_DOWN_ENABLED: Path = ("spec", "scaleDown", "enabled")
BOUNDS: tuple[Path, Path] = (("spec", "minReplicas"), ("spec", "maxReplicas"))


@dataclass(frozen=True)
class AutoscalerChange:
    """The change to one object. `live` is None if the object is created; `desired` is None if it is deleted. `foreign`: see FieldChanges."""

    kind: str
    name: str
    namespace: str | None
    live: Object | None
    desired: Object | None
    foreign: tuple[ForeignField, ...] = ()

    @property
    def action(self) -> Action:
        """The action on the object; "unchanged" if no request is needed."""
        if self.live is None:
            return "created"
        if self.desired is None:
            return "deleted"
        return "unchanged" if same_object(self.live, self.desired) else "updated"

    @property
    def changed(self) -> bool:
        """Whether a request is needed."""
        return self.action != "unchanged"

    @property
    def label(self) -> str:
        """The kind, namespace and name."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"

    @property
    def before(self) -> Object:
        """The object before the change, for a diff."""
        return shown(self.live)

    @property
    def after(self) -> Object:
        """The object after the change, for a diff."""
        return shown(self.desired)

    @property
    def patch(self) -> Object:
        """The merge patch, which applies only to the version of the object that was read."""
        patch: Object = merge_patch(self.live, self.desired)
        version = {"resourceVersion": (self.live or {})["metadata"]["resourceVersion"]}
        return {**patch, "metadata": {**(patch.get("metadata") or {}), **version}}


def cluster_autoscaler_change(
    live: Object | None,
    declared: Document,
    limits: t.Mapping[str, int],
    used_types: t.Collection[str],
    *,
    change_foreign: bool,
) -> AutoscalerChange:
    """Set the declared fields and the limits (by GPU type) of the ClusterAutoscaler; see merge_limits() for `used_types`."""
    if live is None:
        body: Object = {
            "apiVersion": API_VERSION,
            "kind": AUTOSCALER_KIND,
            "metadata": {"name": AUTOSCALER_NAME, "annotations": {CREATED_ANNOTATION: "true"}},
            "spec": merge(NEW_SPEC, copy.deepcopy(dict(declared))),
        }
        changes = merge_limits((), {}, limits, used_types)
        return AutoscalerChange(AUTOSCALER_KIND, AUTOSCALER_NAME, None, None, with_limits(body, changes))
    fields = {("spec", *path): value for path, value in leaves(declared).items()}
    if declared.get("scaleDown") and get_nested(live, *SCALE_DOWN_ENABLED) is None:
        # The CRD requires this field. It is set to false, because a scale-down must be enabled explicitly.
        fields.setdefault(SCALE_DOWN_ENABLED, False)
    set_declared = set_fields(live, fields, change_foreign=change_foreign)
    entries, record = limit_entries(live), recorded_limits(live)
    changes = merge_limits(entries, record, limits, used_types, change_foreign=change_foreign)
    foreign = list(set_declared.foreign)
    # Foreign entries are also collected if `change_foreign` is set, so that the warning names them.
    for kind, value, high in merge_limits(entries, record, limits, used_types).foreign:
        managers = other_managers(live, LIMITS_PATH)
        foreign.append(ForeignField(f"{'.'.join(LIMITS_PATH)}[{kind}].max", value, high, managers or "hand"))
    return AutoscalerChange(
        AUTOSCALER_KIND, AUTOSCALER_NAME, None, live, with_limits(set_declared.desired, changes), tuple(foreign)
    )


def machine_autoscaler_change(
    target: Target, live: Object | None, namespace: str, *, change_foreign: bool
) -> AutoscalerChange:
    """Create or change the MachineAutoscaler of a MachineSet; an existing one without the collection's label is adopted."""
    if live is None:
        reference = {"apiVersion": MACHINE_API_VERSION, "kind": MACHINE_SET_KIND, "name": target.name}
        metadata = {
            "name": target.name,
            "namespace": namespace,
            "labels": {NODEGROUP_LABEL: target.group},
            "annotations": {CREATED_ANNOTATION: "true"},
        }
        body: Object = {
            "apiVersion": MACHINE_AUTOSCALER_API_VERSION,
            "kind": MACHINE_AUTOSCALER_KIND,
            "metadata": metadata,
            "spec": {"minReplicas": target.low, "maxReplicas": target.high, "scaleTargetRef": reference},
        }
        return AutoscalerChange(MACHINE_AUTOSCALER_KIND, target.name, namespace, None, body)
    labels = live["metadata"].get("labels") or {}
    fields: dict[Path, t.Any] = dict(zip(BOUNDS, (target.low, target.high), strict=True))
    # When a MachineAutoscaler is adopted, its bounds are always replaced with those of the pool.
    changes: FieldChanges = set_fields(live, fields, change_foreign=change_foreign or NODEGROUP_LABEL not in labels)
    desired = changes.desired
    desired["metadata"]["labels"] = {**labels, NODEGROUP_LABEL: target.group}
    return AutoscalerChange(
        MACHINE_AUTOSCALER_KIND, live["metadata"]["name"], namespace, live, desired, tuple(changes.foreign)
    )


def deletion(live: Object) -> AutoscalerChange:
    """The deletion of a MachineAutoscaler."""
    metadata = live["metadata"]
    return AutoscalerChange(MACHINE_AUTOSCALER_KIND, metadata["name"], metadata.get("namespace"), live, None)


def priorities_change(
    live: Object | None, desired: t.Mapping[str, int], kept: t.Collection[str], namespace: str
) -> tuple[AutoscalerChange | None, str]:
    """The change to the Priority expander's ConfigMap (None if no change is needed), and the reason if the ConfigMap's text cannot be merged."""
    text = priorities_text(live)
    merged = merge_priorities(text, recorded_priorities(live), desired, kept)
    if merged.problem:
        return None, merged.problem
    if live is None:
        if not merged.text:
            return None, ""
        metadata: Object = {
            "name": PRIORITY_CONFIGMAP,
            "namespace": namespace,
            "annotations": {CREATED_ANNOTATION: "true"},
        }
        live_or_new: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    else:
        live_or_new = copy.deepcopy(live)
    if merged.text != text:
        live_or_new["data"] = {**(live_or_new.get("data") or {}), PRIORITY_KEY: merged.text}
    set_record(live_or_new, PRIORITIES_ANNOTATION, merged.record)
    return AutoscalerChange("ConfigMap", PRIORITY_CONFIGMAP, namespace, live, live_or_new), ""


def bounds_of(machine_autoscaler: Document) -> tuple[int, int]:
    """The minimum and maximum number of replicas in a MachineAutoscaler."""
    low, high = (int(get_nested(dict(machine_autoscaler), *path) or 0) for path in BOUNDS)
    return low, high
