# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of vks_nodegroup and the specs that they declare: names become ids, and what needs no look-up is checked."""

from __future__ import annotations

import typing as t

from ...nodegroups.spec import NODE_LABELS, NODE_TAINTS, NodeGroupSpec, NodeGroupState, label_map, taint_map
from ...schema.providers import VKS
from ..node_metadata_rules import node_label_problems, node_taint_problems
from ..nodegroup_options import GROUP_OPTIONS, SHARED_OPTIONS, NodeGroupOptions
from .catalog import ResolvedName
from .decode import is_reserved
from .name_resolver import NameResolver

Options = t.Mapping[str, t.Any]

# The names in VKS's own API.
_ALIASES = {
    "node_count": "num_nodes",
    "min_node_count": "min_size",
    "max_node_count": "max_size",
    "node_labels": "labels",
    "node_taints": "taints",
}
OPTIONS = NodeGroupOptions(
    {
        **{
            name: {**option, **({"aliases": [_ALIASES[name]]} if name in _ALIASES else {})}
            for name, option in GROUP_OPTIONS.items()
        },
        "os": {"type": "str"},
        "disk_size": {"type": "int"},
        "disk_type": {"type": "str"},
        "ssh_key": {"type": "str", "no_log": False},
        "subnet": {"type": "str"},
        "secondary_subnets": {"type": "list", "elements": "str"},
        "security_groups": {"type": "list", "elements": "str"},
        "private_nodes": {"type": "bool"},
        "encrypted_volume": {"type": "bool"},
        "tags": {"type": "dict"},
        "upgrade_strategy": {
            "type": "dict",
            "options": {"max_surge": {"type": "int"}, "max_unavailable": {"type": "int"}},
        },
        "kubernetes_version": {"type": "str"},
    },
    SHARED_OPTIONS,
)
_PLAIN_FIELDS = ("os", "disk_size", "private_nodes", "encrypted_volume", "kubernetes_version")


def problems_of(options: Options) -> list[str]:
    """All mistakes in a group's options that are visible without the service."""
    return [f"Node group {options['name']}: {problem}." for problem in _problems(options)]


def _problems(options: Options) -> t.Iterator[str]:
    if problem := VKS.name_rule(options["name"]):
        yield f"name {problem}"
    if options["state"] == "absent":
        return
    low, high, count = (options.get(name) for name in ("min_node_count", "max_node_count", "node_count"))
    for name in ("node_count", "min_node_count"):
        if (options.get(name) or 0) < 0:
            yield f"{name} is {options[name]}; it must not be negative"
    if (low is None) != (high is None):
        yield "min_node_count and max_node_count must be given together"
    elif low is not None and high is not None:
        if low > high:
            yield f"min_node_count ({low}) must not exceed max_node_count ({high})"
        elif high == 0:
            yield "max_node_count is 0, and VKS requires 1 or more; for no nodes leave the range out and set node_count: 0"
        elif count is not None and not low <= count <= high:
            yield f"node_count ({count}) is outside of min_node_count ({low}) and max_node_count ({high}); change one of them"
    for name in ("disk_size", "upgrade_strategy"):
        if options.get(name) is not None:
            yield from VKS.nodes_fields[name].problems(options[name], name)
    for name in (NODE_LABELS, NODE_TAINTS, "tags"):
        entries = options.get(name) or ()
        if VKS.max_entries is not None and len(entries) > VKS.max_entries:
            yield f"{name} has {len(entries)} entries, and VKS allows {VKS.max_entries}; remove some"
    for tag in options.get("tags") or {}:
        if is_reserved(str(tag)):
            yield f"tags: {tag!r} has a prefix of the service's own tags, which it ignores; choose another key"
    yield from node_label_problems(options.get(NODE_LABELS) or {})
    yield from node_taint_problems(options.get(NODE_TAINTS) or ())


def spec_of(options: Options, state: NodeGroupState | None, resolver: NameResolver) -> tuple[NodeGroupSpec, list[str]]:
    """The spec, and the names that cannot be resolved. `state` is the existing group: names are looked up in its subnet's zone."""
    name = options["name"]
    if options["state"] == "absent":
        return NodeGroupSpec(name, present=False), []
    fields: dict[str, t.Any] = {field: options[field] for field in _PLAIN_FIELDS if options.get(field) is not None}
    problems: list[str] = []

    def resolved(choice: ResolvedName) -> str | None:
        problem = f"Node group {name}: {choice.problem}"
        if choice.problem and problem not in problems:
            problems.append(problem)
        return choice.id

    subnet = state.fields["subnet"] if state else resolver.default_subnet
    if options.get("subnet"):
        fields["subnet"] = subnet = resolved(resolver.subnet(options["subnet"]))
    for field, resolve in (("flavor", resolver.flavor), ("disk_type", resolver.disk_type)):
        if options.get(field) and subnet:
            fields[field] = resolved(resolve(options[field], subnet))
        elif options.get(field) and not problems:
            problems.append(
                f"Node group {name}: subnet: required, because the cluster has several subnets or none, and {field} is looked up in the "
                "subnet's zone."
            )
    if options.get("ssh_key"):
        fields["ssh_key"] = resolved(resolver.ssh_key(options["ssh_key"]))
    if options.get("security_groups") is not None:
        ids = [resolved(resolver.security_group(group)) for group in options["security_groups"]]
        fields["security_groups"] = sorted({group for group in ids if group})
    if options.get("secondary_subnets") is not None:
        fields["secondary_subnets"] = sorted(options["secondary_subnets"])
    for field in (NODE_LABELS, "tags"):
        if options.get(field) is not None:
            fields[field] = label_map(options[field])
    if options.get(NODE_TAINTS) is not None:
        fields[NODE_TAINTS] = taint_map(options[NODE_TAINTS])
    if options.get("upgrade_strategy"):
        strategy = options["upgrade_strategy"]
        fields["upgrade_strategy"] = {key: value for key, value in strategy.items() if value is not None}
    low, high, count = (options.get(key) for key in ("min_node_count", "max_node_count", "node_count"))
    spec = NodeGroupSpec(
        name,
        count=count,
        min_count=low,
        max_count=high,
        autoscaled=high is not None,
        no_range=high is None and count is not None,
        recreate=bool(options.get("recreate")),
        fields=fields,
    )
    return spec, problems
