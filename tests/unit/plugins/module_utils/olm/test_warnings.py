# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Conditions of the Subscription that do not prevent an installation are warnings of a run that changes nothing."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.waits import Progress
from ansible_collections.accel.gpu.plugins.module_utils.kube.objects import ExpectedObjects
from ansible_collections.accel.gpu.plugins.module_utils.olm import assessment
from ansible_collections.accel.gpu.plugins.module_utils.olm.client import OlmClient
from ansible_collections.accel.gpu.plugins.module_utils.olm.installation import OlmOptions
from ansible_collections.accel.gpu.plugins.module_utils.olm.runner import OlmRun
from ansible_collections.accel.gpu.plugins.modules import olm_subscription
from tests.helpers.olm_objects import NAMESPACE, NEW, PACKAGE, condition, installed, observed

NAME = f"Subscription {NAMESPACE}/{PACKAGE}"
CHANNEL = condition("ChannelDeprecated", message="channel v25.3 is no longer supported.\nUse v25.10.\n")
CHANNEL_TEXT = (
    f"{NAME}: condition ChannelDeprecated is True (channel v25.3 is no longer supported. Use v25.10). "
    "Set channel to one that contains the version and is not deprecated."
)


def warnings(*conditions: dict[str, Any]) -> list[str]:
    return assessment.subscription_warnings(installed(conditions=list(conditions)))


def test_a_warning_has_the_message_and_the_remedy() -> None:
    assert warnings(CHANNEL) == [CHANNEL_TEXT]


def test_every_deprecation_is_reported_once() -> None:
    """The condition Deprecated contains the messages of the others."""
    kinds = ("PackageDeprecated", "ChannelDeprecated", "BundleDeprecated")
    reported = warnings(condition("Deprecated", message="m; m; m"), *(condition(kind, message="m") for kind in kinds))
    assert [text.partition(" is True (m). ")[0] for text in reported] == [f"{NAME}: condition {kind}" for kind in kinds]


@pytest.mark.parametrize(
    "kept",
    [
        condition("BundleDeprecated", message="m", status="False"),
        condition("CatalogSourcesUnhealthy", "AllCatalogSourcesHealthy", status="False"),
        condition("ResolutionFailed", "ConstraintsNotSatisfiable", "m"),
    ],
)
def test_other_conditions_are_not_warnings(kept: dict[str, Any]) -> None:
    assert warnings(kept) == []


def test_without_a_subscription_there_is_no_warning() -> None:
    assert assessment.subscription_warnings(None) == []


class _InstalledClient(OlmClient):
    """Reads an installed operator whose channel is deprecated."""

    def __init__(self) -> None:
        """Need no API server."""
        self.unchecked = ""

    def observed(self) -> Any:
        return observed(subscriptions=[installed(conditions=[CHANNEL])])


@pytest.mark.parametrize(("approved", "expected"), [([], [CHANNEL_TEXT]), ([NEW], [])])
def test_a_run_that_changes_something_has_no_warning(approved: list[str], expected: list[str]) -> None:
    """OLM has not updated the conditions yet."""
    options = OlmOptions(namespace=NAMESPACE, package=PACKAGE)
    run = OlmRun(_InstalledClient(), options, 1.0, True, Progress(None), ExpectedObjects(), approved=approved)
    assert run.result()["olm_subscription"]["warnings"] == expected


def test_the_module_issues_the_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    result = {"changed": False, "olm_subscription": {"repaired": [], "warnings": [CHANNEL_TEXT]}}
    monkeypatch.setattr(olm_subscription, "OlmClient", lambda *_args, **_more: None)
    monkeypatch.setattr(olm_subscription, "OlmRun", lambda *_args, **_more: SimpleNamespace(run=lambda: result))
    issued: list[str] = []
    params = {name: option.get("default") for name, option in olm_subscription.OPTIONS.items()}
    module: Any = SimpleNamespace(
        params={**params, "namespace": NAMESPACE, "package": PACKAGE, "wait": True, "wait_timeout": 1},
        client=None,
        check_mode=False,
        lease=contextlib.nullcontext,
        progress=Progress(None),
        expected=ExpectedObjects(),
        warn=issued.append,
    )
    assert olm_subscription.work(module) == result
    assert issued == [CHANNEL_TEXT]
