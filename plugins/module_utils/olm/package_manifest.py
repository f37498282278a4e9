# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parses the packages that catalogs offer, and chooses the catalog, channel and version (pure).

A PackageManifest lists the versions of each channel, but not which version replaces which; only the skipRange of the newest version is known
(operator-lifecycle-manager pkg/package-server/apis/operators/v1).
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..common.nested import get_nested
from ..schema.messages import abbreviate, join_words
from .problem import Problem
from .versions import Version, in_range, parse_version

Object = t.Mapping[str, t.Any]

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


def parse_package(manifest: Object) -> Package:
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


def _parse_channel(channel: Object) -> Channel:
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


def install_modes(spec: Object) -> frozenset[str] | None:
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
