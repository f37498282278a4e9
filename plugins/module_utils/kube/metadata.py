# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the name of an object, compares versions of an object, and checks whether an object is being deleted (pure)."""

from __future__ import annotations

import typing as t

Document = t.Mapping[str, t.Any]


def name_of(item: Document) -> str:
    """The name of an object."""
    return str(item["metadata"]["name"])


def is_deleting(item: Document | None) -> bool:
    """Whether an object is being deleted."""
    return bool(item and item["metadata"].get("deletionTimestamp"))


def controller_of(item: Document) -> Document | None:
    """The owner reference of an object's controller, or None if no controller manages it."""
    owners = item["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def is_older_version(version: str, than: str) -> bool:
    """Whether a resource version is older than another. Versions are increasing numbers (comparable since Kubernetes 1.35); other formats count as newer."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)
