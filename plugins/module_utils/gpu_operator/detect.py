# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Detects a cluster's NFD and GPU operator and adapts a plan to them."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..catalog.machine_api import CLUSTER_VERSION_PATH
from ..catalog.names import DEVICE_PLUGIN_CONFIGMAP, POOL_LABEL
from ..catalog.olm import OLM, OPENSHIFT
from ..catalog.releases import GPU_CLUSTER_SINCE, release_of
from ..catalog.taints import format_taint
from ..cluster_state.cluster_policy import active_policy
from ..cluster_state.ownership import is_created_by_collection
from ..common.nested import get_nested
from ..helm.release import ReleaseId, helm_release_of
from ..helm.release_records import is_marked_installed, marker_path
from ..kube.client import Client
from ..kube.errors import ApiError
from ..kube.paths import CLUSTER_POLICIES, DAEMONSETS, DEPLOYMENTS, GPU_CLUSTERS, NODES, object_path
from ..pools.plan import ComponentPlan, Plan
from ..schema.messages import abbreviate_nodes
from .cluster_policy import policy_version
from .installation import (
    OLM_MANAGER,
    OWNER,
    TITLES,
    Installation,
    InstallationFinding,
    evaluate_nfd,
    evaluate_operator,
    missing_tolerations,
    read_installation,
    same_version,
    unlabeled_nodes,
    with_policies,
    with_reverted_fields,
)
from .installation_conflicts import may_have_gpu_clusters, with_driver_source, with_gpu_clusters, with_operands
from .kept_tolerations import keep_needed_tolerations, obsolete_tolerations
from .olm_installation import evaluate_olm, missing_olm, other_subscriptions, subscribed_namespaces

Object = dict[str, t.Any]

# NVIDIA's chart and its bundle for OLM use the same fixed name (deployments/gpu-operator/templates/operator.yaml,
# config/manager/manager.yaml), but different labels.
_OPERATOR = {"field_selector": "metadata.name=gpu-operator"}
# NFD's chart sets the label `role`; NFD's kustomize manifests and OpenShift's NFD operator set only the label `app`.
_NFD_MASTERS = ("role=master", "app in (nfd,nfd-master)")
_NFD_WORKERS = ("role=worker", "app in (nfd,nfd-worker)")


class Detection(t.NamedTuple):
    """The findings by component, the active ClusterPolicy, the adapted plan, and the declared plan."""

    findings: dict[str, InstallationFinding]
    policy: Object | None
    plan: Plan
    # The plan as the variables declare it for this platform.
    declared: Plan


def detect(client: Client, plan: Plan) -> Detection:
    """Detect both components for a report; in the adapted plan, an adopted operator keeps its version and values."""
    policies = client.list_known(CLUSTER_POLICIES)
    operator = find_operator(client, plan, policies)
    if plan.on_openshift is not None and operator.installer == OLM:
        plan = plan.on_openshift()
    policy = t.cast("Object | None", active_policy(policies))
    adapted = plan if policy is None else adapt_plan(client, plan, policy)
    installed = operator.installation.version if operator.installation else ""
    if operator.installation is not None and operator.adopted:
        adapted = adopt_installed(adapted, installed)
    elif operator.installer == OLM and not same_version(installed, adapted.operator.version):
        adapted = replace(adapted, operator=replace(adapted.operator, installed=installed))
    return Detection({"nfd": find_nfd(client, plan), "operator": operator}, policy, adapted, plan)


def object_conditions(client: Client, policy: t.Mapping[str, t.Any] | None) -> set[str]:
    """The conditions of the cluster that depend on objects other than nodes and pods (see catalog/known_issues.py); empty before v26.7."""
    if policy is None or release_of(policy_version(policy) or "v0.0.0") < GPU_CLUSTER_SINCE:
        return set()
    try:
        return {"gpucluster"} if client.list_known(GPU_CLUSTERS, metadata_only=True) else set()
    except ApiError as error:
        if not error.forbidden:
            raise
        return set()


def find_operator(client: Client, plan: Plan, policies: t.Sequence[Object] | None = None) -> InstallationFinding:
    """The finding for the GPU operator; reads two lists and the marker of its Helm release."""
    if policies is None:
        policies = client.list_known(CLUSTER_POLICIES)
    installations = _installations(client, "operator", [_OPERATOR])
    plan, version = _on_platform(client, plan, installations)
    by_helm = _managed_releases(client, installations, plan.operator)
    if plan.operator.installer == OLM:
        subscribed = subscribed_namespaces(client, installations, plan.operator)
        finding = with_policies(
            evaluate_olm(installations, plan.operator, by_helm, subscribed), policies, plan.operator
        )
    else:
        finding = evaluate_operator(installations, policies, plan.operator, by_helm)
    policy = active_policy(policies)
    if may_have_gpu_clusters(finding):
        finding = with_gpu_clusters(finding, policy, client.list_known(GPU_CLUSTERS))
    finding = with_operands(with_driver_source(finding, policy, plan), policy, plan)
    finding = with_reverted_fields(finding, policy, plan.policy)
    return _check_platform(client, "operator", finding, plan, version)


