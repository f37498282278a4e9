# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects that a removal deletes: of OLM, of the operators, of roles, and namespaces."""

from __future__ import annotations

import functools
import json
import typing as t
from dataclasses import dataclass, field

from ..catalog import names
from ..catalog.names import (
    DEVICE_PLUGIN_CONFIGMAP,
    DRIVER_LICENSE_FIELDS,
    LICENSE_FIELDS,
    LICENSE_TOKEN_KEY,
    LICENSING_CONFIG,
    MIG_CONFIGMAP,
    NEW_NODES_NAME,
    OWNED_TOLERATIONS_ANNOTATION,
    VALIDATION_CONFIGMAP,
    VALIDATION_LABEL,
)
from ..catalog.openshift import API_PATH, NFD, PACKAGES, WORKER_TOLERATIONS
from ..catalog.taints import toleration_identity
from ..core.messages import abbreviate
from ..core.values import Document, Object, get_nested
from ..core.waits import call_all
from ..core.yaml_text import is_empty_yaml
from ..gpu_operator.cluster_policy import DRIVER_KIND, is_managed_driver, recorded_tolerations
from ..helm.release import marker_path
from ..kube.errors import ApiError, patch_object
from ..kube.fields import is_deleting, is_written, without_own_entries
from ..kube.objects import Permission
from ..kube.paths import NAMESPACES, NODE_FEATURE_DISCOVERY, PODS, Kind, known_kind, object_path
from ..nodes.mig import is_standard_entry
from ..nodes.pods import CONFIGMAP_PODS_SELECTOR
from ..sharing_modes import mig_parted
from .removal import (
    COPIED,
    Removal,
    applied_labels,
    await_gone,
    deletion,
    has_foreign_entries,
    is_copy,
    is_created,
    is_marked,
    spec_managers,
    split_keys,
    unmark_patch,
)

if t.TYPE_CHECKING:
    from ..helm.preparation import ReleaseRemoval
    from ..kube.client import Client

# Finds the objects with licensing tokens that are kept because a kept ClusterPolicy or NVIDIADriver object refers to them (pure).


def named_license_objects(
    kept_policies: t.Iterable[Document], kept_drivers: t.Iterable[Document]
) -> dict[tuple[str, str], str]:
    """The reason why each Secret or ConfigMap that a kept object refers to is also kept, by kind and name.

    Without the Secret or ConfigMap, a kept operator starts no driver pod; without the reference, it restarts the driver. Therefore, both are kept.
    """
    users = {
        (kind, str(get_nested(item, "spec", *LICENSING_CONFIG, field))): f"ClusterPolicy {item['metadata']['name']}"
        for item in kept_policies
        for kind, field in LICENSE_FIELDS.items()
    }
    users |= {
        (kind, str(get_nested(item, "spec", "licensingConfig", field))): f"NVIDIADriver {item['metadata']['name']}"
        for item in kept_drivers
        for kind, field in DRIVER_LICENSE_FIELDS.items()
    }
    return {
        named: f"{user}, which this collection did not create, refers to it in licensingConfig, and no driver starts without it. To remove it, "
        "first remove the reference (this restarts the driver on every node), then run the playbook again"
        for named, user in users.items()
    }


# Plans the removal of ConfigMaps (foreign entries are kept), of validation pods, and of annotations on NVIDIA's pods.


def configmap_removal(client: Client, configmap: Document, kept: str = "") -> Removal:
    """The removal of a ConfigMap; if it has foreign entries, or `kept` is a reason to keep it, only the collection's entries are removed."""
    metadata = configmap["metadata"]
    label, path = f"ConfigMap {metadata['namespace']}/{metadata['name']}", _path("ConfigMap", configmap)
    own, foreign = split_keys(configmap)
    data: dict[str, str | None] = dict.fromkeys(own)
    if metadata["name"] == MIG_CONFIGMAP and mig_parted.KEY in own and not _is_own_file(client, configmap):
        # Every run adds its entries to the existing file, and writes it as a whole.
        entries = mig_parted.parse_configmap(configmap)
        own, foreign = [key for key in own if key != mig_parted.KEY], [*foreign, mig_parted.KEY]
        others = {name: content for name, content in entries.items() if not mig_parted.is_managed(name)}
        data.pop(mig_parted.KEY)
        if len(others) < len(entries):
            data[mig_parted.KEY] = mig_parted.render_configuration(others)
        named = [name for name, content in others.items() if not is_standard_entry(name, content)]
        kept = kept or (
            f"its file {mig_parted.KEY} has layouts of other tools or users: {abbreviate(named)}"
            if named
            else f"its file {mig_parted.KEY} cannot be read as a list of layouts"
        )
    if not foreign and not kept:
        body = {"preconditions": {"resourceVersion": metadata["resourceVersion"]}}
        return Removal(label, before=own, send=functools.partial(client.delete, path, body=body))
    return Removal(
        label,
        action="managed entries removed",
        kept=kept or f"it has foreign entries: {abbreviate(foreign)}",
        before=own + foreign,
        after=foreign,
        send=functools.partial(_remove_entries, client, path, configmap, data),
    )


