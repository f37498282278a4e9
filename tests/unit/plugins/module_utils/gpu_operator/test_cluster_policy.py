# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which ClusterPolicy is active, what it tolerates, and the previous values of its fields."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.cluster_policy import (
    active_policy,
    driver_fields,
    mig_configmap,
    policy_tolerations,
    written_tolerations,
)

Object = dict[str, Any]


def test_the_oldest_policy_is_the_active_one_whatever_its_name() -> None:
    def made(name: str, when: str) -> Object:
        return {"metadata": {"name": name, "creationTimestamp": when}}

    actual = [made("b", "2026-02-01T00:00:00Z"), made("z", "2026-01-01T00:00:00Z"), made("y", "2026-01-01T00:00:00Z")]
    assert active_policy(actual) == actual[2]
    assert active_policy([]) is None


GPU = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
EMPTY: list[Object] = [
    {},
    {"daemonsets": None},
    {"daemonsets": {}},
    {"daemonsets": {"tolerations": None}},
    {"daemonsets": {"tolerations": []}},
]


@pytest.mark.parametrize("policy", [{}, *({"spec": spec} for spec in EMPTY)])
def test_without_entries_the_operands_have_the_toleration_of_their_manifests(policy: Object) -> None:
    assert policy_tolerations(policy) == [GPU]
    assert written_tolerations(policy) == []


@pytest.mark.parametrize("spec", EMPTY)
def test_the_default_written_out_is_no_change_of_the_driver(spec: Object) -> None:
    """Helm values or another manager may write it; the template of the DaemonSet stays the same."""
    explicit = {**spec, "daemonsets": {"tolerations": [GPU]}}
    assert driver_fields(spec, explicit) == driver_fields(explicit, spec) == []
    other = {"daemonsets": {"tolerations": [{"operator": "Exists"}]}}
    assert driver_fields(spec, other) == [("daemonsets", "tolerations")]


def test_the_mig_manager_has_a_configmap_in_any_case() -> None:
    assert mig_configmap({"spec": {"migManager": {"config": {"name": "mine"}}}}) == "mine"
    assert mig_configmap({"spec": {"migManager": {"config": {"name": ""}}}}) == mig_configmap(None)
    assert mig_configmap(None) == "default-mig-parted-config"
