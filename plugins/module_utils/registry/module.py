# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defines the base classes of the modules that access registries, with their options, credentials and clients."""

from __future__ import annotations

import functools
import json
import os
import re
import threading
import typing as t

from ..catalog.secrets import NOT_SHOWN
from ..core.errors import ConnectionProblem, InvalidOptions
from ..core.messages import quote
from ..core.module import ArgumentSpec, BaseModule, merge_specs
from ..core.types import from_json, is_blank
from ..core.waits import call_within
from .client import REQUEST_TIMEOUT_OPTION, RegistryAccess, RegistryClient, RegistryTransport
from .credentials import AUTH_FILE_VARIABLE, Credentials, InvalidAuthFile, Login, read_credentials
from .images import DEFAULT_TIMEOUT, TIMEOUT_OPTION, ImageTools
from .reference import InvalidReference, parse_repository, password_in

REGISTRY: ArgumentSpec = {
    "registries": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "registry": {"type": "str", "required": True},
            "username": {"type": "str"},
            "password": {"type": "str", "no_log": True},
            "ca_cert": {"type": "path"},
            "validate_certs": {"type": "bool", "default": True},
            "plain_http": {"type": "bool", "default": False},
        },
    },
    "auth_file": {"type": "path"},
    "request_timeout": {"type": "int", "default": 30},
}
# For modules that call skopeo or buildah.
IMAGE_TOOLS: ArgumentSpec = {"tool_timeout": {"type": "int", "default": DEFAULT_TIMEOUT}}
# The options of the image modules whose values contain names of images, registries or folders.
_NAMES = ("images", "mirror", "registries", "source", "upstreams")
_MAX_TIMEOUT = 86400
_HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# The files in which docker and podman store logins; the first one that exists is read (containers-auth.json.5.md).
_AUTH_FILES = (
    "$XDG_RUNTIME_DIR/containers/auth.json",
    "~/.config/containers/auth.json",
    "~/.docker/config.json",
    "~/.dockercfg",
)


