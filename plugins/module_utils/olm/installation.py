# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One step of an installation by OLM: options, Subscription, repairs, catalogs."""

from __future__ import annotations

import datetime
import json
import time
import typing as t
from dataclasses import dataclass, field, fields

from ..catalog.names import CREATED_ANNOTATION, FIELD_MANAGER, SUBSCRIPTION_CONFIG_ANNOTATION
from ..catalog.openshift import AUTOMATIC, MANUAL, SOURCE_NAMESPACE, SUBSCRIPTION_FIELDS, V1, V1ALPHA1
from ..core.errors import InvalidOptions
from ..core.messages import join_words, quote
from ..core.values import Document, Object, get_nested, parse_json
from ..core.waits import StateTimer
from ..kube.fields import Tree, child, is_created_by_collection, is_deleting, name_of, owned_by
from ..schema.cluster import config_problems
from ..schema.validators import dns_label, image, matches, object_name
from .assessment import (
    PLAN_NOT_FOUND,
    DesiredVersion,
    catalog_missing,
    catalog_unreachable,
    foreign_catalog,
    namespace_terminating,
    other_package,
)
from .observed import (
    COMPLETE,
    FAILED,
    SUCCEEDED,
    CatalogVersion,
    ChannelEntry,
    GroupDecision,
    Observed,
    OlmFailure,
    Problem,
    Version,
    allowed_steps,
    catalog_state,
    choose_version,
    conditions,
    csv_phase,
    csv_version,
    decide_group,
    downgrade,
    install_modes,
    installed_csv,
    is_version,
    plan_csvs,
    plan_phase,
    skipped_version,
)

if t.TYPE_CHECKING:
    from ..core.module import ArgumentSpec
    from ..core.types import Rule
    from ..core.waits import Progress
    from .client import AppliedObject, OlmClient

# Defines the options of an installation through OLM, and checks their values (pure).

_VERSION = matches(
    r"[A-Za-z0-9][A-Za-z0-9.+_-]*", "is not a version; use the form v25.10.1, or the name of a ClusterServiceVersion"
)
_CHANNEL = matches(r"[A-Za-z0-9][A-Za-z0-9._-]*", "is not a channel name")
_NAMES: t.Mapping[str, t.Any] = {"type": "list", "elements": "str"}


def _option(rule: Rule | None = None, **spec: t.Any) -> dict[str, t.Any]:
    """The metadata of a field: the argument spec of the option (by default of type str), and the rule for the value or for each item of a list."""
    return {"spec": {"type": "str", **spec}, "rule": rule}


@dataclass(frozen=True)
class OlmOptions:
    """The options of the module; to add one, add a field with a default. An empty string means that an option is not set."""

    namespace: str = field(metadata=_option(dns_label, required=True))
    package: str = field(metadata=_option(object_name, required=True))
    name: str = field(default="", metadata=_option(object_name))
    version: str = field(default="", metadata=_option(_VERSION, aliases=["starting_csv"]))
    channel: str = field(default="", metadata=_option(_CHANNEL))
    source: tuple[str, ...] = field(default=(), metadata=_option(object_name, **_NAMES, default=[]))
    source_namespace: str = field(default=SOURCE_NAMESPACE, metadata=_option(dns_label, default=SOURCE_NAMESPACE))
    catalog_image: str = field(default="", metadata=_option(image))
    approval: str = field(default=MANUAL, metadata=_option(choices=[MANUAL, AUTOMATIC], default=MANUAL))
    additional_csvs: tuple[str, ...] = field(default=(), metadata=_option(**_NAMES, default=[]))
    operator_group: str = field(default="", metadata=_option(object_name))
    # If this is None, the install modes determine the namespaces.
    target_namespaces: tuple[str, ...] | None = field(default=None, metadata=_option(dns_label, **_NAMES))
    # If this is None, spec.config is not changed.
    subscription_config: t.Mapping[str, t.Any] | None = field(default=None, metadata=_option(type="dict"))

    @classmethod
    def from_params(cls, params: t.Mapping[str, t.Any]) -> OlmOptions:
        """Create the object from the module's options; raises InvalidOptions with all problems."""
        given = {name: params[name] for name in OLM_OPTIONS if params[name] is not None}
        values: dict[str, t.Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in given.items()
        }
        options = cls(**values)
        problems = list(option_problems(options))
        if problems:
            raise InvalidOptions(problems)
        return options


OLM_OPTIONS: ArgumentSpec = {item.name: item.metadata["spec"] for item in fields(OlmOptions)}


