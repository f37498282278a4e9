# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads and writes YAML (pure). The output is deterministic, and writing requires no YAML library."""

from __future__ import annotations

import json
import re
import typing as t

try:
    import yaml
except ImportError:  # reported by the modules' base class, together with the library that needs it
    yaml = None  # type: ignore[assignment]

_PLAIN_TEXT = re.compile(r"[A-Za-z][A-Za-z0-9./_-]*")
_NOT_ASCII = re.compile(r"[^\x20-\x7e]")
_READ_AS_OTHER = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


def render(content: t.Mapping[str, t.Any]) -> str:
    """The content as block YAML."""
    return "\n".join(_block(content)) + "\n"


def parse(text: str) -> t.Any:
    """The content of a live configuration; None if it cannot be parsed (NVIDIA's operands also reject such text)."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return None


def _block(value: t.Any) -> list[str]:
    if isinstance(value, dict) and value:
        lines = []
        for key, item in value.items():
            if isinstance(item, (dict, list)) and item:
                lines += [f"{_scalar(key)}:", *(f"  {line}" for line in _block(item))]
            else:
                lines.append(f"{_scalar(key)}: {_scalar(item)}")
        return lines
    if isinstance(value, list) and value:
        lines = []
        for item in value:
            first, *rest = _block(item)
            lines += [f"- {first}", *(f"  {line}" for line in rest)]
        return lines
    return [_scalar(value)]


def _scalar(value: t.Any) -> str:
    if isinstance(value, str) and _PLAIN_TEXT.fullmatch(value) and value.lower() not in _READ_AS_OTHER:
        return value
    # The escapes of JSON are also valid in YAML, except for characters above U+FFFF, for which JSON needs two escapes.
    return _NOT_ASCII.sub(lambda match: _escape(match[0]), json.dumps(value, ensure_ascii=False))


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
