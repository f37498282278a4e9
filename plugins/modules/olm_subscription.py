#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: olm_subscription
short_description: Install, upgrade or remove an operator through the Operator Lifecycle Manager (OLM)
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Subscribes to a package in a catalog, approves the InstallPlans that lead to the declared version, and waits until the ClusterServiceVersion of this version
    is stable.
  - With O(approval=Manual), the module approves only InstallPlans that install the declared version or an intermediate version on the upgrade path to it. OLM
    combines all pending changes in a namespace into one InstallPlan. An InstallPlan that also changes another operator is not approved unless
    O(additional_csvs) names that operator's ClusterServiceVersion.
  - An upgrade goes through each version that OLM offers between the installed version and the declared version.
  - A ClusterServiceVersion is stable if its phase is Succeeded, the Subscription names it as installed, all steps of its InstallPlan are done, and its
    Deployments run with the Subscription's C(spec.config). The fields C(status.state) and C(status.installedCSV) of the Subscription are not sufficient,
    because OLM sets them as soon as the ClusterServiceVersion exists.
  - An OperatorGroup is created only if the namespace has none. The operator's install modes determine the target namespaces of the new OperatorGroup. An
    existing OperatorGroup is not changed. If the namespace has several OperatorGroups, the module fails, because OLM would install nothing.
  - An existing Subscription of the package is adopted, regardless of its name. Only the declared fields are changed. Foreign entries in the lists of
    C(spec.config) are kept. The annotation C(accel.gpu/subscription-config) records the entries of this module, and only these entries are removed later.
  - If the package has a ClusterServiceVersion without a Subscription, OLM cannot install the package. The module deletes this ClusterServiceVersion, so that
    OLM can install the package again. Custom resources, their CRDs and the operands are kept.
  - If the ClusterServiceVersion was deleted and its Subscription still exists, or if the InstallPlan has failed, OLM does not continue. The module resets the
    status of the Subscription to the previous state, so that OLM creates a new InstallPlan.
  - If OLM reports a problem, the module returns the object, the field and its value, the violated rule, and the remedy. OLM sets some conditions for a few
    seconds during every upgrade, so these conditions are reported only if they persist.
  - With O(state=absent), the Subscription and the ClusterServiceVersion are deleted. CRDs, custom resources, the OperatorGroup and the CatalogSource are
    kept.
