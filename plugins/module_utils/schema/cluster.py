# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schema of gpu_cluster, and checks that combine several of its fields."""

from __future__ import annotations

import dataclasses
import math
import typing as t

from ..catalog import releases
from ..catalog.distributions import BY_NAME
from ..catalog.olm import OLM
from ..common.nested import get_nested
from ..validation_programs.programs import PROGRAMS
from . import validators
from .autoscaler import AUTOSCALER, AUTOSCALER_CHECKS
from .driver import KERNEL_MODULE_TYPES, version_problem
from .driver_features import DRIVER_FEATURES, FEATURE_CHECKS, OPERATOR_FEATURES
from .helm import helm_fields
from .known_issues import KNOWN_ISSUES
from .lease import LEASE
from .messages import field_path, quote, type_name
from .nodegroup_checks import provider_problems
from .olm import OLM_CHECKS, installer_fields, installer_of
from .providers import PROVIDERS
from .secret_values import cluster_secret_problems
from .types import INVALID, Anything, Boolean, Choice, Document, Field, ListOf, MapOf, Problems, Section, Text

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
    fields={
        "enabled": Boolean(default=True),
        "version": Text((validators.driver_version,)),
        "kernel_module_type": Choice(known=KERNEL_MODULE_TYPES),
        "precompiled": Boolean(default=False),
        "secret_env": Text((validators.object_name,)),
        **DRIVER_FEATURES,
    }
)

_PROXY = Section(
    fields={
        "http": Text((validators.proxy_url,)),
        "https": Text((validators.proxy_url,)),
        "no_proxy": ListOf(item=Text((validators.no_proxy_entry,))),
    }
)

_OPERATOR: dict[str, Field] = {
    "registry": Text((validators.registry,)),
    "image_pull_secrets": ListOf(item=Text((validators.object_name, validators.stays_text_in_helm))),
    "driver": _DRIVER,
    "proxy": _PROXY,
    "repo_config": Text((validators.object_name,)),
    "cert_config": Text((validators.object_name,)),
    **OPERATOR_FEATURES,
}


def operator_version_problems(versions: t.Sequence[str]) -> list[str]:
    """The problems in the module option operator_versions: an incomplete version, such as v26.3, would count as the newest release."""
    return [
        f"operator_versions[{index}]: {quote(version)} {problem}"
        for index, version in enumerate(versions)
        if (problem := validators.release_version(version))
    ]


def _component(component: str, namespace: str, version: str, **more: Field) -> Section:
    # Text in place of one of these maps is probably the content of a file, which may include secrets.
    return Section(
        quotes_text=False,
        fields={
            "version": Text((validators.release_version,), default=version),
            "namespace": Text((validators.dns_label,), default=namespace),
            **helm_fields(component),
            "values": HelmValues(default={}, quotes_text=False),
            **installer_fields(component),
            **more,
        },
    )


_COMPONENTS = {
    "operator": _component("operator", releases.OPERATOR_NAMESPACE, releases.OPERATOR_VERSION, **_OPERATOR),
    "nfd": _component("nfd", releases.NFD_NAMESPACE, releases.NFD_VERSION),
}


def _image_fields() -> dict[str, Field]:
    """A field for the image of each validation program and, if the program supports it, a field for images by CUDA version."""
    image = Text((validators.image,))
    fields: dict[str, Field] = {}
    for program in PROGRAMS:
        fields[program.image] = image
        if program.images:
            fields[program.images] = MapOf(default=None, keys=(validators.cuda_version,), item=image)
    return fields


CLUSTER = Section(
    fields={
        "name": Text(
            required=True,
            missing="set it to the cluster's name in the kubeconfig, so that a run cannot change a different cluster by mistake",
        ),
        "kube_name": Text(),
        "uid": Text((validators.uid,)),
        "renamed_from": Text(),
        # If one of these could be empty, a run would use the cluster that the environment selects.
        "kubeconfig": Text((validators.kubeconfig_path,), blank_is_unset=False),
        "context": Text(blank_is_unset=False),
        "impersonate_user": Text(),
        "impersonate_groups": ListOf(),
        "lease": LEASE,
        "distribution": Choice(known=tuple(BY_NAME)),
        "known_issues": KNOWN_ISSUES,
        "cloud": Section(
            default=None,
            fields={key: Section(default=None, fields=provider.cloud_fields) for key, provider in PROVIDERS.items()},
        ),
        "autoscaler": AUTOSCALER,
        **_COMPONENTS,
        "validation": Section(
            fields={
                **_image_fields(),
                "namespace": Text((validators.dns_label,)),
            }
        ),
    }
)


