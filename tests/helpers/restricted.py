# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenShift's security context constraint restricted-v2, as far as it admits or rejects pods of this collection.

Source: openshift/cluster-kube-apiserver-operator bindata/bootkube/scc-manifests/0000_20_kube-apiserver-operator_00_scc-restricted-v2.yaml.
"""

from __future__ import annotations

from typing import Any

# The range of user ids that OpenShift gives to a namespace (annotation openshift.io/sa.scc.uid-range).
UID_RANGE = range(1000680000, 1000690000)
VOLUMES = {
    *(
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    )
}
_ADDED = {"NET_BIND_SERVICE"}


def violations(pod: dict[str, Any]) -> list[str]:
    """Why the constraint rejects a pod, or a pod template; empty if it admits it."""
    spec = pod["spec"]
    actual = [f"{key} is set" for key in ("hostNetwork", "hostPID", "hostIPC") if spec.get(key)]
    for volume in spec.get("volumes", []):
        actual += [f"volume {kind} is not allowed" for kind in set(volume) - {"name"} - VOLUMES]
    actual += _of_context(spec.get("securityContext") or {})
    for container in [*spec.get("initContainers", []), *spec["containers"]]:
        context = container.get("securityContext") or {}
        actual += _of_context(context)
        if context.get("privileged") or context.get("allowPrivilegeEscalation") is not False:
            actual.append(f"container {container['name']} may escalate its privileges")
        capabilities = context.get("capabilities") or {}
        if "ALL" not in capabilities.get("drop", []) or set(capabilities.get("add", [])) - _ADDED:
            actual.append(f"container {container['name']} keeps capabilities")
    return actual


def _of_context(context: dict[str, Any]) -> list[str]:
    actual = []
    user = context.get("runAsUser")
    if user is not None and user not in UID_RANGE:
        actual.append(f"runAsUser {user} is outside the range of the namespace")
    profile = (context.get("seccompProfile") or {}).get("type", "RuntimeDefault")
    if profile != "RuntimeDefault":
        actual.append(f"seccomp profile {profile} is not allowed")
    if "fsGroup" in context or "seLinuxOptions" in context:
        actual.append("fsGroup or seLinuxOptions is fixed")
    return actual
