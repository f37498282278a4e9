# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A part of a lab: services that it may have beside its Kubernetes, such as a cloud whose machines are nodes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from .layout import LAB, Lab
from .switches import Fault, Setting


class Part:
    """What a lab asks of one of its parts; a part that is chosen once stays one of the lab's (`lab/parts.py`).

    A part's services write what belongs to the cluster's state below `state(lab)` and nowhere else: that folder is
    wiped by a reset, and kept by `save`. What `prepare` writes anew at each start belongs into `folder(lab)`.
    """

    # On the command line; its services stand in lab/compose/NAME.yaml.
    name: str
    # The cloud that it plays, by which its faults and switches are called: CLOUD.NAME.
    cloud: str
    # Fault -> what happens, and what its value is; a fault may be put on one group or on all.
    faults: Mapping[str, str] = {}
    settings: Mapping[str, Setting] = {}
    # What `lab build` makes for it, by name: each returns its folder in the cache.
    builds: Mapping[str, Callable[[], Path]] = {}

    @property
    def compose(self) -> Path:
        """The file of its services for process-compose; it may depend on services of kube.yaml."""
        return LAB / "compose" / f"{self.name}.yaml"

    def folder(self, lab: Lab) -> Path:
        """Where its configuration is kept."""
        return lab.dir / self.name

    def state(self, lab: Lab) -> Path:
        """Where its services keep their state."""
        return lab.clouds / self.name

    def build(self, lab: Lab) -> None:
        """See to it that all that takes minutes is in the cache."""

    def prepare(self, lab: Lab) -> None:
        """Write every file that its services and users read; the lab's ports are known, and nothing runs yet."""

    def environment(self, lab: Lab) -> dict[str, str]:
        """Return what its compose file names beside the lab's folder and ports (`lab/supervisor.py`)."""
        return {}

    def begin(self, lab: Lab) -> None:
        """Do what is to be done at each start when all services are ready, once more or for the first time."""

    def put(self, lab: Lab, fault: Fault) -> None:
        """Refuse a fault whose value makes no sense, or bring about one that no service reads from the file."""

    def clear(self, lab: Lab, fault: Fault) -> None:
        """Undo what `put` brought about."""

    def exports(self, lab: Lab) -> dict[str, str]:
        """Return what `lab env` exports beside the cluster's."""
        return {}
