# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Magnum cluster that is the lab's own Kubernetes."""

from __future__ import annotations

import time

from ..errors import LabError
from ..layout import Lab
from .places import state
from .rest import Rest

_SECONDS = 120.0


def begin(lab: Lab) -> None:
    """Make the cluster that is called like the lab, in project demo, and wait until it is there; once in the lab's life.

    Whoever deletes it does so for good: only a reset brings it back.
    """
    done = state(lab) / "cluster-made"
    if done.exists():
        return
    demo = Rest(lab, "demo", "demo")
    templates = demo.get("magnum", "/clustertemplates")["clustertemplates"]
    body = {
        "name": lab.name,
        "cluster_template_id": next(of["uuid"] for of in templates if of["name"] == "k8s"),
        "keypair": "lab",
        "master_count": 1,
        "node_count": 2,
    }
    made = demo.post("magnum", "/clusters", body)["uuid"]
    deadline = time.monotonic() + _SECONDS
    status, reason = "", ""
    while status != "CREATE_COMPLETE":
        if status.endswith("FAILED") or time.monotonic() > deadline:
            raise LabError(
                f"Magnum's cluster '{lab.name}' is {status or 'not there'}: {reason}; see 'lab/lab logs magnum'"
            )
        time.sleep(0.1)
        # It is accepted before it is there.
        found = [of for of in demo.get("magnum", "/clusters")["clusters"] if of["uuid"] == made]
        status, reason = (found[0]["status"] or "", found[0].get("status_reason") or "") if found else ("", "")
    done.touch()
