# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the GPU operator and NFD are installed, and what conflicts with the declaration."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field, replace

from ..catalog import releases
from ..catalog.names import FIELD_MANAGER, LICENSING_MANAGER, MIG_CONFIG_LABEL, NFD_PREFIX, WORKLOAD_LABEL
from ..catalog.openshift import (
    API_PATH,
    AUTOMATIC,
    CSV_KIND,
    EXAMPLES_ANNOTATION,
    HELM,
    NFD_CR,
    OLM,
    OWNER_KIND_LABEL,
    OWNER_LABEL,
    SUBSCRIPTION_FIELDS,
    V1ALPHA1,
)
from ..catalog.taints import untolerated_taints
from ..core.messages import abbreviate, abbreviate_nodes, join_words
from ..core.values import Document, Object, get_nested, parse_json
from ..helm.preparation import overwritten
from ..kube.errors import ApiError
from ..kube.fields import (
    GITOPS_TOOLS,
    ReleaseId,
    defaults_at,
    gitops_owner,
    has_records,
    helm_release_of,
    is_created_by_collection,
    is_deleting,
    name_of,
    reverts_changes,
    writers,
)
from ..kube.paths import DEPLOYMENTS
from ..nodes.node import parse_node
from ..nodes.ownership import POOL_OWNER, assign_pools, pool_members, recorded, undiscovered_candidates
from ..schema.variables import (
    depend_on_default_workload,
    enabled_value,
    explain_missing,
    missing_operands,
    remedy_for_pools,
    runs,
    workload_for_virtual_machines,
)
from .cluster_policy import (
    POLICY_API_VERSION,
    POLICY_KIND,
    SWITCH,
    Path,
    active_policy,
    is_unset,
    may_show,
    needs_own_strategies,
    needs_own_tolerations,
    removed_mig_strategy,
    uses_driver_objects,
)

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from ..pools.plan import ComponentPlan, Plan, PolicyPlan

# Finds the fields of a ClusterPolicy that were set manually and that an upgrade of the Helm release would overwrite (pure).
#
# An upgrade also overwrites fields that no user has set: their values are defaults of the CRD, which the API server stores when Helm creates the
# object, or values that the collection has applied.

_MISSING = object()
# The field managers of changes that are not manual: Helm (which kubernetes.core.helm runs), GitOps tools and the operator.
_WRITERS = (
    "helm",
    *(manager for tool in GITOPS_TOOLS.values() for manager in tool.helm_managers),
    "gpu-operator",
)
# The prefix of the field manager of Terraform's Helm provider; the provider's version follows the prefix.
_TERRAFORM = "terraform-provider-helm"


@dataclass(frozen=True)
class ManualField:
    """A field below spec that was set manually: its current value, the value that Helm would write (None: Helm removes it), and its writers."""

    path: Path
    value: t.Any = field(repr=False)
    replacement: t.Any = field(repr=False)
    writers: tuple[str, ...] = ()

    def __str__(self) -> str:
        writer = f"set by {', '.join(self.writers)}" if self.writers else "its writer is not recorded"
        effect = "Helm would remove it" if self.replacement is None else "Helm would set a different value"
        return f"spec.{'.'.join(self.path)} ({writer}; {effect})"

    @property
    def as_value(self) -> str:
        """The Helm value with which an upgrade would keep the field, as a string."""
        name = ".".join(self.path)
        if not may_show(self.path, self.value):
            return f"{name} (as in the ClusterPolicy)"
        return f"{name}: {str(self.value).lower() if isinstance(self.value, bool) else self.value}"


@dataclass(frozen=True)
class KnownSources:
    """The sources of values in the ClusterPolicy other than manual changes.

    `manifests` contains the specs in the old and in the new chart's manifest, and `desired` contains the values that the user sets for the Helm release.
    `definitions` contains CRDs of the ClusterPolicy: from the new chart, from the installed chart, and from the cluster. The cluster may already have
    the new CRD.
    """

    manifests: tuple[Document, Document] = ({}, {})
    desired: Document = field(default_factory=dict)
    definitions: tuple[Document, ...] = ()

    def explains(self, path: Path, value: t.Any) -> bool:
        """Whether a manifest contains this value, a CRD has it as the default, or the user sets any value at this path."""
        return (
            _is_covered(self.desired, path)
            or any(_get(manifest, path) == value for manifest in self.manifests)
            or any(value in defaults_at(definition, ("spec", *path)) for definition in self.definitions)
        )


def manual_fields(live: Document, sources: KnownSources) -> list[ManualField]:
    """The fields of the live object that an upgrade would change and that must have been set manually, because no known source explains their values.

    If the object has no managedFields, only its values are considered.
    """
    fields = []
    for path, value, replacement in overwritten(live.get("spec") or {}, *sources.manifests):
        if not is_unset(value) and not sources.explains(path, value):
            names = foreign_writers(live, path)
            if names is None or names:
                fields.append(ManualField(path, value, replacement, tuple(names or ())))
    return fields


