# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads, watches and writes OLM's objects in one namespace."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..catalog.names import FIELD_MANAGER
from ..catalog.openshift import PACKAGES_API_PATH, V1, V1ALPHA1
from ..kube.errors import ApiError
from ..kube.fields import difference, is_deleting, name_of, same_object, shown
from ..kube.objects import NOT_CHECKED, Collection, WatchCache
from ..kube.paths import NAMESPACES
from .observed import AT_LATEST, COPIED_LABEL, Observed, Package, parse_package

if t.TYPE_CHECKING:
    from ..core.values import Object
    from ..kube.client import Client
    from ..kube.lease import Lease

T = t.TypeVar("T")

_PLURALS = {
    "Subscription": (V1ALPHA1, "subscriptions"),
    "ClusterServiceVersion": (V1ALPHA1, "clusterserviceversions"),
    "InstallPlan": (V1ALPHA1, "installplans"),
    "CatalogSource": (V1ALPHA1, "catalogsources"),
    "OperatorGroup": (V1, "operatorgroups"),
}
# The fields in which a Subscription's status records the result of a resolution.
_RESOLVED_STATUS = ("currentCSV", "installedCSV", "installPlanRef", "installplan", "state")
# The maximum number of attempts after conflicts, which occur because OLM often updates the status of a Subscription.
_ATTEMPTS = 5


@dataclass(frozen=True)
class AppliedObject:
    """The change to one object; in check mode, the predicted change."""

    label: str
    created: bool
    before: Object
    after: Object
    unchecked: str = ""


