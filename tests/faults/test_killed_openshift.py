# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The installation and the upgrade through OLM are killed after each changing request: the next run reaches the usual state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.openshift import GPU_CSV, GPU_NAMESPACE, NFD_CSV, NFD_NAMESPACE, OpenShift
from tests.helpers.playbook import run_playbook
from tests.helpers.playbook_kills import killed_after
from tests.labs import Lab
from tests.programs import REPO

INVENTORY = REPO / "inventories" / "openshift"
# More than an uninterrupted run sends.
REQUESTS = 40
INSTALLATION = ("--tags", "nfd,gpu_operator")

pytestmark = [pytest.mark.soak, pytest.mark.usual(60), pytest.mark.timeout(900)]


def require_converged(openshift: OpenShift, name: str, options: dict[str, Any]) -> None:
    """The next run ends without an error, the one after it has nothing to do, and both operators run."""
    lab = openshift.lab
    continued = run_playbook(name, environ=lab.env, **options).require_success()
    assert openshift.csv(GPU_NAMESPACE, GPU_CSV)["phase"] == "Succeeded"
    assert openshift.csv(NFD_NAMESPACE, NFD_CSV)["phase"] == "Succeeded"
    assert openshift.policy_is_ready()
    assert run_playbook(name, environ=lab.env, **options).require_success().changed("openshift") == 0
    lease = openshift.get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/accel-gpu")
    # A run that has nothing to send takes no Lease; that of the killed run expires.
    assert not continued.changed("openshift") or not lease["spec"].get("holderIdentity")


@pytest.mark.parametrize("number", range(1, REQUESTS))
def test_an_installation_is_killed(openshift_lab: Lab, tmp_path: Path, number: int) -> None:
    openshift = OpenShift(openshift_lab).empty()
    options: dict[str, Any] = {"inventory": INVENTORY, "arguments": INSTALLATION}
    if killed_after(openshift_lab, "accel.gpu.site", number, tmp_path, **options) is None:
        pytest.skip("the run had ended")
    require_converged(openshift, "accel.gpu.site", options)


@pytest.mark.parametrize("number", range(1, 12))
def test_an_upgrade_is_killed(openshift_lab: Lab, tmp_path: Path, number: int) -> None:
    openshift = OpenShift(openshift_lab)

    def install_old() -> None:
        old = {
            "name": openshift_lab.name,
            "distribution": "openshift",
            "operator": {"version": "v25.3.2"},
            "cloud": {"machineset": {}},
        }
        run_playbook(
            "accel.gpu.site",
            environ=openshift_lab.env,
            inventory=INVENTORY,
            arguments=INSTALLATION,
            variables={"gpu_cluster": old},
        ).require_success()

    openshift_lab.become("openshift-old", install_old)
    options: dict[str, Any] = {"inventory": INVENTORY, "variables": {"gpu_operator_allow_driver_rollout": True}}
    if killed_after(openshift_lab, "accel.gpu.upgrade", number, tmp_path, **options) is None:
        pytest.skip("the run had ended")
    require_converged(openshift, "accel.gpu.upgrade", options)
