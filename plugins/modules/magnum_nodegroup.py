#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Manages the node groups of a Magnum cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: magnum_nodegroup
short_description: Create, scale, relabel, replace and delete node groups of an OpenStack Magnum cluster
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Reconciles one or more node groups with their declarations. The groups are processed in parallel. Undeclared settings of a group are not changed.
  - Before the first change, the module validates names, bounds, flavors, images and the quota. It also rejects labels that a kubelet must not set. These checks
    are necessary because Magnum accepts most invalid requests and fails later.
  - Magnum also loses requests while another operation is in progress. Before each request, the module waits until no operation on the group is in progress.
    After each request, it verifies that the request took effect. If the request did not take effect, the module retries it.
  - The bounds and the number of nodes are changed in an order that Magnum accepts at every step.
  - O(flavor), O(image), O(role), O(labels) and O(docker_volume_size) of an existing group cannot be changed. With O(recreate), the group is replaced. In this
    case, the module creates a new group whose name ends with four hexadecimal digits, waits until the new nodes are ready, drains the old nodes, and deletes
    the old group.
  - With an autoscaler, the number of nodes is not changed if it is between O(min_node_count) and O(max_node_count).
  - If N groups need no change and C(auth_url) ends with C(/v3), the module sends N+3 requests, including the request for a token.
extends_documentation_fragment:
  - accel.gpu.magnum.waiting
  - accel.gpu.magnum
  - accel.gpu.magnum_nodegroup
  - accel.gpu.drain
  - accel.gpu.confirm
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
  - accel.gpu.attributes.progress
options:
  cluster:
    description:
      - Name or ID of the cluster. If two clusters have the same name, the module fails and lists their IDs.
    type: str
    required: true
  name:
    description:
      - Name of the group. It becomes the value of a node label, so it must consist of 1 to 63 letters, digits, C(-), C(_) and C(.).
      - Either this option or O(nodegroups) is required.
    type: str
  parallel:
    description: Maximum number of groups that are changed at the same time.
    type: int
    default: 32
seealso:
  - module: accel.gpu.magnum_nodegroup_info
  - module: accel.gpu.magnum_catalog_info
  - module: accel.gpu.magnum_cluster
"""

EXAMPLES = r"""
- name: Create two nodes with one T4 each
  accel.gpu.magnum_nodegroup:
    cloud: mycloud
    cluster: prod
    name: gpu-t4
    flavor: g2.5xlarge
    node_count: 2
    node_taints:
      - {key: nvidia.com/gpu, value: present, effect: NoSchedule}

- name: Reconcile all groups of a cluster in one call, one of them with an autoscaler
  accel.gpu.magnum_nodegroup:
    cloud: mycloud
    cluster: prod
    nodegroups:
      - {name: train, flavor: g4.p2.40g, min_node_count: 0, max_node_count: 6, autoscaling: true}
      - {name: notebooks, flavor: g2.5xlarge, node_count: 4, node_labels: {accel.gpu/pool: notebooks}}

- name: Move a group to a different flavor
  accel.gpu.magnum_nodegroup:
    cloud: mycloud
    cluster: prod
    name: train
    flavor: g5.h100
    recreate: true
    kubernetes: {kubeconfig: ~/.kube/prod}

- name: Scale a group to zero
  accel.gpu.magnum_nodegroup:
    cloud: mycloud
    cluster: prod
    name: notebooks
    node_count: 0
