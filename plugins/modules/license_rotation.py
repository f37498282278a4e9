#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Loads the token in the Secret into running vGPU drivers."""

from __future__ import annotations

DOCUMENTATION = r"""
module: license_rotation
short_description: Load a new licensing token into running vGPU drivers, or restart them after a drain
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - A driver pod copies the token and C(gridd.conf) when the pod starts, and the license client reads these files only when the client starts. A new token in
    the Secret therefore has no effect on running drivers. This module loads the new token on one node at a time, by default without restarting any pods.
  - On each node whose files differ from the Secret, the module writes the new files next to the old ones. It stops the license client C(nvidia-gridd) with
    SIGTERM so that the client returns its license. It then moves the new files into place and starts the client again. A vGPU without a license keeps its
    performance for 20 minutes.
  - The module continues with the next node only after C(nvidia-smi -q) reports the license of the new client. The module recognizes the new license because it
    appears after the license of the previous client has ended, or because it expires later than the previous license. If a node does not get a license within
    O(wait_timeout), the module fails, and the remaining nodes keep their licenses.
  - With O(preflight=true), the module first checks that every node that needs a new token can reach one of the token's license servers. The check runs in the
    driver pods and includes name resolution, the connection and TLS. If a node cannot reach any of these servers, the module fails, and no node is changed.
  - If the files of a node match the Secret but the node has no license, only the client is restarted. Nodes without a license are changed first, so a repeated
    run changes no other node while an earlier one gets no license.
  - Before the first change, the module also checks that C(FeatureType) in C(gridd.conf) fits the vGPUs that C(nvidia-smi -q), the labels and the pools show.
  - If the module had to wait for another run, it reads the Secret and the nodes again before the first change.
  - With O(restart_drivers=true), the module restarts the drivers instead. It processes one node at a time and drains each node first.
  - If a driver pod is replaced during the rotation, the module waits until the driver runs again on the node and then verifies the node's license. If a node
    leaves the cluster, the rotation continues.
  - If a run is killed, the next run continues the rotation. Finished nodes are recognized by the digests of their files and by a running client with a license.
    They are not changed again. New files that the killed run left next to the files in use are removed.
  - The token is sent to the containers through the standard input of a command, never as an argument. Write the token to the Secret with M(accel.gpu.license)
    first.
extends_documentation_fragment:
  - accel.gpu.kube
  - accel.gpu.variables
  - accel.gpu.lease
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
  - accel.gpu.attributes.progress
options:
  provided:
    description:
      - The return value RV(accel.gpu.license#module:license) of M(accel.gpu.license) in the same run. In check mode, nodes are compared with the files that
        M(accel.gpu.license) would write.
      - The module fails if the driver pods do not mount these files because the change to the ClusterPolicy was held back, or because the pool's
        NVIDIADriver does not refer to the Secret or ConfigMap with these files yet.
    type: dict
  node_names:
    description: Names of the nodes on which to load the token. By default, all vGPU nodes.
    type: list
    elements: str
    default: []
  preflight:
    description:
      - Whether to check that all nodes can reach the token's license servers before the first node is changed.
      - In check mode with O(provided), the module checks the license servers of the token that M(accel.gpu.license) would write.
    type: bool
    default: true
  restart_drivers:
    description:
      - Whether to restart the driver of each node that needs a change, instead of loading the token into the running driver. The node is cordoned, the pods
        that use the node's GPUs are evicted within their disruption budgets, and the driver pod is deleted. When the new driver has a license, the node is
        uncordoned.
      - The nodes are drained with the settings C(rollout.drain), C(rollout.force), C(rollout.grace_period) and C(rollout.drain_timeout) of their pools. If
        pods block the drain of a node, the module fails, and no node is changed.
      - If pods tolerate the cordon and are scheduled to the node during the drain, the driver is not restarted. The module then fails and names these pods.
      - A run without this option completes the unfinished restarts of a killed run, but does not evict any pods. A run with this option also evicts pods
        that were scheduled to a node without a running driver after the previous run was killed.
    type: bool
    default: false
  restart_timeout:
    description: Seconds to wait until the driver of one node is ready after its restart.
    type: int
    default: 1200
  wait_timeout:
    description: Seconds to wait for the license of one node.
    type: int
    default: 300
  wait_sleep:
    description: Seconds between two reads of the license state.
    type: int
    default: 1
seealso:
  - module: accel.gpu.license
  - module: accel.gpu.license_info
"""

