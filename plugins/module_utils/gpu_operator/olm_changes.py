# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Describes, for a plan, the changes to the OLM objects of an installed operator; in a run, the package olm makes these changes."""

from __future__ import annotations

import typing as t

from ..catalog.olm import API_PATH, AUTOMATIC, OLM, SUBSCRIPTION_FIELDS, V1ALPHA1
from ..cluster_state.ownership import is_created_by_collection
from ..common.nested import get_nested
from ..kube.errors import ApiError
from ..kube.metadata import is_deleting, name_of
from ..kube.object_managers import reverts_changes
from ..schema.messages import join_words

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from ..pools.plan import ComponentPlan
    from .installation import InstallationFinding

Object = dict[str, t.Any]

# The value that OLM assumes for a field that a Subscription lacks.
_DEFAULTS = {"installPlanApproval": AUTOMATIC}


def read_olm_changes(client: Client, finding: InstallationFinding) -> list[str]:
    """The changes to the Subscription and to ClusterServiceVersions; read only if a run manages an installed component through OLM."""
    planned = finding.planned
    if finding.installation is None or not finding.managed or finding.installer != OLM or planned is None:
        return []
    path = f"{API_PATH}/namespaces/{planned.namespace}"
    try:
        subscriptions = _subscriptions(client, planned.namespace)
        own = [item for item in subscriptions if item["metadata"].get("namespace") in (None, planned.namespace)]
        changes = olm_changes(planned, own, client.list_known(f"{path}/clusterserviceversions"))
        return [*changes, *_second_subscriptions(planned, subscriptions)]
    except ApiError as error:
        if not error.forbidden:
            raise
        return [
            f"you do not have permission to list OLM objects in namespace {planned.namespace}, so the changes to them are unknown"
        ]


def _subscriptions(client: Client, namespace: str) -> t.Sequence[Object]:
    """The Subscriptions of all namespaces or, without the permission to list them, of this namespace."""
    try:
        return client.list_known(f"{API_PATH}/subscriptions")
    except ApiError as error:
        if not error.forbidden:
            raise
        return client.list_known(f"{API_PATH}/namespaces/{namespace}/subscriptions")


def _second_subscriptions(planned: ComponentPlan, subscriptions: t.Iterable[Object]) -> t.Iterator[str]:
    """A sentence for each Subscription of the same package in another namespace; it may have failed, so that it has no Deployment."""
    package = planned.olm["package"] if planned.olm else ""
    for item in subscriptions:
        namespace = item["metadata"].get("namespace") or planned.namespace
        if namespace != planned.namespace and get_nested(item, "spec", "name") == package:
            yield (
                f"Subscription {namespace}/{name_of(item)} is a second one of package {package} (state "
                f"{get_nested(item, 'status', 'state') or 'unknown'}); both own the same CRDs, so delete the one that is not needed"
            )


def olm_changes(planned: ComponentPlan, subscriptions: t.Iterable[Object], csvs: t.Iterable[Object]) -> list[str]:
    """The changes, each as a part of a sentence. Fields that the plan does not set, for example the channel, keep their values."""
    olm = planned.olm
    if olm is None:
        return []
    package = olm["package"]
    live = next((item for item in subscriptions if get_nested(item, "spec", "name") == package), None)
    if live is None:
        names = sorted(name_of(csv) for csv in csvs if name_of(csv).startswith(f"{package}.") and not is_deleting(csv))
        if not names:
            return []
        return [
            f"deletes ClusterServiceVersion {join_words(names)}, which no Subscription references, and installs the operator again with a new "
            f"Subscription {planned.namespace}/{package}; the custom resources stay"
        ]
    title, spec = f"Subscription {planned.namespace}/{name_of(live)}", live.get("spec") or {}
    changes = [] if is_created_by_collection(live) else [f"manages {title}, which this collection did not create"]
    for field, option in SUBSCRIPTION_FIELDS.items():
        declared = olm[option]
        allowed = declared if isinstance(declared, list) else [declared]
        current = spec.get(field) or _DEFAULTS.get(field, "(not set)")
        if declared and current not in allowed:
            changes.append(f"{title}: {field} {current} becomes {join_words(allowed, 'or')}")
    config, desired = spec.get("config") or {}, olm["subscription_config"] or {}
    different = [key for key, value in desired.items() if not _has(config.get(key), value)]
    if different:
        changes.append(
            f"{title}: config changes ({join_words(sorted(different))}), which restarts the operator's own pods"
        )
    # The items of a list have no kind.
    reverted = reverts_changes({**live, "apiVersion": V1ALPHA1, "kind": "Subscription"}) if changes else ""
    return [*changes, *([reverted.rstrip(".")] if reverted else [])]


def _has(current: t.Any, desired: t.Any) -> bool:
    """Whether a value of spec.config contains the declared entries; maps and lists may also contain foreign entries."""
    if isinstance(desired, dict):
        return all(_has((current or {}).get(key), value) for key, value in desired.items())
    if isinstance(desired, list):
        return all(item in (current or []) for item in desired)
    return bool(current == desired)
