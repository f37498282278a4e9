# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kubeconfigs: asked for, made after a while, for a while; that of the lab's cluster is a real one, signed by its CA."""

from __future__ import annotations

import json
import time

from .. import pki
from ..layout import Lab
from .rules import Rules
from .world import Problem, Row

_DAY = 86400.0
# How long before its end the service warns: a guess.
_WARN_DAYS = 7


def mint(rules: Rules, cluster: Row, days: int) -> None:
    """Begin to make one; the last one is told until then no more."""
    if cluster["status"] != "ACTIVE":
        raise Problem(400, f"cluster {cluster['name']} is not ACTIVE")
    now = time.time()
    cluster["kubeconfig"] = {
        "status": "CREATING",
        "until": now + rules.delay(f"kubeconfig {cluster['id']} {now}"),
        "days": days,
        "ends": now + days * _DAY,
        "text": None,
        "acknowledged": False,
        "again": bool(cluster.get("kubeconfig")),
    }


def settle(rules: Rules, cluster: Row, lab: Lab | None, now: float) -> bool:
    """Make what is asked for, when its time has come; tell whether anything changed. `lab`: whose cluster it is."""
    kept = cluster.get("kubeconfig")
    if not kept or kept["status"] != "CREATING" or now < kept["until"]:
        return False
    if rules.fault("kubeconfig-failed"):
        kept["status"] = "ERROR"
    else:
        kept.update(status="ACTIVE", text=_real(lab, kept["days"]) if lab else _idle(cluster))
    return True


def warns(rules: Rules, kept: Row) -> bool:
    """Tell whether it is time to mint a new one."""
    old = rules.fault("kubeconfig-expiring") and not kept["again"]
    return not kept["acknowledged"] and bool(old or kept["ends"] - time.time() < _WARN_DAYS * _DAY)


def acknowledge(cluster: Row) -> None:
    """Take the warning off."""
    if cluster.get("kubeconfig"):
        cluster["kubeconfig"]["acknowledged"] = True


def _real(lab: Lab, days: int) -> str:
    return pki.administrator(lab, "vks-admin", days).decode()


def _idle(cluster: Row) -> str:
    """A kubeconfig of a cluster that nobody answers for."""
    name = cluster["name"]
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": "https://127.0.0.1:9"}}],
            "users": [{"name": name, "user": {"token": "of-nobody"}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }
    )
