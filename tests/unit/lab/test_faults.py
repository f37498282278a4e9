# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command, the simulator and the documentation have the same faults."""

from __future__ import annotations

import re

from lab import faults
from lab.layout import LAB, REPO


def test_simulator_has_all_node_faults() -> None:
    names = (
        (LAB / "sim" / "rules" / "hardware.go")
        .read_text()
        .partition("// Names of the faults.\n")[2]
        .partition(")\n")[0]
    )
    assert set(re.findall(r'= "([a-z-]+)"', names)) == set(faults.NODE_FAULTS)


def test_documentation_has_a_row_for_every_fault() -> None:
    table = (REPO / "docs" / "lab.md").read_text().partition("\n## Faults\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([a-z-]+)", row)}
    assert named == {*faults.NODE_FAULTS, *faults.CLUSTER_FAULTS}