def foreign_writers(live: Document, path: Path) -> list[str] | None:
    """The managers of a field below spec, other than Helm, the operator and the collection; None if the object does not record managers."""
    if not has_records(live):
        return None
    known = {*_WRITERS, FIELD_MANAGER, LICENSING_MANAGER}
    names = writers(live, ("spec", *path))
    return [name for name in names if name not in known and not name.startswith(_TERRAFORM)]


def _is_covered(values: t.Any, path: Path) -> bool:
    """Whether the values contain this path, or a value other than a map at one of its parent paths."""
    for key in path:
        if not isinstance(values, t.Mapping):
            return True
        if key not in values:
            return False
        values = values[key]
    return True


def _get(document: Document, path: Path) -> t.Any:
    parent = get_nested(document, *path[:-1])
    return parent.get(path[-1], _MISSING) if isinstance(parent, dict) else _MISSING


def manual_fields_message(fields: t.Sequence[ManualField], name: str) -> str:
    """The message that rejects an upgrade because of these fields, with the values that would keep them."""
    paths = ", ".join(map(str, fields))
    values = ", ".join(each.as_value for each in fields)
    return (
        f"Helm would overwrite fields that were set manually in ClusterPolicy {name}: {paths}. To keep them, set these values of the Helm "
        f"release (release_values; gpu_cluster.operator.values): {values}. To discard them, set the values of the new chart there, or remove "
        f"the fields from the ClusterPolicy (kubectl edit clusterpolicy {name}). Nothing has been upgraded."
    )


# Recognizes the manager of an installation from the Deployment of NFD or of the GPU operator, and decides how a run handles that installation (pure).
#
# The manager is recognized by marks on the Deployment: marks of GitOps tools (see kube/fields.py), Helm's annotations, OLM's labels, or an owner.
# An installation that this collection did not create, and that gpu_cluster does not name, is adopted: it is used as is and never upgraded.
# The same applies to every installation that a GitOps tool manages, even if gpu_cluster names it.

# The possible managers of a Deployment, other than GitOps tools.
HELM_MANAGER, OLM_MANAGER, OWNER, UNMANAGED = "helm", "olm", "owner", "unmanaged"

_VERSION = re.compile(r"v?\d+\.\d+\.\d+(?:[-+][0-9A-Za-z.-]+)?")
_PROGRAMS = {"operator": "gpu-operator", "nfd": "nfd-master"}
TITLES = {"operator": "GPU operator", "nfd": "NFD"}


@dataclass(frozen=True)
class Installation:
    """One Deployment of NFD's master or of the GPU operator. `release` is (name, namespace) if Helm manages it.

    `manager` is a key of GITOPS_TOOLS, helm, olm, owner or unmanaged; `managed_by` describes it in messages; `version` is empty if unknown.
    """

    component: str
    deployment: str
    namespace: str
    manager: str
    managed_by: str
    version: str
    release: ReleaseId | None = None
    running: bool = True
    # Whether a NodeFeatureDiscovery object of OpenShift configures the installation. A run adds the pools' tolerations to that object.
    has_discovery_object: bool = False

    @property
    def title(self) -> str:
        """The component, its version, its namespace and its manager."""
        version = f" {self.version}" if self.version else ""
        return f"{TITLES[self.component]}{version} in namespace {self.namespace} ({self.managed_by})"


@dataclass(frozen=True)
class InstallationFinding:
    """The decision for a component: its role installs or upgrades it (`managed`), adopts it, or fails with the problem."""

    installation: Installation | None
    managed: bool
    problem: str = ""
    notes: tuple[str, ...] = ()
    # The release that a run installs or upgrades to; None if it is the release of the plan with which the finding was made.
    planned: ComponentPlan | None = None

    @property
    def adopted(self) -> bool:
        """Whether a foreign installation is used unchanged."""
        return self.installation is not None and not self.managed and not self.problem

    @property
    def installer(self) -> str:
        """The installer with which a run installs or upgrades the component."""
        return self.planned.installer if self.planned else HELM

    @property
    def configures_discovery(self) -> bool:
        """Whether a run configures the NodeFeatureDiscovery object; only meaningful in the finding for NFD."""
        if self.managed:
            return self.installer == OLM
        return self.adopted and self.installation is not None and self.installation.has_discovery_object

    @property
    def installs(self) -> bool:
        """Whether the component is missing and will be installed."""
        return self.installation is None and self.managed and not self.problem

    def as_dict(self) -> dict[str, t.Any]:
        """The finding, formatted for a module's result."""
        installation = self.installation
        result: dict[str, t.Any] = {
            "found": installation is not None,
            "managed": self.managed,
            "adopted": self.adopted,
            "problem": self.problem,
            "notes": list(self.notes),
            "installer": self.installer if self.managed else "",
        }
        if self.managed and self.planned is not None and self.planned.olm is not None:
            # The options of the module olm_subscription; None means that an option is not set.
            result["subscription"] = {
                "namespace": self.planned.namespace,
                "namespace_labels": dict(self.planned.namespace_labels),
                "version": self.planned.version,
                **{option: value for option, value in self.planned.olm.items() if option != "resource"},
            }
        if installation is None or installation.component == "nfd":
            result["discovery_object"] = self.configures_discovery
        if installation is not None:
            result["what"] = installation.title
            for key in ("deployment", "namespace", "manager", "managed_by", "version"):
                result[key] = getattr(installation, key)
        return result


