# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the file of the inventory says: which clouds are asked, and all that is wrong in it (pure)."""

from __future__ import annotations

import difflib
import typing as t

from .found import MAGNUM, VKS

Entry = t.Mapping[str, t.Any]

# The keys of an entry of `clouds`, and what each has to be.
_KEYS: dict[str, dict[str, type]] = {
    MAGNUM: {"cloud": str, "region_names": list, "gpu_aliases": dict},
    VKS: {
        "region": str,
        "project_id": str,
        "iam_url": str,
        "iam_version": str,
        "vks_url": str,
        "vserver_url": str,
        "ca_cert": str,
        "validate_certs": bool,
        "client_id_env": str,
        "client_secret_env": str,
    },
}
_WORDS = {str: "a text", list: "a list", dict: "a map", bool: "true or false"}


def problems(clouds: t.Any) -> list[str]:
    """A line for each mistake, with its place."""
    if not isinstance(clouds, list) or not clouds:
        return [
            "clouds: a list with an entry for each cloud, such as {magnum: {cloud: NAME}} or {vks: {region: HCM-3}}"
        ]
    found: list[str] = []
    for index, entry in enumerate(clouds):
        at = f"clouds[{index}]"
        kinds = list(entry) if isinstance(entry, dict) else []
        if len(kinds) != 1 or kinds[0] not in _KEYS:
            found.append(f"{at}: has to be one of {' or '.join(_KEYS)}, with its settings below it")
            continue
        found += _of(f"{at}.{kinds[0]}", kinds[0], entry[kinds[0]] or {})
    return found


def _of(at: str, kind: str, settings: t.Any) -> t.Iterator[str]:
    known = _KEYS[kind]
    if not isinstance(settings, dict):
        yield f"{at}: is not a map of settings"
        return
    for key, value in settings.items():
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            yield f"{at}.{key}: is not known; " + (f"is {near[0]} meant?" if near else f"known are {', '.join(known)}")
        elif not isinstance(value, known[key]):
            yield f"{at}.{key}: is not {_WORDS[known[key]]}"
    if kind == MAGNUM and not settings.get("cloud"):
        yield f"{at}.cloud: is missing; give the name that the cloud has in clouds.yaml"
