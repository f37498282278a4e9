# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands in containers: input and output, limits, refusals, and broken connections."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.common.parallel import call_all
from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.connection_options import ConnectionOptions
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.kube.exec import ExecResult
from tests.helpers.exec_server import V4, Answer, Command, ExecServer, running

POD = "/api/v1/namespaces/gpu-operator/pods/driver-1"


@contextmanager
def client_of(respond: Any, **options: Any) -> Iterator[tuple[Client, ExecServer]]:
    with running(ExecServer(respond, **options)) as server:
        given = ConnectionOptions(
            host=server.address,
            api_key="the-key",
            request_timeout=5,
            impersonate_user="someone",
            impersonate_groups=("a", "b"),
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
