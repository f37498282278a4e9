# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mistakes of gpu_cluster: paths, rules and remedies."""

from __future__ import annotations

import copy
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.schema.variables import validate
from tests.helpers.variables import CLUSTER, Document, anything

CLUSTER_MISTAKES: list[tuple[t.Any, str]] = [
    ({}, "gpu_cluster.name: is missing; set it to the cluster's name in the kubeconfig"),
    (None, "gpu_cluster.name: is missing"),
    ("lab", 'gpu_cluster: "lab" is a string, not a map'),
    ({**CLUSTER, "operater": {}}, "gpu_cluster.operater: is not a known key; did you mean operator?"),
    ({**CLUSTER, "version": "v25.10.1"}, "gpu_cluster.version: is not a known key; it belongs under operator or nfd"),
    ({**CLUSTER, "operator": {"version": 25.1}}, "gpu_cluster.operator.version: 25.1 is a number with a fraction, not"),
    ({**CLUSTER, "operator": {"version": "v25.10"}}, 'gpu_cluster.operator.version: "v25.10" is not an exact version'),
    ({**CLUSTER, "operator": {"version": ">=25.3.0"}}, "gpu_cluster.operator.version: "),
    ({**CLUSTER, "operator": {"namespace": "GPU"}}, 'gpu_cluster.operator.namespace: "GPU" is not a DNS label'),
    ({**CLUSTER, "operator": {"release": "x" * 54}}, "gpu_cluster.operator.release: "),
    ({**CLUSTER, "operator": {"chart": "nvidia/gpu-operator"}}, "gpu_cluster.operator.chart: "),
    ({**CLUSTER, "operator": {"chart_repo": "oci://x/y"}}, "gpu_cluster.operator.chart_repo: "),
    ({**CLUSTER, "operator": {"chart_repo": "x"}}, 'gpu_cluster.operator.chart_repo: "x" is not the address'),
    ({**CLUSTER, "operator": {"chart_repo": ""}}, "gpu_cluster.operator.chart_repo: is missing; the chart"),
    ({**CLUSTER, "operator": {"chart": "./c", "chart_repo": "https://x"}}, "gpu_cluster.operator.chart_repo: "),
    ({**CLUSTER, "nfd": {"chart": "nfd"}}, 'gpu_cluster.nfd.chart_repo: is missing; the chart "nfd" is only a name'),
    ({**CLUSTER, "nfd": {"values": []}}, "gpu_cluster.nfd.values: is a list, not a map"),
    (
        {**CLUSTER, "operator": {"values": {"devicePlugin": {"config": {"name": "x"}}}}},
        "gpu_cluster.operator.values.devicePlugin.config: cannot be set",
    ),
    (
        {**CLUSTER, "operator": {"values": {"nfd": {"enabled": True}}}},
        "gpu_cluster.operator.values.nfd.enabled: cannot",
    ),
    (
        {**CLUSTER, "operator": {"namespace": "gpu", "release": "nfd"}, "nfd": {"namespace": "gpu"}},
        "gpu_cluster.nfd.release: is the operator's release in the same namespace",
    ),
    ({**CLUSTER, "kubeconfig": "apiVersion: v1\nkind: Config"}, "gpu_cluster.kubeconfig: "),
    ({**CLUSTER, "kubeconfig": "https://k8s:6443"}, "gpu_cluster.kubeconfig: "),
    ({**CLUSTER, "kubeconfig": "./kubeconfig"}, 'gpu_cluster.kubeconfig: "./kubeconfig" is a relative path'),
    ({**CLUSTER, "kubeconfig": "kubeconfig"}, 'gpu_cluster.kubeconfig: "kubeconfig" is a relative path'),
    ({**CLUSTER, "validation": {"image": "nvidia/cuda"}}, "gpu_cluster.validation.image: "),
    ({**CLUSTER, "validation": {"image": "https://nvcr.io/nvidia/cuda:1"}}, "gpu_cluster.validation.image: "),
    (
        {**CLUSTER, "validation": {"images": {"13": "a:1"}}},
        "gpu_cluster.validation.images['13']: the key \"13\" is not a CUDA",
    ),
    (
        {**CLUSTER, "validation": {"images": {13.0: "a:1"}}},
        "gpu_cluster.validation.images[13.0]: the key 13.0 is a number",
    ),
    ({**CLUSTER, "validation": {"images": {"12.5": "a"}}}, "gpu_cluster.validation.images['12.5']: "),
    ({**CLUSTER, "validation": {"nccl_image": "pytorch"}}, "gpu_cluster.validation.nccl_image: "),
    (
        {**CLUSTER, "validation": {"image": "a:1", "images": {"12.5": "b:1"}}},
        "gpu_cluster.validation.images: has no effect",
    ),
    (
        {**CLUSTER, "operator": {"values": {"operator": {"cleanupCRD": True}}}},
        "gpu_cluster.operator.values.operator.cleanupCRD: cannot be set, because accel.gpu.uninstall deletes",
    ),
]

