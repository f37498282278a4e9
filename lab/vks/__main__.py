# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fake VKS without a Kubernetes cluster: `python -m lab.vks --port N [--folder DIR]`."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
from pathlib import Path

from ..layout import Lab
from .fake import FakeVks
from .iam import CLIENTS


def main() -> None:
    """Serve until killed; the first line of output is a JSON object with addresses and credentials."""
    parser = argparse.ArgumentParser(prog="python -m lab.vks", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="loopback port (default: a free one)")
    parser.add_argument("--folder", type=Path, help="folder for the state (default: a temporary folder)")
    parser.add_argument("--cluster", default="demo", help="name of the initial cluster (default: demo)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lab-vks-") as temporary:
        lab = Lab.named(options.cluster, (options.folder or Path(temporary)).absolute())
        secrets = {client: f"{client}-secret" for client in CLIENTS}
        fake = FakeVks(lab, secrets, real=False, log=lab.logs / "cloud-requests.jsonl")
        lab.logs.mkdir(parents=True, exist_ok=True)
        fake.start(options.port)
        login = {"GRN_CLIENT_ID": "lab", "GRN_CLIENT_SECRET": secrets["lab"]}
        json.dump({**fake.addresses(), **login, "LAB_DIR": str(lab.dir)}, sys.stdout)
        print(flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
