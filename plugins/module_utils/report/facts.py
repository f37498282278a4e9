# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sentences and tables about pools, nodes and plans (pure)."""

from __future__ import annotations

import operator
import re
import typing as t
from collections import Counter
from dataclasses import dataclass

from ..catalog.distributions import BY_NAME
from ..catalog.models import MEASURED
from ..catalog.openshift import ACCELERATOR_LABEL, OLM
from ..catalog.releases import is_downgrade
from ..core.messages import Column, Paragraph, abbreviate, join_words, table, wrap
from ..nodes.impact import COUNTS, describe_refused
from ..nodes.node import to_count
from ..schema.pool import MAX_GPUS
from ..schema.validation_programs import PROGRAMS
from ..sharing_modes import mig as layouts
from ..sharing_modes.mig import Placement, draw_gpu
from ..sharing_modes.modes import MODES, PodExpectation, mode_with_replicas

if t.TYPE_CHECKING:
    from ..core.values import Document

# Formats numbers and properties of pools as plain text (pure).

_MODES = {"undiscovered": "not discovered", **{mode.name: mode.page_name for mode in MODES.values() if mode.page_name}}
DOT = " \u00b7 "
# The keys of changes to labels, annotations and taints in the result of gpu_info, with their names on the terminal and on the page.
NODE_CHANGES = (
    ("labels", "labels", "labels to set"),
    ("removed_labels", "without labels", "labels to remove"),
    ("annotations", "annotations", "annotations to set"),
    ("removed_annotations", "without annotations", "annotations to remove"),
    ("taints", "taints", "taints to set"),
    ("removed_taints", "without taints", "taints to remove"),
)
_TIMES = "\u00d7"
_NEGATIVE_CHECKS = {"one_more": "one more waited", "two_shares": "a request for two was rejected"}


def format_number(count: int) -> str:
    """A number with a thin space between thousands."""
    return f"{count:,}".replace(",", "\u202f")


def plural(count: int, noun: str) -> str:
    """A number with a noun, such as 1 node or 2 nodes."""
    return f"{format_number(count)} {noun}" if count == 1 else f"{format_number(count)} {noun}s"


def memory(mib: int | None) -> str:
    """An amount of memory in GiB."""
    return f"{mib / 1024:.1f}\u00a0GiB" if mib else "?"


def short_model(model: t.Any) -> str:
    """A GPU model without the vendor."""
    return str(model).removeprefix("NVIDIA-")


def short_resource(resource: t.Any) -> str:
    """A resource without NVIDIA's prefix."""
    return str(resource or "?").removeprefix("nvidia.com/")


def sharing_mode(mode: t.Any, replicas: t.Any) -> str:
    """The sharing mode, with the replicas if there are several."""
    name = str(mode or "?")
    name = _MODES.get(name, name)
    return f"{name} {_TIMES}{replicas}" if isinstance(replicas, int) and replicas > 1 else name


def device_counts(devices: t.Iterable[tuple[t.Any, t.Any]], default: str = "") -> str:
    """The number of MIG devices of each profile."""
    return ", ".join(f"{count} {_TIMES} {profile}" for profile, count in devices) or default


def mig_layout(pool: Document) -> str:
    """The MIG devices that a pool declares for each GPU, or for all GPUs together."""
    demand = device_counts((pool.get("demand") or {}).items())
    parts = [f"{demand} in total"] if demand else []
    for part in pool.get("layout") or ():
        profiles = device_counts((part.get("profiles") or {}).items(), "not partitioned")
        devices = ", ".join(map(str, part.get("devices") or ()))
        parts.append(f"GPU {devices}: {profiles}" if devices else profiles)
    return "; ".join(parts)


def verification(pool: Document) -> str:
    """The result of the last validation with workloads."""
    validation = pool.get("validation")
    if not validation:
        return "Not verified by workloads yet."
    if validation.get("status") == "failed":
        when = "" if validation.get("current") else " before the last change"
        return f"Validation failed{when}, {validation_failure(validation)}"
    when = "Verified" if validation.get("current") else "Verified before the last change"
    return f"{when}: {validation_result(validation)}."


def has_failed_validation(pool: Document) -> bool:
    """Whether the last validation failed and the pool has not been changed since."""
    validation = pool.get("validation") or {}
    return validation.get("status") == "failed" and bool(validation.get("current"))


def validation_failure(validation: Document) -> str:
    """The time, the node and the problems of a failed validation."""
    where = f" on {validation['node']}" if validation.get("node") else ""
    return f"{validation.get('time')}{where}: {'; '.join(map(str, validation.get('problems') or ()))}"


