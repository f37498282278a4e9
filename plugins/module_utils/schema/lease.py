# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keys of gpu_cluster.lease: fields of Lease (kube/lease.py) with the same names."""

from __future__ import annotations

from ..common.errors import InvalidOptions
from .types import Document, Section, seconds

LEASE = Section(fields={"wait_timeout": seconds(default=300)})


def lease_settings(cluster: Document, wait_timeout: int | None) -> Document:
    """All keys of gpu_cluster.lease, with their defaults; a module's option `wait_timeout` takes precedence.

    Raises InvalidOptions for invalid settings, because not every module checks gpu_cluster.
    """
    declared = LEASE.coerce(cluster.get("lease"))
    problems = [] if declared is None else list(LEASE.problems(declared, "gpu_cluster.lease"))
    if problems:
        raise InvalidOptions(problems)
    settings: Document = LEASE.complete(declared)
    return settings if wait_timeout is None else {**settings, "wait_timeout": wait_timeout}
