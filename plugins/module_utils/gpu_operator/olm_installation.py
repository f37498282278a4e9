# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluates installations through OLM and reads the examples of custom resources in their ClusterServiceVersions."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..catalog.olm import API_PATH, CSV_KIND, EXAMPLES_ANNOTATION, OWNER_KIND_LABEL, OWNER_LABEL, V1ALPHA1
from ..cluster_state.ownership import is_created_by_collection
from ..common.nested import get_nested, parse_json
from ..kube.errors import ApiError
from ..kube.paths import DEPLOYMENTS
from ..schema.messages import abbreviate
from .installation import HELM_MANAGER, OLM_MANAGER, OWNER, TITLES, Installation, InstallationFinding, evaluate_helm

if t.TYPE_CHECKING:
    from ..helm.release import ReleaseId
    from ..kube.client import Client
    from ..pools.plan import ComponentPlan

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]

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
        for item in client.list_known(f"{API_PATH}/namespaces/{namespace}/subscriptions")
        if is_created_by_collection(item)
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
        subscriptions = client.list_known(f"{API_PATH}/subscriptions")
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
