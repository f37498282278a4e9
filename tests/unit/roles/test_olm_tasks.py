# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Both roles install through the same tasks, which pass every declared option of the Subscription to the module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.installation import evaluate_olm
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from tests.programs import REPO

MODULE = "accel.gpu.olm_subscription"


def tasks_with(module: str) -> dict[Path, list[dict[str, Any]]]:
    actual = {
        path: [task for task in yaml.safe_load(path.read_text(encoding="utf-8")) if module in task]
        for path in (REPO / "roles").glob("*/tasks/*.yml")
    }
    return {path: tasks for path, tasks in actual.items() if tasks}


def test_the_shared_tasks_pass_every_option_of_the_subscription() -> None:
    installing = {
        path: task
        for path, tasks in tasks_with(MODULE).items()
        for task in tasks
        if task[MODULE].get("state") != "absent"
    }
    assert [str(path.relative_to(REPO)) for path in installing] == ["roles/pools/tasks/olm.yml"]
    (task,) = installing.values()
    returned = evaluate_olm([], derive({"name": "c", "distribution": "openshift"}, {}, []).operator, (), ()).as_dict()
    options = returned["subscription"].keys() - {"namespace_labels"}
    passed = {name for name, value in task[MODULE].items() if f"subscription.{name}" in str(value)}
    assert passed == options
