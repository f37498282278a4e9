# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check of an existing operator before anything is created."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.errors import InvalidOptions
from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.installation import InstallationFinding
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.modules import operator_info


@pytest.mark.parametrize("problem", ["", "ClusterPolicy cluster-policy: spec.devicePlugin.enabled is false"])
def test_without_components_only_the_problem_of_the_operator_counts(
    monkeypatch: pytest.MonkeyPatch, problem: str
) -> None:
    finding = InstallationFinding(None, managed=True, problem=problem)
    monkeypatch.setattr(operator_info, "find_operator", lambda client, plan: finding)
    params: dict[str, Any] = {"components": [], "allow_release": None}
    module: Any = SimpleNamespace(client=None, plan=derive({"name": "c"}, {}, [{"name": "a"}]), params=params)
    if problem:
        with pytest.raises(InvalidOptions, match=r"devicePlugin\.enabled is false"):
            operator_info.work(module)
    else:
        assert operator_info.work(module) == {"changed": False, "operator_info": {}}
