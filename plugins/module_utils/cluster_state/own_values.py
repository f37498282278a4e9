# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Selects the Helm values with which an upgrade preserves the names of the collection's ConfigMaps in the ClusterPolicy (pure).

The collection sets these names in the ClusterPolicy, but not in the values of the Helm release. If the manifests of two charts differ in one of these
fields, Helm would reset it. For example, charts since v26.3 render migManager.config.name only if a value sets it. The operands would restart without
their configuration, and would restart again once the collection has restored the name.
"""

from __future__ import annotations

import typing as t

from ..catalog.names import DEVICE_PLUGIN_CONFIGMAP, MIG_CONFIGMAP
from ..common.nested import get_nested, set_nested

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]

# The fields have the same paths in the ClusterPolicy, below spec, and in the values of the chart.
_NAMES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("devicePlugin", "config", "name"), DEVICE_PLUGIN_CONFIGMAP),
    (("migManager", "config", "name"), MIG_CONFIGMAP),
)
# These values make NVIDIADriver objects describe the driver, without the chart's own object, which would select every node.
_DRIVER_OBJECTS = ("driver", "nvidiaDriverCRD")
DRIVER_OBJECT_VALUES: t.Mapping[str, bool] = {"enabled": True, "deployDefaultCR": False}


def recorded_own_values(config: Document) -> Object:
    """The values of a Helm release that an earlier upgrade has added to keep the names, and DRIVER_OBJECT_VALUES if the installation has set them.

    Without DRIVER_OBJECT_VALUES, the ClusterPolicy's driver would replace the driver of every node once no pool declares `driver`.
    """
    values = _values(lambda path, name: bool(get_nested(config, *path) == name))
    if get_nested(config, *_DRIVER_OBJECTS) == DRIVER_OBJECT_VALUES:
        set_nested(values, _DRIVER_OBJECTS, dict(DRIVER_OBJECT_VALUES))
    return values


def endangered_own_values(before: Document, after: Document) -> Object:
    """The values that preserve those names that the policy's spec contains before an upgrade, but would not contain after it."""
    return _values(lambda path, name: get_nested(before, *path) == name != get_nested(after, *path))


def without_own_values(config: Document) -> Object:
    """The values of a Helm release without the values that recorded_own_values() returns; maps that become empty are removed."""
    result: Object = dict(config)
    for path, name in _NAMES:
        if get_nested(result, *path) == name:
            result = _without(result, path)
    if get_nested(result, *_DRIVER_OBJECTS) == DRIVER_OBJECT_VALUES:
        result = _without(result, _DRIVER_OBJECTS)
    return result


def _values(is_kept: t.Callable[[tuple[str, ...], str], bool]) -> Object:
    values: Object = {}
    for path, name in _NAMES:
        if is_kept(path, name):
            set_nested(values, path, name)
    return values


def _without(values: Document, path: tuple[str, ...]) -> Object:
    below = {} if len(path) == 1 else _without(values[path[0]], path[1:])
    rest = {key: value for key, value in values.items() if key != path[0]}
    return {**rest, path[0]: below} if below else rest