# What follows the path gpu_cluster.operator.
VALUES_MISTAKES: list[tuple[Document, str]] = [
    *(
        ({"operator": {"values": {"driver": {"env": [{"name": "A", "value": "b"}, entry]}}}}, f"operator.values.driver.env[1]{message}")
        for entry, message in (
            ({"name": ["a"], "value": "b"}, ".name: is a list, not a string; set a single value"),
            ({"name": "", "value": "b"}, ".name: is empty; set a value"),
            ({"name": 4}, ".name: 4 is a number, not a string; put it in quotes"),
            ({"value": "b"}, ".name: is missing; write the name of the variable"),
            ({}, ".name: is missing; write the name of the variable"),
            ({"name": "4A", "value": "b"}, ".name: is not the name of an environment variable"),
            ({"name": "a b", "value": "b"}, ".name: is not the name of an environment variable"),
            ({"name": "é", "value": "b"}, ".name: "),
            ({"name": "A", "value": "c"}, ".name: an entry above has the same name; remove one of them"),
            ({"name": "B", "value": 2}, ".value: is a number, not a string; write one string in quotes"),
            ({"name": "B", "value": True}, ".value: is a boolean, not a string"),
            ({"name": "B", "value": ["2"]}, ".value: is a list, not a string"),
            ("password=x", ": is a string, not a map; write it as `key: value` lines"),
            ("", ": is an empty string, not a map; write it as `key: value` lines"),
            (True, ": true is a boolean, not a map; write it as `key: value` lines"),
            (None, ": is nothing, not a map; write it as `key: value` lines"),
            (["a"], ": is a list, not a map; write it as `key: value` lines"),
        )
    ),
    ({"operator": {"values": {"driver": {"env": "A=b"}}}}, "operator.values.driver.env: is a string, not a list; begin each entry with a dash"),
    ({"operator": {"values": {"driver": {"env": {"A": "b"}}}}}, "operator.values.driver.env: is a map, not a list; begin each entry"),
    ({"operator": {"values": {"driver": 4}}}, "operator.values.driver: is a number, but the chart expects a map; write"),
    ({"operator": {"values": {"driver": []}}}, "operator.values.driver: is a list, but the chart expects a map"),
    ({"operator": {"values": {"devicePlugin": "off"}}}, "operator.values.devicePlugin: is a string, but the chart expects a map"),
    ({"operator": {"values": {"driver": {"manager": True}}}}, "operator.values.driver.manager: is a boolean, but the chart"),
    ({"nfd": {"values": {"worker": 4}}}, "nfd.values.worker: is a number, but the chart expects a map"),
]  # fmt: skip


@pytest.mark.parametrize(("part", "message"), VALUES_MISTAKES)
def test_values_are_maps_where_the_chart_has_maps(part: Document, message: str) -> None:
    (problem,) = validate({**CLUSTER, **part}, {}, [])
    assert problem.startswith(f"gpu_cluster.{message}")


