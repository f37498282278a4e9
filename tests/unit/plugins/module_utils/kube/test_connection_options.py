# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which source names the cluster, and what is rejected because two sources would be combined."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.module_utils.core.errors import ConnectionProblem
from ansible_collections.accel.gpu.plugins.module_utils.helm.preparation import helm_environment
from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.connection import same_server
from ansible_collections.accel.gpu.plugins.module_utils.kube.connection_options import (
    ConnectionOptions,
    ignored_variables,
)
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import WrongCluster

PROD, TEST = "https://prod.example:6443", "https://test.example:6443"
Values = dict[str, Any]


def kubeconfig(path: Path, server: str, *, name: str = "default", token: str = "") -> str:
    """A kubeconfig as RKE2 writes it: the context and the cluster have the same name everywhere."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": {"server": server}}],
        "users": [{"name": name, "user": {"token": token or f"token-of-{path.name}"}}],
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The kubeconfigs of two clusters, one of them the default one; nothing else in the environment."""
    for variable in [name for name in os.environ if name.startswith(("K8S_AUTH_", "HELM_KUBE", "KUBECONFIG"))]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "ca").write_text("ca of prod")
    (tmp_path / "other-ca").write_text("ca of test")
    (tmp_path / "crt").write_text("a client certificate")
    actual = {name: kubeconfig(tmp_path / name, server) for name, server in (("prod", PROD), ("test", TEST))}
    (tmp_path / "link").symlink_to(actual["prod"])
    monkeypatch.setenv("KUBECONFIG", actual["test"])
    names = ("link", "ca", "other-ca", "crt")
    return {**actual, **{name: str(tmp_path / name) for name in names}}


def filled(values: Values, files: dict[str, str]) -> Values:
    """The values, with {prod} and so on as the paths of the files."""
    return {key: value.format(**files) if isinstance(value, str) else value for key, value in values.items()}


