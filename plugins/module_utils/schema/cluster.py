# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster, as it is declared, with the installation of its operators."""

from __future__ import annotations

import dataclasses
import math
import re
import typing as t
from dataclasses import dataclass

from ..catalog import releases
from ..catalog.distributions import BY_NAME, CONDITIONS, MODEL_CONDITION
from ..catalog.openshift import AUTOMATIC, HELM, INSTALLERS, MANUAL, OLM, OPENSHIFT, PACKAGES, SOURCE_NAMESPACE
from ..core.messages import field_path, join_words, nearest, quote, type_name
from ..core.types import (
    INVALID,
    LEASE,
    RENAMED_FROM,
    RENAMED_FROM_HINT,
    Anything,
    Boolean,
    Choice,
    Field,
    ListOf,
    MapOf,
    Problems,
    Section,
    Text,
    cluster_secret_problems,
    is_empty,
)
from ..core.values import Object, get_nested
from . import validators
from .driver import DRIVER_FEATURES, FEATURE_CHECKS, KERNEL_MODULE_TYPES, OPERATOR_FEATURES, version_problem
from .pool import provider_problems
from .providers import AUTOSCALER, AUTOSCALER_CHECKS, PROVIDERS, vsphere_problems
from .validation_programs import PROGRAMS, PUBLIC_IMAGES

# The keys of gpu_cluster.operator and gpu_cluster.nfd that only Helm reads.

# The default release, chart and repository of each component.
_DEFAULTS = {
    "operator": (releases.OPERATOR_HELM_RELEASE, releases.OPERATOR_CHART, releases.OPERATOR_CHART_REPO),
    "nfd": (releases.NFD_HELM_RELEASE, releases.NFD_CHART, ""),
}


def helm_fields(component: str) -> dict[str, Field]:
    """The keys of a component (operator, nfd) that have no effect with OLM; each is a field of ComponentPlan, where `release` is called `name`."""
    release, chart, chart_repo = _DEFAULTS[component]
    return {
        "release": Text(
            (validators.release_name,),
            doc="Name of the release (a DNS label of at most 53 characters).",
            default=release,
        ),
        "chart": Text(
            (validators.chart,),
            doc="The chart, as a name in C(chart_repo), a URL that begins with C(oci://) or C(https://), or a path that begins with C(/), C(./), C(../) "
            "or C(~).",
            default=chart,
        ),
        "chart_repo": Text(
            (validators.chart_repo,),
            doc="URL of the Helm repository. Only allowed if C(chart) is a name.",
            default=chart_repo,
            empty=True,
        ),
    }


# The spec.config of a Subscription, which OLM applies to the operator's own pods, and the checks of its keys.
#
# Without these checks, a wrong type would be noticed only as a rejected request, or as an environment variable with a different value. The schema and the
# module olm_subscription share the checks. Source: SubscriptionConfig of operators.coreos.com/v1alpha1.

CONFIG_KEYS: dict[str, type] = {
    "affinity": dict,
    "annotations": dict,
    "env": list,
    "envFrom": list,
    "nodeSelector": dict,
    "resources": dict,
    "selector": dict,
    "tolerations": list,
    "volumeMounts": list,
    "volumes": list,
}


@dataclass(frozen=True)
class SubscriptionConfig(Anything):
    """The field `subscription_config` of the variables, a map."""

    def inner(self, value: t.Any, path: str) -> Problems:
        yield from config_problems(value, path)


def config_problems(config: t.Mapping[str, t.Any], path: str) -> Problems:
    """The problems of a spec.config, each with its path."""
    for key, value in config.items():
        kind = CONFIG_KEYS.get(key)
        if kind is None:
            near = nearest(str(key), CONFIG_KEYS)
            hint = f"; did you mean {near}?" if near else f"; known: {join_words(sorted(CONFIG_KEYS))}"
            yield f"{path}: unknown key {quote(key)}{hint}"
        elif not isinstance(value, (list if kind is list else dict)):
            kind_name = "a list" if kind is list else "a map"
            yield f"{path}.{key}: {quote(value)} is {type_name(value)}; it must be {kind_name}"
        elif isinstance(value, list) and key == "env":
            yield from _environment_problems(value, f"{path}.env")
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if not isinstance(item, dict):
                    yield f"{path}.{key}[{index}]: {quote(item)} is {type_name(item)}; it must be a map"


