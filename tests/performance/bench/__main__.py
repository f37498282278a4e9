# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m tests.performance.bench`: measures everything once and writes the page; ends with 1 when a limit is missed."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.labs import build_lab, own_lab
from tests.programs import REPO

from .page import page
from .profile import Profiles
from .rolling import rolling
from .setting import setting

# How many pairs of runs a round has, by number of nodes: few where one takes long.
PAIRS = {100: 3, 1000: 1, 5000: 1}
ROUNDS = 2
ROLLING = 100


def main() -> int:
    """Measure, write, judge."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--page", type=Path, default=REPO / "docs" / "performance.md")
    options = parser.parse_args()
    load, started = os.getloadavg()[0], time.monotonic()

    def say(text: str) -> None:
        print(f"bench: {time.monotonic() - started:4.0f} s  {text}", file=sys.stderr, flush=True)

    build_lab()
    rows = []
    with tempfile.TemporaryDirectory() as folder, own_lab("bench") as lab:
        profiles = Profiles(lab, Path(folder), ROUNDS, say)
        rows.append(profiles.floor(2))
        for nodes, pairs in PAIRS.items():
            node_bytes = profiles.grow(nodes)
            rows.append(profiles.change(pairs))
            if nodes == min(PAIRS):
                rows.append(profiles.one_by_one(rows[-1]))
        rows.append(profiles.nothing(2))
        row, picture = rolling(lab, Path(folder), ROLLING, say)
        rows.append(row)
        written = page(setting(lab, node_bytes, ROUNDS, load), rows)
    options.page.write_text(written)
    options.page.with_suffix(".svg").write_text(picture)
    print(written)
    missed = [limit for row in rows for limit in row.missed]
    say(f"{options.page} is written; {len(missed)} limits are missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
