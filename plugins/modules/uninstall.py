#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Takes out what this collection has put on a cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: removal
short_description: Take out what this collection has put on a cluster, and nothing else
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Two halves of an uninstallation, one before and one after Helm takes out the releases (M(kubernetes.core.helm), C(release_state=absent)), and
    before both what runs by itself. The role P(accel.gpu.uninstall#role) calls all three.
  - "O(stage=new_nodes): the CronJob of the role P(accel.gpu.new_nodes#role) with its rights and inventory, and its namespace if we have made it and it is empty."
  - "What is ours is known by what is noted on the cluster: labels, annotations and taints of nodes by annotations that begin with C(accel.gpu/);
    entries of the ClusterPolicy's C(spec.daemonsets.tolerations) by its annotation C(accel.gpu/tolerations); fields and entries of ConfigMaps by
    the API server's own record of who has written them (field manager C(accel.gpu)); Helm releases by the Lease C(accel-gpu-helm-<release>), and
    namespaces by the annotation C(accel.gpu/created), both of which say that this collection made them."
  - "O(stage=before_helm), while the operator still works: nodes give back what is ours, those with GPUs that a layout of ours has cut once these
    are whole; a ClusterPolicy of a release that we have installed is deleted, and its DaemonSets and pods are seen to go; out of any other ClusterPolicy our
    fields are taken; then our ConfigMaps are deleted, because by then nothing names or mounts them."
  - "O(stage=after_helm): labels, annotations and taints that an operator or an NFD of ours has left on nodes; the kinds (CRDs) that came with
    our releases, unless somebody else has an object of them or has written them; our notes; the namespaces that we have made, unless something of
    somebody else is in them; at last the Lease by which runs know of each other."
  - An operator or an NFD that somebody else has installed stays. RV(removal.left) says of everything that stays why.
  - Can be killed at any moment and run again. A second run finds nothing and changes nothing. Pools are neither needed nor heeded.
  - A MIG manager that says V(failed) does not try again. It is restarted once for each run; if it fails again, the run ends with the pods that
    hold GPUs of that node. Until its GPUs are whole a node keeps the labels and taints of its pool.
notes:
  - The chart's clean-up hooks are not used. They are Jobs, which need an image, more rights, and cannot be run a second time once they have failed.
  - Of a policy that stays, C(mig.strategy) and C(migManager.config.name) are put back as the annotation C(accel.gpu/former) has them.
  - Taking entries out of C(spec.daemonsets.tolerations) of a ClusterPolicy that stays rolls the driver on every GPU node. Where drivers run this is
    held back, together with the note of which entries are ours, unless O(allow_driver_rollout) is set.
  - In check mode O(stage=after_helm) takes for gone what O(stage=before_helm) and Helm will have taken. NVIDIA's agents withdraw some of
    their labels by themselves in between, so that the run may show fewer of those.
options:
  stage:
    description:
      - V(new_nodes) first, V(before_helm) before the releases are uninstalled, V(after_helm) afterwards.
    type: str
    choices: [new_nodes, before_helm, after_helm]
    required: true
  allow_driver_rollout:
    description:
      - Whether to take our tolerations out of a ClusterPolicy that stays, although the driver rolls for it.
    type: bool
    default: false
  undo_mig:
    description:
      - Whether to make GPUs whole again that a layout of ours has cut. Needs O(wait); else they stay cut.
    type: bool
    default: true
  pending_timeout:
    description:
      - Seconds after which an operation on a release that another machine's helm has begun, and not finished, is taken for dead.
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
- name: Take out what stands in the way of Helm
  accel.gpu.uninstall: {gpu_cluster: "{{ gpu_cluster }}", stage: before_helm}
  register: first_half

- name: Uninstall what this collection has installed, the operator before NFD
  kubernetes.core.helm:
    release_name: "{{ item.name }}"
    release_namespace: "{{ item.namespace }}"
    release_state: absent
    disable_hook: true
    wait: true
  environment: "{{ first_half.uninstall.helm_environment }}"
  loop: "{{ first_half.uninstall.releases | selectattr('uninstall') }}"

- name: Take out what they have left, the kinds and the namespaces
  accel.gpu.uninstall: {gpu_cluster: "{{ gpu_cluster }}", stage: after_helm}
"""

RETURN = r"""
removal:
  description: What was taken out, or in check mode would be; a failure has what was taken out until then.
  returned: always
  type: dict
  contains:
    releases:
      description: The releases of the operator and of NFD, in the order in which they are to be uninstalled.
      type: list
      elements: dict
      returned: success
      contains:
        name: {description: Its name., type: str}
        namespace: {description: Its namespace., type: str}
        status: {description: "Helm's status of it, V(absent) when there is none.", type: str}
        ours: {description: Whether this collection has installed it., type: bool}
        uninstall: {description: Whether it is to be uninstalled., type: bool}
    helm_environment:
      description: Variables (none is secret) with which M(kubernetes.core.helm) reaches the verified cluster.
      type: dict
      returned: success
      sample: {KUBECONFIG: /etc/kube/prod}
    removed:
      description: Objects that were deleted, or out of which our part was taken; nodes are counted apart.
      type: list
      elements: str
      returned: always
      sample: ["ClusterPolicy cluster-policy: deleted", "ConfigMap gpu-operator/accel-gpu-device-plugin: deleted"]
    nodes_changed: {description: How many nodes have given something back., type: int, returned: always}
    names_changed:
      description: Names of up to 100 of them.
      type: list
      elements: str
      returned: always
    left:
      description: What stays, and why.
      type: list
      elements: str
      returned: always
      sample: ["Namespace gpu-operator: it holds ConfigMap dashboards"]
    held_back: {description: What was held back because the driver would have rolled., type: list, elements: str, returned: always}
    unchecked:
      description: Why the server did not check the changes in check mode.
      type: str
      returned: in check mode, when the user has no right to a dry run
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
from ..module_utils.pools.plan import Plan, ReleasePlan
from ..module_utils.sharing.operands import restart_mig_manager
from ..module_utils.uninstall import after_helm, before_helm, lease_object, new_nodes
from ..module_utils.uninstall.crds import Definition
from ..module_utils.uninstall.gpu_pods import driver_warning
from ..module_utils.uninstall.operands import OperandWait
from ..module_utils.uninstall.result import UninstallResult

OPTIONS: dict[str, dict[str, t.Any]] = {
    "stage": {"type": "str", "choices": ["new_nodes", "before_helm", "after_helm"], "required": True},
    "allow_driver_rollout": {"type": "bool", "default": False},
    "undo_mig": {"type": "bool", "default": True},
    "pending_timeout": {"type": "int", "default": 600},
}
_OPERATOR_KINDS = tuple(dict.fromkeys(kind for release in OPERATOR_RELEASES for kind in release.kinds))


def work(module: GpuModule) -> dict[str, t.Any]:
    """Read what is ours, and preview or take it out."""
    if module.params["gpu_cluster"] is None:
        module.fail_json(msg="missing required arguments: cluster")
    if module.params["stage"] == "new_nodes":
        return _join(module)
    plan = derive(module.params["gpu_cluster"], {}, [])
    releases = [_leaving(module, release) for release in (plan.operator, plan.nfd)]
    half = _before if module.params["stage"] == "before_helm" else _after
    environment = helm_environment(module.client) if half is _before and any(of.managed for of in releases) else {}
    changed, account = half(module, plan, releases)
    for release in releases:
        if release.exists and not release.managed:
            account.keeps(f"Helm release {release.namespace}/{release.name}", "this collection did not install it")
    return {
        "changed": changed,
        "removal": {"releases": [of.as_dict() for of in releases], "helm_environment": environment, **account.result()},
        "diff": diff_of(*account.diff(), "removal"),
    }


def _join(module: GpuModule) -> dict[str, t.Any]:
    account, found = UninstallResult(), new_nodes.read(module.client)
    if module.check_mode or not found.any:
        new_nodes.preview(module.client, found, account)
    else:
        with _partial(module, account), module.lease() as lease:
            new_nodes.clear(module.client, new_nodes.read(module.client), lease, _waiting(module), account)
    removal = {"releases": [], **account.result()}
    return {"changed": account.changed, "removal": removal, "diff": diff_of(*account.diff(), "removal")}


def _before(module: GpuModule, plan: Plan, releases: list[ReleaseRemoval]) -> tuple[bool, UninstallResult]:
    params = module.params
    settings = before_helm.BeforeHelmSettings(
        namespace=plan.operator.namespace,
        is_ours=lambda found: releases[0].managed and releases[0].contains(found),
        driver_nodes=count_driver_nodes,
        restart_mig_managers=lambda place, nodes, lease: restart_mig_manager(
            module.client, place, nodes, lease, module.progress
        ),
        allow_driver_rollout=params["allow_driver_rollout"],
        undo_mig=params["undo_mig"] and params["wait"],
        progress=module.progress,
        waiting=_waiting(module),
    )
    stage = before_helm.BeforeHelm(module.client, settings)
    found = stage.read()
    to_open = [release for release in releases if release.managed and not release.is_superseded]
    if any(settings.is_ours(policy) for policy in found.policies):
        warning = driver_warning(module.client, plan.operator.namespace, found.nodes)
        if warning:
            module.warn(warning)
    if module.check_mode or not (stage.changed(found) or to_open):
        stage.preview(found)
    else:
        with _partial(module, stage.account), module.lease() as lease:
            # Another run may have changed the cluster while this one waited for its lease.
            found = stage.read()
            for release in to_open:
                release.await_other_helm()
                lease.check()
                release.supersede(module.run_id)
            stage.clear(found, lease)
    for release in to_open:
        stage.account.took(
            f"Helm release {release.namespace}/{release.name}", release.initial_status, how="to be uninstalled"
        )
    return stage.account.changed, stage.account


def _after(module: GpuModule, plan: Plan, releases: list[ReleaseRemoval]) -> tuple[bool, UninstallResult]:
    kinds = (_OPERATOR_KINDS, NFD_KINDS)
    operator, nfd = (_release(release, of) for release, of in zip(releases, kinds, strict=True))
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
    lease_path = lease_object.lease_path(LEASE_NAME, module.params["lease_namespace"])
    left = [
        path for path in dict.fromkeys((lease_path, lease_object.RECORD_PATH)) if module.client.get(path) is not None
    ]
    if not stage.changed(found) and not left:
        stage.preview(found)
    elif module.check_mode:
        stage.preview(found)
        for path in dict.fromkeys((lease_path, *left)):
            lease_object.note_lease(path, stage.account)
    else:
        with _partial(module, stage.account):
            with module.lease() as lease:
                stage.clear(stage.read(), lease)
            lease_object.drop_lease(module.client, lease_path, stage.account)
            if lease_path != lease_object.RECORD_PATH:
                lease_object.drop_lease(module.client, lease_object.RECORD_PATH, stage.account)
    return stage.account.changed, stage.account


def _leaving(module: GpuModule, release: ReleasePlan) -> ReleaseRemoval:
    params = module.params
    waiting = WaitOptions(params["wait_timeout"] if params["wait"] else 0, params["wait_sleep"], module.progress)
    return ReleaseRemoval(
        module.client, release.name, release.namespace, module.run_command, waiting, float(params["pending_timeout"])
    )


def _release(release: ReleaseRemoval, kinds: t.Iterable[tuple[str, str]]) -> after_helm.UninstalledRelease:
    return after_helm.UninstalledRelease(
        name=release.name,
        namespace=release.namespace,
        ours=release.managed,
        there=release.exists,
        note=marker_path(release.name, release.namespace),
        selector=f"app.kubernetes.io/instance={release.name}",
        kinds=tuple(Definition(*kind) for kind in kinds),
        has=release.contains,
    )


def _waiting(module: GpuModule) -> OperandWait | None:
    of = module.params
    return OperandWait(of["wait_timeout"], of["wait_sleep"], module.progress) if of["wait"] else None


@contextlib.contextmanager
def _partial(module: GpuModule, account: UninstallResult) -> t.Iterator[None]:
    try:
        yield
    except Exception as error:
        done = {"removal": account.result(), "changed": account.changed}
        error.partial = {**done, **getattr(error, "partial", {})}  # type: ignore[attr-defined]
        raise


def main() -> None:
    """Run the module."""
    module = GpuModule(OPTIONS, wait=True, lease=True, records_name=False)
    module.run(work)


if __name__ == "__main__":
    main()
