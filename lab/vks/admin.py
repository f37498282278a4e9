# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the lab asks of the double beside the services: /lab/health, faults, settings, state, contract, reset."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..errors import LabError
from ..switches import Fault
from . import contract, groups, rules
from .service import Answer, Asked

if TYPE_CHECKING:
    from .double import Double


def answer(double: Double, asked: Asked) -> Answer:
    """Answer one request below /lab/; a mistake in it is a 400 with what may be asked."""
    what, dummy, name = asked.target.removeprefix("/lab/").partition("/")
    try:
        body = json.loads(asked.body) if asked.body else {}
        return Answer(200, _done(double, asked.method, what, name, body))
    except (LabError, ValueError, KeyError, TypeError) as error:
        return Answer(400, {"message": str(error)})


def _done(double: Double, method: str, what: str, name: str, body: dict[str, Any]) -> Any:
    if (method, what) == ("GET", "health"):
        return {"ready": True, **double.addresses()}
    if (method, what) == ("GET", "contract"):
        return contract.as_data()
    if (method, what) == ("GET", "state"):
        return state(double)
    if (method, what) == ("POST", "reset"):
        double.reset()
    elif (method, what) == ("PUT", "settings"):
        rules.check_setting(name, str(body["value"]))
        double.switches.set(f"{rules.CLOUD}.{name}", str(body["value"]))
    elif (method, what) == ("POST", "faults"):
        value = None if body.get("value") is None else str(body["value"])
        rules.check_fault(body["name"], body.get("group"), value)
        double.switches.put(Fault(f"{rules.CLOUD}.{body['name']}", body.get("group"), value))
    elif (method, what) == ("DELETE", "faults"):
        double.switches.clear(f"{rules.CLOUD}.{name}" if name else None)
    else:
        raise LabError(
            f"{method} /lab/{what} is not known: GET health, contract, state; POST reset, faults; PUT settings/NAME; DELETE faults[/NAME]"
        )
    return {}


def state(double: Double) -> dict[str, Any]:
    """What there is: groups as the service tells them, faults, settings, and where the double broke its own contract."""
    live = rules.Rules.now(double.switches)
    with double.world.lock:
        found = [groups.detail(live, group) for group in double.world.groups.values()]
        named = {cluster["id"]: cluster["name"] for cluster in double.world.clusters.values()}
    return {
        "clusters": named,
        "groups": found,
        "faults": [vars(fault) for fault in live.faults],
        "settings": live.values,
        "violations": double.service.violations,
    }
