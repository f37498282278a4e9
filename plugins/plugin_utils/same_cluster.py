# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One inventory host is one cluster: two hosts of one play that name the same cluster are refused before anything is sent."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import typing as t

from ansible import constants

from ..module_utils.common import private_file
from ..module_utils.common.errors import ConnectionProblem

Names = dict[str, str]


def same_cluster(cluster: t.Any, variables: t.Mapping[str, t.Any]) -> str:
    """Why the task's host may not go on: another host of its play has the same `gpu_cluster.name`. Empty when none has."""
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
        f"The inventory hosts {', '.join(sorted([own, *others]))} all have the cluster {name} (gpu_cluster.name), so they would "
        "change the same cluster at the same time. One inventory host is one cluster: give each its own gpu_cluster.name, or remove the "
        "hosts that are too many from the play (gpu_hosts, --limit)."
    )


def _names(hosts: t.Sequence[str], variables: t.Mapping[str, t.Any]) -> Names:
    """The cluster's name by host. All tasks of a run share a file, since templating the variables of many hosts takes long."""
    play = [str(variables.get("ansible_play_name", "")), *sorted(hosts)]
    key = hashlib.sha256(json.dumps(play).encode()).hexdigest()[:16]
    # Belongs to this run and its user alone, and is removed at its end.
    path = os.path.join(constants.DEFAULT_LOCAL_TMP, f"accel-gpu-clusters-{key}.json")
    with contextlib.suppress(OSError, ValueError), open(path, encoding="utf-8") as file:
        return t.cast(Names, json.load(file))
    names = {host: name for host in hosts if (name := _declared(host, variables))}
    if not names:
        # Not known yet, such as before a task that sets it.
        return names
    # Where no file can be written, the next task reads the variables again.
    with contextlib.suppress(ConnectionProblem):
        private_file.write(path, json.dumps(names))
    return names


def _declared(host: str, variables: t.Mapping[str, t.Any]) -> str:
    try:
        return _name_of(variables["hostvars"][host]["gpu_cluster"])
    except Exception:
        # Errors in another host's variables are reported by that host's own tasks.
        return ""


def _name_of(cluster: t.Any) -> str:
    name = cluster.get("name") if isinstance(cluster, t.Mapping) else None
    return str(name) if isinstance(name, str) else ""
