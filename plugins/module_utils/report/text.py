# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Formats the plan before a run, and the report after a run, as lines for a terminal (pure)."""

from __future__ import annotations

import operator
import typing as t

from ..core.messages import MAX_LISTED, WIDTH, Column, Paragraph, abbreviate, join_words, table, wrap
from ..sharing_modes.modes import mode_with_replicas
from .facts import (
    NODE_CHANGES,
    component_paragraphs,
    has_failed_validation,
    impact_lines,
    is_idle,
    layout_lines,
    only_records,
    pool_columns,
    pool_details,
    scaling_paragraphs,
    sharing_costs,
    toleration_paragraphs,
    totals_text,
    validation_failure,
    validation_result,
)

if t.TYPE_CHECKING:
    from ..core.values import Document

_NO_NODE = "no node of the cluster belongs to it"
_IDLE = "no nodes, as declared (its number of nodes may be 0)"
# The text in a plan for each action that the provider's module previews.
_NODEGROUP_ACTIONS = {
    "none": "as declared",
    "create": "will be created",
    "update": "will be updated",
    "recreate": "differs in immutable fields, and will be replaced",
}


def lines(info: Document, kind: str = "report", width: int = WIDTH, *, applied: bool = True) -> list[str]:
    """The lines of a plan or a report (`kind` is one of facts.KINDS) from the result of gpu_info.

    If check mode only predicts changes to the autoscaler (`applied` is false), a report describes how pools would scale after a run.
    """
    pools: Document = info.get("pools") or {}
    title = f"{'Plan' if kind == 'plan' else 'Report'} of cluster {info.get('cluster') or '(unnamed)'}"
    if not info.get("reachable"):
        title = f"{title}: not reached; only values derived from the variables are shown"[:width]
    impact = impact_lines(info, width) if kind == "plan" else []
    components = [*component_paragraphs(info), *toleration_paragraphs(info)] if kind == "plan" else ()
    rest = wrap(
        [*components, *_licenses(info, kind), *_notes(info), *_totals(info), *identity_paragraphs(info, kind)], width
    )
    if not pools:
        return [title, "No pools are declared: nothing is shared, labeled or verified.", *impact, *rest]
    sections = [
        wrap(nodegroup_paragraphs(info, kind), width),
        wrap(scaling_paragraphs(info, kind if applied else "plan"), width),
    ]
    if kind == "plan":
        sections += [layout_lines(pools, width), wrap(sharing_costs(pools), width), impact]
    return [
        *(title, "", *_pool_table(info, pools, kind, width), ""),
        *wrap(_pool_paragraphs(info, pools, kind), width),
        *(line for section in sections if section for line in ("", *section)),
        *rest,
    ]


def _licenses(info: Document, kind: str) -> t.Iterator[Paragraph]:
    """The licenses of vGPU nodes that the run has read, or who can read them."""
    if kind == "plan":
        return
    if summary := (info.get("licenses") or {}).get("summary"):
        yield "licenses", str(summary)
    elif any((pool.get("driver") or {}).get("type") == "vgpu" for pool in (info.get("pools") or {}).values()):
        yield "licenses", "this run has not read the licenses of the vGPU nodes; the playbook license_report does"


def _pool_table(info: Document, pools: Document, kind: str, width: int) -> list[str]:
    reachable = bool(info.get("reachable"))
    awaits_discovery = reachable and _awaits_discovery(info)
    columns = [
        Column("POOL", operator.itemgetter("name"), cuts=True),
        *pool_columns(kind, reachable=reachable),
    ]
    rows = [{**pool, "name": name, "awaits_discovery": awaits_discovery} for name, pool in pools.items()]
    return table(columns, rows, width)


def _pool_paragraphs(info: Document, pools: Document, kind: str) -> t.Iterator[Paragraph]:
    if not info.get("reachable"):
        yield "cluster", str(info.get("reason") or "not reached")
    elif kind == "plan" and _awaits_discovery(info):
        yield (
            "after discovery",
            "no node is known to have GPUs yet; once installed, NFD and the GPU operator discover the nodes of each pool",
        )
    else:
        describe = _changes if kind == "plan" else _verdict
        for name, pool in pools.items():
            yield name, "; ".join([describe(pool), *pool_details(pool)])


