# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The licensing modules in a cluster without an operator or without nodes."""

from __future__ import annotations

from unittest import mock

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from tests.helpers.license_api import LicenseApi, cluster_policy, gpu_node, vgpu_pool
from tests.helpers.license_tokens import make_token

TOKEN = make_token()


class TestWithoutAnOperator:
    """The playbook license runs before the playbook site."""

    POOL = vgpu_pool("vdi", "licensing-config")
    REMEDY = "The GPU operator is not installed (no ClusterPolicy exists)"

    @pytest.mark.parametrize("check", [False, True])
    def test_the_namespace_does_not_exist(self, check: bool) -> None:
        api = LicenseApi()
        missing = ApiError(
            'namespaces "gpu-operator" not found', status=404, reason="NotFound", method="POST", path="/secrets"
        )
        with mock.patch.object(api, "create", side_effect=missing):
            failed = api.license([self.POOL], token=TOKEN, check=check)
        assert failed["code"] == "invalid"
        assert "was not written, because the namespace gpu-operator does not exist." in failed["msg"]
        assert f"{self.REMEDY}, so no driver reads a token. Run the playbook site with the token" in failed["msg"]

    def test_check_mode_of_site_expects_the_namespace(self) -> None:
        api = LicenseApi()
        result = api.license([self.POOL], token=TOKEN, check=True, expected={"namespaces": ["gpu-operator"]})
        assert result["changed"]
        assert api.written == []
        assert self.REMEDY not in str(result.get("warnings"))

    def test_the_namespace_exists(self) -> None:
        api = LicenseApi()
        result = api.license([self.POOL], token=TOKEN)
        assert result["changed"]
        assert self.REMEDY in str(result["warnings"])

    @pytest.mark.parametrize("required", [False, True])
    def test_the_verification_does_not_wait_for_drivers_that_no_run_installs(self, required: bool) -> None:
        api = LicenseApi(nodes=[gpu_node("a", pool="vdi")])
        result = api.info([self.POOL], require_licensed=required, wait_timeout=600)
        assert self.REMEDY in (result["msg"] if required else str(result["license_info"]["problems"]))
        assert "Run the playbook license with a token" not in str(result)

    def test_a_rotation_names_the_same_remedy(self) -> None:
        failed = LicenseApi(nodes=[gpu_node("a", pool="vdi")]).rotation([self.POOL])
        assert self.REMEDY in failed["msg"]


def test_a_pool_that_matches_a_vgpu_type_shows_the_class() -> None:
    policy = cluster_policy(licensingConfig={"secretName": "licensing-config", "nlsEnabled": True})
    api = LicenseApi([policy])
    pool = {**vgpu_pool("vdi", "licensing-config"), "match": {"labels": {"nvidia.com/gpu.product": "NVIDIA-A100-10C"}}}
    failed = api.license([pool], token=TOKEN, feature_type=2)
    assert "but vGPU types of the series C require" in failed["msg"]
