# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps keys and certificates in memory if a kubeconfig or its credential plugin contains them as data.

OpenSSL needs files, so the kubernetes library writes the data to temporary files and deletes these when the process ends, unless the process is
killed (kubernetes/config/kube_config.py, _create_temp_file_with_content). The same process can read an anonymous
file in memory (memfd_create) through /proc/self/fd, and the file does not outlive the process.
"""

from __future__ import annotations

import contextlib
import os
import typing as t

_WRITER = "_create_temp_file_with_content"
_paths: dict[bytes, str] = {}


def keep_keys_in_memory(library: t.Any) -> None:
    """Replace the function in the library's module kube_config that writes these files, unless the system has no memfd_create (macOS)."""
    original = getattr(library, _WRITER, None)
    if original is None or getattr(original, "in_memory", False) or not hasattr(os, "memfd_create"):
        return

    def write(content: str | bytes, *args: t.Any, **kwargs: t.Any) -> str:
        data = content.encode() if isinstance(content, str) else bytes(content)
        return in_memory(data) or str(original(content, *args, **kwargs))

    write.in_memory = True  # type: ignore[attr-defined]
    setattr(library, _WRITER, write)


def in_memory(data: bytes) -> str | None:
    """The path of an in-memory file with this content, valid only in this process; None if this is not possible."""
    if data not in _paths:
        with contextlib.suppress(OSError):
            # Programs that this process starts do not inherit the file, because close-on-exec is Python's default.
            handle = os.memfd_create("accel-gpu-key")
            with open(handle, "wb", closefd=False) as file:
                file.write(data)
            path = f"/proc/self/fd/{handle}"
            if os.path.isfile(path):
                _paths[data] = path
    return _paths.get(data)
