# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Formats the parts of a plan that a report does not have: MIG layouts, the cost of sharing, and the impact of a run (pure)."""

from __future__ import annotations

import operator
import typing as t

from ..catalog import benchmarks
from ..catalog.distributions import BY_NAME
from ..catalog.olm import OLM
from ..catalog.releases import is_downgrade
from ..cluster_state.impact import COUNTS
from ..mig.drawing import draw_gpu
from ..mig.placement import Placement
from ..schema.messages import abbreviate, join_words
from ..sharing_modes.base import PodExpectation
from ..sharing_modes.modes import MODES, mode_with_replicas
from .table import Column, Paragraph, table, wrap

Document = t.Mapping[str, t.Any]

_COMPONENTS = {"nfd": "NFD", "operator": "GPU operator"}
_SOURCE = f"times were measured on {benchmarks.MEASURED}; results differ on other GPUs and kernels; see docs/modes.md"


def component_paragraphs(info: Document) -> t.Iterator[Paragraph]:
    """How a run installs NFD and the operator. If the cluster was not reached, also the operator's settings for the declared distribution."""
    releases: Document = info.get("releases") or {}
    installed: Document = info.get("installed") or {}
    if not info.get("pools") or any(finding["problem"] for finding in installed.values()):
        return
    for component, release in releases.items():
        parts = []
        finding = installed.get(component)
        if finding and finding["managed"] and not finding["found"]:
            title = f"{_COMPONENTS[component]} {release['version']}".strip()
            parts.append(f"installs {title} {_means(release)}")
        parts.extend((finding or {}).get("changes") or ())
        if not info.get("reachable") and release.get("installer") == OLM:
            parts.append(
                f"unless the cluster has it: {_COMPONENTS[component]} {release['version']}".strip()
                + f" {_means(release)}"
            )
        if (parts or not info.get("reachable")) and release.get("toolkit_env"):
            settings = ", ".join(f"{entry['name']}={entry['value']}" for entry in release["toolkit_env"])
            parts.append(f"settings for {BY_NAME[release['distribution']].title}: {settings}")
        if parts:
            yield component, "; ".join(parts)


def _means(release: Document) -> str:
    """How a component is installed."""
    if release.get("installer") != OLM:
        return f"as Helm release {release['namespace']}/{release['release']}"
    subscription = f"{release['namespace']}/{release['package']}"
    channel = f"channel {release['channel']} of " if release.get("channel") else ""
    return f"through OLM: Subscription {subscription}, {channel}{join_words(release['source'], 'or')}"


def toleration_paragraphs(info: Document) -> t.Iterator[Paragraph]:
    """The objects that get or lose tolerations because of the pools' taints, and the pods that restart."""
    for change in info.get("tolerations") or ():
        parts = [
            f"{verb} {join_words(change[key])}"
            for key, verb in (("adds", "gets a toleration for"), ("removes", "loses the toleration for"))
            if change[key]
        ]
        yield "tolerations", f"{change['object']} {'; '.join(parts)}; {change['restarts']}"


def layout_lines(pools: Document, width: int) -> list[str]:
    """A heading for each pool with MIG devices, followed by each layout with its unused slices, drawn as a bar."""
    lines: list[str] = []
    for name, pool in pools.items():
        layouts: t.Sequence[Document] = pool.get("gpu_layouts") or ()
        if not any(layout["devices"] for layout in layouts):
            continue
        lines.append(f"memory slices of the GPUs of {name}:")
        gpus = [(layout["slices"], [Placement(**device) for device in layout["devices"]]) for layout in layouts]
        # If the pool has no nodes, the layouts are the declared ones, in the order of the declaration.
        declared = [gpus_of(part) for part in pool.get("layout") or ()]
        for number, (layout, drawing) in enumerate(zip(layouts, draw_gpu(gpus, width - 4), strict=True)):
            title = declared[number] if layout["gpus"] is None else f"{layout['gpus']} GPU(s)"
            if layout["devices"]:
                lines += [f"  {title}{_unused(layout['unused'])}", f"    {drawing}"]
            else:
                lines.append(f"  {title} whole")
    return lines


