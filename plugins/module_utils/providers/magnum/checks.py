# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks declared groups before the first request, because Magnum accepts most invalid groups and fails later."""

from __future__ import annotations

import difflib
import functools
import typing as t

from ...nodegroups.spec import NodeGroupSpec, NodeGroupState
from ...schema.messages import abbreviate
from ...schema.providers import MAGNUM
from .client import IN_DELETION, Magnum
from .clusters import magnum_label
from .flavors import gpus_of
from .nova_glance import Glance, Nova

Object = t.Mapping[str, t.Any]

# If this label is `true`, the cloud or the image installs NVIDIA's driver, for example in CERN's clusters.
GPU_LABEL = "nvidia_gpu_enabled"
# Operating systems that Magnum's drivers support, but for which NVIDIA publishes no driver container (GPU operator,
# "Platform Support").
_WITHOUT_DRIVER = frozenset({"coreos", "debian", "fedora-atomic", "fedora-coreos", "flatcar"})
# With the driver magnum-capi-helm, Cluster API cannot scale OpenStack machines up from zero (driver_utils, get_auto_scaling).
_NO_SCALE_FROM_ZERO = "capi_helm"
_UNCHANGEABLE = ("CREATE_FAILED", IN_DELETION, "DELETE_FAILED", "DELETE_COMPLETE")
# For each quota: the unit in messages, Nova's names for the limit and the current usage, and the flavor's field with the amount per node. If the field is
# None, each node uses one unit.
_QUOTAS = (
    ("instances", "maxTotalInstances", "totalInstancesUsed", None),
    ("cores", "maxTotalCores", "totalCoresUsed", "vcpus"),
    ("MB of RAM", "maxTotalRAMSize", "totalRAMUsed", "ram"),
)


# The number of nodes that a spec adds, and their flavor.
_Growth = tuple[int, "Object | None"]