def _is_own_file(client: Client, configmap: Document) -> bool:
    """Whether the file of the MIG manager's ConfigMap has only entries of this collection, of NVIDIA, and of other ConfigMaps of the namespace.

    From the latter, a run copied the entries of the ConfigMap that the ClusterPolicy named before, or those that the MIG manager generated.
    """
    entries = mig_parted.parse_configmap(configmap)
    if not entries:
        return is_empty_yaml(str((configmap.get("data") or {}).get(mig_parted.KEY) or ""))
    unknown = {
        name: content
        for name, content in entries.items()
        if not mig_parted.is_managed(name) and not is_standard_entry(name, content)
    }
    if not unknown:
        return True
    name, namespace = configmap["metadata"]["name"], configmap["metadata"]["namespace"]
    others = [
        mig_parted.parse_configmap(item)
        for item in client.list(known_kind("v1", "ConfigMap").collection(namespace))
        if item["metadata"]["name"] != name and mig_parted.KEY in (item.get("data") or {})
    ]
    return all(any(other.get(name) == content for other in others) for name, content in unknown.items())


def keeps_mig_configmap(client: Client, namespace: str) -> bool:
    """Whether configmap_removal() keeps the MIG manager's ConfigMap in this namespace."""
    live = client.get(object_path("v1", "ConfigMap", MIG_CONFIGMAP, namespace))
    return live is not None and is_marked(live) and bool(configmap_removal(client, live).kept)


def foreign_configmap_removals(client: Client, configmaps: t.Iterable[tuple[str, str]]) -> t.Iterator[Removal]:
    """The removals of the collection's entries from foreign ConfigMaps, given by namespace and name."""
    for namespace, name in dict.fromkeys(configmaps):
        configmap = client.get(object_path("v1", "ConfigMap", name, namespace))
        if configmap and is_marked(configmap):
            yield configmap_removal(client, configmap, "this collection did not create it")


def validation_pod_removal(client: Client, pod: Document) -> Removal:
    """The removal of a validation pod of a killed run; the result does not list these pods individually."""
    return Removal("validation pods", send=functools.partial(client.delete, _path("Pod", pod)))


def annotation_removals(client: Client) -> t.Iterator[Removal]:
    """The removals of the annotations that made NVIDIA's pods read their configuration again."""
    for pod in client.list(PODS, label_selector=CONFIGMAP_PODS_SELECTOR, metadata_only=True):
        if names.REFRESH_ANNOTATION in (pod["metadata"].get("annotations") or {}):
            label = f"annotation {names.REFRESH_ANNOTATION} of NVIDIA's agents"
            yield Removal(label, "removed", send=functools.partial(_remove_annotation, client, pod))


def _remove_entries(client: Client, path: str, configmap: Document, data: t.Mapping[str, str | None]) -> None:
    """Change the data in order to remove the collection's entries and labels; raises a conflict if the ConfigMap has changed since it was read."""
    version = configmap["metadata"]["resourceVersion"]
    body: dict[str, t.Any] = {"metadata": {"resourceVersion": version}, "data": dict(data)}
    labels = dict.fromkeys(applied_labels(configmap))
    if labels:
        body["metadata"]["labels"] = labels
    patch = unmark_patch(client.patch(path, body))
    if patch:
        client.patch(path, patch)


def _remove_annotation(client: Client, agent: Document) -> None:
    try:
        client.patch(_path("Pod", agent), {"metadata": {"annotations": {names.REFRESH_ANNOTATION: None}}})
    except ApiError as error:
        if not error.not_found:
            raise


def _path(kind: str, live: Document) -> str:
    return object_path("v1", kind, live["metadata"]["name"], live["metadata"]["namespace"])


# Decides which CRDs of the collection's Helm releases can be deleted, and which are kept because of foreign objects or managers (pure).