def gpus_of(part: Document) -> str:
    """The GPUs of a part of a declared layout."""
    return f"GPU {', '.join(map(str, part['devices']))}" if part["devices"] else "each GPU"


def _unused(unused: Document) -> str:
    counts = [f"{unused[kind]} {kind} slice(s)" for kind in ("compute", "memory") if unused[kind]]
    return f", {join_words(counts)} unused" if counts else ""


def sharing_costs(pools: Document) -> t.Iterator[Paragraph]:
    """A sentence for each kind of sharing, with the pools that use it; empty if no GPU is shared."""
    pools_of: dict[tuple[str, str], list[str]] = {}
    has_times = False
    for name, pool in pools.items():
        mode, replicas = MODES[pool["mode"]], pool.get("replicas") or 1
        sentence = _performance(pool, replicas)
        if sentence:
            pools_of.setdefault((mode_with_replicas(mode.name, replicas), sentence), []).append(name)
            has_times = has_times or mode.has_measured_times(replicas)
    for (title, sentence), names in pools_of.items():
        yield f"{abbreviate(names)} ({title})", sentence
    if has_times:
        yield "sharing", _SOURCE


def profiles_of(pool: Document) -> set[str]:
    """The MIG profiles that a pool declares in its layout or its demand."""
    return {
        *(pool.get("demand") or ()),
        *(profile for part in pool.get("layout") or () for profile in part["profiles"]),
    }


def _performance(pool: Document, replicas: int) -> str:
    models = pool.get("models") or []
    model = models[0] if len(models) == 1 else pool.get("model")
    pods = PodExpectation(replicas, pool.get("memory_mib_per_share"), profiles_of(pool), model)
    return MODES[pool["mode"]].performance(pods)


def impact_lines(info: Document, width: int) -> list[str]:
    """A table of the pools that the run affects, followed by explanations; empty if the impact was not requested."""
    total: Document | None = info.get("impact")
    if total is None:
        return []
    rows = [{"pool": name, **pool["impact"]} for name, pool in info["pools"].items()]
    others = {key: total[key] - sum(row[key] for row in rows) for key in COUNTS}
    affected = [
        row for row in [*rows, {"pool": _nodes_without_pool(info), **others}] if any(row[key] for key in COUNTS)
    ]
    paragraphs = [*_total_impact(total), *_node_changes(info.get("steps") or {})]
    if affected:
        columns = [
            Column("IMPACT", operator.itemgetter("pool"), cuts=True),
            *(Column(title, operator.itemgetter(key), number=True) for key, title in COUNTS.items()),
        ]
        return [*table(columns, affected, width), "", *wrap(paragraphs, width)]
    if info.get("released") or any(pool["changes"] for pool in info["pools"].values()):
        paragraphs.insert(0, ("impact", "no driver or operand is restarted, and no pod loses its GPU"))
    return wrap(paragraphs, width)


def _nodes_without_pool(info: Document) -> str:
    """The name of the row for nodes that belong to no pool. Parentheses distinguish this name from that of a pool."""
    kinds = [text for key, text in (("released", "released"), ("unclaimed", "no pool")) if info.get(key)]
    return f"({', '.join(kinds) or 'no pool'})"


def _node_changes(steps: Document) -> t.Iterator[Paragraph]:
    for key, head, singular, plural in (
        ("evicts", "pods", "has pods to evict", "have pods to evict"),
        (
            "blocked_by",
            "blocked",
            "cannot be changed, since a drain does not evict the pods that use its GPUs",
            "cannot be changed, since a drain does not evict the pods that use their GPUs",
        ),
        (
            "stops",
            "stopped",
            "has DaemonSet pods that are stopped for the change",
            "have DaemonSet pods that are stopped for the change",
        ),
    ):
        pods_by_node = {node: step[key] for node, step in steps.items() if step.get(key)}
        pods = [pod for names in pods_by_node.values() for pod in names]
        if pods:
            text = singular if len(pods_by_node) == 1 else plural
            yield head, f"{abbreviate(sorted(pods_by_node))} {text} ({len(pods)}): {abbreviate(pods)}"
    reboots = sorted(node for node, step in steps.items() if step["reboot"] != "no")
    if reboots:
        yield "reboots", f"{abbreviate(reboots)} may need a reboot, through the command in rollout.reboot"


