# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module license: what it writes in which cluster, and what it refuses."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.paths import object_path
from tests.helpers.license_api import NAMESPACE, LicenseApi, cluster_policy, gpu_node, license_secret, vgpu_pool
from tests.helpers.license_tokens import CLS_HOST, DAY, make_token

SECRET, LICENSE_TOKEN_KEY = "licensing-config", "client_configuration_token.tok"
TOKEN = make_token()
POOLS = [vgpu_pool("vdi", SECRET)]


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
    assert not any(result["license"].values())
    assert api.written == []
    assert "No node of this cluster needs a license: no pool has driver.type: vgpu" in str(result["warnings"])


@pytest.mark.parametrize(
    ("api", "pools", "options"),
    [
        (LicenseApi([cluster_policy()]), [vgpu_pool("vdi", SECRET)], {}),
        (LicenseApi([cluster_policy()], nodes=[gpu_node("a")]), [], {}),
        (LicenseApi([cluster_policy(repository="nvcr.io/nvidia/vgpu", image="vgpu-guest-driver")]), [], {}),
        (LicenseApi([cluster_policy(licensingConfig={"secretName": SECRET})]), [], {}),
        (LicenseApi([cluster_policy()]), [], {"vgpu_types": ["A100-10C"]}),
    ],
)
def test_a_cluster_with_a_vgpu_gets_the_token(api: LicenseApi, pools: list[Any], options: dict[str, Any]) -> None:
    result = api.license(pools, token=TOKEN, **options)
    assert result["changed"], result
    assert api.files(SECRET)[LICENSE_TOKEN_KEY] == TOKEN


def test_the_names_of_nodes_are_checked_before_the_token_is_written() -> None:
    # A name may have three long parts.
    long = ".".join(("eyj" + "a" * 40,) * 3)
    api = LicenseApi([cluster_policy()], nodes=[gpu_node("a"), gpu_node(long), gpu_node("whole", vgpu=False)])
    refused = api.license(POOLS, token=TOKEN, node_names=["a", "b", "whole"])
    assert refused["code"] == "invalid"
    assert "gpu_licensing_node_names (option node_names of the module): b, whole is not a vGPU node" in refused["msg"]
    misplaced = api.license(POOLS, token=TOKEN, node_names=[make_token()])
    assert misplaced["code"] == "invalid"
    assert make_token() not in str(misplaced)
    assert api.written == []
    assert api.license(POOLS, token=TOKEN, node_names=["a", long])["changed"]


CURRENT = {"not_before": -2 * DAY, "expires": 100 * DAY}


