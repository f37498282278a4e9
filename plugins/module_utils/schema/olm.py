# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defines and checks the keys of gpu_cluster.operator and gpu_cluster.nfd that determine how these are installed: with Helm or through OLM."""

from __future__ import annotations

import typing as t

from ..catalog.olm import AUTOMATIC, HELM, INSTALLERS, MANUAL, OLM, OPENSHIFT, PACKAGES, SOURCE_NAMESPACE
from ..common.nested import get_nested
from ..validation_programs.programs import PROGRAMS
from . import validators
from .helm import helm_fields
from .messages import join_words, quote
from .subscription_config import SubscriptionConfig
from .types import Choice, Document, Field, ListOf, Problems, Section, Text, is_empty

# The replacement for a key that only Helm reads.
_REPLACEMENTS = {"chart": "; olm.package names the package", "chart_repo": "; olm.source names the catalog"}
_BY_OLM = "has no effect with installer: olm, the default on OpenShift"
_VALIDATION_IMAGES = join_words(dict.fromkeys(f"validation.{program.images or program.image}" for program in PROGRAMS))
_REGISTRY_REMEDY = (
    "the images are those of the ClusterServiceVersion; mirror them with an ImageDigestMirrorSet, and remove registry. The images of the validation pods "
    f"are pulled by tag: set {_VALIDATION_IMAGES}, or create an ImageTagMirrorSet"
)


def installer_fields(component: str) -> dict[str, Field]:
    """The keys `installer` and `olm` of a component (operator, nfd)."""
    return {"installer": Choice(known=INSTALLERS), "olm": Section(fields=olm_fields(component))}


def olm_fields(component: str) -> dict[str, Field]:
    """The keys of `olm`, which are options of the module olm_subscription. In the plan, a key with neither a value nor a default is None."""
    package = PACKAGES[component]
    name = Text((validators.object_name,))
    return {
        "package": Text((validators.object_name,), default=package.package),
        # No default: the module keeps the channel in use, or finds one that has the version.
        "channel": Text((validators.object_name,)),
        "source": ListOf(item=name, default=[package.source]),
        "source_namespace": Text((validators.dns_label,), default=SOURCE_NAMESPACE),
        "approval": Choice(known=(MANUAL, AUTOMATIC), default=MANUAL),
        "catalog_image": Text((validators.image,)),
        "additional_csvs": ListOf(item=name, default=None),
        "operator_group": Text((validators.object_name,)),
        # No default: an empty list means all namespaces.
        "target_namespaces": ListOf(item=Text((validators.dns_label,)), default=None),
        # No default: the module does not change spec.config.
        "subscription_config": SubscriptionConfig(),
    }


def installer_of(cluster: t.Any, component: str) -> str:
    """The installer of a component: the declared `installer`, or by default OLM on OpenShift and Helm elsewhere."""
    declared = get_nested(cluster, component, "installer")
    if isinstance(declared, str):
        return declared
    return OLM if get_nested(cluster, "distribution") == OPENSHIFT else HELM


def installer_key_problems(cluster: Document) -> Problems:
    """Keys of the other installer must not be set, because they would have no effect."""
    for component in PACKAGES:
        path = f"gpu_cluster.{component}"
        if installer_of(cluster, component) == OLM:
            for key in helm_fields(component):
                if not is_empty(get_nested(cluster, component, key)):
                    yield f"{path}.{key}: {_BY_OLM}; remove it{_REPLACEMENTS.get(key, '')}"
            if get_nested(cluster, component, "registry"):
                yield f"{path}.registry: {_BY_OLM}; {_REGISTRY_REMEDY}"
            continue
        # Without a declared distribution, the cluster may turn out to be OpenShift.
        known = get_nested(cluster, component, "installer") or get_nested(cluster, "distribution")
        if known and get_nested(cluster, component, "olm"):
            yield f"{path}.olm: has no effect with installer: helm; remove it, or set installer: olm"


def catalog_source_problems(cluster: Document) -> Problems:
    """With catalog_image, `source` must begin with a name other than the default catalog's, because a run creates a CatalogSource with this name."""
    for component in PACKAGES:
        olm = get_nested(cluster, component, "olm")
        image, source = get_nested(olm, "catalog_image"), get_nested(olm, "source")
        default = PACKAGES[component].source
        if isinstance(image, str) and (not source or (isinstance(source, list) and default in source[:1])):
            yield (
                f"gpu_cluster.{component}.olm.source: is missing; a run creates a CatalogSource for catalog_image, so set a name other than "
                f"{quote(default)}"
            )


OLM_CHECKS = (installer_key_problems, catalog_source_problems)
