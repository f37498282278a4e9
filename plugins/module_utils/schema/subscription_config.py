# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The spec.config of a Subscription, which OLM applies to the operator's own pods, and the checks of its keys.

Without these checks, a wrong type would be noticed only as a rejected request, or as an environment variable with a different value. The schema and the
module olm_subscription share the checks. Source: SubscriptionConfig of operators.coreos.com/v1alpha1.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .messages import join_words, nearest, quote, type_name
from .types import Anything, Problems

CONFIG_KEYS: dict[str, type] = {
    "affinity": dict,
    "annotations": dict,
    "env": list,
    "envFrom": list,
    "nodeSelector": dict,
    "resources": dict,
    "selector": dict,
    "tolerations": list,
    "volumeMounts": list,
    "volumes": list,
}


@dataclass(frozen=True)
class SubscriptionConfig(Anything):
    """The field `subscription_config` of the variables, a map."""

    def inner(self, value: t.Any, path: str) -> Problems:
        yield from config_problems(value, path)


def config_problems(config: t.Mapping[str, t.Any], path: str) -> Problems:
    """The problems of a spec.config, each with its path."""
    for key, value in config.items():
        kind = CONFIG_KEYS.get(key)
        if kind is None:
            near = nearest(str(key), CONFIG_KEYS)
            hint = f"; did you mean {near}?" if near else f"; known: {join_words(sorted(CONFIG_KEYS))}"
            yield f"{path}: unknown key {quote(key)}{hint}"
        elif not isinstance(value, (list if kind is list else dict)):
            kind_name = "a list" if kind is list else "a map"
            yield f"{path}.{key}: {quote(value)} is {type_name(value)}; it must be {kind_name}"
        elif isinstance(value, list) and key == "env":
            yield from _environment_problems(value, f"{path}.env")
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if not isinstance(item, dict):
                    yield f"{path}.{key}[{index}]: {quote(item)} is {type_name(item)}; it must be a map"


def _environment_problems(variables: t.Sequence[t.Any], path: str) -> Problems:
    for index, item in enumerate(variables):
        if not isinstance(item, dict) or not isinstance(item.get("name"), str) or not item["name"]:
            yield f"{path}[{index}]: must be a map with a name"
        elif "value" in item and not isinstance(item["value"], str):
            yield (
                f"{path}[{index}].value: {quote(item['value'])} is {type_name(item['value'])}; an environment variable is a string, "
                "so put it in quotes"
            )
