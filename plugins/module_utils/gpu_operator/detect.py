# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds an existing installation of the GPU operator, and the settings of the container toolkit on the nodes."""

from __future__ import annotations

import itertools
import typing as t
from dataclasses import dataclass, field, replace

from ..catalog.distributions import BY_NAME, HOST_USERS, Distribution
from ..catalog.names import (
    DEVICE_PLUGIN_CONFIGMAP,
    DRIVER_DEPLOY_LABEL,
    NFD_PREFIX,
    NOUVEAU_LABEL,
    PCI_PRESENT_LABELS,
    POOL_LABEL,
    SECURE_BOOT_LABEL,
)
from ..catalog.openshift import CLUSTER_VERSION_PATH, OLM, OPENSHIFT
from ..catalog.operands import TOOLKIT
from ..catalog.releases import GPU_CLUSTER_SINCE, PUBLISHED_SYSTEMS, UNPUBLISHED_OS_IMAGES, release_of
from ..catalog.taints import format_taint
from ..core.messages import abbreviate_nodes, join_words
from ..core.values import Document, Object, get_nested
from ..helm.release import ReleaseRecords, is_marked_installed, marker_path
from ..kube.errors import ApiError
from ..kube.fields import ReleaseId, helm_release_of, is_created_by_collection, writers
from ..kube.paths import CLUSTER_POLICIES, DAEMONSETS, DEPLOYMENTS, GPU_CLUSTERS, NODES, object_path
from ..nodes.node import CONTAINERD, Node, contradiction, distribution_of, distributions_of, other_nodes, parse_node
from ..nodes.ownership import assign_pools, may_match, undiscovered_candidates
from ..nodes.pods import daemonset_status
from ..pools.operator_values import distribution_values, toolkit_values, with_values, without_values
from ..schema.driver import driver_of_values, effective_driver
from .cluster_policy import active_policy, policy_version
from .installation import (
    OLM_MANAGER,
    OWNER,
    TITLES,
    Installation,
    InstallationFinding,
    evaluate_nfd,
    evaluate_olm,
    evaluate_operator,
    may_have_gpu_clusters,
    missing_olm,
    missing_tolerations,
    other_subscriptions,
    read_installation,
    same_version,
    subscribed_namespaces,
    unlabeled_nodes,
    with_driver_source,
    with_gpu_clusters,
    with_mig_strategy,
    with_operands,
    with_policies,
    with_reverted_fields,
)
from .readiness import keep_needed_tolerations, obsolete_tolerations

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from ..pools.plan import ComponentPlan, Plan

# Detects a cluster's NFD and GPU operator and adapts a plan to them.

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
    """The conditions of the cluster that depend on objects other than nodes and pods (see catalog/distributions.py); empty before v26.7."""
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
    finding = with_mig_strategy(finding, policy, plan, lambda: client.list(NODES))
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


def openshift_version(client: Client, *, declared: bool = False) -> str | None:
    """The version of OpenShift, empty if the user is not allowed to read it; None if the cluster is not OpenShift.

    A cluster is OpenShift if it has the object ClusterVersion `version` (openshift/api config/v1, types_cluster_version.go).
    Every user may list the kinds of the cluster (ClusterRole system:discovery), so no additional permission is needed. They are listed first, unless
    the variables declare OpenShift (`declared`): on other clusters, most users may not read this object.
    """
    group, plural, dummy = CLUSTER_VERSION_PATH.rsplit("/", 2)

    def has_kind() -> bool:
        kinds = client.get_once(group) or {}
        return any(kind.get("name") == plural for kind in kinds.get("resources") or ())

    if not declared and not has_kind():
        return None
    try:
        version = client.get_once(CLUSTER_VERSION_PATH)
    except ApiError as error:
        if not error.forbidden:
            raise
        return "" if has_kind() else None
    if version is None:
        # If the kind exists but the object does not, components of OpenShift run on another Kubernetes distribution.
        return None
    return str(get_nested(version, "status", "desired", "version") or "")


def known_openshift_version(client: Client, plan: Plan, conditions: t.Container[str]) -> str:
    """The version of OpenShift; empty if it is unknown. It is read only if the conditions or the variables show that the cluster is OpenShift."""
    if OPENSHIFT not in conditions and plan.cluster.distribution != OPENSHIFT:
        return ""
    return openshift_version(client, declared=plan.cluster.distribution == OPENSHIFT) or ""


