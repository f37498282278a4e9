# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Users of the lab with exactly the RBAC rules that the collection ships for a playbook."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from . import pki
from .api import Api, ApiError
from .errors import LabError
from .layout import REPO, Lab

RBAC = REPO / "examples" / "rbac"
_ON_OPENSHIFT = RBAC / "openshift"
USER_PREFIX = "accel-gpu:"
_GROUP = "rbac.authorization.k8s.io"
_PLURALS = {kind: f"{kind.lower()}s" for kind in ("ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding")}
# ClusterRoles that are bound only in these namespaces, those of the releases, instead of the whole cluster.
_IN_NAMESPACES = {
    "accel-gpu-export-values": ("node-feature-discovery", "gpu-operator"),
    "accel-gpu-plan-upgrade": ("gpu-operator",),
}
# Roles for an option, and the playbook whose user gets them; None: no user of the lab.
_OF_OPTIONS = {"accel-gpu-license-restart": "license_rotate", "accel-gpu-license-report-metric": None}
# Playbooks that use the RBAC rules of another playbook.
_SHARED_RULES = {
    "driver_image": "plan",
    "license_rotate": "license",
    "mirror": "plan",
    "verify_mirror": "plan",
    "report": "plan",
    "upgrade": "site",
    "repair": "share",
    "reset": "share",
    "scale": "share",
    "delete_nodegroups": "nodegroups",
    "templates_refresh": "share",
}

Object = dict[str, Any]


def playbooks() -> list[str]:
    """Return the playbooks with shipped RBAC rules."""
    return sorted([*(path.stem for path in RBAC.glob("*.yaml")), *_SHARED_RULES])


def objects(playbook: str, *, openshift: bool = False) -> list[Object]:
    """Return the objects of the RBAC file of a playbook; for OpenShift, its own file or the general one with OpenShift's namespaces."""
    if playbook not in playbooks():
        raise LabError(f"no RBAC rules for playbook '{playbook}'; known: {', '.join(playbooks())}")
    name = f"{_SHARED_RULES.get(playbook, playbook)}.yaml"
    own = _ON_OPENSHIFT / name
    text = (own if openshift and own.exists() else RBAC / name).read_text()
    if openshift and not own.exists():
        # The command of docs/openshift.md.
        text = subprocess.run(
            ["sed", "-E", "-f", str(_ON_OPENSHIFT / "namespaces.sed")],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    document = yaml.safe_load(text)
    return list(document["items"]) if document["kind"] == "List" else [document]


def grant(lab: Lab, playbook: str) -> Path:
    """Apply the RBAC file of a playbook for the user accel-gpu:PLAYBOOK, and return that user's kubeconfig."""
    api = Api(lab)
    for body in objects(playbook, openshift=api.get("/apis/config.openshift.io") is not None):
        if body["kind"] == "Namespace":
            api.apply(f"/api/v1/namespaces/{body['metadata']['name']}", body)
            continue
        for desired in (body, *_bindings(body, playbook)):
            try:
                api.apply(_path(desired), desired)
            except ApiError as error:
                # The namespace does not exist because the release is not installed.
                if error.status != 404:
                    raise
    return pki.user_kubeconfig(lab, playbook, f"{USER_PREFIX}{playbook}")


def user_without_rights(lab: Lab) -> Path:
    """Return the kubeconfig of an authenticated user without any permission."""
    return pki.user_kubeconfig(lab, "no-rights", f"{USER_PREFIX}no-rights")


def _bindings(role: Object, playbook: str) -> Iterator[Object]:
    """Yield a role's bindings to the user of a playbook; each user has separate bindings, because users can share a role."""
    name = role["metadata"]["name"]
    if _OF_OPTIONS.get(name, playbook) != playbook:
        return
    binding = name if playbook not in _SHARED_RULES else f"{name}-{playbook}"
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
