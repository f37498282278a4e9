# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Holds OLM's objects in the namespace of one operator, and reads their statuses (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..common.nested import get_nested
from ..kube.metadata import name_of
from .versions import Version, parse_version

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]

# The label of a ClusterServiceVersion that OLM has copied from another namespace (operator-lifecycle-manager api/pkg/operators/v1alpha1).
COPIED_LABEL = "olm.copiedFrom"
SUCCEEDED, FAILED = "Succeeded", "Failed"
REQUIRES_APPROVAL, COMPLETE, INSTALLING = "RequiresApproval", "Complete", "Installing"
AT_LATEST = "AtLatestKnown"


@dataclass(frozen=True)
class Condition:
    """One condition of an object. `is_true` shows whether the status of the condition is True."""

    kind: str
    is_true: bool
    reason: str
    message: str


def conditions(item: Document | None) -> dict[str, Condition]:
    """The conditions of an object by type, because OLM changes their order. A condition's message may be empty."""
    listed = get_nested(item, "status", "conditions") or ()
    return {
        entry["type"]: Condition(
            entry["type"],
            entry.get("status") == "True",
            str(entry.get("reason") or ""),
            str(entry.get("message") or ""),
        )
        for entry in listed
        if entry.get("type")
    }


def installed_csv(subscription: Document | None) -> str:
    """The name of the ClusterServiceVersion that a Subscription has installed; empty if there is none."""
    return str(get_nested(subscription, "status", "installedCSV") or "")


def csv_phase(csv: Document | None) -> tuple[str, str, str]:
    """The phase, reason and message of a ClusterServiceVersion."""
    status = get_nested(csv, "status") or {}
    return str(status.get("phase") or ""), str(status.get("reason") or ""), str(status.get("message") or "")


def csv_version(csv: Document | None) -> Version | None:
    """The version of a ClusterServiceVersion; None if it is not known."""
    return parse_version(str(get_nested(csv, "spec", "version") or ""))


@dataclass(frozen=True)
class Observed:
    """The objects in one namespace. `catalogs` contains the CatalogSources in the namespace of the source."""

    namespace: str
    namespace_object: Object | None = None
    subscriptions: tuple[Object, ...] = ()
    groups: tuple[Object, ...] = ()
    csvs: tuple[Object, ...] = ()
    plans: tuple[Object, ...] = ()
    deployments: tuple[Object, ...] = ()
    catalogs: tuple[Object, ...] = ()

    def subscription(self, package: str, name: str = "") -> Object | None:
        """The Subscription with this name or, if no name is given, the Subscription for the package."""
        if name:
            return next((item for item in self.subscriptions if name_of(item) == name), None)
        return next((item for item in self.subscriptions if get_nested(item, "spec", "name") == package), None)

    def csv(self, name: str) -> Object | None:
        """The ClusterServiceVersion with this name."""
        return next((item for item in self.csvs if name_of(item) == name), None)

    def package_csvs(self, package: str) -> tuple[Object, ...]:
        """The ClusterServiceVersions of a package. They are recognized by OLM's label or, because OLM sets this label only later, by their names."""
        label = component_label(package, self.namespace)
        return tuple(
            item
            for item in self.csvs
            if label in (item["metadata"].get("labels") or {}) or name_of(item).startswith(f"{package}.")
        )

    def unreferenced_csvs(self, package: str) -> tuple[Object, ...]:
        """The ClusterServiceVersions of a package that no Subscription has installed or is installing."""
        referenced = {
            get_nested(item, "status", key) for item in self.subscriptions for key in ("installedCSV", "currentCSV")
        }
        replacing = {get_nested(item, "spec", "replaces") for item in self.csvs if name_of(item) in referenced}
        return tuple(item for item in self.package_csvs(package) if name_of(item) not in referenced | replacing)

    def plan_of(self, subscription: Document | None) -> Object | None:
        """The InstallPlan that a Subscription references; None if there is none."""
        name = get_nested(subscription, "status", "installPlanRef", "name")
        return next((item for item in self.plans if name_of(item) == name), None) if name else None

    def orphaned_plans(self) -> tuple[Object, ...]:
        """The InstallPlans of Subscriptions that were deleted; the garbage collector deletes them soon."""
        known = {item["metadata"].get("uid") for item in self.subscriptions}
        return tuple(plan for plan in self.plans if (owners := _owners(plan)) and not owners & known)

    def deployment(self, name: str) -> Object | None:
        """The Deployment with this name."""
        return next((item for item in self.deployments if name_of(item) == name), None)

    def catalog(self, name: str) -> Object | None:
        """The CatalogSource with this name."""
        return next((item for item in self.catalogs if name_of(item) == name), None)


def _owners(plan: Document) -> set[str]:
    references = plan["metadata"].get("ownerReferences") or ()
    return {reference["uid"] for reference in references if reference.get("kind") == "Subscription"}


def component_label(package: str, namespace: str) -> str:
    """The key of the label with which OLM marks the objects of an operator. The part after the slash has at most 63 characters (OLM's decorator)."""
    return f"operators.coreos.com/{f'{package}.{namespace}'[:63].rstrip('.-_')}"


def catalog_state(catalog: Document | None) -> str:
    """The last state of the connection to a catalog; empty if OLM has not connected to it yet."""
    return str(get_nested(catalog, "status", "connectionState", "lastObservedState") or "")


def plan_csvs(plan: Document) -> tuple[str, ...]:
    """The ClusterServiceVersions that an InstallPlan installs."""
    return tuple(get_nested(plan, "spec", "clusterServiceVersionNames") or ())


def plan_phase(plan: Document | None) -> str:
    """The phase of an InstallPlan."""
    return str(get_nested(plan, "status", "phase") or "")
