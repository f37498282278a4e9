# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The field `layout` of a pool's sharing, in its three forms."""

from __future__ import annotations

import dataclasses
import typing as t
from collections import Counter

from ..mig.layout import INDEX
from . import coercion
from .messages import field_path, is_whole, quote, type_name
from .types import Field, Integer, Problems, unrendered_template
from .validators import mig_profile

_FORMS = "write {profile: count}, a list of profiles, or one of these for each GPU index"
MAX_GPUS = 64
# NVIDIA partitions a GPU into at most seven devices; a model that is not in the catalog yet may allow more.
_MAX_DEVICES = 64


@dataclasses.dataclass(frozen=True)
class LayoutField(Field):
    """A MIG layout; whether it fits a GPU is checked with the whole pool, because the check needs the model."""

    blank_is_unset: bool = False

    def coerce(self, value: t.Any) -> t.Any:
        """Convert a list of profiles that is written as text, and counts that are written as text."""
        if isinstance(value, str) and not unrendered_template(value):
            names = coercion.elements(value)
            return names if names and not any(mig_profile(item) for item in names if isinstance(item, str)) else value
        return _counted(value)

    def mistyped(self, value: t.Any) -> str | None:
        if isinstance(value, (dict, list)):
            return None if value else f"is empty; {_FORMS}"
        return unrendered_template(value) or f"is {type_name(value)}, not a layout; {_FORMS}"

    def inner(self, value: t.Any, path: str) -> Problems:
        indices = {key: index for key in value if (index := _index(key)) is not None} if isinstance(value, dict) else {}
        if isinstance(value, list) and not all(isinstance(item, str) for item in value):
            for position, of_gpu in enumerate(value):
                yield from _of_gpu(of_gpu, field_path(path, position))
        elif not indices:
            yield from _of_gpu(value, path)
        elif len(indices) < len(value):
            others = ", ".join(quote(key) for key in value if key not in indices)
            yield f"{path}: mixes GPU indices with {others}; {_FORMS}"
        else:
            for index, times in Counter(indices.values()).items():
                if times > 1:
                    yield f"{path}: names GPU {index} twice; use one entry for each GPU"
            for key, index in indices.items():
                if index >= MAX_GPUS:
                    yield f"{field_path(path, key)}: is not the index of a GPU; the first GPU of a node is 0"
                yield from _of_gpu(value[key], field_path(path, key))


def _counted(value: t.Any) -> t.Any:
    if isinstance(value, dict):
        return {key: _counted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [item if isinstance(item, str) else _counted(item) for item in value]
    return Integer().coerce(value)


def _of_gpu(of_gpu: t.Any, path: str) -> Problems:
    if of_gpu is None or of_gpu in ({}, []):
        return
    if not isinstance(of_gpu, (dict, list)):
        yield f"{path}: is {type_name(of_gpu)}, not the MIG devices of a GPU; write {{profile: count}} or a list of profiles"
        return
    if len(of_gpu) > _MAX_DEVICES:
        yield f"{path}: names {len(of_gpu)} devices; no GPU has more than {_MAX_DEVICES}, so list fewer"
        return
    for key in of_gpu:
        at = field_path(path, key) if isinstance(of_gpu, dict) else path
        reason = mig_profile(key if isinstance(key, str) else "")
        if reason:
            yield f"{at}: {quote(key)} {reason}"
        elif isinstance(of_gpu, dict) and (not is_whole(of_gpu[key]) or of_gpu[key] < 1):
            yield f"{at}: {quote(of_gpu[key])} is not a count; use a whole number of at least 1, or omit the profile"
        elif isinstance(of_gpu, dict) and of_gpu[key] > _MAX_DEVICES:
            yield f"{at}: {quote(of_gpu[key])} is not allowed: no GPU has more than {_MAX_DEVICES} devices; set a smaller number"


def _index(key: t.Any) -> int | None:
    if isinstance(key, bool):
        return None
    if isinstance(key, int):
        return key if key >= 0 else None
    return int(key) if isinstance(key, str) and INDEX.fullmatch(key) else None
