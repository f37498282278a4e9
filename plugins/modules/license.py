#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Provides the driver pods of vGPU nodes with their licensing token and configuration."""

from __future__ import annotations

DOCUMENTATION = r"""
module: license
short_description: Provide vGPU drivers with their licensing token and configuration
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Writes the client configuration token and C(gridd.conf) to the Secret that the driver pods of vGPU nodes mount. The Secret has exactly the keys that the GPU
    operator reads.
  - For a pool with C(driver.type=vgpu), C(driver.licensing_secret) names the Secret. Without this setting, the pool uses the Secret that the ClusterPolicy
    names. M(accel.gpu.cluster_policy) sets the names of the Secrets in the NVIDIADriver objects of the pools. The module fails if neither the pool nor the
    ClusterPolicy names a Secret. It also fails if the pool uses the Secret in the ClusterPolicy but C(nlsEnabled) is not set there.
  - If the cluster has no vGPU, nothing is written, and a warning is shown. A cluster counts as having no vGPU if no pool has C(driver.type=vgpu), no
    ClusterPolicy or NVIDIADriver specifies the vGPU driver, no node has a vGPU, and O(vgpu_types) is empty.
  - If no pool has C(driver), the module sets the name of the Secret and C(nlsEnabled) in the ClusterPolicy. The token is mounted only if C(nlsEnabled) is set.
    If the driver is described by NVIDIADriver objects that another tool manages, the module writes the Secrets that these objects name.
  - A Secret is written before any object refers to it. The name of a Secret in use is kept, because a different name restarts the driver on every node. Changes
    that restart the driver are held back unless O(allow_driver_rollout) is set.
  - If the ClusterPolicy names a ConfigMap, the module copies the content of the ConfigMap to a Secret with the same name, and changes the ClusterPolicy so
    that it names the Secret. The ConfigMap is not deleted, but a warning names it as long as it contains a token. GPU operators before v25.10 can only
    mount a ConfigMap; see O(allow_configmap).
  - Some objects are reconciled by another controller that owns them or by a tool such as External Secrets, Sealed Secrets, Argo CD or Flux. The module uses and
    verifies these objects like all others, but does not change them. A warning shows how they differ from the options.
  - If no token is set, the module only verifies that the objects contain a valid token.
  - A new C(gridd.conf) contains C(FeatureType=1), so that each client requests the product for its vGPU type. In an existing file, only the parameters for
    O(feature_type) and O(proxy_address) are set; all others are kept. The module fails if the file would prevent nodes from getting a license.
  - A warning names the nodes whose driver pods do not mount the Secret that the node's pool declares.
  - Running drivers do not read a new token. M(accel.gpu.license_rotation) loads the new token, by default without restarting any pods.
  - With O(rotate=true), new files are tried before they are written to an object that running drivers mount. The module checks that the nodes can reach a
    license server of the token and that C(FeatureType) fits the vGPUs that C(nvidia-smi -q) and the labels show. It then loads the files into the driver of one
    node, and writes the object only after this node has a license. A node without a license is tried first. If the node gets no license, the module fails, and
    neither the object nor another node is changed.
  - If the module replaces a token or C(gridd.conf), the object keeps the replaced files in its keys C(previous.client_configuration_token.tok) and
    C(previous.gridd.conf), which no driver reads. If a node has no license with the replaced files yet, the files that the object has kept before are kept
    instead, but only with O(rotate=true). O(restore) writes the kept files back.
extends_documentation_fragment:
  - accel.gpu.kube
  - accel.gpu.variables
  - accel.gpu.license_token
  - accel.gpu.expected
  - accel.gpu.lease
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
  - accel.gpu.attributes.progress
options:
  replace:
    description:
      - Whether the token may replace a token that was issued later, expires later, or is for a different license server, service instance or set of license
        classes. By default, the module rejects the new token in these cases. A first token or a renewal is always accepted.
    type: bool
    default: false
  secret_name:
    description:
      - Name of the Secret that the module sets in the ClusterPolicy. By default, the module keeps the name in the ClusterPolicy, or sets it to
        V(licensing-config) if the ClusterPolicy contains no name.
      - If pools or NVIDIADriver objects name several Secrets, only the Secret with this name gets the token, and the others are not changed. The module fails
        if none of the Secrets has this name. By default, all Secrets get the token, unless they contain tokens for different licenses. If pools or NVIDIADriver
        objects name only one Secret, this option has no effect.
    type: str
  feature_type:
    description:
      - The product that vGPUs request - V(1) NVIDIA vGPU, V(2) NVIDIA RTX Virtual Workstation, V(4) NVIDIA Virtual Compute Server. V(0) (no license) is
        rejected, because every vGPU type needs a license.
      - By default, the value in C(gridd.conf), or V(1) if the file contains no value. With V(1), each client requests the product for its vGPU type.
    type: raw
  vgpu_types:
    description:
      - The vGPU types of nodes that will be added later, such as V(A100-10C). The types of existing nodes are read from their labels.
    type: list
    elements: str
    default: []
  proxy_address:
    description:
      - Name or address of an HTTP proxy through which nodes reach the license server. Requires O(proxy_port). By default, the proxy from an earlier run is
        kept.
      - To remove the proxy, delete the key C(gridd.conf) from the Secret and run the module with a token.
    type: str
  proxy_port:
    description: Port number of the proxy.
    type: raw
  min_days:
    description: The module warns about a token that expires in fewer than this number of days.
    type: int
    default: 30
  allow_driver_rollout:
    description: Whether a change to the ClusterPolicy may restart the driver on nodes that have a driver pod.
    type: bool
    default: false
  allow_configmap:
    description:
      - Whether the token may be written to a ConfigMap if the GPU operator is older than v25.10. In this case, every user who is allowed to read ConfigMaps in
        the operator's namespace can also read the token.
    type: bool
    default: false
  node_names:
    description:
      - Names of the nodes on which M(accel.gpu.license_rotation) will load the token. The module fails before the first change if one of these names does not
        belong to a vGPU node.
    type: list
    elements: str
    default: []
  rotate:
    description:
      - Whether M(accel.gpu.license_rotation) follows in the same run, so that new files are tried on one node before they are written.
    type: bool
    default: false
  restore:
    description:
      - Whether the files that the objects have kept are written back. An object that has kept no files is not changed. A token is ignored. Requires O(rotate).
      - The module fails if a node has a token that is neither the current nor the kept one, because an earlier attempt then ended before it changed the object.
    type: bool
    default: false
  preflight:
    description: With O(rotate), whether to check that all nodes can reach the token's license servers before the first node is changed.
    type: bool
    default: true
  restart_drivers:
    description: With O(rotate), whether to restart the driver of the first node after a drain, as M(accel.gpu.license_rotation) does.
    type: bool
    default: false
  restart_timeout:
    description: Seconds to wait until the driver of the first node is ready after its restart.
    type: int
    default: 1200
  wait_timeout:
    description: Seconds to wait for the license of the first node.
    type: int
    default: 300
  wait_sleep:
    description: Seconds between two reads of the license state.
    type: int
    default: 1
seealso:
  - module: accel.gpu.license_info
  - module: accel.gpu.license_rotation
  - module: accel.gpu.license_token_info
"""

