# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kubeconfigs: created asynchronously, with an expiry; that of the lab's cluster is a real one, signed by the lab's CA."""

from __future__ import annotations

import json
import time

from .. import pki
from ..layout import Lab
from .rules import VksRules
from .state import RequestRefused, Row

_DAY = 86400.0
# The number of days before expiry at which the service warns: a guess.
_WARN_DAYS = 7


def mint(rules: VksRules, cluster: Row, days: int) -> None:
    """Start the creation of a kubeconfig; the previous one is no longer returned."""
    if cluster["status"] != "ACTIVE":
        raise RequestRefused(400, f"cluster {cluster['name']} is not ACTIVE")
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


def advance(rules: VksRules, cluster: Row, lab: Lab | None, now: float) -> bool:
    """Complete the creation of a kubeconfig when it is due; return whether anything changed. `lab`: for the lab's cluster."""
    kept = cluster.get("kubeconfig")
    if not kept or kept["status"] != "CREATING" or now < kept["until"]:
        return False
    if rules.fault("kubeconfig-failed"):
        kept["status"] = "ERROR"
    else:
        kept.update(status="ACTIVE", text=_real(lab, kept["days"]) if lab else _idle(cluster))
    return True


def warns(rules: VksRules, kept: Row) -> bool:
    """Return whether the kubeconfig is due for renewal."""
    old = rules.fault("kubeconfig-expiring") and not kept["again"]
    return not kept["acknowledged"] and bool(old or kept["ends"] - time.time() < _WARN_DAYS * _DAY)


def acknowledge(cluster: Row) -> None:
    """Clear the renewal warning."""
    if cluster.get("kubeconfig"):
        cluster["kubeconfig"]["acknowledged"] = True


def _real(lab: Lab, days: int) -> str:
    return pki.admin_kubeconfig(lab, "vks-admin", days).decode()


def _idle(cluster: Row) -> str:
    """Return a kubeconfig for a cluster without an API server."""
    name = cluster["name"]
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": "https://127.0.0.1:9"}}],
            "users": [{"name": name, "user": {"token": "invalid-token"}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }
    )
