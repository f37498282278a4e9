# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The images that a cluster needs, to copy them to a private registry."""

from __future__ import annotations

import functools
import json
import os
import re
import typing as t
from dataclasses import dataclass

from ..catalog.openshift import API_PATH, OLM, PACKAGES_API_PATH
from ..catalog.operands import DRIVER_MANAGER_VARIABLE, OPERANDS, OperandDefinition
from ..catalog.releases import DRIVER_IMAGE
from ..core.errors import InvalidOptions, ModuleFailure
from ..core.files import make_folder, text_of_file, write_private_file
from ..core.messages import join_words, quote
from ..core.values import Document, Object, get_nested
from ..core.waits import call_all
from ..core.yaml_text import dump, load_all
from ..pools.operator_values import declared_spec, inherited_driver
from ..registry.images import select_platforms
from ..registry.reference import DIGEST, InvalidReference, parse_image, pulled_name
from ..schema.driver import VGPU_TYPE
from ..schema.validation_programs import PROGRAMS
from ..schema.variables import merge

if t.TYPE_CHECKING:
    from ..helm.release import Helm
    from ..kube.client import Client
    from ..pools.plan import ComponentPlan, Plan, PoolPlan
    from ..registry.client import RegistryClient

# Finds the images that a cluster pulls for the GPU operator and NFD, from rendered charts, a ClusterPolicy and ClusterServiceVersions (pure).

DRIVER = "driver"
_WORKLOADS = frozenset({"Deployment", "DaemonSet", "StatefulSet", "Job", "CronJob"})


class MissingImage(ValueError):
    """The image of a part of the ClusterPolicy is missing or incomplete."""


def workload_images(documents: t.Iterable[Document]) -> dict[str, str]:
    """The images of the pods of rendered workloads, by the name of the workload and of the container. Helm hooks are included."""
    images: dict[str, str] = {}
    for item in documents:
        if item.get("kind") not in _WORKLOADS:
            continue
        spec = get_nested(item, "spec", "template", "spec") or get_nested(
            item, "spec", "jobTemplate", "spec", "template", "spec"
        )
        for container in (*((spec or {}).get("initContainers") or ()), *((spec or {}).get("containers") or ())):
            images[f"{item['metadata']['name']}/{container['name']}"] = container["image"]
    return images


def policy_images(
    spec: Document, suffixes_of: t.Callable[[bool], t.Collection[str]], environment: Document
) -> dict[str, str]:
    """The images of the operands by their part of the ClusterPolicy; drivers have one entry for each suffix, such as driver/rhel9.6.

    `suffixes_of` returns the suffixes; its argument is true for precompiled drivers, whose suffixes contain the kernel.
    `environment` contains the operator's environment variables, which set the images of the other parts.
    """
    images: dict[str, str] = {}
    for part, by_system, variable in _parts(spec):
        if part == DRIVER and get_nested(spec, "driver", "useNvidiaDriverCRD") is True:
            continue
        settings = get_nested(spec, *part.split(".")) or {}
        if by_system:
            images.update(driver_images(part, settings, suffixes_of(part == DRIVER and is_precompiled(settings))))
        else:
            image = _image(settings) or str(environment.get(variable) or "")
            if not image:
                raise MissingImage(
                    f"Neither the ClusterPolicy nor the operator's environment variables name an image for {part}"
                )
            images[part] = image
    return images


def driver_images(part: str, settings: Document, suffixes: t.Collection[str]) -> dict[str, str]:
    """The image of a driver for each operating system; an image with a digest is the same for all of them."""
    image = _image(settings)
    if not image:
        raise MissingImage(f"{part} has no repository, image or version")
    if "@" in image:
        return {part: image}
    return {f"{part}/{suffix}": f"{image}-{suffix}" for suffix in sorted(suffixes)}


def is_precompiled(settings: Document) -> bool:
    """Whether the tag of the driver's image contains the kernel."""
    return settings.get("usePrecompiled") is True


