# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads which NFD and which GPU operator a cluster has, and puts a plan where they are."""

from __future__ import annotations

import typing as t

from ..catalog.names import DEVICE_PLUGIN_CONFIGMAP, POOL_LABEL
from ..catalog.taints import format_taint
from ..cluster_state.cluster_policy import active_policy
from ..helm.release_records import note_path, was_installed
from ..kube.client import Client
from ..kube.errors import ApiError
from ..kube.helm_marks import Release, marks_of
from ..kube.paths import CLUSTER_POLICIES, DAEMONSETS, DEPLOYMENTS, NODES, object_path
from ..pools.plan import Plan, ReleasePlan
from ..schema.messages import abbreviate_nodes
from .installation import (
    Installation,
    InstallationFinding,
    installation,
    judge_nfd,
    judge_operator,
    needed_tolerations,
    never_labelled,
    refused_on_openshift,
    with_reverted_fields,
)
from .openshift import openshift_version
from .relocation import adopt_installed, relocate_plan

Object = dict[str, t.Any]

# The name is fixed in NVIDIA's chart and in its bundle for OLM (deployments/gpu-operator/templates/operator.yaml,
# config/manager/manager.yaml); their labels are not the same.
_OPERATOR = "metadata.name=gpu-operator"
# NFD's chart labels the role; its kustomize manifests and OpenShift's NFD operator label the app only.
_NFD_MASTERS = ("role=master", "app in (nfd,nfd-master)")
_NFD_WORKERS = ("role=worker", "app in (nfd,nfd-worker)")


def find_operator(client: Client, plan: Plan) -> InstallationFinding:
    """Two lists, and the note that we would have left beside a Helm release."""
    return _find_operator(client, plan, client.list_known(CLUSTER_POLICIES))


class Detection(t.NamedTuple):
    """What there is: NFD and the operator, the ClusterPolicy that counts, and the plan where they are."""

    found: dict[str, InstallationFinding]
    policy: Object | None
    plan: Plan


def detect(client: Client, plan: Plan) -> Detection:
    """All that a report needs; the plan is as an adopted operator is."""
    listed = client.list_known(CLUSTER_POLICIES)
    operator = _find_operator(client, plan, listed)
    found = {"nfd": find_nfd(client, plan), "operator": operator}
    policy = t.cast("Object | None", active_policy(listed))
    there = adapt_plan(client, plan, policy)
    if operator.installation is not None and operator.adopted:
        there = adopt_installed(there, operator.installation.version)
    return Detection(found, policy, there)


def _find_operator(client: Client, plan: Plan, listed: t.Sequence[Object]) -> InstallationFinding:
    found = _operators(client)
    finding = judge_operator(found, listed, plan.operator, _ours(client, found, plan.operator))
    return _where_helm_installs(client, "operator", with_reverted_fields(finding, active_policy(listed), plan.policy))


def find_nfd(client: Client, plan: Plan) -> InstallationFinding:
    """Two lists, and as above; of an adopted one its workers too, when pools have taints, and the pools' nodes if that keeps it away."""
    masters = _deployments(client, "nfd", [{"label_selector": selector} for selector in _NFD_MASTERS])
    replaced = (plan.operator.name, plan.operator.namespace) if plan.operator.named else None
    finding = judge_nfd(masters, plan.nfd, _ours(client, masters, plan.nfd), replaced)
    finding = _where_helm_installs(client, "nfd", finding)
    taints = {format_taint(taint): taint for pool in plan.pools for taint in pool.registration.taints}
    if not finding.adopted or not taints:
        return finding
    namespace = t.cast("Installation", finding.installation).namespace
    workers = [
        item
        for selector in _NFD_WORKERS
        for item in client.list(DAEMONSETS, label_selector=selector)
        if item["metadata"]["namespace"] == namespace
    ]
    lacking = needed_tolerations(workers, taints.values())
    if not lacking:
        return finding
    named = ", ".join(sorted({f"{item['key']}:{item['effect']}" for item in lacking}))
    pools = ",".join(pool.name for pool in plan.pools)
    unseen = never_labelled(client.list(NODES, label_selector=f"{POOL_LABEL} in ({pools})"), lacking)
    if unseen:
        problem = (
            f"{t.cast('Installation', finding.installation).title} will never label {abbreviate_nodes(unseen)}, since its workers do not tolerate "
            f"{named}, and without its labels no GPU is found there: give its workers that toleration where NFD is managed, and run again."
        )
        return InstallationFinding(finding.installation, ours=False, problem=problem)
    note = f"its workers do not tolerate {named}: give them a toleration where NFD is managed, or they will not come back there"
    return InstallationFinding(finding.installation, finding.ours, finding.problem, (*finding.notes, note))


