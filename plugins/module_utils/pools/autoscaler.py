# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Derives the declared fields of OpenShift's ClusterAutoscaler (pure)."""

from __future__ import annotations

import copy

from ..catalog.machine_api import MACHINE_API_NAMESPACE
from ..common.nested import get_nested, set_nested
from ..schema.autoscaler import SPEC_PATHS
from ..schema.providers import PROVIDERS
from ..schema.types import Document
from .plan import AutoscalerPlan, CloudPlan


def autoscaler_plan(cloud: CloudPlan | None, settings: Document | None) -> AutoscalerPlan | None:
    """The plan for a valid gpu_cluster.autoscaler; None without a cloud, and for clouds with their own autoscaler."""
    if cloud is None or not PROVIDERS[cloud.provider].scaled_by_openshift:
        return None
    declared = settings or {}
    spec: Document = _without_nulls(declared.get("values") or {})
    for keys, path in SPEC_PATHS.items():
        value = get_nested(declared, *keys)
        if value is not None:
            set_nested(spec, path, copy.deepcopy(value))
    return AutoscalerPlan(cloud.options.get("namespace", MACHINE_API_NAMESPACE), spec)


def _without_nulls(document: Document) -> Document:
    """A copy without keys that have no value, which declare nothing."""
    return {
        key: _without_nulls(value) if isinstance(value, dict) else copy.deepcopy(value)
        for key, value in document.items()
        if value is not None
    }
