# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVIDIADriver objects of this collection: their deletion, and when it needs a permission."""

from __future__ import annotations

import functools
import typing as t

from ..cluster_state.operand_pods import daemonset_status
from ..kube.client import Client
from ..kube.paths import NVIDIA_DRIVERS
from ..schema.messages import option_of_role
from .stage import Removal

Document = t.Mapping[str, t.Any]

ALLOW_DRIVER_ROLLOUT = option_of_role("gpu_uninstall_allow_driver_rollout", "allow_driver_rollout")


def driver_removals(client: Client, drivers: t.Iterable[Document]) -> t.Iterator[Removal]:
    """Each object is deleted, with its DaemonSets."""
    for item in drivers:
        name, uid = item["metadata"]["name"], item["metadata"]["uid"]
        delete = functools.partial(client.delete, f"{NVIDIA_DRIVERS}/{name}", body={"preconditions": {"uid": uid}})
        yield Removal(f"NVIDIADriver {name}", send=delete, check=functools.partial(delete, dry_run=True))


def refusal(drivers: t.Iterable[Document], daemonsets: t.Iterable[Document]) -> str:
    """Why the objects may not be deleted without a permission: a kept operator would install another driver. Empty if they may be."""
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
        f"The operator is kept, and the driver of {nodes} nodes is that of NVIDIADriver {names}, which this collection created. Without them "
        "all these nodes lose their driver at the same time and get that of the ClusterPolicy. Set "
        f"{ALLOW_DRIVER_ROLLOUT} to allow it. Nothing has been removed."
    )
