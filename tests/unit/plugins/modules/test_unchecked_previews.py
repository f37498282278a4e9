# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check mode of modules that write Secrets, for a user who may only read: the preview continues, and says that the server has not checked it."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.kube.module import ClusterModule
from ansible_collections.accel.gpu.plugins.module_utils.kube.objects import NOT_CHECKED
from ansible_collections.accel.gpu.plugins.modules import pull_secret
from tests.helpers.license_api import LicenseApi, cluster_policy, gpu_node, license_secret
from tests.helpers.license_tokens import make_token
from tests.helpers.modules import run_module
from tests.helpers.rotation_module import RotationLease

DENIED = 'secrets "s" is forbidden: User "reader" cannot patch resource "secrets" in API group "" in the namespace "gpu-operator"'
# {"auths": {}}
EMPTY = {
    "metadata": {"name": "s", "resourceVersion": "1"},
    "type": "kubernetes.io/dockerconfigjson",
    "data": {".dockerconfigjson": "eyJhdXRocyI6IHt9fQ=="},
}
REJECTED = 'admission webhook "v.example.com" denied the request: no'


@pytest.mark.parametrize("live", [None, license_secret("licensing-config", make_token(hosts=["old.example.com"]))])
@pytest.mark.parametrize("message", [DENIED, REJECTED])
def test_license(live: dict[str, Any] | None, message: str) -> None:
    api = LicenseApi([cluster_policy()], nodes=[gpu_node("a")])
    if live is not None:
        api.add(live)
    error = ApiError(message, status=403)
    error.has_status_object = True
    with mock.patch.object(api, "_write", side_effect=error):
        result = api.license(token=make_token(), replace=True, check=True)
    if message == REJECTED:
        assert "denied the request" in result["msg"]
    else:
        assert result["changed"]
        assert result["diff"]["after_header"] == f"licensing ({NOT_CHECKED})"


@pytest.mark.parametrize("live", [None, EMPTY])
@pytest.mark.parametrize("message", [DENIED, REJECTED])
def test_pull_secret(live: dict[str, Any] | None, message: str) -> None:
    error = ApiError(message, status=403)
    error.has_status_object = True
    client = mock.Mock()
    client.get.return_value = live
    client.create.side_effect = client.patch.side_effect = error
    arguments = {
        "gpu_cluster": {"name": "prod"},
        "names": ["s"],
        "namespaces": ["gpu-operator"],
        "registries": [{"registry": "registry.example.com", "username": "robot", "password": "s3cret-word"}],
    }
    with (
        mock.patch.object(ClusterModule, "client", mock.PropertyMock(return_value=client)),
        mock.patch.object(ClusterModule, "lease", return_value=RotationLease()),
    ):
        result = run_module(pull_secret.main, arguments, check=True, diff=True)
    if message == REJECTED:
        assert "denied the request" in result["msg"]
    else:
        assert result["changed"]
        assert result["diff"]["after_header"] == f"registries of pull Secrets ({NOT_CHECKED})"
