#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads and verifies the license state of vGPU nodes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: license_info
short_description: Read the license state of every vGPU node, and verify it
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Reads whether the vGPUs of each node have a license, when the license expires, and whether the driver pod uses the token and the C(gridd.conf) from the
    Secret. The Kubernetes API does not show the license state, and the only symptom of a missing license is a slow vGPU.
  - The module lists the pods once and runs commands in them in parallel (C(nvidia-smi -q) and C(sha256sum)). On nodes without a license, it also reads the
    clock.
  - For each node without a license, the result contains the most specific cause that the node's status and files indicate, and the remedy.
  - Nodes need a license if gpu-feature-discovery has labeled their GPU as a vGPU, or if their pool declares C(driver.type=vgpu).
extends_documentation_fragment:
  - accel.gpu.kube
  - accel.gpu.variables
  - accel.gpu.attributes
  - accel.gpu.attributes.info
  - accel.gpu.attributes.progress
options:
  source:
    description:
      - Source of the license state.
      - With V(nvidia_smi), the module runs C(nvidia-smi -q) in the driver pod of each node. The user needs permission to run commands in these pods
        (C(pods/exec)).
      - With V(dcgm_exporter), the module reads the metric C(DCGM_FI_DEV_VGPU_LICENSE_STATUS) from the C(dcgm-exporter) pod of each node through the API server.
        The user then needs permission to C(get) C(pods/proxy) instead of C(pods/exec). The metric shows only whether a node has a license. It does not show the
        product, the expiry, the files, the clock or the cause, so O(compare_files) and O(check_services) have no effect.
      - If the C(dcgm-exporter) of a node does not export this metric, the node's state is V(unknown). By default, the metric is exported. If
        C(dcgmExporter.config) of the ClusterPolicy names a custom list of metrics, that list must contain the metric. The exporter reads the state every 30
        seconds by default.
    type: str
    choices: [nvidia_smi, dcgm_exporter]
    default: nvidia_smi
  require_licensed:
    description:
      - Whether the module waits until every node has a license. The module fails if this takes longer than O(wait_timeout).
      - The module lists the nodes again for each read. Nodes that join or become ready in the meantime are also verified. Deleted nodes are ignored.
      - For nodes that are not ready, only a warning is shown. The same applies to nodes that have no driver pod and are either cordoned or in no pool.
    type: bool
    default: false
  wait_timeout:
    description: With O(require_licensed=true), seconds to wait for licenses.
    type: int
    default: 300
  wait_sleep:
    description: Seconds between two reads of the nodes without a license. A node with a license is read again only if its driver has restarted.
    type: int
    default: 5
  compare_files:
    description: Whether to compare the files in the containers with the Secret. Without this comparison, the module runs one command on each node instead of
      two.
    type: bool
    default: true
  check_services:
    description: Whether to check that the driver pods of nodes without a license can reach the token's license servers. The check includes name resolution, the
      connection and TLS.
    type: bool
    default: true
  min_days:
    description: The module warns about a token that expires in fewer than this number of days.
    type: int
    default: 30
  limit:
    description: The maximum number of nodes in the result. Nodes with a problem come first.
    type: int
    default: 100
seealso:
  - module: accel.gpu.license
  - module: accel.gpu.license_rotation
  - plugin: accel.gpu.license_report_lines
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Read the license state of every node
  accel.gpu.license_info:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_pools: "{{ gpu_pools }}"
  register: licenses

- name: Fail unless every node gets a license within ten minutes
  accel.gpu.license_info:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_pools: "{{ gpu_pools }}"
    require_licensed: true
    wait_timeout: 600

- name: Read the license state without permission to run commands in driver pods
  accel.gpu.license_info:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_pools: "{{ gpu_pools }}"
    source: dcgm_exporter
  register: licenses
