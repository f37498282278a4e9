# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables for tests: the lab's own, and random ones from hypothesis."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator

from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.catalog.models import MODELS
from ansible_collections.accel.gpu.plugins.module_utils.schema.validators import stays_text_in_helm

Document = dict[str, t.Any]

CLUSTER: Document = {"name": "lab"}
LAB_POOLS: list[Document] = [
    {
        "name": "notebooks",
        "match": {"model": "Tesla-T4"},
        "gpus_per_node": 1,
        "labels": {"team": "teaching"},
        "sharing": {"mode": "time-slicing", "replicas": 4},
    },
    {
        "name": "inference",
        "match": {"model": "L40S"},
        "sharing": {"mode": "time-slicing", "replicas": 2, "rename": True},
    },
    {"name": "train-a100", "match": {"model": "A100-SXM4-80GB"}},
    {
        "name": "train-h100",
        "match": {"model": "H100-80GB-HBM3"},
        "labels": {"team": "research"},
        "taints": [{"key": "restricted-access", "value": "yes", "effect": "NoSchedule"}],
    },
    {"name": "train-h200", "match": {"model": "H200"}, "gpus_per_node": 8},
]

label_values = st.from_regex(r"[a-z0-9]([a-z0-9_.-]{0,10}[a-z0-9])?", fullmatch=True)
label_keys = st.builds("example.com/{}".format, label_values)
effects = st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"])


@st.composite
def sharings(draw: st.DrawFn) -> Document:
    """Any sharing that a pool can declare."""
    if draw(st.booleans()):
        return {"mode": "none"}
    sharing: Document = {"mode": "time-slicing", "replicas": draw(st.integers(2, 250))}
    for option in ("rename", "fail_requests_greater_than_one"):
        if draw(st.booleans()):
            sharing[option] = draw(st.booleans())
    return sharing


taints = st.lists(
    st.fixed_dictionaries(
        {"key": label_keys | st.just("nvidia.com/gpu"), "effect": effects},
        optional={"value": label_values.filter(lambda value: stays_text_in_helm(value) is None)},
    ),
    max_size=3,
    unique_by=lambda taint: (taint["key"], taint["effect"]),
)


@st.composite
def pool_lists(draw: st.DrawFn) -> list[Document]:
    """Pools that can exist together: no two match the same model, or two models with the same GFD label."""
    chosen = draw(st.lists(st.sampled_from(MODELS), max_size=6, unique_by=lambda model: model.product))
    pools = []
    for number, model in enumerate(chosen):
        pool: Document = {"name": f"pool-{number}", "match": {"model": model.key}, "sharing": draw(sharings())}
        pool["labels"] = draw(st.dictionaries(label_keys, label_values, max_size=2))
        pool["taints"] = draw(taints)
        pools.append(pool)
    return pools


def leaves(value: t.Any, key: str, path: str = "") -> Iterator[tuple[str, t.Any]]:
    """Every value under a key, with its path."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == key:
                yield path, inner
            yield from leaves(inner, key, f"{path}.{name}".lstrip("."))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from leaves(inner, key, f"{path}[{number}]")


# Any YAML value, also of a wrong type.
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["{{ x }}", "T4"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=3),
    max_leaves=12,
)
