# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The form of results."""

from __future__ import annotations

import typing as t

# The names of nodes and pools in a list of a result, and the nodes in a diff, are at most this many; a report in a file has all of them.
MAX_LISTED = 100


def diff_of(before: t.Any, after: t.Any, header: str = "") -> dict[str, t.Any]:
    """A diff for Ansible, with the name of what is compared."""
    return {"before": before, "after": after, "before_header": header, "after_header": header}
