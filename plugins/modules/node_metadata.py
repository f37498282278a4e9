#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Labels, annotations and taints of sets of nodes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nodes
short_description: Label, annotate and taint sets of Kubernetes nodes
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - One call serves any number of sets and nodes. All nodes are read once, in pages; only those that differ are patched,
    one request a node, several at a time. Where nothing differs nothing is sent.
  - What this module puts on a node is noted in annotations of the node (C(accel.gpu/labels), C(accel.gpu/annotations),
    C(accel.gpu/taints)), so that it can be taken out again. What was there before, and what others put there, stays.
  - A label or taint that a pool puts on its nodes (M(accel.gpu.gpu_sharing)) cannot be changed here.
extends_documentation_fragment:
  - accel.gpu.kube
  - accel.gpu.lease
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
options:
  sets:
    description:
      - The sets of nodes and what their nodes are to carry. A node may be in several sets, as long as they do not
        contradict each other.
      - Which nodes are in a set is said by one or more of C(selector) (a label selector as kubectl takes it, an empty
        one for all nodes), C(names) (a list of node names, which must exist) and C(match) (a map of C(model), a GPU
        model of the catalog, C(pool), the name in the node's label C(accel.gpu/pool), and C(labels), a map of exact
        labels). A node must meet all that are given.
      - C(labels) and C(annotations) are maps. A value of null takes the entry out, if this module put it there.
      - C(taints) is a list of maps with C(key), C(effect) (C(NoSchedule), C(PreferNoSchedule) or C(NoExecute)) and
        C(value), which may be left out. A taint of the same key and effect gets the value.
      - C(state=absent) takes out what is listed, if this module put it there; values do not matter then.
      - C(purge=true) also takes out of these nodes everything else that this module put there.
      - C(name) is what messages and the result call the set.
    type: list
    elements: dict
    required: true
  parallel:
    description:
      - How many nodes are patched at the same time.
    type: int
    default: 16
  report_path:
    description:
      - File for the whole result as JSON, with all names. What the module returns names up to 100 nodes.
      - The file is made with mode 0600, one that exists keeps its mode; a symbolic link is refused.
    type: path
notes:
  - A node that vanishes meanwhile is counted in RV(nodes.gone), and is no failure.
"""

EXAMPLES = r"""
- name: All L40S nodes belong to the team vision, and only its pods run there
  accel.gpu.node_metadata:
    sets:
      - name: vision
        match: {model: L40S}
        labels: {example.com/team: vision}
        taints:
          - {key: example.com/team, value: vision, effect: NoSchedule}

- name: Pin two nodes to a pool, and drop an annotation from all nodes of a zone
  accel.gpu.node_metadata:
    sets:
      - names: [node-3, node-4]
        labels: {accel.gpu/pool: notebooks}
      - selector: topology.kubernetes.io/zone in (a, b),!example.com/keep
        annotations: {example.com/note: null}

- name: Take out of all nodes whatever this module has put there
  accel.gpu.node_metadata:
    sets:
      - selector: ""
        purge: true
"""

RETURN = r"""
nodes:
  description: What was done, or in check mode would be done.
  returned: always
  type: dict
  contains:
    matched:
      description: How many nodes are in at least one set.
      type: int
      returned: always
    changed:
      description: How many of them were changed.
      type: int
      returned: always
    unchanged:
      description: How many of them were as they should be.
      type: int
      returned: always
    failed:
      description: How many could not be changed.
      type: int
      returned: always
    gone:
      description: How many vanished before they could be changed.
      type: int
      returned: always
    names_changed:
      description: Names of up to 100 nodes that were changed.
      type: list
      elements: str
      returned: always
    failures:
      description: The message for each of up to 100 nodes that could not be changed.
      type: dict
      returned: always
    sets:
      description: For each set, how many nodes are in it.
      type: dict
      returned: always
      sample: {vision: 12}
    after_discovery:
      description: Sets that ask for a GPU model, where nodes whose GPU is not known yet (C(undiscovered), up to 100
        names) may come to belong to them. In check mode they count as a change.
      type: dict
      returned: when there are such sets and nodes
      sample: {sets: [vision], undiscovered: [node-7]}
    note:
      description: Why a preview may be wrong.
      type: str
      returned: in check mode, without the right to a dry run
    report_path:
      description: Where the whole result is.
      type: str
      returned: when O(report_path) is given
"""

import typing as t

from ..module_utils.kube.module import GpuModule
from ..module_utils.node_metadata.node_sets import node_sets
from ..module_utils.node_metadata.reconciler import reconcile

_SPEC: dict[str, dict[str, t.Any]] = {
    "sets": {"type": "list", "elements": "dict", "required": True},
    "parallel": {"type": "int", "default": 16},
    "report_path": {"type": "path"},
}


def work(module: GpuModule) -> dict[str, t.Any]:
    """Bring the nodes of the sets to what they are to carry."""
    sets = node_sets(module.params["sets"])
    outcome = reconcile(
        module.client,
        sets,
        check=module.check_mode,
        parallel=max(1, module.params["parallel"]),
        lease=module.lease(),
        progress=module.progress,
    )
    result = outcome.result(module.params["report_path"])
    outcome.raise_failures(result)
    return result


def main() -> None:
    """Run as a module."""
    module = GpuModule(_SPEC, lease=True)
    module.run(work)


if __name__ == "__main__":
    main()
