# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan that follows an operator which is somewhere else than planned, or a ConfigMap that is somebody else's: pure."""

from __future__ import annotations

from dataclasses import replace

from ..pools.plan import Plan


def relocate_plan(plan: Plan, namespace: str, configmap: str) -> Plan:
    """The plan with everything that goes by the operator's namespace there, and our entries in this ConfigMap.

    In somebody else's ConfigMap our entries stand beside theirs, and the ClusterPolicy's devicePlugin.config stays theirs:
    another ConfigMap, or another default, would roll every device plugin.
    """
    theirs = configmap != plan.config.name
    spec = {part: value for part, value in plan.policy.spec.items() if not (theirs and part == "devicePlugin")}
    follows = plan.validation.namespace == plan.operator.namespace
    return replace(
        plan,
        operator=replace(plan.operator, namespace=namespace),
        policy=replace(plan.policy, spec=spec),
        config=replace(plan.config, namespace=namespace, name=configmap),
        mig=replace(plan.mig, namespace=namespace),
        validation=replace(plan.validation, namespace=namespace) if follows else plan.validation,
    )


def adopt_installed(plan: Plan, version: str) -> Plan:
    """The plan for an operator of somebody else's, which stays at its version and its values.

    A version that nothing tells is empty, and left as planned.
    """
    return replace(plan, operator=replace(plan.operator, version=version or plan.operator.version, values={}))
