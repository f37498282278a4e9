# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starts the stand-in: `python -m lab.awx FOLDER [PORT]`. Prints the environment variables for awx.awx, and runs until it is interrupted."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from .server import PASSWORD, USER, Awx, serve

if __name__ == "__main__":
    awx = Awx(Path(sys.argv[1]).resolve())
    awx.runs.environment = {"PATH": os.environ["PATH"]}
    awx.runs.image_collections = [
        Path(path) for path in os.environ.get("ANSIBLE_COLLECTIONS_PATH", "").split(":") if path
    ]
    server = serve(awx, int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    print(
        f"export CONTROLLER_HOST=http://127.0.0.1:{server.server_port} CONTROLLER_USERNAME={USER} CONTROLLER_PASSWORD={PASSWORD}",
        flush=True,
    )
    threading.Event().wait()