"""

RETURN = r"""
license_info:
  description: The license state of the cluster. Also returned after a timeout.
  returned: success
  type: dict
  contains:
    counts:
      description: The number of nodes that need a license, and the number of these nodes in each state.
      type: dict
      returned: always
      contains:
        nodes: {description: Nodes that need a license., type: int, returned: always, sample: 20}
        licensed: {description: Nodes with a license., type: int, returned: always, sample: 19}
        unlicensed: {description: Nodes without a license., type: int, returned: always, sample: 1}
        unknown: {description: Nodes whose state could not be read., type: int, returned: always, sample: 0}
        not_required:
          description: Nodes that do not currently need a license. These nodes are not ready, or they have no driver pod and are cordoned or in no pool.
          type: int
          returned: always
          sample: 0
        outdated: {description: Nodes whose token differs from the one in their Secret., type: int, returned: always, sample: 1}
    days_left: {description: Whole days until the first token expires; null if none expires., type: int, returned: always, sample: 364}
    summary:
      description: The state of the nodes and the remaining time of the token that expires first, as one line; empty if the cluster has no vGPU nodes.
      type: str
      returned: always
      sample: 19 of 20 vGPU nodes have a license; the token expires in 364 days
    problems:
      description:
        - Problems that need attention, one sentence each.
        - The list includes nodes without a verified license, nodes whose token differs from the one in their Secret, driver pods that do not mount the Secret
          that their pool declares, and objects that contain no valid token or a token that expires within O(min_days).
      type: list
      elements: str
      returned: always
      sample: ["1 of 20 nodes have no verified license."]
    warnings:
      description: Problems of nodes and objects, with their remedies.
      type: list
      elements: str
      returned: always
      sample: ["Node gpu-7: Unlicensed (Restricted). The token differs from the one in Secret gpu-operator/licensing-config. Run the playbook license_rotate."]
    objects:
      description: The objects that contain the tokens. The values of a token are null if the token does not exist or if the user is not allowed to read it.
      type: list
      elements: dict
      returned: always
      contains:
        kind: {description: V(Secret) or V(ConfigMap)., type: str, returned: always, sample: Secret}
        name: {description: Name., type: str, returned: always, sample: licensing-config}
        namespace: {description: Namespace of the operator., type: str, returned: always, sample: gpu-operator}
        pools: {description: The pools that declare the object., type: list, elements: str, returned: always, sample: [vdi]}
        complete: {description: Whether the object contains a token and C(gridd.conf)., type: bool, returned: always, sample: true}
        readable: {description: Whether the user is allowed to read the object., type: bool, returned: always, sample: true}
        fingerprint: {description: The first 16 digits of the SHA-256 digest of the token., type: str, returned: always, sample: 5e9d51ee2b5cd3c0}
        expires: {description: Time at which the token expires., type: str, returned: always, sample: '2027-03-01T12:00:00Z'}
        not_before: {description: Start of the token's validity., type: str, returned: always, sample: '2026-03-01T12:00:00Z'}
        days_left: {description: Whole days until the token expires., type: int, returned: always, sample: 364}
        server_type: {description: V(cls) or V(dls)., type: str, returned: always, sample: dls}
        services:
          description: The services of the license server.
          type: list
          elements: dict
          returned: always
          contains:
            host: {description: Name or address., type: str, returned: always, sample: dls.example.com}
            port: {description: Port., type: int, returned: always, sample: 443}
            service: {description: Name of the service., type: str, returned: always, sample: lease}
        valid: {description: Whether the token is valid now., type: bool, returned: always, sample: true}
        problem:
          description: The reason why driver pods cannot get a license with this object, and the remedy; empty if they can.
          type: str
          returned: always
          sample: ''
    nodes:
      description: Up to O(limit) nodes. Nodes with a problem come first.
      type: list
      elements: dict
      returned: always
      contains:
        name: {description: Name of the node., type: str, returned: always, sample: gpu-1}
        pool: {description: Pool of the node; null if the node is in no pool., type: str, returned: always, sample: vdi}
        vgpu_type: {description: Product name of the node's GPU., type: str, returned: always, sample: NVIDIA-A100-10C}
        state:
          description: V(licensed), V(unlicensed), V(not_applicable) if the driver reports no licensed product, or V(unknown).
          type: str
          returned: always
          sample: licensed
        status: {description: The status as reported by O(source)., type: str, returned: always, sample: 'Licensed (Expiry: 2026-3-2 12:00:00 GMT)'}
        product: {description: The licensed product; empty with O(source=dcgm_exporter)., type: str, returned: always, sample: NVIDIA Virtual Compute Server}
        expires:
          description: Time by which the license must be renewed; null for a permanent license, and with O(source=dcgm_exporter).
          type: str
          returned: always
          sample: '2026-03-02T12:00:00Z'
        pod: {description: Name of the driver pod., type: str, returned: always, sample: nvidia-driver-daemonset-x7k2p}
        driver_started: {description: Start time of the driver container., type: str, returned: always, sample: '2026-03-01T08:00:00Z'}
        token_matches: {description: Whether the node's token is the one in the Secret; null if this is not known., type: bool, returned: always, sample: true}
        token_days_left:
          description: Whole days until the node's token expires. Null if the node does not use the token in the Secret.
          type: int
          returned: always
          sample: 364
        config_matches: {description: Whether the node's C(gridd.conf) is the one in the Secret., type: bool, returned: always, sample: true}
        clock_skew:
          description: Number of seconds by which the node's clock is ahead of this machine's clock. Only read on nodes without a license.
          type: float
          returned: always
          sample: 0
        services:
          description: The license servers that were checked. They are only checked with O(check_services=true), and only from nodes without a license.
          type: list
          elements: dict
          returned: always
          contains:
            address: {description: Host and port., type: str, returned: always, sample: 'dls.example.com:443'}
            reachable: {description: Whether TLS works; null if the node cannot check it., type: bool, returned: always, sample: true}
            layer: {description: 'The layer that failed: V(dns), V(tcp), V(tls), V(proxy) or V(unknown); null if none failed.', type: str, returned: always,
              sample: null}
            message: {description: The failure and the remedy., type: str, returned: always, sample: ''}
        problem: {description: The problem and the remedy; empty if there is none., type: str, returned: always, sample: ''}
code:
  description:
    - The reason for the failure. V(timeout) - with O(require_licensed=true), nodes still had no license after O(wait_timeout), or the GPU operator is not
      installed. V(invalid) - errors in the options or the variables. V(wrong_cluster) - the connection points to a different cluster. V(connection) - no usable
      connection settings. V(unreachable) - the API server does not respond. Otherwise, the HTTP status of the API server's error.
  returned: failure
  type: raw
  sample: timeout
details:
  description:
    - Details of the failure. C(problems) lists all errors. C(reason), C(method) and C(path) describe the failed request.
  returned: failure
  type: dict
  sample: {}
"""

import functools
import typing as t

from ..module_utils.core.module import ArgumentSpec
from ..module_utils.core.waits import WaitOptions
from ..module_utils.gpu_operator.cluster_policy import active_policy
from ..module_utils.gpu_operator.detect import adapt_plan
from ..module_utils.kube.paths import CLUSTER_POLICIES
from ..module_utils.licensing.cluster import LicenseCluster, LicenseVerification
from ..module_utils.licensing.container import LicenseContainers
from ..module_utils.licensing.diagnosis import (
    LIMIT_OPTIONS,
    LicenseLimits,
    NodeState,
    missing_text,
    overview,
    problem_lines,
)
from ..module_utils.licensing.license_metrics import LicenseMetrics
from ..module_utils.licensing.token import utc_now
from ..module_utils.pools.module import PlanModule

if t.TYPE_CHECKING:
    from ..module_utils.licensing.cluster import ReadAll

_SPEC: ArgumentSpec = {
    "source": {"type": "str", "choices": ["nvidia_smi", "dcgm_exporter"], "default": "nvidia_smi"},
    "require_licensed": {"type": "bool", "default": False},
    "wait_timeout": {"type": "int", "default": 300},
    "wait_sleep": {"type": "int", "default": 5},
    "compare_files": {"type": "bool", "default": True},
    "check_services": {"type": "bool", "default": True},
    **LIMIT_OPTIONS,
    "limit": {"type": "int", "default": 100},
}


def work(module: PlanModule) -> dict[str, t.Any]:
    """Read all nodes once. With `require_licensed`, read them until each node that needs a license has one."""
    params = module.params
    policy = t.cast("dict[str, t.Any] | None", active_policy(module.client.list_known(CLUSTER_POLICIES)))
    plan = adapt_plan(module.client, module.plan, policy)
    containers = LicenseContainers(module.client)
    read_all: ReadAll = functools.partial(containers.read_all, files=params["compare_files"])
    checks_services = params["check_services"]
    if params["source"] == "dcgm_exporter":
        read_all, checks_services = LicenseMetrics(module.client, plan.operator.namespace).read_all, False
    verification = LicenseVerification(lambda: LicenseCluster(module.client, plan, policy), read_all, module.progress)

    def explain() -> list[NodeState]:
        return verification.check_services(containers) if checks_services else verification.states

    def result() -> dict[str, t.Any]:
        cluster, states = verification.cluster, verification.states
        info = overview(
            states,
            list(cluster.expected.values()),
            utc_now(),
            LicenseLimits.from_params(params),
            mount_problems=cluster.mount_problems([state.node for state in states]),
            no_object_text=cluster.no_object_text,
            limit=params["limit"],
        )
        return {"license_info": info}

    if params["require_licensed"] and not module.check_mode:
        # Without an operator, no driver will start.
        timeout, cause = (
            (params["wait_timeout"], []) if policy is not None else (0, [verification.cluster.no_object_text])
        )
        waiting = WaitOptions(timeout, params["wait_sleep"], module.progress)
        waiting.until(
            verification.read,
            lambda states: not _missing(states),
            describe=lambda states: "\n".join([_summary(states), *cause, *problem_lines(_missing(explain()))]),
            partial=lambda states: result(),
            progress_text=_summary,
        )
    else:
        verification.read()
        explain()
    return {"changed": False, **result()}


def _missing(states: t.Iterable[NodeState]) -> list[NodeState]:
    return [state for state in states if state.is_missing]


def _summary(states: t.Sequence[NodeState]) -> str:
    return missing_text(len(_missing(states)), len(states))


def main() -> None:
    """Run the module."""
    PlanModule(_SPEC).run(work)


if __name__ == "__main__":
    main()
