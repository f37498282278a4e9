# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The failure of a module."""

from __future__ import annotations

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.errors import PartialFailure, ServiceError
from ansible_collections.accel.gpu.plugins.module_utils.core.messages import printable
from ansible_collections.accel.gpu.plugins.module_utils.core.module import CONFIRM, BaseModule
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


HOSTILE = "denied\x1b[2J\x1b]0;owned\x07 by \u202egnp.exe\u202c \u2066a\u2069\u200b\ufeff\x9b31m\r\x00\x7f\x85"
SHOWN = (
    r"denied\u001b[2J\u001b]0;owned\u0007 by \u202egnp.exe\u202c \u2066a\u2069\u200b\ufeff\u009b31m\r\u0000\u007f\u0085"
)


def test_no_failure_reaches_the_terminal_with_control_characters() -> None:
    def work(module: BaseModule) -> dict[str, object]:
        module.warn(HOSTILE)
        raise PartialFailure(f"{HOSTILE}\n\tsecond", {"noun": {HOSTILE: [HOSTILE]}, "diff": {"before": HOSTILE}})

    result = run_module(lambda: BaseModule({}).run(work), {}, diff=True)
    assert result["msg"] == f"{SHOWN}\n\tsecond"
    assert (result["noun"], result["diff"]) == ({SHOWN: [SHOWN]}, {"before": SHOWN})
    assert SHOWN in str(result["warnings"]).replace("\\\\", "\\")


def test_no_diff_reaches_the_terminal_with_control_characters_and_data_is_unchanged() -> None:
    def work(module: BaseModule) -> dict[str, object]:
        return {"changed": True, "noun": HOSTILE, "diff": [{"before": {HOSTILE: 1}, "after": f"a\r\n{HOSTILE}\n"}]}

    result = run_module(lambda: BaseModule({}).run(work), {}, diff=True)
    assert result["diff"] == [{"before": {SHOWN: 1}, "after": f"a\n{SHOWN}\n"}]
    assert result["noun"] == HOSTILE


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\x0b", "\x85", "\u2028"])
def test_no_line_of_a_service_looks_like_one_of_ansible(end: str) -> None:
    def work(module: BaseModule) -> dict[str, object]:
        raise ServiceError(f"denied{end}{end}  PLAY RECAP *****{end}prod : ok=9", status=403)

    result = run_module(lambda: BaseModule({}).run(work), {})
    assert result["msg"] == "denied PLAY RECAP ***** prod : ok=9"


@pytest.mark.parametrize("text", ["GPU von Jürgen", "máy chủ", "机器 🚀", "a\tb\nc", "é\u0301"])
def test_ordinary_text_is_shown_as_it_is(text: str) -> None:
    assert printable(text) == text


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
