# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control endpoints of the fake for the lab and tests: /lab/health, faults, settings, state, contract, reset."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..cloud_settings import CloudFault
from ..errors import LabError
from . import contract, groups, rules
from .dispatch import HttpRequest, HttpResponse

if TYPE_CHECKING:
    from .fake import FakeVks


def answer(fake: FakeVks, request: HttpRequest) -> HttpResponse:
    """Answer one request below /lab/; an invalid request gets status 400 with the valid ones."""
    what, dummy, name = request.target.removeprefix("/lab/").partition("/")
    try:
        body = json.loads(request.body) if request.body else {}
        return HttpResponse(200, _done(fake, request.method, what, name, body))
    except (LabError, ValueError, KeyError, TypeError) as error:
        return HttpResponse(400, {"message": str(error)})


def _done(fake: FakeVks, method: str, what: str, name: str, body: dict[str, Any]) -> Any:
    if (method, what) == ("GET", "health"):
        return {"ready": True, **fake.addresses()}
    if (method, what) == ("GET", "contract"):
        return contract.as_data()
    if (method, what) == ("GET", "state"):
        return state(fake)
    if (method, what) == ("POST", "reset"):
        fake.reset()
    elif (method, what) == ("PUT", "settings"):
        rules.check_setting(name, str(body["value"]))
        fake.settings.set(f"{rules.CLOUD}.{name}", str(body["value"]))
    elif (method, what) == ("POST", "faults"):
        value = None if body.get("value") is None else str(body["value"])
        rules.check_fault(body["name"], body.get("group"), value)
        fake.settings.inject(CloudFault(f"{rules.CLOUD}.{body['name']}", body.get("group"), value))
    elif (method, what) == ("DELETE", "faults"):
        fake.settings.clear(f"{rules.CLOUD}.{name}" if name else None)
    else:
        raise LabError(
            f"unknown request {method} /lab/{what}; known: GET health, contract, state; POST reset, faults; PUT settings/NAME;"
            " DELETE faults[/NAME]"
        )
    return {}


def state(fake: FakeVks) -> dict[str, Any]:
    """Return the node groups as the service returns them, faults, settings, and the fake's violations of its contract."""
    live = rules.VksRules.now(fake.settings)
    with fake.state.lock:
        details = [groups.detail(live, group) for group in fake.state.groups.values()]
        named = {cluster["id"]: cluster["name"] for cluster in fake.state.clusters.values()}
    return {
        "clusters": named,
        "groups": details,
        "faults": [vars(fault) for fault in live.faults],
        "settings": live.values,
        "violations": fake.service.violations,
    }