EXAMPLES = r"""
- name: Provide the vGPU pools with a token from a file
  accel.gpu.license:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_pools: "{{ gpu_pools }}"
    token_path: /srv/nvidia/client_configuration_token_03-01-2026-12-00-00.tok

- name: Replace a ConfigMap with a Secret, in a maintenance window
  accel.gpu.license:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_pools: "{{ gpu_pools }}"
    allow_driver_rollout: true
"""

RETURN = r"""
license:
  description: The objects that contain the token, and the ClusterPolicy that refers to them.
  returned: success
  type: dict
  contains:
    objects:
      description: The Secrets or, for operators before v25.10, the ConfigMap. Empty if the cluster has no vGPU.
      type: list
      elements: dict
      returned: always
      contains:
        kind: {description: V(Secret) or V(ConfigMap)., type: str, returned: always, sample: Secret}
        name: {description: Name., type: str, returned: always, sample: licensing-config}
        namespace: {description: Namespace of the operator., type: str, returned: always, sample: gpu-operator}
        action: {description: 'V(created), V(updated) or V(unchanged).', type: str, returned: always, sample: unchanged}
        pools: {description: The pools that declare the object., type: list, elements: str, returned: always, sample: [vdi]}
        feature_type: {description: FeatureType in C(gridd.conf); null if it is not set., type: int, returned: always, sample: 1}
        proxy: {description: Host and port of the proxy in C(gridd.conf); empty if no proxy is set., type: str, returned: always, sample: ''}
        digests:
          description: For each file in the object, the first 16 digits of the file's SHA-256 digest.
          type: dict
          returned: always
          sample: {client_configuration_token.tok: 5e9d51ee2b5cd3c0, gridd.conf: 0b3a4ab5e1d1c7f2}
        managed_by:
          description: The object or tool that reconciles this object, such as an ExternalSecret; empty if there is none. The module does not change an object
            that another tool reconciles.
          type: str
          returned: always
          sample: ''
        previous:
          description: The first 16 digits of the SHA-256 digest of the token that the object keeps as the previous one; empty if it keeps none.
          type: str
          returned: always
          sample: ''
        migrated_from: {description: The ConfigMap from which the content was copied; empty if it was not copied., type: str, returned: always, sample: ''}
        fingerprint: {description: The first 16 digits of the SHA-256 digest of the token., type: str, returned: always, sample: 5e9d51ee2b5cd3c0}
        expires: {description: Time at which the token expires; null if it does not expire., type: str, returned: always, sample: '2027-03-01T12:00:00Z'}
        not_before: {description: Start of the token's validity., type: str, returned: always, sample: '2026-03-01T12:00:00Z'}
        days_left: {description: Whole days until the token expires., type: int, returned: always, sample: 364}
        server_type: {description: V(cls) or V(dls)., type: str, returned: always, sample: dls}
        services:
          description: The services of the license server.
          type: list
          elements: dict
          returned: always
          contains:
            host: {description: Name or address., type: str, returned: always, sample: dls.example.com}
            port: {description: Port., type: int, returned: always, sample: 443}
            service: {description: Name of the service., type: str, returned: always, sample: lease}
    policy:
      description: Name of the ClusterPolicy that refers to the object; empty if NVIDIADriver objects refer to it, or if there is no ClusterPolicy yet.
      type: str
      returned: always
      sample: cluster-policy
    held_back:
      description: Fields of the ClusterPolicy whose change was held back because it would restart the driver.
      type: list
      elements: str
      returned: always
      sample: []
    driver_nodes: {description: Number of nodes on which this change restarts the driver., type: int, returned: always, sample: 0}
    first_nodes:
      description:
        - With O(rotate), the nodes into whose drivers new files were or, in check mode, would be loaded before the objects are changed; one node for each
          object. Empty if no object in use changes, or if a node already has a license with the new files.
      type: list
      elements: str
      returned: always
      sample: []
    evicted:
      description: Up to 100 pods that were or, in check mode, would be evicted from RV(license.first_nodes) by O(restart_drivers).
      type: list
      elements: str
      returned: always
      sample: []
license_rotation:
  description: With O(rotate), the result for the first node, as RV(accel.gpu.license_rotation#module:license_rotation).
  returned: if loading the new files into the driver of the first node has failed
  type: dict
  contains:
    rotated: {description: The first nodes that were rotated., type: list, elements: str, returned: always, sample: []}
    rotated_count: {description: Number of these nodes., type: int, returned: always, sample: 0}
    restarted: {description: The first nodes whose drivers were restarted., type: list, elements: str, returned: always, sample: []}
    evicted: {description: The pods that were evicted., type: list, elements: str, returned: always, sample: []}
    removed: {description: The first nodes that left the cluster., type: list, elements: str, returned: always, sample: []}
    unchanged_count: {description: Always 0., type: int, returned: always, sample: 0}
    pending: {description: The nodes whose rotation was not started., type: list, elements: str, returned: always, sample: [gpu-1]}
    failed: {description: The node that failed; null if no node failed., type: str, returned: always, sample: null}
    reached: {description: The last step that the failed node reached; null if no node failed., type: str, returned: always, sample: null}
code:
  description:
    - The reason for the failure. V(invalid) - errors in the options, a token that has expired or is not valid yet, or an object that prevents nodes from
      getting a license. V(wrong_cluster) - the connection points to a different cluster. V(connection) - no usable connection settings.
      V(unreachable) - the API server does not respond. V(lease_held) - another run holds the Lease. V(lease_lost) - this run lost it. V(partial) - the
      first node has failed or got no license, and the objects were not changed. V(preflight) - nodes cannot reach any license server of the token,
      C(FeatureType) does not fit their vGPUs, or no node can be read, and nothing was changed. V(blocked) - the first node cannot be drained, and nothing was
      changed. Otherwise, the HTTP status of the API server's error.
  returned: failure
  type: raw
  sample: invalid
details:
  description:
    - Details of the failure. C(problems) lists all errors. C(reason), C(method) and C(path) describe the failed request.
  returned: failure
  type: dict
  sample:
    problems:
      - "gpu_licensing_token_path (option token_path of the module): the token expired at 2026-03-01T12:00:00Z. Create a new client configuration token in the
        license system."
"""

