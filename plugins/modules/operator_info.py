#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Detects the NFD and GPU operator installations of a cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: operator_info
short_description: Find the NFD and GPU operator installations of a cluster and the tools that manage them
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Finds NFD's master and the GPU operator by their Deployments, in any namespace and under any release name. The labels and annotations of a Deployment show
    whether Argo CD, Flux, Helm, OLM or another object manages it.
  - An installation is managed if this collection created it or if C(gpu_cluster) selects it through C(release), C(namespace) or C(olm). A run uses Helm or OLM
    to upgrade a managed installation. The Lease C(accel-gpu-helm-<release>), or the annotation C(accel.gpu/created) of a Subscription, records that this
    collection created the installation.
  - Every other installation is adopted. The collection uses an adopted installation unchanged. It neither upgrades the installation nor installs a second one.
    The same applies to every installation that Argo CD or Flux manages, even if C(gpu_cluster) selects it. If Argo CD or Flux reconciles the ClusterPolicy,
    RV(operator_info.operator.notes) lists the fields that the pools set and that the tool would revert. The list also explains how to exclude these fields.
  - "The module fails if the cluster has two conflicting installations, an operator without a ClusterPolicy, a ClusterPolicy without an operator, or a managed
    installation whose name, namespace or installer differs from the configuration. One message reports all of these problems."
  - On OpenShift, OLM installs each missing component unless the component's C(installer) is V(helm). An OLM operator is managed if this collection created the
    operator's Subscription or if C(gpu_cluster) selects the operator. If the ClusterPolicy of an OLM operator is missing, the module does not fail, because
    M(accel.gpu.cluster_policy) creates it.
  - If NVIDIA publishes no driver image for the operating system of the GPU nodes, for example for Fedora CoreOS, the module fails before anything is installed.
    It does not fail if the driver is preinstalled or C(driver.repository) in the operator's values names a different repository.
  - The module detects the Kubernetes distribution of the nodes and returns the settings that the container toolkit needs for the distribution's containerd. An
    installed operator whose toolkit works, or whose ClusterPolicy was changed manually, keeps its settings.
  - The module also fails if Helm will be used and one of the environment variables C(HELM_KUBE*) names a cluster or user other than the one that this module
    uses.
  - The module sends two list requests for each component and one list request for up to 100 GPU nodes. If Helm manages a component, the module also reads one
    Lease.
extends_documentation_fragment:
  - accel.gpu.kube
  - accel.gpu.variables
  - accel.gpu.attributes
  - accel.gpu.attributes.info
  - accel.gpu.attributes.progress
options:
  components:
    description:
      - The components to detect. If the list is empty, nothing is returned, and the module only fails if an existing GPU operator cannot serve the pools. The
        playbook C(site) checks this before it creates nodes.
    type: list
    elements: str
    choices: [nfd, operator]
    default: [nfd, operator]
  allow_release:
    description:
      - See the option C(allow_release) of M(accel.gpu.gpu_sharing). With this option, M(accel.gpu.operator_info) fails if M(accel.gpu.gpu_sharing) would not be
        allowed to release nodes from pools that O(gpu_pools) no longer declares. Therefore, a run of several roles fails before its first change.
    type: list
    elements: str
seealso:
  - module: accel.gpu.helm_release
  - module: accel.gpu.gpu_info
"""

EXAMPLES = r"""
- name: Check whether an operator is installed
  accel.gpu.operator_info:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_pools: "{{ gpu_pools }}"
    components: [operator]
  register: installed

- name: Install an operator if the cluster has none
  ansible.builtin.include_tasks: install.yml
  when: not installed.operator_info.operator.adopted
