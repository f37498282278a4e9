# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of the modules for images that are rejected before any request, and files that must not stop a run."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core import files
from ansible_collections.accel.gpu.plugins.module_utils.core.errors import ConnectionProblem, InvalidOptions
from ansible_collections.accel.gpu.plugins.module_utils.registry.client import REQUEST_TIMEOUT_OPTION
from ansible_collections.accel.gpu.plugins.module_utils.registry.credentials import Credentials, Login
from ansible_collections.accel.gpu.plugins.modules import (
    driver_image,
    image_set,
    pull_secret,
    registry_image,
    registry_image_info,
)
from tests.helpers.modules import run_module

HOST = "registry.invalid"


def read(env: dict[str, str] | None = None, **options: Any) -> dict[str, Any]:
    """The result of registry_image_info, which cannot reach the registry."""
    given = {"images": [f"{HOST}/a:1"], "request_timeout": 1, **options}
    return run_module(registry_image_info.main, given, env={"HTTPS_PROXY": "", **(env or {})})


def test_the_value_of_a_misspelled_suboption_is_not_shown() -> None:
    failed = read(registries=[{"registry": HOST, "username": "u", "passwort": "planted-Secret-9"}])
    assert "passwort" in failed["msg"]
    assert "planted" not in json.dumps(failed)


@pytest.mark.parametrize(
    ("main", "options", "where"),
    [
        (registry_image_info.main, {"registries": [{"registry": f"robot:planted@{HOST}"}]}, "registries[0].registry"),
        (registry_image_info.main, {"images": [f"robot:planted@{HOST}/x:1"]}, "images[0]"),
        (registry_image_info.main, {"images": [f"docker://robot:pl/nted@{HOST}/x@sha256:{'0' * 64}"]}, "images[0]"),
        (
            registry_image.main,
            {"images": [{"source": f"robot:planted@{HOST}/x:1", "destination": f"robot:pl/nted@{HOST}/y:1"}]},
            "images[0].source",
        ),
        (driver_image.main, {"source": f"robot:planted@{HOST}/x", "operating_systems": ["rhel9.6"]}, "source"),
        (image_set.main, {"mirror": f"robot:planted@{HOST}/x"}, "mirror"),
        (image_set.main, {"upstreams": {"nvcr.io": f"robot:planted@{HOST}"}}, "upstreams"),
    ],
)
def test_a_password_in_the_name_of_an_image_or_a_registry(
    main: Callable[[], None], options: dict[str, Any], where: str
) -> None:
    cluster = {"gpu_cluster": {"name": "c", "operator": {"version": "v25.10.1"}}, "gpu_pools": []}
    needed = {"images": [f"{HOST}/a:1"]} if main is registry_image_info.main else {}
    failed = run_module(main, {**({} if "images" in options else needed or cluster), **options})
    assert failed["code"] == "invalid", failed
    assert failed["msg"].partition("\n")[2 if "\n" in failed["msg"] else 0].startswith(where)
    assert "contains a user or a password; set username and password in registries" in failed["msg"]
    for secret in ("planted", "pl/nted"):
        assert secret not in json.dumps(failed)


@pytest.mark.parametrize(
    "text", ["", " ", "[]", json.dumps([{"registry": HOST, "username": "u", "password": "planted"}])]
)
def test_registries_as_text(text: str) -> None:
    failed = read(registries=text)
    assert failed["code"] == "unreachable", failed
    assert "planted" not in json.dumps(failed)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"registry": HOST, "password": "planted"}),
        json.dumps(["planted"]),
        json.dumps([{"registry": HOST, "password": "planted"}])[:-1],
        "registry=x,password=planted",
        "5",
    ],
)
def test_text_that_is_no_list_of_registries(text: str) -> None:
    cluster = {"gpu_cluster": {"name": "c"}, "names": ["a"], "namespaces": ["a"]}
    for main, options in ((registry_image_info.main, {"images": [f"{HOST}/a:1"]}), (pull_secret.main, cluster)):
        failed = run_module(main, {**options, "registries": text})
        assert (failed["code"], failed["msg"]) == (
            "invalid",
            'registries: is a string, but not a list of maps as JSON; write it as [{"registry": "registry.example.com", "username": "...", "password": "..."}]',
        )
        assert "planted" not in json.dumps(failed)
        assert failed["invocation"]["module_args"]["registries"] == "(not shown)"


@pytest.mark.parametrize("value", [5, {"registry": HOST, "password": "planted"}, ["planted"], [5], [None], None])
def test_registries_of_another_type(value: Any) -> None:
    failed = read(registries=value)
    assert failed["failed"]
    assert "Traceback" not in json.dumps(failed)
    assert "planted" not in failed["msg"]


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"registry": f"{HOST}/"}, 'registry: "registry.invalid/" has an invalid repository'),
        ({"registry": f"{HOST}/Folder"}, 'registry: "registry.invalid/Folder" has an invalid repository'),
        ({"registry": f"{HOST}/a:1"}, 'registry: "registry.invalid/a:1" has a tag or a digest'),
        ({"registry": f"https://{HOST}/a"}, 'registry: "https://registry.invalid/a" is an address'),
        ({"registry": f"docker://{HOST}/a"}, 'registry: "docker://registry.invalid/a" has a scheme'),
        ({"registry": "nvcr"}, 'registry: "nvcr" does not specify a registry'),
        (
            {"registry": HOST, "username": "robot:planted", "password": "x"},
            "username: contains a colon, which separates user and password; set username and password separately",
        ),
    ],
)
def test_entries_that_are_no_registries(entry: dict[str, str], problem: str) -> None:
    failed = read(registries=[entry])
    assert failed["code"] == "invalid"
    assert failed["msg"].startswith(f"registries[0].{problem}")
    assert "planted" not in failed["msg"]


