# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""OLM's objects as they are: Subscriptions, OperatorGroups, packages, versions (pure)."""

from __future__ import annotations

import functools
import re
import typing as t
from dataclasses import dataclass

from ..core.errors import ModuleFailure
from ..core.messages import abbreviate, join_words, option_of_role
from ..core.values import Document, Object, get_nested
from ..kube.fields import name_of

# Defines a problem that prevents an installation through OLM: the object, its field and value, the violated rule, and the remedy.

# The number of seconds that a problem must last before it is reported. Conditions that OLM sets while it works may be wrong for
# a few seconds: during an upgrade, ResolutionFailed was True for up to 4 s. Statuses that do not change unless the user acts are
# reported immediately. It can take CATALOG_START until OLM is connected to a new catalog.
FINAL, SHORT, MEDIUM, LONG, CATALOG_START = 0.0, 5.0, 30.0, 60.0, 90.0


@dataclass(frozen=True)
class Problem:
    """One problem. `code` identifies the kind of problem, for use in playbooks."""

    code: str
    subject: str
    field: str
    value: str
    rule: str
    remedy: str
    minimum_seconds: float = FINAL
    # The verb between the field and the value in the message; "are" for a plural field.
    verb: str = "is"

    def __str__(self) -> str:
        value = self.value.rstrip(".")
        return f"{self.subject}: {self.field} {self.verb} {value}. {self.rule} {self.remedy}"

    def as_dict(self) -> dict[str, str]:
        """The problem in the format that the module returns."""
        return {
            "code": self.code,
            "object": self.subject,
            "field": self.field,
            "value": self.value,
            "rule": self.rule,
            "remedy": self.remedy,
        }


class OlmFailure(ModuleFailure):
    """Raised if OLM cannot install the operator because of a problem."""

    def __init__(self, problem: Problem, partial: t.Mapping[str, t.Any] | None = None) -> None:
        """Use the problem's code as the code of the failure."""
        super().__init__(str(problem), partial)
        self.problem = problem
        self.code = problem.code  # type: ignore[misc]


# Parses semantic versions and the ranges of `olm.skipRange` (pure).
#
# Sources: semver.org 2.0.0 (precedence), github.com/blang/semver/v4 range.go (ranges).

_VERSION = re.compile(
    r"v?(?P<numbers>\d{1,9}(?:\.\d{1,9}){1,2})(?:-(?P<pre>[0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?", re.ASCII
)
_CONDITION = re.compile(r"(?P<sign>>=|<=|==|!=|>|<|=|!)?\s*(?P<version>[^\s<>=!|]+)")
_COMPARE: dict[str, t.Callable[[Version, Version], bool]] = {
    ">=": lambda one, other: one >= other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    "<": lambda one, other: one < other,
    "!=": lambda one, other: one != other,
    "!": lambda one, other: one != other,
    "=": lambda one, other: one == other,
    "==": lambda one, other: one == other,
}


@functools.total_ordering
@dataclass(frozen=True)
class Version:
    """A version, ordered by precedence; build metadata is ignored."""

    numbers: tuple[int, int, int]
    pre: tuple[str, ...] = ()

    def __lt__(self, other: Version) -> bool:
        """Compare by precedence. A pre-release comes before its release. Numeric parts of a pre-release are compared as numbers, and come before text."""
        return self._key < other._key

    @property
    def _key(self) -> tuple[tuple[int, int, int], bool, tuple[tuple[bool, int, str], ...]]:
        parts = tuple((False, int(part), "") if part.isdecimal() else (True, 0, part) for part in self.pre)
        return self.numbers, not self.pre, parts

    def __str__(self) -> str:
        return ".".join(map(str, self.numbers)) + (f"-{'.'.join(self.pre)}" if self.pre else "")


def parse_version(text: str) -> Version | None:
    """Parse a version with or without `v`; a missing third number is 0. None if the text is not a version."""
    match = _VERSION.fullmatch(text.strip())
    if match is None:
        return None
    numbers = [int(number) for number in match["numbers"].split(".")]
    pre = tuple(match["pre"].split(".")) if match["pre"] else ()
    if not all(pre):
        return None
    return Version((numbers[0], numbers[1], numbers[2] if len(numbers) > 2 else 0), pre)


def in_range(version: Version, text: str) -> bool | None:
    """Whether a version is in a range (for example `>=1.9.0 <25.10.1 || 26.3.0`); None if the range cannot be parsed."""
    alternatives = [_matches(version, part.strip()) for part in text.split("||")]
    return None if None in alternatives else any(alternatives)


