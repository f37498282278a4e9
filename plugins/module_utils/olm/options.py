# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defines the options of an installation through OLM, and checks their values (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, fields

from ..catalog.olm import AUTOMATIC, MANUAL, SOURCE_NAMESPACE
from ..common.errors import InvalidOptions
from ..schema.messages import join_words, quote
from ..schema.subscription_config import config_problems
from ..schema.validators import dns_label, image, matches, object_name

if t.TYPE_CHECKING:
    from ..common.module import ArgumentSpec
    from ..schema.types import Rule

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