def find_nfd(client: Client, plan: Plan) -> InstallationFinding:
    """The finding for NFD; reads two lists and the marker.

    If NFD is adopted and pools have taints, NFD's workers and the pools' nodes are also read.
    """
    masters = _installations(client, "nfd", [{"label_selector": selector} for selector in _NFD_MASTERS])
    plan, version = _on_platform(client, plan, masters)
    by_helm = _managed_releases(client, masters, plan.nfd)
    if plan.nfd.installer == OLM:
        finding = evaluate_olm(masters, plan.nfd, by_helm, subscribed_namespaces(client, masters, plan.nfd))
    else:
        replaced = (plan.operator.name, plan.operator.namespace) if plan.operator.named else None
        finding = evaluate_nfd(masters, plan.nfd, by_helm, replaced)
    finding = _check_platform(client, "nfd", finding, plan, version)
    taints = {format_taint(taint): taint for pool in plan.pools for taint in pool.registration.taints}
    if finding.installation is None or not finding.adopted or not taints or finding.installation.has_discovery_object:
        return finding
    workers = [
        item
        for selector in _NFD_WORKERS
        for item in client.list(DAEMONSETS, label_selector=selector)
        if item["metadata"]["namespace"] == finding.installation.namespace
    ]
    missing = missing_tolerations(workers, taints.values())
    if not missing:
        return finding
    names = ", ".join(sorted({f"{item['key']}:{item['effect']}" for item in missing}))
    pools = ",".join(pool.name for pool in plan.pools)
    unlabeled = unlabeled_nodes(client.list(NODES, label_selector=f"{POOL_LABEL} in ({pools})"), missing)
    if unlabeled:
        problem = (
            f"{finding.installation.title} cannot label {abbreviate_nodes(unlabeled)}: its workers do not tolerate {names}, and without NFD's "
            "labels, no GPU is found there. Add a toleration to the workers where NFD is managed, and run the playbook again."
        )
        return replace(finding, problem=problem, notes=())
    note = f"its workers do not tolerate {names}: add a toleration where NFD is managed; otherwise, they cannot restart on nodes with these taints"
    return replace(finding, notes=(*finding.notes, note))


def adapt_plan(client: Client, plan: Plan, policy: t.Mapping[str, t.Any] | None) -> Plan:
    """The plan with the operator's actual namespace and with the device plugin's ConfigMap that this ClusterPolicy refers to.

    This sends no request if both are as planned, one read request for a foreign ConfigMap, one list request if the policy has no status,
    and a list request for the nodes if the policy has obsolete tolerations. Without a policy, the result is the plan for the platform, which is
    determined with one or two read requests.
    """
    if policy is None:
        return _on_platform(client, plan, ())[0]
    if plan.on_openshift is not None and is_created_by_collection(policy):
        # This collection creates the policy only if OLM has installed the operator.
        plan = plan.on_openshift()
    namespace = _operator_namespace(client, policy, plan.operator.namespace)
    name = str(get_nested(policy, "spec", "devicePlugin", "config", "name") or DEVICE_PLUGIN_CONFIGMAP)
    if name != DEVICE_PLUGIN_CONFIGMAP and client.get(object_path("v1", "ConfigMap", name, namespace)) is None:
        # Plugins that mount a missing ConfigMap do not start, so there is nothing to keep.
        name = DEVICE_PLUGIN_CONFIGMAP
    plan = relocate_plan(plan, namespace, name)
    return keep_needed_tolerations(policy, plan, client.list(NODES)) if obsolete_tolerations(policy, plan) else plan


def relocate_plan(plan: Plan, namespace: str, configmap: str) -> Plan:
    """The plan with the operator in this namespace and the collection's entries in this ConfigMap.

    If the ConfigMap is foreign, the collection's entries are added to it, and the ClusterPolicy's devicePlugin.config is not changed, because another
    ConfigMap or another default would restart every device plugin.
    """
    foreign = configmap != plan.config.name
    spec = {part: value for part, value in plan.policy.spec.items() if not (foreign and part == "devicePlugin")}
    follows = plan.validation.namespace == plan.operator.namespace
    return replace(
        plan,
        operator=replace(plan.operator, namespace=namespace),
        policy=replace(plan.policy, spec=spec),
        config=replace(plan.config, namespace=namespace, name=configmap),
        mig=replace(plan.mig, namespace=namespace),
        validation=replace(plan.validation, namespace=namespace) if follows else plan.validation,
    )


def adopt_installed(plan: Plan, version: str) -> Plan:
    """The plan for an adopted operator, which keeps its version and values; `version` is empty if it is unknown."""
    return replace(plan, operator=replace(plan.operator, version=version or plan.operator.version, values={}))