def _matches(version: Version, conditions: str) -> bool | None:
    position, result = 0, True
    if not conditions:
        return None
    while position < len(conditions):
        match = _CONDITION.match(conditions, position)
        limit = parse_version(match["version"]) if match else None
        if match is None or limit is None:
            return None
        result = result and _COMPARE[match["sign"] or "="](version, limit)
        position = match.end()
        while position < len(conditions) and conditions[position] == " ":
            position += 1
    return result


# Holds OLM's objects in the namespace of one operator, and reads their statuses (pure).

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


# Plans the OperatorGroup of a namespace, and checks whether an existing one is suitable for the operator (pure).
#
# OLM installs nothing in a namespace that does not have exactly one OperatorGroup, and no condition of the Subscription reports this. Sources: OLM's
# documentation "Operator Groups" and "Install Modes".

OWN, SINGLE, MULTI, ALL = "OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"
MULTIPLE = "operator_group_multiple"
_OPERATOR_GROUP = option_of_role("olm.operator_group", "operator_group")
_TARGET_NAMESPACES = option_of_role("olm.target_namespaces", "target_namespaces")


@dataclass(frozen=True)
class GroupDecision:
    """The group to use or to create, or the problem that prevents this."""

    name: str = ""
    # The target namespaces of a group to create; None if the group exists and is used unchanged.
    targets: tuple[str, ...] | None = None
    problem: Problem | None = None


def decide_group(
    groups: t.Sequence[Document],
    namespace: str,
    modes: frozenset[str] | None,
    *,
    name: str,
    default_name: str,
    targets: t.Sequence[str] | None,
) -> GroupDecision:
    """Decide which group to use. If `targets` is None, the install modes determine the namespaces; an empty list selects all namespaces."""
    problem = targets_problem(namespace, targets, modes) if targets is not None else None
    if problem:
        return GroupDecision(problem=problem)
    if len(groups) > 1:
        return GroupDecision(problem=several_groups(namespace, groups))
    if not groups:
        chosen = tuple(targets) if targets is not None else default_targets(namespace, modes)
        return GroupDecision(name or default_name, chosen)
    group = groups[0]
    existing_name = str(group["metadata"]["name"])
    if name and name != existing_name:
        return GroupDecision(problem=_second_group(namespace, existing_name, name))
    live = group_targets(group)
    if targets is not None and live is not None and sorted(live) != sorted(targets):
        return GroupDecision(problem=_other_targets(namespace, existing_name, live, targets))
    return GroupDecision(existing_name, problem=_unsupported(namespace, group, modes))


def default_targets(namespace: str, modes: frozenset[str] | None) -> tuple[str, ...]:
    """The target namespaces of a new group. This is the group's own namespace, unless the operator supports only all namespaces."""
    return (namespace,) if modes is None or OWN in modes or ALL not in modes else ()


def group_targets(group: Document) -> tuple[str, ...] | None:
    """The target namespaces of a group; empty for all namespaces, and None if a selector determines the namespaces and OLM has not listed them yet."""
    spec, status = group.get("spec") or {}, group.get("status") or {}
    if not spec.get("selector"):
        return tuple(spec.get("targetNamespaces") or ())
    namespaces = status.get("namespaces")
    return None if namespaces is None else tuple(item for item in namespaces if item)


def required_mode(namespace: str, targets: t.Sequence[str]) -> str:
    """The install mode that an operator must support for these target namespaces."""
    if not targets:
        return ALL
    if len(targets) > 1:
        return MULTI
    return OWN if targets[0] == namespace else SINGLE


def targets_problem(namespace: str, targets: t.Sequence[str], modes: frozenset[str] | None) -> Problem | None:
    """The problem that the operator does not support the declared namespaces; None if it supports them."""
    mode = required_mode(namespace, targets)
    if modes is None or mode in modes:
        return None
    return Problem(
        code="install_mode",
        subject="Option target_namespaces",
        field="install mode",
        value=mode,
        rule=f"The operator supports only {join_words(sorted(modes))}.",
        remedy=_mode_remedy(_TARGET_NAMESPACES, namespace, modes),
    )


