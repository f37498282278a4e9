# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the operator would start anew if the ClusterPolicy became what the pools ask of it; nothing is sent."""

from __future__ import annotations

import typing as t

from ..fleet import agents
from ..fleet.costs import Roll
from ..kube.releases import marks_of
from .policy import PolicyChange, Wanted, changes, first_contact
from .policy_client import PolicyClient

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from ..pools.plan import Plan

VERSION_LABEL = "app.kubernetes.io/version"
# Whose DaemonSets take a part of the spec into their templates (gpu-operator controllers/object_controls.go,
# handleDevicePluginConfig, applyMIGConfiguration and TransformMIGManager); every other part reaches them all.
_READERS: dict[str, frozenset[str]] = {
    "devicePlugin": frozenset({agents.PLUGIN, agents.DISCOVERY, agents.MPS_DAEMON}),
    "mig": frozenset({agents.PLUGIN, agents.DISCOVERY, agents.MPS_DAEMON}),
    "migManager": frozenset({agents.MIG_MANAGER}),
}


class Forecast(t.NamedTuple):
    """What rolls; `held`: only once the roll of the driver is allowed; `release`: the operator's versions, where they differ."""

    roll: Roll = Roll()
    held: bool = False
    release: tuple[str, str] | None = None

    def told(self, counts: t.Mapping[str, int]) -> dict[str, t.Any]:
        """The counts of all pools, with what is known of the whole cluster beside them."""
        release = {"installed": self.release[0], "wanted": self.release[1]} if self.release else None
        return {**counts, "held_back": self.held and bool(counts["drivers"]), "release": release}


def forecast(client: Client, plan: Plan, live: t.Mapping[str, t.Any] | None) -> Forecast:
    """Compare the ClusterPolicy with the plan; without an operator, or without pools, nothing rolls."""
    if live is None or not plan.pools:
        return Forecast()
    operator = plan.operator
    cluster = PolicyClient(client, operator.namespace)
    seeded = first_contact(live) and cluster.installed_by_us(operator.name, operator.namespace)
    change = changes(live, Wanted.by(plan, live), seeded=seeded)
    installed = (live["metadata"].get("labels") or {}).get(VERSION_LABEL) or ""
    # Only the release that is planned is upgraded.
    upgraded = marks_of(live) == (operator.name, operator.namespace) and _bare(installed) != _bare(operator.version)
    moved = (installed, operator.version) if installed and upgraded else None
    roll = Roll(apps=rolled(change), every=change.reaches_driver or moved is not None)
    return Forecast(roll, change.reaches_driver, moved)


def rolled(change: PolicyChange) -> frozenset[str]:
    """The apps whose DaemonSets get another template by this change."""
    before, after = change.before.get("spec") or {}, change.after.get("spec") or {}
    parts = {part for part in {*before, *after} if before.get(part) != after.get(part)}
    return frozenset().union(*(_READERS.get(part, frozenset(agents.OPERANDS)) for part in parts))


def _bare(version: str) -> str:
    return version.removeprefix("v")
