# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes of the lab's own cluster: what the double knows of them is made true in the lab's Kubernetes, and looked at there."""

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
from .world import Row, World

# How often a group is looked at on which nothing is being done, in seconds.
_IDLE_SECONDS = 2.0
# What the service has put on a node, so that it takes nothing away that is others'.
_APPLIED = "lab.accel.gpu/vks-metadata"


class Hands:
    """Works for the groups of one lab's cluster."""

    def __init__(self, lab: Lab) -> None:
        self._machines = Machines(lab, "vks")
        self._names = {one.vks["id"]: name for name, one in flavors.load().items() if one.vks is not None}
        self._looked: dict[str, float] = {}

    def work(self, world: World) -> None:
        """Make and end machines as the groups say, and take down which are ready; what fails is tried again soon."""
        now = time.monotonic()
        with world.lock:
            busy = [
                copy.deepcopy(group)
                for group in world.groups.values()
                if group["real"] and (group["doing"] or now - self._looked.get(group["id"], 0) > _IDLE_SECONDS)
            ]
        for group in busy:
            try:
                self._bring(world, group)
            except ApiError:
                # The API server starts beside the double, and may be started anew at any time.
                continue
            self._looked[group["id"]] = now

    def _bring(self, world: World, group: Row) -> None:
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
                machines.edit(node["name"], functools.partial(_change, wanted=node))
        machines.delete([name for name in group["leaving"] if name in live])
        self._note(world, group, [name for name, node in live.items() if is_ready(node)], set(live))

    def _note(self, world: World, group: Row, ready: list[str], seen: set[str]) -> None:
        with world.lock:
            found = world.groups.get(group["id"])
            if found is not None:
                found["ready"] = ready
                found["leaving"] = [name for name in found["leaving"] if name in seen or name not in group["leaving"]]


def _taints(node: Row) -> list[dict[str, str]]:
    return [{key: value for key, value in taint.items() if value} for taint in node["taints"]]


def _applied(node: Row) -> str:
    return json.dumps({"labels": node["labels"], "taints": _taints(node)}, sort_keys=True)


def _change(live: Object, wanted: Row) -> Object | None:
    """The merge patch that gives a node the group's labels and taints of now, and takes those of before; None: it has them."""
    annotations = live["metadata"]["annotations"]
    if annotations.get(_APPLIED) == _applied(wanted):
        return None
    before: dict[str, Any] = json.loads(annotations.get(_APPLIED, '{"labels": {}, "taints": []}'))
    labels = {**dict.fromkeys(before["labels"]), **wanted["labels"]}
    ours = {(taint["key"], taint["effect"]) for taint in [*before["taints"], *wanted["taints"]]}
    others = [taint for taint in live["spec"].get("taints", []) if (taint["key"], taint["effect"]) not in ours]
    return {
        "metadata": {"labels": labels, "annotations": {_APPLIED: _applied(wanted)}},
        "spec": {"taints": [*others, *_taints(wanted)]},
    }
