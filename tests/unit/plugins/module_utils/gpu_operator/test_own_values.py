# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Helm values that keep the names of the collection's ConfigMaps."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.names import DEVICE_PLUGIN_CONFIGMAP, MIG_CONFIGMAP
from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.upgrade import (
    endangered_own_values,
    recorded_own_values,
    without_own_values,
)

Object = dict[str, Any]


def mig(name: str | None, **more: Any) -> Object:
    return {"migManager": {"config": {**({} if name is None else {"name": name}), **more}}}


def plugin(name: str) -> Object:
    return {"devicePlugin": {"config": {"name": name}}}


OWN = mig(MIG_CONFIGMAP)


DRIVERS: Object = {"driver": {"nvidiaDriverCRD": {"enabled": True, "deployDefaultCR": False}}}
# The user's own: with the chart's object.
OF_CHART: Object = {"driver": {"nvidiaDriverCRD": {"enabled": True}}}


@pytest.mark.parametrize(
    ("before", "after", "values"),
    [
        (mig(MIG_CONFIGMAP, default="all-disabled"), mig(None, default="all-disabled"), OWN),
        (OWN, mig("default-mig-parted-config"), OWN),
        (OWN, {}, OWN),
        (OWN, OWN, {}),
        (mig("default-mig-parted-config"), mig(None), {}),
        ({}, OWN, {}),
        ({**OWN, **plugin(DEVICE_PLUGIN_CONFIGMAP)}, plugin("other"), {**OWN, **plugin(DEVICE_PLUGIN_CONFIGMAP)}),
    ],
)
def test_names_that_an_upgrade_would_reset(before: Object, after: Object, values: Object) -> None:
    assert endangered_own_values(before, after) == values


@pytest.mark.parametrize(
    ("config", "own", "rest"),
    [
        ({}, {}, {}),
        (OWN, OWN, {}),
        ({**OWN, "nfd": {"enabled": False}}, OWN, {"nfd": {"enabled": False}}),
        (mig(MIG_CONFIGMAP, create=False), OWN, mig(None, create=False)),
        (mig("theirs"), {}, mig("theirs")),
        (plugin("theirs"), {}, plugin("theirs")),
        ({"migManager": None}, {}, {"migManager": None}),
        ({**DRIVERS, "nfd": {}}, DRIVERS, {"nfd": {}}),
        (OF_CHART, {}, OF_CHART),
    ],
)
def test_values_of_the_release_that_keep_the_names(config: Object, own: Object, rest: Object) -> None:
    assert recorded_own_values(config) == own
    assert without_own_values(config) == rest
