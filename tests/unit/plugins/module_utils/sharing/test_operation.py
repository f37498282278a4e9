# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The message about nodes that could not be changed."""

from __future__ import annotations

from unittest import mock

from ansible_collections.accel.gpu.plugins.module_utils.sharing.operation import SharingOperation
from ansible_collections.accel.gpu.plugins.module_utils.sharing.scope import EVERYTHING


def test_the_message_names_the_option_that_held_nodes_back() -> None:
    params = {"allow_release": [], "wait_timeout": 1}
    operation = SharingOperation(mock.Mock(params=params, check_mode=False), EVERYTHING)
    operation._rollout.done.failed["a"] = "why"
    operation._rollout.done.not_started |= {
        "b": "rollout.max_unavailable",
        "c": "rollout.max_unavailable",
        "x": "rollout.pause_on_failure",
    }
    assert operation._failures().splitlines() == [
        "1 node(s) could not be changed:",
        "a: why",
        "2 node(s) were not started (rollout.max_unavailable)",
        "1 node(s) were not started (rollout.pause_on_failure)",
    ]
