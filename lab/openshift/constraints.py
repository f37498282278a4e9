# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The SecurityContextConstraints that every OpenShift cluster has (OpenShift's documentation, "Managing SCCs").

The lab has no admission plugin that applies them: they are what `kubectl get scc` shows and what operators reference.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..api import Object

_VOLUMES = ("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret")


@dataclass(frozen=True)
class _Constraints:
    name: str
    user: str
    level: str = "MustRunAs"
    group: str = "RunAsAny"
    host: bool = False
    privileged: bool = False
    second: bool = False
    volumes: tuple[str, ...] = _VOLUMES
    priority: int | None = None
    groups: tuple[str, ...] = ()


_ALL = (
    _Constraints("restricted", "MustRunAsRange", group="MustRunAs"),
    _Constraints("restricted-v2", "MustRunAsRange", group="MustRunAs", second=True, groups=("system:authenticated",)),
    _Constraints("nonroot", "MustRunAsNonRoot"),
    _Constraints("nonroot-v2", "MustRunAsNonRoot", second=True),
    _Constraints("anyuid", "RunAsAny", priority=10, groups=("system:cluster-admins",)),
    _Constraints("hostmount-anyuid", "RunAsAny", volumes=(*_VOLUMES, "hostPath", "nfs")),
    _Constraints("hostnetwork", "MustRunAsRange", group="MustRunAs", host=True),
    _Constraints("hostnetwork-v2", "MustRunAsRange", group="MustRunAs", host=True, second=True),
    _Constraints(
        "privileged",
        "RunAsAny",
        level="RunAsAny",
        host=True,
        privileged=True,
        volumes=("*",),
        groups=("system:cluster-admins", "system:nodes", "system:masters"),
    ),
)


def security_context_constraints() -> Iterator[Object]:
    """Yield the objects."""
    for one in _ALL:
        everything = one.privileged
        yield {
            "apiVersion": "security.openshift.io/v1",
            "kind": "SecurityContextConstraints",
            "metadata": {"name": one.name},
            "allowHostDirVolumePlugin": everything or "hostPath" in one.volumes,
            "allowHostIPC": everything,
            "allowHostNetwork": one.host,
            "allowHostPID": everything,
            "allowHostPorts": one.host,
            "allowPrivilegeEscalation": not one.second,
            "allowPrivilegedContainer": everything,
            "allowedCapabilities": ["*"] if everything else ["NET_BIND_SERVICE"] if one.second else [],
            "defaultAddCapabilities": [],
            "fsGroup": {"type": one.group},
            "groups": list(one.groups),
            "priority": one.priority,
            "readOnlyRootFilesystem": False,
            "requiredDropCapabilities": [] if everything else ["ALL"] if one.second else ["MKNOD"],
            "runAsUser": {"type": one.user},
            "seLinuxContext": {"type": one.level},
            "seccompProfiles": ["*"] if everything else ["runtime/default"] if one.second else [],
            "supplementalGroups": {"type": "RunAsAny"},
            "users": [],
            "volumes": list(one.volumes),
        }
