# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster as it is declared and as Magnum shows it: what differs, and what would have to be made (pure)."""

from __future__ import annotations

import re
import typing as t

from . import decode

Object = t.Mapping[str, t.Any]

# What the options are called in Magnum's API, and whether a cluster that exists shows them.
FIELDS: dict[str, str] = {
    "cluster_template": "cluster_template_id",
    "keypair": "keypair",
    "flavor": "flavor_id",
    "master_flavor": "master_flavor_id",
    "node_count": "node_count",
    "master_count": "master_count",
    "docker_volume_size": "docker_volume_size",
    "fixed_network": "fixed_network",
    "fixed_subnet": "fixed_subnet",
    "floating_ip_enabled": "floating_ip_enabled",
    "master_lb_enabled": "master_lb_enabled",
    "create_timeout": "create_timeout",
}
# Only of the moment of creation: the default group's size is its group's matter afterwards.
_CREATION_ONLY = ("create_timeout", "node_count")
_NAMED = ("cluster_template", "flavor", "master_flavor")
# magnum/api/controllers/v1/cluster.py
_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_.-]{0,241}")


def problems(options: Object) -> list[str]:
    """All mistakes that can be told without the cloud."""
    found = []
    if _NAME.fullmatch(str(options["name"])) is None:
        found.append(
            f"name: Magnum takes up to 242 letters, digits, '_', '.' and '-', a letter first, and not {options['name']!r}."
        )
    for word, least in (("node_count", 0), ("master_count", 1), ("docker_volume_size", 1), ("create_timeout", 0)):
        if options.get(word) is not None and options[word] < least:
            found.append(f"{word} is {options[word]}; it is {least} or more.")
    if (options.get("master_count") or 1) % 2 == 0:
        found.append(f"master_count is {options['master_count']}; etcd needs an odd number, and Magnum refuses others.")
    return found


def cluster_result(cluster: Object) -> dict[str, t.Any]:
    """A cluster for a result or a diff, in the words of the options."""
    return {
        "name": cluster.get("name"),
        **{option: cluster.get(field) for option, field in FIELDS.items() if option not in _CREATION_ONLY},
        "labels": {key: decode.label_value(value) for key, value in (cluster.get("labels") or {}).items()},
    }


def state(cluster: Object) -> dict[str, t.Any]:
    """What else is known of a cluster that exists."""
    return {
        "id": cluster.get("uuid"),
        "status": cluster.get("status"),
        "status_reason": cluster.get("status_reason"),
        "health_status": cluster.get("health_status"),
        "api_address": cluster.get("api_address"),
        "coe_version": cluster.get("coe_version"),
        "node_count": cluster.get("node_count"),
        "node_addresses": list(cluster.get("node_addresses") or ()),
        "master_addresses": list(cluster.get("master_addresses") or ()),
        "project_id": cluster.get("project_id"),
    }


def declared_cluster(options: Object) -> dict[str, t.Any]:
    """What is declared, in the words of the options."""
    found = {option: options[option] for option in FIELDS if options.get(option) is not None}
    if options.get("labels") is not None:
        found["labels"] = {key: text for key, text in decode.labels(options["labels"]).items() if text is not None}
    return found


def differences(
    options: Object, cluster: Object, same: t.Callable[[str, str, str], bool]
) -> dict[str, tuple[t.Any, t.Any]]:
    """What of a declaration a cluster is not: by option, as (there is, declared); of labels only those that differ.

    same(option, one, other): whether two names or ids mean the same template or flavor.
    """
    live = cluster_result(cluster)
    found: dict[str, tuple[t.Any, t.Any]] = {}
    for option, want in declared_cluster(options).items():
        have = live.get(option)
        if option in _CREATION_ONLY or have == want:
            continue
        if option == "labels":
            there = live["labels"]
            off = {key: value for key, value in want.items() if there.get(key) != value}
            if off:
                found[option] = ({key: there.get(key) for key in off}, off)
        elif option not in _NAMED or not same(option, str(have), str(want)):
            found[option] = (have, want)
    return found


def refusals(name: str, found: t.Mapping[str, tuple[t.Any, t.Any]]) -> list[str]:
    """A line for each difference: nothing of a cluster that exists can be changed."""
    return [
        f"Cluster {name}: {option} is {have!r}, not {want!r}, and Magnum takes it at a cluster's creation only. "
        "Declare what it is, or delete the cluster and create it anew."
        for option, (have, want) in sorted(found.items())
    ]


def body_of(options: Object) -> dict[str, t.Any]:
    """The request that makes the cluster."""
    given = declared_cluster(options)
    body = {FIELDS.get(option, option): value for option, value in given.items()}
    if "labels" in given:
        body["merge_labels"] = bool(options.get("merge_labels", True))
    return {"name": options["name"], **body}