def _environment_problems(variables: t.Sequence[t.Any], path: str) -> Problems:
    for index, item in enumerate(variables):
        if not isinstance(item, dict) or not isinstance(item.get("name"), str) or not item["name"]:
            yield f"{path}[{index}]: must be a map with a name"
        elif "value" in item and not isinstance(item["value"], str):
            yield (
                f"{path}[{index}].value: {quote(item['value'])} is {type_name(item['value'])}; an environment variable is a string, "
                "so put it in quotes"
            )


# Defines and checks the keys of gpu_cluster.operator and gpu_cluster.nfd that determine how these are installed: with Helm or through OLM.

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
    return {
        "installer": Choice(
            doc="How it is installed. By default, V(olm) on OpenShift, otherwise V(helm).", known=INSTALLERS
        ),
        "olm": Section(
            doc="The package that OLM installs. If you set any key in this map, a run upgrades an existing Subscription for this package in "
            "C(namespace), even if another tool created it.",
            fields=olm_fields(component),
        ),
    }


def olm_fields(component: str) -> dict[str, Field]:
    """The keys of `olm`, which are options of the module olm_subscription. In the plan, a key with neither a value nor a default is None."""
    package = PACKAGES[component]
    name = Text((validators.object_name,))
    return {
        "package": Text((validators.object_name,), doc="Name of the package.", default=package.package),
        # No default: the module keeps the channel in use, or finds one that has the version.
        "channel": Text(
            (validators.object_name,),
            doc="Channel of the package. By default, a channel that contains C(version). If several channels contain this version, the current channel "
            "is preferred, followed by the package's default channel.",
        ),
        "source": ListOf(
            doc="CatalogSources in order of preference. The first CatalogSource that offers the version is used, so you can put a staging catalog first.",
            item=name,
            default=[package.source],
        ),
        "source_namespace": Text(
            (validators.dns_label,), doc="Namespace of the CatalogSources.", default=SOURCE_NAMESPACE
        ),
        "approval": Choice(
            doc="With V(Manual), a run approves the InstallPlan for C(version) and no other InstallPlan. With V(Automatic), OLM automatically installs "
            "every later version in the channel, without a run.",
            known=(MANUAL, AUTOMATIC),
            default=MANUAL,
        ),
        "catalog_image": Text(
            (validators.image,),
            doc="Index image of a catalog. A run creates the first CatalogSource in C(source) with this image. Without this key, the CatalogSource must "
            "already exist.",
        ),
        "additional_csvs": ListOf(
            doc="Names of ClusterServiceVersions that belong to other packages and that the same InstallPlan may install. OLM combines all pending "
            "changes in a namespace into one InstallPlan. A run approves this InstallPlan only if it installs nothing except these "
            "ClusterServiceVersions and those on the upgrade path to C(version).",
            item=name,
            default=None,
        ),
        "operator_group": Text(
            (validators.object_name,),
            doc="Name of the OperatorGroup that a run creates if the namespace has none. By default, the name of the namespace. An existing "
            "OperatorGroup is used unchanged.",
        ),
        # No default: an empty list means all namespaces.
        "target_namespaces": ListOf(
            doc="Namespaces that the operator watches. An empty list selects all namespaces. By default, the operator watches only its own namespace if "
            "it supports this mode, otherwise all namespaces. The run fails if an existing OperatorGroup has different namespaces.",
            item=Text((validators.dns_label,)),
            default=None,
        ),
        # No default: the module does not change spec.config.
        "subscription_config": SubscriptionConfig(
            doc="C(spec.config) of the Subscription. It applies to the pods of the package's operator itself, not to its operands. All keys that OLM supports "
            "are allowed, such as C(tolerations), C(nodeSelector), C(resources) and C(env). Without this map, the field is not changed. An empty map "
            "removes the entries that earlier runs set. OLM adds the cluster's proxy variables unless C(env) contains one of them. Secrets are not "
            "allowed."
        ),
    }


