# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module license beside another run, which changes the cluster before this run holds the lease, and with drivers that run."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.paths import CLUSTER_POLICIES
from tests.helpers.license_api import NAMESPACE, LicenseApi, cluster_policy, gpu_node, license_secret, vgpu_pool
from tests.helpers.license_tokens import DAY, make_token

SECRET, LICENSE_TOKEN_KEY = "licensing-config", "client_configuration_token.tok"
TOKEN = make_token()
RUNNING_DRIVER = {
    "metadata": {
        "name": "nvidia-driver-daemonset",
        "namespace": NAMESPACE,
        "labels": {"app.kubernetes.io/component": "nvidia-driver"},
        "ownerReferences": [{"kind": "ClusterPolicy", "name": "cluster-policy"}],
    },
    "spec": {"template": {"spec": {"containers": []}}},
    "status": {"desiredNumberScheduled": 3, "currentNumberScheduled": 3},
}


def test_drivers_that_another_run_has_started_meanwhile_are_not_restarted() -> None:
    api = LicenseApi([cluster_policy()], nodes=[gpu_node("a")])
    api.before_held = lambda: api.daemonsets.append(RUNNING_DRIVER)
    result = api.license(token=TOKEN)
    assert [body["kind"] for body in api.written] == ["Secret"]
    assert result["license"]["held_back"] == [
        "spec.driver.licensingConfig.nlsEnabled",
        "spec.driver.licensingConfig.secretName",
    ]
    assert "ClusterPolicy cluster-policy" not in result["diff"]["after"]


def test_a_policy_that_another_run_has_deleted_meanwhile_is_not_created_again() -> None:
    api = LicenseApi([cluster_policy()], nodes=[gpu_node("a")])
    api.before_held = api.policies.clear
    result = api.license(token=TOKEN)
    assert [body["kind"] for body in api.written] == ["Secret"]
    assert result["license"]["policy"] == ""


def test_what_another_run_has_written_meanwhile_is_no_change_of_this_one() -> None:
    policy = cluster_policy(licensingConfig={"secretName": SECRET, "nlsEnabled": True})
    api = LicenseApi([policy])
    api.before_held = lambda: api.add(license_secret(SECRET, TOKEN, "# Managed by accel.gpu\nFeatureType=1\n"))
    result = api.license([vgpu_pool("vdi", SECRET)], token=TOKEN)
    assert not result["changed"]
    assert result["license"]["objects"][0]["action"] == "unchanged"
    assert api.written == []


def test_a_newer_token_that_another_run_has_written_meanwhile_stays() -> None:
    newer = make_token(not_before=-DAY, expires=400 * DAY)
    api = LicenseApi([cluster_policy()])
    api.before_held = lambda: api.add(license_secret(SECRET, newer))
    result = api.license([vgpu_pool("vdi", SECRET)], token=make_token(not_before=-2 * DAY, expires=300 * DAY))
    assert "is not a renewal of the one in" in result["msg"]
    assert api.files(SECRET)[LICENSE_TOKEN_KEY] == newer


@pytest.mark.parametrize(("held_before", "reads"), [(None, 1), (lambda: None, 2)])
def test_the_cluster_is_read_again_only_after_another_run(held_before: Any, reads: int) -> None:
    api = LicenseApi([cluster_policy()], nodes=[gpu_node("a")], before_held=held_before)
    with mock.patch.object(api, "list_known", wraps=api.list_known) as listed:
        assert api.license(token=TOKEN)["changed"]
    assert listed.call_args_list.count(mock.call(CLUSTER_POLICIES)) == reads


def test_a_policy_without_a_spec() -> None:
    policy = {key: value for key, value in cluster_policy().items() if key != "spec"}
    result = LicenseApi([policy], nodes=[gpu_node("a")], daemonsets=[RUNNING_DRIVER]).license(token=TOKEN)
    assert len(result["license"]["held_back"]) == 2
