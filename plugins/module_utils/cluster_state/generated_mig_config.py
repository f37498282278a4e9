# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The MIG configurations that NVIDIA's MIG manager generates on each node, as entries for one file of all nodes (pure).

From operator v26.3 on (mig-parted v0.14, cmd/nvidia-mig-manager) every node has a ConfigMap of its own with what its GPUs can be cut into.
A configuration that the ClusterPolicy names takes the place of all of them, so that it has to have their entries.
"""

from __future__ import annotations

import json
import typing as t

from ..catalog import models
from ..catalog.names import GENERATED_NODE_LABEL
from ..nvidia_config import mig_parted
from ..schema.messages import abbreviate, join_words
from ..schema.validators import label_value
from .mig_capacity import model_of

if t.TYPE_CHECKING:
    from ..nvidia_config.mig_parted import Entry
    from ..pools.plan import Plan
    from .node import Node

_KEYS = {"device-filter", "devices", "mig-enabled", "mig-devices"}


class Generated(t.NamedTuple):
    """Entries by name, and what of it cannot be had, a sentence each."""

    entries: t.Mapping[str, Entry] = {}
    doubts: tuple[str, ...] = ()


NOTHING: t.Final = Generated()


class _Source(t.NamedTuple):
    """What one node's MIG manager has generated, and the devices of the node's model; none where the catalog lacks it."""

    node: str
    content: Entry
    devices: tuple[str, ...]


def by_node(configmaps: t.Iterable[t.Mapping[str, t.Any]]) -> dict[str, dict[str, Entry]]:
    """The entries that NVIDIA's parser takes, of each node that has such a ConfigMap."""
    return {
        _node(configmap): {
            name: content for name, content in mig_parted.read(configmap).items() if _is_sound(name, content)
        }
        for configmap in sorted(configmaps, key=_node)
    }


def generated(
    plan: Plan,
    published: t.Mapping[str, t.Mapping[str, Entry]],
    nodes: t.Iterable[Node],
    live: t.Mapping[str, t.Any],
) -> Generated:
    """The generated entries of all nodes that the `live` ones and those of the plan do not have, or have for other models only.

    `published` are those entries by node, as by_node() reads them.

    Where nodes mean different layouts by one name, each model gets its own by the PCI ids of the catalog. Where it cannot be told which is
    whose, or where a live entry of that name means another layout on a node, nothing is changed and that is said.
    """
    of_node = {node.name: _devices(node) for node in nodes}
    by_name: dict[str, list[_Source]] = {}
    for node, content_of in published.items():
        for name, content in content_of.items():
            by_name.setdefault(name, []).append(_Source(node, content, of_node.get(node, ())))
    usual, devices = plan.mig.usual, _of_pools(plan)
    there = {**live, **plan.mig.entries}
    entries: dict[str, Entry] = {}
    differing: dict[str, list[str]] = {}
    unclear: dict[str, list[str]] = {}
    for name, sources in sorted(by_name.items()):
        kept = there.get(name)
        if kept is None:
            ours = [_Source("", usual[name], devices)] if name in usual else []
            merged = _merged([*ours, *sources])
            if merged is not None:
                entries.update({name: merged} if merged != usual.get(name) else {})
                continue
            kept = usual.get(name)
        if kept is None:
            unclear[name] = [source.node for source in sources]
        elif others := [source.node for source in sources if not _is_same(kept, source)]:
            differing[name] = others
    return Generated(
        entries,
        (
            *_said(differing, "is another layout there than what the MIG manager has generated, and stays as it is"),
            *_said(
                unclear, "is generated differently for GPUs that no PCI id of the catalog tells apart, and is left out"
            ),
        ),
    )


def _of_pools(plan: Plan) -> tuple[str, ...]:
    """The devices that the plan's own usual entries are for."""
    found = [models.find(pool.model) for pool in plan.pools if pool.model]
    return tuple(dict.fromkeys(mig_parted.device_id(one) for model in found if model for one in model.pci_ids))


def _said(found: t.Mapping[str, list[str]], what: str) -> t.Iterator[str]:
    if found:
        nodes = sorted({node for names in found.values() for node in names})
        yield f"MIG configuration {join_words(sorted(found))} of {abbreviate(nodes)}: {what}."


def _node(configmap: t.Mapping[str, t.Any]) -> str:
    return str((configmap["metadata"].get("labels") or {}).get(GENERATED_NODE_LABEL) or "")


def _devices(node: Node) -> tuple[str, ...]:
    model = model_of(node)
    return tuple(mig_parted.device_id(one) for one in model.pci_ids) if model else ()


def _is_sound(name: t.Any, content: t.Any) -> bool:
    """Whether NVIDIA's parser takes the entry: one that it does not take makes the whole file unreadable."""
    if not isinstance(name, str) or not name or label_value(name) or mig_parted.is_ours(name):
        return False
    return (
        isinstance(content, list)
        and bool(content)
        and all(
            mig_parted.is_part(part)
            and set(part) <= _KEYS
            and (isinstance(part.get("mig-devices"), dict) if part["mig-enabled"] else not part.get("mig-devices"))
            for part in content
        )
    )


def _is_same(entry: t.Any, source: _Source) -> bool:
    """Whether the entry makes of the node's GPUs what was generated for them."""
    if entry == source.content:
        return True
    if not isinstance(entry, list) or not all(mig_parted.is_part(part) for part in entry):
        return False
    if not source.devices:
        return (
            not _is_filtered(entry) and _on(entry, "") == _on(source.content, "") and not _is_filtered(source.content)
        )
    return all(_on(entry, device) == _on(source.content, device) for device in source.devices)


def _is_filtered(content: Entry) -> bool:
    return any(mig_parted.device_filter(part) for part in content)


def _on(content: Entry, device: str) -> Entry:
    """What of an entry is about a device, with all that is left out said."""
    return [
        {
            "devices": part["devices"],
            "mig-enabled": part["mig-enabled"],
            **({"mig-devices": dict(part.get("mig-devices") or {})} if part["mig-enabled"] else {}),
        }
        for part in content
        if device in (mig_parted.device_filter(part) or (device,))
    ]


def _merged(sources: t.Sequence[_Source]) -> Entry | None:
    """One entry that is right on every node; None where two nodes cannot be told apart."""
    if all(source.content == sources[0].content for source in sources):
        return sources[0].content
    on_device: dict[str, str] = {}
    for source in sources:
        named = {device for part in source.content for device in mig_parted.device_filter(part)}
        if not all(mig_parted.device_filter(part) for part in source.content):
            if not source.devices:
                return None
            named.update(source.devices)
        for device in named:
            content = json.dumps(_on(source.content, device), sort_keys=True)
            if on_device.setdefault(device, content) != content:
                return None
    alike: dict[str, list[str]] = {}
    for device, content in sorted(on_device.items()):
        alike.setdefault(content, []).append(device)
    return [{"device-filter": devices, **part} for content, devices in alike.items() for part in json.loads(content)]