def _on_platform(client: Client, plan: Plan, installations: t.Sequence[Installation]) -> tuple[Plan, str | None]:
    """The plan for the cluster's platform, and the version of OpenShift.

    The plan is the one for OpenShift if the cluster is OpenShift and the variables set no distribution. The platform is read only if the component is
    missing, or if OLM or another operator has installed the component. Otherwise, the version is None.
    """
    if installations and all(item.manager not in (OLM_MANAGER, OWNER) for item in installations):
        return plan, None
    version = openshift_version(client, declared=plan.cluster.distribution == OPENSHIFT)
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


# Derives the cluster conditions on which known issues depend (catalog/distributions.py) from nodes and pods (pure).

# The labels that NFD sets for a Mellanox network adapter, with the PCI settings of the operator's NFD or with NFD's own defaults.
NETWORK_ADAPTER_LABELS = tuple(f"{NFD_PREFIX}pci-{name}.present" for name in ("15b3", "0200_15b3", "0207_15b3"))
_RUNTIMES = ("containerd", "cri-o")


def cluster_conditions(nodes: t.Iterable[Node], pods: t.Iterable[t.Mapping[str, t.Any]] = ()) -> set[str]:
    """The conditions that the GPU nodes and these pods meet."""
    conditions: set[str] = set()
    for node in nodes:
        if node.has_gpu:
            conditions.update(_node_conditions(node))
    if any((pod.get("spec") or {}).get("hostUsers") is False for pod in pods):
        conditions.add(HOST_USERS)
    return conditions


def has_network_adapter(node: Node) -> bool:
    """Whether NFD has found a Mellanox network adapter in the node."""
    return any(node.labels.get(label) == "true" for label in NETWORK_ADAPTER_LABELS)


def _node_conditions(node: Node) -> t.Iterator[str]:
    labels = node.labels
    release = labels.get(f"{NFD_PREFIX}system-os_release.VERSION_ID", "")
    if labels.get(f"{NFD_PREFIX}system-os_release.ID") == "rhel" and release.partition(".")[0] == "8":
        yield "rhel8"
    if labels.get(f"{NFD_PREFIX}kernel-selinux.enabled") == "true":
        yield "selinux"
    distribution = distribution_of(node)
    if distribution is not None:
        yield from distribution.conditions
    runtime = node.container_runtime.partition(":")[0]
    if runtime in _RUNTIMES:
        yield runtime
    if any(key.startswith("cloud.google.com/gke-") for key in labels):
        yield "gke"
    if labels.get("nvidia.com/vgpu.present") == "true":
        yield "vgpu"
    if has_network_adapter(node):
        yield "rdma-nic"
    for word in node.model.removeprefix("NVIDIA-").split("-")[:1]:
        if word:
            yield f"model {word}"


# Finds nodes on which the operator's driver container cannot work or may fail, according to the kubelet and NFD (pure).
#
# The operator appends the node's operating system to the tag of the driver's image, and NVIDIA publishes images only for a few systems
# (gpu-operator/platform-support.rst of NVIDIA/cloud-native-docs; Fedora CoreOS: gpu-operator issues 696 and 2664). NFD does not report Secure
# Boot, and it reports loaded kernel modules only if a rule is configured. The derived values for NFD contain this rule
# (catalog/operands.py).

_REMEDY = (
    "Install the driver on these nodes and label them nvidia.com/gpu.deploy.driver=pre-installed (on all GPU nodes: driver.enabled: false in "
    "gpu_cluster.operator), or build an image and set driver.repository in their pool or in gpu_cluster.operator.values"
)
_MOFED_LABEL = "network.nvidia.com/operator.mofed.wait"


def nodes_without_images(plan: Plan, nodes: t.Iterable[Node]) -> list[str]:
    """The GPU nodes without a driver for which no driver image exists; while no GPU node is known, all nodes if no image exists for any of them."""
    if not _installs_driver(plan):
        return []
    nodes = list(nodes)
    drivers = possible_drivers(plan, nodes)
    gpu_nodes = [node for node in nodes if node.has_gpu]
    without = sorted(
        node.name
        for node in gpu_nodes or nodes
        if _gets_driver(node)
        and not (node.driver or _has_image(node))
        and not any(driver.get("repository") for driver in drivers[node.name])
    )
    return without if gpu_nodes or len(without) == len(nodes) else []


