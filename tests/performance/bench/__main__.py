# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m tests.performance.bench`: runs all benchmarks and writes the page; exits with 1 if a limit is exceeded."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from lab.parts import OPENSHIFT as OPENSHIFT_PARTS
from lab.parts import of_openshift
from tests.labs import OPENSHIFT, Lab, build_lab, own_lab
from tests.programs import REPO

from . import awx, openshift
from .environment import environment
from .groups import CLUSTERS, CREATED_GROUPS, DELAY, FORKS, GROUPS, GROUPS_OF_ONE_CLUSTER, NodeGroupBenchmark
from .images import ImagesBenchmark
from .page import BenchEnvironment, page
from .results import Row
from .rolling import rolling
from .sharing import SharingBenchmark
from .site import rerun
from .vsphere import LAB_OPTIONS, VSphereBenchmark

# Number of pairs of runs in a round, by number of nodes.
PAIRS = {100: 3, 1000: 1, 5000: 1}
ROUNDS, UPLOADS = 2, 3
ROLLING = 100
PAGE = REPO / "docs" / "performance.md"
_VSPHERE = of_openshift(None, "VSphere")
Say = Callable[[str], None]


class Bench:
    """Runs the benchmarks and collects their results."""

    def __init__(self, say: Say) -> None:
        """Record the load average before the benchmark."""
        self.rows: list[Row] = []
        self.picture: str | None = None
        self.environment: BenchEnvironment | None = None
        self._load, self._say = os.getloadavg()[0], say

    def site(self, lab: Lab, _folder: Path) -> None:
        """Measure a re-run of the playbook site."""
        self.rows.append(rerun(lab, ROUNDS, 3, self._say))
        self.environment = self.environment or environment(lab, ROUNDS, self._load)

    def openshift(self, lab: Lab, folder: Path) -> None:
        """Measure a re-run of the playbook site on OpenShift."""
        self._say(f"OpenShift gets its operators, and {openshift.SETS} MachineSets with {openshift.NODES} nodes")
        path = openshift.inventory(lab, folder, openshift.SETS, openshift.NODES)
        openshift.converge(lab, path)
        self.rows.append(openshift.rerun(lab, path, ROUNDS, 3, self._say))
        self.environment = self.environment or environment(lab, ROUNDS, self._load)

    def sharing(self, lab: Lab, folder: Path) -> None:
        """Measure changes of nodes without pods."""
        benchmark = SharingBenchmark(lab, folder, ROUNDS, self._say)
        self.rows.append(benchmark.baseline(2))
        for nodes, pairs in PAIRS.items():
            node_bytes = benchmark.grow(nodes)
            self.rows.append(benchmark.change(pairs))
            if nodes == min(PAIRS):
                self.rows.append(benchmark.with_loop(self.rows[-1]))
        self.rows.append(benchmark.nothing(2))
        self.environment = environment(lab, ROUNDS, self._load, node_bytes)

    def rolling(self, lab: Lab, folder: Path) -> None:
        """Measure a rolling update."""
        row, self.picture = rolling(lab, folder, ROLLING, self._say)
        self.rows.append(row)
        self.environment = self.environment or environment(lab, ROUNDS, self._load)

    def images(self, lab: Lab, folder: Path) -> None:
        """Measure copies of images between registries."""
        benchmark = ImagesBenchmark(lab, folder, ROUNDS, self._say)
        self.rows += [benchmark.unchanged(), benchmark.large()]
        self.environment = self.environment or environment(lab, ROUNDS, self._load)

    def groups(self, lab: Lab, folder: Path) -> None:
        """Measure node groups of a cloud."""
        groups = NodeGroupBenchmark(lab, folder, ROUNDS, self._say)
        self.rows.append(groups.nothing(GROUPS_OF_ONE_CLUSTER, 2))
        self.rows.append(groups.created_in_parallel(CREATED_GROUPS, DELAY))
        self.rows += groups.fleet(CLUSTERS, GROUPS, FORKS)
        self.environment = self.environment or environment(lab, ROUNDS, self._load)

    def awx(self, lab: Lab, folder: Path) -> None:
        """Measure the slices of a job for many clusters."""
        self.rows += awx.slices(folder / "fleet", awx.CLUSTERS, awx.SLICES, self._say)
        self.environment = self.environment or environment(lab, ROUNDS, self._load)

    def vsphere(self, lab: Lab, folder: Path) -> None:
        """Measure templates in vCenter, and machines that are cloned from one."""
        benchmark = VSphereBenchmark(lab, folder, UPLOADS, self._say)
        self.rows += [*benchmark.uploads(), *benchmark.unchanged(), benchmark.machines()]
        self.environment = self.environment or environment(lab, ROUNDS, self._load)


def main() -> int:
    """Run the benchmarks, write the page, and return the exit status."""
    # The benchmarks with the parts of their lab; benchmarks with the same parts share a lab.
    kinds: dict[str, tuple[Callable[[Bench, Lab, Path], None], tuple[str, ...]]] = {
        "site": (Bench.site, ()),
        "openshift": (Bench.openshift, OPENSHIFT_PARTS),
        "sharing": (Bench.sharing, ()),
        "rolling": (Bench.rolling, ()),
        "groups": (Bench.groups, ("openstack",)),
        "images": (Bench.images, ("registry",)),
        "vsphere": (Bench.vsphere, _VSPHERE),
        "awx": (Bench.awx, ()),
    }
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--page", type=Path, help=f"output file (default: {PAGE}; with --only: none)")
    parser.add_argument(
        "--only", choices=kinds, action="append", help="run only these benchmarks; the page is then incomplete"
    )
    options = parser.parse_args()
    target: Path | None = options.page or (None if options.only else PAGE)
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"bench: {time.monotonic() - started:4.0f} s  {text}", file=sys.stderr, flush=True)

    desired = [kinds[name] for name in kinds if name in (options.only or kinds)]
    has_vsphere = any(parts == _VSPHERE for _measure, parts in desired)
    has_openshift = has_vsphere or any(parts == OPENSHIFT_PARTS for _measure, parts in desired)
    build_lab("kube", *(OPENSHIFT if has_openshift else ()), *(("vsphere",) if has_vsphere else ()))
    bench = Bench(say)
    with tempfile.TemporaryDirectory() as folder:
        for parts in dict.fromkeys(parts for _measure, parts in desired):
            with own_lab("bench", *parts, options=LAB_OPTIONS if parts == _VSPHERE else ()) as lab:
                for measure in (measure for measure, needed in desired if needed == parts):
                    measure(bench, lab, Path(folder))
    assert bench.environment is not None
    written = page(bench.environment, bench.rows)
    print(written)
    if target:
        target.write_text(written)
        if bench.picture:
            target.with_suffix(".svg").write_text(bench.picture)
        say(f"{target} was written")
    missed = [limit for row in bench.rows for limit in row.missed]
    say(f"{len(missed)} limits are exceeded")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
