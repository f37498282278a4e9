# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base classes of the programs that validation pods run; programs.py lists them (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

# The values of the module's options, of the keys of the pool (fields of PoolPlan), and of gpu_cluster.validation (fields of ValidationPlan), by name.
Options = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class Number:
    """An option of gpu_validation: its default, and its lowest and highest values; with `or_zero`, 0 is allowed as well.

    `per_pool`: it can also be a map of numbers by pool name; for pools that are not in the map, the default applies.
    """

    default: int
    low: int
    high: int
    or_zero: bool = False
    per_pool: bool = False


def excerpt(log: str, limit: int = 300) -> str:
    """The last lines of a log on one line, at most `limit` characters; only a line that is longer than that is cut."""
    shown = ""
    for line in reversed(list(filter(None, map(str.strip, log.splitlines())))):
        text = f"{line} | {shown}" if shown else line
        if shown and len(text) > limit:
            break
        shown = text
    return shown[-limit:] or "(empty)"


class Program:
    """A program that validation pods run, and the meaning of its output."""

    name: t.ClassVar[str]
    """The key of its result."""
    commands: t.ClassVar[tuple[str, ...]]
    """The commands that the shell cannot find if the image lacks the program."""
    image: t.ClassVar[str]
    """The key of its image in gpu_cluster.validation."""
    images: t.ClassVar[str] = ""
    """The key of its images by CUDA version in gpu_cluster.validation, if these can be set."""
    public_images: t.ClassVar[t.Mapping[str, str]]
    """NVIDIA's images by CUDA version, which are used by default."""
    options: t.ClassVar[t.Mapping[str, Number | bool]]
    """Its options in gpu_validation; a boolean is the default of a switch."""
    requested_by: t.ClassVar[str] = ""
    """The option that requests the program; if empty, it always runs."""
    failures: t.ClassVar[t.Mapping[str, str]] = {}
    """The meaning and remedy of its own error messages, without a full stop, keyed by a case-insensitive regular expression.

    {driver}, {cuda}, {image}, {variable}, {model}, {compute} and {repair} (of a GPU) are replaced. Errors that any program can have, such as
    those of CUDA, are in validation/diagnosis.py.
    """
    timeout_remedy: t.ClassVar[str] = ""
    """The remedy if the program does not end; if empty, the GPU is considered hung."""

    @property
    def container(self) -> str:
        """The name of its container."""
        return self.name.replace("_", "-")

    def requested(self, options: Options) -> bool:
        """Whether a run with these options includes the program."""
        return not self.requested_by or bool(options[self.requested_by])

    def covers(self, result: t.Any, options: Options) -> bool:
        """Whether the result of an earlier run is sufficient for these options; `result` is None if there is none."""
        return result is not None

    def describe(self, result: t.Any) -> str:
        """A result as a part of a sentence; empty if there is nothing to report."""
        raise NotImplementedError


class DeviceProgram(Program):
    """A program that runs in every pod with one device."""

    def command(self, options: Options) -> str:
        """The shell command."""
        raise NotImplementedError

    def seconds(self, options: Options) -> int:
        """The additional run time, in seconds, that the options request."""
        return 0

    def evaluate(self, logs: t.Mapping[str, str], options: Options) -> tuple[t.Any, tuple[str, ...]]:
        """The result from the logs of its containers, which are given by pod, and the problems."""
        raise NotImplementedError


class NodeProgram(Program):
    """A program that runs after the others on the free GPUs of one or several nodes, in one pod for each node.

    Its pods get the address of rank 0 in the variable RANK_0. The result is in the log of rank 0.
    """

    title: t.ClassVar[str]
    """Its name in messages."""
    min_gpus: t.ClassVar[int]
    """The number of free GPUs that each node needs."""
    timeout: t.ClassVar[str]
    """The option with the seconds within which its pods must end."""
    env: t.ClassVar[t.Mapping[str, str]] = {}
    """Additional environment variables of its pods."""

    def node_count(self, options: Options) -> int:
        """The number of nodes on which it runs."""
        return 1

    def command(self, rank: int, gpus: int, options: Options) -> str:
        """The shell command in the pod of a rank; `gpus` is the number of GPUs on each node."""
        raise NotImplementedError

    def evaluate(self, log: str, options: Options) -> tuple[dict[str, t.Any], str]:
        """The measured values, and the problem with them; the problem is empty if there is none."""
        raise NotImplementedError