EXAMPLES = r"""
- name: Write a new token to the Secret
  accel.gpu.license:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_pools: "{{ gpu_pools }}"
    token_path: /srv/nvidia/new.tok
  register: written

- name: Load the token into running drivers
  accel.gpu.license_rotation:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_pools: "{{ gpu_pools }}"
    provided: "{{ written.license }}"

- name: Restart the driver of one node, after a drain
  accel.gpu.license_rotation:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_pools: "{{ gpu_pools }}"
    restart_drivers: true
    node_names: [gpu-1]
"""

RETURN = r"""
license_rotation:
  description: The result for the nodes. Also returned after a failure.
  returned: success
  type: dict
  contains:
    rotated:
      description:
        - Up to 100 nodes on which the token was loaded or, in check mode, would be loaded. The nodes are listed in the order of the rotation. The list begins
          with the first_nodes of O(provided), which M(accel.gpu.license) has changed.
      type: list
      elements: str
      returned: always
      sample: [gpu-1]
    rotated_count: {description: The number of nodes on which the token was or would be loaded., type: int, returned: always, sample: 1}
    restarted:
      description: Up to 100 nodes that were drained and whose drivers were restarted or, in check mode, would be restarted.
      type: list
      elements: str
      returned: always
      sample: [gpu-1]
    evicted:
      description:
        - Up to 100 pods that were evicted or, in check mode, would be evicted. They ran on the nodes in RV(license_rotation.restarted), on nodes where this
          run completed a driver restart that an earlier run had started, or on the node in RV(license_rotation.failed).
      type: list
      elements: str
      returned: always
      sample: [team/notebook-0]
    removed: {description: Up to 100 nodes that left the cluster during the rotation., type: list, elements: str, returned: always, sample: []}
    unchanged_count: {description: The number of nodes that needed no change., type: int, returned: always, sample: 19}
    pending:
      description:
        - Up to 100 nodes whose rotation was not started because of a failure. After the failure V(partial), the list contains the nodes that come after the
          failed node. After V(preflight) or V(blocked), it contains all nodes that need the rotation. After V(held_back), it contains all selected nodes, even
          if they do not need a change.
      type: list
      elements: str
      returned: always
      sample: []
    failed: {description: The node that failed; null if no node failed., type: str, returned: always, sample: null}
    reached:
      description:
        - The last step that the failed node reached; null if no node failed. V(unchanged) - no step was completed. V(written) - the new files are next to the
          old ones, and the license client is still running. V(ended) - the license client was stopped. V(replaced) - the new files have replaced the old ones.
          V(started) - the license client was started with the new files. V(draining) - the node was being drained before the restart of its driver. It was
          uncordoned again, unless the connection or the Lease was lost. V(deleted) - the driver pod was deleted, and the node is still cordoned. V(unfinished)
          - the run was completing a driver restart that an earlier run had started, and the node is still cordoned.
      type: str
      returned: always
      sample: null
    skipped:
      description: Up to 100 nodes that could not be read, or whose driver is not running.
      type: list
      elements: str
      returned: success
      sample: []
    failing:
      description: Up to 100 nodes in RV(license_rotation.skipped) whose driver has failed. Nodes whose driver is still starting are not included.
      type: list
      elements: str
      returned: success
      sample: []
code:
  description:
    - The reason for the failure. V(partial) - a node failed or got no license; the nodes before it are finished. V(preflight) - nodes cannot reach any license
      server of the new token, or C(FeatureType) does not fit their vGPUs, and no node was changed. V(blocked) - nodes cannot be drained for
      O(restart_drivers), and no node was changed. V(held_back) - the
      driver pods do not mount the files of O(provided), and no node was changed. V(invalid) - errors in the options or the variables, or an object without a
      valid token. V(wrong_cluster) - the connection points to a different cluster. V(connection) - no usable connection settings. V(unreachable) -
      the API server does not respond. V(lease_held) - another run holds the Lease. V(lease_lost) - this run lost it. Otherwise, the HTTP status of the API
      server's error.
  returned: failure
  type: raw
  sample: partial
details:
  description:
    - Details of the failure. C(problems) lists all errors. C(reason), C(method) and C(path) describe the failed request.
  returned: failure
  type: dict
  sample: {}
"""

