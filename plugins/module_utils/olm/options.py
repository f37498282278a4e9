# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of an installation through OLM, and the checks of their values (pure)."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ..catalog.olm import MANUAL, SOURCE_NAMESPACE
from ..common.errors import InvalidOptions
from ..schema.messages import join_words, quote
from ..schema.subscription_config import config_problems
from ..schema.validators import dns_label, image, object_name

_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]*", re.ASCII)
_CHANNEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)


@dataclass(frozen=True)
class OlmOptions:
    """The options of the module; empty text means that an option is not set."""

    namespace: str
    package: str
    name: str = ""
    version: str = ""
    channel: str = ""
    sources: tuple[str, ...] = ()
    source_namespace: str = SOURCE_NAMESPACE
    catalog_image: str = ""
    approval: str = MANUAL
    additional_csvs: frozenset[str] = frozenset()
    operator_group: str = ""
    # None leaves it to the install modes, and spec.config as it is.
    target_namespaces: tuple[str, ...] | None = None
    config: t.Mapping[str, t.Any] | None = None

    @classmethod
    def from_params(cls, params: t.Mapping[str, t.Any]) -> OlmOptions:
        """Create from the module's options; raises InvalidOptions with all problems."""
        targets = params["target_namespaces"]
        options = cls(
            namespace=params["namespace"],
            package=params["package"],
            name=params["name"] or "",
            version=params["version"] or "",
            channel=params["channel"] or "",
            sources=tuple(params["source"] or ()),
            source_namespace=params["source_namespace"],
            catalog_image=params["catalog_image"] or "",
            approval=params["approval"],
            additional_csvs=frozenset(params["additional_csvs"] or ()),
            operator_group=params["operator_group"] or "",
            target_namespaces=None if targets is None else tuple(targets),
            config=params["subscription_config"],
        )
        problems = list(option_problems(options))
        if problems:
            raise InvalidOptions(problems)
        return options


def option_problems(options: OlmOptions) -> t.Iterator[str]:
    """The problems of the values, each with the name of its option."""
    labels = {"namespace": options.namespace, "source_namespace": options.source_namespace}
    for option, value in labels.items():
        problem = dns_label(value)
        if problem:
            yield f"{option}: {quote(value)} {problem}"
    names = [("package", options.package), ("name", options.name), ("operator_group", options.operator_group)]
    names += [(f"source[{index}]", source) for index, source in enumerate(options.sources)]
    for option, value in names:
        problem = object_name(value) if value or option == "package" or "[" in option else None
        if problem:
            yield f"{option}: {quote(value)} {problem}"
    if options.version and not _VERSION.fullmatch(options.version):
        yield f"version: {quote(options.version)} is not a version; use the form v25.10.1, or the name of a ClusterServiceVersion"
    if options.channel and not _CHANNEL.fullmatch(options.channel):
        yield f"channel: {quote(options.channel)} is not a channel name"
    if len(set(options.sources)) < len(options.sources):
        yield f"source: {join_words(options.sources)} contains the same name twice"
    if options.catalog_image:
        if not options.sources:
            yield "catalog_image: requires source, the name of the CatalogSource to create"
        problem = image(options.catalog_image)
        if problem:
            yield f"catalog_image: {quote(options.catalog_image)} {problem}"
    for index, namespace in enumerate(options.target_namespaces or ()):
        problem = dns_label(namespace)
        if problem:
            yield f"target_namespaces[{index}]: {quote(namespace)} {problem}"
    yield from config_problems(options.config or {}, "subscription_config")
