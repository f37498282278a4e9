# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks provider_spec, which sets additional fields of a MachineSet's providerSpec, for invalid names, fields with their own key, and secrets (pure)."""

from __future__ import annotations

import typing as t

from ..catalog.machine_api import PLATFORMS
from ..common.nested import get_nested
from .messages import quote
from .secret_values import secret_problems
from .types import Problems

# The paths of fields that have their own key. If provider_spec also set one of these fields, every run would overwrite one value with the other.
_OWN_KEYS = {setting.path: key for platform in PLATFORMS for key, setting in platform.settings.items()}


def provider_spec_problems(document: t.Any, path: str, *, has_zones: bool = False) -> Problems:
    """The problems in the fields; `path` is their path in the variables or options. Values that are not maps are reported elsewhere."""
    if not isinstance(document, dict):
        return
    for key in _keys(document):
        if not isinstance(key, str) or not key or "." in key:
            yield f"{path}: {quote(key)} is not the name of a field; a name is a string without dots; write nested fields as maps"
    for field, key in _OWN_KEYS.items():
        # A field without a value (null) counts as well, because it would be removed.
        if field[-1] in (get_nested(document, *field[:-1]) or {}):
            yield f"{path}.{'.'.join(field)}: has its own key; set {key} instead"
    for zone in sorted({platform.zone for platform in PLATFORMS if platform.zone}) if has_zones else ():
        if get_nested(document, *zone) is not None:
            yield f"{path}.{'.'.join(zone)}: is derived from zones; remove one of them"
    if isinstance(document.get("userData"), str):
        yield f"{path}.userData: may contain secrets, which every user who can read MachineSets sees; store it in a Secret and set userDataSecret"
    yield from secret_problems(
        {key: value for key, value in document.items() if key != "userData"},
        path,
        "which every user who can read MachineSets sees",
        "store it in a Secret and name the Secret in userDataSecret or credentialsSecret",
    )


def _keys(value: t.Any) -> t.Iterator[t.Any]:
    """The keys of a map and of the maps below it, but not of maps in lists, which are written as a whole."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _keys(item)