"""

RETURN = r"""
nodegroups:
  description:
    - The declared node groups. Each key is a declared name, and its value is the current state or, in check mode, the predicted state of the group. C(action)
      is V(none), V(create), V(update), V(recreate) or V(delete). After a replacement, C(name) has a suffix. C(failure) is the reason why a group failed.
  returned: always
  type: dict
  contains:
    NAME:
      description: 'The entry for one node group. The key is the declared name of the node group.'
      type: dict
      returned: always
      contains: &group
        action: {description: 'The action that was taken or, in check mode, would be taken. V(none), V(create), V(update), V(recreate)
          or V(delete).', type: str, returned: always, sample: none}
        id: {description: ID of the group., type: str, returned: if the group exists, sample: 0d358554-95b3-463f-86fc-21344a3cf48b}
        name: {description: "Name of the group. After a replacement, the name has a suffix.", type: str, returned: always, sample: train}
        status: {description: Status of the group., type: str, returned: if the group exists, sample: CREATE_COMPLETE}
        node_count: {description: Number of nodes., type: int, returned: always, sample: 2}
        min_node_count: {description: Minimum number of nodes for the autoscaler., type: int, returned: always, sample: 0}
        max_node_count: {description: Maximum number of nodes for the autoscaler; null if there is no maximum., type: int, returned: always, sample: null}
        flavor: {description: 'Name or ID of the flavor, as Magnum stores it.', type: str, returned: always, sample: g2.5xlarge}
        image: {description: 'Name or ID of the image, as Magnum stores it.', type: str, returned: always, sample: ubuntu-k8s}
        role: {description: Role of the group., type: str, returned: always, sample: worker}
        docker_volume_size: {description: Size of the container volume in GiB; null if there is none., type: int, returned: always, sample: null}
        labels: {description: Labels that Magnum uses to configure the group., type: dict, returned: always, sample: {kube_tag: v1.30.2}}
        node_labels: {description: Labels with which nodes register., type: dict, returned: always, sample: {accel.gpu/pool: train}}
        node_taints:
          description: Taints with which nodes register.
          type: list
          elements: dict
          returned: always
          contains:
            key: {description: Key of the taint., type: str, returned: always, sample: nvidia.com/gpu}
            value: {description: Value of the taint., type: str, returned: if the taint has a value, sample: present}
            effect: {description: Effect of the taint., type: str, returned: always, sample: NoSchedule}
        outdated: {description: Machines whose settings differ from those of new machines., type: list, elements: str,
          returned: if there are any, sample: [train-x7k2p]}
        deletes: {description: 'The groups that are deleted with their nodes: the group itself, or the groups that it replaces.', type: list,
          elements: str, returned: if any group is deleted, sample: [train (2 nodes)]}
        failure: {description: The reason why the group failed., type: str, returned: if it failed, sample: The quota is exceeded.}
nodegroup:
  description: The group that O(name) selects, with the same keys as each value of RV(nodegroups).
  returned: with O(name)
  type: dict
  contains: *group
code:
  description:
    - The reason for the failure.
    - V(not_confirmed) - see O(confirm).
    - V(invalid) - errors in the options. V(partial) - some node groups could not be changed. V(timeout) - see O(wait_timeout).
    - V(connection) - no usable credentials, or the cloud's library is missing. V(unreachable) - the cloud does not respond. Otherwise, the HTTP status of
      the cloud's error.
    - With O(kubernetes), additional codes are possible. V(wrong_cluster) - the connection points to a different cluster. V(lease_held) - another run holds the
      Lease. V(lease_lost) - this run lost it. V(unreachable) and an HTTP status can also refer to the cluster's API server.
  returned: failure
  type: raw
  sample: connection
details:
  description:
    - Details of the failure. C(problems) lists all errors in the options or variables. C(reason), C(method) and C(path) describe the failed request.
  returned: failure
  type: dict
  sample: {reason: Refused, method: GET, path: /v1/clusters}
"""

import typing as t

from ..module_utils.clouds.magnum_clusters import WAIT, MagnumModule
from ..module_utils.clouds.magnum_groups import FIELDS, MagnumProvider, option_problems, spec_of
from ..module_utils.licensing.container import LicenseReturn
from ..module_utils.nodegroups.module import KUBERNETES, DrainingModule, reconcile_nodegroups, require_valid

if t.TYPE_CHECKING:
    from ..module_utils.kube.client import Client
    from ..module_utils.nodes.drain import NodeRemoval


class MagnumNodeGroupModule(MagnumModule, DrainingModule):
    """A Magnum module that can drain nodes."""

    def node_removal(self, client: Client) -> NodeRemoval:
        """Return the work that is required before nodes are removed: vGPU nodes return their licenses."""
        return LicenseReturn(client, self.warn)


def work(module: MagnumNodeGroupModule) -> dict[str, t.Any]:
    """Validate the options, and reconcile the groups."""
    params = module.params
    groups = FIELDS.declared_groups(params)
    require_valid(groups, option_problems)
    cluster = module.magnum.cluster(params["cluster"])
    version = module.magnum.version
    left_out = [name for name in FIELDS.newer_than(version) if any(group.get(name) for group in groups)]
    if left_out:
        module.warn(
            f"This release of Magnum (microversion {version[0]}.{version[1]}) does not support {' and '.join(left_out)}, so they are not sent. "
            "Set the labels and taints of the nodes with accel.gpu.node_metadata, or in the pools."
        )
    labels = cluster.get("labels") or {}
    specs = [spec_of(group, cluster_labels=labels, version=version) for group in groups]
    provider = MagnumProvider(module.magnum, module.nova, module.glance, cluster, specs)
    return reconcile_nodegroups(module, provider, specs)


def main() -> None:
    """Run the module."""
    MagnumNodeGroupModule({**WAIT, **KUBERNETES, **FIELDS.argument_spec}, **FIELDS.constraints).run(work)


if __name__ == "__main__":
    main()
