# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Determines when the deletion of this collection's NVIDIADriver objects requires permission (pure)."""

from __future__ import annotations

import typing as t

from ..cluster_state.operand_pods import daemonset_status
from ..schema.messages import option_of_role

Document = t.Mapping[str, t.Any]

ALLOW_DRIVER_ROLLOUT = option_of_role("gpu_uninstall_allow_driver_rollout", "allow_driver_rollout")


def refusal(drivers: t.Iterable[Document], daemonsets: t.Iterable[Document]) -> str:
    """The reason why deleting the objects requires permission: a kept operator would install another driver. Empty if no permission is required."""
    uids = {item["metadata"]["uid"] for item in drivers}
    nodes = sum(
        daemonset_status(item).scheduled
        for item in daemonsets
        if any(owner.get("uid") in uids for owner in item["metadata"].get("ownerReferences") or ())
    )
    if not nodes:
        return ""
    names = ", ".join(sorted(item["metadata"]["name"] for item in drivers))
    return (
        f"The operator is kept, and {nodes} nodes have the driver of NVIDIADriver {names}, which this collection created. Without "
        "these objects, all these nodes lose their driver at the same time and get the driver of the ClusterPolicy. Set "
        f"{ALLOW_DRIVER_ROLLOUT} to allow it. Nothing has been removed."
    )
