# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes, temporary and private files, and locks between runs on one controller."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
import typing as t

from .errors import ConnectionProblem

# Identifies processes, so that a later run on the same machine can detect whether they are still running.


def start_time(pid: int) -> str:
    """The clock ticks from the boot to the start of a process, which identify the process even if its PID is reused.

    Empty if there is no such process, if it is a zombie, or if the system has no /proc.
    """
    state = _state(pid)
    return "" if state is None or state[0] == "Z" else state[19]


def descendants(pid: int) -> dict[int, str]:
    """The start times of the descendants of a process, by PID; empty on a system without /proc."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdecimal() and (state := _state(int(name))) is not None:
            children.setdefault(int(state[1]), []).append(int(name))
    below, waiting = dict[int, str](), [pid]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            below[child] = start_time(child)
            waiting.append(child)
    return {child: started for child, started in below.items() if started}


def signal_processes(processes: t.Mapping[int, str], number: int) -> None:
    """Send a signal to those of the processes from descendants() that are still running."""
    for pid, started in processes.items():
        if start_time(pid) == started:
            with contextlib.suppress(OSError):
                os.kill(pid, number)


def _state(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the name: the state, the PID of the parent, and others; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as handle:
            return handle.read().rpartition(")")[2].split() or None
    except OSError:
        return None


def pid_namespace() -> str:
    """The PID namespace of this process (each container has its own); empty if unknown."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def this_machine() -> str:
    """An id of the machine's current boot and the PID namespace, within which a PID and a start time identify a process; empty if it is unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as handle:
            boot = handle.read().strip()
    except OSError:
        return ""
    namespace = pid_namespace()
    return f"{boot}/{namespace}" if namespace else ""


# Temporary files whose names identify their process, so that a later run can remove the files of a killed run.

# PID namespace, PID, start time in clock ticks since the boot, and random characters.
_OWNER = r"(?P<namespace>\d+)-(?P<pid>\d+)-(?P<started>\d+)-\w+"


def make_file(kind: str) -> str:
    """Create an empty file that only this user can access, in the folder for temporary files, and remove leftover files of this kind; raises OSError."""
    prefix, folder = f"accel-gpu-{kind}-", tempfile.gettempdir()
    remove_leftovers(folder, prefix)
    handle, path = tempfile.mkstemp(prefix=f"{prefix}{owner()}-", dir=folder)
    os.close(handle)
    return path


@contextlib.contextmanager
def temporary_folder(kind: str, beside: str | None = None) -> t.Iterator[str]:
    """A folder that only this user can access, and that is deleted at the end; first removes the leftover folders of this kind. Raises OSError.

    beside: a module's tmpdir, whose parent then contains the folder, because a later run does not find what a killed one has left in its tmpdir.
    """
    remove_folders(kind, beside)
    folder = os.path.dirname(beside) if beside else None
    with tempfile.TemporaryDirectory(prefix=f"accel-gpu-{kind}-{owner()}-", dir=folder) as path:
        yield path


def remove_folders(kind: str, beside: str | None = None) -> None:
    """Remove the leftovers of temporary_folder(), for a run that may need no such folder."""
    remove_leftovers(os.path.dirname(beside) if beside else tempfile.gettempdir(), f"accel-gpu-{kind}-")


def owner() -> str:
    """An id of this process for the name of a file; `-` and random letters or digits must follow."""
    return f"{_namespace()}-{os.getpid()}-{start_time(os.getpid()) or 0}"


def remove_leftovers(folder: str, prefix: str, age: float = 0) -> list[str]:
    """Remove this user's files and folders in a folder that have this prefix and whose processes have ended; returns their paths.

    `age`: the minimum age in seconds, for a folder shared with other machines, whose processes are not visible. Other files, and files that
    cannot be removed, are kept.
    """
    name, removed = re.compile(re.escape(prefix) + _OWNER), []
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            match = name.fullmatch(entry.name)
            if match is None or match["namespace"] != _namespace():
                continue
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                is_folder = stat.S_ISDIR(status.st_mode)
                is_own = status.st_uid == os.geteuid() and (is_folder or stat.S_ISREG(status.st_mode))
                if is_own and time.time() - status.st_mtime >= age and not _runs(int(match["pid"]), match["started"]):
                    (shutil.rmtree if is_folder else os.unlink)(entry.path)
                    removed.append(entry.path)
    return sorted(removed)


def _namespace() -> str:
    """The PID namespace, because containers that share a folder cannot see each other's processes."""
    return "".join(filter(str.isdigit, pid_namespace())) or "0"


