# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reference of gpu_cluster, gpu_defaults and gpu_pools, from the schema and variables.yml: a page, a documentation fragment, a role's entry point."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.accel.gpu.plugins.doc_fragments import kube
from ansible_collections.accel.gpu.plugins.module_utils.schema.cluster import CLUSTER
from ansible_collections.accel.gpu.plugins.module_utils.schema.mig_layout import LayoutField
from ansible_collections.accel.gpu.plugins.module_utils.schema.pool import DEFAULTS, POOL
from ansible_collections.accel.gpu.plugins.module_utils.schema.rollout import NodeAmount
from ansible_collections.accel.gpu.plugins.module_utils.schema.types import (
    Anything,
    Boolean,
    Choice,
    Field,
    Integer,
    ListOf,
    MapOf,
    Section,
    Text,
)
from ansible_collections.accel.gpu.plugins.module_utils.validation_programs.registry import PROGRAMS
from tests.programs import REPO

PAGE = REPO / "docs" / "variables.md"
FRAGMENT = REPO / "plugins" / "doc_fragments" / "variables.py"
ROLE = REPO / "roles" / "pools" / "meta" / "argument_specs.yml"
# `make docs` generates the text after this line.
MARK = "  # Written by `make docs`, from here to the end.\n"

_TEXTS = Path(__file__).with_suffix(".yml").read_text(encoding="utf-8")
for _program in PROGRAMS:
    _images = ", ".join(f"V({image})" for image in _program.public_images.values())
    _TEXTS = _TEXTS.replace(f"{{default {_program.image}}}", _images)
DESCRIPTIONS: dict[str, dict[str, str]] = yaml.safe_load(_TEXTS)
DOCUMENTS = {"gpu_cluster": CLUSTER, "gpu_pools": POOL}
_POOLS = (
    "The pools of this cluster. They are required, except for M(accel.gpu.gpu_info), which returns only the actual state if they are missing.",
    "Null is not allowed. An explicit empty list means that there are no pools.",
    "All errors of the three variables are reported together, each with its path.",
)
_DEFAULTS = (
    "Defaults of all pools. They are merged into each pool. Maps are merged at every depth, and lists are replaced.",
    "All keys of C(gpu_pools) are allowed, except C(name), C(nodes.name), C(sharing.layout) and C(sharing.demand).",
)
_CLUSTER = "The settings that all pools of one cluster share. An inventory host is a cluster."

Option = dict[str, Any]


def paths(field: Field, path: str = "") -> Iterator[str]:
    """The path of every key at every depth; the path of a list is also the prefix for the keys of its elements."""
    if isinstance(field, ListOf):
        yield from paths(field.item, path)
    if isinstance(field, Section):
        for name, inner in field.fields.items():
            below = f"{path}.{name}" if path else name
            yield below
            yield from paths(inner, below)


def type_of(field: Field) -> Option:
    """Type and element type as in Ansible's documentation."""
    if isinstance(field, (NodeAmount, LayoutField)):
        return {"type": "raw"}
    if isinstance(field, ListOf):
        return {"type": "list", "elements": type_of(field.item)["type"]}
    names = ((Boolean, "bool"), (Integer, "int"), (Text, "str"), (Anything, "dict"))
    return {"type": next(name for kind, name in names if isinstance(field, kind))}


def option(field: Field, path: str, texts: Mapping[str, str], below: str) -> Option:
    """One key as an option of Ansible's documentation; `below` is the prefix of its subkeys' path."""
    found: Option = {"description": [texts[path]], **type_of(field)}
    if isinstance(field, Choice):
        found["choices"] = list(field.known)
    if field.required:
        found["required"] = True
    if field.default is not None and field.default not in ([], {}, ""):
        found["default"] = field.default
    inner = field.item if isinstance(field, ListOf) else field
    if isinstance(inner, Section):
        found[below] = options(inner, path, texts, below)
    return found


def options(section: Section, path: str, texts: Mapping[str, str], below: str) -> Option:
    """All keys of a map."""
    return {
        name: option(field, f"{path}.{name}" if path else name, texts, below) for name, field in section.fields.items()
    }


def defaults() -> Option:
    """The keys of gpu_defaults, each with a reference to the pool's."""
    return {
        name: {"description": [f"As C(gpu_pools[].{name})."], **type_of(field)}
        for name, field in DEFAULTS.fields.items()
        if name != "name"
    }


