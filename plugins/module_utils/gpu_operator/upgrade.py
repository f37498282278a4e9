# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An upgrade of the operator's release: what it costs, whether that was allowed, and one roll of the driver instead of two.

Helm changes the operator's Deployment and the ClusterPolicy at about the same time, and until its successor has taken over the
old operator acts on what it sees: it would begin to roll the driver, and the new one would roll it again. So the old one is
stopped first. Helm starts the new one, since both charts say how many replicas there are (helm v3 pkg/kube/client.go: of a
kind that it knows, what differs from the manifest is put right).
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..catalog.names import STOPPING_MANAGER
from ..cluster_state.cluster_policy import active_policy
from ..common.wait import wait_until
from ..helm.chart import Chart
from ..helm.preparation import ReleasePreparation, WaitOptions
from ..helm.release import NOTHING, UPGRADE, ReleaseStep, differing
from ..kube.client import Client
from ..kube.managed_fields import child, owned_by
from ..kube.paths import CLUSTER_POLICIES, NAMESPACES
from .cluster_policy import driver_nodes
from .driver_rollout import PARTS, DriverRollout, UpgradePolicy
from .upgrade_preview import UpgradePreview, operator_deployments, preview_upgrade

Object = dict[str, t.Any]
_PODS = "app=gpu-operator"


class UpgradeRefused(Exception):
    """The upgrade is not begun; the message says why and what to do, `code` which of the reasons it is."""

    def __init__(self, code: str, message: str) -> None:
        """Keep both."""
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class UpgradeDecision:
    """What is left to do once the cost is known; `roll` is None when the driver stays as it is."""

    step: ReleaseStep
    roll: DriverRollout | None = None
    held_back: tuple[str, ...] = ()


class OperatorUpgrade:
    """Judges one upgrade, and stops the operator for it."""

    def __init__(self, client: Client, namespace: str, *, allowed: bool) -> None:
        """`namespace` is the release's; `allowed` whether the driver may roll."""
        self._client = client
        self._namespace = namespace
        self._allowed = allowed

    def judge(
        self, step: ReleaseStep, preparation: ReleasePreparation, chart: Chart, said: t.Mapping[str, t.Any]
    ) -> UpgradeDecision:
        """Raises UpgradeRefused where it would overwrite what others have set, or roll the driver without leave."""
        held = preparation.held
        if step.action != UPGRADE or held is None or not operator_deployments(held.manifest):
            return UpgradeDecision(step)
        live = t.cast("Object | None", active_policy(self._client.list_known(CLUSTER_POLICIES)))
        found = (
            preview_upgrade((held.chart, held.manifest), (chart, preparation.rendered()), live, said) if live else None
        )
        if live is None or found is None:
            return UpgradeDecision(step)
        if found.lost:
            raise UpgradeRefused("custom_fields", _custom(found, live["metadata"]["name"]))
        namespace = (live.get("status") or {}).get("namespace") or self._namespace
        nodes = driver_nodes(self._client.list(f"/apis/apps/v1/namespaces/{namespace}/daemonsets"))
        if not nodes or not found.reasons:
            return UpgradeDecision(step)
        roll = DriverRollout(nodes, UpgradePolicy.of(found.spec), found.reasons)
        if self._allowed:
            return UpgradeDecision(step, roll)
        paths = differing(held.config, preparation.wanted)
        if found.by_values and paths and all(path.partition(".")[0] in PARTS for path in paths):
            return UpgradeDecision(ReleaseStep(NOTHING), roll, tuple(paths))
        raise UpgradeRefused("driver_rollout", _without_leave(roll, held.chart, chart))

    def stop(self, manifest: str, waiting: WaitOptions) -> None:
        """Stop the operators of a manifest, and wait until their pods are gone; raises TimeoutStory."""
        for name in operator_deployments(manifest):
            # One that somebody has deleted is brought back by the upgrade.
            if self._client.get(self._path(name)) is not None:
                self._scale(name, 0)
        wait_until(
            lambda: [pod["metadata"]["name"] for pod in self._client.list(self._pods(), label_selector=_PODS)],
            lambda left: not left,
            timeout=waiting.timeout or 60,
            interval=waiting.interval,
            story=lambda left: f"The old GPU operator does not stop: pod {', '.join(left)} in {self._namespace} stays.",
            say=lambda left: f"waiting for the old GPU operator to stop: {', '.join(left)}",
            progress=waiting.progress,
        )

    def resume(self, manifest: str, *, check: bool, before_write: t.Callable[[], None]) -> bool:
        """Start operators that we have stopped for an upgrade which never came; whether there were any."""
        stopped = [name for name in operator_deployments(manifest) if self._is_stopped(name)]
        if stopped and not check:
            before_write()
            for name in stopped:
                self._scale(name, 1)
        return bool(stopped)

    def _is_stopped(self, name: str) -> bool:
        live = self._client.get(self._path(name))
        if live is None or live["spec"].get("replicas") != 0:
            return False
        # Whoever scales it next takes the field over, Helm or a person.
        return "f:replicas" in child(owned_by(live, STOPPING_MANAGER), "spec")

    def _scale(self, name: str, replicas: int) -> None:
        body: Object = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": self._namespace},
            "spec": {"replicas": replicas},
        }
        self._client.apply(self._path(name), body, manager=STOPPING_MANAGER)

    def _path(self, name: str) -> str:
        return f"/apis/apps/v1/namespaces/{self._namespace}/deployments/{name}"

    def _pods(self) -> str:
        return f"{NAMESPACES}/{self._namespace}/pods"


def _custom(found: UpgradePreview, name: str) -> str:
    return (
        f"Helm would overwrite what somebody has set by hand in ClusterPolicy {name}: {', '.join(found.lost)}. To keep it, say it "
        "in the release's values (release_values; gpu_cluster.operator.values, without 'spec.'). To give it up, say there what "
        "is to come. Nothing has been upgraded."
    )


def _without_leave(roll: DriverRollout, held: Chart, chart: Chart) -> str:
    stay = f"stay with version {held.version}" if held != chart else "take the driver's values out"
    return f"Not upgraded, because {roll}. Set allow_driver_rollout (gpu_operator_allow_driver_rollout) when that may happen, or {stay}."
