# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads and writes YAML."""

from __future__ import annotations

import json
import math
import re
import typing as t

# Reads and writes YAML documents with libyaml if it is available, because libyaml is ten times faster (a CRD has 300 KB).

try:
    import yaml
except ImportError:  # reported by the modules' base class, together with the library that needs it
    yaml = None  # type: ignore[assignment]


def load_yaml_documents(source: str | t.TextIO) -> t.Any:
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


# Reads and writes YAML (pure). The output is deterministic, and writing requires no YAML library.

_PLAIN_TEXT = re.compile(r"[A-Za-z][A-Za-z0-9./_-]*")
_NOT_ASCII = re.compile(r"[^\x20-\x7e]")
# The start of an expression, a statement or a comment of Jinja, and the header that can choose other delimiters.
_TEMPLATE = re.compile(r"\{[{%#]|#jinja2:")
# A ConfigMap has at most 1 MiB.
_MAX_VALUES = 500_000
# YAML requires a question mark before a key of more than 1024 characters.
_MAX_SIMPLE_KEY = 1000
_READ_AS_OTHER = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


def render_yaml(content: t.Mapping[str, t.Any], *, for_ansible: bool = False) -> str:
    """The content as block YAML; with `for_ansible`, each key and string that Ansible would evaluate as a template has the tag !unsafe."""
    return "\n".join(_block(content, _scalar_for_ansible if for_ansible else _scalar)) + "\n"


def parse_yaml(text: str) -> t.Any:
    """The content of a live configuration; None if it cannot be parsed (NVIDIA's operands also reject such text)."""
    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError, TypeError, OverflowError):
        # PyYAML raises ValueError for an impossible date, for example.
        return None
    return content if _is_bounded(content) else None


def is_empty_yaml(text: str) -> bool:
    """Whether a text contains no document except comments."""
    return all(not line.strip() or line.lstrip().startswith("#") or line.strip() == "---" for line in text.splitlines())


def _is_bounded(content: t.Any) -> bool:
    """Whether the content is no larger than an object can be; aliases can expand a few lines without limit."""
    waiting, count = [content], 0
    while waiting and count <= _MAX_VALUES:
        value = waiting.pop()
        count += 1
        waiting.extend(
            [*value.values()] if isinstance(value, dict) else value if isinstance(value, (list, tuple, set)) else ()
        )
    return count <= _MAX_VALUES


def _block(value: t.Any, scalar: t.Callable[[t.Any], str]) -> list[str]:
    if isinstance(value, dict) and value:
        lines = []
        for key, item in value.items():
            name = scalar(key)
            if len(name) > _MAX_SIMPLE_KEY:
                lines.append(f"? {name}")
                name = ""
            if isinstance(item, (dict, list)) and item:
                lines += [f"{name}:", *(f"  {line}" for line in _block(item, scalar))]
            else:
                lines.append(f"{name}: {scalar(item)}")
        return lines
    if isinstance(value, list) and value:
        lines = []
        for item in value:
            first, *rest = _block(item, scalar)
            lines += [f"- {first}", *(f"  {line}" for line in rest)]
        return lines
    return [scalar(value)]


def _scalar_for_ansible(value: t.Any) -> str:
    return f"!unsafe {_scalar(value)}" if isinstance(value, str) and _TEMPLATE.search(value) else _scalar(value)


def _scalar(value: t.Any) -> str:
    if isinstance(value, str) and _PLAIN_TEXT.fullmatch(value) and value.lower() not in _READ_AS_OTHER:
        return value
    if isinstance(value, float):
        return _float(value)
    # The escapes of JSON are also valid in YAML, except for characters above U+FFFF, for which JSON needs two escapes.
    return _NOT_ASCII.sub(lambda match: _escape(match[0]), json.dumps(value, ensure_ascii=False))


def _float(value: float) -> str:
    """The number with a decimal point, because YAML 1.1 reads 1e+20 as a string."""
    if not math.isfinite(value):
        return {math.inf: ".inf", -math.inf: "-.inf"}.get(value, ".nan")
    digits, exponent, power = repr(value).partition("e")
    return f"{digits}{'' if '.' in digits else '.0'}{exponent}{power}"


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
