# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collects the images that a plan needs: renders the charts in the same way as an installation or reads the ClusterServiceVersions of OLM's packages."""

from __future__ import annotations

import functools
import typing as t

from ..catalog.olm import API_PATH, OLM, PACKAGES_API_PATH
from ..catalog.releases import DRIVER_IMAGE
from ..common.errors import InvalidOptions
from ..common.nested import get_nested
from ..common.yaml_documents import load_all
from ..helm.cli import Helm
from ..pools.driver_spec import declared_spec, inherited_driver
from ..pools.variables import merge
from ..schema.driver import VGPU_TYPE
from ..schema.messages import join_words
from ..validation_programs.programs import PROGRAMS
from .components import (
    DRIVER,
    MissingImage,
    driver_images,
    is_precompiled,
    operator_environment,
    policy_images,
    related_images,
    workload_images,
)

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from ..pools.plan import ComponentPlan, Plan, PoolPlan

Object = dict[str, t.Any]
# Used only for charts that need a newer Kubernetes version than helm's default; every chart in the catalog supports this version.
_KUBERNETES = "v1.34.0"
_PUBLIC_DRIVER = {"repository": DRIVER_IMAGE[0], "image": DRIVER_IMAGE[1]}
_MANAGER = "vgpuManager"


class ImageCollector:
    """Collects the images of a plan by component; one collector can be used for several plans."""

    def __init__(
        self,
        helm: t.Callable[[], Helm],
        client: Client | None,
        suffixes_of: t.Callable[[PoolPlan | None, bool], t.Collection[str]],
        programs: t.Collection[str],
    ) -> None:
        """`suffixes_of` returns the suffixes of driver tags for a pool (None: for all nodes); its second argument is true for precompiled drivers.

        `programs` contains the names of the validation programs. `client` is needed only for OLM.
        """
        # The components whose images are not in a public registry.
        self.private: set[str] = set()
        self._helm, self._client, self._suffixes_of, self._programs = helm, client, suffixes_of, programs

    def images(self, plan: Plan) -> dict[str, str]:
        """All images of the plan by component; raises InvalidOptions."""
        images = self._of_olm(plan) if plan.operator.installer == OLM else self._of_charts(plan)
        for program in PROGRAMS:
            if program.name in self._programs:
                by_version = plan.validation.images.get(program.image) or {}
                images.update({f"validation/{program.name}/{version}": image for version, image in by_version.items()})
        return images

    def _of_charts(self, plan: Plan) -> dict[str, str]:
        documents = self._render(plan.operator)
        images = {f"operator/{name}": image for name, image in workload_images(documents).items()}
        policy = next((item for item in documents if item.get("kind") == "ClusterPolicy"), None)
        if policy is None:
            raise InvalidOptions(
                [f"The chart {plan.operator.chart} creates no ClusterPolicy, so its operands are unknown"]
            )
        images.update(self._operands(plan, policy, operator_environment(documents)))
        nfd = workload_images(self._render(plan.nfd))
        return {**images, **{f"nfd/{name}": image for name, image in nfd.items()}}

    def _operands(self, plan: Plan, policy: Object, environment: dict[str, str]) -> dict[str, str]:
        spec = merge(policy.get("spec") or {}, plan.policy.spec)
        try:
            images = policy_images(spec, functools.partial(self._suffixes_of, None), environment)
            self.private |= {part for part in images if part.partition("/")[0] == _MANAGER}
            for pool in plan.pools if plan.declares_drivers else ():
                images.update(self._of_pool(pool, declared_spec(pool.driver or {}, inherited_driver({"spec": spec}))))
        except MissingImage as error:
            raise InvalidOptions([f"{error}. Set it in gpu_cluster.operator.values"]) from None
        return images

    def _of_pool(self, pool: PoolPlan | None, driver: Object) -> dict[str, str]:
        """The images of a pool's driver or of the driver for all nodes."""
        part = f"{DRIVER}/{pool.name}" if pool else DRIVER
        images = driver_images(part, driver, self._suffixes_of(pool, is_precompiled(driver)))
        if driver.get("driverType") == VGPU_TYPE:
            self.private |= set(images)
        return images

    def _render(self, release: ComponentPlan) -> list[Object]:
        helm = self._helm()
        path = helm.fetch(release.chart, release.chart_repo or None, release.version or None)
        text = helm.render(path, release.name, release.namespace, release.values, lambda: _KUBERNETES)
        return [item for item in load_all(text) if isinstance(item, dict)]

    def _of_olm(self, plan: Plan) -> dict[str, str]:
        """The images of both packages by digest, and the images of the drivers that pools declare."""
        images = {}
        for name, release in (("operator", plan.operator), ("nfd", plan.nfd)):
            images.update({f"{name}/{key}": image for key, image in self._of_package(release).items()})
        inherited = inherited_driver({"spec": plan.operator.values})
        for pool in plan.pools:
            driver = declared_spec(pool.driver or {}, inherited)
            if pool.driver is not None and driver.get("version"):
                images.update(self._of_pool(pool, {**_PUBLIC_DRIVER, **driver}))
        if inherited.get("version") and not plan.declares_drivers:
            # Without a version, the operator uses the driver of its ClusterServiceVersion.
            images.update(self._of_pool(None, {**_PUBLIC_DRIVER, **inherited}))
        return images

    def _of_package(self, release: ComponentPlan) -> dict[str, str]:
        """The images of the installed ClusterServiceVersion or of the newest one in a channel of the catalog."""
        if release.olm is None or self._client is None:
            raise InvalidOptions(["The images of OLM's packages are read from the cluster; set its connection"])
        package, requested = release.olm["package"], release.version.removeprefix("v")
        csvs = self._client.list_known(f"{API_PATH}/namespaces/{release.namespace}/clusterserviceversions")
        for csv in csvs:
            version = str(get_nested(csv, "spec", "version") or "")
            if csv["metadata"]["name"].startswith(f"{package}.") and requested in ("", version):
                return related_images(csv)
        offered = []
        for manifest in self._client.list_known(f"{PACKAGES_API_PATH}/packagemanifests"):
            if manifest["metadata"]["name"] != package:
                continue
            for channel in get_nested(manifest, "status", "channels") or ():
                description = channel.get("currentCSVDesc") or {}
                offered.append(str(description.get("version") or ""))
                if requested in ("", description.get("version")):
                    return {image: image for image in description.get("relatedImages") or ()}
        known = join_words(sorted(set(filter(None, offered)))) or "none"
        raise InvalidOptions(
            [
                f"Package {package}: the images of version {requested or 'the newest one'} are not known. This version is not installed, and the catalogs "
                f"describe only the newest version in each channel ({known}). Use oc-mirror with imageset-config.yaml instead: it reads the whole catalog"
            ]
        )
