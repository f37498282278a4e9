#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: helm_release
short_description: Do what Helm leaves undone before a release, and prove it afterwards
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - To be called before M(kubernetes.core.helm), which then installs or upgrades the release if RV(helm_release.action) says so.
  - Checks that helm and the chart are there and that the chart accepts the values; the failure says what is missing and what to do.
  - Repairs a release that a killed helm has left C(pending-install), C(pending-upgrade), C(pending-rollback) or C(uninstalling), which
    Helm itself refuses to touch ("another operation is in progress").
  - Applies the CRDs of the chart and of those sub-charts that the values enable. Helm creates CRDs and never upgrades them. A CRD that is
    as wanted costs its read; none is ever deleted.
  - Tells whether Helm has anything to do, by chart name, version, app version and values, so that a second run starts no helm at all.
  - Waits until the workloads of a release that Helm has nothing left to do for are rolled out.
  - Of the release of a GPU operator it tells beforehand on how many nodes an upgrade rolls the driver, how many at a time, and why. Without
    O(allow_driver_rollout) such an upgrade is refused, or held back if it is the driver's values alone that differ. With it, the old
    operator is stopped first, so that it does not begin a roll which the new one would begin again; Helm starts the new one.
  - Refuses an upgrade in which Helm would overwrite a field of the ClusterPolicy that somebody has set by hand. Helm leaves such a field
    alone as long as the two charts agree about it.
notes:
  - "A helm that is really at work is not disturbed. An unfinished revision is given up for dead by these rules, in this order:
    a helm process on this machine that works on the release is at work;
    a revision that this collection let helm write from this machine (it leaves a Lease C(accel-gpu-helm-<release>) in the release's
    namespace beforehand), while no such process is left, is dead;
    any other is dead when it is older than O(pending_timeout), and is waited for until then."
  - The record of a dead revision is deleted, as if it had never begun. That of a dead first installation is marked C(superseded) instead, because
    it is all that tells Helm what there is to upgrade from. The record of a failed revision stays, and Helm upgrades from it.
  - Secrets of releases are read for chart, values and the names of workloads; no value of theirs comes into a result.
  - Fails when C(HELM_KUBE*) in the environment names another cluster or user than this module has, and when Helm cannot be given the
    connection (an option like O(host) or O(client_cert) of this module alone).
  - helm itself is only used for C(helm pull) and C(helm template), and never reaches the cluster from here.