import dataclasses
import typing as t

from ..module_utils.core.errors import InvalidOptions
from ..module_utils.core.messages import MAX_LISTED, diff_of
from ..module_utils.core.module import ArgumentSpec, merge_specs
from ..module_utils.core.values import Object
from ..module_utils.gpu_operator.cluster_policy import active_policy, held_back_warning, policy_version
from ..module_utils.gpu_operator.detect import adapt_plan, find_operator
from ..module_utils.kube.errors import ApiError
from ..module_utils.kube.fields import gitops_owner
from ..module_utils.kube.paths import CLUSTER_POLICIES
from ..module_utils.licensing.cluster import (
    ROTATION_OPTIONS,
    LicenseCluster,
    LicenseObjectChange,
    LicenseObjects,
    LicenseOptions,
    license_options,
    object_warnings,
    require_valid,
    shown_changes,
)
from ..module_utils.licensing.content import NO_OPERATOR, desired_targets
from ..module_utils.licensing.diagnosis import LIMIT_OPTIONS
from ..module_utils.licensing.module import TOKEN, LicenseTokenModule
from ..module_utils.licensing.rotation import (
    NO_CONFIG_CHANGE,
    LicensingConfigChange,
    apply_config,
    config_change,
    require_rotation,
    survey_first_nodes,
    try_files,
)
from ..module_utils.licensing.token import VGPU_TYPES_OPTION, utc_now
from ..module_utils.pools.module import PlanModule
from ..module_utils.schema.validators import object_name

