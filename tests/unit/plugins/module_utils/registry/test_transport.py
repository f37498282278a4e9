# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests for manifests to servers on loopback that respond as registries may, but the lab's registry never does: redirects, missing headers, login pages."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.errors import ConnectionProblem
from ansible_collections.accel.gpu.plugins.module_utils.core.http import Retrier
from ansible_collections.accel.gpu.plugins.module_utils.registry.client import (
    MAX_BODY,
    RegistryAccess,
    RegistryClient,
    RegistryError,
    RegistryTransport,
    parse_challenge,
)
from ansible_collections.accel.gpu.plugins.module_utils.registry.credentials import Login
from ansible_collections.accel.gpu.plugins.module_utils.registry.reference import (
    ACCEPTED,
    OCI_MANIFEST,
    ImageReference,
    Manifest,
)
from lab.pki import create_authority

DATA = json.dumps({"schemaVersion": 2, "mediaType": OCI_MANIFEST}).encode()
IMAGE = Manifest(DATA, OCI_MANIFEST)
USER = Login("u", "p", "the option for x")
MANIFEST = "/v2/a/manifests/1"


@dataclass
class Response:
    """A response of the server."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Server:
    """A server with its responses by method and path (without query), and the requests that it got: method, path and Authorization."""

    address: str
    responses: dict[str, Response | Callable[[str], Response]]
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    bodies: list[tuple[str | None, bytes]] = field(default_factory=list)

    def client(self, login: Login | None = None) -> RegistryClient:
        """A client for this server."""
        transport = RegistryTransport(
            RegistryAccess(self.address, plain_http=True), lambda dummy: login, "test", timeout=10
        )
        return RegistryClient(lambda dummy: transport)

    def image(self, repository: str = "a") -> ImageReference:
        """An image of this server."""
        return ImageReference(self.address, repository, "1")


@contextmanager
def serve(certificate: Path | None = None) -> Iterator[Server]:
    """A server that lets everyone in while the block runs; with a certificate (PATH.crt and PATH.key), it has TLS."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            path = self.path.partition("?")[0]
            authorization = self.headers.get("Authorization") or ""
            actual.requests.append((self.command, path, authorization))
            actual.accepted.append(self.headers.get("Accept") or "")
            actual.bodies.append(
                (self.headers.get("Content-Type"), self.rfile.read(int(self.headers.get("Content-Length") or 0)))
            )
            answer = actual.responses.get(f"{self.command} {path}", Response(404))
            if callable(answer):
                answer = answer(authorization)
            self.send_response(answer.status)
            for name, text in answer.headers.items():
                self.send_header(name, text)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        do_GET = do_HEAD = do_PUT = respond  # noqa: N815

        def log_message(self, *dummy: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.with_suffix(".crt"), certificate.with_suffix(".key"))
        server.socket = context.wrap_socket(server.socket, server_side=True)
    actual = Server(f"127.0.0.1:{server.server_port}", {"GET /v2/": Response()})
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield actual
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    """A server without images."""
    with serve() as actual:
        yield actual


def typed(**headers: str) -> Response:
    """The manifest with its type."""
    return Response(body=DATA, headers={"Content-Type": OCI_MANIFEST, **headers})


def test_a_digest_costs_one_request_after_the_first(server: Server) -> None:
    server.responses[f"HEAD {MANIFEST}"] = Response(headers={"Docker-Content-Digest": IMAGE.digest})
    client = server.client()
    assert [client.digest(server.image()) for dummy in range(3)] == [IMAGE.digest] * 3
    assert client.digest(server.image("missing")) is None
    expected = [("GET", "/v2/")] + [("HEAD", MANIFEST)] * 3 + [("HEAD", "/v2/missing/manifests/1")]
    assert [(method, path) for method, path, dummy in server.requests] == expected
    # A registry returns 404 for an existing manifest of a type that was not named.
    assert set(server.accepted[1:]) == {", ".join(ACCEPTED)}


