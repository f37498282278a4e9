# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Leases of runs, which are deleted last: only those that no run holds, and only as they were read."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.common.progress import Progress
from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.uninstall.after_helm import AfterHelm

Object = dict[str, Any]
LABEL = "Lease kube-system/accel-gpu"


class FakeClient:
    """One Lease; a deletion may meet a conflict."""

    def __init__(self, lease: Object | None, *, conflict: bool = False) -> None:
        self.deleted: list[Object] = []
        self._lease, self._conflict = lease, conflict

    def get(self, path: str) -> Object | None:
        assert path.endswith("/namespaces/kube-system/leases/accel-gpu")
        return self._lease

    def delete(self, path: str, body: Object) -> None:
        if self._conflict:
            raise ApiError("changed", status=409)
        self.deleted.append(body)


def lease(holder: str = "") -> Object:
    return {"metadata": {"uid": "u", "resourceVersion": "7"}, "spec": {"holderIdentity": holder}}


@pytest.mark.parametrize(
    ("client", "removed", "kept"),
    [
        (FakeClient(None), [], []),
        (FakeClient(lease()), [f"{LABEL}: deleted"], []),
        (FakeClient(lease("other")), [], [f"{LABEL}: another run, other, has taken it"]),
        (FakeClient(lease(), conflict=True), [], [f"{LABEL}: another run, a new one, has taken it"]),
    ],
)
def test_the_leases_of_runs(client: FakeClient, removed: list[str], kept: list[str]) -> None:
    stage = AfterHelm(
        client=cast(Client, client),
        progress=Progress(None),
        waiting=None,
        operator=cast(Any, None),
        nfd=cast(Any, None),
        nfd_instance="",
        lease_namespace="kube-system",
    )
    stage.finish()
    assert (stage.result.removed, stage.result.kept) == (removed, kept)
    assert client.deleted == [{"preconditions": {"uid": "u", "resourceVersion": "7"}}] * len(removed)
