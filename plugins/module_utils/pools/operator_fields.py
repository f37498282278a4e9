# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What gpu_cluster.operator says beside its Helm release: where images come from, and how the driver is installed."""

from __future__ import annotations

import dataclasses

from . import operator_rules as rules
from .schema import Boolean, Choice, Field, ListOf, Problems, Section, Text
from .words import said

KERNEL_MODULES = ("auto", "open", "proprietary")


@dataclasses.dataclass(frozen=True)
class Address(Text):
    """An address; where it is wrong, the message does not show the user and password in it."""

    def problems(self, value: object, path: str) -> Problems:
        """As for any text, told of what may be shown."""
        shown = rules.without_user(value) if isinstance(value, str) else value
        for problem in super().problems(value, path):
            yield problem if shown == value else f"{path}: {said(shown)} {rules.proxy_url(str(value))}"


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
    "pull_secrets": ListOf(item=Text((rules.object_name,))),
    "driver": _DRIVER,
    "proxy": _PROXY,
    "repo_config": Text((rules.object_name,)),
    "cert_config": Text((rules.object_name,)),
}