def related_images(csv: Document) -> dict[str, str]:
    """The images of a ClusterServiceVersion: its relatedImages and those of its Deployments."""
    images = {
        str(item.get("name") or item["image"]): str(item["image"])
        for item in get_nested(csv, "spec", "relatedImages") or ()
        if item.get("image")
    }
    known = set(images.values())
    for deployment in get_nested(csv, "spec", "install", "spec", "deployments") or ():
        item = {"kind": "Deployment", "metadata": {"name": deployment["name"]}, "spec": deployment.get("spec") or {}}
        images.update({name: image for name, image in workload_images([item]).items() if image not in known})
    return images


def operator_environment(documents: t.Iterable[Document]) -> dict[str, str]:
    """The environment variables of the operator's container that contain images."""
    return {
        entry["name"]: entry["value"]
        for item in documents
        if item.get("kind") == "Deployment"
        for container in get_nested(item, "spec", "template", "spec", "containers") or ()
        for entry in container.get("env") or ()
        if entry["name"].endswith("_IMAGE") and entry.get("value")
    }


def _parts(spec: Document) -> t.Iterator[tuple[str, bool, str]]:
    """Yield three values for each operand that runs.

    These are the part of the ClusterPolicy with the operand's image, whether the image's tag contains the operating system, and the operator's
    environment variable with the image.
    """
    for operand in OPERANDS:
        if _runs(spec, operand):
            yield operand.part, operand.by_system, operand.variable
            if operand.manager:
                yield f"{operand.part}.{operand.manager}", False, DRIVER_MANAGER_VARIABLE


def _runs(spec: Document, operand: OperandDefinition) -> bool:
    if operand.virtual_machines and get_nested(spec, "sandboxWorkloads", "enabled") is not True:
        return False
    if operand.runs_by_default is None:
        return True
    enabled = get_nested(spec, operand.part, "enabled")
    return operand.runs_by_default if enabled is None else enabled is True


def _image(settings: Document) -> str:
    """The image of a part as the operator composes it; empty if it is incomplete."""
    repository, image, version = (str(settings.get(key) or "") for key in ("repository", "image", "version"))
    if not version:
        # The whole reference may be in `image`.
        return image if not repository and (":" in image or "@" in image) else ""
    if not repository or not image:
        return ""
    return f"{repository}/{image}{'@' if DIGEST.fullmatch(version) else ':'}{version}"


# Determines the names of images in a mirror and lists images in the formats of other tools (pure).
#
# Sources: openshift/oc-mirror v2 ImageSetConfiguration, openshift/api config/v1
# ImageDigestMirrorSet and ImageTagMirrorSet; their effect on nodes: openshift-docs PR 100960.

# Red Hat's index images, by the name of their CatalogSource (OpenShift documentation, "Operator catalogs").
_INDEXES = {"certified-operators": "certified-operator-index", "redhat-operators": "redhat-operator-index"}
NO_DRAIN = "creating an ImageDigestMirrorSet drains no node; changing or deleting it drains and restarts all nodes"
DRAIN = "creating, changing or deleting an ImageTagMirrorSet drains and restarts all nodes, one after another"


