# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fake VKS as a part of a lab."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import threading
import time
from typing import Any

from .. import cloud_requests
from ..cloud_settings import CloudFault
from ..errors import LabError
from ..layout import Lab
from ..part import LabPart
from . import contract, rules
from .fake import FakeVks, addresses
from .iam import CLIENTS

_READY_SECONDS = 60.0


class Vks(LabPart):
    """The fake of VNG Cloud's VKS, vServer and IAM; the cluster with the name of the lab is the lab's own."""

    name = "vks"
    cloud = rules.CLOUD
    service = "vks"
    faults = {name: one.text for name, one in contract.load().faults.items()}
    settings = contract.settings()

    def prepare(self, lab: Lab) -> None:
        """Create the service accounts' secrets, once per lab."""
        file = self.folder(lab) / "clients.json"
        if not file.exists():
            with open(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600), "w") as handle:
                json.dump({client: secrets.token_urlsafe(24) for client in CLIENTS}, handle, indent=2)

    def begin(self, lab: Lab) -> None:
        """Wait until no group is being created: the nodes of the first one exist."""
        deadline = time.monotonic() + _READY_SECONDS
        while any(group["status"] == "CREATING" for group in self._state(lab)["groups"]):
            if time.monotonic() > deadline:
                raise LabError(f"the node groups of VKS did not become ready: see 'lab/lab{lab.option} logs vks'")
            time.sleep(0.1)

    def inject(self, lab: Lab, fault: CloudFault) -> None:
        """Reject a fault with an invalid value or group."""
        rules.check_fault(fault.name.partition(".")[2], fault.group, fault.value)

    def exports(self, lab: Lab) -> dict[str, str]:
        """Return the addresses of the services, and the account with all permissions."""
        login = {"GRN_CLIENT_ID": "lab", "GRN_CLIENT_SECRET": self.clients(lab)["lab"]}
        return {**addresses(f"http://127.0.0.1:{lab.ports()['vks']}"), **login}

    def clients(self, lab: Lab) -> dict[str, str]:
        """Return the secrets of the service accounts, by client id."""
        clients: dict[str, str] = json.loads((self.folder(lab) / "clients.json").read_text())
        return clients

    def serve(self, lab: Lab) -> None:
        """Run the service until killed."""
        fake = FakeVks(lab, self.clients(lab), real=True, log=cloud_requests.path_of(lab))
        fake.start(lab.ports()["vks"])
        threading.Event().wait()

    def _state(self, lab: Lab) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", lab.ports()["vks"], timeout=10)
        try:
            connection.request("GET", "/lab/state")
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()
