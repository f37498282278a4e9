# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubeconfig files of discovered clusters, readable by their owner only."""

from __future__ import annotations

import datetime
import os

from ...module_utils.common import private_file
from ...module_utils.common.errors import ConnectionProblem
from ...module_utils.providers import kubeconfig_file
from ...module_utils.providers.discovery import DiscoveredCluster


class KubeconfigFolder:
    """The folder of the files."""

    def __init__(self, path: str, renew_before: float) -> None:
        """Write nothing yet. renew_before: days before its end at which a kubeconfig is replaced."""
        if kubeconfig_file.CRYPTOGRAPHY_IMPORT_ERROR is not None or kubeconfig_file.YAML_IMPORT_ERROR is not None:
            raise ConnectionProblem(
                "Kubeconfigs need cryptography and PyYAML, which this Python does not have. Install them: pip install cryptography PyYAML."
            )
        self._path = path
        self._renew_before = datetime.timedelta(days=renew_before)

    def path(self, host: str) -> str:
        """The path of a host's kubeconfig."""
        return os.path.join(self._path, f"{host}.kubeconfig")

    def reason_to_replace(self, host: str, cluster: DiscoveredCluster, now: datetime.datetime) -> str:
        """Why a host needs a new kubeconfig; empty where its own is good. Sends no request."""
        config = kubeconfig_file.read(self.path(host))
        if config is None:
            return "the file does not exist"
        current = kubeconfig_file.existing(config)
        if current is None:
            return "it is not a kubeconfig"
        if cluster.server and current.server != cluster.server:
            return f"its server is {current.server}, and the cluster's is {cluster.server}"
        if current.expires_at is not None and current.expires_at - now <= self._renew_before:
            return f"its client certificate expires at {kubeconfig_file.format_time(current.expires_at)}"
        return ""

    def foreign_server(self, host: str, cluster: DiscoveredCluster) -> str:
        """The server of a host's kubeconfig where that is not the cluster's; empty otherwise."""
        current = kubeconfig_file.existing(kubeconfig_file.read(self.path(host)))
        return current.server if current and cluster.server and current.server != cluster.server else ""

    def write(self, host: str, text: str) -> None:
        """Write a host's kubeconfig; raises ConnectionProblem where that is impossible."""
        os.makedirs(self._path, mode=0o700, exist_ok=True)
        private_file.write(self.path(host), text)

    def restrict_mode(self, host: str) -> None:
        """Make a host's kubeconfig readable by its owner only."""
        path = self.path(host)
        if kubeconfig_file.too_permissive(path):
            os.chmod(path, 0o600)

    def kube_name(self, host: str) -> str | None:
        """The current context of a host's kubeconfig; None where there is none."""
        current = kubeconfig_file.existing(kubeconfig_file.read(self.path(host)))
        return current.context if current else None