@dataclass(frozen=True)
class MirroredImage:
    """An image that the cluster needs.

    `component` is the component that needs the image, such as operator, devicePlugin, driver/rhel9.6 or nfd/master.
    `source` is the image in the public registry. `destination` is the image in the mirror; it equals the source for an image that is not mirrored,
    such as a vGPU driver in a private registry. `upstream` is the image that is copied to the mirror, if that is not the source.
    """

    component: str
    source: str
    destination: str
    upstream: str = ""

    @property
    def copied(self) -> bool:
        """Whether the image is copied to the mirror from another registry."""
        return self.source != self.destination

    @property
    def copy_source(self) -> str:
        """The image that is copied to the mirror: the upstream image if there is one, otherwise the source."""
        return self.upstream or self.source

    @property
    def stored_as(self) -> str:
        """The destination of a copy. An image that is referenced by digest also gets a tag, because registries delete untagged images."""
        reference = parse_image(self.destination)
        if not reference.digest:
            return self.destination
        return str(reference.with_tag(reference.tag or reference.digest.replace(":", "-")))

    def platforms(self, chosen: t.Sequence[str]) -> list[str]:
        """The platforms to copy; empty for all. An image that is pulled by digest keeps all platforms, because the digest is that of their index."""
        return [] if parse_image(self.source).digest else list(chosen)

    def as_dict(self) -> dict[str, str]:
        """The image, formatted for a module's result."""
        return {"component": self.component, "source": self.source, "destination": self.destination}


def copies(images: t.Iterable[MirroredImage], platforms: t.Sequence[str] = ()) -> list[Object]:
    """The copies without duplicates, because an image that is needed by tag and digest may also be needed by digest alone."""
    by_destination = {image.stored_as: image for image in images if image.copied}
    return [
        {"source": image.copy_source, "destination": destination, "platforms": image.platforms(platforms)}
        for destination, image in by_destination.items()
    ]


def mirrored(
    requested: t.Mapping[str, str],
    public: t.Mapping[str, str],
    registry: str | None,
    upstreams: t.Mapping[str, str] | None = None,
    private: t.Collection[str] = (),
    *,
    from_hub: bool = True,
) -> list[MirroredImage]:
    """The images with their sources, without duplicates; raises InvalidOptions if a name is not valid, or if two images would have the same name in the mirror.

    `requested` and `public` contain the image of each component with and without the declared mirror. `registry` is a mirror that replaces the declared
    one, for example a mirror that the cluster does not use yet.
    `upstreams` contains registries, optionally with a folder, that are read instead of public ones. `private` contains the components whose images are
    not in a public registry; these images keep the names that the variables contain. from_hub: whether nodes pull names without a registry from Docker
    Hub.
    """
    by_destination: dict[str, MirroredImage] = {}
    problems: list[str] = []
    for component, name in requested.items():
        image, source = (pulled_name(one, from_hub=from_hub) for one in (name, public.get(component, name)))
        try:
            parse_image(image)
            parse_image(source)
        except InvalidReference as error:
            problems.append(
                f"{component}: the image {quote(name)} {error}. Nodes cannot pull it either: correct it where it is declared"
            )
            continue
        destination = image
        if registry and component not in private and not image.startswith(f"{registry}/"):
            destination = f"{registry}/{source.partition('/')[2]}"
        host, dummy, path = source.partition("/")
        upstream = f"{upstreams[host]}/{path}" if source != destination and upstreams and host in upstreams else ""
        added = MirroredImage(component, source, destination, upstream)
        known = by_destination.setdefault(destination, added)
        if _conflicts(known, added, private):
            problems.append(
                f"{destination}: {known.component} and {component} require different images with this name. Set a different repository or image for one of "
                "them, such as a different driver.image of the pool"
            )
        elif added.copied and not known.copied:
            by_destination[destination] = added
    if problems:
        raise InvalidOptions(problems)
    return list(by_destination.values())


def _conflicts(one: MirroredImage, other: MirroredImage, private: t.Collection[str]) -> bool:
    """Whether a copy would replace an image in a private registry, or an image with another source."""
    if one.source == other.source:
        return False
    return (one.copied and other.copied) or bool({one.component, other.component} & set(private))


def copy_list(images: t.Iterable[MirroredImage]) -> str:
    """One line with source and destination for each copy, for `skopeo copy`, because `skopeo sync` does not keep the folders of images."""
    pairs = {(parse_image(image.copy_source), parse_image(image.stored_as)) for image in images if image.copied}
    return "".join(sorted(f"{source.transport} {destination.transport}\n" for source, destination in pairs))


