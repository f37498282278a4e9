# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds configurations of NVIDIA's device plugin, and the names of their entries in the ConfigMap."""

from __future__ import annotations

import hashlib
import json
import re
import typing as t

from ..common.nested import set_nested
from ..sharing_modes.base import SharingMode
from ..sharing_modes.modes import MODES
from ..sharing_modes.plugin_settings import setting_paths
from ..sharing_modes.sharing import Sharing

_MANAGED_NAME = re.compile(rf"({'|'.join(MODES)})-(?:.+-)?[0-9a-f]{{8}}")


# The plugin's own values of flags (k8s-device-plugin cmd/nvidia-device-plugin/main.go, cmd/gpu-feature-discovery/main.go, and api/config/v1/consts.go), except
# those that differ between its releases. A flag that has this value has no effect.
_FLAG_DEFAULTS: dict[str, t.Any] = {
    "failOnInitError": True,
    "mpsRoot": "",
    "nvidiaDriverRoot": "/",
    "nvidiaDevRoot": "",
    "deviceDiscoveryStrategy": "auto",
    "plugin": {
        "passDeviceSpecs": False,
        "deviceListStrategy": ["envvar"],
        "deviceIDStrategy": "uuid",
        "cdiAnnotationPrefix": "cdi.k8s.io/",
        "nvidiaCTKPath": "/usr/bin/nvidia-ctk",
        "containerDriverRoot": "/driver-root",
    },
    "gfd": {
        "oneshot": False,
        "noTimestamp": False,
        "sleepInterval": "60s",
        "outputFile": "/etc/kubernetes/node-feature-discovery/features.d/gfd",
        "machineTypeFile": "/sys/class/dmi/id/product_name",
    },
}


def effective_flags(flags: t.Mapping[str, t.Any], defaults: t.Mapping[str, t.Any] | None = None) -> dict[str, t.Any]:
    """The flags of a configuration that differ from the plugin's own values, or from the other defaults if they are given."""
    defaults = _FLAG_DEFAULTS if defaults is None else defaults
    effective: dict[str, t.Any] = {}
    for key, value in flags.items():
        default = defaults.get(key)
        if isinstance(value, dict):
            value = effective_flags(value, default if isinstance(default, dict) else {})
        elif isinstance(default, list) and isinstance(value, str):
            # The plugin accepts a list and a single value.
            value = [value]
        # In Python, 0 equals False.
        if value not in (None, {}) and (value != default or isinstance(value, bool) != isinstance(default, bool)):
            effective[key] = value
    return effective


def config(sharing: Sharing) -> dict[str, t.Any]:
    """A configuration in the format of k8s-device-plugin's api/config/v1. For whole GPUs without other settings, it contains only the version."""
    mode = sharing.definition
    flags = mode.plugin_flags(sharing)
    content: dict[str, t.Any] = {"version": "v1", **({"flags": flags} if flags else {})}
    for key, path in setting_paths(mode.name, mode.plugin_key if sharing.shared else "").items():
        if (value := getattr(sharing, key)) is not None:
            set_nested(content, path, value)
    if sharing.shared:
        resources = [{"name": name, "replicas": sharing.replicas} for name in mode.shared_resources(sharing)]
        set_nested(content, ("sharing", mode.plugin_key, "resources"), resources)
    return content


def entry_name(sharing: Sharing) -> str:
    """The ConfigMap key of a configuration. The key is readable, is a valid label value, and differs for different content.

    The plugin does not read a key again after the content of the key has changed, but it reads a new key that the node's label selects.
    """
    digest = hashlib.sha256(json.dumps(config(sharing), sort_keys=True).encode()).hexdigest()[:8]
    replicas = str(sharing.replicas) if sharing.shared else ""
    return "-".join(filter(None, (sharing.mode, sharing.strategy, replicas, digest)))


def is_managed(name: str) -> bool:
    """Whether an entry's name has the format of entry_name()."""
    return mode_of(name) is not None


def mode_of(name: str) -> SharingMode | None:
    """The sharing mode of an entry whose name has the format of entry_name(); None for other names."""
    match = _MANAGED_NAME.fullmatch(name)
    return MODES[match[1]] if match else None