def test_values_that_charts_accept() -> None:
    values: Document = {"driver": None, "toolkit": {"env": []}, "anything": 4, "driver.manager": 1}
    assert (
        validate({**CLUSTER, "operator": {"values": values}, "nfd": {"values": {"worker": {"config": {}}}}}, {}, [])
        == []
    )


OPERATOR_MISTAKES: list[tuple[Document, str]] = [
    ({"registry": "https://registry.example.com"}, '.registry: "https://registry.example.com" is an address; write it'),
    ({"registry": "mirror"}, '.registry: "mirror" is not a registry; write host[:port] and the path below it'),
    ({"registry": "r.example.com/"}, '.registry: "r.example.com/" has an empty path component'),
    (
        {"registry": "r.example.com/NVIDIA"},
        '.registry: "r.example.com/NVIDIA" has the path component "NVIDIA"; components are lower-case',
    ),
    (
        {"registry": "r.example.com/nvidia:v1"},
        '.registry: "r.example.com/nvidia:v1" has the path component "nvidia:v1"',
    ),
    ({"registry": 5000}, ".registry: 5000 is a number, not a string"),
    ({"image_pull_secrets": {"ngc": 1}}, ".image_pull_secrets: is a map, not a list; begin each entry with a dash"),
    ({"image_pull_secrets": [{"name": "ngc"}]}, ".image_pull_secrets[0]: is a map, not a string; set a single value"),
    ({"image_pull_secrets": ["NGC"]}, '.image_pull_secrets[0]: "NGC" is not an object\'s name (RFC 1123)'),
    ({"repo_config": "a" * 254}, '.repo_config: "'),
    ({"cert_config": "ca/bundle"}, '.cert_config: "ca/bundle" is not an object\'s name'),
    ({"proxy": "http://proxy:3128"}, '.proxy: "http://proxy:3128" is a string, not a map'),
    ({"proxy": {"http": "proxy:3128"}}, '.proxy.http: "proxy:3128" is not a proxy\'s address; write it as http://host'),
    ({"proxy": {"http": "http://proxy:x"}}, '.proxy.http: "http://proxy:x" is not a proxy\'s address'),
    ({"proxy": {"http": "socks5://proxy:1"}}, '.proxy.http: "socks5://proxy:1" is not a proxy\'s address'),
    ({"proxy": {"https": "http://proxy:1/pac"}}, '.proxy.https: "http://proxy:1/pac" has a path; a proxy is a host'),
    ({"proxy": {"http": "http://p:1", "no_proxy": {".svc": 1}}}, ".proxy.no_proxy: is a map, not a list"),
    (
        {"proxy": {"http": "http://p:1", "no_proxy": ["a,b"]}},
        '.proxy.no_proxy[0]: "a,b" contains several entries; list each',
    ),
    (
        {"proxy": {"http": "http://p:1", "no_proxy": ["http://a"]}},
        '.proxy.no_proxy[0]: "http://a" is an address; use',
    ),
    ({"proxy": {"no_proxy": [".svc"]}}, ".proxy.no_proxy: has no effect without http or https; set a proxy"),
    ({"proxy": {"htp": "http://p:1"}}, ".proxy.htp: is not a known key; did you mean http?"),
    ({"driver": {"version": 580.95}}, ".driver.version: 580.95 is a number with a fraction, not a string"),
    (
        {"driver": {"version": "latest"}},
        '.driver.version: "latest" is not a driver\'s version; write only its numbers',
    ),
    (
        {"driver": {"version": "580"}},
        '.driver.version: "580" is only a branch; use the full version, such as 580.105.08, or',
    ),
    (
        {"driver": {"version": "550.163.01-rhcos4.16"}},
        '.driver.version: "550.163.01-rhcos4.16" ends with the tag of an operating system, which the operator appends: the '
        "nodes would look for 550.163.01-rhcos4.16-rhcos4.16; write 550.163.01",
    ),
    (
        {"driver": {"version": "580.95.05-ubuntu22.04"}},
        '.driver.version: "580.95.05-ubuntu22.04" ends with the tag of a',
    ),
    (
        {"values": {"driver": {"version": "550.90.07-rhcos4.15"}}},
        '.values.driver.version: "550.90.07-rhcos4.15" ends with the tag of an operating system',
    ),
    (
        {"driver": {"version": "580.95.05", "precompiled": True}},
        '.driver.version: "580.95.05" is not a branch, but precompiled drivers are named by branch; use 580',
    ),
    (
        {"driver": {"precompiled": True}, "repo_config": "r"},
        ".repo_config: has no effect with driver.precompiled: true",
    ),
    ({"driver": {"enabled": "not"}}, '.driver.enabled: "not" is a string, not a boolean'),
    (
        {"driver": {"enabled": False, "version": "580.95.05"}},
        ".driver.version: has no effect with driver.enabled: false",
    ),
    (
        {"driver": {"enabled": False}, "cert_config": "ca"},
        ".cert_config: has no effect with driver.enabled: false; remove",
    ),
    (
        {"driver": {"kernel_module_type": "closed"}},
        '.driver.kernel_module_type: "closed" is not a valid value; known: auto',
    ),
    (
        {"version": "v25.3.4", "driver": {"secret_env": "s"}},
        ".driver.secret_env: is not supported by operator v25.3.4; it was added in v25.10; remove it, or install that release",
    ),
    (
        {"version": "v24.9.2", "driver": {"kernel_module_type": "open"}},
        ".driver.kernel_module_type: is not supported by operator v24.9.2; it was added in v25.3",
    ),
    (
        {"chart": "./gpu-operator.tgz", "registry": "r.example.com"},
        ".version: is missing; also set the version of the chart, because the image paths below registry depend on it",
    ),
]


