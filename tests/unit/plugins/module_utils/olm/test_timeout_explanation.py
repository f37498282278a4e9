# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The explanation of a timeout: the bundle that OLM unpacks, or Deployments that are not ready."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.olm.assessment import DesiredVersion, assess
from ansible_collections.accel.gpu.plugins.module_utils.olm.observed import parse_version
from tests.helpers.olm_objects import NEW, PACKAGE, condition, csv, deployment, observed, subscription

DESIRED = DesiredVersion(PACKAGE, PACKAGE, NEW, parse_version("v25.10.1"), frozenset({NEW}))
WAITING = 'installing: waiting for deployment gpu-operator to become ready: deployment "gpu-operator" not available'


@pytest.mark.parametrize(
    ("version", "ready", "unready"),
    [
        (csv(phase="Installing", reason="InstallWaiting", message=WAITING), 0, (PACKAGE,)),
        (csv(phase="Installing", reason="InstallWaiting", message=WAITING), 1, ()),
        (csv(phase="Failed", reason="InstallCheckFailed", message="install timeout"), 0, (PACKAGE,)),
        (csv(), 0, (PACKAGE,)),
        # A Deployment of the version before is not the reason, although this version's name contains its name.
        (
            csv(phase="Pending", reason="RequirementsNotMet", message="one or more requirements couldn't be found"),
            0,
            (),
        ),
        (csv(phase="InstallReady"), 0, ()),
    ],
)
def test_a_timeout_is_explained_by_deployments_only_in_phases_that_wait_for_them(
    version: dict[str, Any], ready: int, unready: tuple[str, ...]
) -> None:
    state = observed(csvs=[version], deployments=[deployment(ready=ready), deployment("other", ready=0)])
    assert assess(state, DESIRED).unready == unready


@pytest.mark.parametrize(("kind", "unpacking"), [("BundleUnpacking", True), ("CatalogSourcesUnhealthy", False)])
def test_a_timeout_is_explained_by_unpacking_only_while_olm_unpacks(kind: str, unpacking: bool) -> None:
    pending = subscription(conditions=[condition(kind, status="True" if unpacking else "False")])
    assert assess(observed(csvs=[], deployments=[], plans=[], subscriptions=[pending]), DESIRED).unpacking is unpacking
