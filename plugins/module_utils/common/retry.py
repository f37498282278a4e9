# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long to wait before a request is sent again."""

from __future__ import annotations

import random

from .errors import ServiceError

_FIRST, _MOST = 0.25, 8.0


def delay(error: ServiceError, attempt: int, most_asked: float) -> float:
    """Seconds: what the service asks for, `most_asked` at most; else twice as long each time, by chance a bit less."""
    if error.retry_after is not None:
        return min(error.retry_after, most_asked)
    return float(min(_MOST, _FIRST * 2**attempt) * random.uniform(0.5, 1.0))
