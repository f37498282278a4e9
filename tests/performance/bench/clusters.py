# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clusters of a lab's Magnum that are rows of its database: they have no Kubernetes, so that nothing but Magnum is measured."""

from __future__ import annotations

import time
from collections.abc import Collection

from lab.layout import Lab
from lab.openstack.rest import Rest

_SECONDS = 120.0


class Clusters:
    """Makes clusters in the project whose user the lab's environment names."""

    def __init__(self, lab: Lab) -> None:
        """Log in as that user."""
        self._rest = Rest(lab, "demo", "demo")

    def make(self, names: Collection[str]) -> None:
        """See to it that there are clusters of these names, and that they are complete."""
        there = {of["name"] for of in self._listed()}
        templates = self._rest.get("magnum", "/clustertemplates")["clustertemplates"]
        template = next(of["uuid"] for of in templates if of["name"] == "k8s")
        for name in names:
            if name not in there:
                body = {"name": name, "cluster_template_id": template, "keypair": "lab", "node_count": 1}
                self._rest.post("magnum", "/clusters", body)
        deadline = time.monotonic() + _SECONDS
        while missing := set(names) - {of["name"] for of in self._listed() if of["status"] == "CREATE_COMPLETE"}:
            if time.monotonic() > deadline:
                raise TimeoutError(f"Magnum has not made the clusters {', '.join(sorted(missing))}")
            time.sleep(0.2)

    def _listed(self) -> list[dict[str, str]]:
        found: list[dict[str, str]] = self._rest.get("magnum", "/clusters")["clusters"]
        return found
