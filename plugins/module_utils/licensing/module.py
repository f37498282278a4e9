# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of modules that take a client configuration token."""

from __future__ import annotations

import functools
import os
import typing as t

from ..common.errors import InvalidOptions
from ..common.module import ArgumentSpec, BaseModule
from .token import MAX_LENGTH, InvalidToken, normalize_token

TOKEN_ENV = "NLS_CLIENT_TOKEN"
TOKEN: ArgumentSpec = {
    "token": {"type": "str", "no_log": True},
    "token_path": {"type": "path", "no_log": False},
}


class LicenseTokenMixin(BaseModule):
    """A module with the options `token` and `token_path`."""

    def secrets(self) -> set[str]:
        """The token of the environment, too."""
        return super().secrets() | {value for value in [os.environ.get(TOKEN_ENV, "")] if value}

    @functools.cached_property
    def license_token(self) -> str | None:
        """The given token, None without one; raises InvalidOptions for a file that cannot be read, and for text that is no token."""
        content, source = self._given()
        if content is None:
            return None
        try:
            text = normalize_token(content)
        except InvalidToken as error:
            raise InvalidOptions([f"{source}: the token {error}."]) from None
        self.no_log_values.add(text)
        return text

    def _given(self) -> tuple[str | bytes | None, str]:
        """The content, and the option from which it comes."""
        token, path = self.params["token"], self.params["token_path"]
        if token and path:
            raise InvalidOptions(["token: is given together with token_path; give one of them"])
        if token:
            return t.cast("str", token), "token"
        if path:
            try:
                with open(path, "rb") as file:
                    return file.read(MAX_LENGTH + 1), "token_path"
            except OSError as error:
                raise InvalidOptions([f"token_path: {path} cannot be read: {error.strerror}"]) from None
        return os.environ.get(TOKEN_ENV) or None, TOKEN_ENV
