# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Connections of the lab's own programs to its API server."""

from __future__ import annotations

import socket

from lab.api import Api
from lab.layout import Lab as LabLayout
from tests.labs import Lab


def test_closed_connection_is_reopened(lab: Lab) -> None:
    api = Api(LabLayout.named(lab.name))
    assert api.get("/version")
    api._local.connection.sock.shutdown(socket.SHUT_RDWR)
    assert api.merge("/api/v1/namespaces/default", {"metadata": {"labels": {"asked": "again"}}})
