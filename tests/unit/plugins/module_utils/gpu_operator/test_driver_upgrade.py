# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far a driver upgrade is, by the labels of the nodes."""

from __future__ import annotations

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.readiness import (
    DriverUpgrade,
    driver_upgrade,
    remedies,
)

STATE, SKIP = "nvidia.com/gpu-driver-upgrade-state", "nvidia.com/gpu-driver-upgrade.skip"


def nodes(**states: str) -> list[tuple[str, dict[str, str]]]:
    return [
        (name, {STATE: state.removesuffix("+skip"), **({SKIP: "true"} if state.endswith("+skip") else {})})
        for name, state in states.items()
    ]


def test_nodes_are_sorted_by_what_is_left_to_do() -> None:
    actual = driver_upgrade(
        [
            *nodes(
                a="upgrade-done", b="upgrade-required", c="drain-required", d="upgrade-failed", e="upgrade-done+skip"
            ),
            *nodes(f="upgrade-required+skip", g=""),
            ("h", {}),
        ]
    )
    assert actual == DriverUpgrade(("b",), {"c": "drain-required"}, ("d",), ("f",))
    assert actual.as_dict()["states"] == {"upgrade-required": 2, "drain-required": 1, "upgrade-failed": 1}
    assert actual.messages() == [
        "the driver upgrade failed on d",
        "the driver is being upgraded on c (drain-required)",
        "1 node(s) are waiting for the upgrade",
        f"the old driver is kept on f because of the label {SKIP}",
    ]
    assert driver_upgrade(nodes(a="upgrade-done", b="")) == DriverUpgrade()


STUCK = [
    ({"a": "upgrade-failed"}, 1, True),
    ({"a": "upgrade-failed", "b": "upgrade-required"}, 1, True),
    # The limit allows another upgrade beside the failed one.
    ({"a": "upgrade-failed", "b": "upgrade-required"}, 2, False),
    ({"a": "upgrade-failed", "b": "pod-restart-required"}, 1, False),
    ({"a": "upgrade-required"}, 1, False),
    ({"a": "upgrade-required+skip"}, 1, True),
    ({"a": "upgrade-required+skip", "b": "upgrade-required"}, 1, False),
    ({"a": "upgrade-done"}, 1, False),
]


@pytest.mark.parametrize(("states", "at_most", "stuck"), STUCK)
def test_whether_it_goes_on_by_itself(states: dict[str, str], at_most: int, stuck: bool) -> None:
    upgrade = driver_upgrade(nodes(**states))
    assert upgrade.is_stuck(at_most) is stuck
    assert bool(remedies(upgrade)) >= stuck


def test_the_remedy_names_nodes_and_label() -> None:
    (remedy,) = remedies(driver_upgrade(nodes(a="upgrade-failed", b="upgrade-failed")))
    assert f"kubectl label node --overwrite a b {STATE}=upgrade-required" in remedy