def reach(params: Values, cluster: Values, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The connection that these make."""
    return client(params, cluster, environ, monkeypatch).connection


def client(params: Values, cluster: Values, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Client:
    """A client that has sent nothing."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return Client(ConnectionOptions.from_params(params, cluster), "tests")


@pytest.mark.parametrize("current", [None, "", "gone", "test"])
def test_a_selected_context_needs_no_current_one(
    tmp_path: Path, files: dict[str, str], monkeypatch: pytest.MonkeyPatch, current: str | None
) -> None:
    """A credential of AWX contains the contexts of all clusters, and no run uses the current one."""
    documents = [
        yaml.safe_load(Path(kubeconfig(tmp_path / name, url, name=name)).read_text())
        for name, url in (("prod", PROD), ("test", TEST))
    ]
    merged = documents[0]
    for part in ("contexts", "clusters", "users"):
        merged[part] += documents[1][part]
    del merged["current-context"]
    if current is not None:
        merged["current-context"] = current
    path = tmp_path / "merged"
    path.write_text(yaml.safe_dump(merged))
    for name, url in (("prod", PROD), ("test", TEST)):
        assert reach({}, {"kubeconfig": str(path), "context": name}, {}, monkeypatch).server == url
    if current == "test":
        assert reach({}, {"kubeconfig": str(path)}, {}, monkeypatch).server == TEST
    else:
        with pytest.raises(ConnectionProblem, match="has no current context; set context to one of: prod, test"):
            reach({}, {"kubeconfig": str(path)}, {}, monkeypatch)


REACHED: list[tuple[Values, Values, Values, str, str]] = [
    # options, gpu_cluster, environment -> server, bearer token
    ({"kubeconfig": "{prod}"}, {"kubeconfig": "{test}"}, {}, PROD, "token-of-prod"),
    ({"kubeconfig": "{prod}"}, {"kubeconfig": "{test}", "context": "elsewhere"}, {}, PROD, "token-of-prod"),
    ({"host": PROD, "api_key": "key"}, {"kubeconfig": "{test}"}, {}, PROD, "key"),
    ({"host": PROD}, {}, {}, PROD, ""),
    ({"host": PROD, "kubeconfig": "{test}"}, {}, {}, PROD, "token-of-test"),
    ({}, {"kubeconfig": "{prod}"}, {}, PROD, "token-of-prod"),
    ({}, {"context": "default"}, {}, TEST, "token-of-test"),
    ({"context": "default"}, {}, {}, TEST, "token-of-test"),
    ({}, {}, {"K8S_AUTH_KUBECONFIG": "{prod}"}, PROD, "token-of-prod"),
    ({}, {}, {"K8S_AUTH_KUBECONFIG": "{prod}", "K8S_AUTH_API_KEY": "key"}, PROD, "key"),
    ({}, {}, {"K8S_AUTH_HOST": PROD, "K8S_AUTH_API_KEY": "key"}, PROD, "key"),
    ({}, {}, {"K8S_AUTH_HOST": PROD, "K8S_AUTH_KUBECONFIG": "{prod}"}, PROD, "token-of-prod"),
    ({}, {}, {"K8S_AUTH_CONTEXT": "default"}, TEST, "token-of-test"),
    ({}, {}, {}, TEST, "token-of-test"),
    # A variable with the same value, or an empty one, is no conflict.
    ({}, {"kubeconfig": "{prod}"}, {"K8S_AUTH_KUBECONFIG": "{prod}"}, PROD, "token-of-prod"),
    ({}, {"kubeconfig": "{prod}"}, {"K8S_AUTH_KUBECONFIG": "{link}"}, PROD, "token-of-prod"),
    ({}, {"kubeconfig": "{prod}"}, {"K8S_AUTH_HOST": f"{PROD}/"}, PROD, "token-of-prod"),
    ({}, {"kubeconfig": "{prod}"}, {"K8S_AUTH_API_KEY": "token-of-prod"}, PROD, "token-of-prod"),
    ({}, {"kubeconfig": "{prod}"}, {"K8S_AUTH_CONTEXT": "default"}, PROD, "token-of-prod"),
    ({}, {"kubeconfig": "{prod}"}, {"K8S_AUTH_HOST": "", "K8S_AUTH_API_KEY": ""}, PROD, "token-of-prod"),
    ({"kubeconfig": "{prod}", "ca_cert": "{ca}"}, {}, {"K8S_AUTH_SSL_CA_CERT": "{ca}"}, PROD, "token-of-prod"),
    ({}, {"context": "default"}, {"K8S_AUTH_KUBECONFIG": "{test}"}, TEST, "token-of-test"),
    # What is no credential has no effect beside another source.
    ({}, {"kubeconfig": "{prod}"}, {"K8S_AUTH_VERIFY_SSL": "no"}, PROD, "token-of-prod"),
    # KUBECONFIG is the default of every tool, which whatever is declared replaces.
    ({}, {"kubeconfig": "{prod}"}, {"KUBECONFIG": "{test}"}, PROD, "token-of-prod"),
]


@pytest.mark.parametrize(("params", "cluster", "environ", "server", "token"), REACHED)
def test_one_source_counts_as_a_whole(
    files: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    params: Values,
    cluster: Values,
    environ: Values,
    server: str,
    token: str,
) -> None:
    actual = reach(filled(params, files), filled(cluster, files), filled(environ, files), monkeypatch)
    assert actual.server == server
    assert actual.authorization().get("authorization", "").removeprefix("Bearer ") == token
    # The library reads the kubeconfig again for the token, and a request asks for the token first.
    assert actual.server == server
    assert actual.configuration.verify_ssl is True


REFUSED: list[tuple[Values, Values, Values, list[str]]] = [
    # options, gpu_cluster, environment -> words of the message
    (
        {},
        {"kubeconfig": "{prod}"},
        {"K8S_AUTH_HOST": TEST, "K8S_AUTH_API_KEY": "key"},
        ["K8S_AUTH_HOST (https://test.example:6443), K8S_AUTH_API_KEY: ", "gpu_cluster.kubeconfig", "{prod}", "detach"],
    ),
    ({}, {"kubeconfig": "{prod}"}, {"K8S_AUTH_HOST": TEST}, ["K8S_AUTH_HOST", "gpu_cluster.kubeconfig", PROD]),
    ({}, {"kubeconfig": "{prod}"}, {"K8S_AUTH_API_KEY": "key"}, ["K8S_AUTH_API_KEY", "gpu_cluster.kubeconfig"]),
    ({}, {"kubeconfig": "{prod}"}, {"K8S_AUTH_KUBECONFIG": "{test}"}, ["K8S_AUTH_KUBECONFIG ({test})", "{prod}"]),
    ({}, {"kubeconfig": "{prod}"}, {"K8S_AUTH_CONTEXT": "admin"}, ["K8S_AUTH_CONTEXT (admin)", "{prod}"]),
    ({}, {"context": "default"}, {"K8S_AUTH_KUBECONFIG": "{prod}"}, ["K8S_AUTH_KUBECONFIG", "gpu_cluster.context"]),
    ({}, {"kubeconfig": "{prod}"}, {"K8S_AUTH_CERT_FILE": "{crt}"}, ["K8S_AUTH_CERT_FILE", "{prod}"]),
    ({}, {"kubeconfig": "{prod}"}, {"K8S_AUTH_CLIENT_CERT": "{crt}"}, ["K8S_AUTH_CLIENT_CERT", "{prod}"]),
    ({}, {"kubeconfig": "{prod}"}, {"K8S_AUTH_KEY_FILE": "{crt}"}, ["K8S_AUTH_KEY_FILE", "{prod}"]),
    ({}, {"kubeconfig": "{prod}"}, {"K8S_AUTH_SSL_CA_CERT": "{ca}"}, ["K8S_AUTH_SSL_CA_CERT", "{prod}"]),
    ({}, {"kubeconfig": "{prod}"}, {"K8S_AUTH_USERNAME": "u", "K8S_AUTH_PASSWORD": "geheim"}, ["K8S_AUTH_USERNAME"]),
    ({}, {"kubeconfig": "{prod}"}, {"K8S_AUTH_IMPERSONATE_USER": "eve"}, ["K8S_AUTH_IMPERSONATE_USER (eve)"]),
    (
        {},
        {"kubeconfig": "{prod}", "impersonate_user": "me"},
        {"K8S_AUTH_IMPERSONATE_USER": "me", "K8S_AUTH_IMPERSONATE_GROUPS": "admins"},
        ["K8S_AUTH_IMPERSONATE_GROUPS (admins)", "impersonate_user me"],
    ),
    ({"impersonate_user": "me"}, {}, {"K8S_AUTH_IMPERSONATE_USER": "eve"}, ["K8S_AUTH_IMPERSONATE_USER (eve)", "me"]),
    ({"host": PROD}, {}, {"K8S_AUTH_KUBECONFIG": "{test}"}, ["K8S_AUTH_KUBECONFIG", "option host"]),
    ({"host": PROD}, {}, {"K8S_AUTH_API_KEY": "key"}, ["K8S_AUTH_API_KEY", "option host"]),
    ({"kubeconfig": "{prod}"}, {}, {"K8S_AUTH_HOST": TEST}, ["K8S_AUTH_HOST", "option kubeconfig"]),
    ({"context": "x"}, {"kubeconfig": "{prod}"}, {}, ["Option context (x)", "gpu_cluster.kubeconfig"]),
    ({"api_key": "key"}, {"kubeconfig": "{prod}"}, {}, ["Option api_key", "no cluster"]),
    ({"client_cert": "{crt}"}, {}, {"K8S_AUTH_HOST": PROD}, ["Option client_cert", "no cluster"]),
    ({}, {}, {"K8S_AUTH_API_KEY": "key"}, ["K8S_AUTH_API_KEY", "K8S_AUTH_HOST"]),
    ({}, {}, {"K8S_AUTH_USERNAME": "u"}, ["K8S_AUTH_USERNAME", "K8S_AUTH_HOST"]),
    (
        {},
        {},
        {"K8S_AUTH_HOST": PROD, "K8S_AUTH_USERNAME": "u", "K8S_AUTH_PASSWORD": "p"},
        ["K8S_AUTH_USERNAME and K8S_AUTH_PASSWORD"],
    ),
    ({}, {"kubeconfig": "{prod}"}, {"K8S_AUTH_HOST": "https://prod:port"}, ["K8S_AUTH_HOST (https://prod:port)"]),
    (
        {},
        {"kubeconfig": "{prod}", "impersonate_user": "me", "impersonate_groups": 5},
        {},
        ["impersonate_groups: must be a list"],
    ),
    (
        {},
        {"kubeconfig": "{prod}", "impersonate_user": "me", "impersonate_groups": {"a": 1}},
        {},
        ["impersonate_groups: must be a list"],
    ),
    (
        {},
        {},
        {"K8S_AUTH_HOST": PROD, "K8S_AUTH_KUBECONFIG": "{test}"},
        [f"K8S_AUTH_HOST ({PROD})", "{test}", TEST],
    ),
    ({}, {}, {"K8S_AUTH_HOST": PROD, "K8S_AUTH_CONTEXT": "default"}, ["K8S_AUTH_CONTEXT", "K8S_AUTH_HOST"]),
    ({"host": PROD, "context": "default"}, {}, {}, ["option context", "option host"]),
    ({}, {"impersonate_groups": ["g"]}, {}, ["impersonate_groups", "impersonate_user"]),
]


@pytest.mark.parametrize(("params", "cluster", "environ", "words"), REFUSED)
def test_two_sources_are_never_combined(
    files: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    params: Values,
    cluster: Values,
    environ: Values,
    words: list[str],
) -> None:
    with pytest.raises(WrongCluster) as caught:
        reach(filled(params, files), filled(cluster, files), filled(environ, files), monkeypatch)
    message = str(caught.value)
    assert [word for word in words if word.format(**files) not in message] == [], message
    assert "geheim" not in message
    assert "key:" not in message


def test_a_context_needs_a_kubeconfig(files: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG")
    with pytest.raises(ConnectionProblem, match=r"gpu_cluster\.context is 'prod', but there is no kubeconfig"):
        reach({}, {"context": "prod"}, {}, monkeypatch)


@pytest.mark.parametrize("current", [{}, {"current-context": ""}])
def test_a_kubeconfig_for_several_clusters_needs_no_current_context(
    files: dict[str, str], monkeypatch: pytest.MonkeyPatch, current: Values
) -> None:
    document = yaml.safe_load(Path(files["prod"]).read_text())
    del document["current-context"]
    Path(files["prod"]).write_text(yaml.safe_dump({**document, **current}))
    assert reach({}, {"kubeconfig": files["prod"], "context": "default"}, {}, monkeypatch).server == PROD
    with pytest.raises(ConnectionProblem, match="has no current context; set context to one of: default"):
        reach({}, {"kubeconfig": files["prod"]}, {}, monkeypatch)


def test_variables_without_effect_are_named(files: dict[str, str]) -> None:
    environ = {"K8S_AUTH_VERIFY_SSL": "no", "K8S_AUTH_PROXY": "http://p:1", "K8S_AUTH_NO_PROXY": ".svc"}
    chosen = ConnectionOptions.from_params({"proxy": "http://q:1"}, {"kubeconfig": files["prod"]}, environ)
    assert chosen.validate_certs is None
    assert ignored_variables(chosen, environ) == ["K8S_AUTH_VERIFY_SSL", "K8S_AUTH_NO_PROXY"]
    by_environment = ConnectionOptions.from_params({}, {}, {**environ, "K8S_AUTH_HOST": PROD})
    assert (by_environment.validate_certs, by_environment.proxy, by_environment.no_proxy) == (
        False,
        "http://p:1",
        ".svc",
    )
    assert ignored_variables(by_environment, environ) == []


@pytest.mark.parametrize(
    ("params", "cluster", "environ", "expected"),
    [
        ({}, {}, {}, ()),
        ({"impersonate_user": "a"}, {}, {}, (("Impersonate-User", "a"),)),
        (
            {},
            {"impersonate_user": "a", "impersonate_groups": ["x, y", "z"]},
            {},
            (("Impersonate-User", "a"), ("Impersonate-Group", "x, y"), ("Impersonate-Group", "z")),
        ),
        (
            {"impersonate_user": "b"},
            {"impersonate_user": "a", "impersonate_groups": ["z"]},
            {},
            (("Impersonate-User", "b"),),
        ),
        (
            {},
            {},
            {"K8S_AUTH_IMPERSONATE_USER": "a", "K8S_AUTH_IMPERSONATE_GROUPS": "x,y"},
            (("Impersonate-User", "a"), ("Impersonate-Group", "x"), ("Impersonate-Group", "y")),
        ),
    ],
)
def test_who_is_impersonated(
    files: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    params: Values,
    cluster: Values,
    environ: Values,
    expected: tuple[tuple[str, str], ...],
) -> None:
    assert reach(params, cluster, environ, monkeypatch).impersonation == expected


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://a:6443", "https://a:6443/", True),
        ("https://A", "https://a:443", True),
        ("a:6443", "https://a:6443", True),
        ("https://a:6443", "https://b:6443", False),
        ("https://a:6443", "http://a:6443", False),
        ("https://rancher/k8s/clusters/c-1", "https://rancher/k8s/clusters/c-2", False),
    ],
)
def test_addresses(one: str, other: str, same: bool) -> None:
    assert same_server(one, other) is same


