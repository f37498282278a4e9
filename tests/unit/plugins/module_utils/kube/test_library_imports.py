# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A connection imports only the parts of the kubernetes library that it uses; the others are imported when something uses them."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.programs import BUILD, environment

START = "import sys\nfrom ansible_collections.accel.gpu.plugins.module_utils.kube import connection\n"
UNUSED = ("oauthlib.oauth2", "pydantic", "requests", "websocket")
LATER = """
import kubernetes
from kubernetes import watch
from kubernetes.dynamic import DynamicClient
assert all(isinstance(found, type) for found in (kubernetes.client.ApiClient, watch.Watch, kubernetes.watch.Watch, DynamicClient))
assert kubernetes.client.ApiClient is sys.modules["kubernetes.client.api_client"].ApiClient
"""
CONNECT = """
from ansible_collections.accel.gpu.plugins.module_utils.kube.connection_options import ConnectionOptions
print(connection.connect(ConnectionOptions(kubeconfig=sys.argv[1])).authorization()["authorization"])
"""


def run(code: str, *arguments: str) -> str:
    """Run Python code in a process that has imported nothing else."""
    environ = environment(PYTHONPATH=str(BUILD), OAUTHLIB_INSECURE_TRANSPORT="1")
    command = [sys.executable, "-c", START + code, *arguments]
    return subprocess.run(command, env=environ, check=True, capture_output=True, text=True, timeout=120).stdout


def test_unused_parts_are_not_imported() -> None:
    """They take as long as everything else that a connection imports."""
    assert run(f"print([name for name in {UNUSED!r} if name in sys.modules])").strip() == "[]"


def test_other_code_gets_the_library() -> None:
    """A plugin of another collection in the same process sees no placeholder."""
    assert run(LATER) == ""


class _Issuer(BaseHTTPRequestHandler):
    """Answers a refresh of a token."""

    def do_GET(self) -> None:
        self._answer({"token_endpoint": f"http://{self.headers['Host']}/token"})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer({"access_token": "a", "token_type": "Bearer", "id_token": "NEW", "refresh_token": "r"})

    def _answer(self, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@pytest.fixture(name="issuer")
def issuer_fixture() -> Iterator[str]:
    """The address of an OpenID issuer."""
    with HTTPServer(("127.0.0.1", 0), _Issuer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_an_expired_oidc_token_is_refreshed(issuer: str, tmp_path: Path) -> None:
    """Here the library uses its API client and OAuth."""
    claims = base64.urlsafe_b64encode(json.dumps({"exp": 1000000000}).encode()).decode().rstrip("=")
    config = {
        "client-id": "c",
        "client-secret": "s",
        "id-token": f"a.{claims}.b",
        "refresh-token": "r",
        "idp-issuer-url": issuer,
    }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": {"server": "https://127.0.0.1:9"}}],
        "users": [{"name": "test", "user": {"auth-provider": {"name": "oidc", "config": config}}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    assert run(CONNECT, str(path)).strip() == "Bearer NEW"