@pytest.mark.parametrize(("cluster", "message"), CLUSTER_MISTAKES)
def test_mistake_of_the_cluster(cluster: t.Any, message: str) -> None:
    (problem,) = validate(cluster, {}, [])
    assert problem.startswith(message)


@pytest.mark.parametrize(("operator", "message"), OPERATOR_MISTAKES)
def test_mistake_of_the_operator(operator: Document, message: str) -> None:
    (problem,) = validate({**CLUSTER, "operator": operator}, {}, [])
    assert problem.startswith(f"gpu_cluster.operator{message}")


def test_all_mistakes_of_the_operator_at_once() -> None:
    operator = {
        "registry": "https://r.example.com",
        "image_pull_secrets": ["NGC"],
        "driver": {"version": "550.163.01-rhel9.6", "enabled": "perhaps"},
        "proxy": {"http": "p", "no_proxy": ["a b"]},
        "repo_config": "A",
    }
    actual = [problem.partition(": ")[0] for problem in validate({**CLUSTER, "operator": operator}, {}, [])]
    places = [
        "registry",
        "image_pull_secrets[0]",
        "driver.version",
        "driver.enabled",
        "proxy.http",
        "proxy.no_proxy[0]",
    ]
    assert actual == [f"gpu_cluster.operator.{place}" for place in (*places, "repo_config")]


@pytest.mark.parametrize(
    "address", ["http://me:hunter2@proxy:3128", "http://hunter2@p", "ftp://me:hunter2@x", "x//hunter2@"]
)
def test_no_message_shows_a_password(address: str) -> None:
    (problem,) = validate({**CLUSTER, "operator": {"proxy": {"https": address}}}, {}, [])
    assert problem.startswith("gpu_cluster.operator.proxy.https: ")
    assert "hunter2" not in problem


