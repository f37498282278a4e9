# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""OLM as a part of a lab: its controllers and package server, and the catalogs of NVIDIA's and OpenShift's operators."""

from __future__ import annotations

from .. import build, pki
from ..api import Api
from ..cloud_settings import CloudFault
from ..layout import Lab
from ..part import LabPart
from ..ports import is_listening
from ..supervisor import tool
from . import catalogs, objects, serve

# The audit policy excludes this user like the control plane.
_USER = "lab:olm"


class Olm(LabPart):
    """OLM with the CatalogSources certified-operators and redhat-operators; needs the part openshift."""

    name = "olm"
    cloud = catalogs.CLOUD
    service = "catalogs"
    faults = catalogs.FAULTS
    settings = catalogs.SETTINGS

    def build(self, lab: Lab) -> None:
        """Build OLM and the operators whose bundles the catalogs contain."""
        build.ensure(["olm"])

    def prepare(self, lab: Lab) -> None:
        """Write the kubeconfig of OLM and the certificate of its package server."""
        pki.write_admin_kubeconfig(lab, _USER, self.folder(lab) / "kubeconfig")
        service = f"{objects.PACKAGE_SERVICE}.{objects.OLM_NAMESPACE}.svc"
        pki.write_server_certificate(lab, service, self.folder(lab) / "packageserver")

    def environment(self, lab: Lab) -> dict[str, str]:
        """Return the variables of lab/compose/olm.yaml."""
        olm, nfd = build.ensure(["olm"])["olm"], build.ensure(["cluster-nfd-operator"])["cluster-nfd-operator"]
        return {
            "LAB_TOOL_OLM": str(olm / "bin"),
            "LAB_TOOL_CLUSTER_NFD_OPERATOR": str(nfd / "bin"),
            "LAB_OLM_KUBECONFIG": str(self.folder(lab) / "kubeconfig"),
            # The Service of the package server has no endpoints: the API server must resolve its external name.
            "LAB_AGGREGATOR_ROUTING": "false",
        }

    def begin(self, lab: Lab) -> None:
        """Wait until the catalogs are ready and their packages are listed."""
        objects.wait_ready(lab, Api(lab))

    def inject(self, lab: Lab, fault: CloudFault) -> None:
        """Reject an invalid fault."""
        catalogs.check_fault(fault)

    def changed(self, lab: Lab) -> None:
        """Wait until the catalogs have their new content, and OLM is connected to the restarted servers."""
        if not is_listening(lab.ports()["kube-apiserver"]):
            return
        api = Api(lab)
        objects.apply_sources(lab, api)
        objects.wait_connected(lab, api, serve.wait_served(lab, self.folder(lab) / "catalogs"))

    def exports(self, lab: Lab) -> dict[str, str]:
        """Return the address of the staging catalog, for a CatalogSource of one's own."""
        return {"LAB_STAGING_CATALOG": f"127.0.0.1:{serve.port_of(lab, catalogs.STAGING)}"}

    def serve(self, lab: Lab) -> None:
        """Apply OLM's objects, and run the service `catalogs`."""
        api = Api(lab, "runner")
        objects.apply_crds(api, tool("olm").parent / "crds")
        objects.apply(lab, api)
        serve.run(lab, self.folder(lab) / "catalogs")
