#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Detects the NFD and the GPU operator of a cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: operator_info
short_description: Return which NFD and GPU operator a cluster has, and which tools manage them
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Finds NFD's master and the GPU operator in any namespace and under any release name, by their Deployments. Labels and annotations show
    whether Argo CD, Flux, Helm, OLM, another object or nothing manages them.
  - An installation is managed if this collection created it (recorded in the Lease C(accel-gpu-helm-<release>) or in the annotation C(accel.gpu/created) of
    its Subscription), or if C(gpu_cluster) selects it through C(release), C(namespace) or C(olm). Helm or OLM upgrades a managed installation.
  - Every other installation is adopted. It is used unchanged, and is neither upgraded nor installed a second time. The same applies to every installation
    by Argo CD or Flux, even if it is managed or selected. If one of them reconciles the ClusterPolicy, RV(operator_info.operator.notes) contains the
    fields of the pools that it would revert, and how to exclude them.
  - "Fails with one message if the state cannot be used: two conflicting installations, an operator without a ClusterPolicy, a
    ClusterPolicy without an operator, and a managed installation whose name, namespace or installer differs from the configuration."
  - On OpenShift, OLM installs missing components, unless C(installer) of the component is V(helm). An OLM operator is managed if this collection created
    its Subscription, or if C(gpu_cluster) names it. If the ClusterPolicy of an OLM operator is missing, the module does not fail, because
    M(accel.gpu.cluster_policy) creates it.
  - The module fails before anything is installed if NVIDIA publishes no driver image for the operating system of GPU nodes (Fedora CoreOS, for example),
    unless the driver is preinstalled or C(driver.repository) in the operator's values names a different repository.
  - The module detects the Kubernetes distribution of the nodes and returns the settings that the container toolkit needs for its containerd. An
    installed operator whose toolkit works, or whose ClusterPolicy was changed manually, keeps its settings.
  - The module also fails if Helm will be used and C(HELM_KUBE*) in the environment names a different cluster or user than this module uses.
  - The module sends two list requests for each component and one list request for up to 100 GPU nodes, and reads one Lease if Helm manages the component.
extends_documentation_fragment:
  - accel.gpu.kube
  - accel.gpu.variables
  - accel.gpu.attributes
  - accel.gpu.attributes.info
  - accel.gpu.attributes.progress
options:
  components:
    description:
      - The components to look for.
    type: list
    elements: str
    choices: [nfd, operator]
    default: [nfd, operator]
  allow_release:
    description:
      - See the option C(allow_release) of M(accel.gpu.gpu_sharing). If it is set, this module fails if M(accel.gpu.gpu_sharing) would not be allowed to release
        nodes from pools that O(gpu_pools) no longer declares. A run of several roles then fails before it has changed anything.
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

- name: Install one if there is none
  ansible.builtin.include_tasks: install.yml
  when: not installed.operator_info.operator.adopted
