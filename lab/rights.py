# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Users of the lab who have the rights that the collection ships for a playbook, and no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from . import pki
from .api import Api, ApiError
from .errors import LabError
from .layout import REPO, Lab

RBAC = REPO / "examples" / "rbac"
USER_PREFIX = "accel-gpu:"
_GROUP = "rbac.authorization.k8s.io"
_PLURALS = {kind: f"{kind.lower()}s" for kind in ("ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding")}
# Where a ClusterRole is bound that is not to be given for the whole cluster: in the namespaces of the releases that there are.
_IN_NAMESPACES = {"accel-gpu-export-values": ("node-feature-discovery", "gpu-operator")}
# The playbooks that need what is shipped for another one.
_AS_ANOTHER = {"repair": "share", "reset": "share", "scale": "share", "delete_nodegroups": "nodegroups"}

Object = dict[str, Any]


def playbooks() -> list[str]:
    """The playbooks for which rights are shipped."""
    return sorted([*(path.stem for path in RBAC.glob("*.yaml")), *_AS_ANOTHER])


def documents(playbook: str) -> list[Object]:
    """The objects of the file that is shipped for a playbook."""
    if playbook not in playbooks():
        raise LabError(f"no rights are shipped for '{playbook}': known are {', '.join(playbooks())}")
    document = yaml.safe_load((RBAC / f"{_AS_ANOTHER.get(playbook, playbook)}.yaml").read_text())
    return list(document["items"]) if document["kind"] == "List" else [document]


def grant(lab: Lab, playbook: str) -> Path:
    """Apply the shipped file as its comment says, for the user accel-gpu:PLAYBOOK, and return that user's kubeconfig."""
    api = Api(lab)
    for body in documents(playbook):
        if body["kind"] == "Namespace":
            api.apply(f"/api/v1/namespaces/{body['metadata']['name']}", body)
            continue
        for wanted in (body, *_bindings(body, playbook)):
            try:
                api.apply(_path(wanted), wanted)
            except ApiError as error:
                # The namespace of a release that is not there.
                if error.status != 404:
                    raise
    return pki.user(lab, playbook, f"{USER_PREFIX}{playbook}")


def nobody(lab: Lab) -> Path:
    """The kubeconfig of a user whom the cluster knows, and who has no right at all."""
    return pki.user(lab, "nobody", f"{USER_PREFIX}nobody")


def _bindings(role: Object, playbook: str) -> Iterator[Object]:
    """A role's bindings to the user of a playbook; each user has his own, since several may share a role."""
    name = role["metadata"]["name"]
    binding = name if playbook not in _AS_ANOTHER else f"{name}-{playbook}"
    namespaces: tuple[str | None, ...] = _IN_NAMESPACES.get(name, (role["metadata"].get("namespace"),))
    for namespace in namespaces:
        yield {
            "apiVersion": f"{_GROUP}/v1",
            "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
            "metadata": {"name": binding, **({"namespace": namespace} if namespace else {})},
            "roleRef": {"apiGroup": _GROUP, "kind": role["kind"], "name": name},
            "subjects": [{"apiGroup": _GROUP, "kind": "User", "name": f"{USER_PREFIX}{playbook}"}],
        }


def _path(body: Object) -> str:
    namespace = body["metadata"].get("namespace")
    within = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{_GROUP}/v1{within}/{_PLURALS[body['kind']]}/{body['metadata']['name']}"
