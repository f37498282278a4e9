#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: helm_release
short_description: Prepare a Helm release for kubernetes.core.helm, or wait for its workloads
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - This module does not install, upgrade or delete a Helm release. Call it before M(kubernetes.core.helm), and call it again afterwards to wait for the
    workloads. If RV(helm_release.action) is V(none), skip M(kubernetes.core.helm).
  - Verifies that helm and the chart exist and that the chart accepts the values. Otherwise, the error message describes the problem and the remedy.
  - Repairs a Helm release that a killed helm process left in the status C(pending-install), C(pending-upgrade), C(pending-rollback) or C(uninstalling). Helm
    itself does not recover from these statuses; it fails with "another operation is in progress".
  - Applies the CRDs of the chart and of the sub-charts that the values enable, because Helm creates CRDs but never upgrades them. For an unchanged CRD, the
    module sends one read request. The module never deletes CRDs.
  - Compares the name, version, app version and values of the chart with those of the installed Helm release, so that helm does not run if nothing has changed.
  - Waits until the workloads of an unchanged Helm release have been rolled out.
  - For a Helm release of the GPU operator, predicts on how many nodes an upgrade restarts the driver, how many of these nodes restart it at a time, and why. If
    the driver would restart, O(allow_driver_rollout) is required. Without this option, the module fails. If nothing but the driver values differs, the module
    holds these values back instead. With this option, the module first stops the old operator, because the old operator would otherwise start a rollout that
    the new operator would repeat. Helm then starts the new operator.
  - Fails if an upgrade would overwrite a manually set field of the ClusterPolicy. Helm keeps such a field as long as the old and the new chart have the same
    value for it. A field counts as manually set if two conditions are met. The first condition is that the field's value comes neither from one of the charts
    nor from a default of the CRD, and that the values of the Helm release do not set the field. The second condition is that C(managedFields) names a manager
    of the field other than Helm, a GitOps tool, the operator and this collection. If the ClusterPolicy has no C(managedFields), only the first condition
    applies.
  - Since operator v26.7.0, changed values do not require O(allow_driver_rollout) if the driver configuration digest stays the same. In this case, the driver
    pods restart on cordoned nodes, and no GPU pod is evicted.
  - If an upgrade would reset a ConfigMap name that this collection has set in the ClusterPolicy, RV(helm_release.initial_values) also contains this name.
notes:
  - The module does not interrupt a running helm process. The following rules, in this order, determine whether an unfinished revision is abandoned. If a helm
    process on this machine is working on the Helm release, the revision is still in progress. If no such process exists, a revision that this collection wrote
    through helm on this machine is abandoned. The collection records its revisions beforehand in the Lease C(accel-gpu-helm-<release>) in the namespace of the
    Helm release. Any other revision is abandoned once it is older than O(pending_timeout); until then, the module waits for it.
  - The record of an abandoned revision is deleted. The record of an abandoned first installation is marked C(superseded) instead, because
    Helm can then upgrade from it. The record of a failed revision is kept, and Helm upgrades from it.
  - The module reads the Secrets of Helm releases to get the chart, the values and the names of workloads. No result contains the values.
  - The module fails if an environment variable C(HELM_KUBE*) names a cluster or user other than the one that this module uses, or if the connection uses an
    option that has no equivalent in Helm, such as O(host) or O(client_cert).
  - The module runs only the commands C(helm pull) and C(helm template), each for at most 300 seconds and without a connection to the cluster.