@pytest.mark.parametrize(
    ("current", "given", "reasons"),
    [
        (CURRENT, {**CURRENT, "not_before": -3 * DAY}, ["it was issued earlier"]),
        (CURRENT, {**CURRENT, "expires": 90 * DAY}, ["it expires earlier"]),
        (CURRENT, {"hosts": ["other.example.com"]}, ["it is for a different license server", "it is for a different service instance"]),
        ({**CURRENT, "hosts": [CLS_HOST], "instance": "a"}, {"hosts": [CLS_HOST], "instance": "b", "without": ["scope_ref_list"]}, ["it is for a different service instance"]),
        (CURRENT, {"changed": {"scope_ref_list": ["another"]}}, ["it is for a different license server"]),
        (CURRENT, {"changed": {"fulfillment_class_ref_list": ["another"]}}, ["it is for different license classes"]),
        (CURRENT, {**CURRENT, "not_before": -3 * DAY, "expires": 90 * DAY}, ["it was issued earlier", "it expires earlier"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("check", [False, True])
def test_a_token_that_is_no_renewal_needs_permission(
    current: dict[str, Any], given: dict[str, Any], reasons: list[str], check: bool
) -> None:
    before, after = make_token(**current), make_token(**given)
    api = LicenseApi([cluster_policy()]).add(license_secret(SECRET, before))
    refused = api.license(POOLS, token=after, check=check)
    assert refused["code"] == "invalid"
    for reason in reasons:
        assert reason in refused["msg"]
    assert refused["msg"].count("it ") == len(reasons)
    assert "is not a renewal of the one in Secret gpu-operator/licensing-config" in refused["msg"]
    assert "set gpu_licensing_replace (option replace of the module) to true" in refused["msg"]
    for token in (before, after):
        assert hashlib.sha256(token.encode()).hexdigest()[:16] in refused["msg"]
        assert not any(part in refused["msg"] for part in token.split("."))
    assert api.written == []

    allowed = api.license(POOLS, token=after, replace=True, check=check)
    assert allowed["license"]["objects"][0]["action"] == "updated"
    assert check or api.files(SECRET)[LICENSE_TOKEN_KEY] == after


@pytest.mark.parametrize(
    ("current", "given"),
    [
        (CURRENT, {}),
        ({**CURRENT, "hosts": ["a.example.com", "b.example.com"]}, {"hosts": ["B.example.com"], "instance": "a.example.com"}),
        (CURRENT, {"without": ["iat", "exp", "scope_ref_list", "service_instance_configuration"]}),
        ({**CURRENT, "without": ["iat", "exp", "scope_ref_list", "service_instance_configuration"]}, {"not_before": -9 * DAY}),
    ],
)  # fmt: skip
def test_a_renewal_needs_no_permission(current: dict[str, Any], given: dict[str, Any]) -> None:
    after = make_token(**given)
    api = LicenseApi([cluster_policy()]).add(license_secret(SECRET, make_token(**current)))
    assert api.license(POOLS, token=after)["changed"]
    assert api.files(SECRET)[LICENSE_TOKEN_KEY] == after


def test_text_that_is_no_token_may_be_replaced() -> None:
    api = LicenseApi([cluster_policy()]).add(license_secret(SECRET, "abc"))
    assert api.license(POOLS, token=TOKEN)["changed"]


MANAGED = {"ownerReferences": [{"kind": "ExternalSecret", "name": "nls", "controller": True}]}
CONFIG = "FeatureType=1\n"


def managed_secret(token: str = TOKEN, config: str = CONFIG) -> dict[str, Any]:
    return license_secret(SECRET, token, config, **MANAGED)


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        ({}, ""),
        ({"token": TOKEN}, ""),
        ({"token": make_token(hosts=["other.example.com"])}, "Set the token there."),
        ({"token": make_token(), "proxy_address": "proxy", "proxy_port": 80}, "Set the token and gridd.conf there."),
        ({"feature_type": 1}, ""),
        ({"feature_type": 4}, "Set gridd.conf there."),
    ],
)
def test_a_secret_that_another_tool_manages_is_used_and_not_changed(options: dict[str, Any], warned: str) -> None:
    api = LicenseApi([cluster_policy()], nodes=[gpu_node("a")]).add(managed_secret())
    result = api.license(**options, secret_name=SECRET)
    (entry,) = result["license"]["objects"]
    assert (entry["action"], entry["managed_by"], entry["feature_type"]) == ("unchanged", "ExternalSecret nls", 1)
    assert api.files(SECRET) == {LICENSE_TOKEN_KEY: TOKEN, "gridd.conf": CONFIG}
    # The ClusterPolicy names it.
    (body,) = api.written
    assert body["spec"]["driver"]["licensingConfig"] == {"secretName": SECRET, "nlsEnabled": True}
    text = f"Secret gpu-operator/{SECRET} is managed by ExternalSecret nls, and is not changed. "
    warnings = str(result.get("warnings"))
    assert text + warned in warnings if warned else text not in warnings


@pytest.mark.parametrize(
    ("secret", "message"),
    [
        ({"data": {"token.tok": "YQ=="}}, f"lacks {LICENSE_TOKEN_KEY} and gridd.conf, and contains unused keys: token"),
        (managed_secret(make_token(expires=-DAY)), "expired at"),
        (managed_secret(config="FeatureType=2\n"), "FeatureType=2 requests NVIDIA RTX Virtual Workstation, but"),
        (managed_secret("abc"), "has 1 part instead of 3"),
    ],
)
def test_a_secret_of_another_tool_that_gives_no_license_is_refused(secret: dict[str, Any], message: str) -> None:
    api = LicenseApi([cluster_policy()], nodes=[gpu_node("a", pool="vdi")]).add({**managed_secret(), **secret})
    result = api.license(POOLS, token=make_token())
    assert result["code"] == "invalid"
    assert message in result["msg"]
    assert f"Secret gpu-operator/{SECRET} is managed by ExternalSecret nls; correct it there." in result["msg"]
    assert api.written == []


@pytest.mark.parametrize("text", [TOKEN, TOKEN[:-300], TOKEN[:300], "a1B" * 100, f"{'x' * 30}.{'y' * 30}.{'z' * 30}"])
@pytest.mark.parametrize(
    "option", ["token_path", "secret_name", "feature_type", "proxy_address", "proxy_port", "vgpu_types", "min_days"]
)
def test_a_token_in_another_option_is_never_shown(option: str, text: str) -> None:
    for given in (text, f"/srv/{text}") if option == "token_path" else (text,):
        options: dict[str, Any] = {option: [given] if option == "vgpu_types" else given}
        result = LicenseApi().license(POOLS, **options)
        assert result["failed"]
        assert option in result["msg"]
        assert text not in json.dumps(result)
        assert not any(part in json.dumps(result) for part in text.split("."))


@pytest.mark.parametrize("option", ["token_path", "secret_name", "proxy_address"])
def test_the_message_names_the_right_option_for_a_token(option: str) -> None:
    options: dict[str, Any] = {option: TOKEN}
    result = LicenseApi().license(POOLS, **options)
    assert "looks like a token; set the token with gpu_licensing_token (option token of the module)" in result["msg"]


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("feature_type", True, "feature_type: true is a boolean, not a whole number"),
        ("feature_type", False, "feature_type: false is a boolean, not a whole number"),
        ("feature_type", "true", 'feature_type: "true" is a string, not a whole number; use only decimal digits'),
        ("feature_type", 3, "feature_type: 3 is not known; use 1 (NVIDIA vGPU), 2 (NVIDIA RTX Virtual"),
        ("feature_type", 0, "feature_type: 0 requests no license, but each vGPU type needs one; use 1 (NV"),
        ("feature_type", "0", "feature_type: 0 requests no license"),
        ("feature_type", 10**80, "feature_type: a number of more than 60 digits is not known"),
        ("feature_type", "9" * 5000, "feature_type: looks like a token"),
        ("feature_type", "²", 'feature_type: "²" is a string, not a whole number'),
        ("proxy_port", True, "proxy_port: true is a boolean, not a whole number"),
        ("proxy_port", 0, "proxy_port: 0 is not allowed: use a port from 1 to 65535"),
        ("proxy_port", 10**80, "proxy_port: a number of more than 60 digits is not allowed"),
        ("proxy_port", "²", 'proxy_port: "²" is a string, not a whole number'),
        ("proxy_address", "a\0b", "proxy_address: is not a host"),
        ("proxy_address", "\ud800", "proxy_address: is not a host"),
        ("secret_name", "a\0b", 'secret_name: "a\\u0000b" is not the name of a Secret'),
        ("secret_name", "\ud800", 'secret_name: "\\ud800" is not the name of a Secret'),
        ("vgpu_types", ["\ud800"], 'vgpu_types: "\\ud800" is not a vGPU type'),
        ("vgpu_types", ["A100-²C"], 'vgpu_types: "A100-²C" is not a vGPU type'),
        ("vgpu_types", ["A100-\u0661C"], 'vgpu_types: "A100-\u0661C" is not a vGPU type'),
        ("token", "\ud800", "contains characters that are not ASCII"),
        ("token_path", "a\0b", 'gpu_licensing_token_path (option token_path of the module): "a\\u0000b" is not a path'),
        ("token_path", "/\ud800", 'gpu_licensing_token_path (option token_path of the module): "/\\ud800" is not a path'),
    ],
)  # fmt: skip
def test_odd_values_are_refused_with_the_rule(option: str, value: Any, message: str) -> None:
    result = LicenseApi().license(POOLS, **{option: value})
    assert result["failed"]
    assert message in result["msg"]
    assert "Traceback" not in json.dumps(result)


