# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Creates specs from the options of vks_nodegroup: resolves names to ids, and checks everything that needs no lookup."""

from __future__ import annotations

import typing as t

from ...nodegroups.spec import NodeGroupSpec, NodeGroupState
from ...schema.providers import VKS
from .catalog import UnresolvedName
from .fields import FIELDS, METADATA
from .name_resolver import NAMED, ZONAL, NameResolver

Options = t.Mapping[str, t.Any]


def option_problems(options: Options) -> t.Iterator[str]:
    """Yields the problems in a group's options that can be detected without the service."""
    if problem := VKS.name_rule(options["name"]):
        yield f"name {problem}"
    if options["state"] == "absent":
        return
    yield from FIELDS.problems(options)
    for name in FIELDS.changed_by(METADATA):
        entries = options.get(name) or ()
        removed = [entry for entry in entries if _is_removed(entries, entry)]
        count = len(entries) - len(removed)
        if VKS.max_entries is not None and count > VKS.max_entries:
            yield f"{name} sets {count} entries, and VKS allows {VKS.max_entries}; remove some"


def _is_removed(entries: t.Any, entry: t.Any) -> bool:
    """Whether an entry, which is a label's key or a taint, must be removed from the group."""
    return entries[entry] is None if isinstance(entries, dict) else entry.get("state") == "absent"


def spec_of(options: Options, state: NodeGroupState | None, resolver: NameResolver) -> tuple[NodeGroupSpec, list[str]]:
    """The spec, and a problem for each unresolvable name. `state` is the existing group; names are looked up in the zone of the group's subnet."""
    if options["state"] == "absent":
        return NodeGroupSpec(options["name"], present=False), []
    common = FIELDS.spec_arguments(options)
    fields: dict[str, t.Any] = common["fields"]
    problems: list[str] = []

    def resolved(option: str, name: str) -> str | None:
        try:
            return resolver.resolve(option, name, subnet)
        except UnresolvedName as error:
            problems.append(str(error))
            return None

    subnet = state.fields["subnet"] if state else resolver.default_subnet
    for option in NAMED:
        if option not in fields:
            continue
        if option == "security_groups":
            fields[option] = sorted({id_ for name in fields[option] if (id_ := resolved(option, name))})
        elif subnet or option not in ZONAL:
            fields[option] = resolved(option, fields[option])
        elif not problems:
            problems.append(
                f"subnet: required, because the cluster has several subnets or none, and {option} is looked up in the subnet's zone."
            )
        if option == "subnet":
            subnet = fields[option]
    ranged = common["max_count"] is not None
    spec = NodeGroupSpec(**common, autoscaled=ranged, no_range=not ranged and common["count"] is not None)
    # Several names may yield the same problem with the subnet.
    return spec, [f"Node group {spec.name}: {problem}" for problem in dict.fromkeys(problems)]
