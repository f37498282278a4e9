# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MIG layouts: their notations, and the values that are derived from profiles' names (pure)."""

from __future__ import annotations

import functools
import re
import typing as t
from collections import Counter
from dataclasses import dataclass

from ..catalog.mig import RESOURCE_PREFIX
from ..catalog.names import LABEL_LENGTH, MIG_INFIX

SINGLE, MIXED = "single", "mixed"
STRATEGIES = (SINGLE, MIXED)

# A profile in nvidia-smi and mig-parted (go-nvlib pkg/nvlib/device/mig_profile.go), without compute instances.
PROFILE = re.compile(r"[1-9][0-9]{0,2}g\.[1-9][0-9]{0,4}gb([+-][a-z][a-z0-9.]{0,30})?", re.ASCII)
# A GPU's index as the key of a layout.
INDEX = re.compile(r"[0-9]{1,6}", re.ASCII)

# The MIG devices of one GPU: the count of each profile, by its name in nvidia-smi.
Counts = t.Mapping[str, int]


@dataclass(frozen=True)
class Part:
    """The MIG devices of some GPUs of a node as {profile: count}. Empty `devices` stand for every GPU, and empty `profiles` for whole GPUs."""

    devices: tuple[int, ...]
    profiles: dict[str, int]


Layout = tuple[Part, ...]


def parse_layout(written: t.Any) -> Layout:
    """Parse a valid layout: one layout for every GPU, or one for each GPU by its index.

    The notation is {profile: count}, a list of profiles, or a map or list of these by GPU index.
    """
    if isinstance(written, dict) and not any(_is_index(key) for key in written):
        return (Part((), _counts(written)),)
    if isinstance(written, list) and all(isinstance(item, str) for item in written):
        return (Part((), _counts(written)),)
    by_index = written.items() if isinstance(written, dict) else enumerate(written)
    alike: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for index, of_gpu in by_index:
        alike.setdefault(tuple(sorted(_counts(of_gpu or {}).items())), []).append(int(index))
    return tuple(Part(tuple(sorted(indices)), dict(profiles)) for profiles, indices in alike.items())


def on_gpu(layout: Layout, index: int) -> Counts:
    """The MIG devices of the GPU with this index; a GPU that is not in the layout stays whole."""
    return next((part.profiles for part in layout if not part.devices or index in part.devices), {})


def uniform(layout: Layout) -> str | None:
    """The only profile of all MIG devices on all GPUs; None if there are several profiles, or whole GPUs."""
    if len(layout) == 1 and not layout[0].devices and len(layout[0].profiles) == 1:
        return next(iter(layout[0].profiles))
    return None


def single_product(product: str, profile: str, suffix: str = "") -> str:
    """GFD's product label under the strategy single (k8s-device-plugin internal/lm); `suffix` is the suffix of shared devices."""
    return f"{product}{MIG_INFIX}{profile.replace('+', '.')}{suffix}"


def strategy_for(layout: Layout, product: str = "", suffix: str = "") -> str:
    """The strategy that a layout needs: single if all devices have one profile, so that workloads need no change.

    It is mixed if the product label would be too long, because NFD would drop the label and the node's model would be unknown.
    """
    profile = uniform(layout)
    fits_in_label = profile is not None and len(single_product(product, profile, suffix)) <= LABEL_LENGTH
    return SINGLE if fits_in_label else MIXED


def profiles(layout: Layout) -> tuple[str, ...]:
    """Every profile of the layout, sorted."""
    return tuple(sorted({name for part in layout for name in part.profiles}))


def nominal_gb(profile: str) -> int:
    """The memory in a profile's name, in GB; slightly less is usable."""
    return int(profile.partition("g.")[2].partition("gb")[0])


@functools.lru_cache(maxsize=1024)
def plain(profile: str) -> str:
    """The profile without its extras: `1g.5gb+me` -> `1g.5gb`."""
    return re.split("[+-]", profile, maxsplit=1)[0]


def without_memory(profile: str) -> str:
    """A profile's compute slices and extras: `1g.24gb+me.all` -> `1g+me.all`."""
    compute, dummy, rest = profile.partition(".")
    return compute + rest.partition("gb")[2]


def resource(profile: str) -> str:
    """The extended resource under the strategy mixed (k8s-device-plugin internal/rm: a name cannot contain `+`)."""
    return RESOURCE_PREFIX + profile.replace("+", ".")


def format_devices(counts: Counts) -> list[str]:
    """A layout of one GPU as the sorted list of its devices' profiles."""
    return [name for name, count in sorted(counts.items()) for dummy in range(count)]


def format_layout(counts: Counts) -> str:
    """A layout of one GPU as text: `2 x 1g.5gb + 1 x 3g.20gb`."""
    return " + ".join(f"{count} x {name}" for name, count in sorted(counts.items()) if count) or "nothing"


def _counts(of_gpu: t.Any) -> dict[str, int]:
    counts = of_gpu if isinstance(of_gpu, dict) else Counter(of_gpu)
    return {name: counts[name] for name in sorted(counts) if counts[name] > 0}


def _is_index(key: t.Any) -> bool:
    return isinstance(key, int) or (isinstance(key, str) and INDEX.fullmatch(key) is not None)