_NODE_FEATURE = "NodeFeature.nfd.k8s-sigs.io"
_NODE_OF_FEATURE = "nfd.node.kubernetes.io/node-name"
# The prefix of the NodeFeature that gpu-feature-discovery writes for a node (k8s-device-plugin internal/lm/output.go).
_GFD = "nvidia-features-for-"


def custom_kind(api_version: str, kind: str) -> Kind:
    """A kind with its plural, which is formed in the same way as for the kinds of NVIDIA and NFD."""
    lower = kind.lower()
    plural = f"{lower[:-1]}ies" if lower.endswith("y") else f"{lower}s"
    return Kind(api_version, kind, plural, namespaced=True)


def crd_name(kind: Kind) -> str:
    """The name of the kind's CustomResourceDefinition."""
    return f"{kind.plural}.{kind.api_version.partition('/')[0]}"


def keep_reason(kind: Kind, live: Document, foreign: t.Iterable[Document]) -> str:
    """The reason why a CRD is kept (`foreign` objects, another manager, or OLM); empty if it is deleted."""
    metadata = [item["metadata"] for item in foreign]
    if metadata:
        paths = ["/".join(filter(None, (entry.get("namespace"), entry["name"]))) for entry in metadata]
        return f"foreign objects need it: {abbreviate([f'{kind.kind} {path}' for path in paths])}"
    managers = spec_managers(live)
    if managers:
        return f"{' and '.join(managers)} has also written it"
    labels = live["metadata"].get("labels") or {}
    olm = sorted(key for key in labels if key.startswith(("olm.", "operators.coreos.com/")))
    return f"OLM manages it (label {olm[0]})" if olm else ""


def is_agent_feature(kind: str, item: Document) -> bool:
    """Whether the object is a NodeFeature that NFD's worker or gpu-feature-discovery has written for its node. `kind` is Kind.full_name."""
    metadata = item["metadata"]
    node = (metadata.get("labels") or {}).get(_NODE_OF_FEATURE)
    return kind == _NODE_FEATURE and bool(node) and metadata["name"] in (node, f"{_GFD}{node}")


# Finds the Subscriptions of operators that OLM has installed, and plans the removal of their NodeFeatureDiscovery objects.


def find_subscriptions(client: Client, *, by_olm: bool) -> tuple[list[dict[str, str]], bool]:
    """The result of own_subscriptions() if the cluster has OLM, and whether they could not be read.

    by_olm: whether the variables select OLM for a component. Subscriptions are read even if the variables select Helm, because the variables may
    have changed since the installation. In that case, a missing permission is not an error.
    """
    if not by_olm and client.get(API_PATH) is None:
        return [], False
    try:
        return own_subscriptions(client), False
    except ApiError as error:
        if by_olm or not error.forbidden:
            raise
        return [], True


def own_subscriptions(client: Client) -> list[dict[str, str]]:
    """The Subscriptions that this collection has created, as options of olm_subscription; the GPU operator's come before NFD's.

    Raises the server's error if the user is not allowed to list them; otherwise, operators that keep running would count as removed.
    """
    subscriptions = [
        {
            "name": str(item["metadata"]["name"]),
            "namespace": str(item["metadata"]["namespace"]),
            "package": str(get_nested(item, "spec", "name") or ""),
        }
        for item in client.list_known(f"{API_PATH}/subscriptions")
        if is_created(item)
    ]
    order = [package.package for package in PACKAGES.values()]
    return sorted(subscriptions, key=lambda item: order.index(item["package"]) if item["package"] in order else 0)


def discovery_removals(client: Client) -> list[Removal]:
    """The removals of NodeFeatureDiscovery objects: those that the collection created are deleted; others only lose the collection's tolerations."""
    objects = client.list_known(NODE_FEATURE_DISCOVERY.collection())
    return [removal for item in objects if (removal := _discovery_removal(client, item))]


def without_own_tolerations(item: Document) -> Object | None:
    """The merge patch that removes the recorded tolerations from an object; None if nothing is recorded."""
    recorded = recorded_tolerations(item)
    if recorded is None:
        return None
    own = {toleration_identity(entry) for entry in recorded}
    current = get_nested(item, *WORKER_TOLERATIONS) or []
    kept = [entry for entry in current if toleration_identity(entry) not in own]
    metadata: Object = {"annotations": {OWNED_TOLERATIONS_ANNOTATION: None}}
    patch: Object = {"metadata": {**metadata, "managedFields": without_own_entries(item)}}
    return {**patch, "spec": {"operand": {"workerTolerations": kept}}} if kept != current else patch