options:
  release_name:
    description: Name of the Helm release.
    type: str
    required: true
    aliases: [name]
  release_namespace:
    description: Namespace of the Helm release. It must exist or, in check mode, be listed in O(expected).
    type: str
    required: true
    aliases: [namespace]
  chart_ref:
    description:
      - The chart, as a path to a directory or to a .tgz file, a chart name in O(chart_repo_url), a URL, an C(oci://) reference or C(repository/name).
    type: str
    required: true
  chart_repo_url:
    description: URL of the chart's repository.
    type: str
  chart_version:
    description: Version of the chart. This option is not required for a chart at a local path, because the chart contains its version.
    type: str
  release_values:
    description: Values for the chart.
    type: dict
    default: {}
    aliases: [values]
  initial_values:
    description:
      - Values that are only used for a first installation. An existing Helm release keeps its current values.
      - RV(helm_release.initial_values) returns the values to pass to Helm. O(release_values) override them.
    type: dict
    default: {}
  binary_path:
    description: Path to helm. By default, the first C(helm) on the C(PATH).
    type: path
  pending_timeout:
    description:
      - Seconds after which an unfinished revision from another machine or tool counts as abandoned.
      - This time must be longer than the longest timeout with which helm is run for this Helm release.
    type: int
    default: 600
  allow_driver_rollout:
    description: Whether an upgrade of the GPU operator may restart the driver on nodes that have a driver pod.
    type: bool
    default: false
  node_annotation:
    description:
      - An annotation that the workloads of the Helm release set on every node that runs a pod of one of the release's DaemonSets.
      - With this option, the Helm release counts as rolled out only when the number of nodes with the annotation equals the number of nodes that run one of
        these pods.
    type: str
extends_documentation_fragment:
  - accel.gpu.kube
  - accel.gpu.expected
  - accel.gpu.wait
  - accel.gpu.lease
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
  - accel.gpu.attributes.progress
requirements:
  - helm >= 3.12, < 4
seealso:
  - module: kubernetes.core.helm
"""

EXAMPLES = r"""
- name: Prepare the release of NFD
  accel.gpu.helm_release:
    release_name: nfd
    release_namespace: node-feature-discovery
    chart_ref: oci://registry.k8s.io/nfd/charts/node-feature-discovery
    chart_version: 0.19.0
    release_values: {worker: {tolerations: []}}
    node_annotation: nfd.node.kubernetes.io/feature-labels
  register: preparation

- name: Install or upgrade NFD
  kubernetes.core.helm:
    release_name: nfd
    release_namespace: node-feature-discovery
    chart_ref: oci://registry.k8s.io/nfd/charts/node-feature-discovery
    chart_version: 0.19.0
    release_values: {worker: {tolerations: []}}
    skip_crds: true
  # Use the cluster and the user that helm_release has verified.
  environment: "{{ preparation.helm_release.helm_environment }}"
  when: preparation.helm_release.action != 'none'

# The same options as before: the release is now unchanged, so the module only waits.
- name: Wait until the NFD workers run and have labeled their nodes
  accel.gpu.helm_release:
    release_name: nfd
    release_namespace: node-feature-discovery
    chart_ref: oci://registry.k8s.io/nfd/charts/node-feature-discovery
    chart_version: 0.19.0
    release_values: {worker: {tolerations: []}}
    node_annotation: nfd.node.kubernetes.io/feature-labels
    wait_timeout: 600
  when:
    - preparation.helm_release.action != 'none'
    - not ansible_check_mode
"""

RETURN = r"""
helm_release:
  description: The Helm release before the run, and the action that remains for Helm.
  returned: success
  type: dict
  contains:
    helm_environment:
      description: Environment variables with which M(kubernetes.core.helm) connects to the verified cluster. They contain no secrets.
      type: dict
      returned: success
      sample: {KUBECONFIG: /etc/kube/prod}
    action:
      description: The next action for Helm - V(install), V(upgrade) or V(none).
      type: str
      returned: success
      sample: upgrade
    reasons:
      description: The reasons for the action. For values that differ, only the names are listed.
      type: list
      elements: str
      returned: success
      sample: [chart gpu-operator-v25.3.4 becomes gpu-operator-v25.10.1]
    status:
      description: Helm's status of the release; V(absent) if there is no release.
      type: str
      returned: success
      sample: deployed
    revision:
      description: The revision of the release; 0 if there is no release.
      type: int
      returned: success
      sample: 3
    chart_version:
      description: Version of the chart at O(chart_ref).
      type: str
      returned: success
      sample: v25.10.1
    repaired:
      description: Abandoned revisions, each with the reason.
      type: list
      elements: str
      returned: success
      sample: []
    crds:
      description: Names of the chart's CRDs, grouped by action.
      type: dict
      returned: success
      contains:
        created: {description: New CRDs., type: list, elements: str, returned: success, sample: []}
        updated: {description: Changed CRDs., type: list, elements: str, returned: success, sample: [clusterpolicies.nvidia.com]}
        unchanged: {description: Unchanged CRDs., type: list, elements: str, returned: success, sample: []}
    initial_values:
      description:
        - The part of O(initial_values) to pass to Helm, and the names of this collection's ConfigMaps that an upgrade would otherwise reset in the
          ClusterPolicy. The Helm release keeps both.
      type: dict
      returned: success
      sample: {}
    driver_rollout:
      description: The impact of an operator upgrade on the driver.
      type: dict
      returned: success
      contains:
        nodes:
          description: Number of nodes on which the driver restarts.
          type: int
          returned: success
          sample: 20
        max_parallel:
          description: Number of nodes on which the driver restarts at the same time; 0 if the ClusterPolicy requires driver pods to be deleted manually.
          type: int
          returned: success
          sample: 1
        in_place:
          description: Whether the driver pods restart on cordoned nodes while the driver stays loaded, so that no GPU pod is evicted.
          type: bool
          returned: success
          sample: false
        reasons:
          description: The reasons why the driver restarts.
          type: list
          elements: str
          returned: success
          sample: [driver.version 570.172.08 becomes 580.95.05]
    held_back:
      description: Values that were held back because they would restart the driver.
      type: list
      elements: str
      returned: success
      sample: [driver.version]
    workloads:
      description: For each workload that the module waits for, the numbers of ready and desired pods. Also returned after a timeout.
      type: dict
      returned: success
      sample: {"DaemonSet nfd-worker": "20/20"}
code:
  description:
    - The reason for the failure. V(helm_missing) - helm is not installed. V(helm_version) - the roles do not work with this release of helm. V(chart) - the
      chart cannot be used. V(manual_fields) - Helm would overwrite fields that were set manually. V(driver_rollout) - a driver rollout is not allowed.
      V(timeout) - the workloads are not ready after O(wait_timeout).
    - V(invalid) - errors in the options or the configuration. V(wrong_cluster) - the connection points to a different cluster. V(connection) - no
      usable connection settings. V(unreachable) - the API server does not respond. V(lease_held) - another run holds the Lease. V(lease_lost) - this run
      lost it. Otherwise, the HTTP status of the API server's error.
  returned: failure
  type: raw
  sample: driver_rollout
details:
  description:
    - Details of the failure. C(problems) lists all errors in the options or variables. C(reason), C(method) and C(path) describe the failed request.
  returned: failure
  type: dict
  sample: {reason: Forbidden, method: GET, path: /api/v1/namespaces/gpu-operator/secrets}
"""

import contextlib
import functools
import typing as t

from ..module_utils.core.files import temporary_folder
from ..module_utils.core.messages import diff_of
from ..module_utils.core.waits import WaitOptions
from ..module_utils.gpu_operator.cluster_policy import NO_ROLLOUT, held_back_warning
from ..module_utils.gpu_operator.upgrade import OperatorUpgrade, UpgradeDecision, UpgradeRefused, recorded_own_values
from ..module_utils.helm.preparation import ReleaseOptions, ReleasePreparation, await_workloads, helm_environment
from ..module_utils.helm.release import (
    NOTHING,
    ChartProblem,
    HelmMissing,
    HelmUnsupported,
    find_helm,
    require_supported_helm,
)
from ..module_utils.kube.module import GpuModule

OPTIONS: dict[str, dict[str, t.Any]] = {
    "release_name": {"type": "str", "required": True, "aliases": ["name"]},
    "release_namespace": {"type": "str", "required": True, "aliases": ["namespace"]},
    "chart_ref": {"type": "str", "required": True},
    "chart_repo_url": {"type": "str"},
    "chart_version": {"type": "str"},
    "release_values": {"type": "dict", "default": {}, "aliases": ["values"]},
    "initial_values": {"type": "dict", "default": {}},
    "binary_path": {"type": "path"},
    "pending_timeout": {"type": "int", "default": 600},
    "allow_driver_rollout": {"type": "bool", "default": False},
    "node_annotation": {"type": "str"},
}


def work(module: GpuModule) -> dict[str, t.Any]:
    """Read the chart and the release, repair the release, apply CRDs, and wait if helm has nothing to do."""
    params = module.params
    release = ReleaseOptions.from_params(params)
    binary = find_helm(params["binary_path"], module.get_bin_path)
    environment = helm_environment(module.client)
    waiting = WaitOptions(params["wait_timeout"] if params["wait"] else 0, params["wait_sleep"], module.progress)
    with temporary_folder("helm", beside=module.tmpdir) as folder, contextlib.ExitStack() as held:

        @functools.cache
        def require_helm() -> None:
            # Not in a run without changes: it would start one more process.
            require_supported_helm(binary, module.run_command)

        @functools.cache
        def take_lease() -> None:
            require_helm()
            held.enter_context(module.lease())

        preparation = ReleasePreparation(
            module.client,
            release,
            module.run_command,
            check=module.check_mode,
            expected=module.expected,
            run_id=module.run_id,
            waiting=waiting,
            before_write=take_lease,
        )
        chart, definitions = preparation.load_chart(binary, folder)
        preparation.recover_pending()
        preparation.kept_values = recorded_own_values(preparation.content.config) if preparation.content else {}
        upgrade = OperatorUpgrade(module.client, release.namespace, allowed=params["allow_driver_rollout"])
        decision = upgrade.decide(preparation.next_step(chart), preparation, chart, definitions, release.desired_values)
        decision.require_allowed()
        if decision.step.action != NOTHING:
            require_helm()
        _warn_about_driver(module, decision)
        preparation.apply_crds(definitions)
        preparation.write_marker(decision.step)
        resumed = False
        if decision.step.action == NOTHING:
            resumed = upgrade.resume(preparation.manifest, check=module.check_mode, before_write=take_lease)
        elif decision.rollout and not module.check_mode:
            upgrade.stop(preparation.manifest, waiting)
    workloads = {}
    if decision.step.action == NOTHING and params["wait"] and not module.check_mode:
        workloads = await_workloads(
            module.client, release.namespace, release.name, preparation.manifest, params["node_annotation"], waiting
        )
    rollout = decision.rollout.as_dict() if decision.rollout else NO_ROLLOUT
    return {
        "changed": preparation.changed or resumed,
        "helm_release": {
            **preparation.as_dict(chart, decision.step),
            "driver_rollout": rollout,
            "held_back": list(decision.held_back),
            "workloads": workloads,
            "helm_environment": environment,
        },
        "diff": diff_of(*preparation.diff(chart, decision.step), f"Helm release {release.namespace}/{release.name}"),
    }


def _warn_about_driver(module: GpuModule, decision: UpgradeDecision) -> None:
    if decision.rollout and decision.held_back:
        module.warn(held_back_warning(decision.held_back, decision.rollout, "the Helm values"))
    elif decision.rollout:
        module.warn(decision.rollout.announcement)


def main() -> None:
    """Run the module."""
    module = GpuModule(OPTIONS, expected=True, wait=True, lease=True)
    try:
        module.run(work)
    except HelmMissing as error:
        module.fail_json(msg=str(error), code="helm_missing")
    except HelmUnsupported as error:
        module.fail_json(msg=str(error), code="helm_version")
    except ChartProblem as error:
        module.fail_json(msg=str(error), code="chart")
    except UpgradeRefused as error:
        module.fail_json(msg=str(error), code=error.code)


if __name__ == "__main__":
    main()
