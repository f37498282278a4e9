# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Determines the names of images in a mirror and lists images in the formats of other tools (pure).

Sources: openshift/oc-mirror v2 ImageSetConfiguration, openshift/api config/v1
ImageDigestMirrorSet and ImageTagMirrorSet; their effect on nodes: openshift-docs PR 100960.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..common.errors import InvalidOptions
from ..registry.reference import InvalidReference, parse_image, pulled_name
from ..schema.messages import quote

if t.TYPE_CHECKING:
    from ..pools.plan import ComponentPlan

Object = dict[str, t.Any]

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