def option_problems(options: OlmOptions) -> t.Iterator[str]:
    """The problems with the values; each begins with the name of the option."""
    for item in fields(options):
        value, rule = getattr(options, item.name), item.metadata["rule"]
        # Defaults need no check; an empty string as the default means that the option is not set.
        if rule is None or value == item.default:
            continue
        is_list = isinstance(value, tuple)
        texts = {f"{item.name}[{index}]": text for index, text in enumerate(value)} if is_list else {item.name: value}
        for option, text in texts.items():
            problem = rule(text)
            if problem:
                yield f"{option}: {quote(text)} {problem}"
    if len(set(options.source)) < len(options.source):
        yield f"source: {join_words(options.source)} contains the same name twice"
    if options.catalog_image and not options.source:
        yield "catalog_image: requires source, the name of the CatalogSource to create"
    yield from config_problems(options.subscription_config or {}, "subscription_config")


# Builds the objects that are applied: Subscription, OperatorGroup and CatalogSource (pure).
#
# The lists of a Subscription's spec.config are atomic in the CRD, so the collection's entries are merged with the foreign ones. An annotation records
# the collection's entries, and only these entries are removed later.

# The field that identifies an entry in a list of spec.config; the entries of other lists are compared as a whole.
_IDENTITY = {"env": "name", "volumes": "name", "volumeMounts": "mountPath"}


def subscription_body(
    options: OlmOptions,
    live: Document | None,
    *,
    channel: str,
    source: str,
    starting_csv: str,
    adopts: bool = False,
) -> Object:
    """The Subscription to apply. `live` is the existing Subscription, if any. Empty values for channel, source and startingCSV are omitted.

    adopts: whether a new Subscription replaces the one of a foreign installation. The new Subscription is then not marked as created, so that an
    uninstallation keeps it.
    """
    declared = {field: getattr(options, option) for field, option in SUBSCRIPTION_FIELDS.items()}
    fields = {**declared, "channel": channel, "source": source, "startingCSV": starting_csv}
    content: Object = {field: value for field, value in fields.items() if value}
    annotations = {} if adopts else _created(live)
    config, owned = _config(options.subscription_config, live)
    if config:
        content["config"] = config
    if owned:
        annotations[SUBSCRIPTION_CONFIG_ANNOTATION] = json.dumps(owned, sort_keys=True)
    name = name_of(live) if live is not None else options.name or options.package
    return _object(V1ALPHA1, "Subscription", name, options.namespace, annotations, content)


def group_body(options: OlmOptions, name: str, targets: t.Sequence[str]) -> Object:
    """The OperatorGroup to create; if `targets` is empty, the group selects all namespaces."""
    content: Object = {"targetNamespaces": list(targets)} if targets else {}
    return _object(V1, "OperatorGroup", name, options.namespace, _created(None), content)


def catalog_body(options: OlmOptions, live: Document | None) -> Object:
    """The CatalogSource for the catalog image. Its security context is restricted, which works in every namespace of OpenShift 4.12 and later."""
    name = options.source[0]
    content = {
        "sourceType": "grpc",
        "image": options.catalog_image,
        "displayName": name,
        "grpcPodConfig": {"securityContextConfig": "restricted"},
    }
    return _object(V1ALPHA1, "CatalogSource", name, options.source_namespace, _created(live), content)


def merge_list(
    key: str, current: t.Sequence[t.Any], recorded: t.Sequence[t.Any], desired: t.Sequence[t.Any]
) -> tuple[list[t.Any], list[t.Any]]:
    """The list to write, and the collection's entries in it. Foreign entries keep their order; an entry equal to a foreign one remains foreign."""
    by_identity = {_identity(key, item): item for item in desired}
    own = {_identity(key, item) for item in recorded}
    merged: list[t.Any] = []
    owned: list[t.Any] = []
    for item in current:
        identity = _identity(key, item)
        replacement = by_identity.pop(identity, None)
        if replacement is None:
            if identity not in own:
                merged.append(item)
            continue
        merged.append(replacement)
        if identity in own or replacement != item:
            owned.append(replacement)
    return [*merged, *by_identity.values()], [*owned, *by_identity.values()]


def removed_config(before: Document | None, after: Document | None) -> Object:
    """The tolerations and nodeSelector entries that are removed from spec.config. A later check verifies that Deployments no longer have them."""
    old, new = before or {}, after or {}
    tolerations = [item for item in old.get("tolerations") or () if item not in (new.get("tolerations") or ())]
    selector = {
        key: value
        for key, value in (old.get("nodeSelector") or {}).items()
        if (new.get("nodeSelector") or {}).get(key) != value
    }
    return {"tolerations": tolerations, "nodeSelector": selector}


