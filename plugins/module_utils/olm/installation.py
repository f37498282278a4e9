# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans an installation through OLM: derives the version, the objects to apply and the repairs from the observed objects and the catalogs (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..catalog.olm import AUTOMATIC
from ..cluster_state.ownership import is_created_by_collection
from ..common.nested import get_nested
from ..kube.metadata import is_deleting, name_of
from .assessment import DesiredVersion
from .failures import namespace_terminating, other_package
from .observed import FAILED, Document, Object, Observed, csv_version, installed_csv, plan_phase
from .operator_group import GroupDecision, decide_group
from .options import OlmOptions
from .package_manifest import (
    CatalogVersion,
    ChannelEntry,
    allowed_steps,
    downgrade,
    install_modes,
    is_version,
    skipped_version,
)
from .problem import OlmFailure, Problem
from .repair import Repair, repairs
from .subscription import group_body, removed_config, subscription_body
from .versions import Version


@dataclass(frozen=True)
class InstallationPlan:
    """The objects and repairs of a run. In check mode on a new cluster, the version is unknown until the catalogs can be read, so `desired` is None."""

    subscription: Object
    live: Object | None
    group: Object | None
    repairs: tuple[Repair, ...]
    desired: DesiredVersion | None
    channel: str
    source: str
    after_discovery: tuple[str, ...] = ()


def existing_subscription(observed: Observed, options: OlmOptions) -> Object | None:
    """The Subscription to manage; None if there is none. Raises OlmFailure if another Subscription uses the name or the package."""
    named = observed.subscription(options.package, options.name)
    if named is None and not options.name:
        # A new Subscription would have the name of the package.
        named = observed.subscription(options.package, options.package)
    if named is not None and get_nested(named, "spec", "name") != options.package:
        raise OlmFailure(other_package(observed.namespace, named, options.package))
    same = observed.subscription(options.package)
    if same is not None and (named is None or name_of(named) != name_of(same)):
        raise OlmFailure(_other_name(observed.namespace, same, options))
    return named


def installed_entry(observed: Observed, options: OlmOptions, live: Document | None) -> ChannelEntry | None:
    """The installed version if it is the desired one; None if it is not, so that the catalogs must be read."""
    if live is None:
        return None
    spec = live.get("spec") or {}
    if options.channel and options.channel != spec.get("channel"):
        return None
    if options.source and (
        spec.get("source") not in options.source or spec.get("sourceNamespace") != options.source_namespace
    ):
        return None
    csv = observed.csv(installed_csv(live))
    if csv is None:
        return None
    entry = ChannelEntry(name_of(csv), str(get_nested(csv, "spec", "version") or ""))
    if not options.version or is_version(entry.name, entry.version, options.package, options.version):
        return entry
    desired = ChannelEntry("", options.version.removeprefix(f"{options.package}.")).parsed
    newer = options.approval == AUTOMATIC and desired and entry.parsed and entry.parsed >= desired
    return entry if newer else None


def desired_version(observed: Observed, options: OlmOptions, live: Document | None) -> str:
    """The version to find in the catalogs: the declared version, or the version of an unfinished, lost or unreferenced installation. Empty selects the newest
    version.
    """
    if options.version:
        return options.version
    if live is None:
        unreferenced = _newest(observed.unreferenced_csvs(options.package))
        return name_of(unreferenced) if unreferenced else ""
    return installed_csv(live) or str(get_nested(live, "spec", "startingCSV") or "")


