# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rejects a play in which several hosts represent the same cluster, before any request is sent. Each inventory host must represent a separate cluster."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import typing as t

from ansible import constants

from ..module_utils.core.errors import ConnectionProblem
from ..module_utils.core.files import write_private_file

Names = dict[str, str]


def same_cluster(cluster: t.Any, variables: t.Mapping[str, t.Any]) -> str:
    """Return the error message if another host of the play has the same `gpu_cluster.name` as the task's host; empty if no other host has it."""
    hosts = list(variables.get("ansible_play_hosts_all") or ())
    own = str(variables.get("inventory_hostname", ""))
    if own not in hosts or len(hosts) < 2:
        return ""
    names = _names(hosts, variables)
    name = _name_of(cluster) or names.get(own, "")
    others = [host for host, other in names.items() if other == name and host != own]
    if not name or not others:
        return ""
    return (
        f"The inventory hosts {', '.join(sorted([own, *others]))} all have the cluster {name} (gpu_cluster.name), so they would change the same "
        "cluster at the same time. One inventory host represents one cluster: set a separate gpu_cluster.name for each, or remove the surplus "
        "hosts from the play (gpu_hosts, --limit). A task that is needed only once can have run_once."
    )


def _names(hosts: t.Sequence[str], variables: t.Mapping[str, t.Any]) -> Names:
    """Return the name of the cluster for each host. The tasks of a run share a file, because templating the variables of many hosts takes a long time."""
    play = [str(variables.get("ansible_play_name", "")), *sorted(hosts)]
    key = hashlib.sha256(json.dumps(play).encode()).hexdigest()[:16]
    # Only this run and its user can use the file. It is removed at the end of the run.
    path = os.path.join(constants.DEFAULT_LOCAL_TMP, f"accel-gpu-clusters-{key}.json")
    with contextlib.suppress(OSError, ValueError), open(path, encoding="utf-8") as file:
        return t.cast(Names, json.load(file))
    names = {host: name for host in hosts if (name := _declared(host, variables))}
    if not names:
        # The names may not be known yet, for example before the task that sets them.
        return names
    # If no file can be written, the next task reads the variables again.
    with contextlib.suppress(ConnectionProblem):
        write_private_file(path, json.dumps(names))
    return names


def _declared(host: str, variables: t.Mapping[str, t.Any]) -> str:
    try:
        return _name_of(variables["hostvars"][host]["gpu_cluster"])
    except Exception:
        # Errors in another host's variables are reported by that host's tasks.
        return ""


def _name_of(cluster: t.Any) -> str:
    name = cluster.get("name") if isinstance(cluster, t.Mapping) else None
    return str(name) if isinstance(name, str) else ""