def read_installation(component: str, deployment: Document) -> Installation | None:
    """The installation that a Deployment is part of; None if it runs another program. `component` is operator or nfd."""
    containers = deployment["spec"]["template"]["spec"].get("containers") or []
    container = next((item for item in containers if _runs(item, _PROGRAMS[component])), None)
    if container is None:
        return None
    metadata = deployment["metadata"]
    manager, managed_by, release = _manager(deployment)
    return Installation(
        component=component,
        deployment=metadata["name"],
        namespace=metadata["namespace"],
        manager=manager,
        managed_by=managed_by,
        version=_version(metadata, container),
        release=release,
        running=deployment["spec"].get("replicas", 1) != 0,
        has_discovery_object=any(
            (owner.get("apiVersion"), owner["kind"]) == NFD_CR for owner in metadata.get("ownerReferences") or ()
        ),
    )


def evaluate_nfd(
    installations: t.Sequence[Installation],
    planned: ComponentPlan,
    managed: t.Container[ReleaseId],
    replaced: ReleaseId | None = None,
) -> InstallationFinding:
    """The finding for NFD. `managed` contains the Helm releases that this collection has installed.

    `replaced` is a release of the operator that will be upgraded with the collection's values, which disable the NFD that is part of the release.
    """
    return evaluate_helm([item for item in installations if not replaced or item.release != replaced], planned, managed)


def evaluate_operator(
    installations: t.Sequence[Installation],
    policies: t.Sequence[Document],
    planned: ComponentPlan,
    managed: t.Container[ReleaseId],
) -> InstallationFinding:
    """The finding for the GPU operator, including problems and notes about its ClusterPolicies."""
    return with_policies(evaluate_helm(installations, planned, managed), policies, planned)


def with_policies(
    finding: InstallationFinding, policies: t.Sequence[Document], planned: ComponentPlan
) -> InstallationFinding:
    """Add to the finding the problem or the notes that result from the ClusterPolicies.

    OLM does not create a ClusterPolicy: a run creates a missing one from the operator's example, and a policy without an operator is not a problem.
    """
    if finding.problem or (finding.installation is None and planned.installer != HELM):
        return finding
    if finding.installation is None:
        orphans = [item for item in policies if helm_release_of(item) != (planned.name, planned.namespace)]
        return replace(finding, problem=_orphans_problem(orphans)) if orphans else finding
    if finding.managed:
        return finding
    if not policies and finding.installation.manager != OLM_MANAGER:
        problem = f"{finding.installation.title} has no ClusterPolicy. Create one, and run the playbook again."
        return replace(finding, problem=problem, notes=())
    return replace(finding, notes=(*finding.notes, *_ignored_policies(policies)))


def with_reverted_fields(
    finding: InstallationFinding, policy: Document | None, planned: PolicyPlan
) -> InstallationFinding:
    """Add a note if another tool reconciles the ClusterPolicy, because it would revert the fields that the pools set."""
    if policy is None or finding.problem:
        return finding
    owner = gitops_owner(policy, "ClusterPolicy")
    manages = (
        reverts_changes({**policy, "apiVersion": POLICY_API_VERSION, "kind": POLICY_KIND}) if owner is None else ""
    )
    if owner is None and not manages:
        return finding
    fields = {f"/spec/{part}/{name}" for part, value in planned.spec.items() for name in value}
    fields |= {"/spec/daemonsets/tolerations"} if needs_own_tolerations(policy, planned.tolerations) else set()
    fields |= {"/spec/mig/strategy"} if needs_own_strategies(policy, planned) else set()
    if not fields:
        return finding
    paths = ", ".join(sorted(fields))
    note = (
        f"{owner} reconciles ClusterPolicy {policy['metadata']['name']} from its source, and the pools set {paths} there: set them in the source "
        f"as well, or exclude them; {owner.exclusions}"
        if owner is not None
        else f"{manages.removesuffix('.')}: {paths}"
    )
    return replace(finding, notes=(*finding.notes, note))


def same_version(installed: str, planned: str) -> bool:
    """Whether two versions are equal, with or without a leading v; an unknown or unset version equals every version."""
    return not installed or not planned or installed.removeprefix("v") == planned.removeprefix("v")


def missing_tolerations(workers: t.Iterable[Document], taints: t.Iterable[Document]) -> list[Document]:
    """The taints of the pools that the workers of an adopted NFD do not tolerate."""
    specs = [item["spec"]["template"]["spec"] for item in workers]
    if not specs:
        return []
    return untolerated_taints([item for spec in specs for item in spec.get("tolerations") or []], taints)


