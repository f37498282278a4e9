# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Node names without their common beginning and end, so that hundreds of tiles do not repeat them (pure)."""

from __future__ import annotations

import typing as t

# Names up to this length are shown unchanged.
MAX_LENGTH = 18
_ELLIPSIS = "\u2026"


def common_domain(names: t.Sequence[str]) -> str:
    """The text from the first dot on, if it is the same for all names and not part of an IP address."""
    domains = {name.partition(".")[2] for name in names}
    (domain,) = domains if len(domains) == 1 else ("",)
    return f".{domain}" if len(names) > 1 and any(char.isalpha() for char in domain) else ""


def common_prefix(names: t.Sequence[str]) -> str:
    """The common beginning of all names up to a hyphen, if at least one name is too long for a small tile."""
    if len(names) < 2 or max(map(len, names)) <= MAX_LENGTH:
        return ""
    first, last = min(names), max(names)  # the prefix of these two is the prefix of all
    differ = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    prefix = first[: first.rfind("-", 0, differ) + 1]
    return prefix if len(prefix) > len(_ELLIPSIS) + 1 else ""


def short_name(name: str, prefix: str, domain: str) -> str:
    """A name without its prefix and domain; an ellipsis replaces the prefix."""
    host = name.removesuffix(domain)
    return f"{_ELLIPSIS}{host.removeprefix(prefix)}" if prefix else host
