# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schema of node groups: gpu_cluster.cloud, and a pool's `nodes` and `autoscale`."""

from __future__ import annotations

import dataclasses
import typing as t

from .providers import PROVIDERS
from .types import MAX_NODES, Boolean, Field, Integer, Section, Text, integer_between
from .validators import not_in_defaults


def _nodes(low: int, too_low: str, **more: t.Any) -> Integer:
    return integer_between(low, MAX_NODES, too_low, f"a cluster has at most {MAX_NODES} nodes; give less", **more)


_NEGATIVE = "the number of nodes must not be negative; give 0 or more"
# Settings that every provider has; the others are in the provider's definition.
COMMON_NODES_FIELDS: dict[str, Field] = {
    "name": Text(),
    "flavor": Text(required=True, missing="name the flavor of the nodes, which decides what GPUs they have"),
    "count": _nodes(0, _NEGATIVE),
    "recreate": Boolean(),
}
_COUNT, _RANGE = "write count", "write autoscale: {min, max} in the pool"
_LABELS, _TAINTS = "the pool's labels are those of its nodes", "the pool's taints are those of its nodes"
# Options of the providers' modules that a pool declares elsewhere.
_HINTS = {
    **dict.fromkeys(("node_count", "num_nodes"), _COUNT),
    **dict.fromkeys(("min_node_count", "max_node_count", "min_size", "max_size", "autoscaling"), _RANGE),
    "node_labels": _LABELS,
    **dict.fromkeys(("node_taints", "taints"), _TAINTS),
    "cluster": "it belongs under gpu_cluster.cloud",
}

CLOUD = Section(
    default=None,
    fields={key: Section(default=None, fields=provider.cloud_fields) for key, provider in PROVIDERS.items()},
)
NODES = Section(
    default=None,
    fields={
        **COMMON_NODES_FIELDS,
        **{name: field for provider in PROVIDERS.values() for name, field in provider.nodes_fields.items()},
    },
    hints=_HINTS,
)
AUTOSCALE = Section(
    default=None,
    fields={
        "min": _nodes(0, _NEGATIVE, required=True, missing="give the smallest number of nodes"),
        "max": _nodes(
            1,
            "a group without nodes needs no autoscaler; give 1 or more",
            required=True,
            missing="give the largest number of nodes",
        ),
    },
)
# The defaults of all pools with node groups: any part, none required.
NODES_DEFAULTS = Section(
    default=None,
    fields={
        **{name: dataclasses.replace(field, required=False) for name, field in NODES.fields.items()},
        "name": Text((not_in_defaults("each node group has its own name"),)),
    },
    hints=_HINTS,
)
AUTOSCALE_DEFAULTS = Section(
    default=None, fields={name: dataclasses.replace(field, required=False) for name, field in AUTOSCALE.fields.items()}
)