def document(below: str, cluster: list[str]) -> Option:
    """The three variables as options; `cluster` describes gpu_cluster."""
    return {
        "gpu_cluster": {
            "description": cluster,
            "type": "dict",
            below: options(CLUSTER, "", DESCRIPTIONS["gpu_cluster"], below),
        },
        "gpu_defaults": {"description": list(_DEFAULTS), "type": "dict", below: defaults()},
        "gpu_pools": {
            "description": list(_POOLS),
            "type": "list",
            "elements": "dict",
            below: options(POOL, "", DESCRIPTIONS["gpu_pools"], below),
        },
    }


class _Dumper(yaml.SafeDumper):
    """Lists are indented, as in the rest of the collection."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _yaml(value: Any, indent: int) -> str:
    text = yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
    return re.sub(r"^(?=.)", " " * indent, text, flags=re.MULTILINE)


def fragment() -> str:
    """The documentation fragment accel.gpu.variables."""
    connection = yaml.safe_load(kube.ModuleDocFragment.DOCUMENTATION)["options"]["gpu_cluster"]["description"]
    text = FRAGMENT.read_text(encoding="utf-8")
    head = text[: text.index('    DOCUMENTATION = r"""\n')]
    return f'{head}    DOCUMENTATION = r"""\noptions:\n{_yaml(document("suboptions", connection), 2)}"""\n'


def role() -> str:
    """The argument specs of the role pools, with the entry point `variables`."""
    head = ROLE.read_text(encoding="utf-8").partition(MARK)[0]
    entry = {
        "variables": {
            "short_description": "Every key of gpu_cluster, gpu_defaults and gpu_pools",
            "description": [
                "Reference only, this entry point has no tasks. The entry point C(main) checks the variables."
            ],
            "options": document("options", [_CLUSTER]),
        }
    }
    entry["variables"]["options"]["gpu_cluster"]["required"] = True  # type: ignore[index]
    entry["variables"]["options"]["gpu_pools"]["required"] = True  # type: ignore[index]
    return f"{head}{MARK}{_yaml(entry, 2)}"


_HEAD = """# Reference of the variables

Written by `make docs` from the schema. [Pools](pools.md) explains how to use these variables. The same reference in a terminal:

```console
$ ansible-doc -t role accel.gpu.pools
```
"""


def page() -> str:
    """docs/variables.md."""
    parts = [_HEAD]
    for name, section in DOCUMENTS.items():
        about = f"{_CLUSTER} A map." if name == "gpu_cluster" else f"{_markdown(_POOLS[0])} A list of maps."
        rows = "".join(_rows(section, "", DESCRIPTIONS[name]))
        parts.append(f"\n## {name}\n\n{about}\n\n| key | type | default | description |\n|---|---|---|---|\n{rows}")
    parts.append(f"\n## gpu_defaults\n\n{_markdown(' '.join(_DEFAULTS))} A map.\n")
    return "".join(parts)


def _rows(section: Section, path: str, texts: Mapping[str, str]) -> Iterator[str]:
    for name, field in section.fields.items():
        below = f"{path}.{name}" if path else name
        shown = type_of(field)
        kind = {"str": "text", "dict": "map", "int": "number", "bool": "boolean", "raw": "see description"}.get(
            shown["type"], shown["type"]
        )
        if isinstance(field, Choice):
            kind = " or ".join(f"`{word}`" for word in field.known)
        if isinstance(field, MapOf) and not isinstance(field, Section):
            kind = "map of " + ("numbers" if isinstance(field.item, Integer) else "text")
        if shown["type"] == "list":
            kind = "list of maps" if shown["elements"] == "dict" else "list of text"
        value = "required" if field.required else ""
        if field.default is not None and field.default not in ([], {}, ""):
            value = f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"
        yield f"| `{below}` | {kind} | {value} | {_markdown(texts[below])} |\n"
        inner = field.item if isinstance(field, ListOf) else field
        if isinstance(inner, Section):
            yield from _rows(inner, below, texts)


def _markdown(text: str) -> str:
    """Ansible's markup as Markdown; a bar would end a table's cell."""
    return re.sub(r"[CVM]\(([^()]*(?:\([^()]*\)[^()]*)*)\)", r"`\1`", text).replace("|", "\\|")
