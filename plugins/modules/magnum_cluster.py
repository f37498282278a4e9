#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Creates and deletes a Magnum cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: magnum_cluster
short_description: Create and delete an OpenStack Magnum cluster
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Creates a cluster from a template, or verifies that the existing cluster matches the declaration.
  - Magnum cannot change the settings of an existing cluster, in particular its labels. The label C(nvidia_gpu_enabled), which makes a cloud install its own GPU
    support, applies only when the cluster is created. If the cluster differs from the declaration, the module fails and reports the actual values. To change
    node groups, use M(accel.gpu.magnum_nodegroup).
  - Magnum does not reject a second cluster with the same name. If two clusters have the same name, the module fails and reports their IDs. If the response to a
    request is lost, the module lists the clusters before it retries the request.
extends_documentation_fragment:
  - accel.gpu.magnum.waiting
  - accel.gpu.magnum
  - accel.gpu.confirm
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
  - accel.gpu.attributes.progress
options:
  name:
    description: Name of the cluster. It must consist of at most 242 letters, digits, C(-), C(_) and C(.), and begin with a letter.
    type: str
    required: true
  state:
    description: Whether the cluster must exist. V(absent) deletes the cluster and everything in it.
    type: str
    choices: [present, absent]
    default: present
  cluster_template:
    description: Name or ID of the cluster template. Required to create a cluster.
    type: str
  labels:
    description:
      - Magnum's labels, which configure the cluster. Only declared labels are compared with those of an existing cluster. Values are compared as strings. A
        boolean is sent as V(true) or V(false).
    type: dict
  merge_labels:
    description: Whether O(labels) are merged with the template's labels. With V(true), O(labels) take precedence. With V(false), O(labels) replace the
      template's labels.
    type: bool
    default: true
  node_count:
    description: Number of nodes in the default node group when the cluster is created. This number is not compared with that of an existing cluster.
    type: int
  master_count:
    description: Number of control plane nodes. It must be odd.
    type: int
  flavor:
    description: Name or ID of the flavor for the default node group. By default, the flavor of the template.
    type: str
  master_flavor:
    description: Name or ID of the flavor for the control plane nodes. By default, the flavor of the template.
    type: str
  keypair:
    description: Name of the SSH key pair. By default, the key pair of the template.
    type: str
  docker_volume_size:
    description: Size of the container volume on each node, in GiB.
    type: int
  fixed_network:
    description: Name or ID of the network of the nodes.
    type: str
  fixed_subnet:
    description: Name or ID of the subnet of the nodes.
    type: str
  floating_ip_enabled:
    description: Whether the nodes get floating IP addresses.
    type: bool
  master_lb_enabled:
    description: Whether the control plane gets a load balancer.
    type: bool
  create_timeout:
    description: Number of minutes after which Magnum stops creating the cluster. This value is not compared with that of an existing cluster.
    type: int
seealso:
  - module: accel.gpu.magnum_cluster_info
  - module: accel.gpu.magnum_nodegroup
  - module: accel.gpu.magnum_kubeconfig
"""

EXAMPLES = r"""
- name: Create a cluster in which the cloud installs the GPU operator
  accel.gpu.magnum_cluster:
    cloud: mycloud
    name: prod
    cluster_template: kubernetes-1.30
    node_count: 2
    labels: {nvidia_gpu_enabled: true}

- name: Delete the cluster
  accel.gpu.magnum_cluster:
    cloud: mycloud
    name: prod
    state: absent
    confirm: [prod]
