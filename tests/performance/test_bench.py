# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make bench` on a few nodes, node groups and templates: its measurements are complete, and its limits on requests are met."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.parts import OPENSHIFT as OPENSHIFT_PARTS
from tests.labs import OPENSHIFT, Lab, build_lab, own_lab
from tests.performance.bench import awx, openshift
from tests.performance.bench.environment import environment
from tests.performance.bench.groups import CONSTANT_REQUESTS, NodeGroupBenchmark
from tests.performance.bench.page import page
from tests.performance.bench.results import all_runs
from tests.performance.bench.sharing import SharingBenchmark
from tests.performance.bench.vsphere import LAB_OPTIONS, VSphereBenchmark

NODES, GROUPS, CLUSTERS = 5, 3, 2

pytestmark = [pytest.mark.soak, pytest.mark.alone]


@pytest.fixture
def sharing(lab: Lab, tmp_path: Path) -> Iterator[SharingBenchmark]:
    """A lab without machines, as in the benchmark."""
    yield SharingBenchmark(lab, tmp_path, 2, print)
    lab.reset()


@pytest.mark.usual(60)
def test_on_a_few_nodes(sharing: SharingBenchmark, lab: Lab) -> None:
    size = sharing.grow(NODES)
    assert size > 10_000
    change, nothing = sharing.change(1), sharing.nothing(1)
    assert not change.missed
    assert not nothing.missed
    assert {run.writes for run in all_runs(change.other_runs)} == {NODES}
    assert all(run.cpu_seconds and run.mib and run.cpu_seconds > 0.1 for run in all_runs(change.own_runs))
    assert all(run.writes > NODES for run in all_runs(change.own_runs))
    written = page(environment(lab, 2, 0.0, size), [change, nothing])
    assert "| change of shares | 5 nodes |" in written
    assert "All" in written


@pytest.mark.usual(200)
def test_on_openshift_with_a_few_machinesets(tmp_path: Path) -> None:
    build_lab("kube", *OPENSHIFT)
    with own_lab("bench", *OPENSHIFT_PARTS) as lab:
        path = openshift.inventory(lab, tmp_path, GROUPS, NODES)
        openshift.converge(lab, path)
        row = openshift.rerun(lab, path, 1, 1, print)
        written = page(environment(lab, 1, 0.0), [row])
    assert not row.missed
    assert row.count == NODES
    runs = all_runs(row.own_runs)
    assert all(run.requests > len(run.modules) for run in runs)
    assert all(run.module_seconds and run.module_seconds < run.seconds for run in runs)
    assert {"accel.gpu.machineset", "accel.gpu.olm_subscription", "accel.gpu.gpu_info"} <= set(runs[0].modules)
    assert f"| site, nothing to change, OpenShift with {GROUPS} MachineSets | {NODES} nodes |" in written


@pytest.mark.usual(120)
def test_on_vsphere_with_small_images_and_a_few_templates(tmp_path: Path) -> None:
    build_lab("kube", *OPENSHIFT, "vsphere")
    with own_lab("bench", options=LAB_OPTIONS) as lab:
        benchmark = VSphereBenchmark(lab, tmp_path, 1, print)
        uploads = benchmark.uploads((16, 64))
        templates, profiles = benchmark.unchanged(2, 4)
        machines = benchmark.machines(1)
        written = page(environment(lab, 1, 0.0), [*uploads, templates, profiles, machines])
    # Neither the duration nor the buffers of such small images are those of large ones.
    assert [limit for row in uploads for limit in row.missed if limit.name == "MiB"] == []
    assert [templates.missed, profiles.missed, machines.missed] == [(), (), ()]
    assert 0 < max(run.requests for run in all_runs(templates.own_runs)) <= 12
    assert max(run.requests for run in all_runs(profiles.own_runs)) > 4
    assert "| new MachineSet on vSphere | 1 machines |" in written


@pytest.mark.usual(200)
def test_on_a_few_node_groups(tmp_path: Path) -> None:
    with own_lab("bench", "openstack") as lab:
        groups = NodeGroupBenchmark(lab, tmp_path, 1, print)
        nothing = groups.nothing(GROUPS, 1)
        created = groups.created_in_parallel(GROUPS, 1)
        fleet = groups.fleet(CLUSTERS, GROUPS, (1, CLUSTERS))
        written = page(environment(lab, 1, 0.0), [nothing, created, *fleet])
    assert not nothing.missed
    assert {run.requests for run in all_runs(nothing.own_runs)} == {GROUPS + CONSTANT_REQUESTS}
    assert all(run.requests for run in all_runs(nothing.other_runs))
    assert {run.writes for run in all_runs(created.own_runs)} == {GROUPS}
    assert {run.writes for run in all_runs(created.other_runs)} == {1}
    assert [{run.requests for run in all_runs(row.own_runs)} for row in fleet] == [
        {CLUSTERS * (GROUPS + CONSTANT_REQUESTS)}
    ] * 2
    assert {run.requests for row in fleet for run in all_runs(row.other_runs)} == {GROUPS + CONSTANT_REQUESTS}
    assert "| nothing to change | 3 node groups |" in written
    assert "magnum 23" in written


@pytest.mark.usual(120)
def test_on_a_few_clusters_in_awx(lab: Lab, tmp_path: Path) -> None:
    rows = awx.slices(tmp_path, CLUSTERS + 1, CLUSTERS, print)
    assert [row.count for row in rows] == [2, 1] * len(awx.TEMPLATES)
    assert not [row.missed for row in rows if row.missed]
    assert all(run.requests and run.mib for row in rows for run in (*all_runs(row.own_runs), *all_runs(row.other_runs)))
    assert "| slice 1 of GPU report | 2 clusters |" in page(environment(lab, 2, 0.0), rows)
