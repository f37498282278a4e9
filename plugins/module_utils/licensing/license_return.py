# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Returns the licenses of vGPU nodes before their machines are removed.

A drain does not evict the pods of DaemonSets, and clouds power off the machines. A license client that is not stopped first keeps its license until
the license expires (kubernetes-sigs/cluster-api-provider-openstack#1973).
"""

from __future__ import annotations

import functools
import typing as t

from ..catalog.names import LIVE_PODS, VGPU_PRESENT_LABEL
from ..common.errors import ServiceError
from ..common.parallel import run_bounded
from ..drain.removal import NodeRemoval
from ..kube.errors import ApiError
from ..kube.paths import PODS
from ..schema.messages import abbreviate_nodes, as_sentence
from .container import LicenseContainers
from .driver_pods import DRIVER_POD_SELECTOR, TOKEN_PATH, DriverPod, parse_driver_pods
from .node_reads import PARALLEL, CommandFailed

if t.TYPE_CHECKING:
    from ..cluster_state.node import Node
    from ..kube.client import Client


class LicenseReturn(NodeRemoval):
    """Ends the license clients of nodes that will be removed. Failures cause only warnings, because the machines can be removed anyway."""

    def __init__(
        self, client: Client, warn: t.Callable[[str], None], containers: LicenseContainers | None = None
    ) -> None:
        """Store the arguments; no request is sent yet."""
        self._client = client
        self._warn = warn
        self._containers = containers or LicenseContainers(client)

    def prepare(self, nodes: t.Sequence[Node]) -> None:
        """End the license clients with SIGTERM, so that they return their licenses."""
        self._for_each(nodes, self._containers.stop, "The license stays assigned until it expires")

    def cancel(self, nodes: t.Sequence[Node]) -> None:
        """Start the license clients again on nodes that are not removed after all."""
        self._for_each(nodes, self._start, "The license client was not started again; run the playbook license_rotate")

    def _start(self, pod: DriverPod) -> None:
        # Without a token, the license client could not get a license.
        if self._containers.fingerprints(pod, TOKEN_PATH)[TOKEN_PATH] and not self._containers.client_pid(pod):
            self._containers.start(pod)

    def _for_each(self, nodes: t.Sequence[Node], work: t.Callable[[DriverPod], None], effect: str) -> None:
        names = [node.name for node in nodes if node.labels.get(VGPU_PRESENT_LABEL) == "true"]
        if not names:
            return
        causes: dict[str, list[str]] = {}
        try:
            pods = parse_driver_pods(
                self._client.list(PODS, label_selector=DRIVER_POD_SELECTOR, field_selector=LIVE_PODS)
            )
        except ServiceError as error:
            causes[_reason(error)] = names
            pods = {}
        running = {name: pods[name] for name in names if name in pods and not pods[name].failure}
        calls = [(name, functools.partial(work, pod)) for name, pod in running.items()]
        for outcome in run_bounded(calls, PARALLEL, fatal=lambda error: _is_unexpected(error) or _lacks_right(error)):
            if outcome.error is not None and _is_unexpected(outcome.error):
                raise outcome.error
            if outcome.error is not None and _lacks_right(outcome.error):
                causes[_reason(outcome.error)] = list(running)
            elif outcome.error is not None:
                causes.setdefault(_reason(outcome.error), []).append(outcome.name)
        for cause, affected in causes.items():
            self._warn(f"{abbreviate_nodes(affected)}: {effect}. {cause}")


def _is_unexpected(error: Exception) -> bool:
    """Whether the error does not belong to a single node, for example because the lease was lost."""
    return not isinstance(error, (ServiceError, CommandFailed))


def _lacks_right(error: Exception) -> bool:
    return isinstance(error, ApiError) and error.lacks_right


def _reason(error: Exception) -> str:
    if _lacks_right(error):
        return "This user is not allowed to list driver pods or to run commands in them (pods/exec)."
    return as_sentence(str(error))