"""

RETURN = r"""
magnum_cluster:
  description: The cluster after the run or, in check mode, those values of the predicted cluster that are already known. The map is empty if there is no
    cluster.
  returned: always
  type: dict
  contains:
    name: {description: Name of the cluster., type: str, returned: always, sample: prod}
    id: {description: ID of the cluster., type: str, returned: if the cluster exists, sample: 193f8fd5-208b-4a0f-a6b8-1c0a4b595f51}
    status: {description: Status of the cluster., type: str, returned: if the cluster exists, sample: CREATE_COMPLETE}
    status_reason: {description: Magnum's reason for the status., type: str, returned: if the cluster exists, sample: null}
    health_status: {description: 'Health of the cluster, as Magnum returns it.', type: str, returned: if the cluster exists, sample: HEALTHY}
    server: {description: URL of the API server., type: str, returned: if the cluster exists, sample: 'https://10.1.10.10:6443'}
    version: {description: Version of Kubernetes., type: str, returned: if the cluster exists, sample: v1.30.2}
    project_id: {description: ID of the project., type: str, returned: if the cluster exists, sample: 7c2b1f0e8d9a4e5bb6a1c3d2e4f50617}
    node_addresses: {description: Addresses of the nodes., type: list, elements: str, returned: if the cluster exists, sample: [10.1.22.10]}
    master_addresses: {description: Addresses of the control plane nodes., type: list, elements: str, returned: if the
      cluster exists, sample: [10.1.22.4]}
    cluster_template: {description: ID of the cluster template., type: str, returned: always, sample: 6be8aa70-e10d-42f6-a36f-7e8f2cb59fca}
    keypair: {description: Name of the key pair., type: str, returned: always, sample: ops}
    flavor: {description: Flavor of the nodes., type: str, returned: always, sample: m2.medium}
    master_flavor: {description: Flavor of the control plane nodes., type: str, returned: always, sample: m2.medium}
    node_count: {description: Number of nodes., type: int, returned: always, sample: 3}
    master_count: {description: Number of control plane nodes., type: int, returned: always, sample: 1}
    docker_volume_size: {description: Size of the container volume in GiB; null if there is none., type: int, returned: always, sample: null}
    fixed_network: {description: The private network., type: str, returned: always, sample: null}
    fixed_subnet: {description: The private subnet., type: str, returned: always, sample: null}
    floating_ip_enabled: {description: Whether the nodes have floating IP addresses., type: bool, returned: always, sample: false}
    master_lb_enabled: {description: Whether the control plane has a load balancer., type: bool, returned: always, sample: true}
    create_timeout: {description: Number of minutes after which Magnum stops creating the cluster., type: int, returned: always, sample: 60}
    labels: {description: Labels that Magnum uses to configure the cluster., type: dict, returned: always, sample: {nvidia_gpu_enabled: 'true'}}
code:
  description:
    - The reason for the failure.
    - V(not_confirmed) - see O(confirm).
    - V(invalid) - errors in the options. V(partial) - the cluster could not be created or deleted. V(timeout) - see O(wait_timeout).
    - V(connection) - no usable credentials, or the cloud's library is missing. V(unreachable) - the cloud does not respond. Otherwise, the HTTP status of
      the cloud's error.
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

import functools
import typing as t

from ..module_utils.clouds.magnum_client import IN_DELETION
from ..module_utils.clouds.magnum_clusters import (
    WAIT,
    MagnumModule,
    cluster_body,
    cluster_differences,
    cluster_options,
    cluster_problems,
    cluster_result,
    declared_cluster,
    immutable_problems,
)
from ..module_utils.core.errors import InvalidOptions, PartialFailure
from ..module_utils.core.messages import diff_of
from ..module_utils.core.module import CONFIRM, ArgumentSpec
from ..module_utils.core.values import Object
from ..module_utils.core.waits import wait_until

_SPEC: ArgumentSpec = {
    "name": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "cluster_template": {"type": "str"},
    "labels": {"type": "dict"},
    "merge_labels": {"type": "bool", "default": True},
    "node_count": {"type": "int"},
    "master_count": {"type": "int"},
    "flavor": {"type": "str"},
    "master_flavor": {"type": "str"},
    "keypair": {"type": "str", "no_log": False},
    "docker_volume_size": {"type": "int"},
    "fixed_network": {"type": "str"},
    "fixed_subnet": {"type": "str"},
    "floating_ip_enabled": {"type": "bool"},
    "master_lb_enabled": {"type": "bool"},
    "create_timeout": {"type": "int"},
    **CONFIRM,
}
_FIRST_PAUSE = 0.2


class MagnumClusterModule(MagnumModule):
    """A Magnum module that deletes clusters."""

    def name_to_confirm(self) -> str:
        """Return the option `name`."""
        return str(self.params["name"])


def work(module: MagnumModule) -> Object:
    """Compare the cluster with the declaration, and create or delete it."""
    if problems := cluster_problems(module.params):
        raise InvalidOptions(problems)
    cluster = module.magnum.find_cluster(module.params["name"])
    if module.params["state"] == "absent":
        return _absent(module, cluster)
    if cluster and cluster["status"] == IN_DELETION:
        _await_deletion_before_creation(module, cluster)
        cluster = None
    return _verify(module, cluster) if cluster else _create(module)


def _await_deletion_before_creation(module: MagnumModule, cluster: Object) -> None:
    if not module.params["wait"]:
        name = module.params["name"]
        raise InvalidOptions(
            [f"Cluster {name} is being deleted. Run the module again after the deletion, or set wait: true."]
        )
    if not module.check_mode:
        _await_deletion(module, cluster["uuid"])


def _verify(module: MagnumModule, cluster: Object) -> Object:
    differences = cluster_differences(module.params, cluster, functools.partial(_is_same, module))
    if differences:
        raise InvalidOptions(immutable_problems(module.params["name"], differences))
    if not module.check_mode and module.params["wait"]:
        cluster = _await_settled(module, cluster["uuid"])
    options = cluster_options(cluster)
    return {"changed": False, "magnum_cluster": cluster_result(cluster), "diff": diff_of(options, options)}


def _create(module: MagnumModule) -> Object:
    name = module.params["name"]
    if problems := list(_creation_problems(module)):
        raise InvalidOptions(problems, f"Cluster {name} cannot be created:")
    declared = {"name": name, **declared_cluster(module.params)}
    result = declared
    if not module.check_mode:
        cluster_id = module.magnum.create_cluster(cluster_body(module.params))
        module.progress.report(f"cluster {name}: creating")
        result = {**declared, "id": cluster_id}
        if module.params["wait"]:
            result = cluster_result(_await_settled(module, cluster_id))
    return {"changed": True, "magnum_cluster": result, "diff": diff_of({}, declared, f"cluster {name}")}


def _creation_problems(module: MagnumModule) -> t.Iterator[str]:
    """Yield a message for each declared resource that does not exist in the cloud, and for an exhausted quota."""
    params, magnum, nova = module.params, module.magnum, module.nova
    if not params["cluster_template"]:
        yield "cluster_template is not set: set it to the template from which to create the cluster."
    elif magnum.template(params["cluster_template"]) is None:
        names = _names(magnum.templates())
        yield f"cluster_template: Magnum has no template {params['cluster_template']}; available: {names}."
    for option in ("flavor", "master_flavor"):
        if params[option] and nova.flavor(params[option]) is None:
            names = _names(nova.flavors)
            yield f"{option}: Nova has no flavor {params[option]} for this project; available: {names}."
    if params["keypair"] and params["keypair"] not in nova.keypairs:
        names = ", ".join(nova.keypairs) or "none"
        yield f"keypair: the user has no key pair {params['keypair']}; available: {names}."
    quota, used = magnum.quota(), len(magnum.clusters())
    if quota is not None and 0 <= quota <= used:
        yield (
            f"The project's quota is {quota} clusters, and it has {used} already. Delete one, or ask the cloud operator for a larger quota."
        )


def _names(items: t.Iterable[Object]) -> str:
    return ", ".join(sorted(str(item["name"]) for item in items)) or "none"


def _absent(module: MagnumModule, cluster: Object | None) -> Object:
    before = cluster_options(cluster) if cluster else {}
    if cluster and cluster["status"] != IN_DELETION:
        module.require_confirmation(
            f"This deletes cluster {module.params['name']} ({cluster['uuid']}), with all its nodes and their data."
        )
    if cluster and not module.check_mode:
        if cluster["status"] != IN_DELETION:
            module.magnum.delete_cluster(cluster["uuid"])
        if module.params["wait"]:
            _await_deletion(module, cluster["uuid"])
    header = f"cluster {module.params['name']}"
    return {"changed": bool(cluster), "magnum_cluster": {}, "diff": diff_of(before, {}, header)}


def _is_same(module: MagnumModule, option: str, one: str, other: str) -> bool:
    """Return whether two names or IDs refer to the same template or flavor."""
    find, key = (module.magnum.template, "uuid") if option == "cluster_template" else (module.nova.flavor, "id")
    ids = [find(one), find(other)]
    return all(ids) and len({item[key] for item in ids if item}) == 1


def _await_settled(module: MagnumModule, cluster_id: str) -> Object:
    """Wait until the cluster's operation has ended, and return the cluster. Immediately after the request, the cluster may not exist yet."""
    cluster = t.cast(
        "Object",
        _wait(
            module,
            cluster_id,
            lambda now: now is not None and not str(now["status"]).endswith("_IN_PROGRESS"),
        ),
    )
    # magnum_nodegroup reports a failed update of one of the node groups.
    if str(cluster["status"]) in ("CREATE_FAILED", "DELETE_FAILED"):
        raise PartialFailure(_status_message(module, cluster), {"magnum_cluster": cluster_result(cluster)})
    return cluster


def _await_deletion(module: MagnumModule, cluster_id: str) -> None:
    def done(cluster: Object | None) -> bool:
        if cluster is not None and cluster["status"] == "DELETE_FAILED":
            raise PartialFailure(_status_message(module, cluster))
        return cluster is None

    _wait(module, cluster_id, done)


def _wait(module: MagnumModule, cluster_id: str, done: t.Callable[[Object | None], bool]) -> Object | None:
    message = functools.partial(_status_message, module)
    return wait_until(
        lambda: module.magnum.find_cluster(cluster_id),
        done,
        timeout=module.params["wait_timeout"],
        interval=module.params["wait_sleep"],
        first_interval=_FIRST_PAUSE,
        describe=message,
        progress_text=message,
        progress=module.progress,
    )


def _status_message(module: MagnumModule, cluster: Object | None) -> str:
    name = module.params["name"]
    if cluster is None:
        return f"Cluster {name} was requested, but does not exist yet."
    faults = [f"{fault}: {text}" for fault, text in sorted((cluster.get("faults") or {}).items())]
    reasons = [cluster.get("status_reason") or "", *faults]
    return " ".join([f"Cluster {name} is {cluster['status']}.", *(f"{text}." for text in reasons if text)])


def main() -> None:
    """Run the module."""
    MagnumClusterModule({**WAIT, **_SPEC}).run(work)


if __name__ == "__main__":
    main()
