# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks of the options: all problems together, each with its option."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.errors import InvalidOptions
from ansible_collections.accel.gpu.plugins.module_utils.olm.installation import OLM_OPTIONS, OlmOptions, option_problems


def problems(**options: Any) -> list[str]:
    return list(
        option_problems(
            OlmOptions(**{"namespace": "nvidia-gpu-operator", "package": "gpu-operator-certified", **options})
        )
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"version": "v25.10.1", "channel": "v25.10", "source": ("a", "b")},
        {"version": "nfd.4.18.0-202501230000", "package": "nfd"},
        {"catalog_image": "registry.example/catalog:v1", "source": ("staging",)},
        {
            "subscription_config": {
                "tolerations": [{"operator": "Exists"}],
                "env": [{"name": "A", "value": "1"}],
                "nodeSelector": {},
            }
        },
        {"target_namespaces": ()},
    ],
)
def test_valid(options: dict[str, Any]) -> None:
    assert problems(**options) == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"namespace": "Not A Name"}, "namespace: "),
        ({"package": ""}, "package: "),
        ({"name": "a b"}, "name: "),
        ({"version": "25.10.1 "}, "version: "),
        ({"channel": "a/b"}, "channel: "),
        ({"source": ("a", "a")}, "source: a and a contains the same name twice"),
        ({"source": ("",)}, "source[0]: "),
        ({"catalog_image": "registry.example/catalog:v1"}, "catalog_image: requires source"),
        ({"catalog_image": "not an image", "source": ("a",)}, "catalog_image: "),
        ({"target_namespaces": ("a b",)}, "target_namespaces[0]: "),
        (
            {"subscription_config": {"toleration": []}},
            'subscription_config: unknown key "toleration"; did you mean tolerations?',
        ),
        ({"subscription_config": {"x": []}}, "known: affinity, annotations, env,"),
        (
            {"subscription_config": {"tolerations": {}}},
            "subscription_config.tolerations: a map is a map; it must be a list",
        ),
        ({"subscription_config": {"tolerations": ["a"]}}, "subscription_config.tolerations[0]: "),
        ({"subscription_config": {"env": [{"value": "a"}]}}, "subscription_config.env[0]: must be a map with a name"),
        ({"subscription_config": {"env": [{"name": "A", "value": 1}]}}, "put it in quotes"),
    ],
)
def test_invalid(options: dict[str, Any], text: str) -> None:
    (problem,) = problems(**options)
    assert text in problem


def test_all_problems_are_reported_together() -> None:
    assert len(problems(namespace="A", package="", subscription_config={"x": 1, "tolerations": 1})) == 4


def parameters(**given: Any) -> dict[str, Any]:
    """The module's options with their defaults, as Ansible passes them."""
    return {name: option.get("default") for name, option in OLM_OPTIONS.items()} | {"namespace": "a", **given}


def test_options_that_are_not_set_have_the_defaults_of_the_fields() -> None:
    assert OlmOptions.from_params(parameters(package="nfd")) == OlmOptions("a", "nfd")


def test_an_empty_list_of_targets_is_not_a_missing_one() -> None:
    options = OlmOptions.from_params(parameters(package="nfd", source=["b", "c"], target_namespaces=[]))
    assert options == OlmOptions("a", "nfd", source=("b", "c"), target_namespaces=())


def test_invalid_options_are_refused() -> None:
    with pytest.raises(InvalidOptions):
        OlmOptions.from_params(parameters(package=""))
