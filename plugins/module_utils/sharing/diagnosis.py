# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why nodes do not become what their pools declare: what is seen, since when, which pod ails, and what to do."""

from __future__ import annotations

import typing as t

from ..cluster_state import operand_pods
from ..cluster_state.operand_pods import ContainerFailure
from ..common.wait import Since
from ..drain.operand_diagnosis import log_end
from ..kube.errors import ApiError
from ..kube.paths import CLUSTER_POLICIES

if t.TYPE_CHECKING:
    from ..cluster_state.node_check import Finding
    from ..kube.client import Client
    from ..pools.plan import Plan

_TOLD = 5


def diagnose_node(client: Client, plan: Plan, since: Since, finding: Finding) -> str:
    """The story of one node; `since` has noted its findings as they were seen."""
    return diagnose(client, plan, {finding.node: finding}, [], since)


def diagnose(
    client: Client, plan: Plan, findings: t.Mapping[str, Finding], undiscovered: t.Sequence[str], since: Since
) -> str:
    """Told for the first few nodes; the cluster is asked for the agents' pods only now, when something is wrong."""
    namespace = plan.config.namespace
    pods = list(client.list(f"/api/v1/namespaces/{namespace}/pods", label_selector=operand_pods.SELECTOR))
    ailing = operand_pods.container_failures(pods)
    unserved = set(operand_pods.missing(pods, findings))
    told: list[str] = []
    for name in sorted(findings)[:_TOLD]:
        seconds = since.note(name, findings[name].seen)
        why = [_ailment(client, namespace, ailment) for ailment in ailing.get(name, ())]
        if name in unserved:
            why.append(
                f"no {operand_pods.PLUGIN} pod runs there: look at its label nvidia.com/gpu.deploy.device-plugin and its taints"
            )
        blamed = operand_pods.pod_of(pods, findings[name].blamed, name)
        if blamed:
            log = log_end(client, namespace, blamed, findings[name].blamed, previous=False)
            why.append(
                f"the log of {blamed} ends: {log or '(empty)'}; once what it says is mended, "
                f"kubectl -n {namespace} delete pod {blamed} has it try again"
            )
        lasting = "" if findings[name].final else f"; so for {seconds:.0f} s"
        told.append(f"{findings[name]}{lasting}" + "".join(f"; {reason}" for reason in why))
    if len(findings) > _TOLD:
        told.append(f"and {len(findings) - _TOLD} more node(s)")
    if undiscovered:
        shown = ", ".join(undiscovered[:_TOLD])
        told.append(f"{len(undiscovered)} GPU node(s) that gpu-feature-discovery has not labelled: {shown}")
    # Waiting changes nothing about a final finding, which says itself what is wrong.
    waits = undiscovered or not all(finding.final for finding in findings.values())
    return "\n".join([*told, *([_advice(client, plan, bool(ailing))] if waits else [])])


def _ailment(client: Client, namespace: str, ailment: ContainerFailure) -> str:
    log = log_end(client, namespace, ailment.pod, ailment.container, previous=True) if ailment.restarts else ""
    return f"{ailment}" + (f"; its log ends: {log}" if log else "")


def _advice(client: Client, plan: Plan, ailing: bool) -> str:
    named = _configmaps_in_use(client)
    if named is not None and plan.config.name not in named:
        using = f"names {', '.join(sorted(named))}" if named else "names no device plugin ConfigMap"
        return (
            f"The ClusterPolicy {using}, and not {plan.config.name}, so the node labels have no effect: "
            "run the role gpu_operator (module cluster_policy) first."
        )
    if ailing:
        return (
            f"Look at those pods: kubectl -n {plan.config.namespace} describe pod and logs --previous; then run again."
        )
    return (
        f"Look at the pods of {operand_pods.PLUGIN} and {operand_pods.DISCOVERY} in namespace {plan.config.namespace}; "
        "raise wait_timeout if they are only slow. A run again goes on where this one ended."
    )


def _configmaps_in_use(client: Client) -> set[str] | None:
    """The ConfigMaps that ClusterPolicies name; None when that cannot be read."""
    try:
        policies = list(client.list(CLUSTER_POLICIES))
    except ApiError:
        return None
    configs = [((policy.get("spec") or {}).get("devicePlugin") or {}).get("config") or {} for policy in policies]
    return {config["name"] for config in configs if config.get("name")}