@pytest.mark.parametrize(
    "cluster",
    [
        {
            "operator": {
                "registry": "registry.example.com:5000/mirror/gpu",
                "image_pull_secrets": ["ngc-secret", "a.b"],
                "driver": {"version": "580.105.08", "kernel_module_type": "open", "secret_env": "driver-env"},
                "proxy": {
                    "http": "http://10.0.0.1:3128",
                    "https": "https://[fd00::1]:3128/",
                    "no_proxy": ["10.0.0.0/8"],
                },
                "repo_config": "repos",
                "cert_config": "ca",
            }
        },
        {"operator": {"registry": "localhost", "chart": "./c", "version": "v25.3.2"}},
        {"operator": {"registry": "r:5000", "chart": "oci://r:5000/charts/gpu-operator"}},
        {"operator": {"driver": {"version": f"sha256:{'0' * 64}"}}},
        {"operator": {"driver": {"version": "580", "precompiled": True}, "proxy": {"https": "http://p:1"}}},
        {"operator": {"driver": {"enabled": False, "precompiled": False}, "image_pull_secrets": []}},
        {"operator": {"driver": None, "proxy": None, "registry": None}},
        {"kubeconfig": "~/.kube/config", "context": "kubernetes-admin@kubernetes", "kube_name": "kubernetes"},
        {"kubeconfig": "/a:/b"},
        {"uid": "5b2a9f3c-0d5e-4f5e-9a51-0c1d2e3f4a5b"},
        {"impersonate_user": "u", "impersonate_groups": ["CN=a,OU=b"]},
        {"operator": {"chart": "oci://registry.example/charts/gpu-operator"}},
        {"operator": {"chart": "https://example.com/gpu-operator-v25.10.1.tgz"}},
        {"operator": {"chart": "~/charts/gpu-operator-v25.10.1.tgz"}},
        {"operator": {"chart": "gpu-operator.tgz", "version": "25.3.2-rc.1+meta"}},
        {"operator": {"values": {"driver": {"version": "{{ not a template }}"}, "devicePlugin": {"args": []}}}},
        {"nfd": {"chart": "node-feature-discovery", "chart_repo": "https://charts.example/nfd"}},
        {"nfd": None, "validation": {"image": f"cuda@sha256:{'0' * 64}", "namespace": "proofs"}},
        {"validation": {"image": "registry.example:5000/nvidia/cuda:13.0.1-base-ubi9"}},
    ],
)
def test_good_cluster(cluster: Document) -> None:
    assert validate({**CLUSTER, **cluster}, None, []) == []


WHOLE: Document = {
    "version": "v25.10.1",
    "registry": "registry.example.com/mirror",
    "image_pull_secrets": ["one"],
    "driver": {"enabled": True, "version": "580.105.08", "kernel_module_type": "open", "precompiled": False},
    "proxy": {"http": "http://p:1", "https": "http://p:1", "no_proxy": [".svc"]},
    "repo_config": "repos",
    "cert_config": "ca",
    "values": {"driver": {"version": "1", "env": []}, "operator": {}},
}


@given(st.data())
def test_one_spoilt_place_of_the_operator_gives_messages_and_no_traceback(data: st.DataObject) -> None:
    operator = copy.deepcopy(WHOLE)
    place: t.Any = operator
    while True:
        key = data.draw(st.sampled_from(sorted(place)) if isinstance(place, dict) else st.integers(0, len(place) - 1))
        if not isinstance(place[key], (dict, list)) or not place[key] or data.draw(st.booleans()):
            place[key] = data.draw(anything)
            break
        place = place[key]
    cluster = {**CLUSTER, "operator": operator}
    problems = validate(cluster, {}, [])
    assert all(problem.startswith("gpu_cluster.operator") and "\n" not in problem for problem in problems)
    if not problems:
        derive(cluster, {}, [])


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        ({"uid": "5B2A9F3C"}, "gpu_cluster.uid: | is not a UID"),
        ({"renamed_from": "prod"}, "gpu_cluster.renamed_from: |-e gpu_renamed_from=NAME"),
        ({"impersonate_groups": ["g"]}, "gpu_cluster.impersonate_user: |is missing"),
    ],
)
def test_what_identifies_the_cluster_and_the_user(cluster: Document, expected: str) -> None:
    (problem,) = validate({**CLUSTER, **cluster}, None, [])
    assert [words for words in expected.split("|") if words not in problem] == []
