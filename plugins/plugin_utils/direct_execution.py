# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a module in a fork of Ansible's worker, which has already imported the module.

Otherwise, Ansible packs a module and all of its module_utils into a zip file, and a new Python interpreter compiles them and imports the
libraries again. This takes about a second for each task. ansible.netcommon also forks for network modules (ANSIBLE_NETWORK_IMPORT_MODULES). As usual, the
module runs in a separate process, with its own memory, environment and standard output.
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import signal
import sys
import time
import traceback
import typing as t

from ansible.module_utils import basic
from ansible.release import __version__
from ansible.utils.unsafe_proxy import wrap_var

from ..module_utils.core.files import descendants, signal_processes

Result = dict[str, t.Any]
Main = t.Callable[[], None]

# The releases of ansible-core whose way to pass options and results is known. In other releases, Ansible packs the module.
_RELEASES = ((2, 16), (2, 21))
IS_SUPPORTED = _RELEASES[0] <= tuple(int(number) for number in __version__.split(".")[:2]) <= _RELEASES[1]
# The default JSON format for the options and the result of a module. Older releases have only one format.
PROFILE: tuple[str, ...] = ("legacy",) if hasattr(basic, "_ANSIBLE_PROFILE") else ()

# If this environment variable is false on the controller, Ansible runs all modules in its usual way.
SWITCH_ENV = "ACCEL_GPU_DIRECT_EXECUTION"

_CHUNK = 65536
# The time that a module gets to end after SIGTERM.
END_SECONDS = 30.0
# As in a shell, the exit status of a module that a signal terminated is this number plus the number of the signal.
_SIGNALLED = 128


def encode_options(options: t.Mapping[str, t.Any]) -> bytes:
    """Return the options of a module in the encoding that Ansible uses."""
    encoding: dict[str, t.Any]
    if PROFILE:
        from ansible.module_utils.common.json import Direction, get_module_encoder

        encoding = {"cls": get_module_encoder(*PROFILE, Direction.CONTROLLER_TO_MODULE)}
    else:
        from ansible.parsing.ajson import AnsibleJSONEncoder

        encoding = {"cls": AnsibleJSONEncoder, "vault_to_text": True}
    return json.dumps({"ANSIBLE_MODULE_ARGS": options}, **encoding).encode()


def result_dict(parsed: t.Any) -> Result:
    """Convert the result of ActionBase._parse_returned_data() to the format that _execute_module() returns."""
    if not isinstance(parsed, dict):
        # This applies to ansible-core 2.21 and later.
        return t.cast(Result, parsed.as_result_dict(for_round_trip=True))
    # Strings from a module are not templates. Since ansible-core 2.19, only marked strings are templates.
    return parsed if PROFILE else t.cast(Result, wrap_var(parsed))


def execute(
    main: Main, options: bytes, environment: t.Mapping[str, str], folder: str, on_start: t.Callable[[], None]
) -> Result:
    """Run the main function of a module in this folder, and return its `rc`, `stdout` and `stderr`. `on_start` is called after the fork."""
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    pid = os.fork()
    if not pid:
        _run(main, options, environment, folder, out_end, err_end)
    os.close(out_end)
    os.close(err_end)
    try:
        on_start()
        stdout, stderr = _read(out, err)
    except BaseException:
        # For example, the task has reached its time limit. A task that has failed must not continue with its changes.
        programs = descendants(pid)
        _end(pid)
        signal_processes(programs, signal.SIGTERM)
        raise
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return {"rc": status if status >= 0 else _SIGNALLED - status, "stdout": stdout, "stderr": stderr}


def _end(pid: int) -> None:
    """End the child, which gets some seconds to release its Lease."""
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + END_SECONDS
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return
        time.sleep(0.05)


def _read(*ends: int) -> t.Iterator[str]:
    """Read several pipes to their ends."""
    texts = {end: bytearray() for end in ends}
    with selectors.DefaultSelector() as selector:
        for end in ends:
            selector.register(end, selectors.EVENT_READ)
        while selector.get_map():
            for key, dummy in selector.select():
                data = os.read(key.fd, _CHUNK)
                texts[key.fd] += data
                if not data:
                    selector.unregister(key.fd)
                    os.close(key.fd)
    return (text.decode(errors="surrogateescape") for text in texts.values())


def _run(main: Main, options: bytes, environment: t.Mapping[str, str], folder: str, out: int, err: int) -> t.NoReturn:
    """Run the module in the child process. Never returns to the code of Ansible's worker."""
    status = 1
    try:
        # A program that the module starts must not wait for the terminal.
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        # Close the worker's connections to Ansible.
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        sys.stdout, sys.stderr = (os.fdopen(end, "w", encoding="utf-8", errors="surrogateescape") for end in (1, 2))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # Unregister the functions that the worker runs when it exits.
        atexit._clear()
        os.environ.update(environment)
        os.chdir(folder)
        _prepare(options)
        status = _status(main)
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)


def _prepare(options: bytes) -> None:
    """Pass the options to AnsibleModule in the same way as ansiballz, Ansible's wrapper for modules."""
    basic._ANSIBLE_ARGS = options
    if PROFILE:
        from ansible.module_utils import _internal

        (basic._ANSIBLE_PROFILE,) = PROFILE
        # Warnings become part of the result.
        _internal.is_controller = False


def _status(main: Main) -> int:
    try:
        main()
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    return 0
