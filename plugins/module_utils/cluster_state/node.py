# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One node as the fleet sees it: what its labels, taints and status say, parsed once."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field

from ..catalog.names import (
    COUNT_LABEL,
    GPU_PRESENT_LABEL,
    GPUS_ANNOTATION,
    MEMORY_LABEL,
    MIG_CONFIG_LABEL,
    MIG_INFIX,
    MIG_STATE_LABEL,
    PCI_PRESENT_LABELS,
    PRODUCT_LABEL,
    REPLICAS_LABEL,
    SHARED_SUFFIX,
    STRATEGY_LABEL,
)

DRIVER = "nvidia.com/cuda.driver-version.full"
DRIVER_PARTS = tuple(f"nvidia.com/cuda.driver.{part}" for part in ("major", "minor", "rev"))
# What sharing and MIG hang on GFD's product name (k8s-device-plugin internal/lm).
_SUFFIX = re.compile(r"(-MIG-[A-Za-z0-9.+]+)?(-SHARED)?$")


_TEXTS: dict[str, str] = {}
_TEXTS_MOST = 200_000
# Under the strategy mixed GFD labels each profile.
_MIG_COUNT = re.compile(r"nvidia\.com/mig-(\d+g\..+)\.count")


@dataclass(frozen=True)
class Node:
    """What one Node object says; counts are whole GPUs or shares, never None."""

    name: str
    labels: t.Mapping[str, str] = field(default_factory=dict)
    annotations: t.Mapping[str, str] = field(default_factory=dict)
    taints: tuple[t.Mapping[str, t.Any], ...] = ()
    allocatable: t.Mapping[str, int] = field(default_factory=dict)
    capacity: t.Mapping[str, int] = field(default_factory=dict)
    resource_version: str = ""
    ready: bool = False
    unschedulable: bool = False
    boot_id: str = ""
    # RFC 3339, so that later ones sort last.
    created: str = ""
    provider_id: str = ""
    addresses: tuple[str, ...] = ()

    @property
    def product(self) -> str:
        """GFD's product name as it stands, with the suffixes of sharing and MIG; empty before discovery."""
        return self.labels.get(PRODUCT_LABEL, "")

    @property
    def model(self) -> str:
        """GFD's product name without what sharing and MIG hang on it; empty before discovery."""
        return _SUFFIX.sub("", self.product)

    @property
    def gpus(self) -> int:
        """The GPUs that GFD counts: the physical ones, MIG devices under the strategy single; 0 before discovery."""
        return whole(self.labels.get(COUNT_LABEL))

    @property
    def noted_gpus(self) -> int:
        """The physical GPUs as they were counted before they were cut; 0 where nothing is noted."""
        return whole(self.annotations.get(GPUS_ANNOTATION))

    @property
    def mig_config(self) -> str:
        """The MIG configuration that the node is to have; empty where nobody said."""
        return self.labels.get(MIG_CONFIG_LABEL, "")

    @property
    def mig_state(self) -> str:
        """What the MIG manager says of it: pending, rebooting, success or failed; empty before it has looked."""
        return self.labels.get(MIG_STATE_LABEL, "")

    @property
    def replicas(self) -> int:
        """The shares a GPU that GFD says; 0 when it says nothing."""
        return whole(self.labels.get(REPLICAS_LABEL))

    @property
    def mig_devices(self) -> dict[str, int]:
        """The MIG devices by profile, as GFD labels them under either strategy (`+` is a dot there)."""
        if MIG_INFIX in self.product:
            profile = self.product.partition(MIG_INFIX)[2].removesuffix(SHARED_SUFFIX)
            return {profile: self.gpus} if self.gpus else {}
        ours = [(key, value) for key, value in self.labels.items() if key.startswith("nvidia.com/mig-")]
        found = {_MIG_COUNT.fullmatch(key): value for key, value in ours}
        return {match[1]: whole(value) for match, value in found.items() if match}

    @property
    def mode(self) -> str:
        """GFD's sharing strategy; empty before discovery."""
        return self.labels.get(STRATEGY_LABEL, "")

    @property
    def memory_mib(self) -> int:
        """The memory of one GPU; 0 before discovery."""
        return whole(self.labels.get(MEMORY_LABEL))

    @property
    def driver(self) -> str:
        """The driver's version; empty before discovery."""
        full = self.labels.get(DRIVER)
        return full or ".".join(self.labels[key] for key in DRIVER_PARTS if key in self.labels)

    @property
    def has_gpu(self) -> bool:
        """Whether NFD, the GPU operator or GFD say that there is an NVIDIA GPU."""
        if self.labels.get(GPU_PRESENT_LABEL) == "false":
            return False
        return (
            self.labels.get(GPU_PRESENT_LABEL) == "true"
            or PRODUCT_LABEL in self.labels
            or any(self.labels.get(key) == "true" for key in PCI_PRESENT_LABELS)
        )

    @property
    def discovered(self) -> bool:
        """Whether GFD has said which GPU it is."""
        return self.has_gpu and PRODUCT_LABEL in self.labels

    def tainted(self, key: str) -> bool:
        """Whether it has a taint of this key, whatever its value and effect."""
        return any(taint.get("key") == key for taint in self.taints)


def parse(raw: t.Mapping[str, t.Any]) -> Node:
    """Read a Node object as the API gives it; what is missing there is empty here."""
    metadata = raw.get("metadata") or {}
    spec = raw.get("spec") or {}
    status = raw.get("status") or {}
    conditions = {entry.get("type"): entry.get("status") for entry in status.get("conditions") or ()}
    return Node(
        name=metadata.get("name", ""),
        labels=_shared(metadata.get("labels")),
        annotations=_shared(metadata.get("annotations")),
        taints=tuple(spec.get("taints") or ()),
        allocatable=_gpu_counts(status.get("allocatable")),
        capacity=_gpu_counts(status.get("capacity")),
        resource_version=metadata.get("resourceVersion", ""),
        ready=conditions.get("Ready") == "True",
        unschedulable=bool(spec.get("unschedulable")),
        boot_id=(status.get("nodeInfo") or {}).get("bootID", ""),
        created=metadata.get("creationTimestamp") or "",
        provider_id=spec.get("providerID") or "",
        addresses=tuple(entry.get("address", "") for entry in status.get("addresses") or ()),
    )


def _shared(texts: t.Mapping[str, str] | None) -> dict[str, str]:
    """The same texts, each kept once in memory whatever the number of nodes: thousands of nodes say much the same."""
    # Not sys.intern(), which Ansible puts a function of its own in place of.
    share = _TEXTS.setdefault
    if len(_TEXTS) > _TEXTS_MOST:
        _TEXTS.clear()
    return {share(key, key): share(value, value) for key, value in (texts or {}).items()}


def whole(text: t.Any) -> int:
    """A count out of a label or a quantity; 0 where it is none."""
    try:
        return int(text)
    except (TypeError, ValueError):
        return 0


def _gpu_counts(resources: t.Mapping[str, t.Any] | None) -> dict[str, int]:
    return {name: whole(value) for name, value in (resources or {}).items() if name.startswith("nvidia.com/")}
