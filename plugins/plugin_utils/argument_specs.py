# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the argument specifications of the collection's roles, and which roles a playbook runs."""

from __future__ import annotations

import functools
import pathlib
import re
import typing as t

from ..module_utils.core.yaml_text import load_yaml_documents

COLLECTION = pathlib.Path(__file__).parents[2]
_ROLE = re.compile(r"(?:role|name): accel\.gpu\.(\w+)")
_MARKUP = re.compile(r"\b[CEMOPUV]\(([^()]*(?:\([^()]*\)[^()]*)*)\)")
# `accel.gpu.gpu_sharing#module:state=reset`: an option of another plugin.
_OPTION_OF = re.compile(r"([\w.]+)#\w+:(.+)")


@functools.cache
def role_variables(role: str) -> dict[str, dict[str, t.Any]]:
    """Return the variables of a role with their specifications."""
    with (COLLECTION / "roles" / role / "meta" / "argument_specs.yml").open(encoding="utf-8") as file:
        options: dict[str, dict[str, t.Any]] = load_yaml_documents(file)["argument_specs"]["main"]["options"]
    return options


@functools.cache
def all_roles() -> tuple[str, ...]:
    """Return the names of all roles."""
    return tuple(sorted(path.parents[1].name for path in COLLECTION.glob("roles/*/meta/argument_specs.yml")))


@functools.cache
def roles_of(playbook: str) -> tuple[str, ...]:
    """Return the roles that a playbook runs, in the order of the file."""
    text = (COLLECTION / "playbooks" / f"{playbook}.yml").read_text(encoding="utf-8")
    return tuple(dict.fromkeys(_ROLE.findall(text)))


def plain(text: str) -> str:
    """Return a description without Ansible's markup: `O(accel.gpu.pull_secret#module:registries)` is `registries of accel.gpu.pull_secret`."""
    return _MARKUP.sub(lambda match: _OPTION_OF.sub(r"\2 of \1", match[1]).removesuffix("#role"), text)