if t.TYPE_CHECKING:
    from ..module_utils.kube.lease import Lease
    from ..module_utils.licensing.rotation import Survey
    from ..module_utils.pools.plan import Plan

_NO_VGPU = (
    "No node of this cluster needs a license: no pool has driver.type: vgpu, neither the ClusterPolicy nor an NVIDIADriver specifies the vGPU driver, and "
    f"no node has a vGPU. Nothing is written. If you plan to add vGPU nodes, set {VGPU_TYPES_OPTION}."
)

_SPEC: ArgumentSpec = {
    "replace": {"type": "bool", "default": False},
    "secret_name": {"type": "str", "no_log": False},
    "feature_type": {"type": "raw"},
    "vgpu_types": {"type": "list", "elements": "str", "default": []},
    "proxy_address": {"type": "str"},
    "proxy_port": {"type": "raw"},
    "min_days": LIMIT_OPTIONS["min_days"],
    "allow_driver_rollout": {"type": "bool", "default": False},
    "allow_configmap": {"type": "bool", "default": False},
    "node_names": {"type": "list", "elements": "str", "default": []},
    "rotate": {"type": "bool", "default": False},
    "restore": {"type": "bool", "default": False},
    **ROTATION_OPTIONS,
}


class LicenseModule(LicenseTokenModule, PlanModule):
    """A module with the options for the cluster, the pools and the token."""

    def secrets(self) -> set[str]:
        """Return the secrets without node names. A node name can consist of three long parts like a token, but contains no capital letters."""
        return super().secrets() - {name for name in self.params["node_names"] if not object_name(name)}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The actual and the desired state of the objects and the ClusterPolicy."""

    cluster: LicenseCluster
    objects: LicenseObjects
    changes: t.Sequence[LicenseObjectChange] = ()
    policy: LicensingConfigChange = NO_CONFIG_CHANGE

    # The nodes on which new files are tried before they are written; None if no object in use changes, or if no rotation follows.
    survey: Survey | None = None

    @property
    def first_nodes(self) -> list[str]:
        """The names of these nodes."""
        return [rotation.node.name for rotation in self.survey.rotations] if self.survey else []

    @property
    def pods_to_evict(self) -> list[str]:
        """The pods that a restart of these nodes' drivers would evict now."""
        pods = self.survey.pods_to_evict if self.survey else {}
        return [pod for name in self.first_nodes for pod in pods.get(name, ())]

    @property
    def changed(self) -> bool:
        """Whether any change must be sent."""
        return self.policy.applied or any(change.body for change in self.changes)


