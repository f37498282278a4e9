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
  - Runs one of the three stages of an uninstallation. Two stages run before M(kubernetes.core.helm) uninstalls the Helm releases with C(release_state=absent),
    and one stage runs afterwards. The role P(accel.gpu.uninstall#role) calls all stages.
  - "O(stage=new_nodes) removes the CronJob that the role P(accel.gpu.new_nodes#role) has created, with its RBAC objects and inventory. It also removes the
    namespace of the CronJob if this collection has created the namespace and the namespace is empty."
  - "O(stage=before_helm) runs while the operator is still running. It resets the MIG layouts that this collection has set. Then, it removes everything else
    that the collection has set on nodes. It deletes the ClusterPolicy of a managed Helm release and waits until the operator's DaemonSets and pods are deleted.
    From any other ClusterPolicy, it removes only the fields that this collection has set. Finally, it deletes the collection's ConfigMaps, which are no longer
    referenced or mounted."
  - "O(stage=after_helm) removes labels, annotations and taints that a managed operator or NFD has left on nodes. It also removes the collection's records, the
    CRDs of managed Helm releases, and the namespaces that the collection has created. It keeps CRDs that another tool manages or for which foreign objects
    exist. It also keeps namespaces that contain foreign objects. Finally, it removes the Lease that prevents simultaneous runs."
  - "The cluster itself records everything that this collection has created. Labels, annotations and taints of nodes are recorded in annotations that begin with
    C(accel.gpu/). The labels C(nvidia.com/device-plugin.config) and C(nvidia.com/mig.config) that a pool has overwritten are recorded with their former
    values in C(accel.gpu/former-labels) and are restored; MIG devices that existed before with the same layout are kept. Entries in
    C(spec.daemonsets.tolerations) of the ClusterPolicy are recorded in the ClusterPolicy's annotation C(accel.gpu/tolerations).
    Fields and ConfigMap entries are recorded in C(managedFields), with the field manager C(accel.gpu). Helm releases are recorded in the Lease
    C(accel-gpu-helm-<release>). Namespaces, Subscriptions and NodeFeatureDiscoveries are recorded in their annotation C(accel.gpu/created)."
  - On OpenShift, use M(accel.gpu.olm_subscription) to remove the Subscriptions in RV(uninstall.subscriptions) before O(stage=after_helm). If the user is not
    allowed to list Subscriptions or NodeFeatureDiscoveries, the module fails before it deletes an operator.
  - Foreign installations of the operator and of NFD are kept. RV(uninstall.kept) lists the objects that are kept, with the reason for each.
  - The module can be killed and run again at any time. After a complete run, a second run changes nothing. The module requires only O(gpu_cluster) and ignores
    pools.
  - A MIG manager in state V(failed) does not retry. The module restarts it once in each run. If the MIG manager fails again, the run fails and lists the pods
    that hold GPUs of the MIG manager's node. A node keeps the labels and taints of its pool until its MIG layout is reset.
notes:
  - The module does not use the chart's cleanup hooks. These are Jobs that require an image and more permissions, and that cannot run again after a failure.
  - In a ClusterPolicy that is kept, C(mig.strategy) and C(migManager.config.name) are restored from the annotation C(accel.gpu/former).
  - If a ClusterPolicy is kept, removing entries from its C(spec.daemonsets.tolerations) restarts the driver on every GPU node. If drivers are running, the
    entries and the annotation that records them are kept unless O(allow_driver_rollout) is set. With operator v26.7.0 and later, the change is not held back if
    the driver pods can restart in place without evicting GPU pods.
  - In check mode, O(stage=after_helm) assumes that the earlier stages and Helm have removed their objects. NVIDIA components remove some of their labels
    between the stages, so the real run may change fewer labels.
options:
  stage:
    description:
      - Used by this collection's roles. This option is not a stable interface.
      - Run V(new_nodes) first, then V(before_helm). Run V(after_helm) after the Helm releases have been uninstalled.
    type: str
    choices: [new_nodes, before_helm, after_helm]
    required: true
  allow_driver_rollout:
    description:
      - Whether to remove the collection's tolerations from a ClusterPolicy that is kept, even though this restarts the driver.
    type: bool
    default: false
  reset_mig:
    description:
      - Whether to reset MIG layouts that this collection has set. The run fails before it changes a node if pods that have requested GPUs run on nodes whose
        layout must be reset. V(true) requires O(wait=true). With V(false), the GPUs remain partitioned.
    type: bool
    default: true
  pending_timeout:
    description:
      - Seconds after which an unfinished Helm operation from another machine counts as abandoned.
    type: int
    default: 600
extends_documentation_fragment:
  - accel.gpu.kube
  - accel.gpu.wait
  - accel.gpu.lease
  - accel.gpu.confirm
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
  - accel.gpu.attributes.progress
seealso:
  - module: accel.gpu.helm_release
  - module: accel.gpu.olm_subscription
  - module: kubernetes.core.helm
"""

EXAMPLES = r"""
- name: Clean up nodes, ClusterPolicy and ConfigMaps
  accel.gpu.uninstall: {gpu_cluster: "{{ gpu_cluster }}", stage: before_helm, confirm: [prod]}
  register: before_helm

- name: Uninstall the operator and then NFD, if this collection has installed their Helm releases
  kubernetes.core.helm:
    release_name: "{{ item.name }}"
    release_namespace: "{{ item.namespace }}"
    release_state: absent
    disable_hook: true
    wait: true
  environment: "{{ before_helm.uninstall.helm_environment }}"
  loop: "{{ before_helm.uninstall.releases | selectattr('uninstall') }}"

- name: Remove the operators that this collection has installed through OLM on OpenShift
  accel.gpu.olm_subscription:
    gpu_cluster: "{{ gpu_cluster }}"
    name: "{{ item.name }}"
    namespace: "{{ item.namespace }}"
    package: "{{ item.package }}"
    state: absent
    confirm: [prod]
  loop: "{{ before_helm.uninstall.subscriptions }}"

- name: Remove residue, CRDs and namespaces
  accel.gpu.uninstall: {gpu_cluster: "{{ gpu_cluster }}", stage: after_helm, confirm: [prod]}
"""

RETURN = r"""
uninstall:
  description: The objects that were removed or, in check mode, would be removed. After a failure, the result contains the objects that were removed before the
    failure.
  returned: always
  type: dict
  contains:
    releases:
      description: The Helm releases of the operator and of NFD, in the order in which they are uninstalled.
      type: list
      elements: dict
      returned: success
      contains:
        name: {description: Name of the Helm release., type: str, returned: success, sample: gpu-operator}
        namespace: {description: Namespace of the Helm release., type: str, returned: success, sample: gpu-operator}
        status: {description: "Helm's status of the release; V(absent) if there is no release.", type: str, returned: success, sample: deployed}
        managed: {description: Whether this collection has installed the Helm release., type: bool, returned: success, sample: true}
        uninstall: {description: Whether the Helm release must be uninstalled., type: bool, returned: success, sample: true}
    subscriptions:
      description: The OLM Subscriptions that this collection created, in the order in which M(accel.gpu.olm_subscription) removes them.
      type: list
      elements: dict
      returned: success
      contains:
        name: {description: Name of the Subscription., type: str, returned: always, sample: gpu-operator-certified}
        namespace: {description: Namespace of the Subscription., type: str, returned: always, sample: nvidia-gpu-operator}
        package: {description: Name of the package., type: str, returned: always, sample: gpu-operator-certified}
    helm_environment:
      description: Environment variables with which M(kubernetes.core.helm) connects to the verified cluster. They contain no secrets.
      type: dict
      returned: success
      sample: {KUBECONFIG: /etc/kube/prod}
    removed:
      description: Objects that were deleted, objects from which the collection's fields were removed, and nodes whose MIG devices were removed.
        C(nodes_changed) is the number of all changed nodes.
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
      description: Names of up to 100 changed nodes.
      type: list
      elements: str
      returned: always
      sample: [gpu-1, gpu-2]
    kept:
      description: Objects that are kept, each with the reason.
      type: list
      elements: str
      returned: always
      sample: ["Namespace gpu-operator: it contains ConfigMap dashboards"]
    held_back:
      description: Changes that were held back because they would restart the driver.
      type: list
      elements: str
      returned: always
      sample: [spec.daemonsets.tolerations]
    unchecked:
      description: The reason why the API server did not validate the changes in check mode.
      type: str
      returned: in check mode, if the user is not allowed to send a dry run
      sample: "not checked by the server: this user is not allowed to send a dry run"
code:
  description:
    - The reason for the failure. V(timeout) - pods or objects were not deleted in time. V(partial) - nodes could not be changed, or a MIG layout could not be
      reset.
    - V(not_confirmed) - see O(confirm).
    - V(invalid) - errors in the options or the configuration. V(wrong_cluster) - the connection points to a different cluster than O(gpu_cluster) declares.
      V(connection) - no usable connection settings. V(unreachable) - the API server does not respond. V(lease_held) - another run holds the Lease.
      V(lease_lost) - this run lost it. Otherwise, the HTTP status of the API server's error.
  returned: failure
  type: raw
  sample: timeout
details:
  description:
    - Details of the failure. C(problems) lists all errors in the options or variables. C(reason), C(method) and C(path) describe the failed request.
  returned: failure
  type: dict
  sample: {reason: Forbidden, method: PATCH, path: /api/v1/nodes/gpu-1}
"""

import dataclasses
import typing as t

from ..module_utils.core.errors import InvalidOptions
from ..module_utils.core.messages import abbreviate, diff_of
from ..module_utils.core.module import CONFIRM
from ..module_utils.core.waits import WaitOptions
from ..module_utils.gpu_operator.detect import adapt_plan
from ..module_utils.gpu_operator.readiness import count_interrupted_nodes
from ..module_utils.helm.preparation import ReleaseRemoval, helm_environment
from ..module_utils.kube.module import GpuModule
from ..module_utils.pools.derive import derive
from ..module_utils.pools.plan import Plan, machine_namespace
from ..module_utils.sharing.verification import restart_mig_manager
from ..module_utils.uninstall.objects import Components, read_components
from ..module_utils.uninstall.removal import Stage
from ..module_utils.uninstall.stages import AfterHelm, BeforeHelm, NewNodes

OPTIONS: dict[str, dict[str, t.Any]] = {
    "stage": {"type": "str", "choices": ["new_nodes", "before_helm", "after_helm"], "required": True},
    "allow_driver_rollout": {"type": "bool", "default": False},
    "reset_mig": {"type": "bool", "default": True},
    "pending_timeout": {"type": "int", "default": 600},
    **CONFIRM,
}


def work(module: GpuModule) -> dict[str, t.Any]:
    """Read everything that this collection has created, and remove it or preview the removal."""
    if module.params["gpu_cluster"] is None:
        module.fail_json(msg="missing required arguments: gpu_cluster")
    components: Components | None = None
    environment: dict[str, str] = {}
    if module.params["stage"] == "new_nodes":
        stage: Stage = NewNodes(client=module.client, progress=module.progress, waiting=_waiting(module))
    else:
        plan, releases = _plan(module)
        by_olm = plan.operator.olm is not None or plan.nfd.olm is not None
        components = read_components(module.client, *releases, by_olm=by_olm)
        if module.params["stage"] == "before_helm":
            if any(component.by_helm for component in components):
                environment = helm_environment(module.client)
            stage = _before_helm(module, components)
        else:
            stage = _after_helm(module, plan, components)
    # Later tasks of the role uninstall these from the result of this stage.
    later = [
        *(
            f"Helm release {item.release.namespace}/{item.release.name}"
            for item in components or ()
            if item.is_installed
        ),
        *(
            f"Subscription {item['namespace']}/{item['name']}"
            for each in components or ()
            for item in each.subscriptions
        ),
    ]
    _run(module, stage, later, components)
    for label, reason in components.kept() if components else ():
        stage.result.add_kept(label, reason)
    return {
        "changed": stage.result.changed,
        "uninstall": {
            "releases": [component.as_dict() for component in components or ()],
            "subscriptions": [item for component in components or () for item in component.subscriptions],
            "helm_environment": environment,
            **stage.result.as_dict(),
        },
        "diff": diff_of(*stage.result.diff(), "uninstall"),
    }


def _plan(module: GpuModule) -> tuple[Plan, list[ReleaseRemoval]]:
    """Return the plan, and the Helm releases of the operator and NFD.

    For a component without a managed release, the plan is adapted to the platform.
    """
    plan = derive(module.params["gpu_cluster"], {}, [])
    releases = [_release(module, release.name, release.namespace) for release in (plan.operator, plan.nfd)]
    if plan.on_openshift is None or all(release.managed for release in releases):
        return plan, releases
    platform = adapt_plan(module.client, plan, None)
    by_helm = {
        name: getattr(plan, name)
        for name, release in zip(("operator", "nfd"), releases, strict=True)
        if release.managed
    }
    plan = dataclasses.replace(platform, **by_helm)
    return plan, [_release(module, release.name, release.namespace) for release in (plan.operator, plan.nfd)]


def _run(module: GpuModule, stage: Stage, later: t.Sequence[str], components: Components | None) -> None:
    """Run the stage, or preview it in check mode or if it has no changes. Errors contain the result up to that point."""
    stage.read()
    if later or stage.has_changes():
        _require_confirmation(module, [*later, *stage.planned()], components)
    for text in stage.warnings():
        module.warn(text)
    try:
        if module.check_mode or not stage.has_changes():
            stage.preview()
            return
        with module.lease() as lease:
            # Another run may have changed the cluster while this run waited for the lease.
            stage.read()
            stage.remove(lease)
        stage.finish()
    except Exception as error:
        partial = {"uninstall": stage.result.as_dict(), "changed": stage.result.changed}
        error.partial = {**partial, **getattr(error, "partial", {})}  # type: ignore[attr-defined]
        raise


def _require_confirmation(module: GpuModule, planned: t.Sequence[str], components: Components | None) -> None:
    consequence = consequence_of(module.name_to_confirm(), components)
    module.require_confirmation(consequence, f"This step removes: {abbreviate(list(dict.fromkeys(planned)))}.")


def consequence_of(cluster: str, components: Components | None) -> str:
    """What the removal means for a cluster; `components` is None in the stage that removes only the CronJob."""
    if components is None:
        return f"This removes the CronJob that configures new nodes from cluster {cluster}."
    if components.operator.is_removed:
        return (
            f"This removes the GPU operator, the driver and the GPU sharing that this collection has installed on cluster {cluster}. Pods that use GPUs "
            "lose the driver."
        )
    return (
        f"This removes the GPU sharing, and all settings, labels and taints that this collection has written on cluster {cluster}. The GPU operator "
        "and the driver stay, because this collection has only adopted them or has already removed its own."
    )


def _release(module: GpuModule, name: str, namespace: str) -> ReleaseRemoval:
    params = module.params
    waiting = WaitOptions(params["wait_timeout"] if params["wait"] else 0, params["wait_sleep"], module.progress)
    return ReleaseRemoval(module.client, name, namespace, module.run_command, waiting, float(params["pending_timeout"]))


def _before_helm(module: GpuModule, components: Components) -> BeforeHelm:
    params = module.params
    return BeforeHelm(
        client=module.client,
        progress=module.progress,
        waiting=_waiting(module),
        components=components,
        run_id=module.run_id,
        allow_driver_rollout=params["allow_driver_rollout"],
        reset_mig=params["reset_mig"] and params["wait"],
        count_interrupted_nodes=count_interrupted_nodes,
        restart_mig_managers=lambda namespace, nodes, lease: restart_mig_manager(
            module.client, namespace, nodes, lease, module.progress
        ),
    )


def _after_helm(module: GpuModule, plan: Plan, components: Components) -> AfterHelm:
    existing = [f"{item.release.namespace}/{item.release.name}" for item in components if item.is_installed]
    if existing and not module.check_mode:
        raise InvalidOptions([f"Helm release {name} still exists: uninstall it first." for name in existing])
    return AfterHelm(
        client=module.client,
        progress=module.progress,
        waiting=_waiting(module),
        components=components,
        nfd_instance=str((plan.nfd.values.get("master") or {}).get("instance") or ""),
        lease_namespace=module.params["lease_namespace"],
        machine_namespace=machine_namespace(plan.cluster.cloud),
    )


def _waiting(module: GpuModule) -> WaitOptions | None:
    params = module.params
    return WaitOptions(params["wait_timeout"], params["wait_sleep"], module.progress) if params["wait"] else None


def main() -> None:
    """Run the module."""
    module = GpuModule(OPTIONS, wait=True, lease=True, records_name=False)
    module.run(work)


if __name__ == "__main__":
    main()
