#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Exports the configuration that describes the actual state of a live cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_pools_export
short_description: Export a live cluster as variables
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Reads the nodes, the ClusterPolicy, the configurations of the device plugin and the MIG manager, and the Helm releases of the operator and NFD. Converts
    them to C(gpu_cluster) and C(gpu_pools). The cluster itself is not changed.
  - A node with the label C(accel.gpu/pool) belongs to the pool that the label names. The other nodes are grouped by model, sharing and taints.
  - If this collection has configured the cluster and every GPU node has a pool, a plan with these variables shows no change. Otherwise, the plan shows the
    labels that assign the other nodes to the exported pools. These labels alone do not change the allocatable resources of a node. If a run would change the
    allocatable resources of nodes or evict their GPU pods, a remark lists these nodes.
  - If the nodes of a pool have different sharing configurations, for example because a rolling update has not finished, the pool is exported without
    C(sharing), and a remark lists the sharing configuration of each node. M(accel.gpu.gpu_sharing) fails instead of changing the nodes of such a pool.
  - The module fails if a run with the exported variables would release nodes from their pools.
  - Helm releases that this collection did not install appear only in remarks, because a run upgrades every Helm release in C(gpu_cluster) to the declared
    version.
  - Text of the cluster is data. In the YAML, a string or key that contains a Jinja template has the tag C(!unsafe), so that Ansible does not evaluate it.
  - Values that a plan would reject are omitted and listed in remarks with the reason. The rest of the cluster is exported.
  - Settings that C(gpu_pools) cannot express are omitted and listed in remarks. The module does not guess any settings. It takes the chart sources and the
    connection settings from O(gpu_cluster), because the cluster does not store them.
  - Helm values may contain secrets. The module writes Helm values only to the file at O(path), never to the result or the diff. Values that look like secrets
    are not written at all.
extends_documentation_fragment:
  - accel.gpu.kube
  - accel.gpu.attributes
  - accel.gpu.attributes.progress
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details: The file contains Helm values, which a diff would show.
  idempotent:
    support: full
options:
  path:
    description:
      - Path to the file to which the configuration is written as YAML, with the remarks as comments. By default, nothing is written.
      - The file's mode is 0600. The module fails if the path is a symbolic link.
    type: path
seealso:
  - module: accel.gpu.gpu_info
  - module: accel.gpu.gpu_sharing
"""

EXAMPLES = r"""
- name: Write the configuration of a cluster that was tuned manually
  accel.gpu.gpu_pools_export:
    gpu_cluster: {name: prod, kubeconfig: ~/.kube/prod}
    path: "{{ inventory_dir }}/host_vars/prod.yml"
"""

RETURN = r"""
gpu_cluster:
  description: The exported C(gpu_cluster), without Helm values.
  type: dict
  returned: success
  sample: {name: prod, uid: 5b0c1d9e-6f0a-4e0b-9a51-0c5f6a6f7a10, operator: {version: v25.10.1}}
gpu_pools:
  description: The exported C(gpu_pools).
  type: list
  elements: dict
  returned: success
  sample: [{name: train, match: {model: H200}, sharing: {mode: none}}]
remarks:
  description: Remarks about the export, one sentence each. For example, a remark names a setting that was omitted and gives the reason.
  type: list
  elements: str
  returned: success
  sample: ["No Helm release of NFD was found: gpu_cluster.nfd is as declared."]
with_values:
  description: Components whose Helm releases have user-supplied values. Only the file at O(path) contains these values.
  type: list
  elements: str
  returned: success
  sample: [operator]
changing_nodes:
  description: The number of nodes that a run with the exported variables would change.
  type: int
  returned: success
  sample: 0
yaml:
  description: The configuration as YAML, without Helm values.
  type: str
  returned: success
  sample: "gpu_cluster:\n  name: prod\n"
path:
  description: Path to the file that contains the configuration.
  type: str
  returned: when O(path) is set
  sample: /home/me/host_vars/prod.yml
code:
  description: The reason for the failure. V(invalid) - errors in the options. V(wrong_cluster) - the connection points to a different cluster.
    V(connection) - no usable connection settings. V(release_refused) - a run with the exported variables would release nodes.
    V(unreachable) - the API server does not respond. Otherwise, the HTTP status of the API server's error.
  returned: failure
  type: raw
  sample: wrong_cluster
details:
  description:
    - Details of the failure. C(problems) lists all errors in the options or variables. C(reason), C(method) and C(path) describe the failed request.
  returned: failure
  type: dict
  sample: {reason: Forbidden, method: GET, path: /api/v1/nodes}
