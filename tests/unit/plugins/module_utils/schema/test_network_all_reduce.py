# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The source of the program that runs in the pods."""

from __future__ import annotations

from ansible_collections.accel.gpu.plugins.module_utils.schema.validation_programs import SOURCE


def test_the_program_is_python_and_kubernetes_replaces_nothing_in_it() -> None:
    compile(SOURCE, "all_reduce.py", "exec")
    assert "$(" not in SOURCE