@pytest.mark.parametrize(
    "head",
    [Response(), Response(405), Response(headers={"Docker-Content-Digest": "md5:0"})],
    ids=["none", "405", "md5"],
)
def test_a_digest_without_its_header(server: Server, head: Response) -> None:
    server.responses |= {f"HEAD {MANIFEST}": head, f"GET {MANIFEST}": typed()}
    assert server.client().digest(server.image()) == IMAGE.digest


@pytest.mark.parametrize("content_type", [f"{OCI_MANIFEST}; charset=utf-8", "application/json", "text/plain"])
def test_the_type_of_a_manifest(server: Server, content_type: str) -> None:
    server.responses[f"GET {MANIFEST}"] = Response(body=DATA, headers={"Content-Type": content_type})
    assert server.client().manifest(server.image()) == IMAGE
    assert server.client().manifest(server.image("missing")) is None


def test_a_login_page_instead_of_a_manifest(server: Server) -> None:
    server.responses[f"GET {MANIFEST}"] = Response(body=b"<html>", headers={"Content-Type": "text/html"})
    with pytest.raises(RegistryError) as raised:
        server.client().manifest(server.image())
    assert str(raised.value) == (
        f"Registry {server.address} returns no manifest (GET {MANIFEST}): the response is not a JSON object. Check its name: a proxy or a login page "
        "may have responded."
    )


def test_credentials_are_sent_only_to_the_registry(server: Server) -> None:
    basic = Response(401, headers={"WWW-Authenticate": 'Basic realm="r"'})
    with serve() as storage:
        storage.responses["GET /blob"] = typed()
        server.responses |= {
            "GET /v2/": basic,
            f"GET {MANIFEST}": Response(307, headers={"Location": "/moved"}),
            "GET /moved": Response(302, headers={"Location": f"http://{storage.address}/blob"}),
        }
        assert server.client(USER).manifest(server.image()) == IMAGE
        assert storage.requests == [("GET", "/blob", "")]
    assert server.requests == [("GET", "/v2/", ""), ("GET", MANIFEST, USER.basic), ("GET", "/moved", USER.basic)]


def test_endless_redirects(server: Server) -> None:
    server.responses[f"GET {MANIFEST}"] = Response(302, headers={"Location": MANIFEST})
    with pytest.raises(RegistryError, match="with 302"):
        server.client().manifest(server.image())
    assert len(server.requests) == 7


def test_an_expired_token_is_renewed(server: Server) -> None:
    bearer = {"WWW-Authenticate": f'Bearer realm="http://{server.address}/token",service="s"'}
    tokens = iter(["old", "new"])

    def manifest(authorization: str) -> Response:
        return typed() if authorization == "Bearer new" else Response(401, headers=bearer)

    server.responses |= {
        "GET /v2/": Response(401, headers=bearer),
        "GET /token": lambda dummy: Response(body=json.dumps({"token": next(tokens)}).encode()),
        f"GET {MANIFEST}": manifest,
    }
    client = server.client(USER)
    assert client.manifest(server.image()) == client.manifest(server.image()) == IMAGE
    assert server.requests == [
        ("GET", "/v2/", ""),
        ("GET", "/token", USER.basic),
        ("GET", MANIFEST, "Bearer old"),
        ("GET", "/token", USER.basic),
        ("GET", MANIFEST, "Bearer new"),
        ("GET", MANIFEST, "Bearer new"),
    ]


@pytest.mark.parametrize(
    ("login", "remedy"),
    [
        (USER, "It rejects the credentials from the option for x: check user and password."),
        (
            None,
            "Set username and password of the registry in gpu_registries (option registries of the module), or auth_file.",
        ),
    ],
)
def test_rejected_by_the_token_service(server: Server, login: Login | None, remedy: str) -> None:
    server.responses |= {
        "GET /v2/": Response(401, headers={"WWW-Authenticate": f'Bearer realm="http://{server.address}/token"'}),
        "GET /token": Response(401, b'{"details": "incorrect username or password"}'),
    }
    with pytest.raises(RegistryError) as raised:
        server.client(login).digest(server.image())
    assert str(raised.value).startswith(
        f"Registry {server.address} requires other credentials (GET /token for a): incorrect username or password. {remedy}"
    )
    assert MANIFEST not in {path for dummy_method, path, dummy in server.requests}


