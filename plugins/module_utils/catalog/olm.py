# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operators as OLM installs them on OpenShift: packages, catalogs, namespaces, and the names of their custom resources.

Sources: bundle/metadata/annotations.yaml and bundle/manifests of NVIDIA/gpu-operator (package, suggested namespace, alm-examples),
manifests/stable of openshift/cluster-nfd-operator, and "Installing the Node Feature Discovery Operator on OpenShift" of NVIDIA/cloud-native-docs.
"""

from __future__ import annotations

import dataclasses
import typing as t

from .releases import Kind

HELM, OLM = "helm", "olm"
INSTALLERS = (HELM, OLM)
MANUAL, AUTOMATIC = "Manual", "Automatic"
SOURCE_NAMESPACE = "openshift-marketplace"
# The distribution on which OLM installs operators unless `installer` says otherwise.
OPENSHIFT = "openshift"

# OLM's API group, its two versions, and the path of the one with Subscriptions.
GROUP = "operators.coreos.com"
V1ALPHA1, V1 = f"{GROUP}/v1alpha1", f"{GROUP}/v1"
API_PATH = f"/apis/{V1ALPHA1}"
# The API of the packages in all catalogs (PackageManifests).
PACKAGES_API_PATH = f"/apis/packages.{GROUP}/v1"

# The fields in the spec of a Subscription that get the value of a single option of the module olm_subscription, each with the option's name. A run
# chooses one of several sources, and a channel if none is declared.
SUBSCRIPTION_FIELDS: t.Mapping[str, str] = {
    "name": "package",
    "installPlanApproval": "approval",
    "channel": "channel",
    "source": "source",
    "sourceNamespace": "source_namespace",
}

EXAMPLES_ANNOTATION = "alm-examples"
# OLM's labels on the objects of a ClusterServiceVersion (operator-lifecycle-manager pkg/lib/ownerutil).
OWNER_LABEL, OWNER_KIND_LABEL = "olm.owner", "olm.owner.kind"
CSV_KIND = "ClusterServiceVersion"
# With this annotation, a pod runs under this security context constraint, no matter who creates it. Without it, pods that an administrator creates run
# under `anyuid`, as the image's user (openshift/apiserver-library-go, securitycontextconstraints/sccadmission).
REQUIRED_SCC = {"openshift.io/required-scc": "restricted-v2"}


@dataclasses.dataclass(frozen=True)
class OlmPackage:
    """One package; `resource` is the name of the custom resource in its examples, and `kinds` contains the kinds in its bundle."""

    package: str
    namespace: str
    source: str
    resource: str
    kinds: tuple[Kind, ...] = ()


OPERATOR = OlmPackage("gpu-operator-certified", "nvidia-gpu-operator", "certified-operators", "gpu-cluster-policy")
NFD_CR: Kind = ("nfd.openshift.io/v1", "NodeFeatureDiscovery")
# The field of a NodeFeatureDiscovery with the tolerations of its workers.
WORKER_TOLERATIONS = ("spec", "operand", "workerTolerations")
NFD = OlmPackage("nfd", "openshift-nfd", "redhat-operators", "nfd-instance", (NFD_CR,))
PACKAGES: t.Mapping[str, OlmPackage] = {"operator": OPERATOR, "nfd": NFD}