def _discovery_removal(client: Client, item: Object) -> Removal | None:
    metadata = item["metadata"]
    label = f"NodeFeatureDiscovery {metadata['namespace']}/{metadata['name']}"
    path = NODE_FEATURE_DISCOVERY.path(metadata["name"], metadata["namespace"])
    if is_created(item):
        gone = functools.partial(await_gone, client, path, metadata["uid"], label, _finalizers)
        return deletion(client, path, item, label, wait=gone)
    recorded = recorded_tolerations(item)
    if recorded is None:
        return None
    return Removal(
        label,
        action="managed tolerations removed",
        kept="this collection did not create it",
        before={"tolerations": json.dumps(recorded)},
        after={},
        send=functools.partial(patch_object, client, path, item, without_own_tolerations),
    )


def _finalizers(live: Document) -> str:
    names = ", ".join(live["metadata"].get("finalizers") or ()) or "none"
    return f"its finalizers are {names}: the NFD operator removes them, so check that it runs"


# Determines which parts of the operator and of NFD are removed; both stages, the removal of namespaces and the role's tasks use these objects.

_NOT_INSTALLED = "this collection did not install"
ADOPTED = f"adopted, stays: {_NOT_INSTALLED} it"
_UNREADABLE = "you do not have permission to list them, so it is unknown whether this collection created one; grant list on subscriptions.operators.coreos.com"
# The Leases for the leader election of NVIDIA's operator and of NFD's master (gpu-operator cmd/gpu-operator/main.go,
# node-feature-discovery pkg/nfd-master).
ELECTION_LEASES = ("53822513.nvidia.com", "nfd-master.nfd.kubernetes.io")


@dataclass(frozen=True)
class ComponentRemoval:
    """The parts of one component that an uninstallation removes. If no Helm release exists, `release` has the expected name and namespace.

    `subscriptions` are removed by the module olm_subscription. `by_olm`: whether OLM has installed the component, even if the component is foreign.
    `own_by_olm`: whether OLM has installed it for this collection.
    """

    release: ReleaseRemoval
    subscriptions: tuple[dict[str, str], ...] = ()
    by_olm: bool = False
    own_by_olm: bool = False

    @property
    def by_helm(self) -> bool:
        """Whether Helm uninstalls the component, or has already done so."""
        return self.release.managed

    @property
    def is_installed(self) -> bool:
        """Whether Helm still has to uninstall the component."""
        return self.by_helm and self.release.exists

    @property
    def is_removed(self) -> bool:
        """Whether the component is uninstalled through Helm or OLM, so that its residue on nodes is removed."""
        return self.by_helm or self.own_by_olm

    @property
    def kept_reason(self) -> str:
        """The reason why the Helm release is kept; empty if it is uninstalled or does not exist."""
        return ADOPTED if self._is_foreign else ""

    @property
    def namespace_kept_reason(self) -> str:
        """The reason why the Helm release prevents the deletion of the namespace; empty if it does not."""
        return f"it contains the Helm release {self.release.name}, which {_NOT_INSTALLED}" if self._is_foreign else ""

    @property
    def _is_foreign(self) -> bool:
        return self.release.exists and not self.release.managed

    @property
    def lease_paths(self) -> tuple[str, ...]:
        """The paths of the Leases to delete. The marker is always included, because upgrades of foreign releases also write it."""
        release = self.release
        elections = ELECTION_LEASES if self.by_helm else ()
        return (
            *(object_path("coordination.k8s.io/v1", "Lease", name, release.namespace) for name in elections),
            marker_path(release.name, release.namespace),
        )

    def removes(self, policy: Document) -> bool:
        """Whether a ClusterPolicy is deleted with the component, because the Helm release contains it or the collection created it for an operator from OLM."""
        return is_created(policy) or (self.by_helm and self.release.contains("ClusterPolicy.nvidia.com", policy))

    def as_dict(self) -> dict[str, t.Any]:
        """The Helm release in the format of the module's result, from which the role uninstalls it."""
        return {
            "name": self.release.name,
            "namespace": self.release.namespace,
            "status": self.release.initial_status,
            "managed": self.release.managed,
            "uninstall": self.is_installed,
        }


