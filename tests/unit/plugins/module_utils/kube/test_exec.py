# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands in containers: input and output, limits, refusals, and broken connections."""

from __future__ import annotations

import base64
import ssl
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.waits import call_all
from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.connection_options import ConnectionOptions
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.kube.transport import ExecResult
from tests.helpers.certificates import server_context
from tests.helpers.connect_proxy import ConnectProxy
from tests.helpers.exec_server import V4, Answer, Command, ExecServer, frame, running

POD = "/api/v1/namespaces/gpu-operator/pods/driver-1"


@contextmanager
def client_of(
    respond: Any, *, connection: dict[str, Any] | None = None, **options: Any
) -> Iterator[tuple[Client, ExecServer]]:
    with running(ExecServer(respond, **options)) as server:
        given = ConnectionOptions(
            host=server.address,
            api_key="the-key",
            request_timeout=5,
            impersonate_user="someone",
            impersonate_groups=("a", "b"),
            **(connection or {}),
        )
        yield Client(given, "tests"), server


def echo(command: Command) -> Answer:
    return 0, f"{' '.join(command.words)}\n", ""


def test_the_output_and_the_exit_code() -> None:
    with client_of(lambda command: (3, "out", "err")) as (client, server):
        assert client.exec(POD, "ctr", ["cat", "/a b", "--x=é"]) == ExecResult(3, "out", "err")
        (command,) = server.commands
    assert (command.path, command.container, command.words) == (f"{POD}/exec", "ctr", ["cat", "/a b", "--x=é"])
    assert command.stdin is None
    assert command.headers["authorization"] == "Bearer the-key"
    assert command.headers["user-agent"] == "tests"
    assert command.headers["impersonate-user"] == "someone"
    assert "origin" not in command.headers


def test_a_secret_is_sent_as_input_only() -> None:
    secret = b"secret" * 20_000
    with client_of(lambda command: (0, "", "")) as (client, server):
        assert client.exec(POD, "ctr", ["cp", "/dev/stdin", "/x"], stdin=secret).exit_code == 0
        (command,) = server.commands
    assert command.stdin == secret
    assert "secret" not in command.raw_query


def test_the_older_protocol_ends_the_connection_to_close_the_input() -> None:
    with client_of(lambda command: (0, "", ""), protocols=(V4,)) as (client, server):
        result = client.exec(POD, "ctr", ["cp", "/dev/stdin", "/x"], stdin=b"content")
        assert (result.exit_code, result.ok) == (None, True)
        assert client.exec(POD, "ctr", ["true"]).exit_code == 0
        assert server.commands[0].stdin == b"content"


def test_long_output_is_read_whole() -> None:
    text = "x" * 200_000
    with client_of(lambda command: (0, text, "")) as (client, dummy):
        assert client.exec(POD, "ctr", ["nvidia-smi", "-q"]).stdout == text


def test_endless_output_is_refused() -> None:
    with client_of(lambda command: (0, "x" * 5_000_000, "")) as (client, dummy), pytest.raises(ApiError) as error:
        client.exec(POD, "ctr", ["yes"])
    assert "the output of yes is too long" in error.value.message


def no_end(command: Command) -> Answer:
    raise TimeoutError


def test_a_command_without_end() -> None:
    started = time.monotonic()
    with client_of(no_end) as (client, server), pytest.raises(ApiError) as error:
        client.exec(POD, "ctr", ["nvidia-smi", "-q"], timeout=0.5)
    assert time.monotonic() - started < 10
    assert "nvidia-smi did not end within" in error.value.message
    assert error.value.outcome_unknown
    assert len(server.commands) == 1


def test_a_broken_connection_is_repeated_only_where_this_is_safe() -> None:
    answers = iter([ConnectionAbortedError(), ConnectionAbortedError(), None])

    def respond(command: Command) -> Answer:
        if failure := next(answers):
            raise failure
        return 0, "ok", ""

    with client_of(respond) as (client, server):
        with pytest.raises(ApiError) as error:
            client.exec(POD, "ctr", ["mv", "a", "b"])
        assert error.value.outcome_unknown
        assert client.exec(POD, "ctr", ["cat", "a"], repeatable=True).stdout == "ok"
        assert len(server.commands) == 3


def test_a_command_that_cannot_be_started() -> None:
    with client_of(lambda command: (-1, "", "")) as (client, dummy), pytest.raises(ApiError) as error:
        client.exec(POD, "ctr", ["nvidia-smi"])
    assert (error.value.status, error.value.message) == (500, "container not found")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            {"message": 'User "x" cannot create resource "pods/exec"', "reason": "Forbidden", "code": 403},
            "cannot create",
        ),
        (b"<html>no</html>", "<html>no</html>"),
        (b"", "Refused"),
    ],
)
def test_a_refusal(body: Any, message: str) -> None:
    with client_of(echo, refuse=lambda headers: (403, body)) as (client, dummy), pytest.raises(ApiError) as error:
        client.exec(POD, "ctr", ["true"])
    assert (error.value.status, error.value.reason) == (403, "Forbidden")
    assert message in error.value.message
    assert error.value.lacks_right == ("cannot" in message)