def plan_installation(
    observed: Observed, options: OlmOptions, live: Object | None, available: CatalogVersion | ChannelEntry | None
) -> InstallationPlan:
    """Plan the installation of the version that a catalog offers, or of the installed version; raises OlmFailure with the first problem."""
    if is_deleting(observed.namespace_object):
        raise OlmFailure(namespace_terminating(observed.namespace, t.cast("Document", observed.namespace_object)))
    spec = (live or {}).get("spec") or {}
    entry = available.entry if isinstance(available, CatalogVersion) else available
    needed = repairs(observed, options.package, live)
    installed = _installed(observed, options, live, needed)
    steps = frozenset({entry.name}) if entry else frozenset()
    if isinstance(available, CatalogVersion):
        version = csv_version(installed)
        if installed is not None:
            _raise(downgrade(name_of(installed), version, available.entry))
        upgrade_from = version if live is not None and not _is_repaired(installed, needed) else None
        _raise(skipped_version(available.channel, upgrade_from, available.entry))
        steps = allowed_steps(available.channel, upgrade_from, available.entry)
    group = _group(observed, options, _modes(installed, available, entry))
    _raise(group.problem)
    channel = (
        available.channel.name
        if isinstance(available, CatalogVersion)
        else options.channel or str(spec.get("channel") or "")
    )
    source = available.package.source if isinstance(available, CatalogVersion) else _source(options, spec)
    is_fresh = live is None or installed is None or _is_repaired(installed, needed) or _has_lost_csv(needed)
    starting = entry.name if entry and is_fresh else str(spec.get("startingCSV") or "")
    body = subscription_body(
        options,
        live,
        channel=channel,
        source=source,
        starting_csv=starting,
        adopts=live is None and bool(needed) and not _has_own_group(observed),
    )
    return InstallationPlan(
        subscription=body,
        live=live,
        group=group_body(options, group.name, group.targets) if group.targets is not None else None,
        repairs=tuple(needed),
        desired=_desired(options, entry, steps, spec, body, _failed_plans(observed, needed)) if entry else None,
        channel=channel,
        source=source,
        after_discovery=()
        if entry
        else ("version", *(() if channel else ("channel",)), *(() if source else ("source",))),
    )


def _has_own_group(observed: Observed) -> bool:
    """Whether the collection has created the OperatorGroup, and therefore installed the operator. The group remains when a Subscription is deleted."""
    return any(map(is_created_by_collection, observed.groups))


def _desired(
    options: OlmOptions,
    entry: ChannelEntry,
    steps: frozenset[str],
    spec: Document,
    body: Document,
    failed_plans: frozenset[str],
) -> DesiredVersion:
    after = spec.get("config") if options.subscription_config is None else body["spec"].get("config")
    return DesiredVersion(
        package=options.package,
        subscription=name_of(body),
        csv=entry.name,
        version=entry.parsed,
        steps=steps,
        additional=frozenset(options.additional_csvs),
        automatic=options.approval == AUTOMATIC,
        former_config=removed_config(spec.get("config"), after),
        failed_plans=failed_plans,
    )


def _failed_plans(observed: Observed, needed: t.Iterable[Repair]) -> frozenset[str]:
    """The failed InstallPlans if a repair makes OLM resolve the Subscription again; empty otherwise."""
    is_resolved_again = any(repair.kind == "Subscription" for repair in needed)
    return frozenset(name_of(plan) for plan in observed.plans if is_resolved_again and plan_phase(plan) == FAILED)


def _installed(
    observed: Observed, options: OlmOptions, live: Document | None, needed: t.Sequence[Repair]
) -> Object | None:
    """The ClusterServiceVersion that the Subscription has installed; otherwise, the newest one without a Subscription."""
    csv = observed.csv(installed_csv(live))
    return csv or _newest([item.item for item in needed if item.kind == "ClusterServiceVersion"])


def _newest(csvs: t.Sequence[Object]) -> Object | None:
    return max(csvs, key=lambda csv: csv_version(csv) or Version((0, 0, 0)), default=None)


def _is_repaired(installed: Document | None, needed: t.Sequence[Repair]) -> bool:
    return installed is not None and any(item.item is installed for item in needed)


def _has_lost_csv(needed: t.Sequence[Repair]) -> bool:
    return any(item.kind == "Subscription" for item in needed)


def _modes(
    installed: Document | None, available: CatalogVersion | ChannelEntry | None, entry: ChannelEntry | None
) -> frozenset[str] | None:
    if installed is not None and entry is not None and name_of(installed) == entry.name:
        return install_modes(installed.get("spec") or {})
    return available.channel.install_modes if isinstance(available, CatalogVersion) else None


def _group(observed: Observed, options: OlmOptions, modes: frozenset[str] | None) -> GroupDecision:
    return decide_group(
        observed.groups,
        options.namespace,
        modes,
        name=options.operator_group,
        default_name=options.namespace,
        targets=options.target_namespaces,
    )


def _source(options: OlmOptions, spec: Document) -> str:
    current = str(spec.get("source") or "")
    if options.source:
        return current if current in options.source else options.source[0]
    return current


def _raise(problem: Problem | None) -> None:
    if problem is not None:
        raise OlmFailure(problem)


def _other_name(namespace: str, live: Document, options: OlmOptions) -> Problem:
    return Problem(
        code="subscription_name",
        subject=f"Subscription {namespace}/{name_of(live)}",
        field="metadata.name",
        value=name_of(live),
        rule=f"It already installs package {options.package}. A second Subscription ({options.name}) would block all resolutions.",
        remedy=f"Remove the option name of the module, or set it to {name_of(live)}.",
    )
