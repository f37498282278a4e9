# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a cluster is OpenShift: it has the object ClusterVersion `version` (openshift/api config/v1, types_cluster_version.go)."""

from __future__ import annotations

import typing as t

from ..kube.errors import ApiError

if t.TYPE_CHECKING:
    from ..kube.client import Client

_GROUP = "/apis/config.openshift.io/v1"
_PLURAL = "clusterversions"


def openshift_version(client: Client) -> str | None:
    """The version that OpenShift is to have, empty where that may not be read; None for any other Kubernetes.

    Any user may ask which kinds there are (ClusterRole system:discovery), so that no right is needed to find out.
    """
    kinds = client.get(_GROUP)
    if kinds is None or all(kind.get("name") != _PLURAL for kind in kinds.get("resources") or ()):
        return None
    try:
        found = client.get(f"{_GROUP}/{_PLURAL}/version")
    except ApiError as error:
        if not error.forbidden:
            raise
        return ""
    if found is None:
        # The kind alone: components of OpenShift on another Kubernetes.
        return None
    return str(((found.get("status") or {}).get("desired") or {}).get("version") or "")
