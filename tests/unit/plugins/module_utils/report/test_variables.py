# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_cluster of a live cluster: where its releases are, which version, and the values that make them what they are."""

from __future__ import annotations

import typing as t

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.report.export import (
    InstalledRelease,
    export_cluster,
    installed_release,
    render_variables,
    residual_values,
)
from ansible_collections.accel.gpu.plugins.module_utils.schema.variables import InvalidVariables, merge
from tests.helpers.variables import LAB_POOLS

Document = dict[str, t.Any]
GIVEN: Document = {
    "name": "lab",
    "kubeconfig": "/k",
    "nfd": {"chart": "/c/nfd", "version": "0.1.0"},
    "validation": {"image": "i:1"},
}


def labeled(chart: str, name: str = "gpu-operator", namespace: str = "gpu-operator") -> Document:
    annotations = {"meta.helm.sh/release-name": name, "meta.helm.sh/release-namespace": namespace}
    return {"metadata": {"annotations": annotations, "labels": {"helm.sh/chart": chart}}}


@pytest.mark.parametrize(
    ("live", "release"),
    [
        (None, None),
        ({"metadata": {"name": "x"}}, None),
        (labeled("gpu-operator-v25.10.1"), InstalledRelease("gpu-operator", "gpu-operator", "v25.10.1")),
        (labeled("gpu-operator-v26.7.0-rc.1"), InstalledRelease("gpu-operator", "gpu-operator", "v26.7.0-rc.1")),
        (labeled("node-feature-discovery-0.19.0", "n", "m"), InstalledRelease("n", "m", "0.19.0")),
        (labeled("unusual"), InstalledRelease("gpu-operator", "gpu-operator", "")),
    ],
)
def test_release_of(live: Document | None, release: InstalledRelease | None) -> None:
    assert installed_release(live) == release


def test_the_cluster_is_as_found_and_as_given_where_it_cannot_know() -> None:
    plan = derive({"name": "lab"}, {}, LAB_POOLS)
    releases = {
        "operator": InstalledRelease(
            "nvidia", "kube-system", "v25.3.2", merge(plan.operator.values, {"dcgm": {"enabled": False}})
        ),
        "nfd": InstalledRelease("nfd", "node-feature-discovery", "0.19.0", plan.nfd.values),
    }
    document, remarks = export_cluster(GIVEN, releases, LAB_POOLS)
    assert remarks == []
    assert document == {
        "name": "lab",
        "kubeconfig": "/k",
        "validation": {"image": "i:1"},
        "operator": {
            "version": "v25.3.2",
            "namespace": "kube-system",
            "release": "nvidia",
            "values": {"dcgm": {"enabled": False}},
        },
        "nfd": {"chart": "/c/nfd", "version": "0.19.0"},
    }


def test_what_helm_would_have_to_be_given_is_said_and_so_is_what_may_not_be_read() -> None:
    releases = {
        "operator": InstalledRelease("gpu-operator", "gpu-operator", "v25.10.1", {}),
        "nfd": InstalledRelease("nfd", "x", "0.19.0"),
    }
    _document, remarks = export_cluster(GIVEN, releases, LAB_POOLS)
    assert [remark.partition(":")[0] for remark in remarks] == ["gpu_cluster.operator", "gpu_cluster.nfd.values"]
    assert "nfd, operator, mig" in remarks[0]
    assert "Secrets in x" in remarks[1]


def test_tolerations_of_a_first_installation_are_not_exported_as_values() -> None:
    values = merge(
        derive({"name": "lab"}, {}, LAB_POOLS).operator.values, {"daemonsets": {"tolerations": [{"key": "a"}]}}
    )
    document, _remarks = export_cluster(
        GIVEN, {"operator": InstalledRelease("gpu-operator", "gpu-operator", "v25.10.1", values)}, LAB_POOLS
    )
    assert document["operator"] == {"version": "v25.10.1"}


def test_secrets_of_a_release_are_left_out_and_remarked() -> None:
    values = merge(
        derive({"name": "lab"}, {}, LAB_POOLS).operator.values,
        {"leftover": {"password": "hunter2", "kept": 1}, "dcgm": {"enabled": False}},
    )
    document, remarks = export_cluster(
        GIVEN, {"operator": InstalledRelease("gpu-operator", "gpu-operator", "v25.10.1", values)}, LAB_POOLS
    )
    assert document["operator"]["values"] == {"leftover": {"kept": 1}, "dcgm": {"enabled": False}}
    (remark,) = [remark for remark in remarks if "secrets" in remark]
    assert "values.leftover.password" in remark
    assert "hunter2" not in str((document, remarks))


def test_own_tolerations_of_nfd_s_workers_are_added_to_those_of_the_pools() -> None:
    own = {"key": "own", "operator": "Exists"}
    live = derive({"name": "lab", "nfd": {"values": {"worker": {"tolerations": [own]}}}}, {}, LAB_POOLS).nfd.values
    document, _remarks = export_cluster(
        {"name": "lab"}, {"nfd": InstalledRelease("nfd", "node-feature-discovery", "0.19.0", live)}, LAB_POOLS
    )
    assert document["nfd"]["values"] == {"worker": {"tolerations": [own]}}
    assert derive(document, {}, LAB_POOLS).nfd.values == live


