# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares a declared Magnum cluster with the actual one, and composes the request that creates it (pure)."""

from __future__ import annotations

import re
import typing as t

Object = t.Mapping[str, t.Any]

# The options and their names in Magnum's API.
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
# These options affect only the creation and are not compared later. After the creation, the size of the default group is managed like that of any group.
_CREATION_ONLY = ("create_timeout", "node_count")
_NAMED = ("cluster_template", "flavor", "master_flavor")
# The results for the clusters of all providers use the same names.
_STATUS_FIELDS = {
    "id": "uuid",
    "status": "status",
    "status_reason": "status_reason",
    "health_status": "health_status",
    "server": "api_address",
    "version": "coe_version",
    "node_count": "node_count",
    "project_id": "project_id",
}
# magnum/api/controllers/v1/cluster.py
_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_.-]{0,241}")


def problems(options: Object) -> list[str]:
    """All problems in the options that can be detected without the cloud."""
    problems_so_far = []
    if _NAME.fullmatch(str(options["name"])) is None:
        problems_so_far.append(
            f"name: {options['name']!r} is not a Magnum cluster name; use up to 242 letters, digits, '_', '.' and '-', starting with a letter."
        )
    for option, least in (("node_count", 0), ("master_count", 1), ("docker_volume_size", 1), ("create_timeout", 0)):
        if options.get(option) is not None and options[option] < least:
            problems_so_far.append(f"{option} is {options[option]}; set {least} or more.")
    if (options.get("master_count") or 1) % 2 == 0:
        problems_so_far.append(
            f"master_count is {options['master_count']}; etcd needs an odd number, and Magnum rejects other numbers."
        )
    return problems_so_far


def cluster_options(cluster: Object) -> dict[str, t.Any]:
    """A cluster in the format of the module's options."""
    return {
        "name": cluster.get("name"),
        **{option: cluster.get(field) for option, field in FIELDS.items() if option not in _CREATION_ONLY},
        "labels": {key: magnum_label(value) for key, value in (cluster.get("labels") or {}).items()},
    }


def cluster_result(cluster: Object) -> dict[str, t.Any]:
    """A cluster in the format of module results."""
    return {
        **cluster_options(cluster),
        **{name: cluster.get(field) for name, field in _STATUS_FIELDS.items()},
        "node_addresses": list(cluster.get("node_addresses") or ()),
        "master_addresses": list(cluster.get("master_addresses") or ()),
    }


def declared_cluster(options: Object) -> dict[str, t.Any]:
    """The options that are set, with the values of labels as strings. Labels with the value null are omitted."""
    declared = {option: options[option] for option in FIELDS if options.get(option) is not None}
    if options.get("labels") is not None:
        declared["labels"] = {key: text for key, text in magnum_labels(options["labels"]).items() if text is not None}
    return declared


def differences(
    options: Object, cluster: Object, same: t.Callable[[str, str, str], bool]
) -> dict[str, tuple[t.Any, t.Any]]:
    """The declared options that differ from the cluster, each with the actual and the declared value. `labels` contains only the labels that differ.

    same(option, one, other) returns whether two names or ids refer to the same template or flavor.
    """
    actual = cluster_options(cluster)
    differing: dict[str, tuple[t.Any, t.Any]] = {}
    for option, declared in declared_cluster(options).items():
        current: t.Any = actual.get(option)
        if option in _CREATION_ONLY or current == declared:
            continue
        if option == "labels":
            changed = {key: value for key, value in declared.items() if current.get(key) != value}
            if changed:
                differing[option] = ({key: current.get(key) for key in changed}, changed)
        elif option not in _NAMED or not same(option, str(current), str(declared)):
            differing[option] = (current, declared)
    return differing


def immutable_problems(name: str, differing: t.Mapping[str, tuple[t.Any, t.Any]]) -> list[str]:
    """An error message for each difference, because an existing cluster cannot be changed."""
    return [
        f"Cluster {name}: {option} is {actual!r}, not {declared!r}, and Magnum sets this option only when it creates a cluster. Declare the actual "
        "value, or delete the cluster and create it again."
        for option, (actual, declared) in sorted(differing.items())
    ]


def create_body(options: Object) -> dict[str, t.Any]:
    """The body of the request that creates the cluster."""
    declared = declared_cluster(options)
    body = {FIELDS.get(option, option): value for option, value in declared.items()}
    if "labels" in declared:
        body["merge_labels"] = bool(options.get("merge_labels", True))
    return {"name": options["name"], **body}


def magnum_label(value: t.Any) -> str:
    """The value of a Magnum label as a string, for comparisons and requests.

    Booleans become `true` and `false`, whereas Magnum itself would convert them to `True` and `False`.
    """
    text = str(value)
    return text.lower() if text.lower() in ("true", "false") else text


def magnum_labels(labels: t.Mapping[str, t.Any] | None) -> dict[str, str | None]:
    """Magnum's labels with their values as strings. The value None removes a label."""
    return {str(key): None if value is None else magnum_label(value) for key, value in (labels or {}).items()}