TWO_POOLS = [vgpu_pool("a", "one"), vgpu_pool("b", "two")]
OTHER = make_token(hosts=["other.example.com"])


def two_secrets(first: str, second: str, **metadata: Any) -> LicenseApi:
    return LicenseApi([cluster_policy()]).add(license_secret("one", first), license_secret("two", second, **metadata))


def test_one_token_does_not_replace_different_ones() -> None:
    api, renewal = two_secrets(TOKEN, OTHER), make_token()
    for options in ({}, {"replace": True}):
        result = api.license(TWO_POOLS, token=renewal, **options)
        assert result["code"] == "invalid"
        assert result["msg"] == (
            "Secret gpu-operator/one (pool a) and Secret gpu-operator/two (pool b) contain different tokens, but only one token was provided. Set "
            "gpu_licensing_secret_name (option secret_name of the module) to the name of the Secret that it is for."
        )
    assert api.written == []
    chosen = api.license(TWO_POOLS, token=renewal, secret_name="one")
    assert [entry["name"] for entry in chosen["license"]["objects"]] == ["one"]
    assert (api.files("one")[LICENSE_TOKEN_KEY], api.files("two")[LICENSE_TOKEN_KEY]) == (renewal, OTHER)
    # Without a token, all are verified.
    assert [entry["name"] for entry in api.license(TWO_POOLS)["license"]["objects"]] == ["one", "two"]


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("api", [LicenseApi([cluster_policy()]), two_secrets(TOKEN, TOKEN), two_secrets(TOKEN, OTHER)])
def test_a_name_that_is_none_of_several_secrets_selects_not_all_of_them(api: LicenseApi, check: bool) -> None:
    result = api.license(TWO_POOLS, token=make_token(), secret_name="onne", check=check)
    assert result["code"] == "invalid"
    assert result["msg"] == (
        'gpu_licensing_secret_name (option secret_name of the module): no driver pod mounts "onne"; the driver pods mount Secret gpu-operator/one '
        "(pool a) and Secret gpu-operator/two (pool b)"
    )
    assert api.written == []


