# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubeconfigs of discovered clusters: files for their owner alone, written where they are missing or end soon."""

from __future__ import annotations

import datetime
import os
import typing as t

from ...module_utils.common import private_file
from ...module_utils.common.errors import ConnectionProblem
from ...module_utils.providers.magnum import kubeconfig
from .found import Found

if t.TYPE_CHECKING:
    Fetch = t.Callable[[Found], str]


class Folder:
    """Where they are kept."""

    def __init__(self, path: str, renew_before: float) -> None:
        """Write nothing yet. renew_before: days before its end at which a kubeconfig counts as ended."""
        if kubeconfig.CRYPTOGRAPHY_IMPORT_ERROR is not None or kubeconfig.YAML_IMPORT_ERROR is not None:
            raise ConnectionProblem(
                "Kubeconfigs are read with cryptography and PyYAML, which this Python does not have: pip install cryptography PyYAML."
            )
        self._path = path
        self._renew_before = datetime.timedelta(days=renew_before)

    def path(self, host: str) -> str:
        """Of a host's kubeconfig."""
        return os.path.join(self._path, f"{host}.kubeconfig")

    def stale(self, host: str, found: Found, now: datetime.datetime) -> str:
        """Why a host needs another kubeconfig; empty where its own is good. Asks no service."""
        config = kubeconfig.read(self.path(host))
        if config is None:
            return "there is none"
        held = kubeconfig.read_existing(config)
        if held is None:
            return "it is no kubeconfig"
        if found.server and held.server != found.server:
            return f"it leads to {held.server}, and the cluster is at {found.server}"
        if held.expires is not None and held.expires - now <= self._renew_before:
            return f"its client certificate ends at {kubeconfig.stamp(held.expires)}"
        return ""

    def leads_elsewhere(self, host: str, found: Found) -> str:
        """The server to which a host's kubeconfig leads where that is not the cluster's; empty otherwise."""
        config = kubeconfig.read(self.path(host))
        held = kubeconfig.read_existing(config) if config else None
        return held.server if held and found.server and held.server != found.server else ""

    def write(self, host: str, text: str) -> None:
        """Put it there; raises ConnectionProblem where that cannot be."""
        os.makedirs(self._path, mode=0o700, exist_ok=True)
        private_file.write(self.path(host), text)

    def tighten(self, host: str) -> None:
        """Let only the owner read it."""
        path = self.path(host)
        if os.path.exists(path) and os.stat(path).st_mode & 0o077:
            os.chmod(path, 0o600)

    def kube_name(self, host: str) -> str | None:
        """What the kubeconfig calls its current context; None where there is none."""
        config = kubeconfig.read(self.path(host))
        held = kubeconfig.read_existing(config) if config else None
        return held.context if held else None
