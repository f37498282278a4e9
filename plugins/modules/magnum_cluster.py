#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Magnum cluster, as far as pools of GPU nodes need it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: magnum_cluster
short_description: Create and delete an OpenStack Magnum cluster
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Creates a cluster from a template, or makes sure that the one that there is was made as declared.
  - Nothing of a cluster can be changed later, its labels least of all. A cloud that brings GPU support by the label
    C(nvidia_gpu_enabled) brings it to clusters that are created with it, and to no other. What differs is refused by name, with
    what there is. Its node groups are changed with M(accel.gpu.magnum_nodegroup).
  - Magnum makes a second cluster of the same name without a word. Here a name that two clusters have is refused, with the ids of
    both, and a request whose answer was lost is not sent again before a look shows that it did nothing.
extends_documentation_fragment:
  # Whichever comes first wins.
  - accel.gpu.magnum.waiting
  - accel.gpu.magnum
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
options:
  name:
    description: Name of the cluster. A letter first, then letters, digits, C(-), C(_) and C(.), 242 characters at most.
    type: str
    required: true
  state:
    description: V(absent) deletes the cluster with everything in it.
    type: str
    choices: [present, absent]
    default: present
  cluster_template:
    description: Name or id of the template. Required to create a cluster.
    type: str
  labels:
    description:
      - Labels of Magnum, by which the cloud configures the cluster. Of a cluster that exists only those that are declared are compared,
        as text; a boolean is sent as V(true) or V(false).
    type: dict
  merge_labels:
    description: Whether O(labels) are laid on the template's, else they take their place.
    type: bool
    default: true
  node_count:
    description: How many nodes the default group is created with. Later that is the group's own matter.
    type: int
  master_count:
    description: How many masters there are, an odd number.
    type: int
  flavor:
    description: Name or id of the flavor of the default group. The template's if not given.
    type: str
  master_flavor:
    description: Name or id of the masters' flavor. The template's if not given.
    type: str
  keypair:
    description: Name of the SSH key pair. The template's if not given.
    type: str
  docker_volume_size:
    description: Size in GB of a volume for containers on each node.
    type: int
  fixed_network:
    description: Name or id of the network of the nodes.
    type: str
  fixed_subnet:
    description: Name or id of the subnet of the nodes.
    type: str
  floating_ip_enabled:
    description: Whether the nodes get floating addresses.
    type: bool
  master_lb_enabled:
    description: Whether a load balancer stands before the masters.
    type: bool
  create_timeout:
    description: Minutes after which Magnum gives up creating the cluster. It is not compared later.
    type: int
seealso:
  - module: accel.gpu.magnum_cluster_info
  - module: accel.gpu.magnum_nodegroup
  - module: accel.gpu.magnum_kubeconfig
"""

EXAMPLES = r"""
- name: A cluster whose cloud brings the GPU operator
  accel.gpu.magnum_cluster:
    cloud: mycloud
    name: prod
    cluster_template: kubernetes-1.30
    node_count: 2
    labels: {nvidia_gpu_enabled: true}

- name: Delete it
  accel.gpu.magnum_cluster:
    cloud: mycloud
    name: prod
    state: absent
"""

RETURN = r"""
magnum_cluster:
  description: The cluster as it is now, or in check mode as far as it is known before. Empty when there is none.
  returned: always
  type: dict
  sample:
    name: prod
    id: 193f8fd5-208b-4a0f-a6b8-1c0a4b595f51
    status: CREATE_COMPLETE
    api_address: https://10.1.10.10:6443
    cluster_template: 6be8aa70-e10d-42f6-a36f-7e8f2cb59fca
    labels: {kube_tag: v1.30.2, nvidia_gpu_enabled: "true"}