def several_groups(namespace: str, groups: t.Sequence[Document]) -> Problem:
    """The problem that the namespace has several OperatorGroups."""
    names = sorted(str(group["metadata"]["name"]) for group in groups)
    return Problem(
        code=MULTIPLE,
        subject=f"Namespace {namespace}",
        field="OperatorGroups",
        verb="are",
        value=abbreviate(names),
        rule="OLM does not install anything in a namespace with more than one OperatorGroup.",
        remedy=f"Delete all except one, for example: kubectl -n {namespace} delete operatorgroup {names[-1]}.",
    )


def no_group(namespace: str) -> Problem:
    """The problem that the namespace has no OperatorGroup."""
    return Problem(
        code="operator_group_missing",
        subject=f"Namespace {namespace}",
        field="OperatorGroups",
        verb="are",
        value="none",
        rule="Without an OperatorGroup, OLM installs nothing and reports no condition. The OperatorGroup was deleted during the run.",
        remedy="Run the playbook again, which creates it.",
        minimum_seconds=SHORT,
    )


def _second_group(namespace: str, existing_name: str, name: str) -> Problem:
    return Problem(
        code=MULTIPLE,
        subject=f"OperatorGroup {namespace}/{existing_name}",
        field="metadata.name",
        value=existing_name,
        rule=f"A second OperatorGroup ({name}) would prevent OLM from installing anything in this namespace.",
        remedy=f"Remove {_OPERATOR_GROUP}, or set it to {existing_name}.",
    )


def _other_targets(namespace: str, existing_name: str, live: t.Sequence[str], targets: t.Sequence[str]) -> Problem:
    return Problem(
        code="operator_group",
        subject=f"OperatorGroup {namespace}/{existing_name}",
        field="spec.targetNamespaces",
        value=join_words(live) if live else "all namespaces",
        rule=f"The declared target_namespaces are {join_words(targets) if targets else 'all namespaces'}, but existing groups are not changed.",
        remedy=f"Change the group yourself, or remove {_TARGET_NAMESPACES}.",
    )


def _unsupported(namespace: str, group: Document, modes: frozenset[str] | None) -> Problem | None:
    targets = group_targets(group)
    if targets is None or modes is None or required_mode(namespace, targets) in modes:
        return None
    return Problem(
        code="install_mode",
        subject=f"OperatorGroup {namespace}/{group['metadata']['name']}",
        field="spec.targetNamespaces",
        value=join_words(targets) if targets else "all namespaces",
        rule=(
            f"This needs the install mode {required_mode(namespace, targets)}, but the operator supports only "
            f"{join_words(sorted(modes))}."
        ),
        remedy=_mode_remedy("the target namespaces of the group", namespace, modes),
    )


def _mode_remedy(what: str, namespace: str, modes: frozenset[str]) -> str:
    if OWN in modes:
        return f"Set {what} to [{namespace}], or use another namespace."
    return f"Set {what} to all namespaces (an empty list), or use another namespace."


# Parses the packages that catalogs offer, and chooses the catalog, channel and version (pure).
#
# A PackageManifest lists the versions of each channel, but not which version replaces which; only the skipRange of the newest version is known
# (operator-lifecycle-manager pkg/package-server/apis/operators/v1).

SKIP_RANGE = "olm.skipRange"


@dataclass(frozen=True)
class ChannelEntry:
    """One version in a channel. `name` is the name of the ClusterServiceVersion."""

    name: str
    version: str

    @property
    def parsed(self) -> Version | None:
        """The parsed version, for comparisons; None if it is invalid."""
        return parse_version(self.version)


@dataclass(frozen=True)
class Channel:
    """A channel of a package. `head` is the newest ClusterServiceVersion in the channel."""

    name: str
    head: str
    entries: tuple[ChannelEntry, ...] = ()
    install_modes: frozenset[str] | None = None
    skip_range: str = ""

    def entry(self, csv: str) -> ChannelEntry | None:
        """The entry of a ClusterServiceVersion."""
        return next((entry for entry in self.entries if entry.name == csv), None)

    def find(self, package: str, version: str) -> ChannelEntry | None:
        """The entry for a version, or for the name of a ClusterServiceVersion."""
        return next((entry for entry in self.entries if is_version(entry.name, entry.version, package, version)), None)


@dataclass(frozen=True)
class Package:
    """A package in one catalog."""

    name: str
    source: str
    source_namespace: str
    default_channel: str
    channels: tuple[Channel, ...]

    def channel(self, name: str) -> Channel | None:
        """The channel with this name."""
        return next((channel for channel in self.channels if channel.name == name), None)

    @property
    def subject(self) -> str:
        """The name of the package and of its catalog, for messages."""
        return f"PackageManifest {self.name} of CatalogSource {self.source_namespace}/{self.source}"