def adapt_plan(client: Client, plan: Plan, policy: t.Mapping[str, t.Any] | None) -> Plan:
    """The plan where the operator of this ClusterPolicy is: its namespace, and the device plugin's ConfigMap that it names.

    Costs nothing where both are as planned; one look at a ConfigMap of somebody else's; one list where the policy does not
    tell its operator's namespace. Without a policy the plan stays as it is.
    """
    if policy is None:
        return plan
    namespace = _place(client, policy, plan.operator.namespace)
    config = ((policy.get("spec") or {}).get("devicePlugin") or {}).get("config") or {}
    name = str(config.get("name") or DEVICE_PLUGIN_CONFIGMAP)
    if name != DEVICE_PLUGIN_CONFIGMAP and client.get(object_path("v1", "ConfigMap", name, namespace)) is None:
        # Plugins that are to mount it do not start: there is nothing to keep.
        name = DEVICE_PLUGIN_CONFIGMAP
    return relocate_plan(plan, namespace, name)


def adapt_plan_to_cluster(client: Client, plan: Plan) -> Plan:
    """follow(), with the ClusterPolicy that counts, for one more list."""
    return adapt_plan(client, plan, active_policy(client.list_known(CLUSTER_POLICIES)))


def _where_helm_installs(client: Client, component: str, finding: InstallationFinding) -> InstallationFinding:
    """Asks for the platform only where something would be installed."""
    if finding.installation is not None or not finding.ours or finding.problem:
        return finding
    version = openshift_version(client)
    return finding if version is None else refused_on_openshift(finding, component, version)


def _place(client: Client, policy: t.Mapping[str, t.Any], planned: str) -> str:
    told = (policy.get("status") or {}).get("namespace")
    if told:
        return str(told)
    release = marks_of(policy)
    if release is not None:
        return release[1]
    found = [item for item in _operators(client) if item.running]
    return found[0].namespace if len(found) == 1 else planned


def _operators(client: Client) -> list[Installation]:
    return _deployments(client, "operator", [{"field_selector": _OPERATOR}])


def _deployments(client: Client, component: str, selections: t.Sequence[dict[str, str]]) -> list[Installation]:
    listed = {
        (item["metadata"]["namespace"], item["metadata"]["name"]): item
        for selection in selections
        for item in client.list(DEPLOYMENTS, **selection)  # type: ignore[arg-type]
    }
    found = [installation(component, listed[key]) for key in sorted(listed)]
    return [item for item in found if item is not None]


def _ours(client: Client, found: t.Sequence[Installation], planned: ReleasePlan) -> set[Release]:
    return {
        release for release in {item.release for item in found if item.release} if is_ours(client, release, planned)
    }


def is_ours(client: Client, release: Release, planned: ReleasePlan) -> bool:
    """Whether our note beside a release says that we installed it.

    Who may not look beside another release than the planned one has not installed it; beside that one the right is needed.
    """
    try:
        return was_installed(client.get(note_path(*release)))
    except ApiError as error:
        if not error.forbidden or release == (planned.name, planned.namespace):
            raise
        return False
