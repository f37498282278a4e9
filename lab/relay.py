# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copies data between two connections."""

from __future__ import annotations

import select
import socket

_CHUNK = 65536


def relay(one: socket.socket, other: socket.socket) -> None:
    """Copy data in both directions until one side closes the connection."""
    while True:
        for ready in select.select((one, other), (), ())[0]:
            data = ready.recv(_CHUNK)
            if not data:
                return
            (other if ready is one else one).sendall(data)
