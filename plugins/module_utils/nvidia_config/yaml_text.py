# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""YAML text of configurations, the same on every machine for the same content (pure)."""

from __future__ import annotations

import typing as t

try:
    import yaml
except ImportError:  # reported by the modules' base class, together with the library that needs it
    yaml = None  # type: ignore[assignment]


class _Dumper(getattr(yaml, "SafeDumper", object)):  # type: ignore[misc]
    """Without anchors, and with indented lists."""

    def ignore_aliases(self, data: t.Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> t.Any:
        return super().increase_indent(flow, False)


def render(content: t.Mapping[str, t.Any]) -> str:
    """The content as block YAML, in its order."""
    text: str = yaml.dump(
        content, Dumper=_Dumper, sort_keys=False, default_flow_style=False, width=float("inf"), allow_unicode=False
    )
    return text