@pytest.mark.parametrize("timeout", [-1, 0, 10**12])
def test_time_limits(timeout: int) -> None:
    limits = "must be from 1 to 86400 seconds"
    assert read(request_timeout=timeout)["details"]["problems"] == [f"{REQUEST_TIMEOUT_OPTION}: {limits}"]
    images = [{"source": f"{HOST}/a:1", "destination": f"{HOST}/b:1"}]
    failed = run_module(registry_image.main, {"images": images, "tool_timeout": timeout})
    assert failed["details"]["problems"] == [f"gpu_registry_tool_timeout (option tool_timeout of the module): {limits}"]


def test_two_entries_for_one_registry() -> None:
    failed = read(registries=[{"registry": HOST}, {"registry": HOST, "plain_http": True}])
    assert failed["msg"] == f'registries[1].registry: "{HOST}" has an entry already; remove one of them'


def test_auth_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff")
    os.mkfifo(tmp_path / "pipe")
    for name, reason in (("binary", "it is not text"), ("pipe", "it is not a regular file")):
        failed = read(auth_file=str(tmp_path / name))
        assert (failed["code"], failed["msg"].partition("cannot be read: ")[2]) == ("connection", f"{reason}.")


@pytest.mark.parametrize("output", ["[]", "null", "5", '{"Username": [1], "Secret": {}}', "x"])
def test_credential_helpers_without_a_login(tmp_path: Path, output: str) -> None:
    helper = tmp_path / "docker-credential-test"
    helper.write_text(f"#!/bin/sh\necho '{output}'\n")
    helper.chmod(0o755)
    (tmp_path / "auth.json").write_text(json.dumps({"credHelpers": {HOST: "test", "other.invalid": "../x"}}))
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert read(environment, auth_file=str(tmp_path / "auth.json"), request_timeout=10)["code"] == "unreachable"


def test_a_credential_helper_that_is_not_installed(tmp_path: Path) -> None:
    (tmp_path / "auth.json").write_text(json.dumps({"credHelpers": {HOST: "missing", "other.invalid": "other"}}))
    failed = read(auth_file=str(tmp_path / "auth.json"))
    warning = str(failed["warnings"])
    assert f'credential helper "missing" for {HOST}' in warning
    assert "docker-credential-missing is not installed" in warning


def test_a_credential_helper_that_hangs(tmp_path: Path) -> None:
    helper = tmp_path / "docker-credential-test"
    helper.write_text("#!/bin/sh\nexec sleep 20\n")
    helper.chmod(0o755)
    (tmp_path / "auth.json").write_text(json.dumps({"credHelpers": {HOST: "test"}}))
    began = time.monotonic()
    failed = read({"PATH": f"{tmp_path}:{os.environ['PATH']}"}, auth_file=str(tmp_path / "auth.json"))
    assert time.monotonic() - began < 10
    assert (failed["code"], failed["msg"]) == (
        "connection",
        f"The credential helper docker-credential-test did not return a login for {HOST} within 1 seconds. Run it manually: echo {HOST} | "
        "docker-credential-test get. It must not ask for input. Or set username and password of the registry, or raise request_timeout of the module "
        "(for a role: in module_defaults of group/accel.gpu.registry in your own play).",
    )


def test_a_password_that_is_not_unicode() -> None:
    assert Login("u", "\udcff", "").encoded == "dTr/"


def test_files_that_are_not_regular(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "file").touch()
    for path in ("pipe", "link", "file/below", "x\0y"):
        with pytest.raises(ConnectionProblem):
            files.text_of_file(str(tmp_path / path))
    with pytest.raises(ConnectionProblem, match="cannot be created"):
        files.make_folder(str(tmp_path / "file" / "folder" / "digests.json"))
    assert files.text_of_file(str(tmp_path / "missing")) is None
    assert files.text_of_file(str(tmp_path / "file")) == ""


@pytest.mark.parametrize(
    "options",
    [
        {"mirror": "Not A Registry"},
        {"mirror": "--x"},
        {"mirror": "docker://registry.example.com/mirror"},
        {"upstreams": {"nvcr.io": None}},
        {"upstreams": {"nvcr.io": 5}},
        {"upstreams": {"https://nvcr.io": "registry.example.com"}},
        {"upstreams": {"nvcr.io/nvidia": "registry.example.com"}},
    ],
)
def test_mirrors_that_are_none(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptions, match=r"mirror|upstreams"):
        image_set._check_registries({"mirror": None, "upstreams": {}, **options})


@pytest.mark.parametrize("name", ["", "a/b", "../x", "x?dryRun=All", "a\n", "A"])
def test_names_that_are_parts_of_addresses(name: str) -> None:
    for option in ({"names": [name], "namespaces": ["a"]}, {"names": ["a"], "namespaces": [name]}):
        with pytest.raises(InvalidOptions, match="is not a valid Kubernetes name"):
            pull_secret._check_names(option)
    pull_secret._check_names({"names": ["a.b-c"], "namespaces": ["gpu-operator"]})


def test_an_identity_token_is_no_login_for_nodes() -> None:
    class Module:
        params: Any = {"registries": [{"registry": HOST}]}
        credentials = Credentials({HOST: Login("", "", "/auth.json", identity_token="planted")})

    with pytest.raises(InvalidOptions, match="is an identity token") as caught:
        pull_secret._desired(Module(), {("default", "login"): None})  # type: ignore[arg-type]
    assert "planted" not in str(caught.value)