def _runs(pid: int, started: str) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return start_time(pid) in (started, "") or started == "0"


# Writes files atomically, with permissions only for their owner, and never through a symbolic link.

# The age in seconds from which a temporary file counts as a leftover of a killed run; writing a file takes less than a second.
_ABANDONED_AGE = 60.0


def write_private_file(path: str, text: str, *, keep_mode: bool = False) -> None:
    """Write a file atomically with mode 0600; raises ConnectionProblem.

    A symbolic link at `path` is an error, because another user may have chosen its target; links to its folder are followed.
    `keep_mode`: whether an existing file of the same user keeps its permissions, for reports that other users may read. The permissions of
    another user's file are never kept, because that user has chosen them.
    """
    folder, name = os.path.split(os.path.abspath(path))
    new = ""
    try:
        existing = _existing(path)
        prefix = f".{name[:120]}.accel-gpu-"
        remove_leftovers(folder, prefix, age=_ABANDONED_AGE)
        # This fails if anything exists at the path, including a link.
        handle, new = tempfile.mkstemp(prefix=f"{prefix}{owner()}-", dir=folder)
        if keep_mode and existing is not None and existing.st_uid == os.geteuid():
            os.fchmod(handle, stat.S_IMODE(existing.st_mode) & 0o777)
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # rename() replaces a link that was created in the meantime, and does not follow it.
        os.replace(new, path)
    except OSError as error:
        if new:
            with contextlib.suppress(OSError):
                os.unlink(new)
        raise ConnectionProblem(f"{path} cannot be written: {error.strerror}.") from None


def require_replaceable(path: str) -> None:
    """Raise ConnectionProblem if write() would refuse what exists at the path, before a service creates what is to be written."""
    with contextlib.suppress(OSError):
        _existing(path)


def make_folder(path: str) -> None:
    """Create the folder of a file; raises ConnectionProblem."""
    folder = os.path.dirname(os.path.abspath(path))
    try:
        os.makedirs(folder, exist_ok=True)
    except (OSError, ValueError) as error:
        raise ConnectionProblem(f"{folder} cannot be created: {getattr(error, 'strerror', error)}.") from None


def text_of_file(path: str) -> str | None:
    """The text of a file; None if it does not exist. Raises ConnectionProblem for a file that write() does not replace, such as a symbolic link."""
    try:
        if _existing(path) is None:
            return None
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except (OSError, ValueError) as error:
        raise ConnectionProblem(f"{path} cannot be read: {getattr(error, 'strerror', error)}.") from None


def file_holds(path: str, text: str) -> bool:
    """Whether a file contains this text and has mode 0600; raises ConnectionProblem for a symbolic link or a special file, which write() does not replace."""
    try:
        existing = _existing(path)
        if existing is None or stat.S_IMODE(existing.st_mode) != 0o600:
            return False
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read() == text
    except OSError:
        return False


def _existing(path: str) -> os.stat_result | None:
    """The status of the file; None if it does not exist."""
    try:
        existing = os.lstat(path)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(existing.st_mode):
        raise ConnectionProblem(
            f"{path} cannot be written: it is a symbolic link, which is not followed. Use the path of its target, or delete the link."
        )
    if stat.S_ISDIR(existing.st_mode):
        raise ConnectionProblem(f"{path} cannot be written: it is a directory. Use the path of a file.")
    if not stat.S_ISREG(existing.st_mode):
        raise ConnectionProblem(f"{path} cannot be written: it is not a regular file. Use a different path.")
    return existing


# Implements a lock between processes on one machine: a file that the kernel unlocks when the process ends, so a killed run blocks no other run.


@contextlib.contextmanager
def hold_lock(path: str, on_wait: t.Callable[[], None]) -> t.Iterator[None]:
    """Hold the lock on this file, and delete the file at the end. `on_wait` is called once if another process holds the lock. Raises ConnectionProblem."""
    descriptor = _acquire(path, on_wait)
    try:
        yield
    finally:
        # The file is deleted before it is unlocked, so a process that waits for the lock can detect that the file it has locked is deleted.
        with contextlib.suppress(OSError):
            os.unlink(path)
        os.close(descriptor)


def is_abandoned_lock(path: str) -> bool:
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