def validation_result(validation: Document) -> str:
    """The pods of a validation, the results of the programs, and the results of the negative checks that were run."""
    devices = validation.get("devices") or {}
    pods = plural(sum(devices.values()), "pod")
    left = "" if validation.get("in_pool", True) else " (which has left the pool)"
    programs = [program.describe(validation.get(program.name)) for program in PROGRAMS]
    return ", ".join(
        [
            f"{pods} on {validation.get('node')}{left} ran at the same time on {plural(len(devices), 'device')}",
            *(text for text in programs if text),
            *(text for key, text in _NEGATIVE_CHECKS.items() if validation.get(key)),
        ]
    )


def pending_changes(pool: Document) -> list[str]:
    """The changes that a run would make on the nodes of a pool."""
    changes: Document = pool.get("changes") or {}
    if not changes:
        return []
    desired = sharing_mode(pool.get("mode"), pool.get("replicas"))
    lines = []
    for mode, count in (changes.get("switched_from") or {}).items():
        previous = _previous_mode(mode)
        switch = (
            f"to a different configuration of {desired}" if previous == desired else f"from {previous} to {desired}"
        )
        lines.append(f"{plural(count, 'node')} to switch {switch}")
    if changes.get("joining"):
        lines.append(f"{plural(changes['joining'], 'node')} to add to the pool")
    lines += [
        f"{prefix}: {', '.join(map(str, changes[key]))}" for key, dummy, prefix in NODE_CHANGES if changes.get(key)
    ]
    return lines or [only_records(changes.get("nodes") or 0)]


def only_records(nodes: int) -> str:
    """The text for changes that affect only the collection's own annotations on nodes."""
    return f"{plural(nodes, 'node')} with outdated annotations that the collection has set"


def _previous_mode(mode: t.Any) -> str:
    return _MODES.get(mode) or re.sub(r" x([0-9]+)$", rf" {_TIMES}\1", str(mode))


# Determines the MIG devices on each GPU of a node if the pool's layout and the node's labels agree (pure).

# The number of MIG devices on one GPU by profile, in the notation of GFD and of resource names (a dot instead of `+`);
# empty for a whole GPU.
GpuLayout = tuple[tuple[str, int], ...]

SUCCESS = "success"
_SLICES = re.compile(r"(?:nvidia\.com/mig-)?([0-9]{1,2})g\.")


def gpu_layouts(row: Document, declared: Document) -> tuple[GpuLayout, ...]:
    """The layout of each GPU; empty if the node is not partitioned in the way that its pool declares.

    In a pool with a demand, each node has its own layout.
    """
    mig: Document = row.get("mig") or {}
    actual = {
        str(profile): to_count(count) for profile, count in (mig.get("devices") or {}).items() if to_count(count) > 0
    }
    layout: t.Sequence[Document] = row.get("layout") or declared.get("layout") or ()
    if not actual or not layout or mig.get("state") != SUCCESS:
        return ()
    if len(layout) == 1 and not layout[0].get("devices"):
        # With one layout for every GPU, the number of GPUs is derived from the devices, because GFD may count devices
        # as GPUs.
        single = _layout_of(layout[0])
        per_gpu = sum(count for dummy, count in single)
        gpus = sum(actual.values()) // per_gpu if per_gpu else 0
        result = [single] * min(gpus, MAX_GPUS)
    else:
        gpus = min(max(0, to_count(row.get("gpus"))), MAX_GPUS)
        result = [_layout_of(next((part for part in layout if _applies(part, index)), {})) for index in range(gpus)]
    expected: Counter[str] = Counter()
    for of_gpu in result:
        expected.update(dict(of_gpu))
    return tuple(result) if expected == actual else ()


def compute_slices(name: str) -> int:
    """The number of compute slices in the name of a profile or of its resource; 0 for other names."""
    match = _SLICES.match(name)
    return max(1, int(match[1])) if match else 0


def _layout_of(part: Document) -> GpuLayout:
    profiles: Document = part.get("profiles") or {}
    return tuple(
        (str(name).replace("+", "."), to_count(count)) for name, count in profiles.items() if to_count(count) > 0
    )


def _applies(part: Document, index: int) -> bool:
    devices = part.get("devices")
    return not devices or index in devices


# Formats the parts of a plan that a report does not have: MIG layouts, the cost of sharing, and the impact of a run (pure).