def unlabeled_nodes(nodes: t.Iterable[Document], taints: t.Iterable[Document]) -> list[str]:
    """The nodes with one of these taints that NFD has not labeled."""
    blocking = {(taint["key"], taint["effect"]) for taint in taints}
    return [
        node["metadata"]["name"]
        for node in nodes
        if any((taint["key"], taint["effect"]) in blocking for taint in node["spec"].get("taints") or ())
        and not any(label.startswith(NFD_PREFIX) for label in node["metadata"].get("labels") or ())
    ]


def evaluate_helm(
    installations: t.Sequence[Installation], planned: ComponentPlan, managed: t.Container[ReleaseId]
) -> InstallationFinding:
    """The finding for a component that Helm installs; `managed` contains the Helm releases that this collection has installed."""
    # An installation that is scaled to zero does not interfere with a running one.
    relevant = [item for item in installations if item.running] or list(installations)
    if not relevant:
        return InstallationFinding(None, managed=True)
    first = relevant[0]
    title = TITLES[first.component]
    if len(relevant) > 1:
        titles = "; ".join(item.title for item in relevant)
        problem = f"The cluster has {len(relevant)} installations of {title}, which conflict: {titles}. Uninstall all but one."
        return InstallationFinding(first, managed=False, problem=problem)
    # A GitOps tool would revert an upgrade by Helm.
    if first.manager not in GITOPS_TOOLS and (planned.named or first.release in managed):
        if first.release == (planned.name, planned.namespace):
            return InstallationFinding(first, managed=True)
        if first.release in managed:
            name, namespace = t.cast("ReleaseId", first.release)
            problem = (
                f"This collection has installed {title} as Helm release {namespace}/{name}, but gpu_cluster names "
                f"{planned.namespace}/{planned.name}. A Helm release cannot be moved: restore the old names, or run accel.gpu.uninstall "
                "with the old names first."
            )
            return InstallationFinding(first, managed=False, problem=problem)
    notes = (
        f"the Helm release {planned.namespace}/{planned.name} that gpu_cluster.{first.component} names is not installed, because this installation exists",
    )
    return InstallationFinding(first, managed=False, notes=notes if planned.named else ())


def _ignored_policies(policies: t.Sequence[Document]) -> t.Iterator[str]:
    if len(policies) > 1:
        active = t.cast("Document", active_policy(policies))["metadata"]["name"]
        others = sorted(item["metadata"]["name"] for item in policies if item["metadata"]["name"] != active)
        yield f"it follows the oldest ClusterPolicy, {active}, and ignores {', '.join(others)}: delete those that are not needed"


def _orphans_problem(policies: t.Sequence[Document]) -> str:
    names = sorted(item["metadata"]["name"] for item in policies)
    return (
        f"ClusterPolicy {', '.join(names)} exists without a GPU operator. Restore that operator, or delete its objects "
        f"(kubectl delete clusterpolicy {' '.join(names)}), and run the playbook again."
    )


def _runs(container: Document, program: str) -> bool:
    """Whether a container runs the program, according to its command or, if it has none, to its image name."""
    command = [*(container.get("command") or []), *(container.get("args") or [])]
    if command and str(command[0]).rpartition("/")[2] == program:
        return True
    return not container.get("command") and _image(container).partition(":")[0] == program


def _image(container: Document) -> str:
    """The last part of the image's path, with its tag."""
    return str(container.get("image") or "").partition("@")[0].rpartition("/")[2]


def _manager(deployment: Document) -> tuple[str, str, ReleaseId | None]:
    metadata = deployment["metadata"]
    labels = metadata.get("labels") or {}
    release = helm_release_of(deployment)
    owner = gitops_owner(deployment, "Deployment")
    if owner is not None:
        return owner.tool.name, str(owner), release
    if release is not None:
        return HELM_MANAGER, f"Helm release {release[1]}/{release[0]}", release
    if labels.get(OWNER_KIND_LABEL) == CSV_KIND and labels.get(OWNER_LABEL):
        return OLM_MANAGER, f"OLM, {CSV_KIND} {labels[OWNER_LABEL]}", None
    for reference in metadata.get("ownerReferences") or []:
        kind = OLM_MANAGER if reference["kind"] == CSV_KIND else OWNER
        return kind, f"{reference['kind']} {reference['name']}", None
    return UNMANAGED, "managed by neither Helm nor OLM", None


def _version(metadata: Document, container: Document) -> str:
    """The version from the image's tag, otherwise from the name of OLM's owner, the version label or the chart label; empty if unknown."""
    labels = metadata.get("labels") or {}
    texts = [
        _image(container).partition(":")[2],
        labels.get(OWNER_LABEL),
        *(owner["name"] for owner in metadata.get("ownerReferences") or []),
        labels.get("app.kubernetes.io/version"),
        labels.get("helm.sh/chart"),
    ]
    return next((match[0] for text in texts if (match := _VERSION.search(str(text or "")))), "")