import contextlib
import dataclasses
import typing as t

from ..module_utils.catalog.names import LICENSING_CONFIG
from ..module_utils.core.errors import InvalidOptions, ModuleFailure
from ..module_utils.core.messages import MAX_LISTED, abbreviate_nodes, join_words
from ..module_utils.core.module import ArgumentSpec
from ..module_utils.core.waits import WaitOptions
from ..module_utils.gpu_operator.cluster_policy import ALLOW_DRIVER_ROLLOUT, active_policy
from ..module_utils.gpu_operator.detect import adapt_plan
from ..module_utils.kube.lease import Lease, LeaseLost
from ..module_utils.kube.paths import CLUSTER_POLICIES
from ..module_utils.licensing.cluster import ROTATION_OPTIONS, LicenseCluster
from ..module_utils.licensing.container import LicenseContainers
from ..module_utils.licensing.content import LicenseTarget
from ..module_utils.licensing.diagnosis import LicenseNode
from ..module_utils.licensing.module import tokens_in
from ..module_utils.licensing.rotation import RotationResult, Rotator, Survey, read_survey
from ..module_utils.pools.module import PlanModule
from ..module_utils.schema.validators import object_name

_NLS_ENABLED = ".".join(("spec", *LICENSING_CONFIG, "nlsEnabled"))

_SPEC: ArgumentSpec = {
    "provided": {"type": "dict"},
    "node_names": {"type": "list", "elements": "str", "default": []},
    **ROTATION_OPTIONS,
}


class TokenHeldBack(ModuleFailure):
    """Raised if the driver pods do not mount the object with the token, because the required change was held back."""

    code = "held_back"


class LicenseRotationModule(PlanModule):
    """A module with the option `node_names`."""

    def secrets(self) -> set[str]:
        """Return the secrets, and tokens that were set instead of node names. A node name can have three long parts, but contains no capital letters."""
        return super().secrets() | {text for text in tokens_in(self.params["node_names"]) if object_name(text)}


