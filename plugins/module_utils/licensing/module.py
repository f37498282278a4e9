# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defines the options of modules that accept a client configuration token."""

from __future__ import annotations

import functools
import os
import stat
import typing as t

from ..core.errors import InvalidOptions
from ..core.messages import quote
from ..core.module import ArgumentSpec, BaseModule
from .token import (
    MAX_LENGTH,
    TOKEN_ENV,
    TOKEN_OPTION,
    TOKEN_PATH_OPTION,
    InvalidToken,
    TokenInfo,
    looks_like_token,
    normalize_token,
    parse_token,
    too_long,
)

TOKEN: ArgumentSpec = {
    "token": {"type": "str", "no_log": True},
    "token_path": {"type": "path", "no_log": False},
}


def tokens_in(value: t.Any) -> list[str]:
    """The strings in the value of an option that look like tokens."""
    texts = value if isinstance(value, list) else [value]
    return [text for text in texts if isinstance(text, str) and looks_like_token(text)]


class LicenseTokenModule(BaseModule):
    """A module with the options `token` and `token_path`."""

    def secrets(self) -> set[str]:
        """The module's secrets, the token in the environment, and tokens that were mistakenly set in other options."""
        return super().secrets() | {
            *filter(None, [os.environ.get(TOKEN_ENV)]),
            *(text for value in self.params.values() for text in tokens_in(value)),
        }

    def refuse_tokens_in(self, options: t.Iterable[str]) -> None:
        """Raise InvalidOptions if one of these options contains a token instead of its own value."""
        if problems := [_misplaced(name) for name in options if tokens_in(self.params[name])]:
            raise InvalidOptions(problems)

    @functools.cached_property
    def license_token(self) -> str | None:
        """The given token, or None. Raises InvalidOptions if its file cannot be read, or if its text is not a token."""
        if self._content is None:
            return None
        try:
            text = normalize_token(self._content)
        except InvalidToken as error:
            raise self._invalid(error) from None
        self.no_log_values.add(text)
        return text

    @functools.cached_property
    def license_token_info(self) -> TokenInfo | None:
        """The values of the given token, or None. Raises InvalidOptions if the token is not valid, and in the same cases as `license_token`."""
        if self.license_token is None:
            return None
        try:
            return parse_token(self.license_token)
        except InvalidToken as error:
            raise self._invalid(error) from None

    @property
    def token_source(self) -> str:
        """The name of the option or variable that contains the token, for messages."""
        if self.params["token"]:
            return TOKEN_OPTION
        return TOKEN_PATH_OPTION if self.params["token_path"] else f"The environment variable {TOKEN_ENV}"

    def _invalid(self, error: InvalidToken) -> InvalidOptions:
        return InvalidOptions([f"{self.token_source}: the token {error}."])

    @functools.cached_property
    def _content(self) -> str | bytes | None:
        token, path = self.params["token"], self.params["token_path"]
        if token and path:
            raise InvalidOptions(
                [f"{TOKEN_OPTION} and {TOKEN_PATH_OPTION} are mutually exclusive; set only one of them"]
            )
        if token:
            return t.cast("str", token)
        if path:
            if tokens_in(path):
                raise InvalidOptions([_misplaced(TOKEN_PATH_OPTION)])
            try:
                return _read_file(path)
            except OSError as error:
                raise InvalidOptions([f"{TOKEN_PATH_OPTION}: {path} cannot be read: {error.strerror}"]) from None
            except ValueError:
                # The path contains a null character, or a character that cannot be encoded.
                raise InvalidOptions([f"{TOKEN_PATH_OPTION}: {quote(path)} is not a path"]) from None
        return os.environ.get(TOKEN_ENV) or None


def _read_file(path: str) -> bytes:
    """The content of a file. Raises InvalidOptions for a pipe (because reading would block), for a device, and for a file that is too large for a token."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        status = os.fstat(file.fileno())
        # read() returns None for a kernel file on which reading would block, such as /proc/kmsg.
        content = file.read(MAX_LENGTH + 1) if stat.S_ISREG(status.st_mode) else None
        if content is None:
            raise InvalidOptions([f"{TOKEN_PATH_OPTION}: {path} is not a regular file"])
        if status.st_size > MAX_LENGTH:
            raise InvalidOptions([f"{TOKEN_PATH_OPTION}: {path} {too_long(status.st_size)}"])
        return content


def _misplaced(option: str) -> str:
    return f"{option}: looks like a token; set the token with {TOKEN_OPTION} instead"