# Finds the reasons why an operator cannot be used or cannot install the pools' drivers (pure).
#
# The reasons are GPUCluster objects, GitOps sources, and operands that the ClusterPolicy disables although pools need them.
#
# Source: gpu-operator v26.7.0 controllers/clusterpolicy_controller.go and nodelabeling_controller.go: if both a ClusterPolicy and a GPUCluster
# exist, the operator reports an error and labels no nodes.


def may_have_gpu_clusters(finding: InstallationFinding) -> bool:
    """Whether the installed operator may support GPUCluster objects; True if its version is unknown."""
    installation = finding.installation
    return installation is not None and releases.release_of(installation.version) >= releases.GPU_CLUSTER_SINCE


def with_gpu_clusters(
    finding: InstallationFinding, policy: Document | None, clusters: t.Sequence[Document]
) -> InstallationFinding:
    """Add a problem to the finding if GPUCluster objects exist."""
    if not clusters:
        return finding
    name = clusters[0]["metadata"]["name"]
    if policy is None:
        problem = (
            f"GPUCluster {name} provides the GPUs of this cluster through dynamic resource allocation (DRA), without a ClusterPolicy. This "
            "collection shares GPUs through the device plugin, which this cluster does not run. Use this cluster without the collection. Or, "
            f"to move it to the device plugin, run kubectl delete gpucluster {name}, create a ClusterPolicy, and run the playbook again."
        )
    else:
        problem = (
            f"GPUCluster {name} exists in addition to ClusterPolicy {policy['metadata']['name']}. The operator rejects this combination: it "
            "reports an error and labels no new node. To share GPUs through the device plugin with this collection, run kubectl delete "
            f"gpucluster {name}; its pods with resource claims lose their GPUs. To use dynamic resource allocation (DRA), run "
            "accel.gpu.uninstall."
        )
    return replace(finding, problem=problem, notes=())


def with_driver_source(finding: InstallationFinding, policy: Document | None, plan: Plan) -> InstallationFinding:
    """Add a problem to the finding if a GitOps source would disable the pools' NVIDIADriver objects again."""
    owner = gitops_owner(policy, "ClusterPolicy") if policy is not None else None
    if policy is None or owner is None or finding.problem or not plan.declares_drivers:
        return finding
    if uses_driver_objects(policy.get("spec") or {}):
        return finding
    problem = (
        f"Pools declare `driver`, which needs spec.{'.'.join(SWITCH)}: true in ClusterPolicy {policy['metadata']['name']}, but {owner} would "
        "revert this field, and the driver of every node would be replaced twice. Set the field in that source, which restarts the driver on "
        "every node, and run the playbook again; or remove `driver` from the pools."
    )
    return replace(finding, problem=problem, notes=())


def with_mig_strategy(
    finding: InstallationFinding, policy: Document | None, plan: Plan, nodes: t.Callable[[], t.Iterable[Document]]
) -> InstallationFinding:
    """Add a problem to the finding if nodes outside the pools would lose their MIG devices; the nodes are read only if a MIG strategy is removed."""
    if policy is None or finding.problem or not removed_mig_strategy(policy, plan.policy):
        return finding
    problem = lost_mig_devices(policy, plan, nodes())
    return replace(finding, problem=problem, notes=()) if problem else finding


def lost_mig_devices(policy: Document, plan: Plan, raw_nodes: t.Iterable[Document]) -> str:
    """The problem that the run would remove the MIG strategy with which nodes outside the pools offer their MIG devices; empty if there is none."""
    nodes = [parse_node(item) for item in raw_nodes]
    membership = assign_pools(plan.pools, nodes)
    known = pool_members(membership) | set(undiscovered_candidates(plan.pools, nodes, membership))
    # A run that releases nodes of removed pools also resets their partitioning, and refuses this on its own.
    losing = [
        node.name
        for node in nodes
        if node.name not in known and node.is_partitioned and MIG_CONFIG_LABEL not in recorded(node, POOL_OWNER).labels
    ]
    if not losing:
        return ""
    name, needed = policy["metadata"]["name"], sorted(plan.policy.mig_strategies)
    strategy = removed_mig_strategy(policy, plan.policy)
    belong, offer, them = ("belong", "offer their", "them") if len(losing) > 1 else ("belongs", "offers its", "it")
    equal = f"declare sharing.strategy: {strategy} for every pool with MIG; " if "none" not in needed else ""
    return (
        f"ClusterPolicy {name}: spec.mig.strategy is {strategy}. A run removes it, because it overrides the strategies of the pools "
        f"({join_words(needed)}). But {abbreviate_nodes(losing)} {belong} to no pool and {offer} MIG devices with this strategy; without it, the device "
        f"plugin no longer offers them. Declare a pool with sharing.mode: mig for {them}; {equal}or, if nobody needs these devices, remove "
        f"spec.mig.strategy from the ClusterPolicy (kubectl edit clusterpolicy {name}). Then run the playbook again."
    )