def _config(desired: t.Mapping[str, t.Any] | None, live: Document | None) -> tuple[Object, Object]:
    """The content of spec.config to apply, and the collection's list entries to record."""
    current = get_nested(live, "spec", "config") or {}
    recorded = recorded_entries(live)
    applied = child(child(owned_by(live, FIELD_MANAGER), "spec"), "config") if live else {}
    if desired is None:
        return owned_part(current, applied), recorded
    config: Object = {key: value for key, value in desired.items() if not isinstance(value, list)}
    owned: Object = {}
    lists = {key for key, value in desired.items() if isinstance(value, list)} | recorded.keys()
    lists |= {key for key in current if isinstance(current[key], list) and f"f:{key}" in applied}
    for key in sorted(lists):
        merged, own = merge_list(key, current.get(key) or [], recorded.get(key) or [], desired.get(key) or [])
        if merged and (merged != current.get(key) or f"f:{key}" in applied):
            config[key] = merged
        if own:
            owned[key] = own
    return config, owned


def recorded_entries(live: Document | None) -> Object:
    """The collection's entries in the lists of spec.config, by the name of the list."""
    text = get_nested(live, "metadata", "annotations", SUBSCRIPTION_CONFIG_ANNOTATION) if live else None
    entries = parse_json(text, dict) or {}
    return {key: value for key, value in entries.items() if isinstance(value, list)}


def owned_part(value: t.Any, applied: Tree) -> t.Any:
    """The part of a value that the collection has applied."""
    below = [entry for entry in applied if entry.startswith("f:")]
    if not isinstance(value, dict) or not below:
        return value if applied or not isinstance(value, dict) else {}
    return {
        entry[2:]: owned_part(value[entry[2:]], applied[entry] or {".": {}}) for entry in below if entry[2:] in value
    }


def _identity(key: str, item: t.Any) -> str:
    field = _IDENTITY.get(key)
    if field and isinstance(item, dict) and field in item:
        return str(item[field])
    return json.dumps(item, sort_keys=True, default=str)


def _created(live: Document | None) -> Object:
    return {CREATED_ANNOTATION: "true"} if live is None or is_created_by_collection(live) else {}


def _object(api_version: str, kind: str, name: str, namespace: str, annotations: Object, spec: Object) -> Object:
    metadata: Object = {"name": name, "namespace": namespace}
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


# Recognizes states from which OLM does not recover automatically, and plans their repairs (pure).
#
# Repairs remove only what OLM creates again: ClusterServiceVersions that no Subscription references or that never ran, and the status of a
# Subscription whose ClusterServiceVersion is gone. Custom resources and their CRDs are kept. If the ClusterServiceVersion is gone, deleting the
# InstallPlan would not help, because OLM then only compares the conditions, and keeps its reference to the plan (operator-lifecycle-manager
# pkg/controller/operators/catalog/subscription/state.go, InstallPlanNotFound).


@dataclass(frozen=True)
class Repair:
    """An object to delete, or a Subscription whose status must be reset, and the reason for this."""

    kind: str
    item: Object
    reason: str
    # The ClusterServiceVersion that the reset status shows as installed; empty if there is none.
    previous: str = ""

    @property
    def name(self) -> str:
        """The name of the object."""
        return name_of(self.item)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.reason}"


def repairs(observed: Observed, package: str, subscription: Object | None) -> list[Repair]:
    """The required repairs, in the order in which they must be made."""
    needed = [
        Repair(
            "ClusterServiceVersion",
            csv,
            "no Subscription references it, and it prevents OLM from installing the package",
        )
        for csv in observed.unreferenced_csvs(package)
        if not is_deleting(csv) and csv_phase(csv)[0] not in ("Replacing", "Deleting")
    ]
    if subscription is None:
        return needed
    plan = observed.plan_of(subscription)
    current = str(get_nested(subscription, "status", "currentCSV") or "")
    if plan is not None and plan_phase(plan) == FAILED and _has_unfinished(observed, plan):
        reason = f"its InstallPlan {name_of(plan)} has failed, and OLM does not retry it"
        csvs = [csv for name in plan_csvs(plan) if (csv := observed.csv(name)) and csv_phase(csv)[0] != SUCCEEDED]
        needed += [Repair("ClusterServiceVersion", csv, reason) for csv in csvs if not is_deleting(csv)]
        previous = previous_csv(observed, package, plan_csvs(plan))
        needed.append(Repair("Subscription", subscription, f"InstallPlan {name_of(plan)} has failed", previous))
    elif plan is None and looks_for_deleted_plan(subscription):
        needed.append(Repair("Subscription", subscription, "OLM needs an InstallPlan that was deleted"))
    elif is_lost(current, observed.csv(current), plan, subscription):
        reason = f"ClusterServiceVersion {current} was deleted, and OLM does not install it again"
        needed.append(Repair("Subscription", subscription, reason, previous_csv(observed, package, (current,))))
    return needed


