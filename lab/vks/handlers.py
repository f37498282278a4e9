# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Maps the operations of VKS to their functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import clusters, groups, kubeconfigs
from .rules import VksRules
from .state import AccountState, RequestRefused, Row

_Handler = Callable[[], Any]


def answer(
    state: AccountState, rules: VksRules, name: str, path: dict[str, str], query: Row, body: Row, *, real: str | None
) -> Any:
    """Execute an operation and return the response body (None: no body), or raise RequestRefused."""
    if "CLUSTER" not in path:
        return _on_account(state, rules, name, query, body)
    cluster = clusters.get(state, path["CLUSTER"])
    if "GROUP" in path:
        return _on_group(state, rules, name, cluster, path["GROUP"], query, body)
    named: dict[str, _Handler] = {
        "get-cluster": lambda: clusters.detail(state, rules, cluster),
        "update-cluster": lambda: clusters.update(state, cluster, body),
        "delete-cluster": lambda: clusters.delete(state, rules, cluster),
        "get-kubeconfig": lambda: clusters.kubeconfig(rules, cluster),
        "mint-kubeconfig": lambda: kubeconfigs.mint(rules, cluster, body["expirationDays"]),
        "acknowledge-warning": lambda: kubeconfigs.acknowledge(cluster),
        "cluster-events": lambda: clusters.events(state, rules, cluster, query),
        "list-groups": lambda: groups.find(state, rules, cluster, query),
        "create-group": lambda: groups.create(state, rules, cluster, body, real=cluster["name"] == real),
    }
    return named[name]()


def _on_account(state: AccountState, rules: VksRules, name: str, query: Row, body: Row) -> Any:
    if name == "list-clusters":
        return clusters.find(state, rules, query)
    if name == "create-cluster":
        return clusters.create(state, rules, body)
    return clusters.account(state, rules, name)


def _on_group(
    state: AccountState, rules: VksRules, name: str, cluster: Row, group_id: str, query: Row, body: Row
) -> Any:
    if name == "group-events" and rules.guess("group-events") == "not-found":
        raise RequestRefused(404, "no such operation")
    group = clusters.group(state, cluster, group_id)
    named: dict[str, _Handler] = {
        "get-group": lambda: groups.detail(rules, group),
        "update-group": lambda: groups.update(state, rules, group, body),
        "patch-metadata": lambda: groups.patch(state, rules, group, body),
        "upgrade-group": lambda: groups.upgrade(state, rules, group, body),
        "delete-group": lambda: groups.delete(state, rules, group, forced=query.get("forceDelete") == "true"),
        "list-nodes": lambda: groups.nodes(rules, group, query),
        "group-events": lambda: clusters.events(state, rules, cluster, query, group["id"]),
    }
    return named[name]()