"""

import dataclasses
import typing as t

from ..module_utils.core.files import file_holds, write_private_file
from ..module_utils.core.module import ArgumentSpec
from ..module_utils.core.values import Object
from ..module_utils.gpu_operator.cluster_policy import (
    active_policy,
    mig_configmap,
    plugin_configmap,
    uses_driver_objects,
)
from ..module_utils.gpu_operator.detect import adapt_plan, is_managed_release
from ..module_utils.helm.release import ReleaseRecords
from ..module_utils.kube.errors import ApiError
from ..module_utils.kube.lease import read_recorded_name, read_uid
from ..module_utils.kube.module import GpuModule
from ..module_utils.kube.paths import CLUSTER_POLICIES, DAEMONSETS, NODES, NVIDIA_DRIVERS, object_path
from ..module_utils.nodes.node import parse_node
from ..module_utils.pools.derive import derive
from ..module_utils.report.export import (
    COMPONENTS,
    InstalledRelease,
    effect_remarks,
    export_cluster,
    installed_release,
    render_variables,
    require_no_release,
)
from ..module_utils.report.export_pools import LiveConfig, add_drivers, export_pools, leave_out_rejected
from ..module_utils.schema.variables import validate
from ..module_utils.sharing.operation import overview

_NFD = "app.kubernetes.io/name=node-feature-discovery"


def work(module: GpuModule) -> dict[str, t.Any]:
    """Read the cluster, convert it, and count the nodes that a run with the result would change."""
    client = module.client
    nodes = [parse_node(raw) for raw in client.list(NODES)]
    policy = t.cast("Object | None", active_policy(client.list_known(CLUSTER_POLICIES)))
    release = installed_release(policy)
    namespace = ((policy or {}).get("status") or {}).get("namespace") or (release.namespace if release else "")
    live = LiveConfig(
        policy,
        _configmap(module, plugin_configmap(policy), namespace),
        _configmap(module, mig_configmap(policy), namespace) if any(node.mig_config for node in nodes) else None,
    )
    exported = export_pools(nodes, live.node_sharing, live.tolerations)
    if policy is not None and uses_driver_objects(policy.get("spec") or {}):
        add_drivers(exported, client.list_known(NVIDIA_DRIVERS))
    declared = _declared_cluster(module)
    installed = {"operator": release, "nfd": _nfd_release(module)}
    managed = {name: _managed_release(module, name, item, declared) for name, item in installed.items()}
    # The variables of a pool may depend on those of the cluster, such as the version of the operator, and the Helm values depend on the pools.
    leave_out_rejected(export_cluster(declared, managed, [])[0], exported)
    document, cluster_remarks = export_cluster(declared, managed, exported.pools)
    remarks = [*exported.remarks, *_release_remarks(policy, installed, managed)]
    plan = adapt_plan(client, derive(document, {}, exported.pools), policy)
    changes = overview(module.client, plan, nodes).changes
    require_no_release(changes.releases.nodes)
    transitions = {change.node: change.transition for change in changes.node_changes if change.edit}
    postponed = (*changes.limited, *changes.not_ready)
    remarks += [*cluster_remarks, *effect_remarks(nodes, transitions, postponed, changes.releases.unshared)]
    shown = {key: _without_values(value) for key, value in document.items()}
    result: dict[str, t.Any] = {
        "changed": False,
        "gpu_cluster": shown,
        "gpu_pools": exported.pools,
        "remarks": remarks,
        "with_values": [part for part in COMPONENTS if "values" in (document.get(part) or {})],
        "changing_nodes": len(transitions),
        "yaml": render_variables(shown, exported.pools, remarks),
    }
    path = module.params["path"]
    if path:
        text = render_variables(document, exported.pools, remarks)
        result.update(path=path, changed=not file_holds(path, text))
        if result["changed"] and not module.check_mode:
            write_private_file(path, text)
    return result


def _declared_cluster(module: GpuModule) -> Object:
    """Return the option gpu_cluster with the cluster's UID, but without a kubeconfig that is given as a dictionary."""
    client, declared = module.client, module.params["gpu_cluster"] or {}
    candidates = (read_recorded_name(client), client.connection.cluster_name, client.connection.context_name)
    name = declared.get("name") or next(
        (each for each in candidates if each and not validate({"name": each}, {}, [])), "cluster"
    )
    uid = declared.get("uid") or read_uid(client)
    left_out = {
        "name",
        "uid",
        *(["kubeconfig"] if isinstance(declared.get("kubeconfig"), dict) else []),
    }
    rest = {key: value for key, value in declared.items() if key not in left_out}
    return {"name": name, **({"uid": uid} if uid else {}), **rest}


def _configmap(module: GpuModule, name: str, namespace: str) -> Object | None:
    return module.client.get(object_path("v1", "ConfigMap", name, namespace)) if name and namespace else None


def _nfd_release(module: GpuModule) -> InstalledRelease | None:
    workers = module.client.list(DAEMONSETS, label_selector=_NFD)
    return next((release for worker in workers if (release := installed_release(worker))), None)


def _managed_release(
    module: GpuModule, component: str, release: InstalledRelease | None, declared: Object
) -> InstalledRelease | None:
    """Return the release with its readable values; None if this collection did not install it, because the playbook site upgrades exported releases."""
    if release is None or not is_managed_release(
        module.client, (release.name, release.namespace), getattr(derive(declared, {}, []), component)
    ):
        return None
    records = ReleaseRecords(module.client, release.name, release.namespace)
    try:
        content = records.content(records.latest())
    except ApiError as error:
        if not error.forbidden:
            raise
        return release
    return dataclasses.replace(release, values=content.config) if content else release


def _release_remarks(
    policy: Object | None,
    installed: t.Mapping[str, InstalledRelease | None],
    managed: t.Mapping[str, InstalledRelease | None],
) -> t.Iterator[str]:
    if policy is None:
        yield "The cluster has no ClusterPolicy: gpu_cluster.operator is as declared."
    elif installed["operator"] is None:
        yield "The ClusterPolicy belongs to no Helm release: gpu_cluster.operator is as declared."
    if installed["nfd"] is None:
        yield "No Helm release of NFD was found: gpu_cluster.nfd is as declared."
    for component, release in installed.items():
        if release is not None and managed[component] is None:
            yield (
                f"The Helm release {release.namespace}/{release.name} was not installed by this collection: gpu_cluster.{component} is as "
                "declared, and the installation is used as it is."
            )


def _without_values(part: t.Any) -> t.Any:
    return {key: value for key, value in part.items() if key != "values"} if isinstance(part, dict) else part


def main() -> None:
    """Run the module."""
    spec: ArgumentSpec = {"path": {"type": "path"}}
    GpuModule(spec).run(work)


if __name__ == "__main__":
    main()