def adapt_plan_to_cluster(client: Client, plan: Plan) -> Plan:
    """The result of adapt_plan() for the active ClusterPolicy, which is read with one more list request."""
    return adapt_plan(client, plan, active_policy(client.list_known(CLUSTER_POLICIES)))


def is_managed_release(client: Client, release: ReleaseId, planned: ComponentPlan) -> bool:
    """Whether the marker of a Helm release shows that this collection installed it.

    A missing permission to read the marker is an error only for the planned release: a user without this permission cannot have installed other releases.
    """
    try:
        return is_marked_installed(client.get(marker_path(*release)))
    except ApiError as error:
        if not error.forbidden or release == (planned.name, planned.namespace):
            raise
        return False


def openshift_version(client: Client) -> str | None:
    """The version of OpenShift, empty if the user is not allowed to read it; None if the cluster is not OpenShift.

    A cluster is OpenShift if it has the object ClusterVersion `version` (openshift/api config/v1, types_cluster_version.go).
    Every user may list the kinds of the cluster (ClusterRole system:discovery), so no additional permission is needed.
    """
    group, plural, dummy = CLUSTER_VERSION_PATH.rsplit("/", 2)
    kinds = client.get_once(group)
    if kinds is None or all(kind.get("name") != plural for kind in kinds.get("resources") or ()):
        return None
    try:
        version = client.get_once(CLUSTER_VERSION_PATH)
    except ApiError as error:
        if not error.forbidden:
            raise
        return ""
    if version is None:
        # If the kind exists but the object does not, components of OpenShift run on another Kubernetes distribution.
        return None
    return str(get_nested(version, "status", "desired", "version") or "")


def known_openshift_version(client: Client, plan: Plan, conditions: t.Container[str]) -> str:
    """The version of OpenShift; empty if it is unknown. It is read only if the conditions or the variables show that the cluster is OpenShift."""
    if OPENSHIFT not in conditions and plan.cluster.distribution != OPENSHIFT:
        return ""
    return openshift_version(client) or ""


def _on_platform(client: Client, plan: Plan, installations: t.Sequence[Installation]) -> tuple[Plan, str | None]:
    """The plan for the cluster's platform, and the version of OpenShift.

    The plan is the one for OpenShift if the cluster is OpenShift and the variables set no distribution. The platform is read only if the component is
    missing, or if OLM or another operator has installed the component. Otherwise, the version is None.
    """
    if installations and all(item.manager not in (OLM_MANAGER, OWNER) for item in installations):
        return plan, None
    version = openshift_version(client)
    if version is None or plan.on_openshift is None:
        return plan, version
    return plan.on_openshift(), version


def _check_platform(
    client: Client, component: str, finding: InstallationFinding, plan: Plan, version: str | None
) -> InstallationFinding:
    """Add to the finding the problem that makes the installer fail on this platform; nothing is read unless the component would be installed."""
    if not finding.installs:
        return finding
    planned = plan.operator if component == "operator" else plan.nfd
    if finding.installer == OLM:
        problem = missing_olm(client, component) or other_subscriptions(client, component, planned)
        return replace(finding, problem=problem)
    if version is not None and plan.cluster.distribution not in (None, OPENSHIFT):
        problem = (
            f"This cluster is OpenShift{version and f' {version}'}, but gpu_cluster.distribution is {plan.cluster.distribution}. Set it to "
            f"openshift, or remove it: {TITLES[component]} is then installed through OLM."
        )
        return replace(finding, managed=False, problem=problem)
    if version is not None:
        note = "NVIDIA and Red Hat support operators on OpenShift only if OLM installs them, but gpu_cluster sets installer: helm"
        problem = other_subscriptions(client, component, planned)
        return replace(finding, problem=problem, notes=(*finding.notes, note))
    return finding


def _operator_namespace(client: Client, policy: t.Mapping[str, t.Any], planned: str) -> str:
    reported = get_nested(policy, "status", "namespace")
    if reported:
        return str(reported)
    release = helm_release_of(policy)
    if release is not None:
        return release[1]
    running = [item for item in _installations(client, "operator", [_OPERATOR]) if item.running]
    return running[0].namespace if len(running) == 1 else planned


def _installations(client: Client, component: str, selections: t.Sequence[dict[str, str]]) -> list[Installation]:
    deployments = {
        (item["metadata"]["namespace"], item["metadata"]["name"]): item
        for selection in selections
        for item in client.list(DEPLOYMENTS, **selection)  # type: ignore[arg-type]
    }
    installations = [read_installation(component, deployments[key]) for key in sorted(deployments)]
    return [item for item in installations if item is not None]


def _managed_releases(
    client: Client, installations: t.Sequence[Installation], planned: ComponentPlan
) -> set[ReleaseId]:
    releases = {item.release for item in installations if item.release}
    return {release for release in releases if is_managed_release(client, release, planned)}
