# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: plan
short_description: Derive all values from the pools of a cluster
version_added: 0.1.0
description:
  - Derives from C(gpu_cluster), C(gpu_defaults) and C(gpu_pools) every value that more than one component needs, so that all components agree. These values
    include tolerations, node labels, device plugin configurations, resource names, Helm values, and the objects that a run will create.
  - The filter does not contact the cluster. The same input always results in the same plan.
  - If the variables contain errors, the filter fails and reports all of them together. Use P(accel.gpu.plan_problems#filter) to get a list of the errors.
positional: _input
extends_documentation_fragment:
  - accel.gpu.variables.filter_input
seealso:
  - plugin: accel.gpu.plan_problems
    plugin_type: filter
author:
  - The accel.gpu authors (@accel-gpu)
"""

EXAMPLES = r"""
- name: Show which resource a workload of each pool must request
  ansible.builtin.debug:
    msg: "{{ item.name }}: {{ item.resource }}, {{ item.shares_per_gpu }} for each GPU"
  loop: "{{ (variables | accel.gpu.plan).pools }}"
  loop_control:
    label: "{{ item.name }}"
  vars:
    variables:
      gpu_cluster: {name: lab}
      gpu_pools:
        - name: notebooks
          match: {model: Tesla-T4}
          sharing: {mode: time-slicing, replicas: 4}

# notebooks: nvidia.com/gpu, 4 for each GPU
"""

RETURN = r"""
_value:
  description: The plan.
  type: dict
  contains:
    cluster:
      description: The C(name) and C(kubeconfig) of the cluster, its C(cloud), its C(distribution) with the C(distribution_values), and its C(known_issues).
        C(cloud) is the provider of the nodes, or null.
      type: dict
      contains:
        name: {description: Name of the cluster., type: str, sample: lab}
        kubeconfig: {description: Path to the kubeconfig; null if it is not declared., type: str, sample: null}
        distribution: {description: The declared distribution; null if it is not declared., type: str, sample: null}
        distribution_values:
          description: The operator's chart values that are derived from the declared distribution.
          type: dict
          sample: {toolkit: {env: [{name: CONTAINERD_SOCKET, value: /run/k3s/containerd/containerd.sock}]}}
        known_issues: {description: 'The known issues that the user declares, as in C(gpu_cluster.known_issues).', type: list,
          elements: dict, sample: []}
        cloud:
          description: The provider of the cluster's nodes; null if there is none.
          type: dict
          contains:
            provider: {description: Name of the provider., type: str, sample: magnum}
            cluster: {description: Name of the cluster in the cloud., type: str, sample: prod}
            template: {description: Template from which the cluster is created; null if the cluster already exists., type: str, sample: null}
            nodegroup_label: {description: The node label that contains the name of the node group; empty if there is none., type: str,
              sample: magnum.openstack.org/nodegroup}
            options: {description: The connection options of the provider's modules., type: dict, sample: {}}
            module: {description: The module that manages the node groups., type: str, sample: magnum_nodegroup}
            issues_kubeconfig: {description: Whether another module fetches the kubeconfig of the cluster., type: bool, sample: true}
            lists_undeclared_groups: {description: Whether a deletion includes node groups that a pool no longer declares., type: bool,
              sample: false}
    operator:
      description: The Helm release of the GPU operator, with its static values. C(image_pull_secrets) contains the names of the Secrets with which the images
        of the operands and of the pools' drivers are pulled.
      type: dict
      sample: {name: gpu-operator, namespace: gpu-operator, version: v25.10.1}
    nfd:
      description: The Helm release of Node Feature Discovery, with its values and the names of its C(image_pull_secrets).
      type: dict
      sample: {name: nfd, namespace: node-feature-discovery, version: 0.19.0}
    policy:
      description: The parts of the ClusterPolicy that depend on the pools. C(spec) contains its fields, and C(tolerations) contains the tolerations of its
        DaemonSets.
      type: dict
      contains:
        spec: {description: The fields that depend on the pools., type: dict, sample: {}}
        tolerations:
          description: The tolerations of the DaemonSets.
          type: list
          elements: dict
          contains:
            key: {description: Key of the taint., type: str, sample: nvidia.com/gpu}
            operator: {description: V(Exists) or V(Equal)., type: str, sample: Exists}
            value: {description: 'Value of the taint, if the operator is V(Equal).', type: str, sample: 'yes'}
            effect: {description: Effect of the taint., type: str, sample: NoSchedule}
        mig_by_node: {description: Whether C(mig.strategy) must be absent., type: bool, sample: true}
    config:
      description: The device plugin's ConfigMap, with one entry for each sharing configuration in use.
      type: dict
      contains:
        name: {description: Name of the ConfigMap., type: str, sample: accel-gpu-device-plugin}
        namespace: {description: Namespace of the ConfigMap., type: str, sample: gpu-operator}
        data: {description: The content of each entry., type: dict, sample: {time-slicing-4-1c2f0a9b: 'version: v1'}}
    validation:
      description: Images and namespace of the validation pods. C(images) contains the images by key in C(gpu_cluster.validation) and by CUDA version.
      type: dict
      contains:
        images: {description: The images by key in C(gpu_cluster.validation) and by CUDA version., type: dict, sample: {
          image: {'12.5': 'nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0'}}}
        image_pull_secrets:
          description: The names of the Secrets in C(gpu_cluster.operator.image_pull_secrets).
          type: list
          elements: str
          sample: [registry]
        namespace: {description: Namespace of the validation pods., type: str, sample: gpu-operator}
        configmap: {description: The ConfigMap that contains the results., type: str, sample: accel-gpu-validation}
    pools:
      description: Every pool with its derived values, in the order of C(gpu_pools). C(registration) contains the C(node_labels) and C(taints) of a node group
        or MachineSet. C(nodegroup) is the node group that a run creates, or null.
      type: list
      elements: dict
      sample: [{name: notebooks, resource: nvidia.com/gpu, shares_per_gpu: 4}]
    nodegroups:
      description: The node groups of the pools, in the format of the option C(nodegroups) of the provider's module.
      type: list
      elements: dict
      sample: [{name: train, flavor: g4.p4.40g, node_count: 2}]
    drain_options:
      description: How the nodes of these groups are drained before they are removed, in the format of the option C(kubernetes.drain) of the provider's module.
      type: dict
      contains:
        evict: {description: Whether pods are evicted., type: bool, sample: true}
        force: {description: Whether pods without a controller are deleted., type: bool, sample: false}
        grace_period: {description: Grace period of evicted pods in seconds; null for each pod's own grace period., type: int, sample: null}
        drain_timeout: {description: Seconds to wait for the pods., type: int, sample: 600}
    provides:
      description: The C(namespaces) and C(kinds) that a run creates on an empty cluster.
      type: dict
      contains:
        namespaces: {description: The namespaces., type: list, elements: str, sample: [gpu-operator]}
        kinds: {description: 'The kinds, each with its API version.', type: list, elements: list, sample: []}
"""

import typing as t

from ansible.errors import AnsibleFilterError

from ..module_utils.pools.derive import derive
from ..module_utils.schema.variables import InvalidVariables, split_variables


def plan(variables: t.Any) -> dict[str, t.Any]:
    """Return the plan for the variables as plain data."""
    try:
        return derive(*split_variables(variables)).as_dict()
    except InvalidVariables as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """The filter accel.gpu.plan."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """Return the filter's name and function."""
        return {"plan": plan}
