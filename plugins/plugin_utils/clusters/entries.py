# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Validation of the inventory file's option `clouds` (pure)."""

from __future__ import annotations

import difflib
import typing as t

from ...module_utils.providers.registry import PROVIDERS

if t.TYPE_CHECKING:
    from ...module_utils.providers.definition import ProviderDefinition

_TYPE_NAMES = {str: "text", list: "a list", dict: "a map", bool: "true or false"}


def problems(clouds: t.Any) -> list[str]:
    """A line for each mistake, with its path."""
    if not isinstance(clouds, list) or not clouds:
        return [
            "clouds: needs a list with an entry for each cloud, such as {magnum: {cloud: NAME}} or {vks: {region: HCM-3}}"
        ]
    found: list[str] = []
    for index, entry in enumerate(clouds):
        path = f"clouds[{index}]"
        keys = list(entry) if isinstance(entry, dict) else []
        if len(keys) != 1 or keys[0] not in PROVIDERS:
            found.append(f"{path}: needs exactly one of {' or '.join(PROVIDERS)}, with its settings below it")
            continue
        found += _entry_problems(f"{path}.{keys[0]}", PROVIDERS[keys[0]], entry[keys[0]] or {})
    return found


def _entry_problems(path: str, provider: ProviderDefinition, settings: t.Any) -> t.Iterator[str]:
    known = provider.inventory_options
    if not isinstance(settings, dict):
        yield f"{path}: is not a map of settings"
        return
    for key, value in settings.items():
        if key not in known:
            similar = difflib.get_close_matches(str(key), known, n=1)
            remedy = f"did you mean {similar[0]}?" if similar else f"known are {', '.join(known)}"
            yield f"{path}.{key}: is unknown; {remedy}"
        elif not isinstance(value, known[key]):
            yield f"{path}.{key}: is not {_TYPE_NAMES[known[key]]}"
    for key, remedy in provider.required_inventory_options.items():
        if not settings.get(key):
            yield f"{path}.{key}: is missing; {remedy}"