_COMPONENTS = {"nfd": "NFD", "operator": "GPU operator"}
_SOURCE = f"times were measured on {MEASURED}; results differ on other GPUs and kernels; see docs/modes.md"


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
    if total.get("refused_evictions"):
        yield "BUDGETS", describe_refused(total["refused_evictions"])
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


# Explains, in a plan or a report, whether OpenShift's autoscaler scales the pools from zero (pure).

# The heading of a finding, by its effect. For some_pods, the label key or the resource that the affected pods use is added to the heading.
_HEADS = {"no_pod": "cause", "some_pods": "pods with", "note": "note"}
_NO_AUTOSCALER = "machine_autoscaler"
_MAXIMUM = "maximum"


class ScalingSummary(t.NamedTuple):
    """Describes the MachineSets of a pool that have the same findings. `scales` is None if it is unknown whether they scale, or if their size is fixed."""

    pool: str
    text: str
    findings: tuple[Paragraph, ...]
    scales: bool | None
    at_maximum: bool = False


def scaling_paragraphs(info: Document, kind: str) -> t.Iterator[Paragraph]:
    """The summaries of all pools, each followed by its findings, and the objects that could not be read; empty for a cluster other than OpenShift."""
    for summary in scaling_summaries(info, kind):
        yield f"scaling of {summary.pool}", summary.text
        yield from summary.findings
    for problem in (info.get("autoscaling") or {}).get("not_read") or ():
        yield "autoscaler", problem


def scaling_summaries(info: Document, kind: str) -> list[ScalingSummary]:
    """One summary for all MachineSets of a pool that have the same findings. A plan shows the findings that remain after the run."""
    groups: dict[tuple[t.Any, ...], list[Document]] = {}
    for item in (info.get("autoscaling") or {}).get("machine_sets") or ():
        codes = tuple((finding["code"], finding["effect"]) for finding in _findings(item, kind))
        groups.setdefault((item["pool"], _scales(item, kind), item["scales"], item["exists"], codes), []).append(item)
    return [_summary(items, kind) for items in groups.values()]


def _findings(item: Document, kind: str) -> list[Document]:
    return [finding for finding in item["findings"] if finding["after_run" if kind == "plan" else "now"]]


def _scales(item: Document, kind: str) -> bool | None:
    verdict: bool | None = item["scales_after_run" if kind == "plan" else "scales"]
    return verdict


def _summary(items: t.Sequence[Document], kind: str) -> ScalingSummary:
    first = items[0]
    findings = _findings(first, kind)
    fixed = next((finding for finding in findings if finding["code"] == _NO_AUTOSCALER), None)
    if fixed and not first["declared"]:
        return ScalingSummary(first["pool"], f"{fixed['message']}. To scale it, {fixed['remedy']}", (), None)
    names = abbreviate([item["machine_set"] for item in items])
    subject = f"MachineSet{'' if len(items) == 1 else 's'} {names}" if names else "no MachineSet"
    scales = _scales(first, kind)
    text = _headline(subject, len(items) == 1, scales, kind == "plan" and not first["scales"])
    at_maximum = scales is False and {finding["code"] for finding in findings if finding["effect"] == "no_pod"} == {
        _MAXIMUM
    }
    if at_maximum:
        # The configuration is correct; the autoscaler has already added all nodes that it is allowed to add.
        text = f"{subject} {'has' if len(items) == 1 else 'have'} the maximum number of nodes"
    parts = [text, *(_expectations(first, "_after_run" if kind == "plan" else "") if scales is not False else ())]
    return ScalingSummary(first["pool"], "; ".join(parts), tuple(map(_paragraph, findings)), scales, at_maximum)


def _headline(subject: str, single: bool, scales: bool | None, changes: bool) -> str:
    verb, negated = ("scales", "does not scale") if single else ("scale", "do not scale")
    if subject == "no MachineSet":
        return "not from zero"
    if scales is None:
        return f"not known whether {subject} {verb} from zero, because not everything could be read"
    if changes:
        return f"{subject} will {'' if scales else 'not '}scale from zero after this run"
    return f"{subject} {verb if scales else negated} from zero"


def _expectations(item: Document, when: str) -> t.Iterator[str]:
    """The range of the size, and the properties that the autoscaler expects of a new node: resources, the label of the GPUs with its limit, and taints.

    `when` is the suffix of the keys that depend on whether they are for now or for after the run.
    """
    if item[f"max{when}"] is not None:
        yield f"{item[f'min{when}']} to {item[f'max{when}']} nodes"
    offered = [f"{count} {resource}" for resource, count in item["resources"].items()]
    if offered:
        yield f"the autoscaler expects {join_words(offered)} on a new node"
    if item["accelerator"]:
        limit: Document | None = item[f"gpu_limit{when}"]
        amount = f"{limit['used']} of at most {limit['max']} in use" if limit else "not limited"
        yield f"GPUs of {ACCELERATOR_LABEL}={item['accelerator']}: {amount}"
    if item["taints"]:
        yield f"its pods tolerate {join_words(item['taints'])}"


