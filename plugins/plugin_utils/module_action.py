# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base class for the action plugins of modules that report progress. It runs the module, and shows the progress on stderr.

Each of these modules has its own action plugin, which `make docs` writes. Before Ansible forks the worker of the task, it loads the plugin, and the plugin
imports the module that it names, so the tasks of a run share the imports. Three alternatives do not work: the main process does not follow a route in
meta/runtime.yml, a redirect gives a module the module_defaults of another module, and ansible-galaxy omits links.
"""

from __future__ import annotations

import contextlib
import gc
import json
import multiprocessing
import os
import socket
import sys
import threading
import time
import types
import typing as t

from ansible import constants
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ..module_utils.core.files import make_file, start_time
from ..module_utils.core.messages import printable, visible, web_url
from ..module_utils.core.waits import INVENTORY_HOST_ENV, PROGRESS_ENV, RUN_ID_ENV, RUN_URL_ENV
from . import direct_execution
from .compiled_imports import import_compiled
from .same_cluster import same_cluster

# Options with paths that are relative to the user's folder. Modules run in the playbook's folder, which belongs to the installed collection.
_USER_PATHS = ("token_path",)
_UNEXPECTED_OUTPUT = ("msg", "module_stdout", "module_stderr", "exception")
# The default addresses in AWX's settings (awx/settings/defaults.py), with which nobody has said yet where AWX is.
_UNSET_HOSTS = ("https://towerhost", "https://platformhost")
_PLUGINS = __name__.rpartition(".plugin_utils.")[0]
_POLL = 0.2
_INTERVAL = 2.0
# In a long run, lines are shown less often, so that they do not fill the log.
_LATE_INTERVAL, _LATE = 10.0, 60.0
# Seconds after which an unchanged line is shown again, as long as the module reports it.
_REPEAT = 60.0


class ModuleAction(ActionBase):
    """Runs the task's module, and shows the progress while the module runs. MODULE is the name of the module."""

    MODULE: str
    _module: types.ModuleType

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = True

    def __init_subclass__(cls) -> None:
        """Import the module."""
        cls._module = import_compiled(f"{_PLUGINS}.modules.{cls.MODULE}")
        # The workers of all tasks are forked from this process. After this call, the garbage collector of the workers, and of this process when it
        # ends, skips all existing objects. Most of these objects come from imports (https://docs.python.org/3/library/gc.html#gc.freeze).
        gc.freeze()

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Return the module's own result. A problem with the progress lines never changes this result."""
        self._resolve_paths()
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        problem = "" if self._task.run_once else same_cluster(self._task.args.get("gpu_cluster"), variables)
        if problem:
            return {**result, "failed": True, "msg": problem, "code": "invalid"}
        in_background = bool(self._task.async_val) and not self._connection.has_native_async
        host = str(variables.get("inventory_hostname", "localhost"))
        environment = {RUN_ID_ENV: run_id(), RUN_URL_ENV: run_url(), INVENTORY_HOST_ENV: host}
        if in_background:
            return {**result, **self._run_module(environment, variables, wrap_async=True)}
        reader = _Reader(host, hide_text=bool(self._task.no_log))
        with reader as path:
            if path:
                environment[PROGRESS_ENV] = path
            if self._runs_here(variables):
                result.update(self._run_here(environment, variables, reader.follow))
            else:
                reader.follow()
                result.update(self._run_module(environment, variables))
        if result.get("failed"):
            # A module that ended unexpectedly has not removed what could change the terminal.
            result.update({key: printable(result[key]) for key in _UNEXPECTED_OUTPUT if key in result})
        self._remove_tmp_path(self._connection._shell.tmpdir)
        return result

    def _resolve_paths(self) -> None:
        """Resolve the user's paths in the folder where ansible-playbook was started."""
        for name in _USER_PATHS:
            if path := self._task.args.get(name):
                self._task.args[name] = os.path.abspath(os.path.expanduser(os.path.expandvars(str(path))))

    def _run_module(
        self, environment: dict[str, str], variables: dict[str, t.Any], wrap_async: bool = False
    ) -> dict[str, t.Any]:
        # These values are environment variables, so that the module's options contain only what the user has set.
        self._task.environment.append(environment)
        try:
            return t.cast("dict[str, t.Any]", self._execute_module(task_vars=variables, wrap_async=wrap_async))
        finally:
            self._task.environment.remove(environment)

    def _runs_here(self, variables: t.Mapping[str, t.Any]) -> bool:
        """Return whether the module runs on this machine, as this user, and with Ansible's interpreter."""
        interpreter = self._templar.template(variables.get("ansible_python_interpreter"))
        return (
            direct_execution.IS_SUPPORTED
            and boolean(os.environ.get(direct_execution.SWITCH_ENV, True), strict=False)
            and self._connection.transport in ("local", "ansible.builtin.local")
            and self._connection.become is None
            and not self._task.async_val
            and not self._task.delegate_to
            and interpreter == sys.executable
            and not constants.DEFAULT_KEEP_REMOTE_FILES
        )

    def _run_here(
        self, environment: dict[str, str], variables: dict[str, t.Any], on_start: t.Callable[[], None]
    ) -> dict[str, t.Any]:
        """Run the module like Ansible's _execute_module(), but in a fork of this process."""
        options = dict(self._task.args)
        self._update_module_args(self._task.action, options, variables)
        of_task: dict[str, t.Any] = {}
        self._compute_environment_string(of_task)
        completed = direct_execution.execute(
            self._module.main,
            direct_execution.encode_options(options),
            {**{name: str(value) for name, value in of_task.items()}, **environment},
            self._loader.get_basedir(),
            on_start,
        )
        return direct_execution.result_dict(self._parse_returned_data(completed, *direct_execution.PROFILE))


