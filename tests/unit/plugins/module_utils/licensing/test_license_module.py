# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module license: what it writes in which cluster, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers.license_api import LicenseApi, cluster_policy, gpu_node, vgpu_pool
from tests.helpers.license_tokens import make_token

TOKEN = make_token()


@pytest.mark.parametrize(
    "api",
    [
        LicenseApi([cluster_policy()], nodes=[gpu_node("a", "NVIDIA-A100-SXM4-40GB", vgpu=False)]),
        LicenseApi([cluster_policy(repository="nvcr.io/nvidia", image="driver")]),
        LicenseApi(
            [cluster_policy(useNvidiaDriverCRD=True)], [{"metadata": {"name": "a"}, "spec": {"driverType": "gpu"}}]
        ),
        LicenseApi([cluster_policy(enabled=False)]),
        LicenseApi(),
    ],
)
@pytest.mark.parametrize("options", [{"token": TOKEN}, {}])
def test_a_cluster_without_a_vgpu_gets_no_token(api: LicenseApi, options: dict[str, Any]) -> None:
    result = api.license(**options)
    assert not result.get("failed"), result["msg"]
    assert not result["changed"]
    assert result["license"] == {"objects": [], "policy": "", "held_back": [], "driver_nodes": 0}
    assert api.written == []
    assert "No node of this cluster needs a license: no pool has driver.type: vgpu" in str(result["warnings"])


@pytest.mark.parametrize(
    ("api", "pools", "options"),
    [
        (LicenseApi([cluster_policy()]), [vgpu_pool("vdi", "licensing-config")], {}),
        (LicenseApi([cluster_policy()], nodes=[gpu_node("a")]), [], {}),
        (LicenseApi([cluster_policy(repository="nvcr.io/nvidia/vgpu", image="vgpu-guest-driver")]), [], {}),
        (LicenseApi([cluster_policy(licensingConfig={"secretName": "licensing-config"})]), [], {}),
        (LicenseApi([cluster_policy()]), [], {"vgpu_types": ["A100-10C"]}),
    ],
)
def test_a_cluster_with_a_vgpu_gets_the_token(api: LicenseApi, pools: list[Any], options: dict[str, Any]) -> None:
    result = api.license(pools, token=TOKEN, **options)
    assert result["changed"], result
    assert api.files("licensing-config")["client_configuration_token.tok"] == TOKEN