notes:
  - If nothing differs, the module sends one list request for the namespace, one for the Deployments, one for each kind of OLM object in the namespace, and one
    for the CatalogSources.
  - The module watches the objects instead of polling them, so O(wait_sleep) has no effect.
  - With O(wait=false) and O(approval=Manual), the module still waits, for at most O(wait_timeout), until it has approved the InstallPlan of the declared
    version. If the upgrade goes through intermediate versions, the module also waits until these are installed. It does not wait until the declared version is
    stable.
  - An upgrade of the GPU operator restarts the driver on every GPU node. The pods that use a GPU on these nodes are evicted first. This module does not hold
    the upgrade back, but the role P(accel.gpu.gpu_operator#role) does. RV(accel.gpu.operator_info#module:operator_info.operator.driver_nodes) contains the
    number of nodes whose driver restarts.
  - In check mode, the version, channel and source are unknown on a first run if the catalogs cannot be read yet. RV(olm_subscription.after_discovery) lists
    these fields.
options:
  namespace:
    description: Namespace of the operator. It must exist or, in check mode, be listed in O(expected).
    type: str
    required: true
  package:
    description: Name of the package in the catalog.
    type: str
    required: true
  name:
    description: Name of the Subscription. By default, the package's existing Subscription in the namespace is used. A new Subscription is named after the
      package.
    type: str
  version:
    description:
      - The version to install, for example V(v25.10.1), or the name of its ClusterServiceVersion.
      - Without this option, the first installation uses the newest version in the channel, and an installed version is kept.
      - With O(approval=Automatic), this option sets the version of the first installation and the oldest version that is accepted later.
    type: str
    aliases: [starting_csv]
  channel:
    description:
      - "The channel of the Subscription. By default, the module uses the first of the following channels that contains the version: the current channel, the
        default channel, a channel whose newest version is the declared version, and finally any other channel."
    type: str
  source:
    description:
      - Names of CatalogSources. The module uses the first CatalogSource that offers the version, but prefers the current CatalogSource of the Subscription.
      - By default, the module uses the current CatalogSource of the Subscription or, for a new Subscription, the only CatalogSource that offers the package.
    type: list
    elements: str
    default: []
  source_namespace:
    description: Namespace of the CatalogSources.
    type: str
    default: openshift-marketplace
  catalog_image:
    description:
      - Image of a catalog, for example of a staging catalog. The module creates a CatalogSource with this image and the first name in O(source).
      - If OLM is not connected to this catalog after 90 seconds, the module deletes the new CatalogSource and uses the next one in O(source). If the module did
        not delete the new CatalogSource, it would block all Subscriptions that can use it.
    type: str
  approval:
    description:
      - With V(Manual), this module approves the InstallPlans. With V(Automatic), OLM installs each newer version in the channel automatically.
      - The module also sets this value on an adopted Subscription.
    type: str
    choices: [Manual, Automatic]
    default: Manual
  additional_csvs:
    description: Names of ClusterServiceVersions that belong to other packages and that the same InstallPlan may install.
    type: list
    elements: str
    default: []
  operator_group:
    description: Name of the OperatorGroup that the module creates. By default, the name of the namespace.
    type: str
  target_namespaces:
    description:
      - Namespaces that the operator watches. An empty list selects all namespaces. By default, the operator watches only its own namespace if it supports this
        mode. Otherwise, it watches all namespaces. An empty string is treated as unset.
      - The module fails if an OperatorGroup already exists and has other target namespaces.
    type: list
    elements: str
  subscription_config:
    description:
      - The content of the Subscription's C(spec.config), for example C(tolerations), C(nodeSelector), or C(env) with proxy variables.
      - Without this option, C(spec.config) is not changed. An empty map removes the entries that this module has set.
    type: dict
  force:
    description: Whether to take over fields of the Subscription that another manager owns. With V(false), the module fails and names that manager.
    type: bool
    default: true
  state:
    description: V(present) installs or upgrades the operator. V(absent) removes it.
    type: str
    choices: [present, absent]
    default: present
extends_documentation_fragment:
  - accel.gpu.kube
  - accel.gpu.expected
  - accel.gpu.wait
  - accel.gpu.lease
  - accel.gpu.confirm
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
  - accel.gpu.attributes.progress
seealso:
  - module: accel.gpu.cluster_policy
  - module: accel.gpu.helm_release
  - module: accel.gpu.node_feature_discovery
  - module: accel.gpu.operator_info
"""

EXAMPLES = r"""
- name: Install the GPU operator on OpenShift, and keep its version
  accel.gpu.olm_subscription:
    namespace: nvidia-gpu-operator
    package: gpu-operator-certified
    version: v25.10.1

- name: Install Node Feature Discovery from a mirrored catalog, or from Red Hat's catalog
  accel.gpu.olm_subscription:
    namespace: openshift-nfd
    package: nfd
    source: [cs-redhat-operator-index, redhat-operators]

- name: Let the operator run on tainted nodes and use a proxy
  accel.gpu.olm_subscription:
    namespace: nvidia-gpu-operator
    package: gpu-operator-certified
    version: v25.10.1
    subscription_config:
      tolerations:
        - {key: node-role.kubernetes.io/infra, operator: Exists, effect: NoSchedule}
      env:
        - {name: HTTPS_PROXY, value: "http://proxy.example.com:3128"}

- name: Remove the operator, but keep its CRDs and custom resources
  accel.gpu.olm_subscription:
    namespace: nvidia-gpu-operator
    package: gpu-operator-certified
    state: absent
    confirm: [prod]
"""

RETURN = r"""
olm_subscription:
  description: The Subscription and the installed version. Also returned after a failure.
  returned: success
  type: dict
  contains:
    name:
      description: Name of the Subscription.
      type: str
      returned: always
      sample: gpu-operator-certified
    namespace:
      description: Namespace of the operator.
      type: str
      returned: always
      sample: nvidia-gpu-operator
    package:
      description: Name of the package.
      type: str
      returned: always
      sample: gpu-operator-certified
    channel:
      description: The channel of the Subscription.
      type: str
      returned: with O(state=present)
      sample: v25.10
    source:
      description: The CatalogSource of the Subscription.
      type: str
      returned: with O(state=present)
      sample: certified-operators
    csv:
      description: Name of the declared ClusterServiceVersion; empty if it is unknown in check mode.
      type: str
      returned: always
      sample: gpu-operator-certified.v25.10.1
    version:
      description: Version of the declared ClusterServiceVersion.
      type: str
      returned: with O(state=present)
      sample: 25.10.1
    phase:
      description: Phase of the declared ClusterServiceVersion; empty if it does not exist.
      type: str
      returned: always
      sample: Succeeded
    installed:
      description: Whether the declared ClusterServiceVersion is stable.
      type: bool
      returned: always
      sample: true
    created:
      description: Whether this collection has created the Subscription.
      type: bool
      returned: with O(state=present)
      sample: true
    approved:
      description: ClusterServiceVersions whose InstallPlans the module has approved.
      type: list
      elements: str
      returned: with O(state=present)
      sample: [gpu-operator-certified.v25.10.1]
    repaired:
      description: Objects that the module deleted or reset because OLM could not continue with them, each with the reason.
      type: list
      elements: str
      returned: with O(state=present)
      sample: []
    warnings:
      description:
        - Conditions of the Subscription that do not prevent the installation, for example a deprecated channel. Each entry contains OLM's message and the
          remedy. The module also issues these conditions as warnings.
        - The list is empty if the module makes a change, because OLM updates these conditions only after the change.
      type: list
      elements: str
      returned: with O(state=present)
      sample: ["Subscription nvidia-gpu-operator/gpu-operator-certified: condition ChannelDeprecated is True (channel v23.9 is no longer supported). Set
        channel to one that contains the version and is not deprecated."]
    removed:
      description: Objects that the module has deleted.
      type: list
      elements: str
      returned: with O(state=absent)
      sample: [Subscription gpu-operator-certified]
    after_discovery:
      description: Fields that are unknown in check mode until the catalogs can be read.
      type: list
      elements: str
      returned: with O(state=present)
      sample: []
    problem:
      description: The problem that OLM reports, or that prevents the installation.
      type: dict
      returned: after a failure, if OLM's objects show the reason
      contains:
        code: {description: The type of problem. The failure has the same C(code)., type: str, returned: always, sample: install_mode}
        object: {description: The object that has the problem., type: str, returned: always, sample: OperatorGroup nvidia-gpu-operator/all}
        field: {description: The affected field of the object., type: str, returned: always, sample: spec.targetNamespaces}
        value: {description: The value of the field., type: str, returned: always, sample: all namespaces}
        rule: {description: The rule that the value violates., type: str, returned: always, sample: The operator supports only OwnNamespace.}
        remedy: {description: How to solve the problem., type: str, returned: always, sample: Use another namespace.}
code:
  description:
    - The reason for the failure. V(package), V(channel), V(version), V(source), V(catalog_unreachable) - the catalogs do not offer the declared version.
      V(downgrade), V(upgrade_path) - OLM has no upgrade path from the installed version to the declared one. V(operator_group), V(operator_group_missing),
      V(operator_group_multiple), V(install_mode) - the OperatorGroup is missing, is not the only one, or does not fit the operator. V(subscription_name),
      V(subscription_deleted), V(namespace_terminating), V(install_plan_others), V(upgraded_by_other) - something else manages the operator or prevents its
      installation. V(resolution_failed), V(csv_unreferenced), V(unpack_failed), V(install_plan_failed), V(csv_failed), V(csv_deleted), V(deployment_not_ready),
      V(not_removed) - OLM reports the problem or does not finish. V(timeout) - OLM does not show a reason.
    - V(not_confirmed) - see O(confirm).
    - V(invalid) - errors in the options or the configuration. V(wrong_cluster) - the connection points to a different cluster. V(connection) - no
      usable connection settings. V(unreachable) - the API server does not respond. V(lease_held) - another run holds the Lease. V(lease_lost) - this run lost
      the Lease. Otherwise, the HTTP status of the API server's error.
  returned: failure
  type: raw
  sample: version
details:
  description:
    - Details of the failure. C(problems) lists all errors in the options or variables. C(reason), C(method) and C(path) describe the failed request.
  returned: failure
  type: dict
  sample: {reason: Forbidden, method: GET, path: /apis/operators.coreos.com/v1alpha1/namespaces/nvidia-gpu-operator/subscriptions}
"""

import contextlib
import functools
import typing as t

from ..module_utils.core.messages import abbreviate
from ..module_utils.core.module import CONFIRM
from ..module_utils.kube.lease import Lease
from ..module_utils.kube.module import GpuModule
from ..module_utils.olm.client import OlmClient
from ..module_utils.olm.installation import OLM_OPTIONS, OlmOptions
from ..module_utils.olm.runner import OlmRemoval, OlmRun

OPTIONS: dict[str, dict[str, t.Any]] = {
    **OLM_OPTIONS,
    "force": {"type": "bool", "default": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    **CONFIRM,
}


def work(module: GpuModule) -> dict[str, t.Any]:
    """Install or remove the operator, and hold the Lease from the first change until the end of the run."""
    params = module.params
    options = OlmOptions.from_params(params)
    with contextlib.ExitStack() as held:

        @functools.cache
        def take_lease() -> Lease:
            return held.enter_context(module.lease())

        client = OlmClient(
            module.client,
            options.namespace,
            options.source_namespace,
            check=module.check_mode,
            force_conflicts=params["force"],
            before_write=take_lease,
        )
        common: dict[str, t.Any] = {
            "timeout": params["wait_timeout"],
            "wait": params["wait"],
            "progress": module.progress,
            "check": module.check_mode,
        }
        if params["state"] == "absent":
            confirm = functools.partial(_confirm_removal, module)
            result = OlmRemoval(client, options, **common, confirm=confirm).run()
        else:
            result = OlmRun(client, options, expected=module.expected, **common).run()
            for text in result["olm_subscription"]["repaired"]:
                module.warn(f"Repaired: {text}.")
            for text in result["olm_subscription"]["warnings"]:
                module.warn(text)
    return result


def _confirm_removal(module: GpuModule, labels: t.Sequence[str]) -> None:
    module.require_confirmation(
        f"This removes the operator of package {module.params['package']} from cluster {module.name_to_confirm()}: {abbreviate(labels)}."
    )


def main() -> None:
    """Run the module."""
    # An empty list of target namespaces selects all namespaces, and the module never changes an OperatorGroup.
    module = GpuModule(OPTIONS, expected=True, wait=True, lease=True, empty_is_unset=("target_namespaces",))
    module.run(work)


if __name__ == "__main__":
    main()
