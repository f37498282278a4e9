# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is told of nodes that are worked on side by side."""

from __future__ import annotations

import threading
import typing as t

if t.TYPE_CHECKING:
    from ..common.progress import Progress

_NODES = 3


def progress_by_node(progress: Progress) -> t.Callable[[str, str], None]:
    """Takes a node's name and what is going on there; one line of progress tells the latest of up to three nodes."""
    at: dict[str, str] = {}
    lock = threading.Lock()

    def say(name: str, text: str) -> None:
        with lock:
            at.pop(name, None)
            at[name] = text
            latest = list(at.items())[-_NODES:]
        progress.say("; ".join(f"{node}: {what}" for node, what in latest))

    return say