@dataclass(frozen=True)
class Components:
    """Both components in the order of their removal. `unreadable`: whether it is unknown which Subscriptions exist."""

    operator: ComponentRemoval
    nfd: ComponentRemoval
    unreadable: bool = False

    def __iter__(self) -> t.Iterator[ComponentRemoval]:
        """Iterate over the operator and then NFD."""
        return iter((self.operator, self.nfd))

    def kept(self) -> t.Iterator[tuple[str, str]]:
        """The Helm releases and Subscriptions that are kept, with the reasons."""
        if self.unreadable:
            yield "Subscriptions of OLM", _UNREADABLE
        for component in self:
            if reason := component.kept_reason:
                yield f"Helm release {component.release.namespace}/{component.release.name}", reason


def read_components(client: Client, operator: ReleaseRemoval, nfd: ReleaseRemoval, *, by_olm: bool) -> Components:
    """Read the components' Subscriptions. by_olm: whether the variables select OLM for one of the components."""
    subscriptions, unreadable = find_subscriptions(client, by_olm=by_olm)
    # If an earlier run has already deleted the Subscription, the operator's namespace shows that it existed.
    own_by_olm = bool(subscriptions) or (by_olm and _is_own_namespace(client, operator.namespace))
    by_olm = by_olm or bool(subscriptions)
    of_nfd = tuple(item for item in subscriptions if item["package"] == NFD.package)
    others = tuple(item for item in subscriptions if item not in of_nfd)
    return Components(
        ComponentRemoval(operator, others, by_olm, own_by_olm),
        ComponentRemoval(nfd, of_nfd, by_olm, own_by_olm),
        unreadable,
    )


def _is_own_namespace(client: Client, name: str) -> bool:
    live = client.get(f"{NAMESPACES}/{name}")
    return live is not None and is_created(live)


# Finds and deletes the objects that this collection creates; tables list their kinds and marks for each step of the uninstallation.
#
# If a capability creates another kind of object, add an entry to the table of the step that deletes it. With this entry, check mode also knows that the
# object does not prevent the deletion of its namespace. Objects with foreign fields or entries are handled in other files: autoscaling.py,
# stages.py and above.

CONFIGMAPS = (DEVICE_PLUGIN_CONFIGMAP, MIG_CONFIGMAP, VALIDATION_CONFIGMAP)
_RBAC = "rbac.authorization.k8s.io/v1"


@dataclass(frozen=True)
class CreatedKind:
    """The objects of one kind that this collection creates.

    is_own: whether an object has the mark of this collection; except in OF_OPERATORS, the function must use only the object's metadata.
    names: the names of the objects; empty for all names.
    listed: arguments of Client.list() that limit the listed objects. has_foreign_entries: whether an object is kept because it has entries of other tools.
    removal: returns the removal of an object; if it is None, the object that was read is deleted.
    """

    kind: Kind
    is_own: t.Callable[[Document], bool] = is_marked
    names: tuple[str, ...] = ()
    listed: t.Mapping[str, t.Any] = field(default_factory=dict)
    has_foreign_entries: t.Callable[[Document], bool] | None = None
    removal: t.Callable[[Client, Document], Removal] | None = None

    def find(self, client: Client, namespace: str | None = None) -> t.Iterator[dict[str, t.Any]]:
        """The collection's objects of this kind in a namespace, or in all namespaces."""
        return filter(self.is_own, self.candidates(client, namespace))

    def candidates(self, client: Client, namespace: str | None = None) -> t.Iterator[dict[str, t.Any]]:
        """The objects of this kind with the names or the selector, including those of other owners."""
        selectors: list[dict[str, t.Any]] = [{"field_selector": f"metadata.name={name}"} for name in self.names] or [{}]
        for selector in selectors:
            yield from client.list(self.kind.collection(namespace), **self.listed, **selector)

    def remove(self, client: Client, item: Document, kept: t.Mapping[tuple[str, str], str]) -> Removal:
        """The removal of an object. kept: the reasons why objects are kept, by kind and name."""
        name, namespace = item["metadata"]["name"], item["metadata"].get("namespace")
        label = f"{self.kind.kind} {'/'.join(filter(None, (namespace, name)))}"
        if reason := kept.get((self.kind.kind, name)):
            return Removal(label, action="", kept=reason)
        if not self.is_own(item):
            return Removal(label, action="", kept=COPIED if is_copy(item) else "this collection did not create it")
        if self.removal is not None:
            return self.removal(client, item)
        return deletion(client, self.kind.path(name, namespace), item, label)

    def is_deleted(self, kind: str, metadata: Document) -> bool:
        """Whether the object with this metadata is one of these objects, and is deleted as a whole. `kind` is Kind.full_name."""
        item = {"metadata": metadata}
        return (
            kind == self.kind.full_name
            and (not self.names or metadata["name"] in self.names)
            and self.is_own(item)
            and not (self.has_foreign_entries and self.has_foreign_entries(item))
        )


