# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A group's options as the engine's wish: what can be judged without asking is judged, and names become ids."""

from __future__ import annotations

import re
import typing as t

from ...nodegroups.spec import NodeGroupSpec, NodeGroupState
from .catalog import ResolvedName
from .decode import is_reserved, taint_key
from .name_resolver import Resolver

Options = t.Mapping[str, t.Any]

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{3,13}[a-z0-9]")
_LABEL_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?")
LONGEST_NAME = 15
_MOST = 50
_DISK = (20, 5000)
# Options that are fields of the wish as they are.
_PLAIN = ("os", "disk_size", "private_nodes", "encrypted_volume", "kubernetes_version")


def problems_of(options: Options) -> list[str]:
    """What is wrong with a group's options, whatever the account has; a line each with its remedy."""
    name = options["name"]
    return [f"Node group {name}: {problem}" for problem in _problems(options)]


def spec_of(options: Options, live: NodeGroupState | None, resolver: Resolver) -> tuple[NodeGroupSpec, list[str]]:
    """The wish, and what of it cannot be found. `live` is the group that there is: its subnet's zone is where names are looked up."""
    name = options["name"]
    if options["state"] == "absent":
        return NodeGroupSpec(name, present=False), []
    fields: dict[str, t.Any] = {field: options[field] for field in _PLAIN if options.get(field) is not None}
    problems: list[str] = []

    def found(choice: ResolvedName) -> str | None:
        told = f"Node group {name}: {choice.problem}"
        if choice.problem and told not in problems:
            problems.append(told)
        return choice.id

    subnet = live.fields["subnet"] if live else resolver.default_subnet
    if options.get("subnet"):
        fields["subnet"] = subnet = found(resolver.subnet(options["subnet"]))
    for field, look in (("flavor", resolver.flavor), ("disk_type", resolver.disk_type)):
        if options.get(field) and subnet:
            fields[field] = found(look(options[field], subnet))
        elif options.get(field) and not problems:
            problems.append(
                f"Node group {name}: subnet: the cluster has several or none, in whose zone the {field} is looked up; say which."
            )
    if options.get("ssh_key"):
        fields["ssh_key"] = found(resolver.ssh_key(options["ssh_key"]))
    if options.get("security_groups") is not None:
        chosen = [found(resolver.security_group(group)) for group in options["security_groups"]]
        fields["security_groups"] = sorted({group for group in chosen if group})
    if options.get("secondary_subnets") is not None:
        fields["secondary_subnets"] = sorted(options["secondary_subnets"])
    fields.update(_maps(options))
    low, high, count = options.get("min_size"), options.get("max_size"), options.get("num_nodes")
    return (
        NodeGroupSpec(
            name,
            count=count,
            low=low,
            high=high,
            autoscaled=high is not None,
            unranged=high is None and count is not None,
            recreate=bool(options.get("recreate")),
            fields=fields,
        ),
        problems,
    )


def _maps(options: Options) -> dict[str, dict[str, t.Any]]:
    """What is compared key by key; None takes an entry out."""
    maps: dict[str, dict[str, t.Any]] = {}
    for field in ("labels", "tags"):
        if options.get(field) is not None:
            maps[field] = {str(key): None if value is None else _text(value) for key, value in options[field].items()}
    if options.get("taints") is not None:
        maps["taints"] = {
            taint_key(taint): None if taint.get("state") == "absent" else str(taint.get("value") or "")
            for taint in options["taints"]
        }
    if options.get("upgrade_strategy"):
        maps["upgrade_strategy"] = {
            key: value for key, value in options["upgrade_strategy"].items() if value is not None
        }
    return maps


def _text(value: t.Any) -> str:
    """As YAML would have written it: a label's value true is the text "true"."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _problems(options: Options) -> t.Iterator[str]:
    if not _NAME.fullmatch(options["name"]):
        yield (
            f"name: of 5 to {LONGEST_NAME} characters a-z, 0-9 and -, with neither - at the beginning nor at the end. "
            "Give it such a name; VKS takes no other."
        )
    if options["state"] == "absent":
        return
    yield from _size_problems(options)
    for field in ("labels", "tags"):
        entries = options.get(field) or {}
        if len(entries) > _MOST:
            yield f"{field}: {len(entries)} entries, and at most {_MOST} are taken; leave some out."
    for key, value in (options.get("labels") or {}).items():
        if not _LABEL_KEY.fullmatch(str(key)) or (value is not None and not _LABEL_VALUE.fullmatch(_text(value))):
            yield f"labels: {key}={value} is no label that Kubernetes takes; use letters, digits, -, _ and ., at most 63 of them."
    for tag in options.get("tags") or {}:
        if is_reserved(str(tag)):
            yield f"tags: {tag!r} begins as the service's own do, which it ignores when they are sent; choose another."
    seen: set[str] = set()
    for taint in options.get("taints") or []:
        if taint_key(taint) in seen:
            yield f"taints: {taint_key(taint)} stands there twice; a node has one of a key and an effect."
        seen.add(taint_key(taint))
        if not _LABEL_KEY.fullmatch(taint["key"]) or not _LABEL_VALUE.fullmatch(str(taint.get("value") or "")):
            yield f"taints: {taint['key']}={taint.get('value') or ''} is no taint that Kubernetes takes; it is written like a label."


def _size_problems(options: Options) -> t.Iterator[str]:
    for field in ("num_nodes", "min_size"):
        if (options.get(field) or 0) < 0:
            yield f"{field}: {options[field]} nodes cannot be; give 0 or more."
    low, high = options.get("min_size"), options.get("max_size")
    if (low is None) != (high is None):
        yield "min_size and max_size: the autoscaler has both or none; give both."
    elif high is not None and low is not None and low > high:
        yield f"min_size: is {low}, and max_size {high}; the least is at most as much as the most."
    elif high == 0:
        yield "max_size: is 0, and VKS takes 1 or more; leave min_size and max_size out, and say num_nodes: 0."
    count = options.get("num_nodes")
    if low is not None and high is not None and count is not None and not low <= count <= high and low <= high:
        yield f"num_nodes: is {count}, outside of min_size {low} and max_size {high}; change one of them."
    size = options.get("disk_size")
    if size is not None and not _DISK[0] <= size <= _DISK[1]:
        yield f"disk_size: is {size}, and VKS takes {_DISK[0]} to {_DISK[1]} GiB."
    strategy = options.get("upgrade_strategy") or {}
    surge, unavailable = strategy.get("max_surge"), strategy.get("max_unavailable")
    if surge is not None and not 1 <= surge <= 100:
        yield f"upgrade_strategy.max_surge: is {surge}, and VKS takes 1 to 100."
    if unavailable is not None and not 0 <= unavailable <= 100:
        yield f"upgrade_strategy.max_unavailable: is {unavailable}, and VKS takes 0 to 100."