def run_id() -> str:
    """Return an identifier of this ansible-playbook run: the number of the AWX job, or the host, process and start time."""
    if job := _awx_job():
        return f"awx-{job}"
    parent = multiprocessing.parent_process()
    pid = parent.pid if parent is not None and parent.pid else os.getpid()
    return f"{socket.gethostname()}-{pid}-{start_time(pid) or 0}"


def run_url() -> str:
    """Return the page of this AWX job; empty outside of AWX, or if AWX does not know its own address.

    AWX passes its address (the setting TOWER_URL_BASE) in AWX_HOST, and builds the links in its notifications in the same way (Job.get_ui_url() in
    awx/main/models/jobs.py, 24.6.1).
    """
    host = os.environ.get("AWX_HOST", "").rstrip("/")
    job = _awx_job()
    if not job.isdecimal() or host in _UNSET_HOSTS or any(character in host for character in "?#"):
        return ""
    return web_url(f"{host}/#/jobs/playbook/{job}")


def _awx_job() -> str:
    job = os.environ.get("AWX_JOB_ID") or os.environ.get("JOB_ID") or ""
    return job if os.environ.get("AWX_HOST") else ""


class _Reader:
    """Follows a file of progress lines in a thread, and shows the newest line at a readable rate."""

    def __init__(self, host: str, hide_text: bool) -> None:
        self._host = host
        self._hide_text = hide_text
        self._path: str | None = None
        self._rest = ""
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> str | None:
        """Return the path to the file. If the file cannot be created, return None; no progress is shown in this case."""
        with contextlib.suppress(OSError):
            self._path = make_file("progress")
        return self._path

    def follow(self) -> None:
        """Start the thread, but only after any fork, because a process should not have threads when it forks."""
        if self._path is not None:
            self._thread = threading.Thread(target=self._follow, args=(self._path,), name="progress", daemon=True)
            self._thread.start()

    def __exit__(self, *dummy: object) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
        if self._path is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._path)

    def _follow(self, path: str) -> None:
        start = time.monotonic()
        shown_at = 0.0
        shown = waiting = ""
        with open(path, encoding="utf-8") as lines:
            ended = False
            while not ended:
                ended = self._done.wait(_POLL)
                waiting = self._newest(lines) or waiting
                now = time.monotonic()
                interval = _INTERVAL if now - start < _LATE else _LATE_INTERVAL
                due = ended or now - shown_at >= interval if waiting != shown else now - shown_at >= _REPEAT
                if waiting and due:
                    Display().display(waiting, stderr=True)
                    shown, shown_at, waiting = waiting, now, ""

    def _newest(self, lines: t.TextIO) -> str:
        """Return the newest complete line since the last call. An incomplete line is kept for the next call."""
        *complete, self._rest = (self._rest + lines.read()).split("\n")
        for line in reversed(complete):
            with contextlib.suppress(ValueError, TypeError, AttributeError):
                return self._format(json.loads(line))
        return ""

    def _format(self, line: dict[str, t.Any]) -> str:
        counts = f"{line['done']}/{line['total']}" if "total" in line else ""
        words = "" if self._hide_text else str(line.get("text", ""))
        # With no_log, only the counts are shown.
        return visible(f"{self._host}: {' '.join(part for part in (counts, words) if part) or 'working ...'}")
