# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenStack as a part of a lab."""

from __future__ import annotations

import json
from pathlib import Path

from ..cloud_settings import CloudFault
from ..layout import Lab
from ..part import LabPart
from . import config, databases, lab_cluster, layout, seed
from . import faults as known
from .venv import MAGNUM_20, MAGNUMS, SERVICES

_DEFAULT = "23"


class OpenStack(LabPart):
    """Keystone, Nova's API, Glance and Magnum; the lab's Magnum cluster has nodes in the lab's Kubernetes."""

    name = layout.NAME
    cloud = layout.CLOUD
    faults = known.FAULTS
    settings = known.SETTINGS
    builds = {venv.name: venv.ensure for venv in (SERVICES, MAGNUM_20)}

    def build(self, lab: Lab) -> None:
        """Install the missing virtual environments."""
        SERVICES.ensure()
        _magnum(lab)

    def prepare(self, lab: Lab) -> None:
        """Write the configuration, and prepare the databases."""
        venv, magnum = SERVICES.ensure(), _magnum(lab)
        config.write(lab, venv, magnum)
        databases.prepare(lab, venv, magnum, _release(lab))
        # A wrapper of the client with a cache folder of its own instead of the user's home.
        client = lab.bin / "openstack"
        client.unlink(missing_ok=True)
        client.write_text(f'#!/bin/sh\nXDG_CACHE_HOME={venv}/cache exec {venv}/bin/openstack "$@"\n')
        client.chmod(0o755)

    def environment(self, lab: Lab) -> dict[str, str]:
        """Return the variables of lab/compose/openstack.yaml."""
        values = databases.environment(SERVICES.folder)
        return {
            "LAB_OPENSTACK_LAB": f"{lab.name} {lab.dir}",
            "LAB_OPENSTACK_PYTHON": str(SERVICES.folder / "bin" / "python"),
            "LAB_MAGNUM_PYTHON": str(_magnum(lab) / "bin" / "python"),
            **{f"LAB_OPENSTACK_{name}": value for name, value in values.items()},
        }

    def begin(self, lab: Lab) -> None:
        """Seed empty databases, and create the lab's own cluster."""
        if not databases.is_seeded(lab):
            seed.populate(lab)
            databases.keep(lab, SERVICES.folder, _magnum(lab))
        made = json.loads((layout.state(lab) / "seed.json").read_text())
        config.write_clients(lab, made["application_credential"])
        lab_cluster.create_magnum_cluster(lab)

    def inject(self, lab: Lab, fault: CloudFault) -> None:
        """Validate the fault; a quota is set by the service's own API."""
        known.inject(lab, fault)

    def clear(self, lab: Lab, fault: CloudFault) -> None:
        """Restore the default quota."""
        known.clear(lab, fault)

    def exports(self, lab: Lab) -> dict[str, str]:
        """Return the variables of OpenStack's clients."""
        return {"OS_CLIENT_CONFIG_FILE": str(layout.clients(lab)), "OS_CLOUD": "lab"}


def _release(lab: Lab) -> str:
    return str(lab.state().get("magnum", _DEFAULT))


def _magnum(lab: Lab) -> Path:
    return MAGNUMS[_release(lab)].ensure()
