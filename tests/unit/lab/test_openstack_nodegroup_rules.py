# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The status of a Magnum cluster from its node groups, as in Magnum's former Heat driver."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from lab.errors import LabError
from lab.openstack.faults import quota
from lab.openstack.nodegroup_rules import aggregate


@dataclass
class NodegroupStatus:
    name: str
    status: str
    role: str = "worker"
    is_default: bool = False


def groups(master: str, worker: str, **others: str) -> list[NodegroupStatus]:
    default = [
        NodegroupStatus("default-master", master, "master", True),
        NodegroupStatus("default-worker", worker, is_default=True),
    ]
    return [*default, *(NodegroupStatus(name, status) for name, status in others.items())]


@pytest.mark.parametrize(
    ("before", "actual", "status", "reason"),
    [
        ("CREATE_IN_PROGRESS", groups("CREATE_COMPLETE", "CREATE_IN_PROGRESS"), "CREATE_IN_PROGRESS", None),
        ("CREATE_IN_PROGRESS", groups("CREATE_COMPLETE", "CREATE_COMPLETE"), "CREATE_COMPLETE", None),
        ("CREATE_IN_PROGRESS", groups("CREATE_COMPLETE", "CREATE_FAILED"), "CREATE_FAILED", "default-worker failed"),
        ("UPDATE_IN_PROGRESS", groups("CREATE_COMPLETE", "CREATE_COMPLETE"), "UPDATE_COMPLETE", None),
        ("UPDATE_IN_PROGRESS", groups("CREATE_COMPLETE", "CREATE_COMPLETE", a="CREATE_COMPLETE"), "UPDATE_COMPLETE", None),
        ("UPDATE_IN_PROGRESS", groups("CREATE_COMPLETE", "CREATE_COMPLETE", a="CREATE_FAILED", b="DELETE_FAILED"), "UPDATE_FAILED", "a failed, b failed"),
        ("UPDATE_IN_PROGRESS", groups("CREATE_COMPLETE", "CREATE_COMPLETE", a="CREATE_FAILED", b="UPDATE_IN_PROGRESS"), "UPDATE_IN_PROGRESS", None),
        ("DELETE_IN_PROGRESS", groups("DELETE_COMPLETE", "DELETE_COMPLETE"), "DELETE_COMPLETE", None),
        ("DELETE_IN_PROGRESS", groups("DELETE_COMPLETE", "DELETE_COMPLETE", a="DELETE_FAILED"), "DELETE_FAILED", "a failed"),
    ],
)  # fmt: skip
def test_a_clusters_status(before: str, actual: list[NodegroupStatus], status: str, reason: str | None) -> None:
    assert aggregate(before, actual) == (status, reason)


def test_quota_is_a_resource_and_a_limit() -> None:
    assert quota("cores=16") == ("cores", 16)
    for wrong in (None, "16", "cores", "cores=many", "volumes=3"):
        with pytest.raises(LabError, match="instances=3, cores=16 or clusters=1"):
            quota(wrong)
