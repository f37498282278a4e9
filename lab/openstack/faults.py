# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The faults and settings of the lab's OpenStack, and the injection of faults by the services' own APIs."""

from __future__ import annotations

import json

from ..cloud_settings import CloudFault, Setting
from ..errors import LabError
from ..layout import Lab
from .layout import state
from .rest import Rest

# For one node group (of any cluster) or for all; the value is the status_reason.
OF_GROUPS = {
    "create-failed": "the creation of a node group ends CREATE_FAILED without nodes; the value is its status_reason",
    "update-failed": "a change of a node group ends UPDATE_FAILED, its nodes do not change; the value is its status_reason",
    "delete-failed": "the deletion of a node group ends DELETE_FAILED, its nodes remain; the value is its status_reason",
    "in-progress": "operations on a node group remain IN_PROGRESS until the fault is cleared",
}
# For Magnum's API; they apply only to clients, not to the cloud's own services.
OF_REQUESTS = {
    "unavailable": "Magnum's API answers 503; the value is the number of requests (none: all)",
    "slow": "Magnum's API responses are delayed; the value is the delay in seconds",
    "lost-reply": "Magnum executes write requests and closes the connection without a response;"
    " the value is the number of requests (none: all)",
}
TOKEN_EXPIRY = "token-expiry"
NO_QUOTA = "no-quota"
FAULTS = {
    **OF_GROUPS,
    **OF_REQUESTS,
    TOKEN_EXPIRY: "new Keystone tokens expire after the value, in seconds",
    NO_QUOTA: "quota of project demo: the value is instances=3, cores=16 (Nova) or clusters=1 (Magnum); node groups that"
    " exceed it fail",
}
SETTINGS = {
    "delay": Setting(
        "0.05", "minimum duration of an operation in seconds; the label lab_delay of the group overrides it"
    ),
    "node-labels": Setting(
        "applied", "whether the driver sets node_labels and node_taints on new nodes", ("applied", "ignored")
    ),
    "scale-to-zero": Setting(
        "possible", "whether an autoscaled node group can have a minimum of 0", ("possible", "impossible")
    ),
}
_NUMBERS = ("unavailable", "lost-reply", TOKEN_EXPIRY)


def inject(lab: Lab, fault: CloudFault) -> None:
    """Raise LabError for an invalid fault; set quotas by the services' own APIs."""
    name, value = fault.name.partition(".")[2], fault.value
    if fault.group and name not in OF_GROUPS:
        raise LabError(f"the fault '{name}' cannot be limited to a node group: omit --group")
    if name in _NUMBERS and (value is not None or name == TOKEN_EXPIRY) and not (value or "").isdecimal():
        raise LabError(f"the fault '{name}' needs an integer as --value, not {value!r}")
    if name == "slow" and not (value or "").replace(".", "", 1).isdecimal():
        raise LabError(f"the fault 'slow' needs a number of seconds as --value, not {value!r}")
    if name == NO_QUOTA:
        _put_quota(lab, *quota(value))


def clear(lab: Lab, fault: CloudFault) -> None:
    """Restore the default quota of the project."""
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
        raise LabError(f"the fault 'no-quota' needs a --value like instances=3, cores=16 or clusters=1, not {value!r}")
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
