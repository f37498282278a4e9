# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defines and checks the keys of gpu_cluster.autoscaler, which are fields of OpenShift's ClusterAutoscaler."""

from __future__ import annotations

import re
import typing as t

from ..catalog.cluster_autoscaler import AUTOSCALER_FIELDS_SINCE, EXPANDERS, PRIORITY_EXPANDER
from ..catalog.releases import release_of
from ..common.nested import get_nested
from . import validators
from .messages import join_words, quote, type_name
from .providers import PROVIDERS
from .types import (
    MAX_NODES,
    Anything,
    Boolean,
    Choice,
    Document,
    Field,
    ListOf,
    PoolVariables,
    Problems,
    Section,
    Text,
    integer_between,
)

Path = tuple[str, ...]

_PATH = "gpu_cluster.autoscaler"
# The key for fields of the ClusterAutoscaler that have no key of their own.
_VALUES = "values"
_CLOUDS = tuple(key for key, provider in PROVIDERS.items() if provider.scaled_by_openshift)
# Node groups with a higher priority are preferred; the autoscaler ignores negative ones (kubernetes/autoscaler, expander/priority/priority.go).
MAX_PRIORITY = 2**31 - 1


# The pattern of the CRD (openshift/cluster-autoscaler-operator, pkg/apis/autoscaling/v1), which accepts fewer notations than Go.
_CRD_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ns|us|µs|ms|s|m|h))+")
# The maximum of int32, the type of pod priorities in the CRD.
_INT32 = 2**31 - 1


def _duration(value: str) -> str | None:
    if not _CRD_DURATION.fullmatch(value):
        return "is not a duration; use numbers with units, such as 20m or 1h30m"
    return None


_DURATION = Text((_duration,))
# The CRD accepts only fractions below one, written as text (cluster-autoscaler-operator pkg/apis/autoscaling/v1).
_THRESHOLD = Text(
    (validators.matches(r"0\.[0-9]+", 'is not a fraction of a node; use a number below one in quotes, such as "0.4"'),)
)

AUTOSCALER = Section(
    default=None,
    fields={
        "max_nodes_total": integer_between(
            1,
            MAX_NODES,
            "a cluster has at least one node; set the total number of nodes, including control plane nodes",
            f"a cluster has at most {MAX_NODES} nodes; set a smaller number",
        ),
        "expanders": ListOf(default=None, item=Choice(known=EXPANDERS)),
        "pod_priority_threshold": integer_between(
            -_INT32 - 1,
            _INT32,
            "pod priorities are 32-bit integers; set a larger number",
            "pod priorities are 32-bit integers; set a smaller number",
        ),
        "balance_similar_node_groups": Boolean(),
        "max_node_provision_time": _DURATION,
        "scale_down": Section(
            default=None,
            fields={
                "enabled": Boolean(),
                "delay_after_add": _DURATION,
                "delay_after_delete": _DURATION,
                "delay_after_failure": _DURATION,
                "unneeded_time": _DURATION,
                "utilization_threshold": _THRESHOLD,
            },
        ),
        _VALUES: Anything(default=None, quotes_text=False),
    },
)

# The keys whose path in the spec of the ClusterAutoscaler cannot be derived from their name.
_OTHER_PATHS: dict[Path, Path] = {("max_nodes_total",): ("resourceLimits", "maxNodesTotal")}


def _keys(section: Section, prefix: Path = ()) -> t.Iterator[Path]:
    """The path of each key that has no keys below it; `values` is omitted."""
    for name, field in section.fields.items():
        if isinstance(field, Section):
            yield from _keys(field, (*prefix, name))
        elif name != _VALUES:
            yield (*prefix, name)


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


# The path of each key in the spec of the ClusterAutoscaler.
SPEC_PATHS: dict[Path, Path] = {
    keys: _OTHER_PATHS.get(keys, tuple(map(_camel_case, keys))) for keys in _keys(AUTOSCALER)
}
_MAPS = tuple(dict.fromkeys(path[0] for path in SPEC_PATHS.values() if len(path) > 1))
PRIORITY: Field = integer_between(
    0,
    MAX_PRIORITY,
    "the autoscaler ignores node groups with a negative priority; set 0 or more",
    "the autoscaler cannot read a number of this size; set a smaller one",
)


