# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits the size of results, and formats diffs."""

from __future__ import annotations

import typing as t

# The maximum number of names of nodes or pools in a list of a result, and of nodes in a diff; a report file contains
# all names.
MAX_LISTED = 100


def diff_of(before: t.Any, after: t.Any, header: str = "", unchecked: str | None = None) -> dict[str, t.Any]:
    """A diff for Ansible; `header` names the compared objects, and `unchecked` says why a preview may be wrong."""
    header = f"{header} ({unchecked})" if unchecked else header
    return {"before": before, "after": after, "before_header": header, "after_header": header}
