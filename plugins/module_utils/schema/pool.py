# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schema of gpu_defaults and gpu_pools. To add a key, add one entry here and a field of PoolPlan (pools/plan.py)."""

from __future__ import annotations

import dataclasses
import typing as t

from ..catalog.taints import TAINT_EFFECTS
from ..mig.layout import STRATEGIES
from ..sharing_modes.modes import DEFAULT_MODE, MODES
from ..sharing_modes.plugin_settings import SETTINGS, PluginSetting
from . import validators
from .autoscaler import PRIORITY
from .driver import DRIVER
from .mig_layout import MAX_GPUS, LayoutField
from .providers import PROVIDERS
from .rollout import ROLLOUT
from .types import MAX_NODES, Anything, Boolean, Choice, Field, Integer, ListOf, MapOf, Section, Text, integer_between

# The kubelet runs 110 pods on a node by default, and 250 on OpenShift, so more shares could never be used.
MAX_SHARES = 250
# The maximum number of devices in the largest cluster, with at most 16 GPUs per node and 7 devices per GPU.
MAX_DEVICES = MAX_NODES * 16 * 7


def _nodes(low: int, too_low: str, **more: t.Any) -> Integer:
    return integer_between(
        low, MAX_NODES, too_low, f"a cluster has at most {MAX_NODES} nodes; set a smaller number", **more
    )


_NEGATIVE = "the number of nodes must not be negative; set 0 or more"
# Settings that every provider has; other settings are in the provider's definition.
COMMON_NODES_FIELDS: dict[str, Field] = {
    "name": Text(),
    "flavor": Text(),
    "count": _nodes(0, _NEGATIVE),
    "recreate": Boolean(),
}
_COUNT, _RANGE = "use count", "use autoscale: {min, max} in the pool"
_LABELS, _TAINTS = (
    "use labels of the pool for the labels of its nodes",
    "use taints of the pool for the taints of its nodes",
)
# Options of the providers' modules that a pool declares elsewhere.
_HINTS = {
    **dict.fromkeys(("node_count", "num_nodes"), _COUNT),
    **dict.fromkeys(("min_node_count", "max_node_count", "min_size", "max_size", "autoscaling"), _RANGE),
    "node_labels": _LABELS,
    **dict.fromkeys(("node_taints", "taints"), _TAINTS),
    "cluster": "it belongs under gpu_cluster.cloud",
}

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
        "min": _nodes(0, _NEGATIVE, required=True, missing="set the minimum number of nodes"),
        "max": _nodes(
            1,
            "a group without nodes does not need an autoscaler; set 1 or more, or omit autoscale",
            required=True,
            missing="set the maximum number of nodes",
        ),
        "priority": PRIORITY,
    },
)
_TAINT = Section(
    fields={
        "key": Text(
            (validators.label_key, validators.unowned_taint), required=True, missing="a taint has a key and an effect"
        ),
        "value": Text((validators.label_value, validators.stays_text_in_helm), empty=True),
        "effect": Choice(known=TAINT_EFFECTS, required=True, missing=f"choose one of {', '.join(TAINT_EFFECTS)}"),
    }
)


# The class of a field, by the type of its values.
_PLUGIN_SETTING_FIELDS: dict[type, type[Field]] = {bool: Boolean, int: Integer, str: Text, list: ListOf, dict: MapOf}


def plugin_setting_field(setting: PluginSetting) -> Field:
    """The field that accepts the values of a device plugin setting."""
    if setting.choices:
        return Choice(setting.rules, known=setting.choices, default=setting.default, blank_is_unset=False)
    return _PLUGIN_SETTING_FIELDS[setting.kind](setting.rules, default=setting.default, blank_is_unset=False)


_SHARING = Section(
    fields={
        "mode": Choice(known=tuple(MODES), default=DEFAULT_MODE.name, blank_is_unset=False),
        "replicas": integer_between(
            2,
            MAX_SHARES,
            "sharing needs at least 2 (NVIDIA device plugin); for whole GPUs, remove it and set mode: none",
            f"a node cannot run more than {MAX_SHARES} pods (kubelet); share each GPU among fewer",
            blank_is_unset=False,
        ),
        "layout": LayoutField(),
        "demand": MapOf(
            keys=(validators.mig_profile,),
            item=integer_between(
                1,
                MAX_DEVICES,
                "a demand is for at least one device; omit the profile",
                f"no cluster has more than {MAX_DEVICES} MIG devices; set a smaller number",
            ),
        ),
        "strategy": Choice(known=STRATEGIES, blank_is_unset=False),
        **{key: plugin_setting_field(setting) for key, setting in SETTINGS.items()},
    }
)

POOL = Section(
    fields={
        "name": Text((validators.dns_label,), required=True, missing="every pool needs its own name, a DNS label"),
        "match": Section(
            fields={
                "model": Text((validators.known_model,), blank_is_unset=False),
                "labels": MapOf(
                    keys=(validators.label_key, validators.not_the_pool_label),
                    item=Text((validators.label_value,), empty=True),
                ),
            }
        ),
        "model": Text((validators.known_model,)),
        "nodes": NODES,
        "autoscale": AUTOSCALE,
        "gpus_per_node": integer_between(
            1,
            MAX_GPUS,
            "a pool without GPUs has no effect; omit it",
            f"no node has more than {MAX_GPUS} GPUs; set the number of GPUs on one node",
        ),
        "labels": MapOf(
            keys=(validators.label_key, validators.unowned_label),
            item=Text((validators.label_value,), empty=True),
            default={},
        ),
        "taints": ListOf(item=_TAINT, blank_is_unset=False),
        "sharing": _SHARING,
        "rollout": ROLLOUT,
        "driver": DRIVER,
        "startup_taint": Boolean(default=False),
    }
)


def _any_part_of(section: Section, **own: Field) -> Section:
    """A section with the same keys, none of which is required; `own` replaces the fields of some keys."""
    return dataclasses.replace(
        section,
        fields={**{key: dataclasses.replace(field, required=False) for key, field in section.fields.items()}, **own},
    )


# The defaults can contain any part of a pool except its names, layout and demand.
DEFAULTS = _any_part_of(
    POOL,
    name=Text((validators.not_in_defaults("every pool has its own name"),)),
    nodes=_any_part_of(NODES, name=Text((validators.not_in_defaults("each node group has its own name"),))),
    autoscale=_any_part_of(AUTOSCALE),
    sharing=_any_part_of(
        _SHARING,
        layout=LayoutField((validators.not_in_defaults("set the layout in each pool"),)),
        demand=Anything((validators.not_in_defaults("set the demand in each pool"),)),
    ),
)
POOLS = ListOf(item=POOL)
