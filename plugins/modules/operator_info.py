#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tells which NFD and which GPU operator a cluster has."""

from __future__ import annotations

DOCUMENTATION = r"""
module: operator_info
short_description: Tell which NFD and which GPU operator a cluster has, and whose they are
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Finds NFD's master and the GPU operator in any namespace and under any release name, by their Deployments, and tells from the marks on them
    whether Argo CD, Flux, Helm, OLM, another object or nobody manages them.
  - Ours is what this collection has installed (the Lease C(accel-gpu-helm-<release>) beside it says so), and a Helm release that the documents
    name by C(release) or C(namespace). That is installed and upgraded by Helm.
  - Whatever else is there is adopted. It is used as it is, and neither upgraded nor installed a second time. So is what Argo CD or Flux
    installs, even where it is ours or named. Where one of them keeps the ClusterPolicy, RV(operator_info.operator.notes) tells
    which fields of the pools it would revert, and how to exclude them.
  - "Fails with one message where nothing sensible can be done: two of them that undo each other's work, an operator without a ClusterPolicy, a
    ClusterPolicy whose operator is gone, a release of ours that the documents now want somewhere else, and OpenShift where one of them is
    not installed yet, since both come from OLM there."
  - Fails also when Helm is to be used and C(HELM_KUBE*) in the environment names another cluster or user than this module has.
  - Costs two lists for each component, and one look at a Lease where Helm manages it.
extends_documentation_fragment:
  - accel.gpu.kube
  - accel.gpu.variables
  - accel.gpu.attributes
  - accel.gpu.attributes.info
options:
  components:
    description:
      - Which of the two to look for.
    type: list
    elements: str
    choices: [nfd, operator]
    default: [nfd, operator]
  allow_release:
    description:
      - As the option of M(accel.gpu.gpu_sharing). If given, the module fails where that one would refuse to release nodes from pools that
        O(gpu_pools) does not declare any more, so that a run of several roles ends before it has changed anything.
    type: list
    elements: str
seealso:
  - module: accel.gpu.helm_release
  - module: accel.gpu.gpu_info
"""

EXAMPLES = r"""
- name: Look whether an operator is there already
  accel.gpu.operator_info:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_pools: "{{ gpu_pools }}"
    components: [operator]
  register: installed

- name: Install one where there is none
  ansible.builtin.include_tasks: install.yml
  when: not installed.operator_info.operator.adopted
"""

RETURN = r"""
operator_info:
  description: By component (C(nfd), C(operator)), what was found.
  returned: success
  type: dict
  sample:
    operator:
      found: true
      ours: false
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
        found: {description: Whether it is there., type: bool}
        ours: {description: Whether it is to be installed or upgraded by this collection., type: bool}
        adopted: {description: Whether somebody else's is used as it is., type: bool}
        what: {description: What and where it is in words., type: str}
        deployment: {description: Name of its Deployment., type: str}
        namespace: {description: Its namespace., type: str}
        manager: {description: "V(argocd), V(flux), V(helm), V(olm), V(owner) (another object has made it) or V(nobody).", type: str}
        managed_by: {description: The same in words., type: str}
        version: {description: Its version; empty when nothing tells it., type: str}
        problem: {description: Why it cannot be used. Empty here; M(accel.gpu.gpu_info) tells it instead of failing., type: str}
        notes: {description: What to know of it., type: list, elements: str}
"""

import typing as t

from ..module_utils.common.errors import InvalidOptions
from ..module_utils.common.module import ArgumentSpec
from ..module_utils.gpu_operator.detect import find_nfd, find_operator
from ..module_utils.kube.helm_environment import helm_environment
from ..module_utils.kube.module import GpuModule
from ..module_utils.sharing.release_guard import require_allowed

_FIND = {"nfd": find_nfd, "operator": find_operator}


def work(module: GpuModule) -> dict[str, t.Any]:
    """Look at each component; warn of what an adopted one lacks."""
    plan = module.plan
    if module.params["allow_release"] is not None:
        require_allowed(module.client, plan, frozenset(module.params["allow_release"]))
    findings = {name: _FIND[name](module.client, plan) for name in module.params["components"]}
    problems = [finding.problem for finding in findings.values() if finding.problem]
    if problems:
        raise InvalidOptions(problems)
    if any(finding.ours for finding in findings.values()):
        # Helm will be used: an environment that leads it elsewhere is refused before anything is changed.
        helm_environment(module.client)
    for finding in findings.values():
        if finding.installation is not None:
            for note in finding.notes:
                module.warn(f"{finding.installation.title}: {note}.")
    return {"changed": False, "operator_info": {name: finding.as_dict() for name, finding in findings.items()}}


def main() -> None:
    """Run the module."""
    choices = sorted(_FIND)
    spec: ArgumentSpec = {
        "components": {"type": "list", "elements": "str", "choices": choices, "default": choices},
        "allow_release": {"type": "list", "elements": "str"},
    }
    module = GpuModule(spec, documents=True)
    module.run(work)


if __name__ == "__main__":
    main()