def _paragraph(finding: Document) -> Paragraph:
    head = _HEADS[finding["effect"]]
    head = f"{head} {finding['label']}" if finding["effect"] == "some_pods" else head
    return head, f"{finding['message']}. Remedy: {finding['remedy']}"


# Defines the facts about pools, nodes and the cluster that the report shows on the terminal and on the HTML page (pure).
#
# To add a fact, add an entry to POOL_FACTS or NODE_FACTS; the result of gpu_info must contain its data.

KINDS = PLAN, REPORT = ("plan", "report")


@dataclass(frozen=True, kw_only=True)
class PoolFact:
    """Where and how a fact about a pool is shown. Each function gets the pool from the result of gpu_info; an empty string is not shown.

    column: the column in the table on the terminal, for these `kinds`; the rows of the table also have the keys name and awaits_discovery.
    detail: the text below this table, after the name of the pool, for facts that are too long for a column. page: the text on the card of the pool.
    observed: whether the fact is known only if the cluster was reached. The page shows observed facts in the second line, and only if the pool has nodes.
    """

    column: Column | None = None
    detail: t.Callable[[Document], str] | None = None
    page: t.Callable[[Document], str] | None = None
    observed: bool = False
    kinds: tuple[str, ...] = KINDS


def _model(pool: Document) -> str:
    models = pool.get("models") or ([pool["model"]] if pool.get("model") else [])
    return short_model(models[0]) if len(models) == 1 else f"{len(models)} models" if models else "any"


def _all_models(pool: Document) -> str:
    return abbreviate([short_model(model) for model in pool.get("models") or [pool.get("model") or "any GPU"]])


def _mode_and_layout(pool: Document) -> str:
    return ": ".join(filter(None, [sharing_mode(pool.get("mode"), pool.get("replicas")), mig_layout(pool)]))


def _layout(pool: Document) -> str:
    parts = [f"{layouts.format_layout(pool['demand'])} in total"] if pool.get("demand") else []
    for part in pool.get("layout") or ():
        devices = " + ".join(f"{count} x {profile}" for profile, count in sorted(part["profiles"].items()))
        parts.append(f"{gpus_of(part)} with {devices}" if devices else f"{gpus_of(part)} whole")
    return "; ".join(parts)


def _resource(pool: Document) -> str:
    others = len(pool.get("resources") or ()) - 1
    name = str(pool["resource"]).removeprefix("nvidia.com/")
    return f"{name} +{others}" if others > 0 else name


def _memory(pool: Document) -> str:
    """The memory of a share. For MIG devices, this is the smallest and the largest size in the names of their profiles, which are the only source."""
    mib = pool.get("memory_mib_per_share")
    if mib:
        return f"{mib / 1024:.1f} GiB"
    sizes = sorted({layouts.nominal_gb(profile) for profile in profiles_of(pool)})
    shares = [f"{size / (pool.get('replicas') or 1):g}" for size in sizes]
    return f"{'-'.join(dict.fromkeys((shares[0], shares[-1])))} GB" if shares else "?"


def _memory_on_page(pool: Document) -> str:
    share = pool.get("memory_mib_per_share")
    return f"{memory(share)} per {'GPU' if pool.get('shares_per_gpu') == 1 else 'share'}" if share else ""


def is_idle(pool: Document) -> bool:
    """Whether a pool has no nodes because its node group may be empty, for example because an autoscaler has scaled it to zero."""
    return not pool.get("nodes") and bool((pool.get("nodegroup") or {}).get("may_be_empty"))


def _state(pool: Document) -> str:
    if not pool["nodes"]:
        return "idle" if is_idle(pool) else "no nodes"
    if not pool["as_declared"]:
        return "drift"
    return "failed" if has_failed_validation(pool) else "ok"


def _planned_changes(pool: Document) -> str:
    if not pool["nodes"]:
        return "after discovery" if pool["awaits_discovery"] else "no nodes"
    return plural(pool["changes"]["nodes"], "node") if pool["changes"] else "none"