def test_a_token_that_an_error_repeats_is_not_shown(server: Server) -> None:
    token = "t0ken" * 90
    server.responses |= {
        "GET /v2/": Response(401, headers={"WWW-Authenticate": f'Bearer realm="http://{server.address}/token"'}),
        "GET /token": Response(body=json.dumps({"token": token}).encode()),
        f"GET {MANIFEST}": lambda authorization: Response(403, f"denied: {authorization}".encode()),
    }
    with pytest.raises(RegistryError, match=r"denied: Bearer \(not shown\)") as raised:
        server.client(USER).manifest(server.image())
    assert "t0ken" not in str(raised.value)


def test_a_manifest_is_written_as_it_was_read(server: Server) -> None:
    server.responses[f"PUT {MANIFEST}"] = Response(201)
    server.client().put(server.image(), IMAGE)
    assert (server.requests[-1][:2], server.bodies[-1]) == (("PUT", MANIFEST), (OCI_MANIFEST, DATA))


def test_the_folder_of_official_images_on_docker_hub() -> None:
    transport = RegistryTransport(RegistryAccess("docker.io"), lambda dummy: None, "test")
    assert [transport._full_name(name) for name in ("busybox", "nvidia/cuda")] == ["library/busybox", "nvidia/cuda"]


def test_content_with_another_digest_is_rejected(server: Server) -> None:
    expected = f"sha256:{'a' * 64}"
    actual = Response(200, DATA, {"Content-Type": OCI_MANIFEST, "Docker-Content-Digest": IMAGE.digest})
    server.responses.update({f"{method} /v2/a/manifests/{expected}": actual for method in ("GET", "HEAD")})
    image = server.image().with_digest(expected)
    for read in (server.client().manifest, server.client().digest):
        with pytest.raises(RegistryError, match="instead of"):
            read(image)


def test_a_configuration_with_another_digest_is_rejected(server: Server) -> None:
    digest = f"sha256:{'a' * 64}"
    server.responses[f"GET /v2/a/blobs/{digest}"] = Response(200, b'{"config": {"Labels": {"accel.gpu/inputs": "x"}}}')
    image = Manifest(json.dumps({"config": {"digest": digest}}).encode(), OCI_MANIFEST)
    with pytest.raises(RegistryError, match="instead of"):
        server.client().config(server.image(), image)


def test_a_body_that_is_too_large(server: Server) -> None:
    server.responses[f"GET {MANIFEST}"] = Response(200, b"x" * (MAX_BODY + 1), {"Content-Type": OCI_MANIFEST})
    with pytest.raises(RegistryError, match="larger than 8 MiB"):
        server.client().manifest(server.image())


@pytest.mark.parametrize("part", ["headers", "body", "token"])
def test_a_registry_that_sends_a_byte_at_a_time(part: str) -> None:
    done = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    challenge = f'WWW-Authenticate: Bearer realm="http://{address}/token"\r\n'

    def respond() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = listener.accept()[0]
                with connection:
                    request = connection.recv(1 << 16)
                    if b"GET /v2/ " in request:
                        status = f"401 x\r\n{challenge}" if part == "token" else "200 OK\r\n"
                        connection.sendall(f"HTTP/1.1 {status}Content-Length: 0\r\nConnection: close\r\n\r\n".encode())
                        continue
                    headers = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n" + (
                        b"X: " if part == "headers" else b"\r\n"
                    )
                    connection.sendall(headers)
                    while not done.wait(0.05):
                        connection.sendall(b"x")

    thread = threading.Thread(target=respond)
    thread.start()
    transport = RegistryTransport(RegistryAccess(address, plain_http=True), lambda dummy: USER, "test", timeout=0.3)
    began = time.monotonic()
    try:
        with pytest.raises(RegistryError) as raised:
            RegistryClient(lambda dummy: transport).manifest(ImageReference(address, "a", "1"))
    finally:
        done.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
    assert time.monotonic() - began < 3
    assert str(raised.value) == (
        f"Registry {address} did not respond (GET {MANIFEST}): the response was not complete after 0.9 seconds. Check the network, firewalls and proxies, or raise "
        "request_timeout of the module (for a role: in module_defaults of group/accel.gpu.registry in your own play)."
    )


