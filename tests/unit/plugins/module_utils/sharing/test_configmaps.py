# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Entries are added before a label names them, and removed only when no node names them."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.sharing.change_plan import WHOLE, device_plugin_entries


def _configmap(**managers: dict[str, str]) -> dict[str, t.Any]:
    """A ConfigMap whose keys belong to these field managers."""
    data: dict[str, str] = {}
    fields = []
    for manager, owned in managers.items():
        data.update(owned)
        fields.append({"manager": manager.replace("_", "."), "fieldsV1": {"f:data": {f"f:{key}": {} for key in owned}}})
    return {"data": data, "metadata": {"managedFields": fields}}


CASES: list[tuple[str, dict[str, t.Any] | None, set[str], dict[str, str], list[str], list[str]]] = [
    ("no ConfigMap", None, {"new"}, {"new": "2"}, ["new"], []),
    ("as wanted", _configmap(accel_gpu={"new": "2"}), {"new"}, {}, ["new"], []),
    ("old one unnamed", _configmap(accel_gpu={"old": "1"}), {"new"}, {"new": "2"}, ["new"], ["old"]),
    ("old one named", _configmap(accel_gpu={"old": "1"}), {"new", "old"}, {"new": "2"}, ["new", "old"], []),
    ("foreign entry stays", _configmap(accel_gpu={"new": "2"}, helm={"x": "1"}), {"new"}, {}, ["new", "x"], []),
    ("shared key stays", _configmap(accel_gpu={"new": "2", "x": "1"}, kubectl={"x": "1"}), set(), {}, ["new", "x"], []),
    ("edited by others", _configmap(kubectl={"new": "9"}), {"new"}, {"new": "2"}, ["new"], []),
]


@pytest.mark.parametrize(
    ("configmap", "named", "added", "after", "removed"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_entries(
    configmap: dict[str, t.Any] | None, named: set[str], added: dict[str, str], after: list[str], removed: list[str]
) -> None:
    result = device_plugin_entries({"new": "2"}, named, configmap)
    assert {key: result.after[key] for key in result.added} == added
    assert sorted(result.after) == after
    assert list(result.removed) == removed
    assert result.changed == bool(added or removed)
    # The first apply contains every own entry that a label may name at that time.
    assert set(result.applied) >= set(added) | set(removed)


def test_a_mounted_configmap_never_becomes_empty() -> None:
    (whole,) = WHOLE
    managed = [{"manager": "accel.gpu", "fieldsV1": {"f:data": {"f:old": {}}}}]
    released = device_plugin_entries({}, set(), {"data": {"old": "1"}, "metadata": {"managedFields": managed}})
    assert (list(released.added), released.removed, list(released.after)) == ([whole], ("old",), [whole])
    managed = [{"manager": "accel.gpu", "fieldsV1": {"f:data": {f"f:{whole}": {}}}}]
    assert not device_plugin_entries({}, set(), {"data": dict(WHOLE), "metadata": {"managedFields": managed}}).changed
    # A ConfigMap that is already empty.
    assert list(device_plugin_entries({}, set(), {"metadata": {}}).added) == [whole]
    # A foreign entry, or one that a node names, is enough; without a ConfigMap there is nothing to mount.
    assert not device_plugin_entries({}, set(), {"data": {"theirs": "1"}, "metadata": {}}).changed
    assert not device_plugin_entries({}, {"old"}, {"data": {"old": "1"}, "metadata": {"managedFields": [{"manager": "accel.gpu", "fieldsV1": {"f:data": {"f:old": {}}}}]}}).changed  # fmt: skip
    assert not device_plugin_entries({}, set(), None).changed
