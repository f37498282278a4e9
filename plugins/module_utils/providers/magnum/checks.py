# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the cloud could not make of declared groups, found before anything is sent: Magnum accepts most of it, and fails later."""

from __future__ import annotations

import difflib
import functools
import typing as t
from dataclasses import dataclass

from ...nodegroups.spec import NodeGroupSpec, NodeGroupState
from . import decode
from .client import Magnum
from .flavors import gpus_of
from .nova_glance import Glance, Nova

Object = t.Mapping[str, t.Any]

# Whoever sets it says that the cloud, or the image, brings NVIDIA's driver (CERN's clusters).
GPU_LABEL = "nvidia_gpu_enabled"
# Of the systems that Magnum's drivers know, those for which NVIDIA publishes no driver container (GPU operator, "Platform Support").
_WITHOUT_DRIVER = frozenset({"coreos", "debian", "fedora-atomic", "fedora-coreos", "flatcar"})
# magnum-capi-helm: Cluster API's autoscaling of OpenStack machines has no zero (driver_utils, get_auto_scaling).
_NO_ZERO = "capi_helm"
_NEVER = ("CREATE_FAILED", "DELETE_IN_PROGRESS", "DELETE_FAILED", "DELETE_COMPLETE")


@dataclass(frozen=True)
class _Growth:
    """How many nodes of which flavor a wish adds."""

    nodes: int
    flavor: Object | None


