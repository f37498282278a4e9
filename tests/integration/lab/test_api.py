# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the lab's own programs speak to its API server."""

from __future__ import annotations

import socket

from lab.api import Api
from lab.layout import Lab as LabLayout
from tests.labs import Lab


def test_a_kept_connection_that_was_closed_is_opened_again(lab: Lab) -> None:
    api = Api(LabLayout.named(lab.name))
    assert api.get("/version")
    api._local.connection.sock.shutdown(socket.SHUT_RDWR)
    assert api.merge("/api/v1/namespaces/default", {"metadata": {"labels": {"asked": "again"}}})
