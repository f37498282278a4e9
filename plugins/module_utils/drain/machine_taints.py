# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Removes the startup taint from the Machine of an OpenShift node, together with the taint of the node.

If a Machine's taint is removed only from the node, the Machine API adds it to the node again (openshift/machine-api-operator,
pkg/controller/nodelink, addTaintsToNode). New Machines still get the taint from the template of their MachineSet.
"""

from __future__ import annotations

import typing as t

from ..catalog.cluster_autoscaler import MACHINE_ANNOTATION
from ..catalog.machine_api import machines_path
from ..catalog.taints import STARTUP_TAINT_KEY
from ..common.nested import get_nested
from ..kube.conflict_retry import patch_object
from ..kube.errors import ApiError
from ..schema import validators

if t.TYPE_CHECKING:
    from ..cluster_state.cordon import Patch
    from ..cluster_state.node import Node
    from ..kube.conflict_retry import Patcher

Object = dict[str, t.Any]


def remove_startup_taint(
    client: Patcher, node: Node, patch: t.Mapping[str, t.Any], check_lease: t.Callable[[], None]
) -> None:
    """Remove the startup taint from the node's Machine if `patch` removes it from the node. Call this before sending the patch.

    The order matters: if the taint were removed from the node first, the Machine API would add it again. Without a Machine, no request is sent.
    `check_lease` is called before each patch.
    """
    path = _machine_path(node)
    if not path or not _removes_startup_taint(node, patch):
        return

    def compute(machine: Object) -> Patch | None:
        if get_nested(machine, "status", "nodeRef", "name") not in (None, node.name):
            # The annotation refers to the Machine of another node.
            return None
        taints = (machine.get("spec") or {}).get("taints") or []
        kept = [taint for taint in taints if taint.get("key") != STARTUP_TAINT_KEY]
        if len(kept) == len(taints):
            return None
        check_lease()
        return {"spec": {"taints": kept or None}}

    try:
        patch_object(client, path, client.get(path), compute)
    except ApiError as error:
        # The Machine was deleted after it was read; its node will also be deleted.
        if not error.not_found:
            raise


def _machine_path(node: Node) -> str:
    """The path of the node's Machine; empty if it has none, or if the annotation is not a valid name and could yield the path of another object."""
    namespace, dummy, name = node.annotations.get(MACHINE_ANNOTATION, "").partition("/")
    valid = validators.dns_label(namespace) is None and validators.object_name(name) is None
    return f"{machines_path(namespace)}/{name}" if valid else ""


def _removes_startup_taint(node: Node, patch: t.Mapping[str, t.Any]) -> bool:
    taints = (patch.get("spec") or {}).get("taints", node.taints)
    return node.has_taint(STARTUP_TAINT_KEY) and all(taint.get("key") != STARTUP_TAINT_KEY for taint in taints or ())
