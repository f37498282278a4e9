# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The failure of a module."""

from __future__ import annotations

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.common.errors import PartialFailure, ServiceError
from ansible_collections.accel.gpu.plugins.module_utils.common.module import CONFIRM, BaseModule
from tests.helpers.modules import run_module


@pytest.mark.parametrize("error", [PartialFailure("first"), ServiceError("first", status=403)])
def test_the_notes_of_an_error_follow_its_message(error: PartialFailure | ServiceError) -> None:
    error.add_note("second")

    def work(module: BaseModule) -> dict[str, object]:
        raise error

    result = run_module(lambda: BaseModule({}).run(work), {})
    assert (result["msg"], result["code"]) == ("first\nsecond", error.code)


@pytest.mark.parametrize("check", [True, False])
def test_a_failed_preview_has_the_predicted_result_but_no_change(check: bool) -> None:
    def work(module: BaseModule) -> dict[str, object]:
        raise PartialFailure("refused", {"changed": True, "noun": {"nodes": 3}})

    result = run_module(lambda: BaseModule({}).run(work), {}, check=check)
    assert (result["changed"], result["noun"]) == (not check, {"nodes": 3})


@pytest.mark.parametrize(("partial", "changed"), [({}, True), ({"noun": {}}, True), ({"changed": False}, False)])
@pytest.mark.parametrize("check", [True, False])
def test_a_failure_after_a_write_is_a_change(partial: dict[str, object], changed: bool, check: bool) -> None:
    class WritingModule(BaseModule):
        """A module whose service has accepted a write."""

        def has_written(self) -> bool:
            return True

    def work(module: BaseModule) -> dict[str, object]:
        raise PartialFailure("timeout", partial)

    result = run_module(lambda: WritingModule({}).run(work), {}, check=check)
    assert result["changed"] is (changed and not check)


@pytest.mark.parametrize(
    ("name", "confirm", "message"),
    [
        ("prod", ["prod"], ""),
        ("prod", ["test", " prod "], ""),
        ("prod", [], "Deletes all. The list. Nothing was done. To confirm, add -e gpu_confirm=prod (option confirm of the module"),
        ("prod", ["test"], "; gpu_confirm is test."),
        ("prod", ["PROD"], "; gpu_confirm is PROD."),
        ("prod", ["pro", "prod-2"], "; gpu_confirm is pro, prod-2."),
        ("", [""], "To confirm, set gpu_cluster.name"),
        ("", ["prod"], "To confirm, set gpu_cluster.name"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("check", [True, False])
def test_a_deletion_needs_the_name_of_the_cluster(name: str, confirm: list[str], message: str, check: bool) -> None:
    class DeletingModule(BaseModule):
        """A module that deletes something."""

        def name_to_confirm(self) -> str:
            return name

    def work(module: BaseModule) -> dict[str, object]:
        module.require_confirmation("Deletes all.", "The list.")
        return {"changed": True}

    result = run_module(lambda: DeletingModule(CONFIRM).run(work), {"confirm": confirm}, check=check)
    if check:
        assert result["changed"]
        assert bool(result.get("warnings")) == bool(message)
    elif message:
        assert message in result["msg"]
        assert (result["code"], result["changed"]) == ("not_confirmed" if name else "invalid", False)
    else:
        assert result["changed"]
