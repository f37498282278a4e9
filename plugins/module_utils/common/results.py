# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The form of results."""

from __future__ import annotations

import typing as t


def diff_of(before: t.Any, after: t.Any, header: str = "") -> dict[str, t.Any]:
    """A diff for Ansible, with the name of what is compared."""
    return {"before": before, "after": after, "before_header": header, "after_header": header}
