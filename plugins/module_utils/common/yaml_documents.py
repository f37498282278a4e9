# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads and writes YAML documents with libyaml if it is available, because libyaml is ten times faster (a CRD has 300 KB)."""

from __future__ import annotations

import typing as t

try:
    import yaml
except ImportError:  # reported by the modules' base class, together with the library that needs it
    yaml = None  # type: ignore[assignment]


def load(source: str | t.TextIO) -> t.Any:
    """The only document in a string or an open file."""
    return yaml.load(source, Loader=_loader())


def load_all(text: str) -> list[t.Any]:
    """All documents in a string."""
    return list(yaml.load_all(text, Loader=_loader()))


def dump(document: t.Any) -> str:
    """The document as YAML text."""
    return str(yaml.safe_dump(document, default_flow_style=False))


def _loader() -> t.Any:
    # Not every PyYAML is built with libyaml.
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)