def test_secrets_with_the_same_token_are_renewed_together() -> None:
    api, renewal = two_secrets(TOKEN, f"{TOKEN}\n"), make_token()
    assert api.license(TWO_POOLS, token=renewal)["changed"]
    assert (api.files("one")[LICENSE_TOKEN_KEY], api.files("two")[LICENSE_TOKEN_KEY]) == (renewal, renewal)


def test_a_run_that_ended_between_two_secrets_is_continued() -> None:
    renewal = make_token()
    api = two_secrets(renewal, TOKEN)
    assert [entry["action"] for entry in api.license(TWO_POOLS, token=renewal)["license"]["objects"]] == [
        "unchanged",
        "updated",
    ]


def test_a_secret_of_another_tool_may_have_another_token() -> None:
    api, renewal = two_secrets(TOKEN, OTHER, **MANAGED), make_token()
    assert api.license(TWO_POOLS, token=renewal)["changed"]
    assert (api.files("one")[LICENSE_TOKEN_KEY], api.files("two")[LICENSE_TOKEN_KEY]) == (renewal, OTHER)


def test_a_warning_names_the_secrets_that_get_the_same_token() -> None:
    api = LicenseApi([cluster_policy()])
    text = "Secret gpu-operator/one (pool a) and Secret gpu-operator/two (pool b) contain the same token."
    assert text in str(api.license(TWO_POOLS, token=TOKEN)["warnings"])
    assert text not in str(api.license(TWO_POOLS, token=TOKEN).get("warnings"))
    assert text not in str(LicenseApi([cluster_policy()]).license(TWO_POOLS[:1], token=TOKEN).get("warnings"))
    # One after the other.
    api = LicenseApi([cluster_policy()])
    for name, token in (("one", TOKEN), ("two", OTHER)):
        assert api.license(TWO_POOLS, token=token, secret_name=name)["changed"]
    assert (api.files("one")[LICENSE_TOKEN_KEY], api.files("two")[LICENSE_TOKEN_KEY]) == (TOKEN, OTHER)


NEWER = make_token(expires=800 * DAY)


def migration(mounted: str, secret: str, config: str = "FeatureType=1\n") -> LicenseApi:
    """A cluster whose drivers still mount a ConfigMap, and the Secret that an earlier run has created."""
    policy = cluster_policy(licensingConfig={"configMapName": SECRET, "nlsEnabled": True})
    api = LicenseApi([policy], nodes=[gpu_node("a")]).add(license_secret(SECRET, secret, "FeatureType=1\n"))
    path = object_path("v1", "ConfigMap", SECRET, NAMESPACE)
    api.objects[path] = {"metadata": {"name": SECRET}, "data": {LICENSE_TOKEN_KEY: mounted, "gridd.conf": config}}
    return api


