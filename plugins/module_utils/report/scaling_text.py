# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Explains, in a plan or a report, whether OpenShift's autoscaler scales the pools from zero (pure)."""

from __future__ import annotations

import typing as t

from ..catalog.machine_api import ACCELERATOR_LABEL
from ..schema.messages import abbreviate, join_words
from .table import Paragraph

Document = t.Mapping[str, t.Any]

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
