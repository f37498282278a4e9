# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A part of a lab: optional services in addition to Kubernetes, such as a cloud whose machines are nodes of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from .cloud_settings import CloudFault, Setting
from .layout import CLOUDS_FLEET, LAB, Lab


class LabPart:
    """The interface of a lab's part; once selected, a part remains in the lab (`lab/parts.py`).

    The services of a part write cluster state only below `state(lab)`: a reset deletes that folder, and `save` saves it.
    `prepare` writes the files that are recreated at each start to `folder(lab)`.
    """

    # The name on the command line; lab/compose/NAME.yaml defines the services.
    name: str
    # The cloud that it provides, which prefixes the names of its faults and settings: CLOUD.NAME.
    cloud: str
    # Name of a fault -> its effect and the meaning of its value; a fault applies to one node group or to all.
    faults: Mapping[str, str] = {}
    settings: Mapping[str, Setting] = {}
    # The fleet file of a new cluster with this part.
    fleet: Path = CLOUDS_FLEET
    # The targets of `lab build` for this part, by name; each returns its folder in the cache.
    builds: Mapping[str, Callable[[], Path]] = {}
    # The service in its compose file that `python -m lab.service` runs; empty if all its services are other programs.
    service: str = ""

    @property
    def compose(self) -> Path:
        """The process-compose file of its services; it can depend on services of kube.yaml."""
        return LAB / "compose" / f"{self.name}.yaml"

    def fleet_file(self, lab: Lab) -> Path:
        """Return the fleet file of a new cluster in this lab."""
        return self.fleet

    def folder(self, lab: Lab) -> Path:
        """Return the folder of its configuration."""
        return lab.dir / self.name

    def state(self, lab: Lab) -> Path:
        """Return the folder of its services' state."""
        return lab.clouds / self.name

    def build(self, lab: Lab) -> None:
        """Build everything that takes minutes into the cache."""

    def prepare(self, lab: Lab) -> None:
        """Write the files for its services and users; the lab's ports are known and no service runs yet."""

    def environment(self, lab: Lab) -> dict[str, str]:
        """Return the additional environment variables of its compose file (`lab/supervisor.py`)."""
        return {}

    def serve(self, lab: Lab) -> None:
        """Run `service` until killed."""

    def begin(self, lab: Lab) -> None:
        """Run after each start, when all services are ready."""

    def inject(self, lab: Lab, fault: CloudFault) -> None:
        """Reject a fault with an invalid value, or apply a fault that no service reads from the settings file."""

    def clear(self, lab: Lab, fault: CloudFault) -> None:
        """Revert the effects of `inject`."""

    def changed(self, lab: Lab) -> None:
        """Run after a change of the settings or faults, for what no service reads from the settings file."""

    def exports(self, lab: Lab) -> dict[str, str]:
        """Return the additional variables that `lab env` exports."""
        return {}