def possible_drivers(plan: Plan, nodes: t.Sequence[Node]) -> dict[str, list[Object]]:
    """For each node, the driver settings (keys as in `driver`) of its pool or, without a pool, of the operator.

    While a node's pool is not known, the list contains the settings of each possible pool.
    """
    inherited = driver_of_values(plan.operator.values)
    membership = assign_pools(plan.pools, nodes)
    by_pool = {pool.name: effective_driver(inherited, pool.driver) for pool in plan.pools}
    pool_of = {name: pool for pool, names in membership.by_pool.items() for name in names}
    undiscovered = set(undiscovered_candidates(plan.pools, nodes, membership))
    drivers: dict[str, list[Object]] = {}
    for node in nodes:
        pools = []
        if node.name in pool_of:
            pools = [pool_of[node.name]]
        elif node.name in undiscovered or not node.has_gpu:
            pools = [pool.name for pool in plan.pools if may_match(pool, node)]
        drivers[node.name] = [by_pool[name] for name in pools] or [inherited]
    return drivers


def missing_image_problem(plan: Plan, nodes: t.Iterable[Node]) -> str:
    """The reason why the driver cannot be installed, for a check before the installation; empty if it can be installed."""
    nodes = list(nodes)
    without = nodes_without_images(plan, nodes)
    if not without:
        return ""
    systems = sorted({_system(node) for node in nodes if node.name in without})
    return f"{abbreviate_nodes(without)}: NVIDIA publishes no driver image for {', '.join(systems)}, so the driver pods there could not start. {_REMEDY}."


def driver_warnings(plan: Plan, nodes: t.Iterable[Node]) -> list[str]:
    """A sentence for each reason why driver containers may fail on GPU nodes."""
    nodes = list(nodes)
    problem = missing_image_problem(plan, nodes)
    warnings = [problem] if problem else []
    if not _installs_driver(plan):
        return warnings
    drivers = [node for node in nodes if node.has_gpu and _gets_driver(node)]
    by_node = possible_drivers(plan, nodes)
    nouveau = sorted(node.name for node in drivers if node.labels.get(NOUVEAU_LABEL) == "true" and not node.driver)
    if nouveau:
        warnings.append(
            f"{abbreviate_nodes(nouveau)}: the kernel module nouveau is loaded. The driver pod tries to unload it, which fails while a console or "
            "another process uses it; blacklist nouveau on these nodes and reboot them."
        )
    secured = sorted(
        node.name
        for node in drivers
        if node.labels.get(SECURE_BOOT_LABEL) == "true"
        and not any(driver.get("precompiled") for driver in by_node[node.name])
    )
    if secured:
        warnings.append(
            f"{abbreviate_nodes(secured)}: Secure Boot is enabled, so the kernel rejects the modules that the driver pod compiles. Use a driver with "
            "signed modules (driver.precompiled: true in their pool or in gpu_cluster.operator, where NVIDIA publishes one), install a signed driver "
            "on the nodes, or disable Secure Boot."
        )
    return [*warnings, *_network_warnings(plan, drivers)]


def _network_warnings(plan: Plan, drivers: t.Sequence[Node]) -> t.Iterator[str]:
    """Yield warnings about GPUDirect RDMA; if it is enabled, driver pods wait for the network drivers (k8s-driver-manager cmd/driver-manager/main.go)."""
    rdma = get_nested(plan.operator.values, "driver", "rdma") or {}
    if not rdma.get("enabled") or not drivers:
        return
    without = sorted(node.name for node in drivers if node.has_nfd_labels and not has_network_adapter(node))
    if without:
        yield f"{abbreviate_nodes(without)}: GPUDirect RDMA is enabled, but NFD has found no NVIDIA (Mellanox) network adapter."
    unmanaged = sorted(node.name for node in drivers if has_network_adapter(node) and _MOFED_LABEL not in node.labels)
    if unmanaged and not rdma.get("useHostMofed"):
        yield (
            f"{abbreviate_nodes(unmanaged)}: GPUDirect RDMA is enabled, and no Network Operator manages the network drivers there (label "
            f"{_MOFED_LABEL}). Install the Network Operator, or install MLNX_OFED or DOCA-OFED on the nodes and set driver.rdma.use_host_mofed."
        )


def _installs_driver(plan: Plan) -> bool:
    return get_nested(plan.operator.values, "driver", "enabled") is not False


def _gets_driver(node: Node) -> bool:
    return node.labels.get(DRIVER_DEPLOY_LABEL) not in ("false", "pre-installed")


def _has_image(node: Node) -> bool:
    system = node.labels.get(f"{NFD_PREFIX}system-os_release.ID", "")
    return system in PUBLISHED_SYSTEMS if system else not node.os_image.startswith(UNPUBLISHED_OS_IMAGES)


