# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts of pools that the report reads from other objects than nodes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.sharing.operation import Overview, add_pool_facts
from tests.helpers.fleet import node

MESSAGE = 'resourcequotas is forbidden: User "reader" cannot list resource "resourcequotas"'


def test_a_fact_that_the_user_may_not_read_is_a_warning() -> None:
    plan = derive(
        {"name": "lab"}, {}, [{"name": "a", "match": {"model": "L40S"}}, {"name": "b", "match": {"model": "T4"}}]
    )
    actual, nodes = cast("Overview", SimpleNamespace(plan=plan, membership="members")), [node("n")]
    pools: dict[str, dict[str, Any]] = {"a": {}, "b": {}}

    def read(*given: Any) -> dict[str, str]:
        assert given == ("client", plan, nodes, "members")
        return {"b": "passed"}

    def refuse(*dummy: Any) -> dict[str, str]:
        raise ApiError(MESSAGE, status=403)

    warnings = add_pool_facts(cast("Client", "client"), actual, nodes, {"quota": refuse, "validation": read}, pools)
    assert warnings == [
        f"This user is not allowed to read the quota data of the pools, so the report omits it: {MESSAGE}"
    ]
    assert pools == {"a": {}, "b": {"validation": "passed"}}


def test_other_errors_of_a_reader_fail() -> None:
    def fail(*dummy: Any) -> dict[str, str]:
        raise ApiError("overloaded", status=503)

    actual = cast("Overview", SimpleNamespace(plan=None, membership=None))
    with pytest.raises(ApiError, match="overloaded"):
        add_pool_facts(cast("Client", None), actual, [], {"quota": fail}, {})
