#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Node groups of a Magnum cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: magnum_nodegroup
short_description: Create, scale, relabel, replace and delete node groups of an OpenStack Magnum cluster
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Brings one node group, or any number of them side by side, to what is declared. What is not declared of a group stays as it is.
  - Magnum accepts most requests, and refuses or loses some of them later without a word. So whatever can be checked is checked
    before the first request that changes anything (names, bounds, flavors, images, quota, labels that no kubelet may set); nothing is
    asked of a group while something else is under way in it; and a request is believed when its effect is seen and the group has
    settled, else it is sent again.
  - Bounds and size are changed in an order in which every step is allowed.
  - O(flavor), O(image), O(role), O(labels) and O(docker_volume_size) cannot be changed on a group that exists. With O(recreate) another
    group is made beside it, called by the name and four digits, its nodes become ready, the pods are moved, and the old group is
    deleted. It is the declared one from then on.
  - Where an autoscaler is at work, the number of nodes is its own between O(min_node_count) and O(max_node_count).
  - Where nothing differs, nothing is sent. Of N groups that costs N+3 requests, the one for a token among them, if the auth_url ends
    with C(/v3).
extends_documentation_fragment:
  # Whichever comes first wins.
  - accel.gpu.magnum.waiting
  - accel.gpu.magnum
  - accel.gpu.magnum_nodegroup
  - accel.gpu.drain
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
options:
  cluster:
    description:
      - Name or id of the cluster. A name that two clusters have is refused, with the ids of both.
    type: str
    required: true
  name:
    description:
      - Name of the group. It becomes a label of the nodes, so it is one to 63 letters, digits, C(-), C(_) and C(.).
      - Either this or O(nodegroups) is required.
    type: str
  parallel:
    description: How many groups are worked on at the same time.
    type: int
    default: 32
seealso:
  - module: accel.gpu.magnum_nodegroup_info
  - module: accel.gpu.magnum_catalog_info
  - module: accel.gpu.magnum_cluster
"""

EXAMPLES = r"""
- name: Two nodes with a T4 each
  accel.gpu.magnum_nodegroup:
    cloud: mycloud
    cluster: prod
    name: gpu-t4
    flavor: g2.5xlarge
    node_count: 2
    node_taints:
      - {key: nvidia.com/gpu, value: present, effect: NoSchedule}

- name: All groups of a cluster in one call, one of them the autoscaler's
  accel.gpu.magnum_nodegroup:
    cloud: mycloud
    cluster: prod
    nodegroups:
      - {name: train, flavor: g4.p2.40g, min_node_count: 0, max_node_count: 6, autoscaling: true}
      - {name: notebooks, flavor: g2.5xlarge, node_count: 4, node_labels: {accel.gpu/pool: notebooks}}

- name: Move a group to another flavor
  accel.gpu.magnum_nodegroup:
    cloud: mycloud
    cluster: prod
    name: train
    flavor: g5.h100
    recreate: true
    kubernetes: {kubeconfig: ~/.kube/prod}

- name: Scale a group to nothing
  accel.gpu.magnum_nodegroup:
    cloud: mycloud
    cluster: prod
    name: notebooks
    node_count: 0
"""

RETURN = r"""
nodegroups:
  description: Each declared group by its name, as it is now, or in check mode would be.
  returned: always
  type: dict
  sample:
    gpu-t4:
      action: create
      name: gpu-t4
      id: 0d358554-95b3-463f-86fc-21344a3cf48b
      status: CREATE_COMPLETE
      flavor: g2.5xlarge
      image: ubuntu-k8s
      role: worker
      node_count: 2
      min_node_count: 0
      max_node_count: null
      docker_volume_size: null
      labels: {kube_tag: v1.30.2}
      node_labels: {}
      node_taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]
nodegroup:
  description: The one group that O(name) declares, as in RV(nodegroups).
  returned: with O(name)
  type: dict
"""

import typing as t

from ..module_utils.common.errors import InvalidOptions
from ..module_utils.common.module import ArgumentSpec
from ..module_utils.drain.module import KUBERNETES, DrainingModule
from ..module_utils.nodegroups.reconciler import ReconcileOptions, reconcile
from ..module_utils.providers.magnum.module import MagnumModule
from ..module_utils.providers.magnum.options import COMMON, GROUP, GROUPS
from ..module_utils.providers.magnum.provider import MagnumProvider
from ..module_utils.providers.magnum.specs import as_options, declared_group, problems

_SPEC: ArgumentSpec = {
    "cluster": {"type": "str", "required": True},
    "name": {"type": "str"},
    **GROUPS,
    **KUBERNETES,
    "parallel": {"type": "int", "default": 32},
}


class NodegroupModule(MagnumModule, DrainingModule):
    """One that may have to empty nodes before their machines go."""


def work(module: NodegroupModule) -> dict[str, t.Any]:
    """Validate, read, compare, and bring the groups to what is declared."""
    params = module.params
    groups = [_with_common(group, params) for group in _declared(params)]
    found = problems(groups)
    if found:
        raise InvalidOptions(found, "These node groups cannot be as they are declared:")
    cluster = module.magnum.cluster(params["cluster"])
    labelled = module.magnum.has_node_labels
    wanted = [
        declared_group(group, cluster_labels=cluster.get("labels") or {}, node_labels=labelled) for group in groups
    ]
    if not labelled and any(group.get("node_labels") or group.get("node_taints") for group in groups):
        module.warn(
            "This Magnum has no labels and taints of nodes (they came with release 23, microversion 1.14): put them on the nodes with "
            "accel.gpu.nodes, or by the pools' labels."
        )
    try:
        brought = reconcile(
            MagnumProvider(module.magnum, module.nova, module.glance, cluster, wanted),
            [one.wish for one in wanted],
            check_mode=module.check_mode,
            pace=ReconcileOptions(params["wait"], params["timeout"], params["wait_sleep"], max(1, params["parallel"])),
            emptier=module.drainer,
            progress=module.progress,
        )
    except Exception as error:
        if getattr(error, "partial", None):
            error.partial = _told(error.partial, params)  # type: ignore[attr-defined]
        raise
    for text in brought.warnings:
        module.warn(text)
    return _told(brought.result(), params)


def _declared(params: t.Mapping[str, t.Any]) -> list[dict[str, t.Any]]:
    if params["nodegroups"] is not None:
        return list(params["nodegroups"])
    return [{name: params[name] for name in ("name", *GROUP, *COMMON)}]


def _with_common(group: t.Mapping[str, t.Any], params: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    return {**group, **{name: params[name] if group[name] is None else group[name] for name in COMMON}}


def _told(result: t.Mapping[str, t.Any], params: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The engine's result in the words of the options."""
    if "nodegroups" not in result:
        return dict(result)
    groups = {name: as_options(told) for name, told in result["nodegroups"].items()}
    diff = dict(result["diff"])
    for side in ("before", "after"):
        diff[side] = {name: as_options(told) for name, told in diff[side].items()}
    one = {"nodegroup": groups[params["name"]]} if params["nodegroups"] is None else {}
    return {**result, "nodegroups": groups, **one, "diff": diff}


def main() -> None:
    """Run the module."""
    NodegroupModule(
        _SPEC,
        wait=True,
        mutually_exclusive=[("nodegroups", option) for option in ("name", *GROUP)],
        required_one_of=[("name", "nodegroups")],
    ).run(work)


if __name__ == "__main__":
    main()