"""

RETURN = r"""
operator_info:
  description: The result for each component. The keys are C(nfd) and C(operator).
  returned: success
  type: dict
  contains:
    operator:
      description: The GPU operator; C(nfd) has the same keys.
      type: dict
      returned: when it is among O(components)
      contains:
        found: {description: Whether the component is installed., type: bool, returned: always, sample: true}
        managed: {description: Whether this collection installs and upgrades the component., type: bool, returned: always, sample: false}
        adopted: {description: Whether a foreign installation is used unchanged., type: bool, returned: always, sample: true}
        what:
          description: The component's name, version, namespace and manager, as one string.
          type: str
          returned: when found
          sample: NFD v0.18.3 in namespace nfd (Helm release nfd/nfd)
        deployment: {description: Name of the component's Deployment., type: str, returned: when found, sample: gpu-operator}
        namespace: {description: Namespace of the component., type: str, returned: when found, sample: gpu-operator}
        manager:
          description: V(argocd), V(flux), V(helm), V(olm), V(owner) if another object has created the Deployment, or V(unmanaged).
          type: str
          returned: when found
          sample: helm
        managed_by: {description: Description of the manager., type: str, returned: when found, sample: Helm release gpu-operator/gpu-operator}
        version: {description: Version of the component; empty if unknown., type: str, returned: when found, sample: v25.10.1}
        problem: {description: The reason why the component cannot be used. This value is always empty in the result of this module.
          M(accel.gpu.gpu_info) returns the reason instead of failing., type: str, returned: always, sample: ""}
        notes:
          description:
            - Restrictions of an adopted installation, nodes that contradict C(gpu_cluster.distribution), and the changes that a run makes to the container
              toolkit of an installed operator.
          type: list
          elements: str
          returned: always
          sample: []
        installer:
          description: The tool with which a run installs and upgrades the component, V(helm) or V(olm); empty if the component is adopted.
          type: str
          returned: always
          sample: olm
        subscription:
          description: The options of M(accel.gpu.olm_subscription) for the component, and the C(namespace_labels) of a new namespace. Options that are not set
            are null.
          type: dict
          returned: if OLM installs the component

          contains:
            namespace: {description: Namespace of the operator., type: str, returned: always, sample: nvidia-gpu-operator}
            namespace_labels: {description: Labels of a new namespace., type: dict, returned: always, sample: {pod-security.kubernetes.io/enforce: privileged}}
            package: {description: Name of the package., type: str, returned: always, sample: gpu-operator-certified}
            version: {description: The declared version; empty if OLM is to install the version that the channel offers., type: str,
              returned: always, sample: v25.10.1}
            channel: {description: The channel; null if it is not declared., type: str, returned: always, sample: null}
            source: {description: The CatalogSources., type: list, elements: str, returned: always, sample: [certified-operators]}
            source_namespace: {description: Namespace of the CatalogSources., type: str, returned: always, sample: openshift-marketplace}
            catalog_image: {description: Image of the catalog; null if it is not declared., type: str, returned: always, sample: null}
            approval: {description: V(Manual) or V(Automatic)., type: str, returned: always, sample: Manual}
            additional_csvs: {description: ClusterServiceVersions of other packages; null if none are declared., type: list,
              elements: str, returned: always, sample: null}
            operator_group: {description: Name of a new OperatorGroup; null if it is not declared., type: str, returned: always, sample: null}
            target_namespaces: {description: The watched namespaces; null if they are not declared., type: list, elements: str,
              returned: always, sample: null}
            subscription_config: {description: The C(spec.config) of the Subscription; null if it is not declared., type: dict,
              returned: always, sample: null}
        discovery_object:
          description: Whether M(accel.gpu.node_feature_discovery) configures the component. Returned only for NFD.
          type: bool
          returned: for NFD
          sample: true
        provides:
          description: The C(namespaces) and C(kinds) that a run creates on an empty cluster.
          type: dict
          returned: always
          contains:
            namespaces: {description: The namespaces., type: list, elements: str, returned: always, sample: [nvidia-gpu-operator]}
            kinds: {description: 'The kinds, each with its API version.', type: list, elements: list, returned: always, sample: []}
        driver_nodes:
          description: Number of nodes whose driver restarts because OLM replaces the operator with a different version. Returned only for the operator.
          type: int
          returned: for the operator
          sample: 0
        distribution:
          description: The Kubernetes distribution of the nodes, declared or detected; empty if unknown. Returned only for the operator.
          type: str
          returned: for the operator
          sample: rke2
        distribution_values:
          description:
            - Values of the operator's chart that the detected distribution requires, such as environment variables of the container toolkit. A run adds these
              values to the operator's Helm values. In lists, the added entries come first.
            - If C(gpu_cluster.distribution) is set, C(gpu_plan.operator.values) already contains these values, so C(distribution_values) is empty unless
              C(replaces_declared) is true.
          type: dict
          returned: for the operator
          sample: {toolkit: {env: [{name: CONTAINERD_SOCKET, value: /run/k3s/containerd/containerd.sock}]}}
        replaces_declared:
          description:
            - Whether C(distribution_values) replaces the values that C(gpu_plan.operator.values) contains for C(gpu_cluster.distribution). This happens if no
              node belongs to that distribution and the installed toolkit works.
          type: bool
          returned: for the operator
          sample: false
code:
  description:
    - The reason for the failure. V(release_refused) - see O(allow_release).
    - V(invalid) - errors in the options or the configuration. V(wrong_cluster) - the connection points to a different cluster than O(gpu_cluster) declares.
      V(connection) - no usable connection settings. V(unreachable) - the API server does not respond. Otherwise, the HTTP status of the API server's error.
  returned: failure
  type: raw
  sample: invalid
details:
  description:
    - Details of the failure. C(problems) lists all errors in the options or variables. C(reason), C(method) and C(path) describe the failed request.
  returned: failure
  type: dict
  sample: {problems: ["gpu_pools[0].sharing.replicas: 1 is not allowed: sharing needs at least 2"]}
"""

import dataclasses
import typing as t
from dataclasses import replace

from ..module_utils.catalog.openshift import HELM
from ..module_utils.core.errors import InvalidOptions
from ..module_utils.core.module import ArgumentSpec
from ..module_utils.gpu_operator.cluster_policy import active_policy
from ..module_utils.gpu_operator.detect import (
    ToolkitSettings,
    adapt_finding,
    find_nfd,
    find_operator,
    missing_image_problem,
    operator_result,
    sample_nodes,
)
from ..module_utils.gpu_operator.installation import TITLES, InstallationFinding, same_version
from ..module_utils.gpu_operator.readiness import driver_nodes, is_driver
from ..module_utils.helm.preparation import helm_environment
from ..module_utils.kube.paths import CLUSTER_POLICIES
from ..module_utils.pools.module import PlanModule
from ..module_utils.sharing.operation import require_allowed

_COMPONENTS = ("nfd", "operator")


def work(module: PlanModule) -> dict[str, t.Any]:
    """Find each component, and warn about the restrictions of adopted installations."""
    plan = module.plan
    if module.params["allow_release"] is not None:
        require_allowed(module.client, plan, frozenset(module.params["allow_release"]))
    findings, settings = _find(module)
    problems = [finding.problem for finding in findings.values() if finding.problem]
    if problems:
        raise InvalidOptions(problems)
    if any(finding.managed and finding.installer == HELM for finding in findings.values()):
        # If Helm will be used, fail before any change if the environment makes Helm connect to a different cluster.
        helm_environment(module.client)
    for component, finding in findings.items():
        title = finding.installation.title if finding.installation else TITLES[component]
        for note in finding.notes:
            module.warn(f"{title}: {note}.")
    results = {name: finding.as_dict() for name, finding in findings.items()}
    if settings is not None:
        results["operator"] = operator_result(findings["operator"], settings, plan)
        results["operator"]["driver_nodes"] = _upgraded_drivers(module, findings["operator"])
    by_olm = any(finding.installer != HELM for finding in findings.values())
    on_platform = plan.on_openshift() if by_olm and plan.on_openshift is not None else plan
    for result in results.values():
        result["provides"] = dataclasses.asdict(on_platform.provides)
    return {"changed": False, "operator_info": results}


def _upgraded_drivers(module: PlanModule, operator: InstallationFinding) -> int:
    """Return the number of nodes whose driver restarts if OLM replaces the operator's version; 0 for Helm, because helm_release counts these nodes."""
    installed, planned = operator.installation, operator.planned
    if not operator.managed or installed is None or planned is None or planned.installer == HELM:
        return 0
    if same_version(installed.version, planned.version):
        return 0
    daemonsets = module.client.list(f"/apis/apps/v1/namespaces/{installed.namespace}/daemonsets")
    return sum(driver_nodes(filter(is_driver, daemonsets)).values())


def _find(module: PlanModule) -> tuple[dict[str, InstallationFinding], ToolkitSettings | None]:
    """Return the result for each component, including the settings of the operator's container toolkit."""
    client, plan, components = module.client, module.plan, module.params["components"]
    findings: dict[str, InstallationFinding] = {}
    settings = None
    if "nfd" in components:
        findings["nfd"] = nfd = find_nfd(client, plan)
        if nfd.installs and plan.pools and "operator" not in components:
            # The role nfd runs first, so it must fail before anything is installed if the driver or the operator cannot work.
            operator = find_operator(client, plan)
            problem = missing_image_problem(plan, sample_nodes(client)) if operator.installs else operator.problem
            findings["nfd"] = replace(nfd, problem=problem)
    if not components and (problem := find_operator(client, plan).problem):
        raise InvalidOptions([problem])
    if "operator" in components:
        policies = client.list_known(CLUSTER_POLICIES)
        operator = find_operator(client, plan, policies)
        nodes = sample_nodes(client) if operator.managed and plan.pools and not operator.problem else []
        findings["operator"], settings = adapt_finding(client, plan, operator, active_policy(policies), nodes)
    return findings, settings


def main() -> None:
    """Run the module."""
    choices = list(_COMPONENTS)
    spec: ArgumentSpec = {
        "components": {"type": "list", "elements": "str", "choices": choices, "default": choices},
        "allow_release": {"type": "list", "elements": "str"},
    }
    PlanModule(spec).run(work)


if __name__ == "__main__":
    main()
