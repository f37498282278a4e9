# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A double of the look-ups of NVIDIA's License System: license pools and leases. It hands out no licenses."""

from __future__ import annotations

import secrets
from pathlib import Path

from .. import pki
from ..cloud_settings import CloudFault, CloudSettings, Setting
from ..errors import LabError
from ..files import write_private
from ..layout import DEFAULT_FLEET, Lab
from ..part import LabPart
from .leases import LeaseBook
from .lookups import ORG, Lookups
from .server import NlsServer


class Nls(LabPart):
    """The license pools and leases of one organization, over TLS with the CA of the lab's cluster."""

    name = "nls"
    cloud = "nls"
    service = "nls"
    # The part has no machines of its own.
    fleet = DEFAULT_FLEET
    settings = {"licenses": Setting("100", "the number of licenses of each product")}

    def prepare(self, lab: Lab) -> None:
        """Create the API key, once per lab, and the certificate."""
        key = self._key_file(lab)
        if not key.exists():
            write_private(key, secrets.token_urlsafe(24))
        pki.write_server_certificate(lab, "nls.lab.invalid", self.folder(lab) / "server")

    def inject(self, lab: Lab, fault: CloudFault) -> None:
        """Reject every fault: licenses have faults of nodes."""
        raise LabError(
            f"unknown fault '{fault.name}': use 'lab/lab fault inject license-unreachable' or license-denied"
        )

    def exports(self, lab: Lab) -> dict[str, str]:
        """Return the address, the certificate authority, the file with the API key, and the organization."""
        return {
            "LAB_NLS": f"https://127.0.0.1:{lab.ports()['nls']}",
            "LAB_NLS_CA": str(lab.pki / "ca.crt"),
            "LAB_NLS_API_KEY_FILE": str(self._key_file(lab)),
            "LAB_NLS_ORG": ORG,
        }

    def serve(self, lab: Lab) -> None:
        """Run the service until killed."""
        settings = CloudSettings(lab, {f"{self.cloud}.{key}": setting for key, setting in self.settings.items()})
        leases = LeaseBook(lab, self.state(lab) / "leases.json")
        leases.watch()
        lookups = Lookups(leases, lambda: int(settings.setting("nls.licenses")))
        server = NlsServer(lab.ports()["nls"], self.folder(lab) / "server", self._key_file(lab).read_text(), lookups)
        print(f"nls: listening on 127.0.0.1:{lab.ports()['nls']}", flush=True)
        server.serve_forever()

    def _key_file(self, lab: Lab) -> Path:
        return self.folder(lab) / "api-key"
