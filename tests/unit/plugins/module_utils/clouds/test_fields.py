# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How Magnum spells its labels, and the microversion of a field."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.clouds.magnum_clusters import magnum_labels
from ansible_collections.accel.gpu.plugins.module_utils.clouds.magnum_groups import FIELDS


def test_fields_that_an_older_magnum_does_not_have() -> None:
    assert FIELDS.newer_than((1, 13)) == ("node_labels", "node_taints")
    assert FIELDS.newer_than((1, 14)) == ()


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "true"), ("True", "true"), (False, "false"), (3, "3"), (1.5, "1.5"), ("v1.30", "v1.30"), ("", "")],
)
def test_magnum_labels_are_text(value: Any, text: str) -> None:
    assert magnum_labels({"a": value}) == {"a": text}