def _total_impact(total: Document) -> t.Iterator[Paragraph]:
    if total["release"]:
        installed, desired = total["release"]["installed"], total["release"]["desired"]
        if is_downgrade(installed, desired):
            yield (
                "operator",
                f"DOWNGRADE from {installed}, which is newer than the declared version, to {desired}; it restarts all operands. To keep the installed "
                f"version, set gpu_cluster.operator.version: {installed}",
            )
        else:
            yield "operator", f"upgrade from {installed} to {desired}, which restarts all operands"
    if total["driver_restarts"]:
        yield "drivers", f"{_driver_restarts(total)}{_permission(total)}"
    for disabled in total.get("disabled") or ():
        yield "DISABLED", f"{disabled['field']} of the ClusterPolicy becomes false: {disabled['effect']}"
    upgrade = total["upgrade"] or {"refusals": (), "problem": ""}
    if upgrade.get("values"):
        yield "values", f"Helm values of the GPU operator change: {'; '.join(map(_value_change, upgrade['values']))}"
    for refusal in upgrade["refusals"]:
        yield "REFUSED", refusal["message"]
    if upgrade["problem"]:
        yield "upgrade", f"site may fail for reasons that this plan does not show: {upgrade['problem']}"
    if total["repartitioned_nodes"]:
        nodes = f"{total['repartitioned_nodes']} node(s)"
        yield "mig", f"GPUs of {nodes} are repartitioned in a rolling update: cordon, drain, change, verify, uncordon"
    workloads = total.get("workloads") or ()
    if workloads:
        texts = [
            f"{each['owner']} ({each['field']}: {each['value']}"
            + (f"; change it to {each['fitting']})" if each["fitting"] else ")")
            for each in workloads
        ]
        yield "NO NODE", f"{len(workloads)} workload(s) fit no node after the change: {'; '.join(texts)}"
    if total["resets"]:
        yield (
            "resets",
            f"the MIG mode of {total['resets']} node(s) with Ampere GPUs is switched, which resets the GPUs; if they are "
            "passed through to a virtual machine, the node may need a reboot",
        )


def _value_change(change: Document) -> str:
    if "after" not in change:
        return f"{change['path']} (not shown)"
    before, after = (
        "(not set)" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        for value in (change["before"], change["after"])
    )
    return f"{change['path']} {before} becomes {after}"


def _permission(total: Document) -> str:
    """The effect of gpu_operator_allow_driver_rollout; empty if a refusal already describes this effect."""
    refused = any(refusal["code"] == "driver_rollout" for refusal in (total["upgrade"] or {}).get("refusals", ()))
    if total["in_place"] or refused:
        return ""
    if total["allowed"]:
        return "; allowed by gpu_operator_allow_driver_rollout"
    otherwise = "held back" if total["held_back"] else "refused"
    return f"; {otherwise}, unless gpu_operator_allow_driver_rollout is true"


def _driver_restarts(total: Document) -> str:
    reasons = "; ".join(total["reasons"])
    if not total["max_parallel"]:
        return f"the driver of {total['driver_restarts']} node(s) is updated once its driver pod is deleted: {reasons}"
    if total["in_place"]:
        return (
            f"the driver pods of {total['driver_restarts']} node(s) restart in place, at most {total['max_parallel']} at a time: {reasons}; each node is "
            "cordoned while its driver pod restarts, and no pod is evicted"
        )
    if total["at_once"]:
        return f"the driver restarts on all {total['driver_restarts']} node(s) at the same time: {reasons}; pods that use a GPU on these nodes are evicted"
    return (
        f"the driver restarts on {total['driver_restarts']} node(s), at most {total['max_parallel']} at a time: {reasons}; pods that use a GPU on "
        "these nodes are evicted first"
    )
