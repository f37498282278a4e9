# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schema of gpu_cluster, and the checks of several of its fields together."""

from __future__ import annotations

import typing as t

from ..catalog import releases
from ..common.nested import get_nested
from . import validators
from .messages import quote
from .nodegroup_checks import cloud_is_one
from .operator import OPERATOR, OPERATOR_CHECKS, HelmValues
from .providers import PROVIDERS
from .secret_values import values_hold_no_secrets
from .types import INVALID, Document, Field, ListOf, Problems, Section, Text


def _release(namespace: str, release: str, chart: str, chart_repo: str, version: str, **more: Field) -> Section:
    # Text in place of these maps is likely to be the lines of a file, secrets among them.
    return Section(
        quotes_text=False,
        fields={
            "version": Text((validators.release_version,), default=version),
            "namespace": Text((validators.dns_label,), default=namespace),
            "release": Text((validators.release_name,), default=release),
            "chart": Text((validators.chart,), default=chart),
            "chart_repo": Text((validators.chart_repo,), default=chart_repo, empty=True),
            "values": HelmValues(default={}, quotes_text=False),
            **more,
        },
    )


_RELEASES = {
    "operator": _release(
        releases.OPERATOR_NAMESPACE,
        releases.OPERATOR_RELEASE,
        releases.OPERATOR_CHART,
        releases.OPERATOR_CHART_REPO,
        releases.OPERATOR_VERSION,
        **OPERATOR,
    ),
    "nfd": _release(releases.NFD_NAMESPACE, releases.NFD_RELEASE, releases.NFD_CHART, "", releases.NFD_VERSION),
}

CLUSTER = Section(
    fields={
        "name": Text(
            required=True,
            missing="set the cluster's name in the kubeconfig, so that a run cannot reach another cluster by mistake",
        ),
        "kube_name": Text(),
        "uid": Text((validators.uid,)),
        "renamed_from": Text(),
        # Empty, these would lead to whatever cluster the environment names.
        "kubeconfig": Text((validators.kubeconfig_path,), blank_is_unset=False),
        "context": Text(blank_is_unset=False),
        "impersonate_user": Text(),
        "impersonate_groups": ListOf(),
        "cloud": Section(
            default=None,
            fields={key: Section(default=None, fields=provider.cloud_fields) for key, provider in PROVIDERS.items()},
        ),
        **_RELEASES,
        "validation": Section(fields={"image": Text((validators.image,)), "namespace": Text((validators.dns_label,))}),
    }
)


def renamed_from_another_name(cluster: Document) -> Problems:
    """A cluster is renamed from one name to another."""
    name, previous = get_nested(cluster, "name"), get_nested(cluster, "renamed_from")
    if isinstance(name, str) and name == previous:
        yield f"gpu_cluster.renamed_from: {quote(name)} is the current name of the cluster; set the previous name, or leave it out"


def groups_have_a_user(cluster: Document) -> Problems:
    """Kubernetes refuses impersonated groups without a user."""
    if get_nested(cluster, "impersonate_groups") and get_nested(cluster, "impersonate_user") is None:
        yield "gpu_cluster.impersonate_user: is missing; Kubernetes impersonates groups only together with a user"


def _setting(cluster: Document, release: str, key: str) -> t.Any:
    """A setting of one of the releases, or its default."""
    value = get_nested(cluster, release, key)
    return _RELEASES[release].fields[key].default if value is None else value


def chart_has_a_repository(cluster: Document) -> Problems:
    """A chart's name needs a repository, and the other forms of a chart do not."""
    for which in _RELEASES:
        chart, repo = _setting(cluster, which, "chart"), get_nested(cluster, which, "chart_repo")
        path = f"gpu_cluster.{which}.chart_repo"
        if not isinstance(chart, str):
            continue
        if validators.is_bare_chart(chart):
            if not _setting(cluster, which, "chart_repo"):
                yield f"{path}: is missing; the chart {quote(chart)} is only a name, so set its repository"
        elif repo and isinstance(repo, str):
            yield f"{path}: {quote(repo)} has no effect beside the chart {quote(chart)}; remove it"


def releases_differ(cluster: Document) -> Problems:
    """Helm identifies a release by its namespace and name."""
    operator, nfd = ([_setting(cluster, which, key) for key in ("namespace", "release")] for which in _RELEASES)
    if operator == nfd and INVALID not in nfd:
        yield "gpu_cluster.nfd.release: is the operator's release in the same namespace; give one of them another name"


# Helm values that would give a field a second owner, and its owner.
_OWNED_VALUES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("operator", "nfd", "enabled"), "NFD is a release of its own (gpu_cluster.nfd)"),
    (("operator", "devicePlugin", "config"), "it follows from the pools' sharing"),
    (("operator", "operator", "cleanupCRD"), "accel.gpu.uninstall deletes the CRDs that no foreign object needs"),
)


def values_have_one_owner(cluster: Document) -> Problems:
    """A field that this collection sets is not set by Helm values, too."""
    for (which, *keys), reason in _OWNED_VALUES:
        if get_nested(cluster, which, "values", *keys) not in (None, False):
            yield f"gpu_cluster.{which}.values.{'.'.join(keys)}: cannot be set, {reason}; remove it"


CLUSTER_CHECKS: tuple[t.Callable[[Document], Problems], ...] = (
    renamed_from_another_name,
    groups_have_a_user,
    chart_has_a_repository,
    releases_differ,
    values_have_one_owner,
    values_hold_no_secrets,
    *OPERATOR_CHECKS,
    cloud_is_one,
)