def _system(node: Node) -> str:
    """The system's name from the kubelet, followed by the system as in image tags in parentheses; only one of them if the other is not known."""
    parts = [node.labels.get(f"{NFD_PREFIX}system-os_release.{part}", "") for part in ("ID", "VERSION_ID")]
    return f"{node.os_image} ({''.join(parts)})" if all(parts) and node.os_image else node.os_image or "".join(parts)


# Determines the container toolkit's settings for the distribution of the nodes.
#
# If gpu_cluster.distribution is not set, an installation keeps its settings if its toolkit works, or if its ClusterPolicy was changed manually: the values
# that the Helm release has recorded are passed to Helm again, so that nothing changes. A toolkit that works also keeps its settings if
# gpu_cluster.distribution names a distribution that no node has.

# The maximum number of nodes to read (one page); all nodes of a cluster are expected to have the same distribution.
_SAMPLE = 100
# Prefixes of the field managers of installers: helm and programs based on it, and this collection.
_INSTALLERS = ("helm", "accel.gpu")


@dataclass(frozen=True)
class ToolkitSettings:
    """The values to add to the operator's Helm values; the `notes` describe the settings that are kept or that change.

    `replaces_declared` is true if these values replace those that are derived from the declared distribution.
    """

    distribution: str = ""
    values: Object = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    replaces_declared: bool = False

    @property
    def env(self) -> list[Object]:
        """The environment variables of the toolkit in the values."""
        return _env(self.values)


@dataclass(frozen=True)
class InstalledToolkit:
    """The toolkit of an installed operator, with its environment variables in the ClusterPolicy (`live`) and in the Helm release (`recorded`).

    `ready_nodes` is the number of nodes where the toolkit's pod is ready; `working` is true if the toolkit runs on nodes and is ready on all of them.
    `edited_by` is the field manager of a manual change to the toolkit's variables.
    """

    live: t.Mapping[str, t.Any]
    recorded: t.Mapping[str, t.Any]
    version: str = ""
    ready_nodes: int = 0
    working: bool = False
    edited_by: str = ""


def sample_nodes(client: Client) -> list[Node]:
    """A limited number of GPU nodes, or of all nodes if NFD has not labeled any GPU node yet."""
    for selector in (*(f"{label}=true" for label in PCI_PRESENT_LABELS), None):
        listed = client.list(NODES, label_selector=selector, limit=_SAMPLE)
        if nodes := [parse_node(node) for node in itertools.islice(listed, _SAMPLE)]:
            return nodes
    return []


def read_toolkit_settings(
    client: Client, plan: Plan, finding: InstallationFinding, policy: Document | None, nodes: t.Sequence[Node]
) -> ToolkitSettings:
    """The settings for an operator that Helm installs or upgrades; empty if it is adopted or if the plan's values already contain them."""
    if not finding.managed or finding.problem or not plan.pools:
        return ToolkitSettings()
    if plan.cluster.distribution:
        env = _env(plan.cluster.distribution_values)
        if policy is None or is_confirmed(BY_NAME[plan.cluster.distribution], nodes) or _has(policy, env):
            return ToolkitSettings()
        live = _variables(get_nested(policy, "spec", "toolkit", "env"))
        return settings_for_unconfirmed(plan, _read_installed(client, plan, finding, policy, live))
    distributions = distributions_of(nodes)
    if policy is None:
        return settings_for(plan, distributions)
    planned = settings_for(plan, distributions)
    if _has(policy, planned.env):
        return planned
    live = _variables(get_nested(policy, "spec", "toolkit", "env"))
    return settings_for(plan, distributions, _read_installed(client, plan, finding, policy, live))


def operator_result(finding: InstallationFinding, settings: ToolkitSettings, plan: Plan) -> Object:
    """The operator's finding with the distribution and its values, formatted for a module's result."""
    distribution = plan.cluster.distribution or settings.distribution
    return {
        **finding.as_dict(),
        "distribution": distribution,
        "distribution_values": settings.values,
        "replaces_declared": settings.replaces_declared,
    }


def with_settings(plan: Plan, settings: ToolkitSettings) -> Plan:
    """The plan with the values that the playbook site passes to Helm, combined in the same way as in the role gpu_operator."""
    values = plan.operator.values
    if settings.replaces_declared:
        values = without_values(values, plan.cluster.distribution_values)
    values = with_values(values, settings.values)
    return replace(plan, operator=replace(plan.operator, values=values))


