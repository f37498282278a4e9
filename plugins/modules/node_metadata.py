#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sets labels, annotations and taints of sets of nodes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_metadata
short_description: Manage labels, annotations and taints on sets of Kubernetes nodes
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Processes any number of sets and nodes in one call. The module reads all nodes once, in pages. It patches only the nodes that differ, in parallel, with one
    request for each node. If nothing differs, it sends no write requests.
  - Three annotations of a node, C(accel.gpu/labels), C(accel.gpu/annotations) and C(accel.gpu/taints), record everything that the module sets on the node, so
    that these entries can be removed later. Undeclared metadata that the module has not set is left unchanged.
  - This module cannot change a label or taint that M(accel.gpu.gpu_sharing) sets on the nodes of a pool.
extends_documentation_fragment:
  - accel.gpu.kube
  - accel.gpu.lease
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
  - accel.gpu.attributes.progress
options:
  sets:
    description:
      - The sets of nodes, and the metadata for the nodes in each set. A node may be in several sets, as long as the sets do not conflict.
      - Each set must contain one or more of C(label_selectors), C(names) and C(match). A node belongs to the set if it meets all of these conditions. The set
        must also contain C(labels), C(annotations), C(taints) or C(purge).
      - The module reports the errors of all sets together, each with the path of the invalid value.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description:
          - The name of the set in messages and in the result. By default, its position in the list.
        type: str
      state:
        description:
          - V(absent) removes the listed entries, regardless of their values, if this module has set them.
        type: str
        choices: [present, absent]
        default: present
      label_selectors:
        description:
          - Label selectors in the syntax of kubectl. A node must match all of them. An empty list selects all nodes.
        type: list
        elements: str
      names:
        description:
          - Names of existing nodes.
        type: list
        elements: str
      match:
        description:
          - Properties that the nodes must have.
        type: dict
        suboptions:
          model:
            description:
              - A GPU model from the catalog.
            type: str
          pool:
            description:
              - The name of a pool. The node's label C(accel.gpu/pool) must have this value.
            type: str
          labels:
            description:
              - Labels that the nodes must have, with exactly these values.
            type: dict
      labels:
        description:
          - The labels to set. A null value removes the label if this module has set it.
        type: dict
      annotations:
        description:
          - The annotations to set. A null value removes the annotation if this module has set it.
        type: dict
      taints:
        description:
          - The taints to set. An existing taint with the same key and effect gets the new value.
        type: list
        elements: dict
        suboptions:
          key:
            description:
                            - Key of the taint.
            type: str
            required: true
          value:
            description:
                            - Value of the taint.
            type: str
          effect:
            description:
                            - Effect of the taint.
            type: str
            required: true
            choices: [NoSchedule, PreferNoSchedule, NoExecute]
      purge:
        description:
          - Whether to also remove all other labels, annotations and taints that this module has set on these nodes.
        type: bool
        default: false
  parallel:
    description:
      - Maximum number of nodes that are patched at the same time.
    type: int
    default: 16
  report_path:
    description:
      - Path to the file to which the complete result, with all names, is written as JSON. The module itself returns the names of up to 100 nodes.
      - A new file is created with mode 0600, and an existing file keeps its mode. The module fails if the path is a symbolic link.
    type: path
notes:
  - If a node is deleted during the run, it is counted in RV(node_metadata.gone). This is not a failure.
seealso:
  - module: accel.gpu.gpu_sharing
  - module: accel.gpu.nodegroup_nodes
"""

EXAMPLES = r"""
- name: Reserve all L40S nodes for the pods of the vision team
  accel.gpu.node_metadata:
    sets:
      - name: vision
        match: {model: L40S}
        labels: {example.com/team: vision}
        taints:
          - {key: example.com/team, value: vision, effect: NoSchedule}

- name: Pin two nodes to a pool, and remove an annotation from all nodes of two zones
  accel.gpu.node_metadata:
    sets:
      - names: [node-3, node-4]
        labels: {accel.gpu/pool: notebooks}
      - label_selectors: ["topology.kubernetes.io/zone in (a, b)", "!example.com/keep"]
        annotations: {example.com/note: null}

