# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Explains why nodes do not match their pools' declarations: the differences and their duration, failing pods, and the remedy."""

from __future__ import annotations

import typing as t

from ..catalog import operands
from ..cluster_state import operand_pods
from ..cluster_state.cluster_policy import active_policy, plugin_configmap
from ..cluster_state.operand_pods import ContainerFailure
from ..drain.operand_diagnosis import log_end
from ..kube.errors import ApiError
from ..kube.paths import CLUSTER_POLICIES, NAMESPACES
from ..schema.messages import MAX_NAMED, abbreviate

if t.TYPE_CHECKING:
    from ..cluster_state.node import Node
    from ..cluster_state.node_check import NodeDrift
    from ..kube.client import Client
    from .run_context import RunContext

# The name of the main container, if it is not the pod's label app.
_CONTAINERS = {operands.PLUGIN: "nvidia-device-plugin"}


def diagnose(context: RunContext, findings: t.Mapping[str, NodeDrift], undiscovered: t.Sequence[Node] = ()) -> str:
    """The message about these nodes and about undiscovered nodes; it describes only the first few nodes in detail."""
    client, namespace = context.client, context.namespace
    pods = list(client.list(f"{NAMESPACES}/{namespace}/pods", label_selector=operand_pods.CONFIGMAP_PODS_SELECTOR))
    failures = operand_pods.container_failures(pods)
    lines: list[str] = []
    for name in sorted(findings)[:MAX_NAMED]:
        finding = findings[name]
        parts = [str(finding)]
        seconds = context.since.seconds(name, finding.differences)
        if not finding.final:
            parts.append(f"unchanged for {seconds:.0f} s")
        parts += [_describe_failure(client, namespace, failure) for failure in failures.get(name, ())]
        if operand_pods.pod_of(pods, operands.PLUGIN, name) is None:
            parts.append(
                f"no {operands.PLUGIN} pod runs there: check the node's label nvidia.com/gpu.deploy.device-plugin and its taints"
            )
        elif finding.lost and _is_ready(pods, operands.PLUGIN, name):
            parts.append(
                f"its {operands.PLUGIN} pod is ready, so the GPUs that are missing are unhealthy: look for Xid errors in the log of the pod and in "
                "the kernel log of the node, and run nvidia-smi in its driver pod"
            )
        operand = finding.operand or (operands.PLUGIN if finding.lost else "")
        blamed = operand_pods.pod_of(pods, operand, name)
        if blamed:
            log = log_end(client, namespace, blamed, _CONTAINERS.get(operand, operand), previous=False)
            parts.append(
                f"the log of {blamed} ends: {log or '(empty)'}; correct the reported problem, then retry with "
                f"kubectl -n {namespace} delete pod {blamed}"
            )
        lines.append("; ".join(parts))
    if len(findings) > MAX_NAMED:
        lines.append(f"and {len(findings) - MAX_NAMED} more node(s)")
    by_nfd = [node.name for node in undiscovered if node.has_nfd_labels]
    if by_nfd:
        lines.append(f"{len(by_nfd)} GPU node(s) that gpu-feature-discovery has not labeled: {abbreviate(by_nfd)}")
    without = [node.name for node in undiscovered if not node.has_nfd_labels]
    if without:
        lines.append(
            f"{len(without)} node(s) that NFD has not labeled although its worker runs there: {abbreviate(without)}; check the logs of the workers"
        )
    if undiscovered or not all(finding.final for finding in findings.values()):
        # A final finding contains its own remedy.
        lines.append(_advice(context, bool(failures)))
    return "\n".join(lines)


def _is_ready(pods: t.Iterable[operand_pods.Pod], app: str, node: str) -> bool:
    return any(
        operand_pods.app_of(pod) == app and operand_pods.node_of(pod) == node and operand_pods.is_ready(pod)
        for pod in pods
    )


def _describe_failure(client: Client, namespace: str, failure: ContainerFailure) -> str:
    log = log_end(client, namespace, failure.pod, failure.container, previous=True) if failure.restarts else ""
    return f"{failure}" + (f"; its log ends: {log}" if log else "")


def _advice(context: RunContext, pods_fail: bool) -> str:
    namespace, configmap = context.namespace, context.plan.config.name
    try:
        named = plugin_configmap(active_policy(context.client.list(CLUSTER_POLICIES)))
    except ApiError:
        # Even without permission to read the ClusterPolicy, the rest of the advice is useful.
        named = configmap
    if named != configmap:
        return (
            f"The ClusterPolicy names {named or 'no device plugin ConfigMap'}, and not {configmap}, so the node labels have no effect: "
            "run the role gpu_operator (module cluster_policy) first."
        )
    if pods_fail:
        return (
            f"Check these pods with kubectl -n {namespace} describe pod and kubectl -n {namespace} logs --previous, "
            "then run the playbook again."
        )
    return (
        f"Check the pods of {operands.PLUGIN} and {operands.DISCOVERY} in namespace {namespace}; "
        "increase wait_timeout if they are only slow. The next run continues from here."
    )
