# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NFD and the operator from charts in a private registry, as on a site without internet access."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.playbook import run_playbook
from tests.helpers.registry import registry
from tests.labs import Lab

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200), pytest.mark.usual(90)]

SITE = "accel.gpu.site"


def test_site_installs_charts_from_a_registry(lab: Lab, tmp_path: Path) -> None:
    lab.reset()
    charts = Path(lab.env["LAB_CHARTS"])
    with registry(lab, tmp_path) as private:
        operator, nfd = (
            private.push_chart(charts / name, tmp_path) for name in ("gpu-operator", "node-feature-discovery")
        )
        document: dict[str, Any] = {
            "name": lab.name,
            "operator": {"chart": operator, "version": "v25.10.1"},
            "nfd": {"chart": nfd, "version": "0.19.0"},
        }
        variables = {"gpu_cluster": document}
        run_playbook(SITE, environ=private.env, variables=variables).require_success()
        again = run_playbook(SITE, environ=private.env, variables=variables).require_success()
        assert again.changed() == 0
        missing = {"gpu_cluster": {**document, "nfd": {"chart": nfd, "version": "9.9.9"}}}
        refused = run_playbook(SITE, environ=private.env, variables=missing)
    assert refused.rc != 0
    assert "9.9.9" in refused.failure()