def installer_of(cluster: t.Any, component: str) -> str:
    """The installer of a component: the declared `installer`, or by default OLM on OpenShift and Helm elsewhere."""
    declared = get_nested(cluster, component, "installer")
    if isinstance(declared, str):
        return declared
    return OLM if get_nested(cluster, "distribution") == OPENSHIFT else HELM


def installer_key_problems(cluster: Object) -> Problems:
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


def catalog_source_problems(cluster: Object) -> Problems:
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


# The schema of gpu_cluster.known_issues: issues that a plan warns about, like those in the catalog (catalog/distributions.py).

_RELEASE = re.compile(r"v?[0-9]+(\.[0-9]+){0,2}", re.ASCII)


def _release(value: str) -> str | None:
    """Accepts the beginning of an operator release: its first one, two or three numbers."""
    if _RELEASE.fullmatch(value):
        return None
    return "is not the beginning of a release; use v26, v26.3 or v26.3.1"


def _condition(value: str) -> str | None:
    """Accepts a condition of the catalog, or MODEL_CONDITION followed by the beginning of a model's name."""
    if value in CONDITIONS or (value.startswith(MODEL_CONDITION) and value.removeprefix(MODEL_CONDITION).strip()):
        return None
    similar = nearest(value, CONDITIONS)
    question = f"did you mean {similar}? " if similar else ""
    return f"is not a known condition; {question}known: {', '.join(sorted(CONDITIONS))}, and model followed by the beginning of a model's name"


KNOWN_ISSUES = ListOf(
    doc="Your own known issues, in addition to those in the catalog. The playbooks C(plan) and C(site) show an issue if the operator's release is in the "
    "issue's C(releases) and the cluster meets all of the issue's C(conditions).",
    item=Section(
        fields={
            "releases": ListOf(
                doc="The operator releases that have the issue, as versions or version prefixes, such as V(v26.3). By default, all releases.",
                item=Text((_release,)),
            ),
            "conditions": ListOf(
                doc="Conditions that the cluster must meet, such as V(mig), V(rke2) or V(model H100). The page docs/catalog.md lists all conditions. By "
                "default, there are no conditions.",
                item=Text((_condition,)),
            ),
            "text": Text(
                doc="The sentence that is shown.", required=True, missing="set the sentence that a plan shows"
            ),
        }
    ),
    splits=False,
)


# The schema of gpu_cluster, and checks that combine several of its fields.

# Helm reads integers of up to 64 bits. It also converts them to floating-point numbers, which represent only integers of up to 53 bits exactly.
_MAX_INTEGER = 2**63
_MAX_HELM_INTEGER = 2**53


@dataclasses.dataclass(frozen=True)
class HelmValues(Anything):
    """Values for a chart: any map that Helm can read."""

    def inner(self, value: t.Any, path: str) -> Problems:
        """The problems in values that Helm's JSON cannot represent."""
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            at = field_path(path, key)
            reason = _unreadable(item) or (_unreadable(key) if isinstance(key, str) else None)
            if reason:
                yield f"{at}: {quote(item)} {reason}" if not isinstance(item, (dict, list)) else f"{at}: {reason}"
            elif isinstance(item, (dict, list)):
                yield from self.inner(item, at)


