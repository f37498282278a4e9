# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run that lets OLM continue with a Subscription: what it sends counts as a repair, and what it does not send is sent later."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.openshift import AUTOMATIC
from ansible_collections.accel.gpu.plugins.module_utils.core.waits import Progress
from ansible_collections.accel.gpu.plugins.module_utils.kube.objects import NOT_CHECKED, ExpectedObjects
from ansible_collections.accel.gpu.plugins.module_utils.olm import runner
from ansible_collections.accel.gpu.plugins.module_utils.olm.client import OlmClient
from ansible_collections.accel.gpu.plugins.module_utils.olm.installation import OlmOptions
from ansible_collections.accel.gpu.plugins.module_utils.olm.observed import Observed, parse_package
from tests.helpers.olm_objects import NAMESPACE, NEW, PACKAGE, condition, manifest, observed, plan, subscription

SPEC = {"installPlanApproval": AUTOMATIC}
EMPTY: dict[str, Any] = {"csvs": [], "plans": [], "deployments": []}
PREVENTED = observed(
    **EMPTY,
    subscriptions=[subscription(conditions=[condition("ResolutionFailed", "ErrorPreventedResolution")], spec=SPEC)],
)
WAITING = observed(**EMPTY, subscriptions=[subscription(spec=SPEC)])
STALE = observed(**EMPTY, subscriptions=[subscription(spec=SPEC, plan="deleted", currentCSV=NEW)])
PENDING = observed(**{**EMPTY, "plans": [plan(NEW)]}, subscriptions=[subscription(plan="install-1", currentCSV=NEW)])
DONE = observed()


class FakeOlm:
    """The client of one namespace: OLM finishes the installation as soon as a write of the run has reached it."""

    def __init__(
        self, before: Observed, *later: Observed, sent: tuple[bool, ...] = (True,), unchecked: str = ""
    ) -> None:
        self.client = mock.create_autospec(OlmClient, instance=True)
        self._states, self._sent = [before, *later], list(sent)
        self.client.unchecked = unchecked
        self.client.read.return_value = before
        self.client.observed.side_effect = lambda: self._states[0]
        self.client.await_change.side_effect = self._advance
        self.client.packages.return_value = [parse_package(manifest())]
        self.client.differs.return_value = False
        self.client.apply.return_value = None
        self.client.reset.side_effect = self.client.resolve_again.side_effect = self._write
        self.client.approve.return_value = True

    def _advance(self, _seconds: float) -> bool:
        del self._states[:-1]
        return True

    def _write(self, *_arguments: Any) -> bool:
        sent = self._sent.pop(0)
        self._states = [DONE] if sent else self._states
        return sent

    def run(self, *, check: bool = False, approval: str = AUTOMATIC) -> dict[str, Any]:
        """The result of the run."""
        options = OlmOptions(NAMESPACE, PACKAGE, version="v25.10.1", approval=approval)
        progress, expected = Progress(None), ExpectedObjects()
        return runner.OlmRun(
            self.client, options, timeout=10, wait=True, progress=progress, expected=expected, check=check
        ).run()


@pytest.mark.parametrize("sent", [(True,), (False, True)])
def test_a_resolution_that_was_prevented_is_repeated_until_it_is_sent(sent: tuple[bool, ...]) -> None:
    fake = FakeOlm(PREVENTED, sent=sent)
    result = fake.run()
    assert result["changed"]
    assert result["olm_subscription"]["repaired"] == [
        f"Subscription {PACKAGE}: OLM could not read a catalog, and does not try again"
    ]
    assert fake.client.resolve_again.call_count == len(sent)


def test_check_mode_predicts_that_a_resolution_is_repeated() -> None:
    result = FakeOlm(PREVENTED).run(check=True)
    assert result["changed"]
    assert len(result["olm_subscription"]["repaired"]) == 1


def test_a_status_that_is_reset_counts_as_a_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "SHORT", 0.0)
    fake = FakeOlm(WAITING, STALE, sent=(False, True))
    result = fake.run()
    assert result["changed"]
    assert result["olm_subscription"]["repaired"] == [
        f"Subscription {PACKAGE}: OLM needs an InstallPlan that was deleted"
    ]
    assert fake.client.reset.call_count == 2


def test_a_preview_says_that_an_approval_was_not_checked() -> None:
    result = FakeOlm(PENDING, unchecked=NOT_CHECKED).run(check=True, approval="Manual")
    assert result["olm_subscription"]["approved"] == [NEW]
    assert [diff["before_header"] for diff in result["diff"]] == [f"ClusterServiceVersion ({NOT_CHECKED})"]
