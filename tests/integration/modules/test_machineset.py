# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules machineset and machineset_info on a cluster without the Machine API."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.modules import machineset, machineset_info
from tests.helpers.modules import run_module
from tests.labs import Lab

pytestmark = [pytest.mark.usual(2)]


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(
    ("main", "options"),
    [(machineset.main, {"name": "train", "flavor": "g4dn.xlarge"}), (machineset_info.main, {})],
)
def test_nothing_creates_the_api(lab: Lab, main: t.Callable[[], t.Any], options: dict[str, t.Any], check: bool) -> None:
    """No run creates the API, so check mode fails as well."""
    result = run_module(main, {"kubeconfig": str(lab.kubeconfig), **options}, check=check)
    assert result["failed"]
    assert result["code"] == "invalid"
    assert (
        "The cluster has no MachineSet API (machine.openshift.io/v1beta1), and this run does not create it."
        in result["msg"]
    )
