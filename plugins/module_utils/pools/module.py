# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Base class of the Kubernetes modules that read the pools. Other modules do not need the code that derives a plan."""

from __future__ import annotations

import functools
import typing as t

from ..core.module import ArgumentSpec, merge_specs
from ..kube.module import GpuModule
from .derive import derive

if t.TYPE_CHECKING:
    from .plan import Plan

VARIABLES: ArgumentSpec = {
    "gpu_defaults": {"type": "dict"},
    "gpu_pools": {"type": "list", "elements": "dict"},
}


class PlanModule(GpuModule):
    """A module for a cluster with the options `gpu_defaults` and `gpu_pools`."""

    def __init__(self, argument_spec: ArgumentSpec | None = None, **kwargs: t.Any) -> None:
        """Compose the argument spec in the same way as GpuModule, which documents the other parameters."""
        super().__init__(merge_specs(VARIABLES, argument_spec or {}), **kwargs)

    @functools.cached_property
    def plan(self) -> Plan:
        """The plan derived from the variables; raises InvalidVariables with all problems."""
        if self.params["gpu_cluster"] is None:
            self.fail_json(msg="missing required arguments: gpu_cluster")
        return derive(self.params["gpu_cluster"], self.params.get("gpu_defaults") or {}, self.params["gpu_pools"])