@pytest.mark.parametrize(
    "body", [b"[" * 20_000, {"details": "text"}, {"message": ["a"], "reason": {}}, b'{"message": "\\ud800"}']
)
def test_an_odd_refusal_is_an_error_of_the_server(body: Any) -> None:
    with client_of(echo, refuse=lambda headers: (404, body)) as (client, dummy), pytest.raises(ApiError) as error:
        client.exec(POD, "ctr", ["true"])
    assert error.value.status == 404


@pytest.mark.parametrize(
    "status",
    [
        b"[]",
        b"[" * 20_000,
        b'{"status": "Failure", "code": [1]}',
        b'{"status": "Failure", "code": 1e400}',
        b'{"status": "Failure", "code": "x"}',
        b'{"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": 1e400}]}}',
    ],
)
def test_an_odd_status_is_an_error_of_the_server(status: bytes) -> None:
    with (
        client_of(echo, stream=lambda write: write(frame(bytes([3]) + status))) as (client, dummy),
        pytest.raises(ApiError, match="the connection ended before the command"),
    ):
        client.exec(POD, "ctr", ["true"])


def test_a_busy_server_is_asked_again() -> None:
    answers = iter([(429, {"message": "busy"}), (503, {"message": "starting"}), None])
    with client_of(echo, refuse=lambda headers: next(answers)) as (client, dummy):
        assert client.exec(POD, "ctr", ["a"]).stdout == "a\n"


def test_nothing_listens() -> None:
    with client_of(echo) as (client, dummy):
        pass
    with pytest.raises(ApiError) as error:
        client.exec(POD, "ctr", ["true"])
    assert error.value.unreachable
    assert not error.value.sent


def test_the_guard_of_a_lost_lease_stops_commands() -> None:
    def lost(path: str) -> None:
        raise RuntimeError(path)

    with client_of(echo) as (client, server):
        client.guard = lost
        with pytest.raises(RuntimeError, match="driver-1/exec"):
            client.exec(POD, "ctr", ["true"])
        assert not server.commands


def test_many_commands_at_the_same_time() -> None:
    with client_of(echo) as (client, dummy):
        calls = [
            (str(number), lambda number=number: client.exec(POD, "ctr", [str(number)]).stdout) for number in range(100)
        ]
        assert call_all(calls, 32) == [f"{number}\n" for number in range(100)]


def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with client_of(echo) as (client, dummy):
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        assert client.exec(POD, "ctr", ["a"]).stdout == "a\n"


def pings(write: Callable[[bytes], Any]) -> None:
    while True:
        write(frame(b"x", opcode=9))
        time.sleep(0.05)


def many_pings(write: Callable[[bytes], Any]) -> None:
    data = frame(b"x" * 125, opcode=9) * 1000
    while True:
        write(data)


def slow_frame(write: Callable[[bytes], Any]) -> None:
    write(frame(bytes([1]) + b"x" * 1000)[:20])
    while True:
        time.sleep(0.05)
        write(b"x")


def slow_fragments(write: Callable[[bytes], Any]) -> None:
    write(frame(bytes([1]), final=False))
    while True:
        time.sleep(0.05)
        write(frame(b"x", opcode=0, final=False))


def slow_head(write: Callable[[bytes], Any]) -> None:
    write(b"HTTP/1.1 101 Switching Protocols\r\n")
    while True:
        time.sleep(0.05)
        write(b"X-More: x\r\n")


@pytest.mark.parametrize("stream", [pings, many_pings, slow_frame, slow_fragments])
def test_the_time_limit_holds_whatever_the_server_sends(stream: Any) -> None:
    started = time.monotonic()
    with client_of(echo, stream=stream) as (client, dummy), pytest.raises(ApiError) as error:
        client.exec(POD, "ctr", ["yes"], timeout=0.5)
    assert time.monotonic() - started < 3
    assert "yes did not end within" in error.value.message
    assert error.value.outcome_unknown


def test_the_time_limit_holds_for_the_upgrade() -> None:
    started = time.monotonic()
    with client_of(echo, delay=slow_head) as (client, dummy), pytest.raises(ApiError) as error:
        client.exec(POD, "ctr", ["yes"], timeout=0.5)
    assert time.monotonic() - started < 3
    # The server may have started the command.
    assert error.value.outcome_unknown


def endless_fragments(write: Callable[[bytes], Any]) -> None:
    write(frame(bytes([1]), final=False))
    while True:
        write(frame(b"x" * 100_000, opcode=0, final=False))


def endless_frame(write: Callable[[bytes], Any]) -> None:
    write(bytes([0x82, 127, 0, 0, 1, 0, 0, 0, 0, 0, 1]))
    while True:
        write(b"x" * 100_000)