def previous_csv(observed: Observed, package: str, lost: t.Collection[str]) -> str:
    """The package's ClusterServiceVersion that the upgrade to the `lost` ones has not replaced yet; empty unless there is exactly one."""
    remaining = [csv for csv in observed.package_csvs(package) if name_of(csv) not in lost and not is_deleting(csv)]
    return name_of(remaining[0]) if len(remaining) == 1 else ""


def looks_for_deleted_plan(subscription: Document) -> bool:
    """Whether OLM has stopped because the InstallPlan of a deleted Subscription is gone. OLM continues only after the Subscription has changed."""
    condition = conditions(subscription).get("BundleUnpackFailed")
    return condition is not None and condition.is_true and condition.reason == PLAN_NOT_FOUND


def is_resolution_prevented(subscription: Document) -> bool:
    """Whether OLM could not read a catalog. After a few attempts, OLM does not retry, even if the catalog of another package becomes available."""
    condition = conditions(subscription).get("ResolutionFailed")
    return condition is not None and condition.is_true and condition.reason == "ErrorPreventedResolution"


def references_deleted_plan(observed: Observed, subscription: Document) -> bool:
    """Whether a Subscription references an InstallPlan and a ClusterServiceVersion, neither of which exists.

    If the status was reset or the InstallPlan was deleted while OLM processed the Subscription, OLM writes the reference again from its cache. OLM then
    creates no other InstallPlan ("skipping update: installplan already created").
    """
    if not get_nested(subscription, "status", "installPlanRef") or observed.plan_of(subscription) is not None:
        return False
    return observed.csv(str(get_nested(subscription, "status", "currentCSV") or "")) is None


def is_lost(current: str, csv: Document | None, plan: Document | None, subscription: Document) -> bool:
    """Whether an installed ClusterServiceVersion is gone, and OLM does not install it again because the InstallPlan is complete or gone."""
    if not current or csv is not None or not get_nested(subscription, "status", "installPlanRef"):
        return False
    return plan is None or (current in plan_csvs(plan) and plan_phase(plan) == COMPLETE)


def _has_unfinished(observed: Observed, plan: Object) -> bool:
    """Whether a ClusterServiceVersion of the plan has not succeeded. A plan can also fail in a step that its operators do not need."""
    return any(csv_phase(observed.csv(name))[0] != SUCCEEDED for name in plan_csvs(plan))


# Plans an installation through OLM: derives the version, the objects to apply and the repairs from the observed objects and the catalogs (pure).


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


# Finds the catalog, channel and version to install. Creates the declared CatalogSource, and waits for catalogs that are starting.

READY = "READY"
# Seconds between reads of the packages, which cannot be watched.
_PACKAGES_INTERVAL = 1.0
# The seconds to wait for the packages of a catalog to which OLM connected less than _RECENT seconds ago; clocks may differ.
_PACKAGES_START, _RECENT = 20.0, 90.0