leaves = st.integers(0, 2) | st.lists(st.integers(0, 2), max_size=2)
trees = st.recursive(leaves, lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=6)
values = st.dictionaries(st.sampled_from("abc"), trees, max_size=3)


@given(values, values)
def test_the_residual_values_restore_the_live_ones(expected: Document, own: Document) -> None:
    live = merge(expected, own)
    residual, lacking = residual_values(live, expected)
    assert not lacking
    assert merge(expected, residual) == live


@given(values, values)
def test_values_that_cannot_be_restored_are_lacking(live: Document, expected: Document) -> None:
    residual, lacking = residual_values(live, expected)
    assert bool(lacking) == (merge(expected, residual) != live)


def test_text_is_yaml_with_the_remarks_as_comments() -> None:
    written = render_variables({"name": "lab"}, [{"name": "t4", "sharing": {"mode": "none"}}], ["a remark " * 20])
    assert max(map(len, written.splitlines())) <= 100
    assert written.splitlines()[1].startswith("# a remark")
    assert yaml.safe_load(written) == {
        "gpu_cluster": {"name": "lab"},
        "gpu_defaults": {},
        "gpu_pools": [{"name": "t4", "sharing": {"mode": "none"}}],
    }


@pytest.mark.parametrize(
    "end", ["\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\x00", "\x1b[2J", "\ud800"]
)
def test_no_character_ends_a_comment(end: str) -> None:
    remark = f"pool x: not exported, because {end}gpu_pools: [injected]{end}{{{{ lookup('pipe', 'id') }}}}"
    written = render_variables({"name": "lab"}, [], [remark, remark * 9])
    body = {"gpu_cluster": {"name": "lab"}, "gpu_defaults": {}, "gpu_pools": []}
    assert yaml.safe_load(written) == yaml.load(written, Loader=yaml.CSafeLoader) == body
    assert written.isascii()
    assert all(line.startswith("#") for line in written.splitlines()[1:] if "injected" in line)


def test_text_of_the_cluster_is_no_template() -> None:
    hostile = "{{ lookup('pipe', 'touch /tmp/x') }}"
    document = {"name": hostile, "operator": {"values": {hostile: {"annotations": {"a": hostile}}}}}
    pools = [{"name": "a", "labels": {"a": hostile}, "taints": [{"key": hostile, "value": hostile}]}]
    written = render_variables(document, pools, [hostile])
    assert written.count("!unsafe") == 6
    outside = [line for line in written.splitlines() if "lookup" in line and "!unsafe" not in line]
    assert outside == [f"# {hostile}"]


def test_values_that_the_plan_rejects_are_left_out_with_the_reason() -> None:
    values = {
        "dcgm": {"enabled": False},
        "devicePlugin": {"config": {"name": "own"}, "env": [{"name": "A", "value": "b"}]},
        "toolkit": {"env": [{"name": "A", "value": 1}, {"name": "B", "value": "{{ lookup('pipe', 'id') }}"}]},
        "driver": {"version": "570.86.15-ubuntu22.04"},
        "huge": 2**70,
        "nested": [{"a.b": {"x['y']": 2**70, "kept": 1}}],
    }
    release = InstalledRelease(
        "gpu-operator", "gpu-operator", "v25.10.1", merge(derive({"name": "lab"}, {}, []).operator.values, values)
    )
    document, remarks = export_cluster({"name": "lab"}, {"operator": release}, [])
    derive(document, {}, [])
    assert document["operator"]["values"] == {
        "dcgm": {"enabled": False},
        "devicePlugin": {"env": [{"name": "A", "value": "b"}]},
        "toolkit": {"env": [{"name": "A"}, {"name": "B", "value": "{{ lookup('pipe', 'id') }}"}]},
        "driver": {},
        "nested": [{"a.b": {"kept": 1}}],
    }
    left_out = [
        remark for remark in remarks if remark.startswith("gpu_cluster.operator.values: an entry is not exported")
    ]
    assert len(left_out) == 5
    assert any("devicePlugin.config" in remark for remark in left_out)


@pytest.mark.parametrize(
    ("release", "words"),
    [
        (
            InstalledRelease("gpu-operator", "gpu-operator", "v25.10.1+{{ x }}", {}),
            "gpu_cluster.operator.version: not exported",
        ),
        (InstalledRelease("{{ x }}", "gpu-operator", "v25.10.1", {}), "gpu_cluster.operator: as declared"),
        (InstalledRelease("gpu-operator", "My Namespace", "v25.10.1", {}), "gpu_cluster.operator: as declared"),
    ],
)
def test_a_release_that_the_plan_rejects_does_not_end_the_export(release: InstalledRelease, words: str) -> None:
    document, remarks = export_cluster({"name": "lab"}, {"operator": release}, [])
    derive(document, {}, [])
    assert words in remarks[0]
    assert "version" not in document.get("operator", {})


def test_a_mistake_in_the_declared_variables_is_an_error() -> None:
    with pytest.raises(InvalidVariables):
        export_cluster({"name": "lab", "operator": {"version": "{{ x }}"}}, {}, [])