def settings_for(
    plan: Plan, distributions: t.Mapping[str, t.Sequence[str]], installed: InstalledToolkit | None = None
) -> ToolkitSettings:
    """The settings for nodes of these distributions (pure); `installed` is given if a toolkit with different settings is installed."""
    needs = {name: BY_NAME[name] if name else None for name in distributions}
    needed = {name: _values(plan, distribution) for name, distribution in needs.items()}
    if any(values != other for values, other in itertools.pairwise(needed.values())):
        titles = [distribution.title if distribution else "other nodes" for distribution in needs.values()]
        note = (
            f"nodes of several distributions ({join_words(titles)}) need different settings of the container toolkit, so none are derived; set "
            "toolkit.env in gpu_cluster.operator.values"
        )
        return ToolkitSettings("", {}, (note,))
    distribution = next((each for each in needs.values() if each), None)
    if distribution is None:
        return ToolkitSettings()
    settings = ToolkitSettings(distribution.name, needed[distribution.name])
    return (
        settings if installed is None or not settings.env else _for_installed(plan, distribution, settings, installed)
    )


def settings_for_unconfirmed(plan: Plan, installed: InstalledToolkit) -> ToolkitSettings:
    """The settings for an installed operator if no node has the declared distribution (pure); a toolkit that works keeps its settings."""
    distribution, env = BY_NAME[plan.cluster.distribution or ""], _env(plan.cluster.distribution_values)
    recorded = _recorded(env, installed)
    if not installed.working or _is_derived(plan, distribution, recorded, installed):
        return ToolkitSettings()
    note = (
        f"its container toolkit works on {installed.ready_nodes} node(s), so it is not changed and does not get the settings for "
        f"{distribution.title} ({_format(env)}). To apply them, set these variables in toolkit.env of gpu_cluster.operator.values"
    )
    values = _with_recorded(plan.cluster.distribution_values, env, recorded)
    return ToolkitSettings(distribution.name, values, (note,), replaces_declared=True)


def is_confirmed(declared: Distribution, nodes: t.Collection[Node]) -> bool:
    """Whether at least one node has the declared distribution, or no node contradicts it."""
    others = other_nodes(declared, nodes)
    return not others or any(distribution_of(node) is declared for node in nodes)


def _for_installed(
    plan: Plan, distribution: Distribution, planned: ToolkitSettings, installed: InstalledToolkit
) -> ToolkitSettings:
    recorded = _recorded(planned.env, installed)
    kept = _with_recorded(planned.values, planned.env, recorded)
    derived = _is_derived(plan, distribution, recorded, installed)
    desired = _format(planned.env)
    adopt = f"To apply them, set gpu_cluster.distribution: {distribution.name}"
    if installed.edited_by:
        note = (
            f"toolkit.env of the ClusterPolicy was edited by {installed.edited_by}, so the settings for {distribution.title} ({desired}) are not "
            f"applied. {adopt}"
        )
        return ToolkitSettings(distribution.name, kept, (note,))
    if installed.working and not derived:
        note = (
            f"its container toolkit works on {installed.ready_nodes} node(s) without the settings for {distribution.title} ({desired}), so it is left "
            f"unchanged. {adopt}"
        )
        return ToolkitSettings(distribution.name, kept, (note,))
    return replace(planned, notes=(restart_note(distribution, desired, installed.ready_nodes),))


def _recorded(env: t.Sequence[Object], installed: InstalledToolkit) -> tuple[Object, ...]:
    """The variables of this list that the Helm release has recorded, with the recorded values."""
    names = {entry["name"] for entry in env}
    return tuple({"name": name, "value": value} for name, value in installed.recorded.items() if name in names)


def _with_recorded(values: Document, env: t.Sequence[Object], recorded: t.Sequence[Object]) -> Object:
    """The values of a distribution, with the toolkit's variables `env` replaced by the recorded ones."""
    return dict(with_values(without_values(values, toolkit_values(env)), toolkit_values(recorded)))


def _is_derived(
    plan: Plan, distribution: Distribution, recorded: t.Sequence[Object], installed: InstalledToolkit
) -> bool:
    """Whether an earlier run has derived the recorded variables for the same distribution."""
    before = distribution.toolkit_variables(installed.version or plan.operator.version)
    return bool(recorded) and all(before.get(entry["name"]) == entry["value"] for entry in recorded)


def _format(env: t.Iterable[Object]) -> str:
    return ", ".join(f"{entry['name']}={entry['value']}" for entry in env)


