# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What gpu_cluster.operator says beside its Helm release: where images come from, and how the driver is installed."""

from __future__ import annotations

import dataclasses
import math
import typing as t

from . import operator_validators as rules
from .messages import field_path, quote
from .types import Anything, Boolean, Choice, Field, ListOf, Problems, Section, Text

_LARGEST = 2**63
KERNEL_MODULES = ("auto", "open", "proprietary")


@dataclasses.dataclass(frozen=True)
class Address(Text):
    """An address; where it is wrong, the message does not show the user and password in it."""

    def problems(self, value: object, path: str) -> Problems:
        """As for any text, told of what may be shown."""
        shown = rules.without_user(value) if isinstance(value, str) else value
        for problem in super().problems(value, path):
            yield problem if shown == value else f"{path}: {quote(shown)} {rules.proxy_url(str(value))}"


@dataclasses.dataclass(frozen=True)
class HelmValues(Anything):
    """Values for a chart: any map that Helm can read, at every depth."""

    def inner(self, value: t.Any, path: str) -> Problems:
        """What has no form in Helm's JSON."""
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            at = field_path(path, key)
            reason = _unreadable(item) or (_unreadable(key) if isinstance(key, str) else None)
            if reason:
                yield f"{at}: {quote(item)} {reason}" if not isinstance(item, (dict, list)) else f"{at}: {reason}"
            elif isinstance(item, (dict, list)):
                yield from self.inner(item, at)


def _unreadable(value: t.Any) -> str | None:
    if isinstance(value, int) and abs(value) >= _LARGEST:
        return "is not a number that Helm can read (64 bits); write it as text in quotes"
    if isinstance(value, float) and not math.isfinite(value):
        return "is not a number that Helm can read; write it as text in quotes"
    if isinstance(value, str) and ("\x00" in value or any("\ud800" <= character <= "\udfff" for character in value)):
        return "contains a character that no YAML file can hold (NUL, or half of a pair); remove it"
    return None


_DRIVER = Section(
    fields={
        "enabled": Boolean(default=True),
        "version": Text((rules.driver_version,)),
        "kernel_module_type": Choice(known=KERNEL_MODULES),
        "precompiled": Boolean(default=False),
        "secret_env": Text((rules.object_name,)),
    }
)

_PROXY = Section(
    fields={
        "http": Address((rules.proxy_url,)),
        "https": Address((rules.proxy_url,)),
        "no_proxy": ListOf(item=Text((rules.no_proxy_entry,))),
    }
)

OPERATOR: dict[str, Field] = {
    "registry": Text((rules.registry,)),
    "image_pull_secrets": ListOf(item=Text((rules.object_name,))),
    "driver": _DRIVER,
    "proxy": _PROXY,
    "repo_config": Text((rules.object_name,)),
    "cert_config": Text((rules.object_name,)),
}