@pytest.mark.parametrize("stream", [endless_fragments, endless_frame])
def test_the_size_limit_holds_whatever_the_server_sends(stream: Any) -> None:
    tracemalloc.start()
    with client_of(echo, stream=stream) as (client, dummy), pytest.raises(ApiError) as error:
        client.exec(POD, "ctr", ["yes"], timeout=60)
    largest = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "the output of yes is too long" in error.value.message
    assert largest < 50_000_000


def test_output_in_fragments_is_read_whole() -> None:
    def stream(write: Callable[[bytes], Any]) -> None:
        write(frame(bytes([1]) + b"a", final=False) + frame(b"", opcode=9) + frame(b"b", opcode=0))
        write(frame(bytes([3]) + b'{"status": ', final=False) + frame(b'"Success"}', opcode=0))

    with client_of(echo, stream=stream) as (client, dummy):
        assert client.exec(POD, "ctr", ["cat"]) == ExecResult(0, "ab", "")


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, str]:
    context, authority = server_context(tmp_path_factory.mktemp("tls"))
    return context, str(authority)


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("secure_proxy", [False, True])
def test_a_proxy(secure: bool, secure_proxy: bool, tls: tuple[ssl.SSLContext, str]) -> None:
    context, authority = tls
    secret = b"secret" * 20_000
    with ConnectProxy(context if secure_proxy else None).running() as proxy:
        url = f"{'https' if secure_proxy else 'http'}://us%40er:pass%3Aword@localhost:{proxy.port}"
        options = {"proxy": url, "ca_cert": authority}
        given: Any = {"connection": options, "context": context if secure else None}
        with client_of(lambda command: (0, "x" * 200_000, ""), **given) as (client, server):
            assert len(client.exec(POD, "ctr", ["cp", "/dev/stdin", "/x"], stdin=secret).stdout) == 200_000
    (command,) = server.commands
    assert command.stdin == secret
    assert "proxy-authorization" not in command.headers
    (request,) = proxy.requests
    address = server.address.partition("://")[2]
    password = base64.b64encode(b"us@er:pass:word").decode()
    assert request[0] == f"CONNECT {address} HTTP/1.1"
    assert f"Host: {address}" in request
    assert f"Proxy-Authorization: Basic {password}" in request
    (received,) = proxy.received
    assert (b"CONNECT" in received) == (password.encode() in received) == (not secure_proxy)


def test_other_requests_have_the_password_of_the_proxy_too(tls: tuple[ssl.SSLContext, str]) -> None:
    context, authority = tls
    with ConnectProxy(context).running() as proxy:
        options = {"proxy": f"https://user:word@localhost:{proxy.port}", "ca_cert": authority}
        with client_of(echo, connection=options, context=context, refuse=lambda headers: (404, {})) as (client, dummy):
            assert client.get("/api/v1/nodes/a") is None
    password = base64.b64encode(b"user:word").decode()
    assert f"Proxy-Authorization: Basic {password}" in proxy.requests[0]
    assert b"CONNECT" not in proxy.received[0]


def test_a_proxy_that_is_not_trusted(tls: tuple[ssl.SSLContext, str]) -> None:
    with ConnectProxy(tls[0]).running() as proxy:
        options = {"proxy": f"https://user:word@localhost:{proxy.port}"}
        with client_of(echo, connection=options) as (client, dummy), pytest.raises(ApiError) as error:
            client.exec(POD, "ctr", ["a"])
    assert (error.value.reason, error.value.sent) == ("TLS", False)
    assert proxy.requests == []


def test_a_proxy_that_refuses() -> None:
    with ConnectProxy(status=407).running() as proxy:
        options = {"proxy": f"http://localhost:{proxy.port}"}
        with client_of(echo, connection=options) as (client, dummy), pytest.raises(ApiError) as error:
            client.exec(POD, "ctr", ["a"])
    assert (error.value.reason, error.value.sent) == ("Proxy", False)
    assert "407" in error.value.message


def test_a_proxy_of_another_type_is_not_bypassed() -> None:
    with client_of(echo) as (client, server):
        client._pool.proxy_url = "socks5://localhost:9"
        with pytest.raises(ApiError, match="cannot be sent through a proxy of the type socks5"):
            client.exec(POD, "ctr", ["a"])
        assert server.commands == []


def test_tls_without_a_proxy(tls: tuple[ssl.SSLContext, str]) -> None:
    with client_of(echo, connection={"ca_cert": tls[1]}, context=tls[0]) as (client, dummy):
        assert client.exec(POD, "ctr", ["a"]).stdout == "a\n"
    with client_of(echo, context=tls[0]) as (client, server), pytest.raises(ApiError) as error:
        client.exec(POD, "ctr", ["a"])
    assert (error.value.reason, error.value.sent) == ("TLS", False)
    assert server.commands == []
