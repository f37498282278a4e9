# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paths of the lab: the checkout, the cache of built tools, and the folder of each lab."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import LabError

REPO = Path(__file__).resolve().parent.parent
LAB = REPO / "lab"
LABS = REPO / "build" / "lab"
DEFAULT_FLEET = LAB / "fleets" / "default.yaml"
CLOUDS_FLEET = LAB / "fleets" / "clouds.yaml"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,28}[a-z0-9])?")


def cache() -> Path:
    """Return the cache folder for built and downloaded files, which all checkouts of this user share."""
    if named := os.environ.get("ACCEL_GPU_LAB_CACHE"):
        return Path(named).expanduser().absolute()
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser().absolute() / "accel-gpu-lab"


@dataclass(frozen=True)
class Lab:
    """One lab: its name and the folder that contains all its files."""

    name: str
    dir: Path

    @classmethod
    def named(cls, name: str, folder: Path | None = None) -> Lab:
        """Return the lab with this name; the name is also that of a cluster, so it must be a DNS label."""
        if not _NAME.fullmatch(name):
            raise LabError(f"invalid lab name '{name}': use up to 30 lower-case letters, digits and dashes")
        return cls(name, folder or LABS / name)

    @property
    def shown(self) -> str:
        """The folder for messages: relative to the checkout where possible."""
        return str(self.dir.relative_to(REPO)) if self.dir.is_relative_to(REPO) else str(self.dir)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, exported by `lab env`."""
        return self.dir / "kubeconfig"

    @property
    def pki(self) -> Path:
        """Keys and certificates of the control plane."""
        return self.dir / "pki"

    @property
    def logs(self) -> Path:
        """One log file per service, and the audit log."""
        return self.dir / "log"

    @property
    def audit_log(self) -> Path:
        """The API server's audit log: one JSON event per line."""
        return self.logs / "audit.jsonl"

    @property
    def etcd(self) -> Path:
        """The data folder of etcd, which contains the state of the cluster."""
        return self.dir / "etcd"

    @property
    def bin(self) -> Path:
        """Links to the programs for users of the lab."""
        return self.dir / "bin"

    @property
    def charts(self) -> Path:
        """Copies of the operators' Helm charts."""
        return self.dir / "charts"

    @property
    def pod_logs(self) -> Path:
        """The log files for `kubectl logs`, mounted into kwok under the same path."""
        return self.dir / "pod-logs"

    @property
    def containers(self) -> Path:
        """The state of the driver pods' containers, which commands of `kubectl exec` read and change."""
        return self.dir / "containers"

    @property
    def run(self) -> Path:
        """Files of the operator pods whose programs the runner executes."""
        return self.dir / "run"

    @property
    def shims(self) -> Path:
        """The only program that `kubectl exec` can run."""
        return self.dir / "shims"

    @property
    def fleet(self) -> Path:
        """The fleet file applied last."""
        return self.dir / "fleet.yaml"

    @property
    def clouds(self) -> Path:
        """The state of the lab's clouds, one folder each, with their faults and settings."""
        return self.dir / "clouds"

    @property
    def cluster(self) -> tuple[Path, ...]:
        """The files that make up the state of a cluster."""
        return self.etcd, self.pod_logs, self.containers, self.fleet, self.clouds

    def saved(self, name: str) -> Path:
        """Return the folder of the saved cluster with this name."""
        if not _NAME.fullmatch(name):
            raise LabError(f"invalid name '{name}' to save as: use up to 30 lower-case letters, digits and dashes")
        return self.dir / "saved" / name

    def state(self) -> dict[str, Any]:
        """Return the settings recorded by the last `up`, or nothing before the first one."""
        try:
            loaded: dict[str, Any] = json.loads((self.dir / "lab.json").read_text())
        except FileNotFoundError:
            return {}
        return loaded

    def record(self, **values: Any) -> None:
        """Add values to the recorded settings."""
        merged = self.state() | values
        temporary = self.dir / "lab.json.new"
        temporary.write_text(json.dumps(merged, indent=2) + "\n")
        temporary.replace(self.dir / "lab.json")

    def ports(self) -> dict[str, int]:
        """Return the port of every service; raise LabError if the lab was never up."""
        from .ports import OFFSETS

        base = self.state().get("port_base")
        if base is None:
            raise LabError(f"lab '{self.name}' was never up: run 'lab/lab{self.option} up'")
        return {service: base + offset for service, offset in OFFSETS.items()}

    @property
    def option(self) -> str:
        """The command-line option that selects this lab; empty for the default lab."""
        return "" if self.name == "lab" else f" --name {self.name}"
