# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys and certificates that a kubeconfig, or its credential plugin, holds as data stay in memory.

OpenSSL wants files, so the kubernetes library writes such data to the folder for temporary files and deletes it when the process ends,
which a killed process never does (kubernetes/config/kube_config.py, _create_temp_file_with_content). An anonymous file of memory
(memfd_create) can be read by the same process through /proc/self/fd and is gone with it, however it ends.
"""

from __future__ import annotations

import contextlib
import os
import typing as t

_WRITER = "_create_temp_file_with_content"
_paths: dict[bytes, str] = {}


def keep_keys_in_memory(library: t.Any) -> None:
    """Have the library's module kube_config do so; where the system has no such files (macOS), it goes on as before."""
    original = getattr(library, _WRITER, None)
    if original is None or getattr(original, "in_memory", False) or not hasattr(os, "memfd_create"):
        return

    def write(content: str | bytes, *args: t.Any, **kwargs: t.Any) -> str:
        data = content.encode() if isinstance(content, str) else bytes(content)
        return in_memory(data) or str(original(content, *args, **kwargs))

    write.in_memory = True  # type: ignore[attr-defined]
    setattr(library, _WRITER, write)


def in_memory(data: bytes) -> str | None:
    """The path of a file of memory with this content, for this process alone; None where there can be none."""
    if data not in _paths:
        with contextlib.suppress(OSError):
            # Not inherited by programs that are started: close-on-exec is Python's default.
            handle = os.memfd_create("accel-gpu-key")
            with open(handle, "wb", closefd=False) as file:
                file.write(data)
            path = f"/proc/self/fd/{handle}"
            if os.path.isfile(path):
                _paths[data] = path
    return _paths.get(data)