@dataclass
class CatalogChoice:
    """Chooses the version to install in one run. `applied` is the change that was made to the CatalogSource."""

    client: OlmClient
    options: OlmOptions
    progress: Progress
    deadline: float
    wait: bool
    check: bool
    applied: AppliedObject | None = None
    # A message that the CatalogSource of the image was removed because it did not start; empty if it was not removed.
    removed: str = ""

    def find_version(self, observed: Observed, live: Object | None) -> CatalogVersion | ChannelEntry | None:
        """The installed version if it is the desired one, otherwise the version that the catalogs offer; None if it is unknown in check mode."""
        installed = installed_entry(observed, self.options, live)
        if installed is not None:
            return installed
        if self.check and not self.client.has_olm():
            return None
        if self.options.catalog_image and not self.removed and self._apply_catalog(observed) and self.check:
            return None
        return self._await_version(live)

    def _apply_catalog(self, observed: Observed) -> bool:
        """Create or update the CatalogSource of the image; returns whether it differed."""
        live = observed.catalog(self.options.source[0])
        if live is not None and not is_created_by_collection(live):
            if (live.get("spec") or {}).get("image") == self.options.catalog_image:
                return False
            raise OlmFailure(foreign_catalog(self.options.source_namespace, live, self.options.catalog_image))
        change = self.client.apply("catalogs", catalog_body(self.options, live), live)
        if change is not None:
            self.applied = change
        return change is not None

    def _await_version(self, live: Object | None) -> CatalogVersion:
        """Return the version that the catalogs offer; waits for catalogs that are starting, and for the packages of catalogs that have just started."""
        timer = StateTimer()
        while True:
            observed = self.client.observed()
            choice = self._choose(observed, live)
            sources = self._sources(live) or tuple(name_of(catalog) for catalog in observed.catalogs)
            starting = [name for name in sources if self._is_starting(timer, observed.catalog(name))]
            is_first_starting = (
                self.applied is not None and not self.removed and catalog_state(observed.catalog(sources[0])) != READY
            )
            is_last = self.check or not self.wait or not starting or time.monotonic() >= self.deadline
            problem = self._catalog_problem(observed, live)
            if is_last and is_first_starting and not self.check:
                self._remove_catalog(observed.catalog(sources[0]))
            if isinstance(choice, CatalogVersion) and (is_last or not is_first_starting):
                return choice
            if is_last:
                raise OlmFailure(problem or t.cast("Problem", choice))
            self.progress.report(f"waiting for CatalogSource {', '.join(sources)}")
            self.client.follow()
            self.client.await_change(_PACKAGES_INTERVAL)

    def _is_starting(self, timer: StateTimer, catalog: Object | None) -> bool:
        """Whether to wait for a catalog because OLM is not connected to it yet, or because the package server has not read it yet."""
        if catalog is None:
            return False
        is_connected = catalog_state(catalog) == READY
        limit = (
            _packages_timeout(catalog, time.time())
            if is_connected
            else catalog_unreachable(self.options.source_namespace, catalog).minimum_seconds
        )
        return timer.seconds(name_of(catalog), is_connected) < limit

    def _remove_catalog(self, catalog: Object | None) -> None:
        """Delete the collection's CatalogSource, because a CatalogSource that is not connected blocks all Subscriptions that can see it."""
        if catalog is None or not is_created_by_collection(catalog):
            return
        name, namespace = name_of(catalog), self.options.source_namespace
        if self.client.delete("CatalogSource", name, str(catalog["metadata"]["uid"]), namespace):
            state = catalog_state(catalog) or "not connected"
            self.removed = f"CatalogSource {name}: it is {state}, and would block all Subscriptions that can see it"

    def _choose(self, observed: Observed, live: Object | None) -> CatalogVersion | Problem:
        return choose_version(
            self.client.packages(self.options.package),
            package=self.options.package,
            version=desired_version(observed, self.options, live),
            channel=self.options.channel,
            sources=self._sources(live),
            source_namespace=self.options.source_namespace,
            current_channel=str(((live or {}).get("spec") or {}).get("channel") or ""),
        )

    def _sources(self, live: Object | None) -> tuple[str, ...]:
        """The declared sources, starting with the one in use. If no source is declared, only the one in use."""
        current = str(((live or {}).get("spec") or {}).get("source") or "")
        declared = self.options.source[1:] if self.removed else self.options.source
        if not declared:
            return (current,) if current else ()
        return (current, *(name for name in declared if name != current)) if current in declared else declared

    def _catalog_problem(self, observed: Observed, live: Object | None) -> Problem | None:
        """The problem with the first CatalogSource that does not exist or is not connected; None if there is none."""
        for name in self._sources(live):
            catalog = observed.catalog(name)
            if catalog is None:
                return catalog_missing(self.options.source_namespace, name)
            if catalog_state(catalog) != READY:
                return catalog_unreachable(self.options.source_namespace, catalog)
        return None


def _packages_timeout(catalog: Object, now: float) -> float:
    """The seconds to wait until the package server has read a connected catalog; 0 if it was connected long enough ago."""
    connected = get_nested(catalog, "status", "connectionState", "lastConnect")
    try:
        moment = datetime.datetime.fromisoformat(str(connected)).timestamp()
    except ValueError:
        return 0.0
    return _PACKAGES_START if abs(now - moment) < _RECENT else 0.0