def with_operands(finding: InstallationFinding, policy: Document | None, plan: Plan) -> InstallationFinding:
    """Add a problem to the finding if, after a run, an operand does not run that a pool needs."""
    if policy is None or finding.problem:
        return finding
    pools = [(pool.name, pool.sharing.definition, pool.labels) for pool in plan.pools]
    missing = missing_operands(pools, lambda part: operand_runs(policy, plan, part, managed=finding.managed))
    if not missing:
        return _with_default_workload(finding, policy, plan)
    name = policy["metadata"]["name"]
    # The writer, the rule and the remedy of each field; the remedy for the pools is the same for most fields, and is given once.
    problems = [
        f"ClusterPolicy {name}: spec.{part}.enabled is false{_set_by(policy, part)}, but {explain_missing(part, pools_of)}"
        for part, pools_of in missing.items()
    ]
    remedies = dict.fromkeys(remedy_for_pools(part) for part in missing)
    fields = "it" if len(missing) == 1 else "these fields"
    problem = f"{'. '.join(problems)}. {_enable(policy, plan, finding, name, fields)}, {', '.join(remedies)}."
    return replace(finding, problem=problem, notes=())


def _with_default_workload(finding: InstallationFinding, policy: Document, plan: Plan) -> InstallationFinding:
    """Add a note to the finding if the operator prepares nodes for virtual machines unless a label chooses containers.

    It is no problem, because a label that a user has set on a node also counts.
    """
    values = plan.operator.values if finding.managed else {}
    workload = workload_for_virtual_machines(values, policy.get("spec") or {})
    pools = depend_on_default_workload((pool.name, pool.labels) for pool in plan.pools) if workload else []
    if not pools:
        return finding
    note = (
        f"ClusterPolicy {policy['metadata']['name']}: spec.sandboxWorkloads.defaultWorkload is {workload}, so on nodes without the label {WORKLOAD_LABEL}, the "
        f"operator runs no operand for containers, and containers get no GPU. {'Pool' if len(pools) == 1 else 'Pools'} {abbreviate(pools)} "
        f"{'does' if len(pools) == 1 else 'do'} not set this label. For GPUs in containers, add {WORKLOAD_LABEL}: container to labels of the pool."
    )
    return replace(finding, notes=(*finding.notes, note))


def operand_runs(policy: Document, plan: Plan, part: str, *, managed: bool) -> bool:
    """Whether an operand runs after a run has applied the plan; `managed`: whether the run applies the operator's values.

    Helm only changes a field if its value in the manifest changes, so it keeps a field that another writer has set.
    """
    spec, path = policy.get("spec") or {}, (part, "enabled")
    declared = enabled_value(plan.operator.values, part)
    created = plan.operator.installer == OLM and is_created_by_collection(policy)
    by_helm = managed and helm_release_of(policy) == (plan.operator.name, plan.operator.namespace)
    if not (created or by_helm):
        return runs(spec, part)
    if created:
        own = FIELD_MANAGER in writers(policy, ("spec", *path))
        return runs({} if own and declared is None else spec, part) if declared is None else declared
    foreign = foreign_writers(policy, path)
    if foreign:
        return runs(spec, part)
    if declared is None:
        # The chart enables the operands by default. Without a record of the writers, the value may also be a manual one.
        return runs({} if foreign is not None else spec, part)
    return declared


def _set_by(policy: Document, part: str) -> str:
    names = foreign_writers(policy, (part, "enabled"))
    return f" (set by {', '.join(names)})" if names else ""


def _enable(policy: Document, plan: Plan, finding: InstallationFinding, name: str, fields: str) -> str:
    """How the user enables the operands."""
    owner = gitops_owner(policy, "ClusterPolicy")
    if owner is not None:
        return f"Set {fields} to true in the source of {owner}"
    release = helm_release_of(policy)
    if release is not None and not finding.managed:
        return f"Set {fields} to true in the values of Helm release {release[1]}/{release[0]}"
    return f"Set {fields} to true (kubectl edit clusterpolicy {name})"


# Evaluates installations through OLM and reads the examples of custom resources in their ClusterServiceVersions.

# The packages of the catalogs of OperatorHub (certified, marketplace, community) that install a component.
_PACKAGES = {
    "operator": ("gpu-operator-certified", "gpu-operator-certified-rhmp", "gpu-operator"),
    "nfd": ("nfd", "node-feature-discovery-operator"),
}
# OLM creates the GPU operator's Deployment; NFD's operator, which OLM installs, creates the Deployment of NFD's master.
_MADE_BY_OLM = (OLM_MANAGER, OWNER)


def subscribed_namespaces(client: Client, installations: t.Iterable[Installation], planned: ComponentPlan) -> set[str]:
    """The namespaces of these installations in which this collection has created the Subscription for the planned package.

    Without permission to list Subscriptions there, it is unknown whether a run upgrades the installation, so this raises the server's error.
    """
    namespaces = {item.namespace for item in installations if item.manager in _MADE_BY_OLM}
    return {
        namespace
        for namespace in namespaces
        for item in _subscriptions(client, namespace)
        if item["metadata"]["namespace"] == namespace
        and is_created_by_collection(item)
        and planned.olm is not None
        and get_nested(item, "spec", "name") == planned.olm["package"]
    }