@pytest.mark.parametrize(
    ("mounted", "options", "reason"),
    [
        (NEWER, {}, "it expires earlier"),
        (NEWER, {"token": TOKEN}, "it expires earlier"),
        (OTHER, {"token": TOKEN}, "it is for a different license server"),
    ],
)
def test_drivers_do_not_get_an_older_or_foreign_token_instead_of_the_one_in_their_configmap(
    mounted: str, options: dict[str, Any], reason: str
) -> None:
    api = migration(mounted, TOKEN)
    result = api.license(**options)
    assert result["code"] == "invalid"
    assert "is not a renewal of the one in ConfigMap gpu-operator/licensing-config" in result["msg"]
    assert reason in result["msg"]
    assert api.written == []
    assert api.license(**options, replace=True)["changed"]


@pytest.mark.parametrize(
    ("mounted", "options"), [(TOKEN, {}), (OTHER, {}), (TOKEN, {"token": NEWER}), (NEWER, {"token": NEWER})]
)
def test_drivers_get_the_token_of_their_configmap_a_renewal_or_the_one_that_was_accepted(
    mounted: str, options: dict[str, Any]
) -> None:
    # Without a token, the one in the Secret must not have been issued earlier than the mounted one.
    result = migration(mounted, TOKEN if options else make_token()).license(**options)
    assert result["changed"], result
    assert "gridd.conf" not in str(result.get("warnings"))


def test_a_gridd_conf_that_was_changed_in_the_configmap_only() -> None:
    result = migration(TOKEN, TOKEN, "FeatureType=1\nProxyServerAddress=proxy\nProxyServerPort=3128\n").license()
    assert (
        "gridd.conf of Secret gpu-operator/licensing-config differs from that of ConfigMap gpu-operator/licensing-config, which the drivers mount until they "
        "restart." in str(result["warnings"])
    )


def test_a_pool_may_have_a_secret_for_another_license_server_than_the_configmap() -> None:
    assert not migration(OTHER, TOKEN).license([vgpu_pool("vdi", SECRET)]).get("failed")


@pytest.mark.parametrize(
    ("config", "pools", "data", "is_named"),
    [
        ({"secretName": SECRET}, [], {LICENSE_TOKEN_KEY: TOKEN}, True),
        ({"secretName": SECRET}, [], {"gridd.conf": ""}, False),
        ({"secretName": SECRET}, [], None, False),
        # This run names the Secret instead.
        ({"configMapName": SECRET}, [], {LICENSE_TOKEN_KEY: TOKEN}, True),
        # A pool uses it.
        ({"configMapName": SECRET}, [*POOLS, vgpu_pool("other")], {LICENSE_TOKEN_KEY: TOKEN, "gridd.conf": ""}, False),
    ],
)
def test_a_configmap_that_an_earlier_run_has_copied(
    config: dict[str, Any], pools: list[Any], data: dict[str, str] | None, is_named: bool
) -> None:
    api = LicenseApi([cluster_policy(licensingConfig={**config, "nlsEnabled": True})], nodes=[gpu_node("a")])
    api.add(license_secret(SECRET, TOKEN, "FeatureType=1\n"))
    if data is not None:
        path = object_path("v1", "ConfigMap", SECRET, NAMESPACE)
        api.objects[path] = {"metadata": {"name": SECRET}, "data": data}
    text = (
        "Secret gpu-operator/licensing-config replaces ConfigMap gpu-operator/licensing-config, which still contains a token. Delete it once the driver has "
        "restarted on every node."
    )
    result = api.license(pools)
    assert not result.get("failed"), result["msg"]
    assert (text in str(result.get("warnings"))) == is_named


def test_a_configmap_that_does_not_exist_is_no_source() -> None:
    policy = cluster_policy(licensingConfig={"configMapName": SECRET, "nlsEnabled": True})
    result = LicenseApi([policy]).license(token=TOKEN)
    assert result["license"]["objects"][0]["migrated_from"] == ""
    assert "replaces" not in str(result.get("warnings"))
