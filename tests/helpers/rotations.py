# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rotations of tokens on nodes in memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, cast
from unittest import mock

from ansible_collections.accel.gpu.plugins.module_utils.core.waits import Progress, WaitOptions
from ansible_collections.accel.gpu.plugins.module_utils.kube.lease import LeaseLost
from ansible_collections.accel.gpu.plugins.module_utils.licensing.container import DriverRestarts, LicenseContainers
from ansible_collections.accel.gpu.plugins.module_utils.licensing.content import SECRET, LicenseFiles, LicenseTarget
from ansible_collections.accel.gpu.plugins.module_utils.licensing.diagnosis import LicenseObject
from ansible_collections.accel.gpu.plugins.module_utils.licensing.rotation import (
    NodeRotation,
    RotationResult,
    Rotator,
    plan_rotation,
)
from ansible_collections.accel.gpu.plugins.module_utils.licensing.token import parse_token
from tests.helpers.license_nodes import NAMESPACE, Container, Containers, initial_files, license_node
from tests.helpers.license_tokens import make_token

OLD, NEW = make_token(hosts=["old.example.com"]), make_token(hosts=["new.example.com"])
CONFIG = "# Managed by accel.gpu\nFeatureType=1\n"


class NoLease:
    """A lease that is held, for a number of checks at most; counts how often it was checked."""

    checks = 0

    def __init__(self, held: int | None = None) -> None:
        self.held = held

    def check(self) -> None:
        """Fail once it is lost."""
        if self.checks == self.held:
            raise LeaseLost("The lease was lost: it was taken. No more requests were sent; run the playbook again.")
        self.checks += 1


def expected(text: str = NEW, config: str = CONFIG) -> LicenseObject:
    """The Secret."""
    files = LicenseFiles(text.encode(), config.encode())
    return LicenseObject(LicenseTarget(SECRET, "licensing-config"), NAMESPACE, files, parse_token(text))


def cluster(count: int = 3, **options: Any) -> Containers:
    """Nodes with the old token."""
    return Containers({f"n{index}": Container(initial_files(OLD), **options) for index in range(count)})


def plan(containers: Containers, names: Sequence[str] | None = None) -> tuple[LicenseContainers, list[NodeRotation]]:
    """Access to the containers, and the changes that they need."""
    access = LicenseContainers(cast(Any, containers), sleep=lambda dummy: None, clock=itertools.count().__next__)
    nodes = [license_node(name) for name in names or containers.by_node]
    readings = access.read_all(nodes, client=True)
    return access, plan_rotation(nodes, readings, lambda dummy: expected(), {}, restart_drivers=False)


def rotator(access: LicenseContainers, lease: NoLease | None = None, timeout: float = 5.0) -> Rotator:
    """A rotator; a test that waits for nothing gives a short timeout."""
    waiting, restarts = WaitOptions(timeout, 0.01, Progress(None)), mock.Mock(DriverRestarts)
    return Rotator(access, waiting, cast(Any, lease or NoLease()), restarts, timeout)


def rotate(containers: Containers, timeout: float = 5.0) -> RotationResult:
    """Plan and rotate."""
    access, rotations = plan(containers)
    containers.commands.clear()
    result = RotationResult(unchanged=len(containers.by_node) - len(rotations))
    rotator(access, timeout=timeout).run(rotations, result)
    return result
