# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Implements a lock between processes on one machine: a file that the kernel unlocks when the process ends, so a killed run blocks no other run."""

from __future__ import annotations

import contextlib
import fcntl
import os
import typing as t

from .errors import ConnectionProblem


@contextlib.contextmanager
def hold(path: str, on_wait: t.Callable[[], None]) -> t.Iterator[None]:
    """Hold the lock on this file, and delete the file at the end. `on_wait` is called once if another process holds the lock. Raises ConnectionProblem."""
    descriptor = _acquire(path, on_wait)
    try:
        yield
    finally:
        # The file is deleted before it is unlocked, so a process that waits for the lock can detect that the file it has locked is deleted.
        with contextlib.suppress(OSError):
            os.unlink(path)
        os.close(descriptor)


def is_abandoned(path: str) -> bool:
    """Whether the file of a lock exists but no process holds the lock, because the process that held it was killed."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # A shared lock does not affect the same check in another process; it is released at once.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _acquire(path: str, on_wait: t.Callable[[], None]) -> int:
    """The descriptor of the locked file. Child processes do not inherit it, because they would keep the lock after this process has ended."""
    waited = False
    try:
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if not waited:
                        on_wait()
                    waited = True
                    fcntl.flock(descriptor, fcntl.LOCK_EX)
                if _is_at(path, descriptor):
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
    except OSError as error:
        raise ConnectionProblem(
            f"{path} cannot be locked: {error.strerror}. Delete it if it belongs to another user."
        ) from None


def _is_at(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