def evaluate_olm(
    installations: t.Sequence[Installation],
    planned: ComponentPlan,
    by_helm: t.Container[ReleaseId],
    subscribed: t.Container[str],
) -> InstallationFinding:
    """The finding for a component that OLM installs.

    `by_helm` contains this collection's Helm releases, and `subscribed` contains the namespaces with this collection's Subscriptions.
    """
    finding = evaluate_helm(installations, replace(planned, named=False), ())
    if finding.problem or finding.installation is None:
        return replace(finding, planned=planned)
    installation = finding.installation
    title = TITLES[installation.component]
    if installation.manager == HELM_MANAGER and installation.release in by_helm:
        problem = (
            f"This collection has installed {title} with Helm ({installation.managed_by}), but gpu_cluster.{installation.component}.installer is olm. Set "
            "installer: helm to keep it; or run accel.gpu.uninstall with installer: helm, and then install it through OLM."
        )
        return InstallationFinding(installation, managed=False, problem=problem)
    own = installation.manager in _MADE_BY_OLM and installation.namespace in subscribed
    if not own and not (planned.named and installation.manager in _MADE_BY_OLM):
        note = f"the installation that gpu_cluster.{installation.component} names is not created, because this installation exists"
        return replace(finding, notes=(note,) if planned.named else ())
    if installation.namespace != planned.namespace:
        if not own:
            return finding
        problem = (
            f"This collection has installed {title} in namespace {installation.namespace}, but gpu_cluster names {planned.namespace}. A Subscription "
            "cannot be moved: restore the namespace, or run accel.gpu.uninstall with the old namespace first."
        )
        return InstallationFinding(installation, managed=False, problem=problem)
    return InstallationFinding(installation, managed=True, planned=planned)


def other_subscriptions(client: Client, component: str, planned: ComponentPlan) -> str:
    """The problem if another Subscription for the component exists before it is installed; otherwise empty. Without the permission to list them, it is unknown.

    A Subscription without a running operator has failed or is still at work. With a second one, two versions would own the same CRDs.
    """
    packages = {*_PACKAGES[component], *([planned.olm["package"]] if planned.olm else ())}
    try:
        subscriptions = client.list_once(f"{API_PATH}/subscriptions")
    except ApiError as error:
        if not error.forbidden:
            raise
        return ""
    others = [
        item
        for item in subscriptions
        if get_nested(item, "spec", "name") in packages
        and (
            item["metadata"]["namespace"] != planned.namespace or get_nested(item, "spec", "name") != _package(planned)
        )
    ]
    if not others:
        return ""
    described = [
        f"Subscription {item['metadata']['namespace']}/{item['metadata']['name']} (package {get_nested(item, 'spec', 'name')}, state "
        f"{get_nested(item, 'status', 'state') or 'unknown'})"
        for item in others
    ]
    first = others[0]["metadata"]
    return (
        f"{TITLES[component]} is not running, but another Subscription installs it: {abbreviate(described)}. Two Subscriptions of one operator conflict, "
        f"because both own its CRDs. Repair that installation, and set gpu_cluster.{component}.namespace: {first['namespace']} to manage it; or remove it "
        f"(kubectl -n {first['namespace']} delete subscriptions.operators.coreos.com {first['name']}, and its ClusterServiceVersion), and run the playbook "
        "again."
    )


def _package(planned: ComponentPlan) -> str:
    return str(planned.olm["package"]) if planned.olm else ""


def missing_olm(client: Client, component: str) -> str:
    """The problem if OLM is missing from the cluster; otherwise empty."""
    if client.get(API_PATH) is not None:
        return ""
    return (
        f"This cluster has no OLM (the API {V1ALPHA1}), which gpu_cluster needs for {TITLES[component]}: set "
        f"gpu_cluster.{component}.installer: helm, or correct gpu_cluster.distribution."
    )


def csv_of(deployment: Document) -> str:
    """The name of the ClusterServiceVersion that this Deployment belongs to; empty if OLM has not created it."""
    labels = deployment["metadata"].get("labels") or {}
    return str(labels.get(OWNER_LABEL) or "") if labels.get(OWNER_KIND_LABEL) == CSV_KIND else ""


def read_example(client: Client, namespace: str, kind: str) -> Object | None:
    """The example of this kind in the namespace's ClusterServiceVersions; installed versions take precedence. None if there is no example."""
    versions = sorted(
        client.list_known(f"{API_PATH}/namespaces/{namespace}/clusterserviceversions"),
        key=lambda item: get_nested(item, "status", "phase") != "Succeeded",
    )
    return next((example for item in versions if (example := example_of(item, kind)) is not None), None)


def example_of(version: Document, kind: str) -> Object | None:
    """The first example of this kind in a ClusterServiceVersion; None if there is none, or if the examples cannot be read.

    Examples are selected by their kind, because their order differs between releases.
    """
    text = get_nested(version, "metadata", "annotations", EXAMPLES_ANNOTATION)
    examples = parse_json(text, list) if isinstance(text, str) else None
    return next((item for item in examples or () if isinstance(item, dict) and item.get("kind") == kind), None)