def _unreadable(value: t.Any) -> str | None:
    if isinstance(value, int) and abs(value) >= _MAX_INTEGER:
        return "is not a number that Helm can read (64 bits); write it as a string in quotes"
    if isinstance(value, float) and not math.isfinite(value):
        return "is not a number that Helm can read; write it as a string in quotes"
    if isinstance(value, str) and ("\x00" in value or any("\ud800" <= character <= "\udfff" for character in value)):
        return "contains a character that a YAML file cannot contain (NUL, or a lone surrogate); remove it"
    return None


_DRIVER = Section(
    doc="The driver that the operator installs.",
    fields={
        "enabled": Boolean(
            doc="Whether the operator installs the driver. Set V(false) if the driver is preinstalled on every GPU node. If it is preinstalled on only "
            "some of the nodes, keep V(true): no driver pods run on the nodes with a preinstalled driver.",
            default=True,
        ),
        "version": Text(
            (validators.driver_version,),
            doc="The bare version, such as V(580.105.08), or C(sha256:) followed by a digest. By default, the version in the chart. The operator appends "
            "the operating system of the node, so a version that already ends with an operating system is rejected.",
        ),
        "kernel_module_type": Choice(
            doc="The type of kernel modules to build. By default, the operator chooses the type. Requires operator v25.3 or later.",
            known=KERNEL_MODULE_TYPES,
        ),
        "precompiled": Boolean(
            doc='Whether images with a precompiled driver are used. If V(true), C(version) must be the driver branch, such as V("580").',
            default=False,
        ),
        "secret_env": Text(
            (validators.object_name,),
            doc="Name of the Secret whose keys become environment variables of the driver container, for example to set a proxy with a password. "
            "Requires operator v25.10 or later.",
        ),
        **DRIVER_FEATURES,
    },
)

_PROXY = Section(
    doc="The proxy through which the driver container downloads packages.",
    fields={
        "http": Text(
            (validators.proxy_url,),
            doc="The proxy for HTTP, in the form C(http://host:port). A password is not allowed, because every user who can read the ClusterPolicy could "
            "see it.",
        ),
        "https": Text((validators.proxy_url,), doc="The proxy for HTTPS, in the same form."),
        "no_proxy": ListOf(
            doc="Hosts, domains and networks that are reached without the proxy.",
            item=Text((validators.no_proxy_entry,)),
        ),
    },
)

_OPERATOR: dict[str, Field] = {
    "registry": Text(
        (validators.registry,),
        doc="The mirror (C(host[:port][/path])) from which the images of all operands, NFD and the validation pods are pulled. It must contain the "
        "images under the same paths as C(nvcr.io) and C(registry.k8s.io). If C(chart) is a file, also set C(version).",
    ),
    "image_pull_secrets": ListOf(
        doc="Names of the Secrets that are used to pull the images of all operands. The operator's namespace must contain these Secrets. With "
        "C(registry), NFD also uses them, so NFD's namespace must contain them as well.",
        item=Text((validators.object_name, validators.stays_text_in_helm)),
    ),
    "driver": _DRIVER,
    "proxy": _PROXY,
    "repo_config": Text(
        (validators.object_name,), doc="Name of the ConfigMap with the package sources of the driver container."
    ),
    "cert_config": Text(
        (validators.object_name,),
        doc="Name of the ConfigMap with the CA certificates that the driver container trusts.",
    ),
    **OPERATOR_FEATURES,
}


def operator_version_problems(versions: t.Sequence[str]) -> list[str]:
    """The problems in the module option operator_versions: an incomplete version, such as v26.3, would count as the newest release."""
    return [
        f"operator_versions[{index}]: {quote(version)} {problem}"
        for index, version in enumerate(versions)
        if (problem := validators.release_version(version))
    ]


