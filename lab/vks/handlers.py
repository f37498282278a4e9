# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which function carries out which operation of VKS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import clusters, groups, kubeconfigs
from .rules import Rules
from .world import Problem, Row, World

_Handler = Callable[[], Any]


def answer(
    world: World, rules: Rules, name: str, path: dict[str, str], query: Row, body: Row, *, real: str | None
) -> Any:
    """Carry an operation out, and return the body of its answer (None: it has none); raises Problem."""
    if "CLUSTER" not in path:
        return _on_account(world, rules, name, query, body)
    cluster = clusters.get(world, path["CLUSTER"])
    if "GROUP" in path:
        return _on_group(world, rules, name, cluster, path["GROUP"], query, body)
    named: dict[str, _Handler] = {
        "get-cluster": lambda: clusters.detail(world, rules, cluster),
        "update-cluster": lambda: clusters.update(world, cluster, body),
        "delete-cluster": lambda: clusters.delete(world, rules, cluster),
        "get-kubeconfig": lambda: clusters.kubeconfig(rules, cluster),
        "mint-kubeconfig": lambda: kubeconfigs.mint(rules, cluster, body["expirationDays"]),
        "acknowledge-warning": lambda: kubeconfigs.acknowledge(cluster),
        "cluster-events": lambda: clusters.events(world, rules, cluster, query),
        "list-groups": lambda: groups.find(world, rules, cluster, query),
        "create-group": lambda: groups.create(world, rules, cluster, body, real=cluster["name"] == real),
    }
    return named[name]()


def _on_account(world: World, rules: Rules, name: str, query: Row, body: Row) -> Any:
    if name == "list-clusters":
        return clusters.find(world, rules, query)
    if name == "create-cluster":
        return clusters.create(world, rules, body)
    return clusters.account(world, rules, name)


def _on_group(world: World, rules: Rules, name: str, cluster: Row, group_id: str, query: Row, body: Row) -> Any:
    if name == "group-events" and rules.guess("group-events") == "gone":
        raise Problem(404, "no such operation")
    group = clusters.group(world, cluster, group_id)
    named: dict[str, _Handler] = {
        "get-group": lambda: groups.detail(rules, group),
        "update-group": lambda: groups.update(world, rules, group, body),
        "patch-metadata": lambda: groups.patch(world, rules, group, body),
        "upgrade-group": lambda: groups.upgrade(world, rules, group, body),
        "delete-group": lambda: groups.delete(world, rules, group, forced=query.get("forceDelete") == "true"),
        "list-nodes": lambda: groups.nodes(rules, group, query),
        "group-events": lambda: clusters.events(world, rules, cluster, query, group["id"]),
    }
    return named[name]()