class RegistryAccessMixin(BaseModule):
    """Provides the clients for a module that has the options in REGISTRY."""

    def _load_params(self) -> None:
        """Convert registries that are given as a JSON string, for example by a survey. Ansible would split the string at commas, and print a part of it in an
        error message.
        """
        super()._load_params()
        given = self.params.get("registries")
        if not isinstance(given, str):
            return
        registries = [] if is_blank(given) else from_json(given)
        if not isinstance(registries, list) or not all(isinstance(entry, dict) for entry in registries):
            self.params["registries"] = NOT_SHOWN
            self.fail_json(
                msg="registries: is a string, but not a list of maps as JSON; write it as "
                '[{"registry": "registry.example.com", "username": "...", "password": "..."}]',
                code="invalid",
            )
        self.params["registries"] = registries

    def secrets(self) -> set[str]:
        """The passwords in the options, in the auth file and in the environment, and any passwords in the names of images (such names are rejected)."""
        known = self.__dict__["credentials"].secrets if "credentials" in self.__dict__ else set()
        misplaced = {
            password for name in _NAMES for text in _texts(self.params.get(name)) if (password := password_in(text))
        }
        return super().secrets() | known | misplaced

    @functools.cached_property
    def credentials(self) -> Credentials:
        """The logins; raises InvalidOptions or ConnectionProblem."""
        self._check_registries()
        path, text = self._auth_file()
        try:
            credentials = read_credentials(self.params["registries"], text, path, os.environ, self._ask_helper)
        except InvalidAuthFile as error:
            raise ConnectionProblem(f"{error}.") from None
        self.no_log_values.update(credentials.secrets)
        return credentials

    @functools.cached_property
    def registry_client(self) -> RegistryClient:
        """The client for all registries."""
        lock, transports = threading.Lock(), dict[str, RegistryTransport]()
        find_login, timeout = self.credentials.find, self.params["request_timeout"]

        def transport_of(registry: str) -> RegistryTransport:
            with lock:
                if registry not in transports:
                    access = self._access(registry)
                    transports[registry] = RegistryTransport(access, find_login, self.user_agent, timeout=timeout)
                return transports[registry]

        return RegistryClient(transport_of)

    @functools.cached_property
    def image_tools(self) -> ImageTools:
        """The interface to skopeo and buildah, with the same credentials as the client."""
        authorities = dict.fromkeys(option["ca_cert"] for option in self.params["registries"] if option["ca_cert"])
        return ImageTools(
            self.run_command,
            self.get_bin_path,
            self.credentials,
            self._access,
            list(authorities),
            self.params["tool_timeout"],
        )

    def _access(self, registry: str) -> RegistryAccess:
        for option in self.params["registries"]:
            if option["registry"].partition("/")[0] == registry:
                return RegistryAccess(registry, option["ca_cert"], option["validate_certs"], option["plain_http"])
        return RegistryAccess(registry)

    def _check_registries(self) -> None:
        problems = []
        for index, option in enumerate(self.params["registries"]):
            path = f"registries[{index}]"
            host = option["registry"].partition("/")[0]
            if option["registry"] in [other["registry"] for other in self.params["registries"][:index]]:
                problems.append(
                    f"{path}.registry: {quote(option['registry'])} has an entry already; remove one of them"
                )
            try:
                parse_repository(option["registry"] if "/" in option["registry"] else f"{host}/x")
            except InvalidReference as error:
                problems.append(f"{path}.registry: {quote(option['registry'])} {error}")
            else:
                if "://" in option["registry"]:
                    problems.append(
                        f"{path}.registry: {quote(option['registry'])} has a scheme; write it without docker://"
                    )
            if ":" in (option["username"] or ""):
                problems.append(
                    f"{path}.username: contains a colon, which separates user and password; set username and password separately"
                )
            if bool(option["username"]) != bool(option["password"]):
                missing = "password" if option["username"] else "username"
                problems.append(f"{path}.{missing}: is missing or empty; set username and password, or neither")
            if option["ca_cert"] and not os.path.isfile(option["ca_cert"]):
                problems.append(f"{path}.ca_cert: there is no file {option['ca_cert']} on this machine")
        problems += [
            f"{shown}: must be from 1 to {_MAX_TIMEOUT} seconds"
            for name, shown in (("request_timeout", REQUEST_TIMEOUT_OPTION), ("tool_timeout", TIMEOUT_OPTION))
            if not 0 < self.params.get(name, 1) <= _MAX_TIMEOUT
        ]
        if problems:
            raise InvalidOptions(problems)

    def _auth_file(self) -> tuple[str, str | None]:
        """The path and the text of the auth file; the text is None if there is no file."""
        named = self.params["auth_file"] or os.environ.get(AUTH_FILE_VARIABLE)
        candidates = [named] if named else [os.path.expanduser(os.path.expandvars(path)) for path in _AUTH_FILES]
        for path in candidates:
            try:
                if os.path.exists(path) and not os.path.isfile(path):
                    raise OSError(0, "it is not a regular file")
                with open(path, encoding="utf-8") as file:
                    return path, file.read()
            except (OSError, ValueError) as error:
                if named:
                    reason = getattr(error, "strerror", None) or "it is not text"
                    raise ConnectionProblem(f"The auth file {path} cannot be read: {reason}.") from None
        return "", None

    def _ask_helper(self, registry: str, helper: str) -> Login | None:
        """The login that one of docker's credential helpers returns; None if it has none.

        If the program is missing, this is only a warning, because a public registry needs no login.
        """
        # Only the name of a helper is accepted, never a path to another program.
        program = self.get_bin_path(f"docker-credential-{helper}") if _HELPER.fullmatch(helper) else None
        if not program:
            self.warn(
                f"The auth file names the credential helper {quote(helper)} for {registry}, but the program docker-credential-{helper} is not installed on "
                "this machine, so the registry is accessed without a login. Install it, or set username and password of the registry in gpu_registries "
                "(option registries of the module)."
            )
            return None
        name, limit, started = f"docker-credential-{helper}", self.params["request_timeout"], list[t.Any]()
        call = functools.partial(
            self.run_command,
            [program, "get"],
            data=registry,
            # With exception handling in run_command, a program that ends before it has read its input would fail the module.
            handle_exceptions=False,
            expand_user_and_vars=False,
            before_communicate_callback=started.append,
        )
        try:
            status, output, dummy = call_within(call, limit)
            document = json.loads(output) if status == 0 else {}
        except TimeoutError:
            for process in started:
                process.kill()
            raise ConnectionProblem(
                f"The credential helper {name} did not return a login for {registry} within {limit} seconds. Run it manually: echo {registry} | {name} get. "
                f"It must not ask for input. Or set username and password of the registry, or raise {REQUEST_TIMEOUT_OPTION}."
            ) from None
        except (OSError, ValueError, RecursionError):
            return None
        values = (document.get("Username"), document.get("Secret")) if isinstance(document, dict) else ()
        if not values or not all(isinstance(value, str) for value in values):
            return None
        user, password = values
        if user == "<token>" and password:
            login = Login("", "", name, identity_token=password)
        elif user and password:
            login = Login(user, password, name)
        else:
            return None
        self.no_log_values.update(login.secrets)
        return login


class RegistryModule(RegistryAccessMixin):
    """A module that accesses only registries."""

    def __init__(self, argument_spec: ArgumentSpec, **kwargs: t.Any) -> None:
        """Compose the argument spec. A module's own options override shared options of the same name."""
        super().__init__(merge_specs(REGISTRY, argument_spec), **kwargs)


def _texts(value: t.Any) -> t.Iterator[str]:
    """All strings in the value of an option."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
