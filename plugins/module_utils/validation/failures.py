# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Describes failures of pods with their devices, logs and remedies, one by one or grouped by cause (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..schema.messages import abbreviate
from ..validation_programs.program import excerpt


@dataclass(frozen=True)
class ExplainedFailure:
    """The reason why a pod has failed, with the UUID of its device, its log (None: no log) and the remedy, as far as they are known."""

    pod: str
    reason: str
    device: str = ""
    log: str | None = None
    remedy: str = ""

    def __str__(self) -> str:
        log = "" if self.log is None else f"; its log: {excerpt(self.log)}"
        return self._with_remedy(f"{self.pod}{f' on {self.device}' if self.device else ''}: {self.reason}{log}")

    def describe_group(self, others: t.Sequence[ExplainedFailure], total: int) -> str:
        """The description of this failure and of the `others` with the same cause, out of `total` pods."""
        group = [self, *others]
        devices = list(dict.fromkeys(each.device for each in group if each.device))
        kind = "GPU" if all(device.startswith("GPU-") for device in devices) else "device"
        where = (
            f" on {len(devices)} {kind}{'' if len(devices) == 1 else 's'} ({abbreviate(devices)})" if devices else ""
        )
        names = "" if devices else f" ({abbreviate([each.pod for each in group])})"
        log = "" if self.log is None else f"; log of {self.pod}: {excerpt(self.log)}"
        return self._with_remedy(f"{len(group)} of {total} pods{where}{names}: {self.reason}{log}")

    def _with_remedy(self, text: str) -> str:
        return f"{text}. {self.remedy}" if self.remedy else text


def group_failures(failures: t.Iterable[ExplainedFailure], total: int) -> tuple[str, ...]:
    """One description for each cause (reason and remedy), with the number of its pods and their devices; `total` is the number of all pods."""
    groups: dict[tuple[str, str], list[ExplainedFailure]] = {}
    for failure in failures:
        groups.setdefault((failure.reason, failure.remedy), []).append(failure)
    return tuple(
        str(group[0]) if len(group) == 1 else group[0].describe_group(group[1:], total) for group in groups.values()
    )