def _awaits_discovery(info: Document) -> bool:
    """Whether the cluster's hardware is not known yet."""
    return not any(pool["nodes"] for pool in info["pools"].values()) and not info["totals"]["gpu_nodes"]


def _verdict(pool: Document) -> str:
    if not pool["nodes"]:
        return _IDLE if is_idle(pool) else _NO_NODE
    if pool["as_declared"]:
        return f"as declared{_validation(pool)}"
    drift, more = list(pool["drift"]), pool["drifted_nodes"] - len(pool["drift"])
    if more > 0 and drift:
        drift.append(f"and {more} more")
    if pool["changes"]:
        drift.append(f"to change: {_changes(pool)}")
    failure = _validation(pool) if has_failed_validation(pool) else ""
    where = f" on {pool['drifted_nodes']} node(s)" if pool["drifted_nodes"] else ""
    return f"drift{where}{': ' if drift else ''}{'; '.join(drift)}{failure}"


def _validation(pool: Document) -> str:
    validation = pool.get("validation")
    if not validation:
        return ", not validated yet"
    if validation.get("status") == "failed":
        when = "" if validation["current"] else " before its last change"
        return f"; validation failed{when}, {validation_failure(validation)}"
    text = validation_result(validation)
    return f"; {text}" if validation["current"] else f"; validated before its last change: {text}"


def _changes(pool: Document) -> str:
    if not pool["nodes"]:
        return _IDLE if is_idle(pool) else _NO_NODE
    changes = pool["changes"]
    if not changes:
        return "no change"
    desired = mode_with_replicas(pool["mode"], pool.get("replicas") or 1)
    parts = [
        f"{count} node(s) {f'to a different configuration of {mode}' if mode == desired else f'from {mode} to {desired}'}"
        for mode, count in changes["switched_from"].items()
    ]
    if changes["joining"]:
        parts.append(f"{changes['joining']} node(s) join the pool")
    parts.extend(f"{prefix} {abbreviate(changes[key])}" for key, prefix, dummy in NODE_CHANGES if changes.get(key))
    return "; ".join(parts) or only_records(changes["nodes"])


def _count(names: t.Sequence[str]) -> str:
    """The number of names in a list in the result. The length of these lists is limited."""
    return f"{len(names)} or more" if len(names) == MAX_LISTED else str(len(names))


def _notes(info: Document) -> t.Iterator[Paragraph]:
    """Unmanaged installations, warnings, driver upgrades, and nodes that are undiscovered, in no pool, or released."""
    for component, installation in (info.get("installed") or {}).items():
        if installation["problem"]:
            yield "REFUSED", f"{component}: {installation['problem']}"
        elif installation["adopted"] or installation["notes"]:
            adopted = [f"{installation['what']} is adopted and not upgraded"] if installation["adopted"] else []
            yield component, "; ".join([*adopted, *installation["notes"]])
    for warning in info.get("warnings") or ():
        yield "warning", warning
    for driver in info.get("nvidia_drivers") or ():
        owner = "" if driver["managed"] else "; foreign, not changed"
        state = driver["message"] or "ready"
        text = f"driver {driver['version'] or 'without a version'}, {driver['nodes']} node(s), {state}{owner}"
        yield f"NVIDIADriver {driver['name']}", text
    upgrade = info.get("driver_upgrade") or {}
    if upgrade.get("states"):
        states = ", ".join(f"{count} node(s) {state}" for state, count in upgrade["states"].items())
        failed = f"; failed: {abbreviate(upgrade['failed'])}" if upgrade["failed"] else ""
        yield "driver", f"upgrade in progress: {states}{failed}"
    undiscovered = info.get("undiscovered")
    if undiscovered:
        yield (
            "after discovery",
            f"{_count(undiscovered)} GPU node(s) not labeled by gpu-feature-discovery yet: {abbreviate(undiscovered)}",
        )
    unclaimed = info.get("unclaimed")
    if unclaimed:
        yield (
            "in no pool",
            f"{_count(unclaimed)} GPU node(s) that no pool matches, which are not changed: {abbreviate(unclaimed)}",
        )
    released, release = info.get("released"), info.get("release") or {}
    if released:
        by_pool = release.get("pools") or {}
        pools = "; ".join(f"{nodes} of pool {name}" for name, nodes in by_pool.items())
        count = sum(by_pool.values()) or len(released)
        yield (
            "released",
            f"{count} node(s) are released; their pool's labels are removed{f' ({pools})' if pools else ''}: {abbreviate(released)}",
        )
    if release.get("refusal"):
        yield "REFUSED", str(release["refusal"])