def image_set_configuration(
    images: t.Iterable[MirroredImage], packages: t.Sequence[ComponentPlan], openshift: str
) -> Object:
    """The ImageSetConfiguration of oc-mirror v2: the operators in OLM's catalogs, and all other images by name.

    `packages` contains the components that OLM installs. `openshift` is the version of OpenShift, which is the tag of Red Hat's catalogs.
    """
    mirror: Object = {}
    operators = []
    for release in packages:
        if release.olm is None:
            continue
        olm = release.olm
        package: Object = {"name": olm["package"]}
        if olm["channel"]:
            version = release.version.removeprefix("v")
            limits = {"minVersion": version, "maxVersion": version} if version else {}
            # oc-mirror refuses a package whose default channel is not among the channels.
            package["defaultChannel"] = olm["channel"]
            package["channels"] = [{"name": olm["channel"], **limits}]
        elif release.version:
            version = release.version.removeprefix("v")
            package.update(minVersion=version, maxVersion=version)
        catalog = olm["catalog_image"] or _catalog(olm["source"], openshift)
        operators.append({"catalog": catalog, "packages": [package]})
    if operators:
        mirror["operators"] = operators
    names = sorted({image.copy_source for image in images if image.copied})
    if names:
        mirror["additionalImages"] = [{"name": name} for name in names]
    return {"kind": "ImageSetConfiguration", "apiVersion": "mirror.openshift.io/v2alpha1", "mirror": mirror}


def mirror_sets(images: t.Iterable[MirroredImage]) -> list[Object]:
    """An ImageDigestMirrorSet for the images that are pulled by digest, and an ImageTagMirrorSet for those that are pulled by tag.

    The sources are the public names, because the nodes pull images by these names.
    """
    by_kind: dict[bool, dict[str, str]] = {True: {}, False: {}}
    for image in images:
        if not image.copied:
            continue
        source, destination = parse_image(image.source), parse_image(image.destination)
        by_kind[bool(source.digest)][source.name] = destination.name
    kinds = (
        (True, "ImageDigestMirrorSet", "imageDigestMirrors", NO_DRAIN),
        (False, "ImageTagMirrorSet", "imageTagMirrors", DRAIN),
    )
    return [
        {
            "apiVersion": "config.openshift.io/v1",
            "kind": kind,
            "metadata": {"name": "accel-gpu", "annotations": {"accel.gpu/impact": impact}},
            "spec": {
                field: [{"source": source, "mirrors": [mirror]} for source, mirror in sorted(by_kind[digest].items())]
            },
        }
        for digest, kind, field, impact in kinds
        if by_kind[digest]
    ]


def _catalog(sources: t.Sequence[str], openshift: str) -> str:
    """Red Hat's index image of a CatalogSource for this release of OpenShift."""
    name = next((_INDEXES[source] for source in sources if source in _INDEXES), _INDEXES["certified-operators"])
    return f"registry.redhat.io/redhat/{name}:v{'.'.join(openshift.split('.')[:2])}"


# Collects the images that a plan needs: renders the charts in the same way as an installation, or reads the ClusterServiceVersions of OLM's packages.

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


# Writes a list of images as files for skopeo, oc-mirror and OpenShift.


