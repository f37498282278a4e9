# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the license state of many nodes in parallel, and separates the errors of single nodes from those that affect every node."""

from __future__ import annotations

import typing as t

from ..common.errors import ModuleFailure
from ..common.parallel import is_fatal, run_bounded
from ..common.results import visible
from ..kube.errors import ApiError
from ..schema.messages import as_sentence
from .driver_pods import Reading

# Each command uses a separate connection, and most of the time is spent on the node.
PARALLEL = 32
_MAX_ERROR = 200
NODE_LEFT = "The node has left the cluster."


class CommandFailed(ModuleFailure):
    """A command in a driver pod has failed; the message is a sentence."""

    code = "command"


def read_parallel(
    calls: t.Iterable[tuple[str, t.Callable[[], Reading]]], on_done: t.Callable[[int], None]
) -> dict[str, Reading]:
    """The readings of nodes by name. The error of a single node becomes part of that node's reading; errors that affect every node are raised."""
    readings = {}
    for outcome in run_bounded(calls, PARALLEL, lambda name, done: on_done(done), fatal=concerns_all):
        if outcome.error is not None and concerns_all(outcome.error):
            raise outcome.error
        if outcome.error is not None:
            readings[outcome.name] = Reading(error=error_sentence(outcome.error))
        elif outcome.value is not None:
            readings[outcome.name] = outcome.value
    return readings


def concerns_all(error: Exception) -> bool:
    """Whether an error affects every node. A broken connection may affect only one kubelet, and a deleted pod affects only its own node."""
    if isinstance(error, ModuleFailure):
        return not isinstance(error, CommandFailed)
    if isinstance(error, ApiError):
        return error.fails_every_request and not (error.unreachable and error.sent)
    return is_fatal(error)


def error_sentence(error: Exception) -> str:
    """The message of an error as one short sentence."""
    return as_sentence(shorten(str(error)))


def shorten(text: str) -> str:
    """The beginning of an error message, on one line."""
    return visible(" ".join(text.split())[:_MAX_ERROR])
