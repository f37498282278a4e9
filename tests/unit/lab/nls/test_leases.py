# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The leases that follow from the license state of the nodes."""

from __future__ import annotations

import datetime
import json
from typing import Any

from lab.nls.leases import LICENSE_ANNOTATION, leases_after

NOW = datetime.datetime(2026, 1, 4, 4, 2, 1, tzinfo=datetime.UTC)


def node(name: str, status: str = "Licensed", pid: int = 412) -> dict[str, Any]:
    state = {
        "status": status,
        "product": "NVIDIA Virtual PC",
        "expiry": "2026-01-05T04:02:01Z",
        "driver": "d",
        "pid": pid,
    }
    annotations = {LICENSE_ANNOTATION: json.dumps(state)}
    return {"metadata": {"name": name, "uid": f"uid-{name}", "annotations": annotations}}


def test_licensed_nodes_have_a_lease() -> None:
    bare = {"metadata": {"name": "c", "uid": "uid-c"}}
    leases = leases_after({}, [node("a"), node("b", "Unlicensed (Restricted)"), bare], NOW)
    assert list(leases) == ["a"]
    assert {key: leases["a"][key] for key in ("node", "product", "expiry")} == {
        "node": "a",
        "product": "NVIDIA Virtual PC",
        "expiry": "2026-01-05T04:02:01Z",
    }
    assert leases_after(leases, [node("a")], NOW) == leases
    assert leases_after(leases, [node("a", pid=413)], NOW)["a"]["id"] != leases["a"]["id"]


def test_a_lease_ends_when_it_is_returned() -> None:
    leases = leases_after({}, [node("a")], NOW)
    assert leases_after(leases, [node("a", "Unlicensed (Unrestricted)")], NOW) == {}


def test_a_deleted_machine_keeps_its_lease_until_it_expires() -> None:
    leases = leases_after({}, [node("a")], NOW)
    assert leases_after(leases, [], NOW) == leases
    assert leases_after(leases, [], NOW + datetime.timedelta(days=1)) == {}
