# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command lines of skopeo and buildah, and the explanation of their errors.

Messages of skopeo 1.9.3 (Debian 12) against docker-registry 2.8.2.
"""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.errors import ConnectionProblem
from ansible_collections.accel.gpu.plugins.module_utils.registry.client import RegistryAccess
from ansible_collections.accel.gpu.plugins.module_utils.registry.credentials import Credentials, Login
from ansible_collections.accel.gpu.plugins.module_utils.registry.images import ImageTools, ToolFailed, error_summary
from ansible_collections.accel.gpu.plugins.module_utils.registry.reference import parse_image, parse_location
from tests.helpers.programs import run_program

FATAL = 'time="2026-11-24T18:00:00Z" level=fatal msg="'
PING = r"pinging container registry 127.0.0.1:5056: Get \"https://127.0.0.1:5056/v2/\": "


@pytest.mark.parametrize(
    ("errors", "words", "remedy"),
    [
        (
            f'{FATAL}reading manifest 1 in 127.0.0.1:5055/a: manifest unknown: manifest unknown"',
            "manifest unknown",
            "Check repository and tag.",
        ),
        (
            f'{FATAL}reading manifest 1 in 127.0.0.1:5056/a: unauthorized: authentication required"',
            "unauthorized: authentication required",
            "Set username and password of the registry, or auth_file.",
        ),
        (
            f'{FATAL}{PING}x509: certificate signed by unknown authority"',
            "x509: certificate signed by unknown authority",
            "This machine does not trust the registry's certificate: set ca_cert of the registry.",
        ),
        (
            f'{FATAL}{PING}http: server gave HTTP response to HTTPS client"',
            "http: server gave HTTP response to HTTPS client",
            "The registry has no TLS: set plain_http of the registry.",
        ),
        (
            f'{FATAL}{PING}dial tcp 127.0.0.1:5056: connect: connection refused"',
            "connection refused",
            "Nothing listens there",
        ),
        (f'{FATAL}writing blob: denied: storage quota exceeded"', "quota exceeded", "Raise the registry's quota"),
        (
            f'{FATAL}writing blob: Patch: write /data: no space left on device"',
            "no space left on device",
            "The disk of this machine or of the registry is full.",
        ),
        (
            f'{FATAL}reading manifest 1 in h/a: toomanyrequests: You have reached your pull rate limit"',
            "pull rate limit",
            "The registry limits the number of requests",
        ),
        (
            f'{FATAL}copying image 3/3 from manifest list: reading manifest sha256:ab in h/a: manifest unknown"',
            "manifest unknown",
            "a pull-through cache may lack the attestations in the image's index: set platforms",
        ),
        (
            f'{FATAL}writing manifest: uploading manifest 1 to h/a: manifest invalid"',
            "manifest invalid",
            "set platforms to one platform.",
        ),
    ],
)
def test_errors_of_skopeo(errors: str, words: str, remedy: str) -> None:
    actual = error_summary("skopeo", errors)
    assert actual.startswith("skopeo says: ")
    assert words in actual
    assert "level=fatal" not in actual
    assert remedy in actual.partition(f"{words}. ")[2]


def test_an_error_without_a_known_remedy() -> None:
    assert error_summary("skopeo", f'{FATAL}loading the policy."\n') == "skopeo says: loading the policy."


def test_a_long_error_keeps_what_failed_and_why() -> None:
    error = f"copying image 3/7: {'writing blob: ' * 80}unexpected EOF"
    actual = error_summary("skopeo", f'{FATAL}{error}"')
    assert actual.startswith("skopeo says: copying image 3/7: ")
    assert "unexpected EOF. The connection was interrupted." in actual


def test_the_end_of_a_long_error_counts() -> None:
    lines = [f"step {number}" for number in range(1000)]
    actual = error_summary("buildah", "\n".join([*lines, "Error: " + "x" * 590]))
    assert actual.endswith("x.")
    assert "step 10 " not in actual
    assert error_summary("buildah", "") == "buildah says: no reason was given."


def test_secrets_in_errors_are_masked() -> None:
    actual = error_summary("skopeo", f'{FATAL}Get "https://u:hunter2@registry.example.com/v2/": no such host"')
    assert "hunter2" not in actual
    assert "The name does not resolve" in actual


class Programs:
    """AnsibleModule.run_command, with the content of the auth file at the time of each call."""

    def __init__(self, status: int = 0, output: str = "", errors: str = "") -> None:
        self.calls: list[list[str]] = []
        self.auths: list[Any] = []
        self.authorities: list[str] = []
        self._answer = status, output, errors

    def run(self, arguments: list[str], **options: Any) -> tuple[int, str, str]:
        self.calls.append(arguments)
        assert (options["expand_user_and_vars"], options["handle_exceptions"]) == (False, False)
        if "--authfile" in arguments:
            path = Path(arguments[arguments.index("--authfile") + 1])
            assert options["pass_fds"] == (int(path.name),)
            assert int(path.name) > 4, "buildah without root uses 3 and 4 for its own pipes"
            self.auths.append(json.loads(path.read_text()))
        for before, text in itertools.pairwise(arguments):
            if before.endswith("cert-dir"):
                self.authorities += [f"{before} {name}={os.readlink(f'{text}/{name}')}" for name in os.listdir(text)]
        return self._answer


def tools(programs: Programs, **access: Any) -> ImageTools:
    """The programs with one login."""
    credentials = Credentials({"registry.example.com": Login("u", "hunter2", "s")})
    return ImageTools(
        programs.run,
        lambda name: f"/usr/bin/{name}",
        credentials,
        lambda registry: (
            RegistryAccess(registry, **access) if registry.startswith("registry") else RegistryAccess(registry)
        ),
    )


SOURCE, TARGET = parse_image("quay.io/a/b:1"), parse_image("registry.example.com/b:1")
START = ["/usr/bin/skopeo", "copy", "--quiet", "--preserve-digests", "--retry-times", "3"]


def options(call: list[str]) -> list[str]:
    """A call without the path of the auth file and the name of a temporary folder."""
    index = call.index("--authfile")
    rest = [*call[:index], *call[index + 2 :]]
    return ["FOLDER" if text.startswith("/") and "accel-gpu-ca-" in text else text for text in rest]


@pytest.mark.parametrize(
    ("access", "tls"),
    [
        ({}, []),
        ({"validate_certs": False}, ["--dest-tls-verify=false"]),
        ({"plain_http": True}, ["--dest-tls-verify=false"]),
        ({"ca_cert": "/etc/ca.pem"}, ["--dest-cert-dir", "FOLDER"]),
        ({"ca_cert": "/etc/ca.pem", "validate_certs": False}, ["--dest-tls-verify=false"]),
    ],
)
def test_each_end_of_a_copy_has_its_own_tls_options(access: dict[str, Any], tls: list[str]) -> None:
    programs = Programs()
    tools(programs, **access).copy(SOURCE, TARGET, all_platforms=True)
    (call,) = programs.calls
    assert options(call) == [*START, "--all", *tls, "docker://quay.io/a/b:1", "docker://registry.example.com/b:1"]
    assert programs.authorities == (["--dest-cert-dir ca.crt=/etc/ca.pem"] if "FOLDER" in tls else [])


def test_credentials_are_in_no_command_line() -> None:
    programs, before = Programs(output="{}"), len(os.listdir("/dev/fd"))
    all_tools = tools(programs)
    all_tools.copy(SOURCE, TARGET, all_platforms=False)
    assert all_tools.inspect(parse_location("oci:/srv/layout:1")) == "{}"
    all_tools.push(["--storage-driver", "vfs", "push"], "localhost/x", TARGET)
    all_tools.build(["bud"], "/context", "FROM registry.example.com/base:1\n")
    assert "hunter2" not in str(programs.calls)
    assert programs.auths == [{"auths": {"registry.example.com": {"auth": "dTpodW50ZXIy"}}}] * 4
    assert options(programs.calls[0])[:-2] == START
    assert options(programs.calls[1]) == ["/usr/bin/skopeo", "inspect", "--raw", "oci:/srv/layout:1"]
    assert options(programs.calls[2])[-2:] == ["localhost/x", "docker://registry.example.com/b:1"]
    assert len(os.listdir("/dev/fd")) == before


def test_a_build_trusts_the_authorities_of_all_registries() -> None:
    programs = Programs()
    given = ["/etc/a.pem", "/etc/b.pem"]
    ImageTools(programs.run, lambda name: name, Credentials({}), RegistryAccess, given).build(
        ["bud"], "/context", "FROM scratch\n"
    )
    assert sorted(programs.authorities) == ["--cert-dir ca.crt=/etc/a.pem", "--cert-dir ca1.crt=/etc/b.pem"]


def test_a_program_that_cannot_start() -> None:
    def run(arguments: list[str], **options: Any) -> tuple[int, str, str]:
        raise PermissionError(13, "Permission denied")

    failing = ImageTools(run, lambda name: f"/usr/bin/{name}", Credentials({}), RegistryAccess)
    with pytest.raises(ToolFailed, match="/usr/bin/skopeo cannot be started: Permission denied"):
        failing.copy(SOURCE, TARGET, all_platforms=True)


def test_an_argument_with_a_nul() -> None:
    failing = ImageTools(run_program, lambda dummy: "/bin/true", Credentials({}), RegistryAccess)
    with pytest.raises(ToolFailed, match="/bin/true cannot be started: embedded null byte"):
        failing.buildah(["images", "a\0b"])


def test_no_room_for_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*dummy: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "symlink", refuse)
    programs = Programs()
    with pytest.raises(ConnectionProblem, match=r"Temporary files for skopeo cannot be written to .*: No space left"):
        tools(programs, ca_cert="/etc/ca.pem").copy(SOURCE, TARGET, all_platforms=True)
    assert programs.calls == []


def test_a_program_that_hangs(tmp_path: Path) -> None:
    program = tmp_path / "skopeo"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    hanging = ImageTools(run_program, lambda dummy: str(program), Credentials({}), RegistryAccess, timeout=0.2)
    with pytest.raises(ToolFailed) as raised:
        hanging.copy(SOURCE, TARGET, all_platforms=True)
    assert str(raised.value).startswith(
        "skopeo copy docker://quay.io/a/b:1 docker://registry.example.com/b:1 was stopped because it did not finish within 0.2 seconds. "
    )
    assert "increase gpu_registry_tool_timeout (option tool_timeout of the module), and run the playbook again" in str(
        raised.value
    )


@pytest.mark.parametrize("missing", ["memfd_create", "/dev/fd"])
def test_a_system_without_files_in_memory(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    if missing == "memfd_create":
        monkeypatch.delattr(os, missing, raising=False)
    else:
        exists = os.path.exists
        monkeypatch.setattr(os.path, "exists", lambda path: not str(path).startswith(missing) and exists(path))
    actual: list[tuple[str, Any]] = []

    def run(arguments: list[str], **options: Any) -> tuple[int, str, str]:
        path = Path(arguments[arguments.index("--authfile") + 1])
        actual.append((str(path), options["pass_fds"]))
        assert json.loads(path.read_text()) == {"auths": {}}
        return 0, "", ""

    ImageTools(run, lambda name: name, Credentials({}), RegistryAccess).copy(SOURCE, TARGET, all_platforms=True)
    ((path, descriptors),) = actual
    assert (descriptors, os.path.lexists(path)) == ((), False)
    assert "accel-gpu-auth-" in path


# What skopeo 1.9.3 says, by the step and the body of a response with status 429.
LIMITED = (
    "reading manifest 1 in h/a: toomanyrequests: slow down",
    "reading manifest 1 in h/a: StatusCode: 429, ",
    "pinging container registry h: too many requests to registry",
    "trying to reuse blob sha256:ab at destination: failed to read from destination repository a: 429 (Too Many Requests)",
    "writing blob: initiating layer upload to /v2/a/blobs/uploads/ in h: StatusCode: 429, {}",
    r"writing blob: uploading layer chunked: StatusCode: 429, {\"message\":\"slow down\"}",
    "writing manifest: uploading manifest sha256:ab to h/a: StatusCode: 429, <html><head><title>Busy</title></...",
)


def waiting(programs: Programs, pauses: list[float], *, ends_after: int) -> ImageTools:
    """The tools, which succeed after some pauses."""

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == ends_after:
            programs._answer = 0, "", ""

    actual = tools(programs)
    actual._sleep = sleep
    return actual


@pytest.mark.parametrize("text", LIMITED)
def test_a_copy_waits_while_the_registry_limits_the_number_of_requests(text: str) -> None:
    programs, pauses = Programs(1, errors=f'{FATAL}{text}"'), list[float]()
    waiting(programs, pauses, ends_after=2).copy(SOURCE, TARGET, all_platforms=True)
    assert (pauses, len(programs.calls)) == ([15.0, 30.0], 3)
    endless = Programs(1, errors=f'{FATAL}{text}"')
    with pytest.raises(ToolFailed) as raised:
        waiting(endless, pauses, ends_after=0).copy(SOURCE, TARGET, all_platforms=True)
    assert len(endless.calls) == 4
    assert "copy docker://quay.io/a/b:1 docker://registry.example.com/b:1 failed" in str(raised.value)
    assert "The registry limits the number of requests: run the playbook again later, or log in" in str(raised.value)


@pytest.mark.parametrize("tool", ["push", "build"])
def test_buildah_waits_as_well(tool: str) -> None:
    programs, pauses = Programs(125, errors="Error: reading manifest 1 in h/a: StatusCode: 429, "), list[float]()
    actual = waiting(programs, pauses, ends_after=1)
    if tool == "push":
        actual.push(["push"], "localhost/x", TARGET)
    else:
        actual.build(["bud"], "/context", "FROM registry.example.com/base:1\n")
    assert (pauses, len(programs.calls)) == ([15.0], 2)


def test_a_wait_for_a_limit_ends_with_the_time_limit() -> None:
    programs, pauses = Programs(1, errors=f'{FATAL}{LIMITED[0]}"'), list[float]()
    actual = waiting(programs, pauses, ends_after=0)
    actual._timeout = 20
    with pytest.raises(ToolFailed, match="limits the number of requests"):
        actual.copy(SOURCE, TARGET, all_platforms=True)
    # The second pause would end after the limit.
    assert pauses == [15.0]


def test_other_failures_are_not_repeated() -> None:
    other = Programs(1, errors=f'{FATAL}reading manifest 4290 in h/a: manifest unknown"')
    with pytest.raises(ToolFailed):
        tools(other).copy(SOURCE, TARGET, all_platforms=True)
    assert len(other.calls) == 1


def test_the_attempts_of_skopeo_itself_are_not_shown() -> None:
    warning = 'time="2026-11-24T18:00:00Z" level=warning msg="Failed, retrying in 1s ... (1/3). Error: no"\n'
    assert error_summary("skopeo", f'{warning}{FATAL}no"') == "skopeo says: no."
    assert "Failed, retrying in 1s" in error_summary("skopeo", warning)


def test_the_state_of_an_upload_is_not_shown() -> None:
    state = "x" * 400
    error = rf"writing blob: uploading layer to https://h/v2/a/blobs/uploads/1?_state={state}&digest=sha256%3Aab: StatusCode: 429, "
    assert error_summary("skopeo", f'{FATAL}{error}"').startswith(
        "skopeo says: writing blob: uploading layer to https://h/v2/a/blobs/uploads/1?_state=...&digest=sha256%3Aab: StatusCode: 429"
    )


def test_a_failure_names_the_command_and_its_images() -> None:
    failing = tools(Programs(1, errors=f'{FATAL}reading manifest 1 in quay.io/a/b: manifest unknown"'))
    with pytest.raises(ToolFailed) as raised:
        failing.copy(SOURCE, TARGET, all_platforms=True)
    assert str(raised.value) == (
        "skopeo copy docker://quay.io/a/b:1 docker://registry.example.com/b:1 failed. skopeo says: reading manifest 1 in quay.io/a/b: manifest "
        "unknown. Check repository and tag. If both are right, a pull-through cache may lack the attestations in the image's index: set platforms to the "
        "nodes' platform."
    )
    with pytest.raises(ToolFailed, match=r"^buildah images failed\. buildah says: no disk\.$"):
        tools(Programs(125, "no disk")).buildah(["--root", "/r", "images"])


def test_a_missing_program() -> None:
    missing = ImageTools(Programs().run, lambda dummy: None, Credentials({}), RegistryAccess)
    with pytest.raises(ConnectionProblem, match=r"skopeo is not installed on this machine\. Install it"):
        missing.copy(SOURCE, TARGET, all_platforms=True)
