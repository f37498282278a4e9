# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A module in a fork of this process: its options, environment, output and end, and that nothing of it stays in this process."""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.basic import AnsibleModule

from ansible_collections.accel.gpu.plugins.module_utils.core.files import start_time
from ansible_collections.accel.gpu.plugins.plugin_utils import direct_execution
from ansible_collections.accel.gpu.plugins.plugin_utils.direct_execution import Result, encode_options, execute
from tests.helpers.polling import until
from tests.programs import run as run_program


def run(main: Callable[[], None], options: dict[str, Any] | None = None, **environment: str) -> Result:
    return execute(main, encode_options(options or {}), environment, "/", lambda: None)


def echo() -> None:
    """A module that returns its options, an environment variable, and a warning."""
    module = AnsibleModule(
        {"text": {"type": "str"}, "number": {"type": "int"}, "secret": {"type": "str", "no_log": True}},
        supports_check_mode=True,
    )
    module.warn("careful")
    module.exit_json(
        changed=module.check_mode,
        given=[module.params["text"], module.params["number"]],
        host=os.environ["TEST_HOST"],
        leaked=module.params["secret"],
    )


def test_a_module_gets_its_options_and_environment_and_returns_its_result_and_warnings() -> None:
    options = {"text": "ü {{ x }}", "number": "4", "secret": "s3cret", "_ansible_check_mode": True}
    completed = run(echo, options, TEST_HOST="prod")
    result = json.loads(completed["stdout"])
    assert (completed["rc"], completed["stderr"]) == (0, "")
    assert (result["changed"], result["given"], result["host"]) == (True, ["ü {{ x }}", 4], "prod")
    assert "careful" in str(result["warnings"])
    assert "s3cret" not in completed["stdout"]
    assert "TEST_HOST" not in os.environ


def test_a_failure_of_a_module_is_its_result() -> None:
    completed = run(echo, {"number": "four"}, TEST_HOST="prod")
    assert completed["rc"] == 1
    assert "number" in json.loads(completed["stdout"])["msg"]


def interrupted() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def broken() -> None:
    raise ValueError("broken")


@pytest.mark.parametrize(
    ("main", "rc", "stderr"),
    [
        pytest.param(lambda: None, 0, "", id="returns"),
        pytest.param(lambda: sys.exit(), 0, "", id="exits"),
        pytest.param(lambda: sys.exit(3), 3, "", id="exits with a number"),
        pytest.param(lambda: sys.exit("why"), 1, "", id="exits with text"),
        pytest.param(broken, 1, "ValueError: broken", id="raises"),
        pytest.param(interrupted, 137, "", id="is killed"),
    ],
)
def test_the_end_of_a_module_is_an_exit_status(main: Callable[[], None], rc: int, stderr: str) -> None:
    completed = run(main)
    assert completed["rc"] == rc
    assert stderr in completed["stderr"]


def test_output_of_any_length_is_read() -> None:
    def main() -> None:
        for dummy in range(2000):
            print("o" * 99)
            print("e" * 99, file=sys.stderr)

    completed = run(main)
    assert (len(completed["stdout"]), len(completed["stderr"])) == (200_000, 200_000)


def test_output_of_started_programs_is_read() -> None:
    assert run(lambda: exit(os.system("echo from a program")))["stdout"] == "from a program\n"


def test_a_module_runs_its_own_exit_handlers_and_no_others(tmp_path: Path) -> None:
    def main() -> None:
        atexit.register((tmp_path / "own").touch)

    handler = (tmp_path / "inherited").touch
    atexit.register(handler)
    try:
        run(main)
    finally:
        atexit.unregister(handler)
    assert {path.name for path in tmp_path.iterdir()} == {"own"}


def test_a_module_has_no_open_files_of_this_process_and_the_usual_signal_handlers() -> None:
    def main() -> None:
        usual = (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT))
        print(usual == (signal.SIG_DFL, signal.default_int_handler), sorted(os.listdir("/proc/self/fd"))[:4])

    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        # The fourth one is that of the listing.
        assert run(main)["stdout"] == "True ['0', '1', '2', '3']\n"
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_module_starts_in_the_given_folder_and_without_the_terminal(tmp_path: Path) -> None:
    def main() -> None:
        print(os.getcwd(), os.readlink("/proc/self/fd/0"))

    completed = execute(main, encode_options({}), {}, str(tmp_path), lambda: None)
    assert completed["stdout"] == f"{tmp_path} /dev/null\n"
    assert os.getcwd() != str(tmp_path)


def time_limit(started: Path) -> Callable[[], None]:
    """Raises as soon as the module has written into the file."""

    def expire() -> None:
        while not (started.exists() and started.read_text()):
            pass
        raise TimeoutError

    return expire


def test_a_task_that_fails_meanwhile_ends_its_module(tmp_path: Path) -> None:
    started, changed = tmp_path / "started", tmp_path / "changed"

    def main() -> None:
        started.write_text(str(os.getpid()))
        threading.Event().wait(60)
        changed.touch()

    with pytest.raises(TimeoutError):
        execute(main, encode_options({}), {}, "/", time_limit(started))
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)
    assert not changed.exists()


def test_a_task_that_fails_meanwhile_ends_the_programs_of_its_module(tmp_path: Path) -> None:
    started = tmp_path / "started"

    def main() -> None:
        program = subprocess.Popen(["sh", "-c", "sleep 60"])
        started.write_text(str(program.pid))
        program.wait()

    with pytest.raises(TimeoutError):
        execute(main, encode_options({}), {}, "/", time_limit(started))
    pid = int(started.read_text())
    until(lambda: not start_time(pid))


def test_the_process_is_forked_before_on_start_is_called() -> None:
    """Threads that on_start begins do not exist when the process forks."""
    started: list[threading.Thread] = []

    def on_start() -> None:
        started.append(threading.Thread(target=lambda: None))
        started[0].start()

    completed = execute(lambda: print(len(started)), encode_options({}), {}, "/", on_start)
    started[0].join()
    assert completed["stdout"] == "0\n"


@pytest.mark.parametrize("name", ["helm_release", "gpu_info", "magnum_nodegroup"])
def test_ansible_finds_the_action_plugin_of_a_module_before_it_forks_workers(name: str) -> None:
    """Ansible's strategies make the first call in the main process. The defaults of a module are those of the resolved action."""
    find = (
        "from ansible.playbook.task import Task\n"
        "from ansible.plugins.loader import action_loader, init_plugin_loader\n"
        "init_plugin_loader([])\n"
        f"print(action_loader.get('accel.gpu.{name}', class_only=True).__module__)\n"
        f"print(Task.load({{'accel.gpu.{name}': {{}}}}).resolved_action)\n"
    )
    plugin, action = run_program(sys.executable, "-c", find).split()
    assert plugin == f"ansible_collections.accel.gpu.plugins.action.{name}"
    assert action == f"accel.gpu.{name}"


def test_a_module_that_ignores_its_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_execution, "END_SECONDS", 0.1)

    def main() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        (tmp_path / "pid").write_text(str(os.getpid()))
        (tmp_path / "started").touch()
        time.sleep(60)

    def interrupt() -> None:
        until((tmp_path / "started").exists)
        raise TimeoutError

    with pytest.raises(TimeoutError):
        execute(main, encode_options({}), {}, str(tmp_path), interrupt)
    # The child has ended and is no zombie.
    assert not Path("/proc", (tmp_path / "pid").read_text()).exists()
