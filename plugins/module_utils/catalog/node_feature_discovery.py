# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration of NFD's workers, for NFD's chart and for the NodeFeatureDiscovery of OpenShift."""

from __future__ import annotations

import typing as t

from .names import NFD_PREFIX, NOUVEAU_LABEL

# The classes of NVIDIA's own chart (gpu-operator v25.10.1, deployments/gpu-operator/values.yaml): network adapters, and the two classes of NVIDIA's GPUs,
# VGA and 3D controllers. The operator recognizes only these two (controllers/state_manager.go, pci-0300_10de and pci-0302_10de). NFD compares the
# beginning of a class (source/pci/pci.go), so "02" includes the next two. The sample configuration of OpenShift's NFD operator also lists "03" (all
# display controllers) and "12" (accelerators of other vendors). The collection does not use these labels.
_PCI_CLASSES = ("02", "0200", "0207", "0300", "0302")
# Labels nodes on which nouveau is loaded, the kernel module that prevents NVIDIA's modules from loading. NFD publishes loaded modules only by custom rules
# (NFD's "Customization guide").
_NOUVEAU_RULE: dict[str, t.Any] = {
    "name": "nouveau",
    "labels": {NOUVEAU_LABEL.removeprefix(NFD_PREFIX): "true"},
    "matchFeatures": [{"feature": "kernel.loadedmodule", "matchExpressions": {"nouveau": {"op": "Exists"}}}],
}
# `vendor` alone yields the label that the GPU operator reads, pci-10de.present.
WORKER_CONFIG: dict[str, t.Any] = {
    "sources": {
        "custom": [_NOUVEAU_RULE],
        "pci": {"deviceClassWhitelist": list(_PCI_CLASSES), "deviceLabelFields": ["vendor"]},
    }
}