def renamed_from_problems(cluster: Document) -> Problems:
    """renamed_from must differ from the current name."""
    name, previous = get_nested(cluster, "name"), get_nested(cluster, "renamed_from")
    if isinstance(name, str) and name == previous:
        yield f"gpu_cluster.renamed_from: {quote(name)} is the current name of the cluster; set the previous name, or omit it"


def helm_conversion_problems(cluster: Document) -> Problems:
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


def impersonation_problems(cluster: Document) -> Problems:
    """impersonate_groups needs impersonate_user, because Kubernetes rejects impersonated groups without a user."""
    if get_nested(cluster, "impersonate_groups") and get_nested(cluster, "impersonate_user") is None:
        yield "gpu_cluster.impersonate_user: is missing; Kubernetes impersonates groups only together with a user"


def validation_image_problems(cluster: Document) -> Problems:
    """validation.image, which applies to every node, must not be combined with images by CUDA version."""
    if get_nested(cluster, "validation", "image") and get_nested(cluster, "validation", "images"):
        yield "gpu_cluster.validation.images: has no effect with image, which is used on every node; remove one of them"


def _setting(cluster: Document, component: str, key: str) -> t.Any:
    """A setting of a component (operator, nfd), or its default."""
    value = get_nested(cluster, component, key)
    return _COMPONENTS[component].fields[key].default if value is None else value


def chart_problems(cluster: Document) -> Problems:
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


def release_name_problems(cluster: Document) -> Problems:
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


def values_owner_problems(cluster: Document) -> Problems:
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


def ineffective_driver_field_problems(cluster: Document) -> Problems:
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


def driver_version_problems(cluster: Document) -> Problems:
    """driver.version must be a branch for a precompiled driver, and a full version for any other driver, because the name of the driver's image contains it."""
    driver = get_nested(cluster, "operator", "driver")
    reason = version_problem(get_nested(driver, "version"), get_nested(driver, "precompiled"))
    if reason:
        yield f"{_PATH}.driver.version: {reason}"


def proxy_problems(cluster: Document) -> Problems:
    """no_proxy needs a proxy (http or https)."""
    proxy = get_nested(cluster, "operator", "proxy")
    if get_nested(proxy, "no_proxy") and get_nested(proxy, "http") is None and get_nested(proxy, "https") is None:
        yield f"{_PATH}.proxy.no_proxy: has no effect without http or https; set a proxy, or remove it"


def release_problems(cluster: Document) -> Problems:
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


def os_tag_problems(cluster: Document) -> Problems:
    """The driver version in the Helm values must not end with the tag of an operating system, which users often add by mistake."""
    version = get_nested(cluster, "operator", "values", "driver", "version")
    reason = validators.os_tag(version) if isinstance(version, str) else None
    if reason:
        yield f"{_PATH}.values.driver.version: {quote(version)} {reason}"


def values_map_problems(cluster: Document) -> Problems:
    """Helm values must be maps where the chart's values are maps, because this collection adds fields to some of these maps."""
    for which, maps in (("operator", releases.OPERATOR_MAPS), ("nfd", releases.NFD_MAPS)):
        paths = [*((part,) for part in maps), *((part, key) for part, keys in maps.items() for key in keys)]
        for path in paths:
            value = get_nested(cluster, which, "values", *path)
            if value is not None and value is not INVALID and not isinstance(value, dict):
                remedy = "write it as `key: value` lines, or remove it"
                yield f"gpu_cluster.{which}.values.{'.'.join(path)}: is {type_name(value)}, but the chart expects a map; {remedy}"


def cluster_policy_problems(cluster: Document) -> Problems:
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


CLUSTER_CHECKS: tuple[t.Callable[[Document], Problems], ...] = (
    helm_conversion_problems,
    renamed_from_problems,
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
)