def restart_note(distribution: Distribution | None, settings: str, nodes: int) -> str:
    """The note that announces a change to the toolkit's settings."""
    restarted = distribution.restarts if distribution else "containerd"
    where = f" on {nodes} node(s)" if nodes else ""
    return (
        f"toolkit.env changes ({settings}): the container toolkit is replaced{where} and restarts {restarted}; running containers are not "
        "affected, but no pod can start on a node for a few seconds"
    )


def declared_change(plan: Plan, policy: Document | None, detected: str = "") -> tuple[str, ...]:
    """The note about an installed operator's toolkit variables that the declared values change; empty if none change."""
    if policy is None:
        return ()
    live = _variables(get_nested(policy, "spec", "toolkit", "env"))
    planned = _variables(get_nested(plan.operator.values, "toolkit", "env"))
    changed = [f"{name}={value}" for name, value in planned.items() if live.get(name) != value]
    distribution = BY_NAME.get(plan.cluster.distribution or detected)
    return (restart_note(distribution, ", ".join(changed), 0),) if changed else ()


def adapt_finding(
    client: Client, plan: Plan, finding: InstallationFinding, policy: Document | None, nodes: t.Sequence[Node]
) -> tuple[InstallationFinding, ToolkitSettings]:
    """The operator's finding with problems and notes about these nodes, and the toolkit's settings.

    A missing driver image is a problem only before the operator is installed, because the driver of an installed operator may already work.
    """
    if finding.installs and plan.pools and (problem := missing_image_problem(plan, nodes)):
        return replace(finding, problem=problem), ToolkitSettings()
    relevant = _toolkit_nodes(nodes)
    settings = read_toolkit_settings(client, plan, finding, policy, relevant)
    notes = settings.notes or (declared_change(plan, policy, settings.distribution) if finding.managed else ())
    if finding.managed and plan.pools and plan.cluster.distribution:
        warning = contradiction(BY_NAME[plan.cluster.distribution], relevant)
        notes = (*((warning,) if warning else ()), *notes)
    return replace(finding, notes=(*finding.notes, *notes)), settings


def _toolkit_nodes(nodes: t.Iterable[Node]) -> list[Node]:
    """The nodes that use containerd: GPU nodes if there are any, otherwise all of them, as in sample_nodes()."""
    nodes = [node for node in nodes if node.container_runtime.startswith(CONTAINERD)]
    return [node for node in nodes if any(node.labels.get(label) == "true" for label in PCI_PRESENT_LABELS)] or nodes


def _has(policy: Document, env: t.Iterable[Object]) -> bool:
    """Whether the ClusterPolicy contains all these variables of the toolkit with these values."""
    live = _variables(get_nested(policy, "spec", "toolkit", "env"))
    return all(live.get(entry["name"]) == entry["value"] for entry in env)


def _values(plan: Plan, distribution: Distribution | None) -> Object:
    return distribution_values(distribution, plan.operator.version, plan.operator.values) if distribution else {}


def _env(values: Document) -> list[Object]:
    """The variables of the container toolkit in these values."""
    return get_nested(values, "toolkit", "env") or []


def _variables(env: t.Any) -> dict[str, t.Any]:
    return {entry["name"]: entry.get("value") for entry in env or ()}


def _read_installed(
    client: Client, plan: Plan, finding: InstallationFinding, policy: Document, live: t.Mapping[str, t.Any]
) -> InstalledToolkit:
    recorded: t.Any = None
    try:
        records = ReleaseRecords(client, plan.operator.name, plan.operator.namespace)
        content = records.content(records.latest())
        recorded = get_nested(content.config, "toolkit", "env") if content else None
    except ApiError as error:
        # The user of a plan may lack permission to read Secrets.
        if not error.forbidden:
            raise
    statuses = [daemonset_status(item) for item in client.list(DAEMONSETS, field_selector=f"metadata.name={TOOLKIT}")]
    return InstalledToolkit(
        live=live,
        recorded=_variables(recorded),
        version=finding.installation.version if finding.installation else "",
        ready_nodes=sum(status.available for status in statuses),
        working=any(status.desired for status in statuses) and all(s.available >= s.desired for s in statuses),
        edited_by=_editor(policy),
    )


def _editor(policy: Document) -> str:
    """The field manager, other than an installer, that has written toolkit.env; empty if there is none."""
    names = writers(policy, ("spec", "toolkit", "env"))
    return next((name for name in names if not name.startswith(_INSTALLERS)), "")
