# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The marks by which Helm knows the objects of its releases (pure)."""

from __future__ import annotations

import typing as t

# Name and namespace.
Release = tuple[str, str]

# helm v3 pkg/action/validate.go
_NAME, _NAMESPACE = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"


def marks_of(found: t.Mapping[str, t.Any]) -> Release | None:
    """The Helm release that an object says it belongs to."""
    marks = found["metadata"].get("annotations") or {}
    if marks.get(_NAME) and marks.get(_NAMESPACE):
        return marks[_NAME], marks[_NAMESPACE]
    return None