def _has_token(configmap: Document) -> bool:
    return is_created(configmap) and LICENSE_TOKEN_KEY in (configmap.get("data") or {})


def _is_own_driver(driver: Document) -> bool:
    """Whether the collection has created the object, or has changed it after a user handed it over with the label."""
    return is_managed_driver(driver) and is_written(driver)


# The objects of the role new_nodes, starting with its CronJob.
NEW_NODES = tuple(
    CreatedKind(known_kind(*kind), is_created, names=(NEW_NODES_NAME,))
    for kind in (("batch/v1", "CronJob"), ("v1", "ConfigMap"), ("v1", "ServiceAccount"))
)
# The ClusterRoleBinding is deleted last. It names the other objects' namespace, which the next run must know if this run is killed.
NEW_NODES_PERMISSIONS = tuple(
    CreatedKind(known_kind(_RBAC, kind), is_created, names=(NEW_NODES_NAME,))
    for kind in ("RoleBinding", "Role", "ClusterRole", "ClusterRoleBinding")
)
# Deleted after the ClusterPolicy, so that the operator does not install another driver in between.
DRIVERS = CreatedKind(Kind("nvidia.com/v1alpha1", DRIVER_KIND, "nvidiadrivers", namespaced=False), _is_own_driver)
# Deleted once NVIDIA's pods have terminated; in all namespaces, because the operator's namespace may have changed.
AFTER_OPERANDS = (
    CreatedKind(
        known_kind("v1", "ConfigMap"),
        names=CONFIGMAPS,
        has_foreign_entries=has_foreign_entries,
        removal=configmap_removal,
    ),
)
# Deleted next, in the namespaces of the operators. Secrets for pulling images have a different type, and are deleted with their namespace.
OF_OPERATORS = (
    CreatedKind(
        known_kind("v1", "Secret"),
        is_created,
        listed={"field_selector": "type=Opaque", "metadata_only": True},
    ),
    CreatedKind(known_kind("v1", "ConfigMap"), _has_token),
)
# The validation pods of killed runs.
VALIDATION_PODS = (
    CreatedKind(
        known_kind("v1", "Pod"),
        lambda pod: VALIDATION_LABEL in (pod["metadata"].get("labels") or {}) and is_written(pod),
        listed={"label_selector": VALIDATION_LABEL, "metadata_only": True},
        removal=validation_pod_removal,
    ),
)

# The objects that are deleted before their namespace, and that are recognized by their metadata alone.
CREATED = (*NEW_NODES, *NEW_NODES_PERMISSIONS, DRIVERS, *AFTER_OPERANDS, *VALIDATION_PODS)


def created_removals(
    client: Client,
    kinds: t.Iterable[CreatedKind],
    namespace: str | None = None,
    kept: t.Mapping[tuple[str, str], str] | None = None,
) -> t.Iterator[Removal]:
    """The removals of all objects of these kinds in a namespace, or in all namespaces; see CreatedKind.remove() for `kept`."""
    for kind in kinds:
        for item in kind.find(client, namespace):
            yield kind.remove(client, item, kept or {})


# Reads the contents of namespaces, decides whether they can be deleted, and deletes them.

# Resources without these verbs (for example pod metrics and package lists) are not stored objects; the namespace controller uses the same rule.
_REQUIRED_VERBS = {"list", "delete"}
# These kinds are derived from Services, and listing them causes a warning of the API server.
_DERIVED_KINDS = {"Endpoints", "EndpointSlice.discovery.k8s.io"}
# Groups that serve the objects of another group a second time.
_SECOND_NAMES = {
    "Event.events.k8s.io": "Event",
    "Role.authorization.openshift.io": "Role.rbac.authorization.k8s.io",
    "RoleBinding.authorization.openshift.io": "RoleBinding.rbac.authorization.k8s.io",
}
# By Kind.full_name, because other tools have kinds with the same name.
# Objects that Kubernetes and OpenShift create in every namespace, and objects of the operators' leader election.
_DEFAULT_OBJECTS: dict[str, t.Collection[str]] = {
    "ConfigMap": {"kube-root-ca.crt", "openshift-service-ca.crt"},
    "ServiceAccount": {"default", "builder", "deployer"},
    "RoleBinding.rbac.authorization.k8s.io": {"system:deployers", "system:image-builders", "system:image-pullers"},
    "Lease.coordination.k8s.io": ELECTION_LEASES,
}
# The prefix of the Secrets with Helm's records (helm v3 pkg/storage/storage.go).
_RECORDS = "sh.helm.release.v1"
_SERVICE_ACCOUNT = "kubernetes.io/service-account.name"
# Cluster-wide owners of the objects that NVIDIA's operator creates in its namespace.
_OPERATOR_OWNERS = {"ClusterPolicy.nvidia.com", "NVIDIADriver.nvidia.com", "GPUCluster.nvidia.com"}


