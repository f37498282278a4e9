# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The license metric of dcgm-exporter, which is read with the API server's proxy to pods."""

from __future__ import annotations

import functools
from pathlib import Path

from ..files import write_private
from ..layout import DEFAULT_FLEET, Lab
from ..part import LabPart
from .exporter import scrape
from .pod_network import PodNetwork

# Relative to the lab's folder, in which its services run: the path of a socket is limited to 107 characters.
_SOCKET = "metrics/egress.sock"
_EGRESS = f"""\
apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
  - name: cluster
    connection:
      proxyProtocol: HTTPConnect
      transport: {{uds: {{udsName: {_SOCKET}}}}}
"""


class Metrics(LabPart):
    """The exporters of all nodes, and the egress proxy through which the API server connects to pods."""

    name = "metrics"
    cloud = "metrics"
    service = "metrics"
    # The part has no machines of its own.
    fleet = DEFAULT_FLEET

    def prepare(self, lab: Lab) -> None:
        """Write the API server's configuration of the proxy."""
        write_private(self.folder(lab) / "egress.yaml", _EGRESS)

    def environment(self, lab: Lab) -> dict[str, str]:
        """Return the variable of lab/compose/kube.yaml with this configuration."""
        return {"LAB_EGRESS_SELECTOR": str(self.folder(lab) / "egress.yaml")}

    def serve(self, lab: Lab) -> None:
        """Run the service until killed."""
        server = PodNetwork(Path(_SOCKET), functools.partial(scrape, lab))
        print("metrics: listening", flush=True)
        server.serve_forever()