@dataclass(frozen=True)
class CatalogVersion:
    """A version to install, with its channel and package."""

    package: Package
    channel: Channel
    entry: ChannelEntry


def is_version(csv: str, csv_version: str, package: str, version: str) -> bool:
    """Whether a ClusterServiceVersion has this version. `version` is a version with or without `v`, or the name of a ClusterServiceVersion."""
    if version in (csv, csv.removeprefix(f"{package}.")):
        return True
    parsed = parse_version(version)
    return parsed is not None and parsed == parse_version(csv_version)


def parse_package(manifest: Document) -> Package:
    """Parse a PackageManifest. If a package has only one channel, it is the default channel."""
    status = manifest.get("status") or {}
    channels = tuple(map(_parse_channel, status.get("channels") or ()))
    default = str(status.get("defaultChannel") or (channels[0].name if len(channels) == 1 else ""))
    return Package(
        name=str(status.get("packageName") or manifest["metadata"]["name"]),
        source=str(status.get("catalogSource") or ""),
        source_namespace=str(status.get("catalogSourceNamespace") or ""),
        default_channel=default,
        channels=channels,
    )


def _parse_channel(channel: Document) -> Channel:
    description = channel.get("currentCSVDesc") or {}
    head = str(channel.get("currentCSV") or "")
    entries = tuple(
        ChannelEntry(str(item["name"]), str(item.get("version") or "")) for item in channel.get("entries") or ()
    )
    if head and head not in {entry.name for entry in entries}:
        # Package servers before OLM 0.22 do not list entries.
        entries = (ChannelEntry(head, str(description.get("version") or "")), *entries)
    return Channel(
        name=str(channel.get("name") or ""),
        head=head,
        entries=entries,
        install_modes=install_modes(description),
        skip_range=str(get_nested(description, "annotations", SKIP_RANGE) or ""),
    )


def install_modes(spec: Document) -> frozenset[str] | None:
    """The supported install modes in a ClusterServiceVersion's spec; None if the spec does not list install modes."""
    modes = spec.get("installModes")
    return frozenset(mode["type"] for mode in modes if mode.get("supported")) if modes else None


def choose_version(
    packages: t.Sequence[Package],
    *,
    package: str,
    version: str,
    channel: str,
    sources: t.Sequence[str],
    source_namespace: str,
    current_channel: str = "",
) -> CatalogVersion | Problem:
    """The version from the first source that offers it, in the given order. If no source offers it, returns the problem with the first source that has the
    package.
    """
    everywhere = [item for item in packages if item.name == package]
    offers = [item for item in everywhere if item.source_namespace == source_namespace]
    if sources:
        by_source = {item.source: item for item in offers}
        candidates = [by_source[source] for source in sources if source in by_source]
    else:
        candidates = offers
    if not candidates:
        return _no_package(package, sources, source_namespace, everywhere)
    if not sources and len(candidates) > 1:
        return _several_sources(package, candidates)
    choices = [_choose(item, version, channel, current_channel) for item in candidates]
    return next((choice for choice in choices if isinstance(choice, CatalogVersion)), choices[0])


def _choose(package: Package, version: str, channel: str, current: str) -> CatalogVersion | Problem:
    if channel:
        chosen = package.channel(channel)
        if chosen is None:
            return _no_channel(package, channel)
        entry = chosen.find(package.name, version) if version else chosen.entry(chosen.head)
        return CatalogVersion(package, chosen, entry) if entry else _no_version(package, version, chosen)
    if not version:
        chosen = package.channel(current) or package.channel(package.default_channel)
        entry = chosen.entry(chosen.head) if chosen else None
        return (
            CatalogVersion(package, chosen, entry)
            if chosen and entry
            else _no_channel(package, package.default_channel)
        )
    holders = [(item, entry) for item in package.channels if (entry := item.find(package.name, version))]
    if not holders:
        return _no_version(package, version, None)
    # The order of preference: the channel in use, the default channel, and a channel whose newest version is this one, so that OLM offers no newer one.
    order = sorted(
        holders,
        key=lambda holder: (
            holder[0].name != current,
            holder[0].name != package.default_channel,
            holder[0].head != holder[1].name,
            holder[0].name,
        ),
    )
    return CatalogVersion(package, *order[0])