class UnknownContents(Exception):
    """Raised if the contents of a namespace are unknown; the message is the reason."""


@dataclass(frozen=True)
class DepartingObjects:
    """Objects that will be deleted: those of Helm releases (name, namespace), objects by Kind.full_name and name, and those that the collection creates.

    `contains`: whether one of the releases contains the object, given as Kind.full_name and the object.
    `kept`: objects by Kind.full_name and name that are not deleted in any case.
    `by_olm`: whether the objects that OLM has created for an operator, and all objects that the collection has created, are also deleted. A
    foreign operator's Subscription remains.
    """

    releases: frozenset[tuple[str, str]] = frozenset()
    contains: t.Callable[[str, Document], bool] = lambda dummy_kind, dummy_item: False
    objects: frozenset[tuple[str, str]] = frozenset()
    kept: frozenset[tuple[str, str]] = frozenset()
    created: tuple[CreatedKind, ...] = ()
    by_olm: bool = False


def namespace_removal(
    client: Client, name: str, departing: t.Callable[[], DepartingObjects], kept_reason: str = ""
) -> Removal | None:
    """The removal of a namespace, which is deleted if the collection has created it and it contains no foreign objects. None if nothing changes.

    `departing` is called only if the user is allowed to list all objects of the namespace. `kept_reason` is an additional reason to keep the namespace.
    If the namespace is kept, only the collection's labels and annotations are removed. If its contents are unknown, it is not changed.
    """
    path = f"{NAMESPACES}/{name}"
    live = client.get(path)
    if live is None or not is_marked(live):
        return None
    label = f"Namespace {name}"
    if is_copy(live):
        return Removal(label, action="", kept=COPIED)
    if not is_created(live):
        reason = "this collection did not create it"
    elif kept_reason:
        reason = kept_reason
    else:
        try:
            _require_list_permission(client, name)
            objects = foreign_objects(namespace_objects(client, name), departing())
        except UnknownContents as error:
            return Removal(label, action="", kept=str(error))
        if not objects:
            uid = live["metadata"]["uid"]
            return Removal(
                label,
                send=functools.partial(_delete, client, path, live),
                wait=functools.partial(await_gone, client, path, uid, label, _condition_messages),
            )
        reason = f"it contains {abbreviate(objects)}"
    labels = live["metadata"].get("labels") or {}
    own = {key: labels.get(key) for key in sorted(applied_labels(live))}
    unmark = functools.partial(_unmark, client, path, name)
    return Removal(label, "managed label removed", reason, {"labels": own}, {}, send=unmark)


def foreign_objects(objects: t.Sequence[tuple[str, Document]], departing: DepartingObjects) -> list[str]:
    """The objects, given as Kind.full_name and metadata, that will not be deleted and whose owner is not among the objects."""
    uids = {str(metadata.get("uid")) for dummy, metadata in objects}
    return sorted(
        f"{kind.partition('.')[0]} {metadata['name']}"
        for kind, metadata in objects
        if not _departs(kind, metadata, departing) and not _has_owner(metadata, uids)
    )


def _departs(kind: str, metadata: Document, departing: DepartingObjects) -> bool:
    name = str(metadata["name"])
    item = {"metadata": metadata}
    if metadata.get("deletionTimestamp") or kind == "Event" or name in _DEFAULT_OBJECTS.get(kind, ()):
        return True
    if (kind, name) in departing.kept:
        return False
    if (kind, name) in departing.objects or departing.contains(kind, item) or is_agent_feature(kind, item):
        return True
    if any(created.is_deleted(kind, metadata) for created in departing.created):
        return True
    if departing.by_olm and (is_created(item) or _is_of_operator(kind, metadata)):
        return True
    if kind == "Secret":
        # A Secret for pulling images is deleted with its namespace.
        if is_created(item):
            return True
        labels = metadata.get("labels") or {}
        account = (metadata.get("annotations") or {}).get(_SERVICE_ACCOUNT)
        release = (labels.get("name"), metadata.get("namespace"))
        is_record = labels.get("owner") == "helm" and name == f"{_RECORDS}.{release[0]}.v{labels.get('version')}"
        return (is_record and release in departing.releases) or account in _DEFAULT_OBJECTS["ServiceAccount"]
    return False


