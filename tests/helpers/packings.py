# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Alternatives to the MIG planner for comparison: an exhaustive search, and first fit decreasing."""

from __future__ import annotations

import itertools
import typing as t
from collections import Counter

from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes.mig import Counts, fits, maximal
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes.mig_packing import PackedGpu

Key = tuple[str, int]
# Missing memory slices, used GPUs touched, GPUs touched, nodes touched, the GPUs.
Cost = tuple[int, int, int, int, tuple[Key, ...]]


def cost(gpus: t.Sequence[PackedGpu], demand: Counts, layouts: t.Mapping[Key, Counts]) -> Cost:
    """The cost of a packing; `layouts` are those of all partitioned GPUs afterwards."""
    offered = sum((Counter(dict(counts)) for counts in layouts.values()), Counter[str]())
    missing = sum(n * _size(gpus, name) for name, n in (Counter(dict(demand)) - offered).items())
    touched = [gpu for gpu in gpus if layouts.get((gpu.node, gpu.index)) != gpu.now]
    keys = tuple(sorted((gpu.node, gpu.index) for gpu in touched))
    return missing, sum(gpu.used for gpu in touched), len(touched), len({node for node, dummy in keys}), keys


def exhaustive(gpus: t.Sequence[PackedGpu], demand: Counts) -> Cost:
    """The minimum cost over all sets of touched GPUs, each partitioned as far as possible in every way."""
    best: Cost | None = None
    for touched in itertools.chain.from_iterable(itertools.combinations(gpus, n) for n in range(len(gpus) + 1)):
        kept = {(gpu.node, gpu.index): gpu.now for gpu in gpus if gpu.now is not None and gpu not in touched}
        for variants in itertools.product(*(maximal(gpu.geometry) for gpu in touched)):
            created = {(gpu.node, gpu.index): counts for gpu, counts in zip(touched, variants, strict=True)}
            actual = cost(gpus, demand, {**kept, **created})
            best = actual if best is None else min(best, actual)
    assert best
    return best


def first_fit_decreasing(gpus: t.Sequence[PackedGpu], demand: Counts) -> Cost:
    """The largest device first: on an existing device, else on the first GPU with free slices, else on another GPU, unused ones first."""
    order = sorted(gpus, key=lambda gpu: (gpu.used, gpu.node, gpu.index))
    spare = {(gpu.node, gpu.index): Counter(dict(gpu.now or {})) for gpu in gpus}
    serving: dict[Key, list[str]] = {key: [] for key in spare}
    cut: dict[Key, Counter[str]] = {}
    queue = [name for name, count in demand.items() for dummy in range(count)]
    while queue:
        queue.sort(key=lambda name: (_size(gpus, name), name))
        name = queue.pop()
        for gpu in order:
            key = gpu.node, gpu.index
            if key not in cut and spare[key][name]:
                spare[key][name] -= 1
                serving[key].append(name)
                break
        else:
            for gpu in [gpu for gpu in order if (gpu.node, gpu.index) in cut] + order:
                key = gpu.node, gpu.index
                more = cut.get(key, Counter[str]()) + Counter([name])
                if fits(gpu.geometry, more):
                    if key not in cut:
                        queue += serving[key]
                    cut[key] = more
                    break
    kept = {(gpu.node, gpu.index): gpu.now for gpu in gpus if gpu.now is not None}
    return cost(gpus, demand, {**kept, **cut})


def _size(gpus: t.Sequence[PackedGpu], name: str) -> int:
    """Memory slices of a profile: the maximum over the GPUs' models; 1 if no model has it."""
    return max((one.size for gpu in gpus if (one := gpu.geometry.profile(name))), default=1)
