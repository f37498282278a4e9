# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Determines whether OpenShift replaces the template of a MachineSet with its own boot image, which has no GPU (pure).

Sources: openshift/machine-config-operator, pkg/controller/common/featuregates.go (platforms and releases) and pkg/controller/bootimage (ms_helpers.go,
vsphere_helpers.go). On vSphere, OpenShift replaces a template in the cluster's folder with the release's image, which gets the same name. If the template
is in a different folder, OpenShift changes the MachineSet so that it uses the release's image.
"""

from __future__ import annotations

import typing as t

from ...catalog.machine_api import BOOT_IMAGES_BY_DEFAULT, BOOT_IMAGES_SINCE
from ...catalog.releases import Release
from ...common.nested import get_nested

_GROUP = "machine.openshift.io"


def replaces_templates(
    machine_configuration: t.Mapping[str, t.Any] | None, release: Release, labels: t.Mapping[str, str]
) -> bool:
    """Whether OpenShift manages the templates of vSphere MachineSets with these labels in this release."""
    if release < BOOT_IMAGES_SINCE:
        return False
    managers = get_nested(machine_configuration, "spec", "managedBootImages", "machineManagers") or []
    for manager in managers:
        if manager.get("resource") == "machinesets" and manager.get("apiGroup") == _GROUP:
            mode = get_nested(manager, "selection", "mode")
            selected = get_nested(manager, "selection", "partial", "machineResourceSelector", "matchLabels") or {}
            return mode == "All" or (mode == "Partial" and selected.items() <= labels.items())
    return release >= BOOT_IMAGES_BY_DEFAULT


def warning(name: str, template: str) -> str:
    """The warning that OpenShift would replace the template of this node group's MachineSet."""
    return (
        f"Node group {name}: OpenShift manages the boot images of its MachineSet and would replace template {template} with its own image, "
        "which has no GPU. In MachineConfiguration cluster, set spec.managedBootImages for machinesets to the mode None, or to Partial with a "
        "label that this MachineSet does not have."
    )
