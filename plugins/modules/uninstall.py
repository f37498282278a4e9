#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Removes everything that this collection has created on a cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: uninstall
short_description: Remove everything that this collection has created on a cluster, and nothing else
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Three stages of an uninstallation, two before and one after Helm uninstalls its releases (M(kubernetes.core.helm),
    C(release_state=absent)). The role P(accel.gpu.uninstall#role) calls all of them.
  - "O(stage=new_nodes) removes the CronJob of the role P(accel.gpu.new_nodes#role) with its permissions and inventory, and its namespace if
    this collection has created it and it is empty."
  - "O(stage=before_helm) runs while the operator still works. It removes everything of this collection from nodes, after the reset of MIG
    layouts that it has set; it deletes a ClusterPolicy of a managed Helm release and waits until its DaemonSets and pods are gone; it removes
    its fields from any other ClusterPolicy; then it deletes its ConfigMaps, which nothing names or mounts any more."
  - "O(stage=after_helm) removes labels, annotations and taints that a managed operator or NFD has left on nodes; the CRDs of
    managed Helm releases, unless they have foreign objects or another manager; the records of this collection; the namespaces that it has
    created, unless they contain foreign objects; and finally the Lease by which runs exclude each other."
  - "What this collection has created is recorded on the cluster: labels, annotations and taints of nodes in annotations that begin with
    C(accel.gpu/); entries of the ClusterPolicy's C(spec.daemonsets.tolerations) in its annotation C(accel.gpu/tolerations); fields and entries
    of ConfigMaps in the API server's C(managedFields) (field manager C(accel.gpu)); Helm releases in the Lease
    C(accel-gpu-helm-<release>); and namespaces in the annotation C(accel.gpu/created)."
  - A foreign operator or NFD is kept. RV(uninstall.kept) contains everything that is kept, with the reason.
  - The module can be killed and run again at any time. A second run finds and changes nothing. O(gpu_cluster) is sufficient; pools are ignored.
  - A MIG manager in state V(failed) does not retry. It is restarted once in each run; if it fails again, the run fails with the pods that
    hold GPUs of that node. Until its MIG layout is reset, a node keeps the labels and taints of its pool.
notes:
  - The chart's clean-up hooks are not used. They are Jobs, which need an image and more permissions, and cannot be run again after a failure.
  - In a kept policy, C(mig.strategy) and C(migManager.config.name) are restored from the annotation C(accel.gpu/former).
  - The removal of entries from C(spec.daemonsets.tolerations) of a kept ClusterPolicy rolls the driver on every GPU node. If drivers run, it is
    held back, together with the record of the entries, unless O(allow_driver_rollout) is set.
  - In check mode O(stage=after_helm) assumes that O(stage=before_helm) and Helm have removed their objects. NVIDIA's agents remove some of
    their labels in between, so that the real run may change fewer of them.
options:
  stage:
    description:
      - Used by the roles of this collection; not a stable interface.
      - V(new_nodes) first, V(before_helm) before the Helm releases are uninstalled, V(after_helm) afterwards.
    type: str
    choices: [new_nodes, before_helm, after_helm]
    required: true
  allow_driver_rollout:
    description:
      - Whether to remove our tolerations from a kept ClusterPolicy, although this rolls the driver.
    type: bool
    default: false
  reset_mig:
    description:
      - Whether to reset MIG layouts that this collection has set. Needs O(wait); otherwise the GPUs stay partitioned.
    type: bool
    default: true
  pending_timeout:
    description:
      - Seconds after which an unfinished operation of another machine's helm counts as abandoned.
    type: int
    default: 600
extends_documentation_fragment:
  - accel.gpu.kube
  - accel.gpu.wait
  - accel.gpu.lease
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
seealso:
  - module: accel.gpu.helm_release
  - module: kubernetes.core.helm
"""

EXAMPLES = r"""
- name: Clean up nodes, ClusterPolicy and ConfigMaps
  accel.gpu.uninstall: {gpu_cluster: "{{ gpu_cluster }}", stage: before_helm}
  register: before_helm

- name: Uninstall the Helm releases that this collection has installed, the operator before NFD
  kubernetes.core.helm:
    release_name: "{{ item.name }}"
    release_namespace: "{{ item.namespace }}"
    release_state: absent
    disable_hook: true
    wait: true
  environment: "{{ before_helm.uninstall.helm_environment }}"
  loop: "{{ before_helm.uninstall.releases | selectattr('uninstall') }}"

- name: Remove residue, CRDs and namespaces
  accel.gpu.uninstall: {gpu_cluster: "{{ gpu_cluster }}", stage: after_helm}
"""

RETURN = r"""
uninstall:
  description: What was removed, or in check mode would be; a failure contains what was removed until then.
  returned: always
  type: dict
  contains:
    releases:
      description: The Helm releases of the operator and of NFD, in the order in which they are to be uninstalled.
      type: list
      elements: dict
      returned: success
      sample: [{name: gpu-operator, namespace: gpu-operator, status: deployed, managed: true, uninstall: true}]
      contains:
        name: {description: Its name., type: str, returned: success, sample: gpu-operator}
        namespace: {description: Its namespace., type: str, returned: success, sample: gpu-operator}
        status: {description: "Helm's status of it, V(absent) if there is none.", type: str, returned: success, sample: deployed}
        managed: {description: Whether this collection has installed it., type: bool, returned: success, sample: true}
        uninstall: {description: Whether it is to be uninstalled., type: bool, returned: success, sample: true}
    helm_environment:
      description: Environment variables (none is secret) with which M(kubernetes.core.helm) reaches the verified cluster.
      type: dict
      returned: success
      sample: {KUBECONFIG: /etc/kube/prod}
    removed:
      description: Objects that were deleted, or from which our part was removed; nodes are counted separately.
      type: list
      elements: str
      returned: always
      sample: ["ClusterPolicy cluster-policy: deleted", "ConfigMap gpu-operator/accel-gpu-device-plugin: deleted"]
    nodes_changed:
      description: Number of nodes that were changed.
      type: int
      returned: always
      sample: 20
    names_changed:
      description: Names of up to 100 of them.
      type: list
      elements: str
      returned: always
      sample: [gpu-1, gpu-2]
    kept:
      description: What is kept, and why.
      type: list
      elements: str
      returned: always
      sample: ["Namespace gpu-operator: it contains ConfigMap dashboards"]
    held_back:
      description: What was held back because it would roll the driver.
      type: list
      elements: str
      returned: always
      sample: [spec.daemonsets.tolerations]
    unchecked:
      description: Why the server did not check the changes in check mode.
      type: str
      returned: in check mode, without the right to a dry run
      sample: "not checked by the server: no right to a dry run"
code:
  description:
    - Reason of the failure. V(timeout) - pods or objects are not deleted in time; V(partial) - nodes could not be changed, or a MIG
      layout could not be reset.
    - V(invalid) options or configuration, V(wrong_cluster), V(connection), V(unreachable) API server, or the HTTP status of the API server's
      error. V(lease_held) by another run, V(lease_lost) during the run.
  returned: failure
  type: raw
  sample: timeout
"""

import contextlib
import typing as t

from ..module_utils.catalog.names import LEASE_NAME
from ..module_utils.catalog.releases import NFD_KINDS, OPERATOR_RELEASES
from ..module_utils.common.results import diff_of
from ..module_utils.common.wait import WaitOptions
from ..module_utils.gpu_operator.daemonsets import count_driver_nodes
from ..module_utils.helm.release_records import marker_path
from ..module_utils.helm.release_removal import ReleaseRemoval
from ..module_utils.kube.helm_environment import helm_environment
from ..module_utils.kube.module import GpuModule
from ..module_utils.pools.derive import derive
from ..module_utils.pools.plan import Plan
from ..module_utils.sharing.operands import restart_mig_manager
from ..module_utils.uninstall import after_helm, before_helm, leases, new_nodes
from ..module_utils.uninstall.crds import Definition
from ..module_utils.uninstall.gpu_pods import driver_warning
from ..module_utils.uninstall.result import UninstallResult

OPTIONS: dict[str, dict[str, t.Any]] = {
    "stage": {"type": "str", "choices": ["new_nodes", "before_helm", "after_helm"], "required": True},
    "allow_driver_rollout": {"type": "bool", "default": False},
    "reset_mig": {"type": "bool", "default": True},
    "pending_timeout": {"type": "int", "default": 600},
}
_OPERATOR_KINDS = tuple(dict.fromkeys(kind for release in OPERATOR_RELEASES for kind in release.kinds))


def work(module: GpuModule) -> dict[str, t.Any]:
    """Read what this collection has created, and preview or remove it."""
    if module.params["gpu_cluster"] is None:
        module.fail_json(msg="missing required arguments: gpu_cluster")
    stage = module.params["stage"]
    if stage == "new_nodes":
        return _output(_remove_new_nodes(module), [])
    plan = derive(module.params["gpu_cluster"], {}, [])
    releases = [
        ReleaseRemoval(
            module.client,
            release.name,
            release.namespace,
            module.run_command,
            WaitOptions(
                module.params["wait_timeout"] if module.params["wait"] else 0,
                module.params["wait_sleep"],
                module.progress,
            ),
            float(module.params["pending_timeout"]),
        )
        for release in (plan.operator, plan.nfd)
    ]
    environment = {}
    if stage == "before_helm":
        if any(release.managed for release in releases):
            environment = helm_environment(module.client)
        result = _before_helm(module, plan, releases)
    else:
        result = _after_helm(module, plan, releases)
    for release in releases:
        if release.exists and not release.managed:
            result.add_kept(f"Helm release {release.namespace}/{release.name}", "this collection did not install it")
    return _output(result, releases, helm_environment=environment)


def _output(result: UninstallResult, releases: list[ReleaseRemoval], **more: t.Any) -> dict[str, t.Any]:
    return {
        "changed": result.changed,
        "uninstall": {"releases": [release.as_dict() for release in releases], **more, **result.as_dict()},
        "diff": diff_of(*result.diff(), "uninstall"),
    }


def _remove_new_nodes(module: GpuModule) -> UninstallResult:
    result, found = UninstallResult(), new_nodes.read(module.client)
    if module.check_mode or not found.any:
        new_nodes.preview(module.client, found, result)
    else:
        with _partial(result), module.lease() as lease:
            new_nodes.remove(module.client, new_nodes.read(module.client), lease, _waiting(module), result)
    return result


def _before_helm(module: GpuModule, plan: Plan, releases: list[ReleaseRemoval]) -> UninstallResult:
    params = module.params
    operator = releases[0]
    settings = before_helm.BeforeHelmSettings(
        namespace=plan.operator.namespace,
        is_managed=lambda policy: operator.managed and operator.contains(policy),
        count_driver_nodes=count_driver_nodes,
        restart_mig_managers=lambda namespace, nodes, lease: restart_mig_manager(
            module.client, namespace, nodes, lease, module.progress
        ),
        allow_driver_rollout=params["allow_driver_rollout"],
        reset_mig=params["reset_mig"] and params["wait"],
        progress=module.progress,
        waiting=_waiting(module),
    )
    stage = before_helm.BeforeHelm(module.client, settings)
    found = stage.read()
    to_supersede = [release for release in releases if release.managed and not release.is_superseded]
    if any(settings.is_managed(policy) for policy in found.policies):
        warning = driver_warning(module.client, plan.operator.namespace, found.nodes)
        if warning:
            module.warn(warning)
    if module.check_mode or not (stage.has_changes(found) or to_supersede):
        stage.preview(found)
    else:
        with _partial(stage.result), module.lease() as lease:
            # Another run may have changed the cluster while this one waited for its lease.
            found = stage.read()
            for release in to_supersede:
                release.await_other_helm()
                lease.check()
                release.supersede(module.run_id)
            stage.remove(found, lease)
    for release in to_supersede:
        label = f"Helm release {release.namespace}/{release.name}"
        stage.result.add_removed(label, release.initial_status, action="to be uninstalled")
    return stage.result


def _after_helm(module: GpuModule, plan: Plan, releases: list[ReleaseRemoval]) -> UninstallResult:
    operator, nfd = (
        _uninstalled(release, kinds) for release, kinds in zip(releases, (_OPERATOR_KINDS, NFD_KINDS), strict=True)
    )
    settings = after_helm.AfterHelmSettings(
        operator=operator,
        nfd=nfd,
        nfd_instance=str((plan.nfd.values.get("master") or {}).get("instance") or ""),
        check=module.check_mode,
        progress=module.progress,
        waiting=_waiting(module),
    )
    stage = after_helm.AfterHelm(module.client, settings)
    found = stage.read()
    lease_path = leases.lease_path(LEASE_NAME, module.params["lease_namespace"])
    paths = list(dict.fromkeys((lease_path, leases.RECORD_PATH)))
    remaining = [path for path in paths if module.client.get(path) is not None]
    if not stage.has_changes(found) and not remaining:
        stage.preview(found)
    elif module.check_mode:
        stage.preview(found)
        for path in dict.fromkeys((lease_path, *remaining)):
            stage.result.add_removed(leases.lease_label(path))
    else:
        with _partial(stage.result):
            with module.lease() as lease:
                stage.remove(stage.read(), lease)
            for path in paths:
                leases.delete_lease(module.client, path, stage.result)
    return stage.result


def _uninstalled(release: ReleaseRemoval, kinds: t.Iterable[tuple[str, str]]) -> after_helm.UninstalledRelease:
    return after_helm.UninstalledRelease(
        name=release.name,
        namespace=release.namespace,
        managed=release.managed,
        exists=release.exists,
        marker=marker_path(release.name, release.namespace),
        selector=f"app.kubernetes.io/instance={release.name}",
        kinds=tuple(Definition(*kind) for kind in kinds),
        contains=release.contains,
    )


def _waiting(module: GpuModule) -> WaitOptions | None:
    params = module.params
    return WaitOptions(params["wait_timeout"], params["wait_sleep"], module.progress) if params["wait"] else None


@contextlib.contextmanager
def _partial(result: UninstallResult) -> t.Iterator[None]:
    """Add the result so far to an error."""
    try:
        yield
    except Exception as error:
        partial = {"uninstall": result.as_dict(), "changed": result.changed}
        error.partial = {**partial, **getattr(error, "partial", {})}  # type: ignore[attr-defined]
        raise


def main() -> None:
    """Run the module."""
    module = GpuModule(OPTIONS, wait=True, lease=True, records_name=False)
    module.run(work)


if __name__ == "__main__":
    main()
