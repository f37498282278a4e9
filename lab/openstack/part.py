# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part `openstack`: what a lab asks of it."""

from __future__ import annotations

import json
from pathlib import Path

from ..layout import Lab
from ..part import Part
from ..switches import Fault
from . import clusters, config, databases, places, seed
from . import faults as known
from .venv import MAGNUM_20, MAGNUMS, SERVICES

_DEFAULT = "23"


class OpenStack(Part):
    """Keystone, Nova's API, Glance, and Magnum, whose clusters have nodes in the lab's Kubernetes."""

    name = places.NAME
    cloud = places.CLOUD
    faults = known.FAULTS
    settings = known.SETTINGS
    builds = {venv.name: venv.ensure for venv in (SERVICES, MAGNUM_20)}

    def build(self, lab: Lab) -> None:
        """Install what is missing."""
        SERVICES.ensure()
        _magnum(lab)

    def prepare(self, lab: Lab) -> None:
        """Write the configuration, and see to it that there are databases."""
        venv, magnum = SERVICES.ensure(), _magnum(lab)
        config.write(lab, venv, magnum)
        databases.prepare(lab, venv, magnum, _release(lab))
        # A client of its own: what it caches has a place beside it, not in the user's home.
        client = lab.bin / "openstack"
        client.unlink(missing_ok=True)
        client.write_text(f'#!/bin/sh\nXDG_CACHE_HOME={venv}/cache exec {venv}/bin/openstack "$@"\n')
        client.chmod(0o755)

    def environment(self, lab: Lab) -> dict[str, str]:
        """Return what lab/compose/openstack.yaml names."""
        values = databases.environment(SERVICES.folder)
        return {
            "LAB_OPENSTACK_LAB": f"{lab.name} {lab.dir}",
            "LAB_OPENSTACK_PYTHON": str(SERVICES.folder / "bin" / "python"),
            "LAB_MAGNUM_PYTHON": str(_magnum(lab) / "bin" / "python"),
            **{f"LAB_OPENSTACK_{name}": value for name, value in values.items()},
        }

    def begin(self, lab: Lab) -> None:
        """Fill databases that are empty, and make the cluster that is the lab's own."""
        if not databases.is_seeded(lab):
            seed.plant(lab)
            databases.keep(lab, SERVICES.folder, _magnum(lab))
        made = json.loads((places.state(lab) / "seed.json").read_text())
        config.write_clients(lab, made["application_credential"])
        clusters.begin(lab)

    def put(self, lab: Lab, fault: Fault) -> None:
        """Check it; a quota is lowered by the service's own API."""
        known.put(lab, fault)

    def clear(self, lab: Lab, fault: Fault) -> None:
        """Give back a quota."""
        known.clear(lab, fault)

    def exports(self, lab: Lab) -> dict[str, str]:
        """Return what OpenStack's clients read."""
        return {"OS_CLIENT_CONFIG_FILE": str(places.clients(lab)), "OS_CLOUD": "lab"}


def _release(lab: Lab) -> str:
    return str(lab.state().get("magnum", _DEFAULT))


def _magnum(lab: Lab) -> Path:
    return MAGNUMS[_release(lab)].ensure()