# Text in place of one of these maps is probably the content of a file, which may include secrets, so it is not quoted.
_COMPONENTS = {
    "operator": Section(
        doc="The NVIDIA GPU operator. Its keys become Helm values, or fields of the ClusterPolicy if OLM installs the operator. A change to the driver "
        "settings restarts the driver on every GPU node, so such a change is held back until you allow it with C(gpu_operator_allow_driver_rollout).",
        quotes_text=False,
        fields={
            "version": Text(
                (validators.release_version,),
                doc="The exact version. A range is not allowed, because it would permit upgrades without notice.",
                default=releases.OPERATOR_VERSION,
            ),
            "namespace": Text(
                (validators.dns_label,),
                doc="Namespace of the release (a DNS label). If you set this key or C(release), a run also upgrades an existing release with this "
                "namespace and name that another tool installed. Releases that Argo CD or Flux manages are not upgraded. If C(installer) is V(olm), the "
                "default is V(nvidia-gpu-operator).",
                default=releases.OPERATOR_NAMESPACE,
            ),
            **helm_fields("operator"),
            "values": HelmValues(
                doc="Your Helm values, which are merged with all derived values and take precedence over them. If C(installer) is V(olm), these values "
                "are fields in C(spec) of the ClusterPolicy that a run creates. C(nfd.enabled), C(devicePlugin.config) and C(operator.cleanupCRD) are "
                "not allowed, because the collection manages them. Secrets are not allowed either.",
                default={},
                quotes_text=False,
            ),
            **installer_fields("operator"),
            **_OPERATOR,
        },
    ),
    "nfd": Section(
        doc="Node Feature Discovery.",
        quotes_text=False,
        fields={
            "version": Text(
                (validators.release_version,),
                doc="The exact version. If C(installer) is V(olm), the default is the version that the channel offers when the operator is installed.",
                default=releases.NFD_VERSION,
            ),
            "namespace": Text(
                (validators.dns_label,),
                doc="Namespace of the release (a DNS label). As with C(operator.namespace), if you set this key or C(release), a run also upgrades an "
                "existing release with this namespace and name that another tool installed. If C(installer) is V(olm), the default is V(openshift-nfd).",
                default=releases.NFD_NAMESPACE,
            ),
            **helm_fields("nfd"),
            "values": HelmValues(
                doc="Your Helm values, which are merged with the derived values and take precedence over them. If C(installer) is V(olm), these values "
                "are fields in C(spec) of the NodeFeatureDiscovery object that a run creates. Your C(worker.tolerations) are added to the tolerations of "
                "the pools. Secrets are not allowed.",
                default={},
                quotes_text=False,
            ),
            **installer_fields("nfd"),
        },
    ),
}


def _image_fields() -> dict[str, Field]:
    """A field for the image of each validation program and, if the program supports it, a field for images by CUDA version."""
    fields: dict[str, Field] = {}
    for program in PROGRAMS:
        defaults = join_words([f"V({image})" for image in program.public_images.values()])
        fields[program.image] = Text((validators.image,), doc=program.image_doc.replace(PUBLIC_IMAGES, defaults))
        if program.images:
            doc = program.images_doc.replace(PUBLIC_IMAGES, defaults)
            item = Text((validators.image,))
            fields[program.images] = MapOf(doc=doc, default=None, keys=(validators.cuda_version,), item=item)
    return fields


