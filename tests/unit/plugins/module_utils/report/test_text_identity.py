# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of a plan and of a report about the connected cluster."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.report.text import identity_paragraphs

KNOWN = {
    "server": "https://a:6443",
    "origin": "kubeconfig /k, context c",
    "uid": "u-1",
    "recorded_name": "prod",
    "name_to_record": None,
}


@pytest.mark.parametrize(
    ("identity", "kind", "expected"),
    [
        (None, "plan", []),
        (KNOWN, "report", [("cluster", "https://a:6443 (kubeconfig /k, context c); UID u-1; recorded as prod")]),
        (
            {**KNOWN, "uid": None, "recorded_name": None, "name_to_record": "prod"},
            "plan",
            [
                ("cluster", "https://a:6443 (kubeconfig /k, context c); UID not readable; no name recorded yet"),
                ("name", "the first run that changes the cluster records the name prod"),
            ],
        ),
        (
            {**KNOWN, "name_to_record": "production"},
            "plan",
            [
                ("cluster", "https://a:6443 (kubeconfig /k, context c); UID u-1; recorded as prod"),
                ("name", "the next run that changes the cluster renames it from prod to production"),
            ],
        ),
    ],
)
def test_lines(identity: dict[str, Any] | None, kind: str, expected: list[tuple[str, str]]) -> None:
    assert list(identity_paragraphs({"identity": identity}, kind)) == expected