# In the order of the columns on the terminal, and of the entries on the card. The card shows a pool's resources and state as drawings.
POOL_FACTS: tuple[PoolFact, ...] = (
    PoolFact(
        column=Column("NODES", operator.itemgetter("nodes"), number=True),
        page=lambda pool: plural(pool.get("nodes") or 0, "node"),
        observed=True,
    ),
    PoolFact(column=Column("MODEL", _model), page=_all_models),
    PoolFact(
        column=Column("GPUS", operator.itemgetter("gpus"), number=True),
        page=lambda pool: plural(pool.get("gpus") or 0, "GPU"),
        observed=True,
    ),
    PoolFact(
        column=Column("MODE", lambda pool: mode_with_replicas(pool["mode"], pool.get("replicas") or 1)),
        detail=_layout,
        page=_mode_and_layout,
    ),
    PoolFact(column=Column("nvidia.com/", _resource)),
    PoolFact(
        column=Column("AFTER", operator.itemgetter("expected"), number=True),
        observed=True,
        kinds=(PLAN,),
    ),
    PoolFact(
        column=Column("OFFERED", lambda pool: f"{pool['allocatable']}/{pool['expected']}", number=True),
        observed=True,
        kinds=(REPORT,),
    ),
    PoolFact(column=Column("MEM/SHARE", _memory, number=True), page=_memory_on_page),
    PoolFact(column=Column("CHANGES", _planned_changes), observed=True, kinds=(PLAN,)),
    PoolFact(column=Column("STATE", _state), observed=True, kinds=(REPORT,)),
)


def pool_columns(kind: str, *, reachable: bool) -> list[Column]:
    """The columns of the table of pools, after the column with their names. Observed facts are unknown unless the cluster is reachable."""
    return [
        fact.column._replace(value=lambda pool: "?") if fact.observed and not reachable else fact.column
        for fact in POOL_FACTS
        if fact.column and kind in fact.kinds
    ]


def pool_details(pool: Document) -> list[str]:
    """The facts about a pool that the terminal shows below the table."""
    return [text for fact in POOL_FACTS if fact.detail and (text := fact.detail(pool))]


def page_facts(pool: Document, *, observed: bool) -> list[str]:
    """The facts on the card of a pool: either the observed or the declared ones."""
    return [text for fact in POOL_FACTS if fact.page and fact.observed == observed and (text := fact.page(pool))]


def _mig_devices(row: Document) -> str:
    return device_counts(sorted((_mig(row).get("devices") or {}).items()))


def _mig_config(row: Document) -> str:
    mig = _mig(row)
    if not _mig_devices(row) and mig.get("state") in (None, SUCCESS):
        return ""
    return f"MIG configuration {mig.get('config') or 'none'} ({mig.get('state') or 'no state'})"


def _mig(row: Document) -> Document:
    mig: Document = row.get("mig") or {}
    return mig


def _sharing(row: Document) -> str:
    return sharing_mode(row["mode"], row["replicas"]) if row.get("mode") and not _mig_devices(row) else ""


# The facts about a node on the page, from its row in the result of gpu_info; an empty string is not shown. Facts that most nodes of a pool have in common
# are shown once for the pool. The terminal does not list nodes, and the JSON file contains the complete result.
NODE_FACTS: dict[str, t.Callable[[Document], str]] = {
    "model": lambda row: short_model(row.get("model") or ""),
    "gpus": lambda row: f"{plural(row['gpus'], 'GPU')} of {memory(row['memory_mib'])}" if row["gpus"] else "",
    "mode": _sharing,
    "devices": lambda row: f"MIG devices: {devices}" if (devices := _mig_devices(row)) else "",
    "config": _mig_config,
    "driver": lambda row: f"driver {row['driver']}" if row.get("driver") else "",
}


def node_facts(row: Document) -> dict[str, str]:
    """The known facts about a node, by their keys in NODE_FACTS."""
    return {key: text for key, describe in NODE_FACTS.items() if (text := describe(row))}


def totals_text(totals: Document) -> str:
    """The cluster's totals, for the terminal."""
    offered = ", ".join(f"{count} {name}" for name, count in totals["allocatable"].items() if count) or "nothing"
    return f"{totals['gpu_nodes']} of {totals['nodes']} nodes have {totals['gpus']} GPUs and advertise {offered}"


def totals_title(totals: Document) -> str:
    """The cluster's totals, for the heading above the table of resources on the page."""
    gpu_nodes, nodes = format_number(totals.get("gpu_nodes") or 0), plural(totals.get("nodes") or 0, "node")
    return f"{plural(totals.get('gpus') or 0, 'GPU')} on {gpu_nodes} of {nodes}"