def work(module: PlanModule) -> dict[str, t.Any]:
    """Read all nodes, and rotate those that differ from their Secret."""
    lease = module.lease()
    lease.observe()
    containers = LicenseContainers(module.client)
    survey = _survey(module, containers, lease)
    # The module license has rotated these nodes in the same run, before it changed the Secret.
    provided = module.params["provided"] or {}
    first = list(provided.get("first_nodes") or ())
    result = RotationResult(
        rotated=first,
        restarted=list(first) if module.params["restart_drivers"] else [],
        evicted=list(provided.get("evicted") or ()),
    )
    try:
        with contextlib.ExitStack() as stack:
            if survey.changed and not module.check_mode:
                stack.enter_context(lease)
                if not lease.untouched:
                    # Another run may have written the Secret or rotated nodes before this run held the lease.
                    survey = _survey(module, containers, lease)
            for text in survey.warnings:
                module.warn(text)
            names = [rotation.node.name for rotation in survey.rotations]
            done = {*names, *survey.skipped, *first}
            result.unchanged = sum(node.name not in done for node in survey.nodes)
            # The driver pod of such a node may have been replaced before the Secret was changed.
            result.rotated = [name for name in first if name not in names]
            result.restarted = [name for name in result.restarted if name not in names]
            if module.check_mode:
                result.rotated += names
                result.restarted += [rotation.node.name for rotation in survey.rotations if rotation.restarts_driver]
                result.evicted += [pod for pods in survey.pods_to_evict.values() for pod in pods]
            else:
                containers.remove_leftovers(survey.nodes, survey.readings)
                waiting = WaitOptions(module.params["wait_timeout"], module.params["wait_sleep"], module.progress)
                restart_timeout = module.params["restart_timeout"]
                rotator = Rotator(containers, waiting, lease, survey.restarts, restart_timeout)
                rotator.run(survey.rotations, result)
                if result.removed:
                    module.warn(
                        f"Not rotated: {abbreviate_nodes(result.removed)} left the cluster during the rotation."
                    )
    except LeaseLost as error:
        # The loss of the Lease may be noticed only after the last node.
        error.partial = error.partial or {"license_rotation": result.as_dict()}
        raise
    return {
        "changed": survey.changed,
        "license_rotation": {
            **result.as_dict(),
            "skipped": survey.skipped[:MAX_LISTED],
            "failing": survey.failing[:MAX_LISTED],
        },
        "diff": survey.diff(),
    }


def _survey(module: PlanModule, containers: LicenseContainers, lease: Lease) -> Survey:
    """Return the current state of the Secret and the nodes. Raise TokenHeldBack, or an error of read_survey()."""
    provided = module.params["provided"]
    if provided and not {"objects", "policy", "held_back"} <= provided.keys():
        raise InvalidOptions(
            ["provided: is not the value of license in a result of accel.gpu.license; set it to that value"]
        )
    policy = t.cast("dict[str, t.Any] | None", active_policy(module.client.list_known(CLUSTER_POLICIES)))
    cluster = LicenseCluster(module.client, adapt_plan(module.client, module.plan, policy), policy)
    nodes = cluster.selected_nodes(module.params["node_names"])
    if provided:
        _require_mounted(cluster, nodes, provided)
        if module.check_mode:
            cluster.predict(provided)
    survey = read_survey(module, cluster, nodes, containers, lease)
    if module.check_mode and provided:
        first = provided.get("first_nodes") or ()
        survey = dataclasses.replace(
            survey,
            rotations=[each for each in survey.rotations if each.node.name not in first],
            pods_to_evict={name: pods for name, pods in survey.pods_to_evict.items() if name not in first},
        )
    return survey


def _require_mounted(cluster: LicenseCluster, nodes: t.Sequence[LicenseNode], provided: t.Mapping[str, t.Any]) -> None:
    """Raise TokenHeldBack if driver pods do not mount the files of the module license. A different object with the same content is accepted."""
    held_back = provided["held_back"]
    pending = {"license_rotation": RotationResult(pending=[node.name for node in nodes]).as_dict()}
    mounted = [] if _NLS_ENABLED in held_back else [expected.files.digests() for expected in cluster.expected.values()]
    missing = [item for item in provided["objects"] if item["digests"] not in mounted]
    if held_back and missing:
        labels = join_words([LicenseTarget(item["kind"], item["name"]).label(item["namespace"]) for item in missing])
        raise TokenHeldBack(
            f"No node was rotated: the driver pods do not mount {labels}. The change to {join_words(held_back)} of the ClusterPolicy was held "
            f"back, because it restarts the driver. Set {ALLOW_DRIVER_ROLLOUT} in a maintenance window. The drivers then start with the token.",
            pending,
        )
    for item in provided["objects"]:
        target = LicenseTarget(item["kind"], item["name"], tuple(item["pools"]))
        if text := cluster.mount_problem(nodes, target, item["digests"]):
            raise TokenHeldBack(f"No node was rotated. {text}", pending)


def main() -> None:
    """Run the module."""
    LicenseRotationModule(_SPEC, lease=True).run(work)


if __name__ == "__main__":
    main()
