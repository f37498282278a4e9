# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Creates the ClusterPolicy of an operator that OLM has installed, from the operator's own example, because OLM does not create a ClusterPolicy."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..catalog.names import EXAMPLE_MANAGER
from ..common.errors import InvalidOptions
from ..common.nested import part_of
from ..kube.client import Client
from ..kube.crd_schema import known_fields, read_definition, spec_schema
from ..kube.objects import ExpectedObjects, InvalidObjects
from ..kube.paths import CLUSTER_POLICIES
from .cluster_policy import API_VERSION, KIND, DesiredPolicy, initial_change, new_policy
from .cluster_policy_client import ClusterPolicyClient
from .detect import relocate_plan
from .olm_installation import operator_owner, read_example

if t.TYPE_CHECKING:
    from ..pools.plan import Plan

Object = dict[str, t.Any]
DEFINITION = "clusterpolicies.nvidia.com"


def plan_of_operator(client: Client, plan: Plan, expected: ExpectedObjects, *, check: bool) -> Plan:
    """The plan with the namespace of an operator that OLM has installed and that has no ClusterPolicy yet; raises InvalidObjects without an operator.

    In check mode, the operator may be missing if the same run would install it.
    """
    namespace, owner = operator_owner(client, "metadata.name=gpu-operator")
    if owner:
        return relocate_plan(plan, namespace, plan.config.name)
    if check and (API_VERSION, KIND) in expected.kinds:
        return plan
    raise InvalidObjects(
        ["The cluster has no ClusterPolicy: install the GPU operator first (role gpu_operator, or its Helm chart)."]
    )


def create_policy(client: Client, plan: Plan, cluster: ClusterPolicyClient, desired: DesiredPolicy) -> Object:
    """Create the policy with all fields of the operator's example, then apply the desired fields, so that a later apply can remove them again.

    Raises InvalidOptions before anything is created if NVIDIADriver objects of the pools cannot describe the driver.
    """
    namespace = plan.operator.namespace
    example = read_example(client, namespace, KIND)
    if example is None:
        raise InvalidOptions(
            [
                f"No ClusterServiceVersion in namespace {namespace} has an example of a {KIND} (annotation alm-examples). Check that the operator is "
                f"installed (kubectl -n {namespace} get csv), or create the {KIND}, and run the playbook again."
            ]
        )
    schema = spec_schema(read_definition(client, DEFINITION), API_VERSION)
    body = new_policy({**example, "spec": known_fields(example.get("spec") or {}, schema)}, desired)
    if problems := cluster.driver_objects(plan, body).problems:
        raise InvalidOptions(list(problems))
    live = client.create(CLUSTER_POLICIES, body, field_validation="Strict", manager=EXAMPLE_MANAGER)
    name = live["metadata"]["name"]
    applied = t.cast("Object", initial_change(replace(desired, name=name)).body)
    applied = {**applied, "spec": part_of(live["spec"], applied["spec"])}
    return client.apply(f"{CLUSTER_POLICIES}/{name}", applied, field_validation="Strict")