"""

import functools
import typing as t

from ..module_utils.common.errors import InvalidOptions, PartialFailure
from ..module_utils.common.module import ArgumentSpec
from ..module_utils.common.results import diff_of
from ..module_utils.common.wait import wait_until
from ..module_utils.providers.magnum import clusters
from ..module_utils.providers.magnum.module import MagnumModule

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
}
_FIRST_LOOK = 0.2


def work(module: MagnumModule) -> dict[str, t.Any]:
    """Read, compare, and create or delete."""
    found = clusters.problems(module.params)
    if found:
        raise InvalidOptions(found)
    live = module.magnum.find_cluster(module.params["name"])
    if module.params["state"] == "absent":
        return _absent(module, live)
    if live and live["status"] == "DELETE_IN_PROGRESS":
        _after_the_end(module, live)
        live = None
    return _present(module, live) if live else _create(module)


def _after_the_end(module: MagnumModule, live: dict[str, t.Any]) -> None:
    """A cluster that is being deleted makes place for the one that is declared."""
    if not module.params["wait"]:
        raise InvalidOptions(
            [f"Cluster {module.params['name']} is being deleted; run again when it is gone, or with wait."]
        )
    if not module.check_mode:
        _gone(module, live["uuid"])


def _present(module: MagnumModule, live: dict[str, t.Any]) -> dict[str, t.Any]:
    found = clusters.differences(module.params, live, functools.partial(_same, module))
    if found:
        raise InvalidOptions(clusters.refusals(module.params["name"], found))
    if not module.check_mode and module.params["wait"]:
        live = _settled(module, live["uuid"])
    told = clusters.cluster_result(live)
    return {"changed": False, "magnum_cluster": {**told, **clusters.state(live)}, "diff": diff_of(told, told)}


def _create(module: MagnumModule) -> dict[str, t.Any]:
    found = list(_unknown(module))
    if found:
        raise InvalidOptions(found, f"Cluster {module.params['name']} cannot be created:")
    name = module.params["name"]
    told = after = {"name": name, **clusters.declared_cluster(module.params)}
    if not module.check_mode:
        made = module.magnum.create_cluster(clusters.body_of(module.params))
        module.progress.report(f"cluster {name}: creating")
        told = {**told, "id": made}
        if module.params["wait"]:
            live = _settled(module, made)
            told = {**clusters.cluster_result(live), **clusters.state(live)}
    return {"changed": True, "magnum_cluster": told, "diff": diff_of({}, after, f"cluster {name}")}


def _unknown(module: MagnumModule) -> t.Iterator[str]:
    """What the declaration names and the cloud has not, and a quota that is used up."""
    params = module.params
    if not params["cluster_template"]:
        yield "cluster_template is not given: a cluster is created from a template."
    elif module.magnum.template(params["cluster_template"]) is None:
        names = ", ".join(sorted(str(template["name"]) for template in module.magnum.templates()))
        yield f"cluster_template: Magnum shows no template {params['cluster_template']}; it has {names or 'none'}."
    for option in ("flavor", "master_flavor"):
        if params[option] and module.nova.flavor(params[option]) is None:
            names = ", ".join(sorted(str(flavor["name"]) for flavor in module.nova.flavors))
            yield f"{option}: Nova has no flavor {params[option]} for this project; it has {names or 'none'}."
    if params["keypair"] and params["keypair"] not in module.nova.keypairs:
        yield (
            f"keypair: the user has no key pair {params['keypair']}; there are {', '.join(module.nova.keypairs) or 'none'}."
        )
    most, there = module.magnum.quota(), len(module.magnum.clusters())
    if most is not None and 0 <= most <= there:
        yield (
            f"The project's quota is {most} clusters, and it has {there}. Delete one, or ask the cloud's operator for a larger quota."
        )


def _absent(module: MagnumModule, live: dict[str, t.Any] | None) -> dict[str, t.Any]:
    before = clusters.cluster_result(live) if live else {}
    if live and not module.check_mode:
        if live["status"] != "DELETE_IN_PROGRESS":
            module.magnum.delete_cluster(live["uuid"])
        if module.params["wait"]:
            _gone(module, live["uuid"])
    name = module.params["name"]
    return {"changed": bool(live), "magnum_cluster": {}, "diff": diff_of(before, {}, f"cluster {name}")}


def _same(module: MagnumModule, option: str, one: str, other: str) -> bool:
    look = module.magnum.template if option == "cluster_template" else module.nova.flavor
    key = "uuid" if option == "cluster_template" else "id"
    found = [look(one), look(other)]
    return all(found) and len({thing[key] for thing in found if thing}) == 1


def _settled(module: MagnumModule, cluster_id: str) -> dict[str, t.Any]:
    """The cluster when nothing is under way in it; it may be no row yet for a moment after it was asked for."""
    live = _wait(
        module,
        lambda: module.magnum.find_cluster(cluster_id),
        lambda now: now is not None and not str(now["status"]).endswith("_IN_PROGRESS"),
        lambda now: _story(module, now),
    )
    # A group of its own that failed to change is the group's matter.
    if str(live["status"]) in ("CREATE_FAILED", "DELETE_FAILED"):
        raise PartialFailure(
            _story(module, live), {"magnum_cluster": {**clusters.cluster_result(live), **clusters.state(live)}}
        )
    return t.cast("dict[str, t.Any]", live)


def _gone(module: MagnumModule, cluster_id: str) -> None:
    def over(now: dict[str, t.Any] | None) -> bool:
        if now is not None and now["status"] == "DELETE_FAILED":
            raise PartialFailure(_story(module, now))
        return now is None

    _wait(module, lambda: module.magnum.find_cluster(cluster_id), over, lambda now: _story(module, now))


def _wait(
    module: MagnumModule, read: t.Callable[[], t.Any], done: t.Callable[[t.Any], bool], story: t.Callable[[t.Any], str]
) -> t.Any:
    return wait_until(
        read,
        done,
        timeout=module.params["timeout"],
        interval=module.params["wait_sleep"],
        first_interval=_FIRST_LOOK,
        describe=story,
        progress_text=story,
        progress=module.progress,
    )


def _story(module: MagnumModule, cluster: dict[str, t.Any] | None) -> str:
    name = module.params["name"]
    if cluster is None:
        return f"Cluster {name} was asked for and does not appear."
    faults = [f"{what}: {text}" for what, text in sorted((cluster.get("faults") or {}).items())]
    words = [cluster.get("status_reason") or "", *faults]
    return " ".join([f"Cluster {name} is {cluster['status']}.", *(f"{text}." for text in words if text)])


def main() -> None:
    """Run the module."""
    MagnumModule(_SPEC, wait=True).run(work)


if __name__ == "__main__":
    main()