CLUSTER = Section(
    fields={
        "name": Text(
            doc="The name of this cluster. It must match the name of the context or cluster in the kubeconfig, and the name that is recorded in the "
            "cluster. Otherwise, the run fails before it changes anything.",
            required=True,
            missing="set it to the cluster's name in the kubeconfig, so that a run cannot change a different cluster by mistake",
        ),
        "kube_name": Text(doc="The name of the cluster in the kubeconfig, if it differs from C(name)."),
        "uid": Text(
            (validators.uid,),
            doc="The UID of the namespace C(kube-system), as shown by the playbooks C(plan), C(site) and C(export). The run fails if the cluster has a "
            "different UID.",
        ),
        # If one of these could be empty, a run would use the cluster that the environment selects.
        "kubeconfig": Text(
            (validators.kubeconfig_path,),
            doc="Path to a kubeconfig file. The path must be absolute or begin with V(~/). The content of a kubeconfig is not accepted. By default, the "
            "connection is taken from C(K8S_AUTH_*), C(KUBECONFIG) or C(~/.kube/config).",
            blank_is_unset=False,
        ),
        "context": Text(doc="The context in the kubeconfig. By default, the current context.", blank_is_unset=False),
        "impersonate_user": Text(doc="The user that all requests impersonate, including the requests that Helm sends."),
        "impersonate_groups": ListOf(
            doc="The groups that all requests impersonate, in addition to C(impersonate_user). If you set this key, C(impersonate_user) is required."
        ),
        "lease": LEASE,
        "distribution": Choice(
            doc="The Kubernetes distribution. Set this key if the cluster runs OpenShift or a distribution that ships its own containerd. With "
            "V(openshift), OLM installs NFD and the operator, by default into the namespaces C(openshift-nfd) and C(nvidia-gpu-operator). With a "
            "distribution that ships its own containerd, the container toolkit is configured for that containerd; variables in "
            "C(operator.values.toolkit.env) take precedence. Without this key, a run detects the distribution from the nodes, so the run must be able to "
            "reach the cluster. In this case, if a container toolkit is already installed and works, the toolkit's settings are kept.",
            known=tuple(BY_NAME),
        ),
        "known_issues": KNOWN_ISSUES,
        "cloud": Section(
            doc="The cloud that creates node groups for this cluster. Set exactly one of its keys. Required if a pool declares C(nodes).",
            default=None,
            fields={
                key: Section(doc=provider.doc, default=None, fields=provider.cloud_fields)
                for key, provider in PROVIDERS.items()
            },
        ),
        "autoscaler": AUTOSCALER,
        **_COMPONENTS,
        "validation": Section(
            doc="The pods that validate a pool. Every image must have a tag or a digest. If C(operator.registry) is set, the default images are pulled "
            "from it.",
            fields={
                **_image_fields(),
                "namespace": Text(
                    (validators.dns_label,),
                    doc="Namespace of the pods (a DNS label). By default, the namespace of the operator.",
                ),
            },
        ),
    },
    hints={RENAMED_FROM: RENAMED_FROM_HINT},
)


def helm_conversion_problems(cluster: Object) -> Problems:
    """Helm must not change the type of a value, or round a number. Components that OLM installs are not checked, because OLM does not use Helm."""
    for component in _COMPONENTS:
        values = get_nested(cluster, component, "values")
        if values is not INVALID and installer_of(cluster, component) != OLM:
            yield from _conversions(values, f"gpu_cluster.{component}.values")


def _conversions(value: t.Any, path: str) -> Problems:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        at = field_path(path, key)
        for text in (key, item):
            if isinstance(text, str) and (reason := validators.stays_text_in_helm(text)):
                yield f"{at}: {quote(text)} {reason}"
        if isinstance(item, int) and _MAX_HELM_INTEGER < abs(item) < _MAX_INTEGER:
            yield f"{at}: {quote(item)} has more than 53 bits, so Helm changes it; write it as a string in quotes"
        yield from _conversions(item, at)


def impersonation_problems(cluster: Object) -> Problems:
    """impersonate_groups needs impersonate_user, because Kubernetes rejects impersonated groups without a user."""
    if get_nested(cluster, "impersonate_groups") and get_nested(cluster, "impersonate_user") is None:
        yield "gpu_cluster.impersonate_user: is missing; Kubernetes impersonates groups only together with a user"


def validation_image_problems(cluster: Object) -> Problems:
    """validation.image, which applies to every node, must not be combined with images by CUDA version."""
    if get_nested(cluster, "validation", "image") and get_nested(cluster, "validation", "images"):
        yield "gpu_cluster.validation.images: has no effect with image, which is used on every node; remove one of them"


def _setting(cluster: Object, component: str, key: str) -> t.Any:
    """A setting of a component (operator, nfd), or its default."""
    value = get_nested(cluster, component, key)
    return _COMPONENTS[component].fields[key].default if value is None else value


