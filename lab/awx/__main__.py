# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starts the stand-in: `python -m lab.awx FOLDER [PORT]`. Prints the environment variables for awx.awx, and runs until it is interrupted."""

from __future__ import annotations

import argparse
import os
import threading
from pathlib import Path

from .server import PASSWORD, USER, Awx, serve

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m lab.awx", description="Start a stand-in for AWX.")
    parser.add_argument("folder", type=Path, help="the files of projects and jobs")
    parser.add_argument("port", type=int, nargs="?", default=0, help="by default, a free one")
    arguments = parser.parse_args()
    awx = Awx(arguments.folder.resolve())
    awx.runs.environment = {"PATH": os.environ["PATH"]}
    awx.runs.image_collections = [
        Path(path) for path in os.environ.get("ANSIBLE_COLLECTIONS_PATH", "").split(":") if path
    ]
    server = serve(awx, arguments.port)
    print(
        f"export CONTROLLER_HOST=http://127.0.0.1:{server.server_port} CONTROLLER_USERNAME={USER} CONTROLLER_PASSWORD={PASSWORD}",
        flush=True,
    )
    threading.Event().wait()