class MagnumChecks:
    """Checks the specs of one cluster. Each resource that the specs refer to is looked up at most once, and only if it is needed."""

    def __init__(self, magnum: Magnum, nova: Nova, glance: Glance, cluster: Object) -> None:
        """Store the arguments without sending a request."""
        self._magnum = magnum
        self._nova = nova
        self._glance = glance
        self._cluster = cluster
        # The names of the groups that were created together with the cluster.
        self.defaults: frozenset[str] = frozenset()

    @functools.cached_property
    def template(self) -> Object | None:
        """The cluster's template, or None if the user is not allowed to read it."""
        return self._magnum.template(str(self._cluster.get("cluster_template_id") or ""))

    def problems(self, specs: t.Sequence[tuple[NodeGroupSpec, NodeGroupState | None]]) -> list[str]:
        """An error message with a remedy for each problem of these specs. The state is None for a group that does not exist yet."""
        if self._cluster.get("status") in _UNCHANGEABLE:
            reason = f": {self._cluster['status_reason']}" if self._cluster.get("status_reason") else ""
            return [
                f"Cluster {self._cluster['name']} is {self._cluster['status']}{reason}. Its node groups cannot be changed. Delete the "
                "cluster and create it again."
            ]
        messages: list[str] = []
        growths: list[_Growth] = []
        for spec, state in specs:
            problems = [*(self._creation_problems(spec) if state is None else ()), *self._count_problems(spec, state)]
            growth = self._growth(spec, state)
            growths += [growth] if growth else []
            messages += [f"Node group {spec.name}: {problem}." for problem in problems]
        return messages + ([] if messages else list(self._quota_problems(growths)))

    def undeletable(self, name: str) -> str:
        """The error message for an attempt to delete a group that was created together with the cluster."""
        return (
            f"Node group {name} was created with cluster {self._cluster['name']}, and Magnum does not delete or replace such a group. "
            "Create an additional group and set node_count of this one to 0, or delete the cluster."
        )

    def _creation_problems(self, spec: NodeGroupSpec) -> t.Iterator[str]:
        if spec.name in self.defaults:
            yield self.undeletable(spec.name).rstrip(".")
        elif problem := MAGNUM.name_rule(spec.name):
            yield f"name: {spec.name!r} {problem}"
        flavor, problem = self._flavor(spec)
        if problem:
            yield problem
        elif flavor and not flavor.get("disk") and not self._boot_volume():
            yield (
                f"flavor {flavor['name']} has a disk of 0 GB, which Magnum rejects unless the cluster's label boot_volume_size sets the "
                "size of a boot volume; choose another flavor"
            )
        if spec.fields.get("image") is not None:
            yield from self._image_problems(str(spec.fields["image"]), flavor, spec)

    def _count_problems(self, spec: NodeGroupSpec, state: NodeGroupState | None) -> t.Iterator[str]:
        count = spec.desired_count(state.count if state else None)
        if count == 0 and (state is None or state.count) and not self._magnum.resizes_to_zero:
            yield "node_count is 0, and this Magnum does not support groups without nodes (they require microversion 1.10); declare 1 or more"
        driver = str((self.template or {}).get("driver") or "") if spec.autoscaled and spec.min_count == 0 else ""
        if _NO_SCALE_FROM_ZERO in driver:
            yield (
                "min_node_count is 0, and the cluster's driver (magnum-capi-helm) cannot scale from zero; declare min_node_count of 1 "
                "or more, or autoscaling: false"
            )

    def _flavor(self, spec: NodeGroupSpec) -> tuple[Object | None, str | None]:
        name = str(spec.fields.get("flavor") or self._cluster.get("flavor_id") or "")
        flavor = self._nova.flavor(name) if name else None
        if flavor is not None or not name:
            return flavor, None
        names = sorted(str(flavor["name"]) for flavor in self._nova.flavors)
        with_gpus = sorted(str(flavor["name"]) for flavor in self._nova.flavors if gpus_of(flavor.get("extra_specs")))
        similar = difflib.get_close_matches(name, names, n=3) or with_gpus or names
        return None, f"Nova has no flavor {name} for this project; {_available(similar)}"

    def _image_problems(self, name: str, flavor: Object | None, spec: NodeGroupSpec) -> t.Iterator[str]:
        images = self._glance.named(name)
        if len(images) > 1:
            ids = ", ".join(str(image["id"]) for image in images)
            yield f"{len(images)} images are called {name}: {ids}; specify the id"
            return
        if not images:
            names = sorted({str(image["name"]) for image in self._glance.images})
            yield f"Glance has no image {name} for this project; {_available(difflib.get_close_matches(name, names, n=3) or names)}"
            return
        image = images[0]
        if image.get("status") != "active":
            yield f"image {name} is {image.get('status')}, so no machine can start from it; choose another image"
        for key, unit in (("disk", "GB"), ("ram", "MB")):
            least = image.get(f"min_{key}") or 0
            available = flavor.get(key) if flavor else None
            if available is not None and least > available and not (key == "disk" and self._boot_volume()):
                yield f"image {name} needs {least} {unit} of {key}, and flavor {flavor['name'] if flavor else ''} has {available}"
        yield from self._system_problems(image, flavor, spec)

    def _system_problems(self, image: Object, flavor: Object | None, spec: NodeGroupSpec) -> t.Iterator[str]:
        system = str(image.get("os_distro") or "").lower()
        expected = str((self.template or {}).get("cluster_distro") or "").lower()
        if system and expected and system != expected:
            yield (
                f"image {image['name']} is {system} (os_distro), and cluster {self._cluster['name']} uses {expected}; choose an image of "
                "that system"
            )
        elif (
            system in _WITHOUT_DRIVER
            and flavor
            and gpus_of(flavor.get("extra_specs"))
            and not self._driver_is_installed(spec)
        ):
            yield (
                f"image {image['name']} is {system}, for which NVIDIA publishes no driver container, so the GPUs of flavor {flavor['name']} "
                f"would have no driver; choose an Ubuntu image, or set the label {GPU_LABEL}=true if the cloud or the image installs one"
            )

    def _driver_is_installed(self, spec: NodeGroupSpec) -> bool:
        labels = {**(self._cluster.get("labels") or {}), **(spec.fields.get("labels") or {})}
        return magnum_label(labels.get(GPU_LABEL)) == "true"

    def _boot_volume(self) -> bool:
        return str((self._cluster.get("labels") or {}).get("boot_volume_size") or "0") not in ("0", "None")

    def _growth(self, spec: NodeGroupSpec, state: NodeGroupState | None) -> _Growth | None:
        current = state.count if state else 0
        count = spec.desired_count(state.count if state else None)
        if count is None:
            # Magnum creates a group with one node by default.
            count = 1 if state is None else current
        if count <= current:
            return None
        flavor = self._nova.flavor(str(state.fields.get("flavor"))) if state else self._flavor(spec)[0]
        return count - current, flavor

    def _quota_problems(self, growths: t.Sequence[_Growth]) -> t.Iterator[str]:
        if not growths:
            return
        limits = self._nova.limits
        for unit, limit, used, field in _QUOTAS:
            most, current = limits.get(limit), limits.get(used) or 0
            needed = sum(nodes * (int((flavor or {}).get(field) or 0) if field else 1) for nodes, flavor in growths)
            # -1 is used for no limit.
            if most is not None and 0 <= most < current + needed:
                yield (
                    f"The project's quota is {most} {unit}, {current} are used, and these node groups need {needed} more. Declare fewer "
                    "nodes, delete unused resources, or ask the cloud's operator for a larger quota."
                )


def _available(names: t.Sequence[str]) -> str:
    return f"available: {abbreviate(names)}" if names else "there are none"
