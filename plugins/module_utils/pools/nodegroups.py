# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node groups that follow from pools, each in the words of its provider's module (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..catalog import names
from ..catalog.taints import STARTUP_TAINT
from ..common.nested import get_nested
from ..schema import coercion
from ..schema.messages import is_whole, quote, type_name
from ..schema.nodegroup import MAGNUM, ONLY_OF, PROVIDERS, VKS
from ..schema.rollout import NONE, ROLLOUT
from .plan import CloudPlan, NodeGroupPlan
from .variables import NOT_SET, InvalidVariables

if t.TYPE_CHECKING:
    from .plan import PoolPlan

Document = dict[str, t.Any]


@dataclass(frozen=True)
class ProviderFields:
    """What a provider's module calls the parts of a group that every provider has; `scaled`: its switch for the autoscaler, if it has one."""

    count: str
    low: str
    high: str
    labels: str
    taints: str
    scaled: str | None
    options: tuple[str, ...]


_DRAIN_TIMEOUT = ROLLOUT.fields["drain_timeout"].default
# What of ours a group may have from a former sharing; the modules take out what is null, or a taint whose state is absent.
_OUR_LABELS = (names.MIG_CONFIG_LABEL,)
# The options of accel.gpu.magnum_nodegroup and accel.gpu.vks_nodegroup; `options` are those that say where the cloud is.
WORDS = {
    MAGNUM: ProviderFields(
        "node_count",
        "min_node_count",
        "max_node_count",
        "node_labels",
        "node_taints",
        "autoscaling",
        ("cloud", "region_name"),
    ),
    VKS: ProviderFields(
        "num_nodes",
        "min_size",
        "max_size",
        "labels",
        "taints",
        None,
        ("region", "project_id", "iam_url", "vks_url", "vserver_url"),
    ),
}


def cloud_of(cluster: Document) -> CloudPlan | None:
    """The cloud of a sound cluster document."""
    for provider in PROVIDERS:
        settings = (cluster.get("cloud") or {}).get(provider)
        if settings is not None:
            return CloudPlan(
                provider=provider,
                cluster=settings.get("cluster") or cluster["name"],
                template=settings.get("template"),
                nodegroup_label=settings.get("nodegroup_label", ""),
                options={key: settings[key] for key in WORDS[provider].options if key in settings},
            )
    return None


def nodegroup_spec(pool: Document, cloud: CloudPlan | None) -> NodeGroupPlan | None:
    """The node group of a sound pool; None where its nodes exist already."""
    nodes = pool.get("nodes")
    if nodes is None or cloud is None:
        return None
    scale = pool.get("autoscale") or {}
    return NodeGroupPlan(
        name=nodes.get("name") or pool["name"],
        group_label=cloud.nodegroup_label,
        flavor=nodes["flavor"],
        node_count=nodes.get("count", scale.get("min", 0)),
        min_node_count=scale.get("min"),
        max_node_count=scale.get("max"),
        settings={key: nodes[key] for key in ("recreate", *ONLY_OF[cloud.provider]) if key in nodes},
    )


def nodegroup_specs(cloud: CloudPlan | None, pools: t.Iterable[PoolPlan]) -> tuple[Document, ...]:
    """What the option `nodegroups` of the provider's module is given: the groups as the pools want their nodes to be born."""
    return tuple(_group(WORDS[cloud.provider], pool, pool.nodegroup) for pool in pools if cloud and pool.nodegroup)


def drain_options(pools: t.Iterable[PoolPlan]) -> Document:
    """How nodes of these groups are emptied before they go, as the option `kubernetes.drain`; where pools differ, with the greater care."""
    rollouts = [pool.rollout for pool in pools if pool.nodegroup]
    graces = [rollout.grace_period for rollout in rollouts]
    longest = max((grace for grace in graces if grace is not None), default=None)
    return {
        "evict": all(rollout.drain != NONE for rollout in rollouts),
        "force": bool(rollouts) and all(rollout.force for rollout in rollouts),
        # None is each pod's own, and the only one that cannot be too short.
        "grace_period": None if None in graces else longest,
        "drain_timeout": max((rollout.drain_timeout for rollout in rollouts), default=_DRAIN_TIMEOUT),
    }


def with_node_counts(
    pools: t.Sequence[Document] | None, counts: t.Mapping[str, t.Any], defaults: Document | None = None
) -> list[Document]:
    """The pools' documents with another number of nodes; raises InvalidDocuments for a pool of which nobody can say how many there are."""
    if pools is None:
        raise InvalidVariables([NOT_SET])
    problems = list(_misshapen(pools, counts))
    if not problems:
        counts = {name: coercion.integer(count) if isinstance(count, str) else count for name, count in counts.items()}
        problems = [
            f"the number of nodes of pool {name}: {quote(given)} is not a whole number; give one such as 3"
            for name, given in counts.items()
            if not is_whole(given)
        ]
        problems += [problem for name in counts for problem in _not_countable(name, pools, defaults or {})]
    if problems:
        raise InvalidVariables(problems)
    return [
        {**pool, "nodes": {**pool["nodes"], "count": counts[pool["name"]]}}
        if get_nested(pool, "name") in tuple(counts)
        else pool
        for pool in pools
    ]


def _misshapen(pools: t.Any, counts: t.Any) -> t.Iterator[str]:
    """Why the numbers cannot be looked up; what else is wrong with the pools, their own check says."""
    if not isinstance(pools, list):
        yield f"gpu_pools: is {type_name(pools)}, not a list; begin each entry with a dash"
    if not isinstance(counts, dict) or not all(isinstance(name, str) for name in counts):
        yield f"the numbers of nodes: are {type_name(counts)}, not a map; write them as {{train: 3}}"


def _not_countable(name: str, pools: t.Sequence[t.Any], defaults: t.Any) -> t.Iterator[str]:
    pool = next((pool for pool in pools if get_nested(pool, "name") == name), None)
    if pool is None:
        known = [str(get_nested(pool, "name")) for pool in pools]
        yield f"gpu_pools: no pool is called {name}; declared are {', '.join(known) or 'none'}"
    elif not isinstance(pool.get("nodes"), dict):
        yield f"pool {name}: its nodes are not made here (nodes), so nobody can say how many there are; declare nodes first"
    elif pool.get("autoscale") or get_nested(defaults, "autoscale"):
        yield f"pool {name}: its autoscaler chooses how many nodes there are; change autoscale.min and max"


def _group(words: ProviderFields, pool: PoolPlan, group: NodeGroupPlan) -> Document:
    scaled = {words.low: group.min_node_count, words.high: group.max_node_count} if group.autoscaled else {}
    return {
        "name": group.name,
        "flavor": group.flavor,
        words.count: group.node_count,
        **scaled,
        **({words.scaled: True} if words.scaled and group.autoscaled else {}),
        **group.settings,
        words.labels: {**dict.fromkeys(_OUR_LABELS), **pool.registration.node_labels},
        words.taints: [*(dict(taint) for taint in pool.registration.taints), *_not_wanted(pool)],
    }


def _not_wanted(pool: PoolPlan) -> list[Document]:
    """Our own taint that another sharing has put on the group, and that its nodes are not to be born with any more."""
    return [] if STARTUP_TAINT in pool.registration.taints else [{**STARTUP_TAINT, "state": "absent"}]