- name: Remove everything that this module has set on any node
  accel.gpu.node_metadata:
    sets:
      - label_selectors: []
        purge: true
"""

RETURN = r"""
node_metadata:
  description: The result of the run or, in check mode, the predicted result.
  returned: always
  type: dict
  contains:
    matched:
      description: Number of nodes in at least one set.
      type: int
      returned: always
      sample: 12
    changed:
      description: Number of nodes that were changed.
      type: int
      returned: always
      sample: 3
    unchanged:
      description: Number of nodes that required no change.
      type: int
      returned: always
      sample: 9
    failed:
      description: Number of nodes that could not be changed.
      type: int
      returned: always
      sample: 0
    gone:
      description: Number of nodes that were deleted before they could be changed.
      type: int
      returned: always
      sample: 0
    names_changed:
      description: Names of up to 100 nodes that were changed.
      type: list
      elements: str
      returned: always
      sample: [node-1, node-2, node-3]
    failures:
      description: The message for each of up to 100 nodes that could not be changed.
      type: dict
      returned: always
      sample: {}
    sets:
      description: The number of nodes in each set.
      type: dict
      returned: always
      sample: {vision: 12}
    after_discovery:
      description: Sets that select a GPU model (C(sets)), and up to 100 nodes whose GPUs are not known yet (C(undiscovered)). These nodes may belong to the
        sets. In check mode, they count as a change.
      type: dict
      returned: when there are such sets and nodes
      contains:
        sets: {description: Sets that select a GPU model., type: list, elements: str, returned: always, sample: [vision]}
        undiscovered: {description: Up to 100 nodes whose GPUs are not known yet., type: list, elements: str, returned: always, sample: [node-7]}
    unchecked:
      description: The reason why the API server did not validate the changes in check mode.
      type: str
      returned: in check mode, if the user is not allowed to send a dry run
      sample: "not checked by the server: this user is not allowed to send a dry run"
    report_path:
      description: Path to the file that contains the complete result.
      type: str
      returned: if O(report_path) is set and the file was written
      sample: /tmp/nodes.json
code:
  description:
    - The reason for the failure. V(partial) - some nodes could not be changed; see RV(node_metadata.failures).
    - V(invalid) - errors in the options or the configuration. V(wrong_cluster) - the connection points to a different cluster. V(connection) - no
      usable connection settings. V(unreachable) - the API server does not respond. V(lease_held) - another run holds the Lease. V(lease_lost) - this run lost
      the Lease. Otherwise, the HTTP status of the API server's error.
  returned: failure
  type: raw
  sample: partial
details:
  description:
    - Details of the failure. C(problems) lists all errors in the options or variables. C(reason), C(method) and C(path) describe the failed request.
  returned: failure
  type: dict
  sample: {reason: Forbidden, method: PATCH, path: /api/v1/nodes/gpu-1}
"""

import typing as t

from ..module_utils.kube.module import GpuModule
from ..module_utils.nodes.node_metadata import node_sets, reconcile

_SPEC: dict[str, dict[str, t.Any]] = {
    "sets": {"type": "list", "elements": "dict", "required": True},
    "parallel": {"type": "int", "default": 16},
    "report_path": {"type": "path"},
}


def work(module: GpuModule) -> dict[str, t.Any]:
    """Apply the metadata of the sets."""
    sets = node_sets(module.params["sets"])
    outcome = reconcile(
        module.client,
        sets,
        check=module.check_mode,
        parallel=max(1, module.params["parallel"]),
        lease=module.lease(),
        progress=module.progress,
    )
    result = outcome.result(module.params["report_path"], module.warn)
    outcome.raise_failures(result)
    return result


def main() -> None:
    """Run the module."""
    module = GpuModule(_SPEC, lease=True)
    module.run(work)


if __name__ == "__main__":
    main()