def work(module: LicenseModule) -> Object:
    """Compare the objects and the ClusterPolicy, and write the objects before the ClusterPolicy names them."""
    # A node name can look like a token. A token that is set instead of a node name is rejected, because no node has this name.
    options = license_options(module, _SPEC.keys() - {"node_names"})
    lease = module.lease()
    lease.observe()
    comparison = _compare(module, options, lease)
    unchecked, evicted = None, comparison.pods_to_evict
    if comparison.changed:
        with lease:
            if not (module.check_mode or lease.untouched):
                # Another run may have changed the objects, the ClusterPolicy or the drivers before this run held the lease.
                comparison = _compare(module, options, lease)
            if comparison.survey is not None and not module.check_mode:
                labels = [
                    change.target.label(comparison.cluster.namespace) for change in comparison.changes if change.body
                ]
                evicted = try_files(module, comparison.survey, labels, lease)
            unchecked = _write(module, lease, comparison)
    _warn(module, comparison)
    return _result(comparison, unchecked, evicted)


def _compare(module: LicenseModule, options: LicenseOptions, lease: Lease) -> Comparison:
    """Read the cluster, and compare it with the options. Raise InvalidOptions if nodes would not get a license."""
    policy = t.cast("Object | None", active_policy(module.client.list_known(CLUSTER_POLICIES)))
    plan = adapt_plan(module.client, module.plan, policy)
    cluster = LicenseCluster(module.client, plan, policy)
    if module.params["node_names"]:
        cluster.selected_nodes(module.params["node_names"])
    objects = LicenseObjects(module.client, cluster, options)
    if not (cluster.has_vgpu or module.params["vgpu_types"]):
        return Comparison(cluster, objects)
    version = _operator_version(module, plan, policy)
    targets = desired_targets(plan, policy, version, module.params["secret_name"], cluster.drivers)
    targets = objects.select(targets, module.params["secret_name"])
    if not module.params["allow_configmap"]:
        objects.require_secrets(targets, version)
    changes = [objects.compare(target) for target in targets]
    require_valid(changes, cluster.namespace)
    policy_change = config_change(module, plan, cluster, targets[0], version)
    if not module.params["rotate"]:
        if module.params["replace"]:
            require_rotation(module, cluster, changes)
        return Comparison(cluster, objects, changes, policy_change)
    changes, survey = survey_first_nodes(module, LicenseCluster(module.client, plan, policy), objects, changes, lease)
    return Comparison(cluster, objects, changes, policy_change, survey)


