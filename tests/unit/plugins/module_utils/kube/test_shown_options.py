# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options that modules print: in results, which ansible-playbook shows at -vvv, and in the system's log."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
import yaml
from ansible.module_utils.basic import AnsibleModule

from ansible_collections.accel.gpu.plugins.module_utils.kube.module import secrets_in, shown_options
from ansible_collections.accel.gpu.plugins.modules import (
    gpu_info,
    gpu_pools_export,
    helm_release,
    kube_object,
    license_server_info,
    magnum_nodegroup,
    node_metadata,
    uninstall,
    vgpu_template,
)
from ansible_collections.accel.gpu.plugins.modules import license as license_module
from tests.helpers.modules import run_module

SECRET = "S3CRETMARK"
KUBECONFIG = {
    "current-context": "a",
    "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "a", "user": {"token": SECRET, "client-key-data": base64.b64encode(SECRET.encode()).decode()}}],
}
VALUES = {"driver": {"licensingConfig": {"token": SECRET}}, "plain": "not-public"}
CLUSTER: dict[str, Any] = {"name": "a", "kubeconfig": KUBECONFIG, "operator": {"version": "v25.10.1", "values": VALUES}}
VCENTER = {"hostname": "h", "username": "u", "password": "vcenter-password", "name": "vdi", "state": "absent"}
RELEASE = {"release_name": "x", "release_namespace": "y", "chart_ref": "/nowhere"}


def test_options_are_named_and_not_shown() -> None:
    shown = shown_options({"gpu_cluster": CLUSTER})["gpu_cluster"]
    assert shown["kubeconfig"] == "(not shown)"
    assert shown["operator"] == {"version": "v25.10.1", "values": "(not shown)"}
    assert CLUSTER["operator"]["values"] is VALUES, "the module itself goes on with what it was given"
    assert shown_options({"values": {}, "kubeconfig": "/a"}) == {"values": {}, "kubeconfig": "/a"}
    assert secrets_in({"gpu_cluster": CLUSTER, "proxy": "http://a:b@c"}) >= {SECRET, "http://a:b@c"}
    assert secrets_in({"gpu_cluster": "text", "kubeconfig": ["list"]}) == set()


@pytest.mark.parametrize(
    ("main", "options"),
    [
        (gpu_info.main, {"gpu_pools": [{"name": "p"}]}),
        (gpu_info.main, {"kubeconfig": KUBECONFIG}),
        (gpu_info.main, {"kubeconfig": json.dumps(KUBECONFIG)}),
        (gpu_info.main, {"kubeconfig": yaml.safe_dump(KUBECONFIG)}),
        (gpu_info.main, {"kubeconfig": KUBECONFIG, "unknown": 1}),
        (vgpu_template.main, {**VCENTER, "kubernetes": {"kubeconfig": json.dumps(KUBECONFIG)}}),
        (vgpu_template.main, {**VCENTER, "kubernetes": {"kubeconfig": yaml.safe_dump(KUBECONFIG)}}),
        (gpu_info.main, {"cluster": CLUSTER}),
        (
            magnum_nodegroup.main,
            {
                "cluster": "a",
                "cloud": {"auth": {"password": SECRET}},
                "name": "g",
                "kubernetes": {"cluster": CLUSTER},
                "unknown": VALUES,
            },
        ),
        (gpu_pools_export.main, {}),
        (uninstall.main, {"stage": "new_nodes"}),
        (
            magnum_nodegroup.main,
            {"cluster": "a", "cloud": "nowhere", "nodegroups": [], "kubernetes": {"kubeconfig": KUBECONFIG}},
        ),
        (
            kube_object.main,
            {
                "definitions": [
                    {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "stringData": {"a": SECRET}}
                ]
            },
        ),
        (node_metadata.main, {"sets": [{"label_selectors": []}], "request_timeout": 1}),
        (license_server_info.main, {"org": "lic-1", "api_key": "k", "api_url": f"https://u:{SECRET}@127.0.0.1:9"}),
        (license_module.main, {"gpu_pools": [], "proxy_address": f"http://u:{SECRET}@proxy"}),
        (helm_release.main, {**RELEASE, "release_values": VALUES, "binary_path": "/nowhere/helm"}),
        (helm_release.main, {**RELEASE, "values": VALUES, "initial_values": VALUES, "binary_path": "/bin/false"}),
    ],
)
def test_no_module_prints_values_or_kubeconfigs(
    monkeypatch: pytest.MonkeyPatch, main: Any, options: dict[str, Any]
) -> None:
    logged: list[str] = []
    monkeypatch.setattr(AnsibleModule, "log", lambda self, msg, log_args=None: logged.append(f"{msg} {log_args}"))
    result = run_module(
        main, options if {"cloud", "org", "hostname"} & options.keys() else {"gpu_cluster": CLUSTER, **options}
    )
    assert result["failed"]
    for text in (json.dumps(result), " ".join(logged)):
        assert SECRET not in text
        assert base64.b64encode(SECRET.encode()).decode() not in text
        assert "not-public" not in text
    assert "Unsupported" in result["msg"] or logged


@pytest.mark.parametrize("variable", ["K8S_AUTH_API_KEY", "K8S_AUTH_PASSWORD", "HELM_KUBETOKEN"])
def test_no_module_prints_a_credential_of_the_environment(variable: str) -> None:
    """Whatever repeats it: here the server's name, which the message about the connection quotes."""
    address = {"host": f"http://{SECRET.lower()}.invalid", "request_timeout": 1}
    result = run_module(gpu_info.main, address, env={variable: SECRET.lower()})
    assert result["failed"]
    assert ".invalid" in json.dumps(result)
    assert SECRET.lower() not in json.dumps(result)