def chart_problems(cluster: Object) -> Problems:
    """A chart that is only a name needs chart_repo; other forms of a chart must not have it."""
    for which in _COMPONENTS:
        chart, repo = _setting(cluster, which, "chart"), get_nested(cluster, which, "chart_repo")
        path = f"gpu_cluster.{which}.chart_repo"
        if not isinstance(chart, str):
            continue
        if validators.is_bare_chart(chart):
            if not _setting(cluster, which, "chart_repo"):
                yield f"{path}: is missing; the chart {quote(chart)} is only a name, so set its repository"
        elif repo and isinstance(repo, str):
            yield f"{path}: {quote(repo)} has no effect with the chart {quote(chart)}; remove it"


def release_name_problems(cluster: Object) -> Problems:
    """The operator and NFD must differ in namespace or release name, because Helm identifies a release by both."""
    operator, nfd = ([_setting(cluster, which, key) for key in ("namespace", "release")] for which in _COMPONENTS)
    if operator == nfd and INVALID not in nfd:
        yield "gpu_cluster.nfd.release: is the operator's release in the same namespace; use a different name for one of them"


# Helm values that must not be set, and the reason: each of these fields already has an owner.
_OWNED_VALUES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("operator", "nfd", "enabled"), "NFD has its own release (gpu_cluster.nfd)"),
    (("operator", "devicePlugin", "config"), "it is derived from the pools' sharing"),
    (("operator", "operator", "cleanupCRD"), "accel.gpu.uninstall deletes the CRDs that no foreign object needs"),
)


def values_owner_problems(cluster: Object) -> Problems:
    """Helm values must not set the fields that this collection sets."""
    for (which, *keys), reason in _OWNED_VALUES:
        if get_nested(cluster, which, "values", *keys) not in (None, False):
            yield f"gpu_cluster.{which}.values.{'.'.join(keys)}: cannot be set, because {reason}; remove it"


_PATH = "gpu_cluster.operator"
# The environment variables of a container. Text in place of an entry may contain the variable's value, so messages do not quote the text.
_VARIABLES = ListOf(item=Anything(quotes_text=False), quotes_text=False)
_VARIABLE_NAME = Text((validators.variable_name,), quotes_text=False)
# Only the driver's own container reads these (gpu-operator controllers/object_controls.go, transformDriverContainer).
_DRIVER_FIELDS = (
    ("driver", "version"),
    ("driver", "kernel_module_type"),
    ("driver", "secret_env"),
    ("proxy",),
    ("repo_config",),
    ("cert_config",),
)
# A precompiled driver does not use these fields, because the same function returns before it reads them.
_BUILD_FIELDS = (("driver", "secret_env"), ("repo_config",), ("cert_config",))


def ineffective_driver_field_problems(cluster: Object) -> Problems:
    """Driver fields must not be set if the driver is not installed, and build fields must not be set if it is precompiled."""
    driver = get_nested(cluster, "operator", "driver")
    if get_nested(driver, "enabled") is False:
        for keys in (*_DRIVER_FIELDS, ("driver", "precompiled")):
            if get_nested(cluster, "operator", *keys) not in (None, False):
                yield f"{_PATH}.{'.'.join(keys)}: has no effect with driver.enabled: false; remove it"
    elif get_nested(driver, "precompiled") is True:
        for keys in _BUILD_FIELDS:
            if get_nested(cluster, "operator", *keys) is not None:
                yield f"{_PATH}.{'.'.join(keys)}: has no effect with driver.precompiled: true; remove it"


def driver_version_problems(cluster: Object) -> Problems:
    """driver.version must be a branch for a precompiled driver, and a full version for any other driver, because the name of the driver's image contains it."""
    driver = get_nested(cluster, "operator", "driver")
    reason = version_problem(get_nested(driver, "version"), get_nested(driver, "precompiled"))
    if reason:
        yield f"{_PATH}.driver.version: {reason}"


