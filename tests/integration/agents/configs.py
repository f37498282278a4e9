# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Config files of the device plugin: valid ones, invalid ones, and those whose mistakes NVIDIA's agents ignore silently."""

from __future__ import annotations

import json
from typing import Any

GPU = "nvidia.com/gpu"


def sharing(section: str, *resources: tuple[str, Any], **fields: Any) -> str:
    """Return a config with a sharing section: resources with replicas, and other fields of the section."""
    entries = [{"name": name, "replicas": replicas} for name, replicas in resources]
    return json.dumps({"version": "v1", "sharing": {section: {**fields, "resources": entries}}})


def entry(**fields: Any) -> str:
    """Return a config whose time-slicing section has one entry with only these fields."""
    return json.dumps({"version": "v1", "sharing": {"timeSlicing": {"resources": [fields]}}})


GOOD = {
    "no file": "",
    "version": "version: v1",
    "time-slicing": sharing("timeSlicing", (GPU, 4)),
    "time-slicing by 2": sharing("timeSlicing", (GPU, 2)),
    "time-slicing by 250": sharing("timeSlicing", (GPU, 250)),
    "time-slicing renamed": sharing("timeSlicing", (GPU, 4), renameByDefault=True),
    "time-slicing, one per request": sharing("timeSlicing", (GPU, 4), failRequestsGreaterThanOne=True),
    "time-slicing renamed, one per request": sharing(
        "timeSlicing", (GPU, 3), renameByDefault=True, failRequestsGreaterThanOne=True
    ),
    "mps": sharing("mps", (GPU, 4)),
    "mps renamed": sharing("mps", (GPU, 4), renameByDefault=True),
    "mps, several per request": sharing("mps", (GPU, 4), failRequestsGreaterThanOne=False),
    "mps by 48": sharing("mps", (GPU, 48)),
    "name without prefix": entry(name="gpu", replicas=4),
    "all devices": entry(name=GPU, replicas=4, devices="all"),
    "strategy in the file": "flags: {migStrategy: mixed}",
    "single in the file": "flags: {migStrategy: single}",
    "flags of gfd": "flags: {gfd: {oneshot: false, noTimestamp: false}}",
    "devices by index": "flags: {plugin: {deviceIDStrategy: index}}",
    "devices by index, time-slicing": json.dumps(
        {
            "flags": {"plugin": {"deviceIDStrategy": "index"}},
            "sharing": {"timeSlicing": {"resources": [{"name": GPU, "replicas": 4}]}},
        }
    ),
    "no IMEX channel": "imex: {channelIDs: [], required: true}",
    "default IMEX channel, if it exists": "imex: {channelIDs: [0]}",
}

# Configs that the agents accept, but without effect or with an unintended effect.
SILENT = {
    "mps by 49": sharing("mps", (GPU, 49)),
    "unknown resource": sharing("timeSlicing", ("nvidia.com/foo", 4)),
    "MIG resource": sharing("timeSlicing", ("nvidia.com/mig-1g.10gb", 4)),
    "two entries, larger first": sharing("timeSlicing", (GPU, 4), (GPU, 2)),
    "two entries, larger last": sharing("timeSlicing", (GPU, 2), (GPU, 4)),
    "two entries renamed": sharing("timeSlicing", (GPU, 2), (GPU, 4), renameByDefault=True),
    "rename": entry(name=GPU, replicas=4, rename="nvidia.com/mine"),
    "one device": entry(name=GPU, replicas=4, devices=[0]),
    "number of devices": entry(name=GPU, replicas=4, devices=1),
    "misspelt section": sharing("timeslices", (GPU, 4)),
    "section in another case": sharing("timeslicing", (GPU, 4)),
    "time-slicing and mps": json.dumps(
        {
            "sharing": {
                "timeSlicing": {"resources": [{"name": GPU, "replicas": 2}]},
                "mps": {"resources": [{"name": GPU, "replicas": 6}]},
            }
        }
    ),
    "unknown key": "shraing: {}\nflags: {migstrategie: single}",
    "resources": "resources: {gpus: [{pattern: '*', name: mine}]}",
    "empty sharing": "sharing: {}",
}

# Discovery by other means than NVML (tegra, vfio) is missing, because the lab's nodes do not have it.
BAD = {
    "one replica": sharing("timeSlicing", (GPU, 1)),
    "no replica": sharing("timeSlicing", (GPU, 0)),
    "negative replicas": sharing("timeSlicing", (GPU, -1)),
    "replicas as text": sharing("timeSlicing", (GPU, "4")),
    "half a replica": sharing("timeSlicing", (GPU, 2.5)),
    "one replica of mps": sharing("mps", (GPU, 1)),
    "replicas missing": entry(name=GPU),
    "name missing": entry(replicas=4),
    "no entry": sharing("timeSlicing"),
    "no entry of mps": sharing("mps"),
    "entries missing": "sharing: {timeSlicing: {renameByDefault: true}}",
    "name of two domains": entry(name="nvidia.com/example.com/gpu", replicas=4),
    "name in capitals": entry(name="nvidia.com/GPU", replicas=4),
    "name too long": entry(name="nvidia.com/" + "g" * 60, replicas=4),
    "some devices": entry(name=GPU, replicas=4, devices="some"),
    "bad rename": entry(name=GPU, replicas=4, rename="NO"),
    "version v2": "version: v2",
    "no YAML": "sharing: {timeSlicing",
    "a list": "[]",
    "a word": "shared",
    "tab": "sharing:\n\ttimeSlicing: {}",
    "sharing is a list": "sharing: []",
    "unknown strategy": "flags: {migStrategy: both}",
    "strategy is a number": "flags: {migStrategy: 1}",
    "unknown discovery": "flags: {deviceDiscoveryStrategy: magic}",
    "unknown list strategy": "flags: {plugin: {deviceListStrategy: paper}}",
    "unknown id strategy": "flags: {plugin: {deviceIDStrategy: name}}",
    "unknown IMEX channel": "imex: {channelIDs: [7]}",
    "two IMEX channels": "imex: {channelIDs: [0, 1]}",
    "missing IMEX channel": "imex: {channelIDs: [0], required: true}",
    "unknown IMEX channel that is required": "imex: {channelIDs: [7], required: true}",
}

CONFIGS = {**GOOD, **SILENT, **BAD}