options:
  release_name:
    description: Name of the release.
    type: str
    required: true
    aliases: [name]
  release_namespace:
    description: Namespace of the release. It must exist, or be among O(expected) in check mode.
    type: str
    required: true
    aliases: [namespace]
  chart_ref:
    description:
      - A path (unpacked or .tgz), a bare name in O(chart_repo_url), an URL, an C(oci://) reference or C(repository/name).
    type: str
    required: true
  chart_repo_url:
    description: URL of the repository that has the chart.
    type: str
  chart_version:
    description: Version of the chart. A chart from a local path has the version it has.
    type: str
  release_values:
    description: Values for the chart.
    type: dict
    default: {}
    aliases: [values]
  initial_values:
    description:
      - Values that only a first installation gets; a release that exists keeps what it has of them.
      - RV(helm_release.initial_values) tells what to give to Helm. O(release_values) win over them.
    type: dict
    default: {}
  binary_path:
    description: Path of helm; the first one on PATH if not given.
    type: path
  pending_timeout:
    description:
      - Seconds after which an unfinished revision of another machine or tool is taken for dead.
      - Must be longer than the longest time-out with which helm is used on this release.
    type: int
    default: 600
  allow_driver_rollout:
    description: Whether an upgrade of the GPU operator's release may roll the driver on the nodes that have one.
    type: bool
    default: false
  node_annotation:
    description:
      - An annotation that the release puts on every node on which one of its DaemonSets runs.
      - When given, the release counts as rolled out only once as many nodes carry it.
    type: str
extends_documentation_fragment:
  - accel.gpu.kube
  - accel.gpu.expected
  - accel.gpu.wait
  - accel.gpu.lease
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
requirements:
  - helm >= 3.8
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
  # The cluster and the user that helm_release has verified, and no other.
  environment: "{{ preparation.helm_release.helm_environment }}"
  when: preparation.helm_release.action != 'none'
"""

RETURN = r"""
helm_release:
  description: The release as it was found, and what is left to do.
  returned: success
  type: dict
  contains:
    helm_environment:
      description: Variables (none is secret) with which M(kubernetes.core.helm) reaches the verified cluster.
      type: dict
      returned: success
      sample: {KUBECONFIG: /etc/kube/prod}
    action:
      description: What Helm has to do next - V(install), V(upgrade) or V(none).
      type: str
    reasons:
      description: Why, in words; of values that differ only the names.
      type: list
      elements: str
    status:
      description: Helm's status of the release, V(absent) when there is none.
      type: str
    revision:
      description: Its revision, 0 when there is none.
      type: int
    chart_version:
      description: Version of the chart that was found at O(chart_ref).
      type: str
    repaired:
      description: Unfinished revisions that were given up for dead, with the rule that said so.
      type: list
      elements: str
    crds:
      description: Names of the chart's CRDs by what became of them.
      type: dict
      contains:
        created: {description: New ones., type: list, elements: str}
        updated: {description: Changed ones., type: list, elements: str}
        unchanged: {description: Those that are as the chart has them., type: list, elements: str}
    initial_values:
      description: What of O(initial_values) to give to Helm.
      type: dict
    driver_rollout:
      description:
        - What the upgrade costs, where it is one of a GPU operator whose driver has to follow. C(nodes) is 0 where none has.
        - C(at_most) nodes are at work at a time, 0 where the ClusterPolicy leaves it to somebody to delete the driver's pods.
      type: dict
      contains:
        nodes: {description: On how many nodes the driver rolls., type: int}
        at_most: {description: How many of them at a time., type: int}
        reasons: {description: Why it does., type: list, elements: str}
    held_back:
      description: Values that were held back because the driver would have rolled; empty when nothing was.
      type: list
      elements: str
    workloads:
      description: Pods ready and wanted of each workload that was waited for, by kind and name.
      type: dict
      sample: {"DaemonSet nfd-worker": "20/20"}
"""

import contextlib
import os
import tempfile
import typing as t

from ..module_utils.common.results import diff_of
from ..module_utils.gpu_operator.driver_rollout import DriverRollout
from ..module_utils.gpu_operator.upgrade import OperatorUpgrade, UpgradeDecision, UpgradeRefused
from ..module_utils.helm.await_workloads import await_workloads
from ..module_utils.helm.chart import ChartProblem
from ..module_utils.helm.cli import INSTALL_HELM
from ..module_utils.helm.preparation import ReleaseOptions, ReleasePreparation, WaitOptions
from ..module_utils.helm.release import NOTHING
from ..module_utils.kube.helm_environment import helm_environment
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
    """Derive from the chart, read the release, repair and apply, and see that it runs."""
    params = module.params
    release = ReleaseOptions.from_params(params)
    binary = _binary(module)
    environment = helm_environment(module.client)
    waiting = WaitOptions(params["wait_timeout"] if params["wait"] else 0, params["wait_sleep"], module.progress)
    with tempfile.TemporaryDirectory(dir=module.tmpdir) as folder, contextlib.ExitStack() as held:
        preparation = ReleasePreparation(
            module.client,
            release,
            module.run_command,
            check=module.check_mode,
            expected=module.expected,
            run_id=module.run_id,
            waiting=waiting,
            before_write=lambda: held.enter_context(module.lease()),
        )
        chart, definitions = preparation.chart(binary, folder)
        preparation.settle()
        upgrading = OperatorUpgrade(module.client, release.namespace, allowed=params["allow_driver_rollout"])
        judgement = upgrading.judge(preparation.decide(chart), preparation, chart, release.wanted)
        step = judgement.step
        if judgement.roll:
            module.warn(_announcement(judgement.roll, judgement.held_back))
        preparation.apply_definitions(definitions)
        preparation.announce(step)
        resumed = False
        if step.action == NOTHING:
            resumed = upgrading.resume(preparation.manifest, check=module.check_mode, before_write=preparation.begin)
        elif judgement.roll and not module.check_mode:
            upgrading.stop(preparation.manifest, waiting)
    workloads = {}
    if step.action == NOTHING and params["wait"] and not module.check_mode:
        workloads = await_workloads(
            module.client, release.namespace, release.name, preparation.manifest, params["node_annotation"], waiting
        )
    return {
        "changed": preparation.changed or resumed,
        "helm_release": {
            **preparation.told(chart, step),
            **_cost(judgement),
            "workloads": workloads,
            "helm_environment": environment,
        },
        "diff": diff_of(*preparation.shown(chart, step), f"Helm release {release.namespace}/{release.name}"),
    }


def _announcement(roll: DriverRollout, held_back: t.Sequence[str]) -> str:
    if not held_back:
        return roll.announcement
    return f"{', '.join(held_back)} of the release's values was held back, because {roll}. Set allow_driver_rollout when that may happen."


def _cost(judgement: UpgradeDecision) -> dict[str, t.Any]:
    roll = judgement.roll.as_dict() if judgement.roll else {"nodes": 0, "at_most": 0, "reasons": []}
    return {"driver_rollout": roll, "held_back": list(judgement.held_back)}


def _binary(module: GpuModule) -> str:
    given = module.params["binary_path"]
    if given and not os.access(given, os.X_OK):
        module.fail_json(msg=f"There is no program at binary_path {given}. {INSTALL_HELM}", code="helm_missing")
    found = given or module.get_bin_path("helm")
    if not found:
        module.fail_json(msg=f"helm is not on this machine. {INSTALL_HELM}", code="helm_missing")
    return str(found)


def main() -> None:
    """Run the module."""
    module = GpuModule(OPTIONS, expected=True, wait=True, lease=True)
    try:
        module.run(work)
    except ChartProblem as error:
        module.fail_json(msg=str(error), code="chart")
    except UpgradeRefused as error:
        module.fail_json(msg=str(error), code=error.code)


if __name__ == "__main__":
    main()
