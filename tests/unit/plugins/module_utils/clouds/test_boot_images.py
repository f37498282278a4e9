# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether OpenShift replaces the template of a MachineSet of vSphere."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.clouds.machineset_groups import replaces_templates, warning


def configuration(selection: dict[str, t.Any], resource: str = "machinesets") -> dict[str, t.Any]:
    manager = {"resource": resource, "apiGroup": "machine.openshift.io", "selection": selection}
    return {"spec": {"managedBootImages": {"machineManagers": [manager]}}}


PARTIAL = {"mode": "Partial", "partial": {"machineResourceSelector": {"matchLabels": {"update": "yes"}}}}


@pytest.mark.parametrize(
    ("actual", "release", "labels", "replaced"),
    [
        (None, (4, 19), {}, False),
        (None, (4, 21), {}, False),
        (None, (4, 22), {}, True),
        (None, (5, 0), {}, True),
        ({"spec": {}}, (5, 0), {}, True),
        (configuration({"mode": "None"}), (5, 0), {}, False),
        (configuration({"mode": "All"}), (4, 20), {}, True),
        (configuration({"mode": "All"}), (4, 18), {}, False),
        (configuration(PARTIAL), (5, 0), {"update": "yes", "a": "b"}, True),
        (configuration(PARTIAL), (5, 0), {}, False),
        (configuration({"mode": "None"}, "controlplanemachinesets"), (5, 0), {}, True),
    ],
)
def test_replaced_templates(actual: t.Any, release: tuple[int, int], labels: dict[str, str], replaced: bool) -> None:
    assert replaces_templates(actual, release, labels) == replaced


def test_the_warning_names_the_remedy() -> None:
    assert "template rhcos-a100" in warning("train", "rhcos-a100")
    assert "to the mode None, or to Partial" in warning("train", "rhcos-a100")