class MagnumChecks:
    """Looks up what the wishes of one cluster depend on, each thing at most once, and only what is asked for."""

    def __init__(self, magnum: Magnum, nova: Nova, glance: Glance, cluster: Object) -> None:
        """Ask nothing yet."""
        self._magnum = magnum
        self._nova = nova
        self._glance = glance
        self._cluster = cluster
        # The groups that the cluster was made with.
        self.defaults: frozenset[str] = frozenset()

    @functools.cached_property
    def template(self) -> Object | None:
        """The cluster's template; None where it is not shown."""
        return self._magnum.template(str(self._cluster.get("cluster_template_id") or ""))

    def problems(self, wishes: t.Sequence[tuple[NodeGroupSpec, NodeGroupState | None]]) -> list[str]:
        """A line for each thing that cannot be, with the remedy; live is None where the group is to be created."""
        if self._cluster.get("status") in _NEVER:
            reason = f": {self._cluster['status_reason']}" if self._cluster.get("status_reason") else ""
            return [
                f"Cluster {self._cluster['name']} is {self._cluster['status']}{reason}. Its node groups cannot be changed; make it anew."
            ]
        found: list[str] = []
        growths: list[_Growth] = []
        for wish, live in wishes:
            told = [*(self._of_new(wish) if live is None else ()), *self._of_numbers(wish, live)]
            growth = self._growth(wish, live)
            growths += [growth] if growth else []
            found += [f"Node group {wish.name}: {problem}." for problem in told]
        return found + ([] if found else list(self._beyond_quota(growths)))

    def undeletable(self, name: str) -> str:
        """What is said of the end of a group that the cluster was made with."""
        return (
            f"Node group {name} is one that cluster {self._cluster['name']} was made with, and Magnum deletes or replaces no such group. "
            "Make another group beside it and set node_count of this one to 0, or delete the cluster."
        )

    def _of_new(self, wish: NodeGroupSpec) -> t.Iterator[str]:
        if wish.name in self.defaults:
            yield self.undeletable(wish.name).rstrip(".")
        elif problem := decode.name_problem(wish.name):
            yield f"name: {problem}"
        flavor, problem = self._flavor(wish)
        if problem:
            yield problem
        elif flavor and not flavor.get("disk") and not self._boot_volume(wish):
            yield (
                f"flavor {flavor['name']} has a disk of 0 GB, which Magnum refuses unless the cluster's label boot_volume_size says how "
                "large a volume to start from; choose another flavor"
            )
        if wish.fields.get("image") is not None:
            yield from self._of_image(str(wish.fields["image"]), flavor, wish)

    def _of_numbers(self, wish: NodeGroupSpec, live: NodeGroupState | None) -> t.Iterator[str]:
        count = wish.count_of(live.count if live else None)
        if count == 0 and (live is None or live.count) and not self._magnum.resizes_to_zero:
            yield "node_count is 0, and this Magnum has groups without nodes from microversion 1.10 on; declare 1 or more"
        if wish.autoscaled and wish.low == 0 and _NO_ZERO in str((self.template or {}).get("driver") or ""):
            yield (
                "min_node_count is 0, and the cluster's driver (magnum-capi-helm) cannot scale to zero by itself; declare "
                "min_node_count of 1 or more, or autoscaling: false"
            )

    def _flavor(self, wish: NodeGroupSpec) -> tuple[Object | None, str | None]:
        name = str(wish.fields.get("flavor") or self._cluster.get("flavor_id") or "")
        flavor = self._nova.flavor(name) if name else None
        if flavor is not None or not name:
            return flavor, None
        names = sorted(str(one["name"]) for one in self._nova.flavors)
        with_gpus = sorted(str(one["name"]) for one in self._nova.flavors if gpus_of(one.get("extra_specs")))
        near = difflib.get_close_matches(name, names, n=3) or with_gpus or names
        return None, f"Nova has no flavor {name} for this project; {_such(near, 'there are')}"

    def _of_image(self, name: str, flavor: Object | None, wish: NodeGroupSpec) -> t.Iterator[str]:
        images = self._glance.named(name)
        if len(images) != 1:
            names = sorted({str(image["name"]) for image in self._glance.images})
            near = difflib.get_close_matches(name, names, n=3) or names
            several = ", ".join(str(image["id"]) for image in images)
            yield (
                f"{len(images)} images are called {name}: {several}; name one by its id"
                if images
                else f"Glance shows this project no image {name}; {_such(near, 'there are')}"
            )
            return
        image = images[0]
        if image.get("status") != "active":
            yield f"image {name} is {image.get('status')}, so no machine can be made of it; choose another"
        for key, unit in (("disk", "GB"), ("ram", "MB")):
            least = image.get(f"min_{key}") or 0
            has = flavor.get(key) if flavor else None
            if has is not None and least > has and not (key == "disk" and self._boot_volume(wish)):
                yield f"image {name} needs {least} {unit} of {key}, and flavor {flavor['name'] if flavor else ''} has {has}"
        yield from self._of_system(image, flavor, wish)

    def _of_system(self, image: Object, flavor: Object | None, wish: NodeGroupSpec) -> t.Iterator[str]:
        system = str(image.get("os_distro") or "").lower()
        wanted = str((self.template or {}).get("cluster_distro") or "").lower()
        if system and wanted and system != wanted:
            yield (
                f"image {image['name']} is {system} (os_distro), and the machines of cluster {self._cluster['name']} are {wanted}; "
                "choose an image of that system"
            )
        elif (
            system in _WITHOUT_DRIVER
            and flavor
            and gpus_of(flavor.get("extra_specs"))
            and not self._brings_driver(wish)
        ):
            yield (
                f"image {image['name']} is {system}, for which NVIDIA publishes no driver container, so the GPUs of flavor {flavor['name']} "
                f"would stay without a driver; choose an image of ubuntu, or say by the label {GPU_LABEL}=true that cloud or image bring one"
            )

    def _brings_driver(self, wish: NodeGroupSpec) -> bool:
        labels = {**(self._cluster.get("labels") or {}), **(wish.fields.get("labels") or {})}
        return decode.label_value(labels.get(GPU_LABEL)) == "true"

    def _boot_volume(self, wish: NodeGroupSpec) -> bool:
        return str((self._cluster.get("labels") or {}).get("boot_volume_size") or "0") not in ("0", "None")

    def _growth(self, wish: NodeGroupSpec, live: NodeGroupState | None) -> _Growth | None:
        now = live.count if live else 0
        count = wish.count_of(live.count if live else None)
        # Magnum makes one node unless it is told.
        nodes = (1 if live is None else now) if count is None else count
        if nodes <= now:
            return None
        flavor = self._nova.flavor(str(live.fields.get("flavor"))) if live else self._flavor(wish)[0]
        return _Growth(nodes - now, flavor)

    def _beyond_quota(self, growths: t.Sequence[_Growth]) -> t.Iterator[str]:
        if not growths:
            return
        limits = self._nova.limits
        for word, total, used, each in (
            ("instances", "maxTotalInstances", "totalInstancesUsed", None),
            ("cores", "maxTotalCores", "totalCoresUsed", "vcpus"),
            ("MB of RAM", "maxTotalRAMSize", "totalRAMUsed", "ram"),
        ):
            most, has = limits.get(total), limits.get(used) or 0
            needed = sum(
                growth.nodes * (int((growth.flavor or {}).get(each) or 0) if each else 1) for growth in growths
            )
            # -1 is no limit.
            if most is not None and 0 <= most < has + needed:
                yield (
                    f"The project's quota is {most} {word}, {has} are used, and these node groups need {needed} more. Declare fewer nodes, "
                    "delete what is not needed, or ask the cloud's operator for a larger quota."
                )


def _such(names: t.Sequence[str], words: str) -> str:
    return f"{words} {', '.join(names[:8])}" if names else "it has none"