"""

RETURN = r"""
operator_info:
  description: The result for each component (C(nfd), C(operator)).
  returned: success
  type: dict
  sample:
    operator:
      found: true
      managed: false
      adopted: true
      what: "GPU operator v25.10.1 in namespace nvidia-gpu-operator (OLM, ClusterServiceVersion gpu-operator-certified.v25.10.1)"
      deployment: gpu-operator
      namespace: nvidia-gpu-operator
      manager: olm
      managed_by: OLM, ClusterServiceVersion gpu-operator-certified.v25.10.1
      version: v25.10.1
      problem: ""
      notes: []
  contains:
    operator:
      description: The GPU operator; C(nfd) has the same keys.
      type: dict
      returned: when it is among O(components)
      contains:
        found: {description: Whether it is installed., type: bool, returned: always, sample: true}
        managed: {description: Whether this collection installs and upgrades it., type: bool, returned: always, sample: false}
        adopted: {description: Whether a foreign installation is used unchanged., type: bool, returned: always, sample: true}
        what:
          description: Component, version, namespace and manager.
          type: str
          returned: when found
          sample: NFD v0.18.3 in namespace nfd (Helm release nfd/nfd)
        deployment: {description: Name of its Deployment., type: str, returned: when found, sample: gpu-operator}
        namespace: {description: Its namespace., type: str, returned: when found, sample: gpu-operator}
        manager:
          description: V(argocd), V(flux), V(helm), V(olm), V(owner) (another object has created it) or V(unmanaged).
          type: str
          returned: when found
          sample: helm
        managed_by: {description: The manager as text., type: str, returned: when found, sample: Helm release gpu-operator/gpu-operator}
        version: {description: Its version; empty if unknown., type: str, returned: when found, sample: v25.10.1}
        problem: {description: The reason why it cannot be used. Always empty here; M(accel.gpu.gpu_info) returns it instead of failing., type: str, returned:
          always, sample: ""}
        notes:
          description:
            - Restrictions of an adopted installation, nodes that contradict C(gpu_cluster.distribution), and the changes that a run makes to the container
              toolkit of an installed operator.
          type: list
          elements: str
          returned: always
          sample: []
        installer:
          description: The tool with which a run installs and upgrades it, V(helm) or V(olm); empty if it is adopted.
          type: str
          returned: always
          sample: olm
        subscription:
          description: The options of M(accel.gpu.olm_subscription) for it, and the C(namespace_labels) of a new namespace. Options that are not set are null.
          type: dict
          returned: if OLM installs it
          sample: {namespace: nvidia-gpu-operator, package: gpu-operator-certified, version: v25.10.1, channel: null, source: [certified-operators]}
          contains:
            namespace: {description: Namespace of the operator., type: str, returned: always, sample: nvidia-gpu-operator}
            namespace_labels: {description: Labels of a new namespace., type: dict, returned: always, sample: {pod-security.kubernetes.io/enforce: privileged}}
            package: {description: Name of the package., type: str, returned: always, sample: gpu-operator-certified}
            version: {description: The version; empty for the one that the channel offers., type: str, returned: always, sample: v25.10.1}
            channel: {description: The channel; null if it is not declared., type: str, returned: always, sample: null}
            source: {description: The CatalogSources., type: list, elements: str, returned: always, sample: [certified-operators]}
            source_namespace: {description: Their namespace., type: str, returned: always, sample: openshift-marketplace}
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
          description: Whether M(accel.gpu.node_feature_discovery) configures it. Only for NFD.
          type: bool
          returned: for NFD
          sample: true
        provides:
          description: The C(namespaces) and C(kinds) that a run creates on an empty cluster.
          type: dict
          returned: always
          sample: {namespaces: [nvidia-gpu-operator], kinds: []}
          contains:
            namespaces: {description: The namespaces., type: list, elements: str, returned: always, sample: [nvidia-gpu-operator]}
            kinds: {description: 'The kinds, each with its API version.', type: list, elements: list, returned: always, sample: []}
        driver_nodes:
          description: Number of nodes whose driver restarts because OLM replaces the operator with a different version. Only for the operator.
          type: int
          returned: for the operator
          sample: 0
        distribution:
          description: The Kubernetes distribution of the nodes, declared or detected; empty if unknown. Only for the operator.
          type: str
          returned: for the operator
          sample: rke2
        distribution_values:
          description:
            - Values of the operator's chart that the detected distribution requires, such as environment variables of the container toolkit. A run adds them to
              the operator's Helm values, and puts their list entries before those of the Helm values.
            - Empty if C(gpu_cluster.distribution) is set, because C(gpu_plan.operator.values) then contains them, unless C(replaces_declared).
          type: dict
          returned: for the operator
          sample: {toolkit: {env: [{name: CONTAINERD_SOCKET, value: /run/k3s/containerd/containerd.sock}]}}
        replaces_declared:
          description:
            - Whether C(distribution_values) replaces the values that C(gpu_plan.operator.values) contains for C(gpu_cluster.distribution), because no node
              belongs to that distribution and the installed toolkit works.
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

from ..module_utils.catalog.olm import HELM
from ..module_utils.cluster_state.cluster_policy import active_policy
from ..module_utils.cluster_state.driver_preflight import missing_image_problem
from ..module_utils.common.errors import InvalidOptions
from ..module_utils.common.module import ArgumentSpec
from ..module_utils.gpu_operator.daemonsets import driver_nodes, is_driver
from ..module_utils.gpu_operator.detect import find_nfd, find_operator
from ..module_utils.gpu_operator.installation import TITLES, InstallationFinding, same_version
from ..module_utils.gpu_operator.toolkit_settings import (
    ToolkitSettings,
    adapt_finding,
    operator_result,
    sample_nodes,
)
from ..module_utils.kube.helm_environment import helm_environment
from ..module_utils.kube.paths import CLUSTER_POLICIES
from ..module_utils.kube.plan_module import PlanModule
from ..module_utils.sharing.overview import require_allowed

_COMPONENTS = ("nfd", "operator")


def work(module: PlanModule) -> dict[str, t.Any]:
    """Find each component; warn about the restrictions of an adopted one."""
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
    """The number of nodes whose driver restarts if OLM replaces the operator with a different version; 0 for Helm, because helm_release counts these nodes."""
    installed, planned = operator.installation, operator.planned
    if not operator.managed or installed is None or planned is None or planned.installer == HELM:
        return 0
    if same_version(installed.version, planned.version):
        return 0
    daemonsets = module.client.list(f"/apis/apps/v1/namespaces/{installed.namespace}/daemonsets")
    return sum(driver_nodes(filter(is_driver, daemonsets)).values())


def _find(module: PlanModule) -> tuple[dict[str, InstallationFinding], ToolkitSettings | None]:
    """The finding of each component, and the settings of the operator's container toolkit."""
    client, plan, components = module.client, module.plan, module.params["components"]
    findings: dict[str, InstallationFinding] = {}
    settings = None
    if "nfd" in components:
        findings["nfd"] = nfd = find_nfd(client, plan)
        if nfd.installs and plan.pools and "operator" not in components and find_operator(client, plan).installs:
            # The role nfd runs first, so it must fail before anything is installed if the driver cannot work.
            findings["nfd"] = replace(nfd, problem=missing_image_problem(plan, sample_nodes(client)))
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
