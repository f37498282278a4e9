# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster is found by its name, also one that Magnum makes at this moment."""

from __future__ import annotations

import types
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.clouds.magnum_client import Magnum, OpenStackError
from ansible_collections.accel.gpu.plugins.module_utils.core.errors import ConnectionProblem

CLUSTER = {"name": "new", "uuid": "c-1"}
WITHOUT_GROUPS = OpenStackError("Invalid input for field/attribute master_count. Value: '0'.", status=400)


class OfMagnum(Magnum):
    """Magnum's answers, in their order: to a request for one cluster, and to the list of all."""

    def __init__(self, *answers: Any) -> None:
        session: Any = types.SimpleNamespace(origin="cloud lab")
        self.session = session
        self._answers = list(answers)

    @property
    def left(self) -> list[Any]:
        """The answers that were not requested."""
        return self._answers

    def _get(self, path: str, **options: Any) -> Any:
        answer = self._answers.pop(0)
        if answer is None:
            raise OpenStackError("not found", status=404)
        if isinstance(answer, OpenStackError):
            raise answer
        return answer

    def _send(self, method: str, path: str, **options: Any) -> Any:
        assert (method, path) == ("POST", "/clusters")
        return types.SimpleNamespace(json=lambda: {"uuid": CLUSTER["uuid"]})

    def clusters(self, limit: int | None = None) -> list[dict[str, Any]]:
        return list(self._answers.pop(0))


@pytest.mark.parametrize("name", CLUSTER.values())
def test_a_cluster_that_appears_between_two_requests_is_found(name: str) -> None:
    assert OfMagnum(None, [CLUSTER], CLUSTER).cluster(name) == CLUSTER


def test_a_missing_cluster_is_reported_with_the_existing_clusters() -> None:
    with pytest.raises(ConnectionProblem, match=r"no cluster old \(cloud lab\): it has new\."):
        OfMagnum(None, [CLUSTER]).cluster("old")


def test_a_cluster_at_the_end_of_its_deletion_is_no_cluster_to_work_on() -> None:
    with pytest.raises(OpenStackError, match="master_count"):
        OfMagnum(WITHOUT_GROUPS).cluster("new")
    actual = OfMagnum(WITHOUT_GROUPS).find_cluster("new")
    assert actual is not None
    assert actual["status"] == "DELETE_IN_PROGRESS"


def test_a_new_cluster_is_awaited_until_magnum_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Magnum answers before it has stored the cluster and then its groups; a second run would create another one."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    magnum = OfMagnum([], None, None, WITHOUT_GROUPS, CLUSTER)
    assert magnum.create_cluster({"name": "new"}) == "c-1"
    assert magnum.left == []