def _totals(info: Document) -> t.Iterator[Paragraph]:
    totals = info.get("totals")
    if totals:
        yield "total", totals_text(totals)


def identity_paragraphs(info: Document, kind: str) -> t.Iterator[Paragraph]:
    """The cluster's server, UID and recorded name; in a plan, also the name that the next change records."""
    identity = info.get("identity")
    if not identity:
        return
    recorded, new_name = identity["recorded_name"], identity["name_to_record"]
    parts = [
        f"{identity['server']} ({identity['origin']})",
        f"UID {identity['uid']}" if identity["uid"] else "UID not readable",
        f"recorded as {recorded}" if recorded else "no name recorded yet",
    ]
    yield "cluster", "; ".join(parts)
    if kind == "plan" and new_name:
        renamed = f"the next run that changes the cluster renames it from {recorded} to {new_name}"
        yield "name", renamed if recorded else f"the first run that changes the cluster records the name {new_name}"


def nodegroup_paragraphs(info: Document, kind: str) -> t.Iterator[Paragraph]:
    """One paragraph for each pool with a node group. It contains the name, flavor and size of the group and, in a plan, the changes to the group.

    If the provider's module was called, `info["nodegroups"]` is its result: `nodegroups` by name, or `msg` if the module failed.
    """
    preview: Document = info.get("nodegroups") or {}
    groups = {name: pool["nodegroup"] for name, pool in (info.get("pools") or {}).items() if pool.get("nodegroup")}
    for name, group in groups.items():
        members = group.get("members") or [group]
        titles = (
            [f"{member['name']} ({member['size']})" for member in members] if members != [group] else [group["name"]]
        )
        text = f"node group{'s' if len(members) > 1 else ''} {join_words(titles)} of {group['flavor']}, {group['size']}"
        for member in members:
            result: Document = (preview.get("nodegroups") or {}).get(member["name"]) or {}
            action = result.get("action")
            if kind == "plan" and action in _NODEGROUP_ACTIONS:
                changes = _nodegroup_changes(preview.get("diff") or {}, member["name"]) if action != "create" else []
                subject = f"{member['name']}: " if len(members) > 1 else ""
                text += f"; {subject}{_NODEGROUP_ACTIONS[action]}{': ' if changes else ''}{', '.join(changes)}"
                if deleted := result.get("deletes"):
                    text += f"; then {join_words(deleted)} will be drained and deleted"
        yield f"nodes of {name}", text
    if groups and kind == "plan" and not preview.get("nodegroups") and preview.get("msg"):
        yield "cloud", f"not reached, so the state of the node groups is unknown: {preview['msg']}"


def _nodegroup_changes(diff: Document, name: str) -> list[str]:
    """The differences in the form `field before -> after`. For maps, and for taints by key and effect, only the entries that differ are listed."""
    before, after = (_flatten((diff.get(side) or {}).get(name) or {}) for side in ("before", "after"))
    return [
        f"{key} {_field_text(before.get(key))} -> {_field_text(after.get(key))}"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key) and key != "deletes"
    ]


def _flatten(fields: Document) -> dict[str, t.Any]:
    flat: dict[str, t.Any] = {}
    for key, value in fields.items():
        if isinstance(value, t.Mapping):
            flat.update({f"{key} {inner}": entry for inner, entry in value.items()})
        elif isinstance(value, list) and all(isinstance(entry, t.Mapping) and "effect" in entry for entry in value):
            flat.update({f"{key} {taint.get('key')}:{taint['effect']}": taint.get("value") or "set" for taint in value})
        else:
            flat[key] = value
    return flat


def _field_text(value: t.Any) -> str:
    return "none" if value is None else str(value)
