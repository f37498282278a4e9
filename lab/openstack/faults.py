# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The faults and switches of the lab's OpenStack: their names, and those that the cloud's own settings bring about."""

from __future__ import annotations

import json

from ..errors import LabError
from ..layout import Lab
from ..switches import Fault, Setting
from .places import state
from .rest import Rest

# On a group of nodes (of any cluster) or on all; the value is the status_reason.
OF_GROUPS = {
    "create-failed": "a node group ends CREATE_FAILED, its nodes are not there; the value is its status_reason",
    "update-failed": "a change of a node group ends UPDATE_FAILED, its nodes stay as they are; the value is its status_reason",
    "delete-failed": "a node group ends DELETE_FAILED, its nodes stay; the value is its status_reason",
    "in-progress": "what is begun on a node group stays IN_PROGRESS until this is cleared",
}
# On Magnum's API; they strike outsiders alone.
OF_REQUESTS = {
    "unavailable": "Magnum's API answers 503; the value is to how many requests (none: to all)",
    "slow": "Magnum's API answers late; the value is the seconds by which",
    "lost-reply": "Magnum does what it is asked and closes the connection without an answer, to all but reading requests;"
    " the value is how often (none: for ever)",
}
TOKEN_EXPIRY = "token-expiry"
NO_QUOTA = "no-quota"
FAULTS = {
    **OF_GROUPS,
    **OF_REQUESTS,
    TOKEN_EXPIRY: "Keystone's tokens, from now on, are good for as many seconds as the value says",
    NO_QUOTA: "project demo may have no more than the value says, as instances=3, cores=16 (of Nova) or clusters=1"
    " (of Magnum); machines that are too many make a node group fail",
}
SETTINGS = {
    "delay": Setting("0.05", "seconds that an operation takes at least; a label lab_delay of the group goes first"),
    "node-labels": Setting(
        "applied", "whether the driver gives node_labels and node_taints to new nodes", ("applied", "ignored")
    ),
    "scale-to-zero": Setting(
        "possible", "whether a node group that is scaled by itself may have a minimum of 0", ("possible", "impossible")
    ),
}
_NUMBERS = ("unavailable", "lost-reply", TOKEN_EXPIRY)


def put(lab: Lab, fault: Fault) -> None:
    """Refuse a fault that makes no sense; bring about a quota by the services' own APIs."""
    name, value = fault.name.partition(".")[2], fault.value
    if fault.group and name not in OF_GROUPS:
        raise LabError(f"the fault '{name}' is not one of a group of nodes")
    if name in _NUMBERS and (value is not None or name == TOKEN_EXPIRY) and not (value or "").isdecimal():
        raise LabError(f"the fault '{name}' needs a --value that is a whole number, not {value!r}")
    if name == "slow" and not (value or "").replace(".", "", 1).isdecimal():
        raise LabError(f"the fault 'slow' needs a --value that is a number of seconds, not {value!r}")
    if name == NO_QUOTA:
        _put_quota(lab, *quota(value))


def clear(lab: Lab, fault: Fault) -> None:
    """Give a project its usual quota again."""
    if fault.name.partition(".")[2] != NO_QUOTA:
        return
    resource, _limit = quota(fault.value)
    admin, project = Rest(lab), demo_project(lab)
    if resource == "clusters":
        admin.delete("magnum", f"/quotas/{project}/Cluster")
    else:
        admin.delete("nova", f"/os-quota-sets/{project}")


def quota(value: str | None) -> tuple[str, int]:
    """Return resource and limit of a no-quota fault."""
    resource, _equals, limit = (value or "").partition("=")
    if resource not in ("instances", "cores", "clusters") or not limit.isdecimal():
        raise LabError(f"the fault 'no-quota' needs a --value as instances=3, cores=16 or clusters=1, not {value!r}")
    return resource, int(limit)


def demo_project(lab: Lab) -> str:
    """Return the id of project demo."""
    return str(json.loads((state(lab) / "seed.json").read_text())["projects"]["demo"])


def _put_quota(lab: Lab, resource: str, limit: int) -> None:
    admin, project = Rest(lab), demo_project(lab)
    if resource == "clusters":
        body = {"project_id": project, "resource": "Cluster", "hard_limit": limit}
        admin.post("magnum", "/quotas", body)
    else:
        admin.put("nova", f"/os-quota-sets/{project}", {"quota_set": {resource: limit, "force": True}})
