# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m tests.performance.bench`: measures everything once and writes the page; ends with 1 when a limit is missed."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.labs import Lab, build_lab, own_lab
from tests.programs import REPO

from .groups import CLUSTERS, CREATED, DELAY, FORKS, GROUPS, MANY, NodeGroups
from .page import Setting, page
from .profile import Profiles
from .rolling import rolling
from .rows import Row
from .setting import setting

# How many pairs of runs a round has, by number of nodes: few where one takes long.
PAIRS = {100: 3, 1000: 1, 5000: 1}
ROUNDS = 2
ROLLING = 100
PAGE = REPO / "docs" / "performance.md"
Say = Callable[[str], None]


class Bench:
    """What was found so far."""

    def __init__(self, say: Say) -> None:
        """Note how busy the machine is before anything of this is started."""
        self.rows: list[Row] = []
        self.picture: str | None = None
        self.setting: Setting | None = None
        self._load, self._say = os.getloadavg()[0], say

    def profile(self, lab: Lab, folder: Path) -> None:
        """Changes of nodes on which nothing runs."""
        profiles = Profiles(lab, folder, ROUNDS, self._say)
        self.rows.append(profiles.floor(2))
        for nodes, pairs in PAIRS.items():
            node_bytes = profiles.grow(nodes)
            self.rows.append(profiles.change(pairs))
            if nodes == min(PAIRS):
                self.rows.append(profiles.one_by_one(self.rows[-1]))
        self.rows.append(profiles.nothing(2))
        self.setting = setting(lab, ROUNDS, self._load, node_bytes)

    def rolling(self, lab: Lab, folder: Path) -> None:
        """A change of nodes that are in use."""
        row, self.picture = rolling(lab, folder, ROLLING, self._say)
        self.rows.append(row)
        self.setting = self.setting or setting(lab, ROUNDS, self._load)

    def groups(self, lab: Lab, folder: Path) -> None:
        """Node groups of a cloud."""
        groups = NodeGroups(lab, folder, ROUNDS, self._say)
        self.rows.append(groups.nothing(MANY, 2))
        self.rows.append(groups.side_by_side(CREATED, DELAY))
        self.rows += groups.fleet(CLUSTERS, GROUPS, FORKS)
        self.setting = self.setting or setting(lab, ROUNDS, self._load)


def main() -> int:
    """Measure, write, judge."""
    # Rows, and the parts that their lab has: those that have none share a lab.
    kinds: dict[str, tuple[Callable[[Bench, Lab, Path], None], tuple[str, ...]]] = {
        "profile": (Bench.profile, ()),
        "rolling": (Bench.rolling, ()),
        "groups": (Bench.groups, ("openstack",)),
    }
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--page", type=Path, help=f"where the page is written (default: {PAGE}, with --only: nowhere)")
    parser.add_argument(
        "--only", choices=kinds, action="append", help="measure these rows alone, which is no whole page"
    )
    options = parser.parse_args()
    target: Path | None = options.page or (None if options.only else PAGE)
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"bench: {time.monotonic() - started:4.0f} s  {text}", file=sys.stderr, flush=True)

    build_lab()
    bench = Bench(say)
    wanted = [kinds[name] for name in kinds if name in (options.only or kinds)]
    with tempfile.TemporaryDirectory() as folder:
        for parts in dict.fromkeys(parts for _measure, parts in wanted):
            with own_lab("bench", *parts) as lab:
                for measure in (measure for measure, of in wanted if of == parts):
                    measure(bench, lab, Path(folder))
    assert bench.setting is not None
    written = page(bench.setting, bench.rows)
    print(written)
    if target:
        target.write_text(written)
        if bench.picture:
            target.with_suffix(".svg").write_text(bench.picture)
        say(f"{target} is written")
    missed = [limit for row in bench.rows for limit in row.missed]
    say(f"{len(missed)} limits are missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