def _write(module: LicenseModule, lease: Lease, comparison: Comparison) -> str | None:
    """Send the changes. In check mode, return the reason why the server did not validate one of them."""
    unchecked = None
    for change in comparison.changes:
        lease.check()
        # In check mode on a first run, the server cannot validate an object in a namespace that does not exist yet.
        if not (module.check_mode and comparison.cluster.namespace in module.expected.namespaces):
            try:
                unchecked = comparison.objects.write(change, check=module.check_mode) or unchecked
            except ApiError as error:
                if not error.not_found or change.action != "created":
                    raise
                label, namespace = change.target.label(comparison.cluster.namespace), comparison.cluster.namespace
                raise InvalidOptions(
                    [f"{label} was not written, because the namespace {namespace} does not exist. {NO_OPERATOR}"]
                ) from error
    if comparison.policy.applied:
        lease.check()
        unchecked = apply_config(module, comparison.policy) or unchecked
    return unchecked


def _operator_version(module: LicenseModule, plan: Plan, policy: Object | None) -> str:
    """Return the release of the operator that reads the objects, or the declared release if no operator is installed yet."""
    if policy is None:
        return plan.operator.version
    if version := policy_version(policy):
        return version
    installation = find_operator(module.client, plan, [policy]).installation
    return installation.version if installation else ""


def _warn(module: LicenseModule, comparison: Comparison) -> None:
    policy, cluster = comparison.policy, comparison.cluster
    if not comparison.changes:
        module.warn(_NO_VGPU)
    elif cluster.policy is None and cluster.namespace not in module.expected.namespaces:
        module.warn(NO_OPERATOR)
    if module.params["restore"] and comparison.changes and not any(change.body for change in comparison.changes):
        module.warn("No object has kept previous files, so nothing was restored.")
    given = module.license_token is not None and not module.params["restore"]
    for text in object_warnings(cluster, comparison.changes, min_days=module.params["min_days"], given=given):
        module.warn(text)
    if policy.rollout and policy.held_back:
        module.warn(held_back_warning(policy.held_back_fields, policy.rollout))
    elif policy.rollout:
        module.warn(policy.rollout.announcement)
    if policy.applied and cluster.policy and (owner := gitops_owner(cluster.policy, "ClusterPolicy")):
        module.warn(
            f"{owner} reconciles ClusterPolicy {policy.name} from its source. Also set spec.driver.licensingConfig there."
        )


def _result(comparison: Comparison, unchecked: str | None, evicted: t.Sequence[str]) -> Object:
    namespace, policy = comparison.cluster.namespace, comparison.policy
    before, after = shown_changes(comparison.changes, namespace)
    if policy.applied and policy.config is not None:
        label = f"ClusterPolicy {policy.name}"
        before[label] = {"licensingConfig": dict(policy.config.before)}
        merged = {**policy.config.before, **policy.config.after}
        after[label] = {"licensingConfig": {key: value for key, value in merged.items() if value not in (None, "")}}
    if comparison.survey is not None:
        nodes_before, nodes_after = comparison.survey.node_states()
        before |= {f"node {name}": state for name, state in nodes_before.items()}
        after |= {f"node {name}": state for name, state in nodes_after.items()}
    return {
        "changed": bool(after),
        "license": {
            "objects": [change.summary(namespace, utc_now()) for change in comparison.changes],
            "policy": policy.name,
            "held_back": policy.held_back_fields,
            "driver_nodes": policy.rollout.nodes if policy.rollout and not policy.held_back else 0,
            "first_nodes": comparison.first_nodes,
            "evicted": list(evicted[:MAX_LISTED]),
        },
        "diff": diff_of(before, after, "licensing", unchecked),
    }


def main() -> None:
    """Run the module."""
    LicenseModule(merge_specs(TOKEN, _SPEC), expected=True, lease=True).run(work)


if __name__ == "__main__":
    main()
