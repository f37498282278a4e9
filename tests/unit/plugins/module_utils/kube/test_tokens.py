# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A token that HTTP cannot carry is rejected with its origin, and appears nowhere; white space around one is left out."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.config import incluster_config

from ansible_collections.accel.gpu.plugins.module_utils.clouds.vks_client import HttpClient
from ansible_collections.accel.gpu.plugins.module_utils.core.errors import ConnectionProblem
from ansible_collections.accel.gpu.plugins.module_utils.helm.preparation import require_usable_token
from ansible_collections.accel.gpu.plugins.module_utils.kube import connection
from ansible_collections.accel.gpu.plugins.module_utils.kube.connection import Connection, connect
from ansible_collections.accel.gpu.plugins.module_utils.kube.connection_options import (
    ConnectionOptions,
    secret_variables,
)
from ansible_collections.accel.gpu.plugins.module_utils.kube.module import secrets_in
from ansible_collections.accel.gpu.plugins.module_utils.kube.transport import Transport
from ansible_collections.accel.gpu.plugins.modules import gpu_info
from tests.faults.api_proxy import Answer, Proxy, Request
from tests.helpers.modules import run_module

SECRET = "S3cretPlanted"
# Nothing listens on this port, because tokens must be refused before a request is sent.
SERVER = "https://127.0.0.1:9"
# Without TLS no connection is made before the headers are written.
PLAIN_SERVER = "http://127.0.0.1:9"
REFUSED = [
    f"{SECRET}\nsecond",
    f"{SECRET}\r\nX-Header: a",
    f"{SECRET}\x00",
    f"{SECRET}é",
    f"{SECRET}€",
    f"{SECRET} two",
    " \n",
]
PADDED = [f"{SECRET}\n", f" {SECRET}", f"\t{SECRET}\r\n"]
Origin = Callable[[str], Connection]


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in the environment names a cluster."""
    for variable in [name for name in os.environ if name.startswith(("K8S_AUTH_", "HELM_KUBE", "KUBECONFIG"))]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("HOME", str(tmp_path))


def kubeconfig(folder: Path, **user: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": SERVER}}],
        "users": [{"name": "u", "user": user}],
    }


@pytest.fixture(params=["variable", "option", "file", "dictionary", "token file", "pod"])
def origin(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Origin]:
    """How the refusal names it, and the connection with a token from there."""

    def by(params: dict[str, Any]) -> Connection:
        return connect(ConnectionOptions.from_params(params))

    def variable(token: str) -> Connection:
        # The environment holds no such character.
        monkeypatch.setenv("K8S_AUTH_API_KEY", token.replace("\x00", "\x01"))
        monkeypatch.setenv("K8S_AUTH_HOST", SERVER)
        return by({})

    def file(**user: str) -> Connection:
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(kubeconfig(tmp_path, **user)), encoding="utf-8")
        return by({"kubeconfig": str(path)})

    def token_file(token: str) -> Connection:
        (tmp_path / "token").write_text(token, encoding="utf-8")
        return file(tokenFile=str(tmp_path / "token"))

    def pod(token: str) -> Connection:
        for name, text in (("token", token), ("ca", "a certificate")):
            (tmp_path / name).write_text(text, encoding="utf-8")
        monkeypatch.setattr(connection, "_IN_CLUSTER_TOKEN", str(tmp_path / "token"))
        monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
        monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca"))
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "9")
        return by({})

    origins: dict[str, tuple[str, Origin]] = {
        "variable": ("K8S_AUTH_API_KEY", variable),
        "option": ("option api_key", lambda token: by({"host": SERVER, "api_key": token})),
        "file": ("kubeconfig", lambda token: file(token=token)),
        "dictionary": ("dictionary", lambda token: by({"kubeconfig": kubeconfig(tmp_path, token=token)})),
        "token file": ("kubeconfig", token_file),
        "pod": ("service account", pod),
    }
    return origins[request.param]


@pytest.mark.parametrize("token", REFUSED)
def test_a_token_that_cannot_be_sent_is_refused_by_its_origin(origin: tuple[str, Origin], token: str) -> None:
    name, connected = origin
    if not token.strip() and name in ("K8S_AUTH_API_KEY", "option api_key"):
        pytest.skip("counts as not given")
    with pytest.raises(ConnectionProblem, match=name) as caught:
        connected(token)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("token", PADDED)
def test_white_space_around_a_token_is_left_out(origin: tuple[str, Origin], token: str) -> None:
    _name, connected = origin
    (value,) = connected(token).authorization().values()
    assert value.split(" ", 1)[1] == SECRET


def test_a_variable_that_says_the_same_is_no_conflict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K8S_AUTH_API_KEY", f"{SECRET}\n")
    given = ConnectionOptions.from_params({"kubeconfig": kubeconfig(tmp_path, token=SECRET)})
    assert connect(given).authorization() == {"authorization": f"Bearer {SECRET}"}


def test_a_token_is_masked_as_it_is_sent() -> None:
    assert SECRET in secret_variables({"K8S_AUTH_API_KEY": f"{SECRET}\n"})
    assert SECRET in secrets_in({"api_key": f"{SECRET}\n"})
    assert SECRET in secrets_in({"kubeconfig": {"users": [{"user": {"token": f"{SECRET}\n"}}]}})


def test_helm_reads_the_variable_as_it_is() -> None:
    with pytest.raises(ConnectionProblem, match="K8S_AUTH_API_KEY") as caught:
        require_usable_token({"K8S_AUTH_API_KEY": f"{SECRET}\n"})
    assert SECRET not in str(caught.value)
    require_usable_token({"K8S_AUTH_API_KEY": SECRET})


def test_no_header_is_quoted() -> None:
    """Whatever was overlooked before."""
    given = ConnectionOptions(host=PLAIN_SERVER, impersonate_user=f"{SECRET}\nX-Other: a", request_timeout=1)
    transport = Transport(given, "test")
    with pytest.raises(ConnectionProblem, match="header") as caught:
        transport.send("GET", "/version")
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("token", [f"{SECRET}\n", f"{SECRET}€"])
def test_vks_quotes_no_header_either(token: str) -> None:
    client = HttpClient("test")
    with pytest.raises(ConnectionProblem, match="header") as caught:
        client.request("VKS", "GET", PLAIN_SERVER, headers={"Authorization": f"Bearer {token}"})
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("token", [*PADDED, *REFUSED[:2], REFUSED[3]])
def test_a_module_prints_no_part_of_it(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that refuses the token, so that even one that can be sent is talked about."""
    proxy = Proxy("http://127.0.0.1:9")
    with proxy.running():

        def refuse(request: Request) -> Answer:
            return Answer(401, json.dumps({"kind": "Status", "message": "Unauthorized"}).encode())

        proxy.before = refuse
        monkeypatch.setenv("K8S_AUTH_HOST", proxy.url)
        monkeypatch.setenv("K8S_AUTH_API_KEY", token)
        outcome = run_module(gpu_info.main, {})
    assert outcome["failed"]
    assert SECRET not in json.dumps(outcome, ensure_ascii=False)