def test_helm_gets_the_cluster_and_the_user_of_the_module(
    files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def environment(params: Values, cluster: Values, environ: dict[str, str]) -> dict[str, str]:
        given = helm_environment(client(params, cluster, environ, monkeypatch), environ)
        for name in environ:
            monkeypatch.delenv(name)
        return given

    # HELM_DRIVER: the modules look for Helm's releases in Secrets, and values have no place in a ConfigMap.
    no_user = {"HELM_DRIVER": "secret", "HELM_KUBEASUSER": "", "HELM_KUBEASGROUPS": "", "K8S_AUTH_VERIFY_SSL": "true"}
    # The module of Helm must not read an address that the collection ignores.
    no_host = {**no_user, "K8S_AUTH_HOST": ""}
    declared = {"kubeconfig": files["prod"], "impersonate_user": "a", "impersonate_groups": ["x", "y"]}
    assert environment({}, declared, {}) == {
        **no_host,
        "KUBECONFIG": files["prod"],
        "HELM_KUBECONTEXT": "default",
        "HELM_KUBEASUSER": "a",
        "HELM_KUBEASGROUPS": "x,y",
    }
    # Helm has the same default kubeconfig as the collection; its current context may change meanwhile.
    assert environment({}, {}, {}) == {**no_host, "HELM_KUBECONTEXT": "default"}
    # Helm may start in another folder.
    monkeypatch.chdir(os.path.dirname(files["prod"]))
    relative = {"KUBECONFIG": os.path.basename(files["prod"])}
    assert environment({}, {}, relative) == {**no_host, "KUBECONFIG": files["prod"], "HELM_KUBECONTEXT": "default"}
    # Helm adds host and token of the environment automatically, and must find no other user in a default kubeconfig.
    secret = {"K8S_AUTH_HOST": PROD, "K8S_AUTH_API_KEY": "geheim", "K8S_AUTH_SSL_CA_CERT": files["ca"]}
    given = environment({}, {}, secret)
    assert given == {**no_user, "KUBECONFIG": "/dev/null", "HELM_KUBECAFILE": files["ca"]}
    same = {"HELM_KUBECONTEXT": "default", "HELM_KUBEAPISERVER": PROD, "HELM_KUBETOKEN": "token-of-prod"}
    assert environment({}, {"kubeconfig": files["prod"]}, same)["HELM_KUBECONTEXT"] == "default"


HELM_REFUSED: list[tuple[Values, Values, Values, str]] = [
    ({}, {"kubeconfig": "{prod}"}, {"HELM_KUBECONTEXT": "test"}, "HELM_KUBECONTEXT (test)"),
    ({}, {"kubeconfig": "{prod}"}, {"HELM_KUBEAPISERVER": TEST}, f"HELM_KUBEAPISERVER ({TEST})"),
    ({}, {"kubeconfig": "{prod}"}, {"HELM_KUBETOKEN": "geheim"}, "HELM_KUBETOKEN: "),
    ({}, {"kubeconfig": "{prod}"}, {"HELM_KUBEASUSER": "eve"}, "HELM_KUBEASUSER (eve)"),
    ({}, {"kubeconfig": "{prod}"}, {"HELM_KUBEASGROUPS": "admins"}, "HELM_KUBEASGROUPS (admins)"),
    ({}, {"kubeconfig": "{prod}"}, {"HELM_KUBECAFILE": "{ca}"}, "HELM_KUBECAFILE"),
    ({}, {"kubeconfig": "{prod}"}, {"HELM_KUBETLS_SERVER_NAME": "x"}, "HELM_KUBETLS_SERVER_NAME (x)"),
    ({}, {"kubeconfig": "{prod}"}, {"HELM_KUBEINSECURE_SKIP_TLS_VERIFY": "true"}, "HELM_KUBEINSECURE_SKIP_TLS_VERIFY"),
    ({"host": PROD, "api_key": "geheim"}, {}, {}, "option host"),
    ({"kubeconfig": "{prod}", "proxy": "http://p:1"}, {}, {}, "option proxy"),
    ({}, {}, {"K8S_AUTH_HOST": PROD, "K8S_AUTH_CERT_FILE": "{crt}"}, "K8S_AUTH_CERT_FILE"),
    ({}, {"impersonate_user": "a", "impersonate_groups": ["CN=a,OU=b"]}, {}, "CN=a,OU=b"),
]


@pytest.mark.parametrize(("params", "cluster", "environ", "words"), HELM_REFUSED)
def test_helm_is_not_led_elsewhere(
    files: dict[str, str], monkeypatch: pytest.MonkeyPatch, params: Values, cluster: Values, environ: Values, words: str
) -> None:
    given, document, variables = (filled(values, files) for values in (params, cluster, environ))
    actual = client(given, document, variables, monkeypatch)
    with pytest.raises(WrongCluster) as caught:
        helm_environment(actual, variables)
    assert words.format(**files) in str(caught.value)
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize("form", [json.dumps, yaml.safe_dump])
def test_the_content_of_a_kubeconfig_is_refused_and_not_quoted(
    files: dict[str, str], form: Callable[[Any], str]
) -> None:
    text = form(yaml.safe_load(Path(files["prod"]).read_text()))
    for params, cluster, environ in (
        ({"kubeconfig": text}, {}, {}),
        ({}, {"kubeconfig": text}, {}),
        ({}, {}, {"K8S_AUTH_KUBECONFIG": text}),
    ):
        with pytest.raises(WrongCluster, match="contains the content of a kubeconfig") as caught:
            ConnectionOptions.from_params(params, cluster, environ)
        assert "geheim" not in str(caught.value)


def test_a_path_may_look_like_a_key_of_a_kubeconfig() -> None:
    ConnectionOptions.from_params({"kubeconfig": "/srv/apiVersion-v1/config"}, {}, {})


def test_helm_takes_no_dictionary(files: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    params = {"kubeconfig": yaml.safe_load(Path(files["prod"]).read_text())}
    with pytest.raises(WrongCluster, match="dictionary"):
        helm_environment(client(params, {}, {}, monkeypatch), {})