def test_an_invalid_redirect_is_an_error(server: Server) -> None:
    server.responses[f"GET {MANIFEST}"] = Response(302, b"", {"Location": "http://[bad/"})
    with pytest.raises(RegistryError) as caught:
        server.client().manifest(server.image())
    assert caught.value.status == 302


def test_an_invalid_token_service(server: Server) -> None:
    server.responses["GET /v2/"] = Response(401, b"{}", {"WWW-Authenticate": 'Bearer realm="http://[bad"'})
    with pytest.raises(ConnectionProblem, match="token service is not valid"):
        server.client(USER).manifest(server.image())


def test_a_long_challenge_is_parsed_at_once() -> None:
    began = time.process_time()
    assert parse_challenge("Bearer " + "a" * 60_000).parameters == {}
    assert time.process_time() - began < 1


def test_other_hosts_have_a_certificate_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Private registries redirect blobs to public storage. Their own certificate must be of the given authority."""
    for name in ("own", "system"):
        create_authority(tmp_path / f"{name}.pem", name, tmp_path / name)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "system.pem"))

    def client(server: Server, authority: str) -> RegistryClient:
        access = RegistryAccess(server.address, ca_cert=str(tmp_path / f"{authority}.pem"))
        transport = RegistryTransport(access, lambda dummy: None, "test", timeout=10)
        return RegistryClient(lambda dummy: transport)

    with serve(tmp_path / "own") as registry, serve(tmp_path / "system") as storage:
        registry.responses[f"GET {MANIFEST}"] = Response(307, headers={"Location": f"https://{storage.address}/m"})
        storage.responses["GET /m"] = typed()
        assert client(registry, "own").manifest(registry.image()) == IMAGE
        with pytest.raises(RegistryError, match="certificate verify failed"):
            client(registry, "system").manifest(registry.image())
        with pytest.raises(RegistryError, match="certificate verify failed"):
            client(storage, "own").manifest(storage.image())


def test_a_minute_that_a_registry_asks_for_is_waited(server: Server) -> None:
    limited = Response(429, b"", {"Retry-After": "60"})
    answers = iter([limited, Response(200, headers={"Docker-Content-Digest": IMAGE.digest})])
    server.responses[f"HEAD {MANIFEST}"] = lambda dummy: next(answers)
    now, pauses = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        now[0] += seconds
        pauses.append(seconds)

    access = RegistryAccess(server.address, plain_http=True)
    retrier = Retrier(max_retry_after=60, sleep=sleep, clock=lambda: now[0])
    transport = RegistryTransport(access, lambda dummy: None, "test", timeout=30, retrier=retrier)
    assert RegistryClient(lambda dummy: transport).digest(server.image()) == IMAGE.digest
    assert pauses == [60]
    # A registry that never stops is asked for two minutes.
    server.responses[f"HEAD {MANIFEST}"] = limited
    with pytest.raises(RegistryError, match=r"limits the number of requests \(HEAD /v2/a/manifests/1\)"):
        RegistryClient(lambda dummy: transport).digest(server.image())
    assert pauses == [60, 60, 60]


def test_a_limit_that_the_token_service_reports_as_a_success_is_waited_for(server: Server) -> None:
    limited = Response(
        200,
        json.dumps({"errors": [{"code": "TOOMANYREQUESTS", "message": "slow down"}]}).encode(),
        {"Retry-After": "0"},
    )
    answers = iter([limited, limited, Response(200, b'{"token": "t"}')])
    server.responses |= {
        "GET /v2/": Response(401, headers={"WWW-Authenticate": f'Bearer realm="http://{server.address}/token"'}),
        "GET /token": lambda dummy: next(answers),
        f"HEAD {MANIFEST}": Response(200, headers={"Docker-Content-Digest": IMAGE.digest}),
    }
    assert server.client(USER).digest(server.image()) == IMAGE.digest
    assert next(answers, None) is None
