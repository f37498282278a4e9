# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a run waits for catalogs that are starting; the clock advances by the seconds of each wait."""

from __future__ import annotations

import datetime
import functools
from typing import Any
from unittest import mock

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.waits import Progress, StateTimer
from ansible_collections.accel.gpu.plugins.module_utils.olm import installation
from ansible_collections.accel.gpu.plugins.module_utils.olm.client import OlmClient
from ansible_collections.accel.gpu.plugins.module_utils.olm.installation import OlmOptions
from ansible_collections.accel.gpu.plugins.module_utils.olm.observed import CATALOG_START, Observed, OlmFailure
from tests.helpers.olm_objects import NAMESPACE, PACKAGE

SOURCE = "certified-operators"
NOW = datetime.datetime(2027, 1, 1, tzinfo=datetime.UTC)
RECENT, LONG_AGO = (moment.isoformat() for moment in (NOW, NOW - datetime.timedelta(days=1)))


def seconds_until_failure(
    monkeypatch: pytest.MonkeyPatch, states: list[tuple[float, str, str]], wait: bool
) -> tuple[str, float]:
    """The code of the failure and the seconds until then; each state of the catalog has its first second, and the time of its last connection."""
    clock = 0.0
    monkeypatch.setattr("time.time", NOW.timestamp)
    monkeypatch.setattr(installation, "StateTimer", functools.partial(StateTimer, lambda: clock))

    def observed() -> Observed:
        state, connected = next((name, time) for start, name, time in reversed(states) if start <= clock)
        connection = {"lastObservedState": state, "lastConnect": connected}
        return Observed(
            NAMESPACE, catalogs=({"metadata": {"name": SOURCE}, "status": {"connectionState": connection}},)
        )

    def await_change(seconds: float) -> bool:
        nonlocal clock
        clock += seconds
        return True

    client: Any = mock.create_autospec(OlmClient, instance=True)
    client.observed.side_effect = observed
    client.await_change.side_effect = await_change
    client.packages.return_value = []
    choice = installation.CatalogChoice(
        client,
        OlmOptions(NAMESPACE, PACKAGE, source=(SOURCE,)),
        Progress(None),
        deadline=float("inf"),
        wait=wait,
        check=False,
    )
    with pytest.raises(OlmFailure) as failure:
        choice.find_version(observed(), None)
    return failure.value.code, clock


@pytest.mark.parametrize(
    ("states", "wait", "code", "seconds"),
    [
        ([(0, "CONNECTING", "")], True, "catalog_unreachable", CATALOG_START),
        ([(0, "CONNECTING", ""), (50, "TRANSIENT_FAILURE", "")], True, "catalog_unreachable", CATALOG_START),
        ([(0, "CONNECTING", "")], False, "catalog_unreachable", 0),
        ([(0, "READY", LONG_AGO)], True, "package", 0),
        ([(0, "READY", RECENT)], True, "package", 20),
        # The package server needs time after the connection.
        ([(0, "CONNECTING", ""), (80, "READY", RECENT)], True, "package", 100),
    ],
)
def test_a_catalog_that_offers_nothing(
    monkeypatch: pytest.MonkeyPatch, states: list[tuple[float, str, str]], wait: bool, code: str, seconds: float
) -> None:
    assert seconds_until_failure(monkeypatch, states, wait) == (code, seconds)
