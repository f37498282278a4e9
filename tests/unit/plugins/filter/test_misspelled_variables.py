# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Misspelled variables of the collection are found; the variables of users are not."""

from __future__ import annotations

import re

import pytest

from ansible_collections.accel.gpu.plugins.filter.misspelled_variables import known_variables, misspelled_variables
from tests.programs import REPO

ALL_SELECTIONS = " or ".join(
    f"gpu_{role}_pool_names" for role in ("autoscaling", "nodegroups", "sharing", "vsphere_templates")
)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("gpu_host", "gpu_hosts"),
        ("gpu_pol", "gpu_pool"),
        ("gpu_default", "gpu_defaults"),
        ("gpu_confim", "gpu_confirm"),
        ("gpu_rename_from", "gpu_renamed_from"),
        ("gpu_sharing_pool_name", "gpu_sharing_pool_names"),
        ("gpu_nodegroup_pool_names", "gpu_nodegroups_pool_names"),
        ("gpu_allow_releases", "gpu_allow_release"),
        ("gpu_polls", "gpu_pools"),
        ("gpu_sharing_pools", "gpu_sharing_pool_names"),
        ("gpu_sharing_pool", "gpu_sharing_pool_names"),
        ("gpu_nodegroups_pools", "gpu_nodegroups_pool_names"),
        ("gpu_pool_name", ALL_SELECTIONS),
        ("gpu_reset_pool_names", ALL_SELECTIONS),
        ("gpu_scope_label_selectors", "gpu_sharing_label_selectors"),
        ("gpu_pools_names", ALL_SELECTIONS),
        ("gpu_pool_names", ALL_SELECTIONS),
    ],
)
def test_a_misspelled_variable_is_found(name: str, meant: str) -> None:
    (line,) = misspelled_variables([name, "gpu_cluster", "gpu_pools"])
    assert line.startswith(f"{name}: ")
    assert f"did you mean {meant}?" in line


@pytest.mark.parametrize(
    ("others", "meant"),
    [((), "gpu_pools"), (("gpu_cluster",), "gpu_pools"), (("gpu_cluster", "gpu_pools"), "gpu_pool")],
)
def test_a_required_variable_that_is_not_set_is_preferred(others: tuple[str, ...], meant: str) -> None:
    (line,) = misspelled_variables(["gpu_poolz", *others])
    assert f"did you mean {meant}?" in line


@pytest.mark.parametrize(
    "name",
    [
        "gpu_pools_of_team_a",
        "gpu_cluster_name",
        "gpu_nodes",
        "gpu_pods",
        "gpu_sharing",
        "gpu_team",
        "gpu_pools_b",
        "gpu_pool_labels",
    ],
)
def test_variables_of_users_are_accepted(name: str) -> None:
    assert misspelled_variables([name]) == []


def test_an_unknown_name_with_the_prefix_of_a_role_is_refused() -> None:
    (line,) = misspelled_variables(["gpu_nfd_of_our_team_in_the_second_region"])
    assert "names with gpu_nfd_ belong to a role" in line


def test_every_variable_that_a_role_or_playbook_reads_is_known() -> None:
    files = [*REPO.glob("roles/*/defaults/main.yml"), *REPO.glob("roles/*/tasks/*.yml"), *REPO.glob("playbooks/*.yml")]
    read = {name for file in files for name in re.findall(r"(?<![.\w])(gpu_\w+) \| default\(", file.read_text())}
    assert "gpu_helm_binary" in read
    assert sorted(read - set(known_variables())) == []


def test_the_statistics_of_a_job_do_not_stop_the_next_job_of_a_workflow() -> None:
    """AWX passes them as extra variables."""
    texts = [path.read_text(encoding="utf-8") for path in sorted((REPO / "roles").glob("*/tasks/*.yml"))]
    names = {name for text in texts for name in re.findall(r"set_stats:\n\s+data:\n\s+(\w+):", text)}
    assert len(names) >= 3
    assert misspelled_variables(names) == []


def test_all_variables_of_the_collection_are_accepted() -> None:
    assert {"gpu_cluster", "gpu_pools", "gpu_hosts", "gpu_plan", "gpu_report_kind"} <= set(known_variables())
    assert misspelled_variables([*known_variables(), "__gpu_pool_is_read"]) == []


@pytest.mark.parametrize("name", ["gpu_pool", "gpu_node_count"])
def test_the_variables_of_two_playbooks_select_nothing_elsewhere(name: str) -> None:
    (line,) = misspelled_variables([name, "gpu_cluster", "gpu_pools"])
    assert line.startswith(
        f"{name}: only the playbooks scale, delete_nodegroups and templates_refresh read this variable. Select pools with"
    )
    assert misspelled_variables([name, "__gpu_pool_is_read"]) == []