class OlmClient:
    """Accesses the objects in one namespace; in check mode, writes are dry runs. Each write first calls `before_write`, which acquires the lease once.

    `unchecked` contains a message if this user was not allowed to send dry runs; the preview then continues without the server.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        source_namespace: str,
        *,
        check: bool,
        force_conflicts: bool,
        before_write: t.Callable[[], Lease | None],
    ) -> None:
        """Store the arguments; no request is sent yet."""
        self.client = client
        self.namespace = namespace
        self._source_namespace = source_namespace
        self._check = check
        self._force_conflicts = force_conflicts
        self._before_write = before_write
        self.unchecked = ""
        self._cache = WatchCache(
            client,
            {
                "namespace": Collection(NAMESPACES, field_selector=f"metadata.name={namespace}", may_be_forbidden=True),
                # A missing permission to list these kinds is an error: if objects counted as absent, a second OperatorGroup would stop OLM, and an
                # operator would count as removed.
                "subscriptions": Collection(self.path("Subscription"), optional=True),
                "groups": Collection(self.path("OperatorGroup"), optional=True),
                # This excludes the copies that OLM creates in every namespace for operators that watch all namespaces.
                "csvs": Collection(
                    self.path("ClusterServiceVersion"), label_selector=f"!{COPIED_LABEL}", optional=True
                ),
                "plans": Collection(self.path("InstallPlan"), optional=True),
                "deployments": Collection(f"/apis/apps/v1/namespaces/{namespace}/deployments"),
                "catalogs": Collection(
                    self.path("CatalogSource", namespace=source_namespace), optional=True, may_be_forbidden=True
                ),
            },
        )

    def path(self, kind: str, name: str = "", namespace: str = "") -> str:
        """The path of all objects of a kind in the namespace, or of the object with this name."""
        api_version, plural = _PLURALS[kind]
        collection = f"/apis/{api_version}/namespaces/{namespace or self.namespace}/{plural}"
        return f"{collection}/{name}" if name else collection

    def read(self) -> Observed:
        """List all objects; raises ApiError if the user is not allowed to list OLM's objects in the namespace."""
        self._cache.read()
        return self.observed()

    def observed(self) -> Observed:
        """The objects in their last known state."""
        namespaces = self._cache.objects("namespace")
        return Observed(
            namespace=self.namespace,
            namespace_object=namespaces[0] if namespaces else None,
            subscriptions=self._cache.objects("subscriptions"),
            groups=self._cache.objects("groups"),
            csvs=self._cache.objects("csvs"),
            plans=self._cache.objects("plans"),
            deployments=self._cache.objects("deployments"),
            catalogs=self._cache.objects("catalogs"),
        )

    def has_olm(self) -> bool:
        """Whether the cluster has OLM's kinds."""
        return self._cache.is_known("subscriptions")

    def has_namespace(self) -> bool:
        """Whether the namespace exists. If the user is not allowed to list namespaces, it is assumed to exist."""
        return bool(self._cache.objects("namespace")) or not self._cache.is_known("namespace")

    def follow(self) -> None:
        """Start watching all objects."""
        self._cache.follow()

    def await_change(self, timeout: float) -> bool:
        """Wait until an object changes; False after the timeout."""
        return self._cache.await_change(timeout)

    def close(self) -> None:
        """End the watches."""
        self._cache.close()

    def packages(self, package: str) -> list[Package]:
        """The package as each catalog in the source's namespace offers it; empty if the cluster has no package server."""
        path = f"{PACKAGES_API_PATH}/namespaces/{self._source_namespace}/packagemanifests"
        try:
            manifests = list(self.client.list(path, field_selector=f"metadata.name={package}"))
        except ApiError as error:
            if not error.not_found:
                raise
            return []
        return [parse_package(manifest) for manifest in manifests]

    def take_lease(self) -> None:
        """Acquire the lease before the first write."""
        self._prepare()

    @staticmethod
    def differs(body: Object, live: Object | None) -> bool:
        """Whether an object differs from the desired content, and must therefore be written."""
        actual = {**live, "apiVersion": body["apiVersion"], "kind": body["kind"]} if live is not None else None
        return difference(actual, body, FIELD_MANAGER).changed

    def apply(self, collection: str, body: Object, live: Object | None) -> AppliedObject | None:
        """Apply the content to an object; returns None if nothing differs. `collection` is the object's collection in the cache.

        Raises a conflict if the object was changed since it was read, or, unless `force_conflicts` is set, if another manager owns a field.
        """
        metadata = body["metadata"]
        path = self.path(body["kind"], metadata["name"], metadata["namespace"])
        label = f"{body['kind']} {metadata['namespace']}/{metadata['name']}"
        actual = {**live, "apiVersion": body["apiVersion"], "kind": body["kind"]} if live is not None else None
        plan = difference(actual, body, FIELD_MANAGER)
        if not plan.changed:
            return None
        if self._check and live is None and not (self.has_namespace() and self.has_olm()):
            return AppliedObject(label, True, plan.before, plan.after)
        content = plan.patch_body
        if live is not None:
            # Lists in the body were merged with the lists that were read, so the object must not have changed since.
            version = {"resourceVersion": live["metadata"]["resourceVersion"]}
            content = {**content, "metadata": {**content["metadata"], **version}}
        result = self._write(
            lambda: self.client.apply(
                path, content, dry_run=self._check, force_conflicts=self._force_conflicts, field_validation="Strict"
            )
        )
        if result is None:
            return AppliedObject(label, live is None, plan.before, plan.after, NOT_CHECKED)
        if actual is not None and same_object(actual, result):
            return None
        if not self._check:
            self._cache.put(collection, result)
        return AppliedObject(label, live is None, plan.before, plan.after if live is None else shown(result))

    def approve(self, plan: Object) -> bool:
        """Approve the InstallPlan; returns False if it was changed or deleted after it was read."""
        version = plan["metadata"]["resourceVersion"]
        body = {"metadata": {"resourceVersion": version}, "spec": {"approved": True}}
        try:
            approved = self._patch(self.path("InstallPlan", name_of(plan)), body)
        except ApiError as error:
            if error.conflict or error.not_found:
                return False
            raise
        if approved is not None and not self._check:
            self._cache.put("plans", approved)
        return True

    def delete(self, kind: str, name: str, uid: str, namespace: str = "") -> bool:
        """Delete the object that has this UID; returns False if it no longer exists."""
        path, body = self.path(kind, name, namespace), {"preconditions": {"uid": uid}}
        try:
            return self._write(lambda: self.client.delete(path, body=body, dry_run=self._check)) is not False
        except ApiError as error:
            if error.conflict:
                return False
            raise

    def reset(self, subscription: Object, previous: str) -> bool:
        """Reset a Subscription's status, so that OLM resolves the Subscription from version `previous`, or as a new one if `previous` is empty. Returns False
        if OLM has made progress since the status was read.
        """
        path = self.path("Subscription", name_of(subscription))
        current = (subscription.get("status") or {}).get("currentCSV")
        for dummy in range(_ATTEMPTS):
            live = self.client.get(path)
            if live is None or (live.get("status") or {}).get("currentCSV") != current:
                return False
            csv = self.client.get(self.path("ClusterServiceVersion", current)) if current else None
            if csv is not None and not is_deleting(csv) and not self._check:
                return False
            body = {
                "metadata": {"resourceVersion": live["metadata"]["resourceVersion"]},
                "status": {
                    **dict.fromkeys(_RESOLVED_STATUS),
                    **_status_of(previous),
                    "conditions": _kept_conditions(live),
                },
            }
            try:
                changed = self._patch(f"{path}/status", body)
            except ApiError as error:
                if not error.conflict:
                    raise
                continue
            if changed is not None and not self._check:
                self._cache.put("subscriptions", changed)
            return True
        return False

    def resolve_again(self, subscription: Object) -> bool:
        """Remove the condition about a failed resolution, so that OLM resolves the Subscription again. Returns False if the Subscription has changed since it
        was read.
        """
        body = {
            "metadata": {"resourceVersion": subscription["metadata"]["resourceVersion"]},
            "status": {"conditions": _without_resolution_failed(subscription)},
        }
        try:
            self._patch(f"{self.path('Subscription', name_of(subscription))}/status", body)
        except ApiError as error:
            if error.conflict or error.not_found:
                return False
            raise
        return True

    def _patch(self, path: str, body: Object) -> Object | None:
        return self._write(lambda: self.client.patch(path, body, dry_run=self._check))

    def _write(self, request: t.Callable[[], T]) -> T | None:
        """Send a write request or its dry run, and return the response; None if this user is not allowed to send a dry run."""
        self._prepare()
        try:
            return request()
        except ApiError as error:
            if not (self._check and error.lacks_right):
                raise
            self.unchecked = NOT_CHECKED
            return None

    def _prepare(self) -> None:
        lease = self._before_write()
        if lease is not None:
            lease.check()


def _status_of(csv: str) -> Object:
    """The status fields of a Subscription that has installed this ClusterServiceVersion; empty if the name is empty."""
    return {"currentCSV": csv, "installedCSV": csv, "state": AT_LATEST} if csv else {}


def _kept_conditions(subscription: Object) -> list[Object]:
    """The conditions of a Subscription that a reset keeps, because they do not describe a resolution."""
    conditions = (subscription.get("status") or {}).get("conditions") or []
    return [condition for condition in conditions if condition.get("type") == "CatalogSourcesUnhealthy"]


def _without_resolution_failed(subscription: Object) -> list[Object]:
    """The conditions of a Subscription without the one about a failed resolution."""
    conditions = (subscription.get("status") or {}).get("conditions") or []
    return [condition for condition in conditions if condition.get("type") != "ResolutionFailed"]
