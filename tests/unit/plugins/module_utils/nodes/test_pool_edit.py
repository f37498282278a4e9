# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rollout settings that a node carries for its release: only what differs, and nothing that is not sound."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.nodes.pool_edit import (
    DEFAULT_ROLLOUT,
    membership_edit,
    recorded_rollout,
    rollout_annotation,
)
from tests.helpers.fleet import node, pool, rollout

ANNOTATION = "accel.gpu/rollout"


def test_defaults_are_not_recorded() -> None:
    assert rollout_annotation(rollout()) is None
    assert recorded_rollout(node()) == DEFAULT_ROLLOUT == rollout()


@pytest.mark.parametrize(
    "written",
    [
        {"drain": "none"},
        {"drain": "all", "force": True, "grace_period": 0, "drain_timeout": 3600},
        {"max_unavailable": "25%", "limit": 3, "order": "name"},
        {"on_failure": "leave", "pause_on_failure": False},
    ],
)
def test_what_differs_is_recorded_and_read_again(written: dict[str, t.Any]) -> None:
    text = rollout_annotation(rollout(**written))
    assert json.loads(text or "") == written
    assert recorded_rollout(node(annotations={ANNOTATION: text})) == rollout(**written)


def test_a_command_is_never_recorded_and_never_read() -> None:
    reboot = {"command": ["ssh", "{node}", "reboot"]}
    assert rollout_annotation(rollout(reboot=reboot)) is None
    assert recorded_rollout(node(annotations={ANNOTATION: json.dumps({"reboot": reboot})})) == DEFAULT_ROLLOUT


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "null", '{"drain": "some"}', '{"unknown": 1}', '{"drain_timeout": 0}', '{"limit": "x"}']
)
def test_what_is_not_sound_counts_as_not_recorded(text: str) -> None:
    assert recorded_rollout(node(annotations={ANNOTATION: text})) == DEFAULT_ROLLOUT


def test_the_record_is_part_of_the_comparison() -> None:
    patient = pool(rollout=rollout(drain="none"))
    first = membership_edit(node(), patient)
    assert first is not None
    metadata = first.patch["metadata"]
    assert metadata["annotations"][ANNOTATION] == '{"drain": "none"}'
    done = node(
        labels=metadata["labels"], annotations={key: value for key, value in metadata["annotations"].items() if value}
    )
    assert membership_edit(done, patient) is None
    changed = membership_edit(done, pool(rollout=rollout(drain="all")))
    assert changed is not None
    assert changed.patch == {"metadata": {"annotations": {ANNOTATION: '{"drain": "all"}'}}}
    back = membership_edit(done, pool())
    assert back is not None
    assert back.patch == {"metadata": {"annotations": {ANNOTATION: None}}}