def proxy_problems(cluster: Object) -> Problems:
    """no_proxy needs a proxy (http or https)."""
    proxy = get_nested(cluster, "operator", "proxy")
    if get_nested(proxy, "no_proxy") and get_nested(proxy, "http") is None and get_nested(proxy, "https") is None:
        yield f"{_PATH}.proxy.no_proxy: has no effect without http or https; set a proxy, or remove it"


def release_problems(cluster: Object) -> Problems:
    """registry needs a version if the chart is a file or an address, because the image paths depend on the release, which neither shows."""
    operator = get_nested(cluster, "operator")
    chart = get_nested(operator, "chart")
    if (
        get_nested(operator, "registry") is None
        or not isinstance(chart, str)
        or get_nested(operator, "version") is not None
    ):
        return
    if not validators.is_bare_chart(chart) and not chart.startswith("oci://"):
        remedy = "also set the version of the chart, because the image paths below registry depend on it"
        yield f"{_PATH}.version: is missing; {remedy}"


def os_tag_problems(cluster: Object) -> Problems:
    """The driver version in the Helm values must not end with the tag of an operating system, which users often add by mistake."""
    version = get_nested(cluster, "operator", "values", "driver", "version")
    reason = validators.os_tag(version) if isinstance(version, str) else None
    if reason:
        yield f"{_PATH}.values.driver.version: {quote(version)} {reason}"


def values_map_problems(cluster: Object) -> Problems:
    """Helm values must be maps where the chart's values are maps, because this collection adds fields to some of these maps."""
    for which, maps in (("operator", releases.OPERATOR_MAPS), ("nfd", releases.NFD_MAPS)):
        paths = [*((part,) for part in maps), *((part, key) for part, keys in maps.items() for key in keys)]
        for path in paths:
            value = get_nested(cluster, which, "values", *path)
            if value is not None and value is not INVALID and not isinstance(value, dict):
                remedy = "write it as `key: value` lines, or remove it"
                yield f"gpu_cluster.{which}.values.{'.'.join(path)}: is {type_name(value)}, but the chart expects a map; {remedy}"


def cluster_policy_problems(cluster: Object) -> Problems:
    """Entries of driver.env and toolkit.env need unique names, because they are merged by name. The ClusterPolicy requires strings as values."""
    for part, example in (("driver", "HTTPS_PROXY"), ("toolkit", "CONTAINERD_SOCKET")):
        variables = get_nested(cluster, "operator", "values", part, "env")
        path = f"{_PATH}.values.{part}.env"
        if variables is None or variables is INVALID:
            continue
        yield from _VARIABLES.problems(variables, path)
        names: list[t.Any] = []
        for index, entry in enumerate(variables if isinstance(variables, list) else ()):
            if not isinstance(entry, dict):
                continue
            name, value = entry.get("name"), entry.get("value")
            if name is None:
                yield f"{path}[{index}].name: is missing; write the name of the variable, as in `- name: {example}`"
            else:
                yield from _VARIABLE_NAME.problems(name, f"{path}[{index}].name")
            if name is not None and name in names:
                yield f"{path}[{index}].name: an entry above has the same name; remove one of them"
            names.append(name)
            if value is not None and not isinstance(value, str):
                yield f"{path}[{index}].value: is {type_name(value)}, not a string; write one string in quotes"


CLUSTER_CHECKS: tuple[t.Callable[[Object], Problems], ...] = (
    helm_conversion_problems,
    impersonation_problems,
    validation_image_problems,
    chart_problems,
    release_name_problems,
    values_owner_problems,
    cluster_secret_problems,
    ineffective_driver_field_problems,
    driver_version_problems,
    proxy_problems,
    release_problems,
    os_tag_problems,
    values_map_problems,
    cluster_policy_problems,
    *OLM_CHECKS,
    *AUTOSCALER_CHECKS,
    *FEATURE_CHECKS,
    provider_problems,
    vsphere_problems,
)