class FileSet:
    """The files in the folder that the user has chosen; if no folder is set, there are no files."""

    def __init__(self, folder: str | None, images: t.Sequence[MirroredImage], plan: Plan, openshift: str) -> None:
        """`openshift` is the version of OpenShift; empty for other clusters."""
        packages = [release for release in (plan.operator, plan.nfd) if release.installer == OLM]
        documents = {
            "imageset-config.yaml": [image_set_configuration(images, packages, openshift)],
            "mirror-sets.yaml": mirror_sets(images),
        }
        texts = {name: "".join(f"---\n{dump(item)}" for item in items) for name, items in documents.items()}
        self._texts = {
            os.path.join(folder, name): text
            for name, text in {"images.txt": copy_list(images), **texts}.items()
            if folder
        }

    @property
    def paths(self) -> list[str]:
        """The paths of the files."""
        return list(self._texts)

    def changes(self) -> dict[str, tuple[str | None, str]]:
        """The current and the new content of each file that differs; the current content is None for a file that does not exist."""
        changes = {}
        for path, text in self._texts.items():
            present = text_of_file(path)
            if present != text:
                changes[path] = (present, text)
        return changes

    @staticmethod
    def write(changes: t.Mapping[str, tuple[str | None, str]]) -> None:
        """Write the files that changes() has returned; raises ConnectionProblem."""
        for path, (dummy, text) in changes.items():
            make_folder(path)
            write_private_file(path, text, keep_mode=True)


# Compares the images of a mirror with the digests that a copy recorded, or with the registries from which the images were copied.

_ANY_DIGEST = re.compile(r"sha\d+:[0-9a-f]{64,}")


class IncompleteMirror(ModuleFailure):
    """Images are missing from the mirror or have an unexpected digest there."""

    code = "mirror"


def verify(
    client: RegistryClient,
    images: t.Sequence[MirroredImage],
    digests_file: str | None,
    platforms: t.Sequence[str] = (),
) -> dict[str, list[str]]:
    """The images that are missing from the mirror, those with an unexpected digest, and those whose expected digest is unknown.

    Without a `digests_file`, the expected digests are those in the registries from which the images were copied. An image that was not copied is only
    required to exist. platforms: the platforms that were copied; empty for all.
    """
    recorded = _read_digests(digests_file) if digests_file else {}

    def source_digest(image: MirroredImage) -> str | None:
        source, chosen = parse_image(image.copy_source), image.platforms(platforms)
        selected = select_platforms(client, source, chosen)[0] if chosen else None
        return selected or client.digest(source)

    def check(image: MirroredImage) -> str:
        actual = client.digest(parse_image(image.destination))
        if actual is None:
            return "missing"
        if not image.copied:
            return ""
        desired = recorded.get(image.stored_as) if digests_file else source_digest(image)
        if not desired:
            return "unrecorded"
        return "altered" if desired != actual else ""

    states = call_all([(image.destination, functools.partial(check, image)) for image in images])
    return {
        state: sorted(
            image.destination for image, image_state in zip(images, states, strict=True) if image_state == state
        )
        for state in ("missing", "altered", "unrecorded")
    }


def require_complete(result: t.Mapping[str, t.Any]) -> None:
    """Raise IncompleteMirror, with the module's result, if verify() has found any image."""
    lines = [f"{name}: is missing" for name in result["missing"]]
    lines += [f"{name}: has an unexpected digest" for name in result["altered"]]
    lines += [
        f"{name}: its expected digest is unknown, because neither digests_file nor (without digests_file) the source registry contains it"
        for name in result["unrecorded"]
    ]
    if lines:
        raise IncompleteMirror(
            "The mirror is incomplete. Run accel.gpu.mirror again:\n" + "\n".join(lines), {"image_set": result}
        )


def _read_digests(path: str) -> dict[str, str]:
    """The recorded digests by image; raises InvalidOptions."""
    try:
        with open(path, encoding="utf-8") as file:
            recorded = json.load(file)
    except OSError as error:
        raise InvalidOptions(
            [
                f"digests_file: {path} cannot be read: {error.strerror}. Run accel.gpu.mirror, which writes this file, or remove the option"
            ]
        ) from None
    except (ValueError, RecursionError):
        recorded = []
    if not isinstance(recorded, dict) or not all(_ANY_DIGEST.fullmatch(str(digest)) for digest in recorded.values()):
        raise InvalidOptions([f"digests_file: {path} contains no digests; run accel.gpu.mirror again to write it"])
    return recorded