def allowed_steps(channel: Channel, installed: Version | None, desired: ChannelEntry) -> frozenset[str]:
    """The ClusterServiceVersions that an upgrade may install: those newer than the installed one and not newer than the desired one."""
    limit = desired.parsed
    if installed is None or limit is None:
        return frozenset({desired.name})
    between = {entry.name for entry in channel.entries if entry.parsed and installed < entry.parsed <= limit}
    return frozenset({*between, desired.name})


def skipped_version(channel: Channel, installed: Version | None, desired: ChannelEntry) -> Problem | None:
    """The problem that OLM offers only the newest version of the channel, because that version's skipRange contains the installed version; None if there is no
    such problem.
    """
    if installed is None or desired.name == channel.head or desired.parsed == installed:
        return None
    if not channel.skip_range or not in_range(installed, channel.skip_range):
        return None
    return Problem(
        code="upgrade_path",
        subject=f"ClusterServiceVersion {channel.head} of channel {channel.name}",
        field=SKIP_RANGE,
        value=channel.skip_range,
        rule=f"From {installed}, OLM offers only this version, and skips {desired.name}.",
        remedy="Set version to this version, or set channel to a channel that ends with the desired version.",
    )


def downgrade(installed: str, installed_version: Version | None, desired: ChannelEntry) -> Problem | None:
    """The problem that the desired version is older than the installed one; None if it is not older."""
    if installed_version is None or desired.parsed is None or desired.parsed >= installed_version:
        return None
    return Problem(
        code="downgrade",
        subject=f"ClusterServiceVersion {installed}",
        field="spec.version",
        value=str(installed_version),
        rule=f"OLM replaces a version only with a newer one, and {desired.name} is older.",
        remedy=f"Set version to {installed_version}, or remove the operator (state absent) and install the older version.",
    )


def _names(items: t.Iterable[str]) -> str:
    return abbreviate(list(items)) or "none"


def _no_package(
    package: str, sources: t.Sequence[str], source_namespace: str, elsewhere: t.Sequence[Package]
) -> Problem:
    named = f"the CatalogSource {join_words(sources, 'or')}" if sources else "any CatalogSource"
    places = (
        item.source
        if item.source_namespace == source_namespace
        else f"{item.source} in namespace {item.source_namespace}"
        for item in elsewhere
    )
    others = f" It is in {_names(places)}." if elsewhere else ""
    return Problem(
        code="package",
        subject=f"PackageManifest {package}",
        field="catalog",
        value=join_words(sources, "or") if sources else "not set",
        rule=f"No package with this name is in {named} in namespace {source_namespace}.{others}",
        remedy="Set source and source_namespace to that catalog."
        if elsewhere
        else "Correct package or source, or add the package to the mirrored catalog.",
    )


def _several_sources(package: str, candidates: t.Sequence[Package]) -> Problem:
    return Problem(
        code="source",
        subject=f"PackageManifest {package}",
        field="status.catalogSource",
        value=join_words(item.source for item in candidates),
        rule="Several catalogs offer the package, but none is declared.",
        remedy="Set source to one of them, or to a list in order of preference.",
    )


def _no_channel(package: Package, channel: str) -> Problem:
    return Problem(
        code="channel",
        subject=package.subject,
        field="status.channels",
        value=_names(item.name for item in package.channels),
        rule=f"The package has no channel {channel!r}." if channel else "The package has no default channel.",
        remedy="Set channel to one of them.",
    )


def _no_version(package: Package, version: str, channel: Channel | None) -> Problem:
    if channel is not None:
        others = [item.name for item in package.channels if item.find(package.name, version)]
        where = f" It is in channel {join_words(others, 'or')}." if others else ""
        return Problem(
            code="version",
            subject=package.subject,
            field=f"status.channels[{channel.name}].entries",
            value=_names(entry.version or entry.name for entry in channel.entries),
            rule=f"Channel {channel.name} has no version {version!r}.{where}",
            remedy="Correct version or channel.",
        )
    versions = dict.fromkeys(entry.version or entry.name for item in package.channels for entry in item.entries)
    return Problem(
        code="version",
        subject=package.subject,
        field="status.channels[].entries",
        value=_names(versions),
        rule=f"No channel of the package has version {version!r}.",
        remedy="Correct version, or use a catalog that has it.",
    )
