# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The MIG geometries of all models, and the configuration that NVIDIA's MIG manager generates for a node."""

from __future__ import annotations

import typing as t

from ansible_collections.accel.gpu.plugins.module_utils.catalog import mig as geometries
from ansible_collections.accel.gpu.plugins.module_utils.catalog.mig import Geometry
from ansible_collections.accel.gpu.plugins.module_utils.catalog.models import MODELS
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes import mig_parted


def geometry_of(model: str) -> Geometry:
    """The geometry of a model with MIG, by its key in the catalog."""
    geometry = geometries.geometry(model)
    assert geometry, model
    return geometry


# The geometries of all models with MIG.
GEOMETRIES = {model.key: geometry_of(model.key) for model in MODELS if model.mig_capable}


def generated_entries(model: str) -> dict[str, t.Any]:
    """The entries of mig-parted v0.15.0 (pkg/mig/builder) for a node with this model, by its key in the catalog."""
    geometry = geometry_of(model)
    actual: dict[str, t.Any] = {
        "all-disabled": [{"devices": "all", "mig-enabled": False}],
        "all-enabled": [{"devices": "all", "mig-enabled": True, "mig-devices": {}}],
    }
    cut = {f"all-{item.name.replace('+', '.')}": {item.name: item.max_count} for item in geometry.profiles}
    for name, devices in {**cut, "all-balanced": dict(geometry.balanced)}.items():
        actual[name] = [{"devices": "all", "mig-enabled": True, "mig-devices": devices}]
    return actual


def generated_of(node: str, entries: t.Mapping[str, t.Any], namespace: str = "gpu-operator") -> dict[str, t.Any]:
    """The ConfigMap of a node."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"{node}-mig-config",
            "namespace": namespace,
            "labels": {"app.kubernetes.io/component": "nvidia-mig-manager", "nvidia.com/node-name": node},
        },
        "data": {mig_parted.KEY: mig_parted.render_configuration(dict(entries))},
    }