def autoscaler_platform_problems(cluster: Document) -> Problems:
    """gpu_cluster.autoscaler needs a cloud whose node groups OpenShift's autoscaler scales; other clouds have their own autoscaler."""
    cloud = get_nested(cluster, "cloud")
    named = [key for key, value in cloud.items() if value is not None] if isinstance(cloud, dict) else []
    if get_nested(cluster, "autoscaler") is None or (len(named) == 1 and named[0] in _CLOUDS):
        return
    if not named:
        yield f"{_PATH}: has no effect without node groups; add cloud: {{{_CLOUDS[0]}: {{}}}} to gpu_cluster, or remove autoscaler"
    elif len(named) == 1:
        yield f"{_PATH}: configures OpenShift's autoscaler, but gpu_cluster.cloud is {named[0]}, which scales its node groups itself; remove it"


def autoscaler_value_problems(cluster: Document) -> Problems:
    """autoscaler.values must contain a map wherever the ClusterAutoscaler has one, and must not contain a field that is derived or has its own key."""
    values = get_nested(cluster, "autoscaler", _VALUES)
    if not isinstance(values, dict):
        return
    for name in _MAPS:
        if values.get(name) is not None and not isinstance(values[name], dict):
            yield f"{_PATH}.{_VALUES}.{name}: is {type_name(values[name])}, not a map; write it as `key: value` lines, or remove it"
    if get_nested(values, "resourceLimits", "gpus") is not None:
        yield f"{_PATH}.{_VALUES}.resourceLimits.gpus: cannot be set, because it is derived from autoscale.max of the pools; remove it"
    for keys, path in SPEC_PATHS.items():
        if get_nested(values, *path) is not None:
            yield f"{_PATH}.{_VALUES}.{'.'.join(path)}: has its own key; set {_PATH}.{'.'.join(keys)} instead"


def newer_key_problems(spec: Document, version: str) -> Problems:
    """The problems of declared fields that this version of OpenShift does not support; an unknown version counts as the newest."""
    release = release_of(version)
    for keys, since in AUTOSCALER_FIELDS_SINCE.items():
        if release < since and get_nested(spec, *SPEC_PATHS[keys]) is not None:
            yield (
                f"{_PATH}.{'.'.join(keys)}: is not supported by OpenShift {version}; it was added in {since[0]}.{since[1]}; remove it, or upgrade OpenShift"
            )


def priority_problems(cluster: t.Any, pool: PoolVariables, cloud: str) -> Problems:
    """autoscale.priority needs OpenShift's autoscaler with the expander Priority, because nothing else reads it."""
    priority = get_nested(pool.declared, "autoscale", "priority")
    if priority is None:
        return
    path = f"{pool.path}.autoscale.priority"
    if cloud not in _CLOUDS:
        yield f"{path}: is read only by OpenShift's autoscaler, but gpu_cluster.cloud is {cloud}; remove it"
        return
    expanders = get_nested(cluster, "autoscaler", "expanders")
    if (
        isinstance(expanders, list)
        and PRIORITY_EXPANDER not in expanders
        and all(each in EXPANDERS for each in expanders)
    ):
        yield (
            f"{path}: {quote(priority)} has no effect, because {_PATH}.expanders is {join_words(map(str, expanders)) if expanders else 'empty'}; add "
            f"{PRIORITY_EXPANDER} to it, or remove priority"
        )


def expander_problems(cluster: Document) -> Problems:
    """Each expander must be listed only once, because the CRD rejects duplicates."""
    expanders = get_nested(cluster, "autoscaler", "expanders")
    known = [each for each in expanders if isinstance(each, str)] if isinstance(expanders, list) else []
    for name in sorted({name for name in known if known.count(name) > 1}):
        yield f"{_PATH}.expanders: contains {name} more than once; list each expander once"


AUTOSCALER_CHECKS = (autoscaler_platform_problems, autoscaler_value_problems, expander_problems)
