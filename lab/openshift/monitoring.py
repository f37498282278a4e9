# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CRDs of OpenShift's monitoring that operators create objects of; they accept any content, because the lab has no Prometheus."""

from __future__ import annotations

from ..api import Object

_GROUP = "monitoring.coreos.com"
KINDS = ("ServiceMonitor", "PodMonitor", "PrometheusRule")


def crds() -> list[Object]:
    """Return the CRDs."""
    return [_crd(kind) for kind in KINDS]


def _crd(kind: str) -> Object:
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{_GROUP}"},
        "spec": {
            "group": _GROUP,
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "scope": "Namespaced",
            "versions": [version],
        },
    }