def _is_of_operator(kind: str, metadata: Document) -> bool:
    """Whether OLM has created the object for an operator (operator-lifecycle-manager pkg/controller/install, pkg/controller/operators/decorators)."""
    labels = metadata.get("labels") or {}
    by_package = any(key.startswith("operators.coreos.com/") for key in labels) and not kind.startswith("Subscription.")
    return labels.get("olm.managed") == "true" or by_package


def _has_owner(metadata: Document, uids: set[str]) -> bool:
    """Whether the object's owner is among the objects, or belongs to the operator."""
    owners = metadata.get("ownerReferences") or []
    return any(str(owner.get("uid")) in uids or _kind_of_owner(owner) in _OPERATOR_OWNERS for owner in owners)


def _kind_of_owner(owner: Document) -> str:
    return Kind(str(owner.get("apiVersion") or ""), str(owner.get("kind")), "", namespaced=False).full_name


def _require_list_permission(client: Client, namespace: str) -> None:
    """Raise UnknownContents if the user is not allowed to list all objects. One request replaces a hundred list requests that could be rejected."""
    if not Permission("list", "*", group="*").is_granted(client, namespace):
        raise UnknownContents(
            "you do not have permission to list all of its objects, so it is unknown whether it contains foreign ones"
        )


def namespace_objects(client: Client, namespace: str) -> list[tuple[str, Document]]:
    """Kind.full_name and the metadata of every object in a namespace; raises UnknownContents if any kind cannot be listed.

    Some kinds are not served in the preferred version of their group, so all versions are read; each kind is listed once.
    """
    kinds: dict[tuple[str, str], Kind] = {}
    for group_version in _group_versions(client):
        for kind in _kinds(client, group_version):
            kinds.setdefault((group_version.rpartition("/")[0], kind.plural), kind)
    calls = [(kind.plural, functools.partial(_list, client, kind, namespace)) for kind in kinds.values()]
    return [item for objects in call_all(calls) for item in objects]


def _delete(client: Client, path: str, live: Document) -> None:
    """Delete the namespace, unless it is already being deleted or another namespace has replaced it."""
    if not is_deleting(live):
        client.delete(path, body={"preconditions": {"uid": live["metadata"]["uid"]}})


def _unmark(client: Client, path: str, name: str) -> None:
    # An empty apply makes the server remove the labels and annotations that only the collection has written.
    patch = unmark_patch(client.apply(path, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
    if patch:
        client.patch(path, patch)


def _group_versions(client: Client) -> t.Iterator[str]:
    """All versions of all API groups; the preferred version of a group comes first."""
    yield "v1"
    for group in (client.get("/apis") or {}).get("groups") or []:
        preferred = [group["preferredVersion"]["groupVersion"]] if group.get("preferredVersion") else []
        yield from dict.fromkeys([*preferred, *(each["groupVersion"] for each in group.get("versions") or ())])


def _kinds(client: Client, group_version: str) -> list[Kind]:
    root = f"/apis/{group_version}" if "/" in group_version else f"/api/{group_version}"
    try:
        resources = (client.get(root) or {}).get("resources") or []
    except ApiError as error:
        if error.unreachable:
            raise
        raise UnknownContents(f"the API {group_version} does not respond: {error.message}") from error
    kinds = [
        Kind(group_version, resource["kind"], resource["name"], True)
        for resource in resources
        if resource.get("namespaced")
        and "/" not in resource["name"]
        and set(resource.get("verbs") or []) >= _REQUIRED_VERBS
    ]
    return [kind for kind in kinds if kind.full_name not in _DERIVED_KINDS]


def _list(client: Client, kind: Kind, namespace: str) -> list[tuple[str, Document]]:
    try:
        objects = client.list(kind.collection(namespace), metadata_only=True)
        return [(_SECOND_NAMES.get(kind.full_name, kind.full_name), item["metadata"]) for item in objects]
    except ApiError as error:
        if error.unreachable:
            raise
        raise UnknownContents(f"its {kind.plural} cannot be listed: {error.message}") from error


def _condition_messages(live: Document) -> str:
    conditions = (live.get("status") or {}).get("conditions") or []
    lines = [str(item.get("message")) for item in conditions if item.get("status") == "True" and item.get("message")]
    return "; ".join(lines) or "the namespace controller gives no reason"