def operator_owner(client: Client, field_selector: str) -> tuple[str, str]:
    """The namespace and the ClusterServiceVersion of the selected Deployment that OLM has created; both empty if there is none."""
    for item in client.list(DEPLOYMENTS, field_selector=field_selector):
        if owner := csv_of(item):
            return item["metadata"]["namespace"], owner
    return "", ""


# Describes, for a plan, the changes to the OLM objects of an installed operator; in a run, the package olm makes these changes.

# The value that OLM assumes for a field that a Subscription lacks.
_DEFAULTS = {"installPlanApproval": AUTOMATIC}


def read_olm_changes(client: Client, finding: InstallationFinding) -> list[str]:
    """The changes to the Subscription and to ClusterServiceVersions; read only if a run manages an installed component through OLM."""
    planned = finding.planned
    if finding.installation is None or not finding.managed or finding.installer != OLM or planned is None:
        return []
    path = f"{API_PATH}/namespaces/{planned.namespace}"
    try:
        subscriptions = _subscriptions(client, planned.namespace)
        own = [item for item in subscriptions if item["metadata"].get("namespace") in (None, planned.namespace)]
        changes = olm_changes(planned, own, client.list_known(f"{path}/clusterserviceversions"))
        return [*changes, *_second_subscriptions(planned, subscriptions)]
    except ApiError as error:
        if not error.forbidden:
            raise
        return [
            f"you do not have permission to list OLM objects in namespace {planned.namespace}, so the changes to them are unknown"
        ]


def _subscriptions(client: Client, namespace: str) -> t.Sequence[Object]:
    """The Subscriptions of all namespaces or, without the permission to list them, of this namespace."""
    try:
        return client.list_once(f"{API_PATH}/subscriptions")
    except ApiError as error:
        if not error.forbidden:
            raise
        return client.list_once(f"{API_PATH}/namespaces/{namespace}/subscriptions")


def _second_subscriptions(planned: ComponentPlan, subscriptions: t.Iterable[Object]) -> t.Iterator[str]:
    """A sentence for each Subscription of the same package in another namespace; it may have failed, so that it has no Deployment."""
    package = planned.olm["package"] if planned.olm else ""
    for item in subscriptions:
        namespace = item["metadata"].get("namespace") or planned.namespace
        if namespace != planned.namespace and get_nested(item, "spec", "name") == package:
            yield (
                f"Subscription {namespace}/{name_of(item)} is a second one of package {package} (state "
                f"{get_nested(item, 'status', 'state') or 'unknown'}); both own the same CRDs, so delete the one that is not needed"
            )


def olm_changes(planned: ComponentPlan, subscriptions: t.Iterable[Object], csvs: t.Iterable[Object]) -> list[str]:
    """The changes, each as a part of a sentence. Fields that the plan does not set, for example the channel, keep their values."""
    olm = planned.olm
    if olm is None:
        return []
    package = olm["package"]
    live = next((item for item in subscriptions if get_nested(item, "spec", "name") == package), None)
    if live is None:
        names = sorted(name_of(csv) for csv in csvs if name_of(csv).startswith(f"{package}.") and not is_deleting(csv))
        if not names:
            return []
        return [
            f"deletes ClusterServiceVersion {join_words(names)}, which no Subscription references, and installs the operator again with a new "
            f"Subscription {planned.namespace}/{package}; the custom resources stay"
        ]
    title, spec = f"Subscription {planned.namespace}/{name_of(live)}", live.get("spec") or {}
    changes = [] if is_created_by_collection(live) else [f"manages {title}, which this collection did not create"]
    for name, option in SUBSCRIPTION_FIELDS.items():
        declared = olm[option]
        allowed = declared if isinstance(declared, list) else [declared]
        current = spec.get(name) or _DEFAULTS.get(name, "(not set)")
        if declared and current not in allowed:
            changes.append(f"{title}: {name} {current} becomes {join_words(allowed, 'or')}")
    config, desired = spec.get("config") or {}, olm["subscription_config"] or {}
    different = [key for key, value in desired.items() if not _has(config.get(key), value)]
    if different:
        changes.append(
            f"{title}: config changes ({join_words(sorted(different))}), which restarts the operator's own pods"
        )
    # The items of a list have no kind.
    reverted = reverts_changes({**live, "apiVersion": V1ALPHA1, "kind": "Subscription"}) if changes else ""
    return [*changes, *([reverted.rstrip(".")] if reverted else [])]


def _has(current: t.Any, desired: t.Any) -> bool:
    """Whether a value of spec.config contains the declared entries; maps and lists may also contain foreign entries."""
    if isinstance(desired, dict):
        return all(_has((current or {}).get(key), value) for key, value in desired.items())
    if isinstance(desired, list):
        return all(item in (current or []) for item in desired)
    return bool(current == desired)
