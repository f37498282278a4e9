# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the content of a Lease says: whether it is still the one that was taken, and who holds it (pure)."""

from __future__ import annotations

import typing as t

Object = t.Mapping[str, t.Any]


def reason_lost(held: Object, live: Object | None, holder: str) -> str:
    """Why the Lease, as it is now, is not the one that `holder` has written last as `held`; empty when it is.

    Another process of the same holder may have written it. Everything else, a Lease that was released in between included, means that
    another run may have changed the cluster.
    """
    if live is None or live["metadata"].get("uid") != held["metadata"].get("uid"):
        return "it was deleted"
    now, then = live.get("spec") or {}, held["spec"]
    other = now.get("holderIdentity")
    if other and other != holder:
        return f"another run, {other}, took it"
    if not other or any(now.get(key) != then.get(key) for key in ("leaseTransitions", "acquireTime")):
        return "another run held it meanwhile"
    if str(now.get("renewTime")) < str(then.get("renewTime")):
        return "it was put back to an earlier state (is the cluster being restored from a backup?)"
    return ""


def held_message(place: str, spec: Object, own_holder: str, waited: float) -> str:
    """Who holds the lease at `place`, since when, and what to do."""
    holder, since, last = (spec.get(key) for key in ("holderIdentity", "acquireTime", "renewTime"))
    run, slash, host = str(holder).partition("/")
    who, advice = f"Another run, {holder},", "Wait for its end, or raise lease_wait_timeout."
    if slash and run == own_holder.partition("/")[0]:
        who = f"Inventory host {host} of this same run"
        advice = "One inventory host is one cluster: give each cluster to one host of the inventory."
    return (
        f"{who} has been changing this cluster since {since}; its lease {place} was renewed last at {last} (waited {waited:.0f} s). "
        f"{advice} If that run is dead, the lease runs out {spec.get('leaseDurationSeconds')} s after its last renewal."
    )
