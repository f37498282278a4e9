# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a module's main() in this process, with arguments as from Ansible."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import json
import os
import typing as t
from unittest import mock

from ansible.module_utils import basic
from ansible.module_utils.common import warnings


def run_module(
    main: t.Callable[[], t.Any],
    args: t.Mapping[str, t.Any],
    *,
    check: bool = False,
    diff: bool = False,
    env: t.Mapping[str, str] | None = None,
) -> dict[str, t.Any]:
    """The JSON that the module printed; a failure has "failed": true. Works on ansible-core 2.16 to 2.21."""
    options = {
        **args,
        "_ansible_check_mode": check,
        "_ansible_diff": diff,
        "_ansible_no_log": False,
        "_ansible_debug": False,
        "_ansible_verbosity": 0,
        "_ansible_module_name": f"accel.gpu.{main.__module__.rpartition('.')[2]}",
        "_ansible_remote_tmp": "/tmp",
        "_ansible_keep_remote_files": False,
    }
    buffer = json.dumps({"ANSIBLE_MODULE_ARGS": options}).encode()
    printed = io.StringIO()
    # Ansible collects warnings for the whole process; those of an earlier module are not this one's.
    for collected in (warnings._global_warnings, warnings._global_deprecations):
        collected.clear()
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(basic, "_ANSIBLE_ARGS", buffer))
        # Since core 2.19 the arguments have their own serialization profile.
        stack.enter_context(mock.patch.object(basic, "_ANSIBLE_PROFILE", "legacy", create=True))
        # The process of a module is no controller, although this process has imported the controller; warnings are in the module's result.
        if importlib.util.find_spec("ansible.module_utils._internal"):
            internal = importlib.import_module("ansible.module_utils._internal")
            stack.enter_context(mock.patch.object(internal, "is_controller", False))
            # Only the controller checks the encoding of options, and remembers that it does.
            profiles = importlib.import_module("ansible.module_utils._internal._json._profiles")
            stack.enter_context(mock.patch.object(profiles, "_string_encoding_check_enabled", return_value=False))
        stack.enter_context(mock.patch.dict(os.environ, env or {}))
        stack.enter_context(contextlib.redirect_stdout(printed))
        try:
            main()
        except SystemExit:
            pass
        else:
            raise AssertionError("the module ended without exit_json or fail_json")
    lines = [line for line in printed.getvalue().splitlines() if line.startswith("{")]
    return t.cast("dict[str, t.Any]", json.loads(lines[-1]))
