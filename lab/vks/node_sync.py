# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Synchronizes the node groups of the lab's own cluster with the nodes of the lab's Kubernetes cluster."""

from __future__ import annotations

import copy
import functools
import json
import time
from typing import Any

from .. import flavors
from ..api import ApiError, Object
from ..layout import Lab
from ..machines import Machines
from ..nodes import is_ready
from .state import AccountState, Row

# The interval for groups without an operation in progress.
_IDLE_SECONDS = 2.0
# The labels and taints that the service has set on a node, so that it does not remove those of others.
_APPLIED = "lab.accel.gpu/vks-metadata"


class VksNodeSync:
    """Synchronizes the node groups of one lab's cluster."""

    def __init__(self, lab: Lab) -> None:
        self._machines = Machines(lab, "vks")
        self._names = {one.offers["vks"]["id"]: name for name, one in flavors.load().items() if "vks" in one.offers}
        self._synced: dict[str, float] = {}

    def work(self, state: AccountState) -> None:
        """Create and delete nodes as the groups require and record which are ready; failures are retried at the next call."""
        now = time.monotonic()
        with state.lock:
            busy = [
                copy.deepcopy(group)
                for group in state.groups.values()
                if group["real"] and (group["operation"] or now - self._synced.get(group["id"], 0) > _IDLE_SECONDS)
            ]
        for group in busy:
            try:
                self._sync_group(state, group)
            except ApiError:
                # The API server starts at the same time, and can restart at any time.
                continue
            self._synced[group["id"]] = now

    def _sync_group(self, state: AccountState, group: Row) -> None:
        machines = self._machines
        live = {node["metadata"]["name"]: node for node in machines.nodes(group["id"])}
        for node in group["nodes"]:
            if node["name"] not in live:
                machines.create(
                    group["id"],
                    [node["name"]],
                    self._names[group["spec"]["flavorId"]],
                    labels=node["labels"],
                    taints=_taints(node),
                    provider_ids={node["name"]: f"vngcloud://{node['id']}"},
                    addresses={node["name"]: node["address"]},
                    annotations={_APPLIED: _applied(node)},
                )
            elif _change(live[node["name"]], node):
                machines.edit(node["name"], functools.partial(_change, desired=node))
        machines.delete([name for name in group["nodes_to_delete"] if name in live])
        self._record(state, group, [name for name, node in live.items() if is_ready(node)], set(live))

    def _record(self, state: AccountState, group: Row, ready: list[str], seen: set[str]) -> None:
        with state.lock:
            row = state.groups.get(group["id"])
            if row is not None:
                row["ready"] = ready
                row["nodes_to_delete"] = [
                    name for name in row["nodes_to_delete"] if name in seen or name not in group["nodes_to_delete"]
                ]


def _taints(node: Row) -> list[dict[str, str]]:
    return [{key: value for key, value in taint.items() if value} for taint in node["taints"]]


def _applied(node: Row) -> str:
    return json.dumps({"labels": node["labels"], "taints": _taints(node)}, sort_keys=True)


def _change(live: Object, desired: Row) -> Object | None:
    """Return the merge patch that replaces the group's former labels and taints on a node, or None if it is up to date."""
    annotations = live["metadata"]["annotations"]
    if annotations.get(_APPLIED) == _applied(desired):
        return None
    before: dict[str, Any] = json.loads(annotations.get(_APPLIED, '{"labels": {}, "taints": []}'))
    labels = {**dict.fromkeys(before["labels"]), **desired["labels"]}
    managed = {(taint["key"], taint["effect"]) for taint in [*before["taints"], *desired["taints"]]}
    others = [taint for taint in live["spec"].get("taints", []) if (taint["key"], taint["effect"]) not in managed]
    return {
        "metadata": {"labels": labels, "annotations": {_APPLIED: _applied(desired)}},
        "spec": {"taints": [*others, *_taints(desired)]},
    }
