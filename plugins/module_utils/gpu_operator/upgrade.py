# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Upgrades of the operator's Helm release: their impact, whether it is allowed, and one roll of the driver instead of two.

Helm changes the operator's Deployment and the ClusterPolicy at about the same time. The old operator works until the new one has
taken over: it would begin to roll the driver, and the new one would roll it again. So the old one is stopped first. Helm starts
the new one, since both charts set the number of replicas (helm v3 pkg/kube/client.go corrects what differs from the manifest).
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..catalog.names import STOPPING_MANAGER
from ..cluster_state.cluster_policy import active_policy
from ..common.wait import WaitOptions, wait_until
from ..helm.chart import Chart
from ..helm.preparation import ReleasePreparation
from ..helm.release import NOTHING, UPGRADE, ReleaseStep, differing_values
from ..kube.client import Client
from ..kube.managed_fields import child, owned_by
from ..kube.paths import CLUSTER_POLICIES, NAMESPACES
from .daemonsets import count_driver_nodes
from .driver_rollout import PARTS, DriverRollout, UpgradePolicy
from .upgrade_preview import UpgradePreview, operator_deployments, preview_upgrade

Object = dict[str, t.Any]
_PODS = "app=gpu-operator"


class UpgradeRefused(Exception):
    """The upgrade is not started; the message says why and what to do, `code` is the reason."""

    def __init__(self, code: str, message: str) -> None:
        """`code` is custom_fields or driver_rollout."""
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class UpgradeDecision:
    """The remaining step once the impact is known; `rollout` is None when the driver does not change."""

    step: ReleaseStep
    rollout: DriverRollout | None = None
    held_back: tuple[str, ...] = ()


class OperatorUpgrade:
    """Checks one upgrade, and stops the operator for it."""

    def __init__(self, client: Client, namespace: str, *, allowed: bool) -> None:
        """`namespace` is the Helm release's; `allowed`: the driver may roll."""
        self._client = client
        self._namespace = namespace
        self._allowed = allowed

    def decide(
        self, step: ReleaseStep, preparation: ReleasePreparation, chart: Chart, desired: t.Mapping[str, t.Any]
    ) -> UpgradeDecision:
        """Raises UpgradeRefused when it would overwrite fields set by hand, or roll the driver without permission."""
        installed = preparation.content
        if step.action != UPGRADE or installed is None or not operator_deployments(installed.manifest):
            return UpgradeDecision(step)
        live = t.cast("Object | None", active_policy(self._client.list_known(CLUSTER_POLICIES)))
        if live is None:
            return UpgradeDecision(step)
        preview = preview_upgrade((installed.chart, installed.manifest), (chart, preparation.render()), live, desired)
        if preview is None:
            return UpgradeDecision(step)
        if preview.lost:
            raise UpgradeRefused("custom_fields", _custom_fields_message(preview, live["metadata"]["name"]))
        namespace = (live.get("status") or {}).get("namespace") or self._namespace
        nodes = count_driver_nodes(self._client.list(f"/apis/apps/v1/namespaces/{namespace}/daemonsets"))
        if not nodes or not preview.reasons:
            return UpgradeDecision(step)
        rollout = DriverRollout(nodes, UpgradePolicy.from_spec(preview.spec), preview.reasons)
        if self._allowed:
            return UpgradeDecision(step, rollout)
        paths = differing_values(installed.config, preparation.desired_values)
        if preview.by_values and paths and all(path.partition(".")[0] in PARTS for path in paths):
            return UpgradeDecision(ReleaseStep(NOTHING), rollout, tuple(paths))
        raise UpgradeRefused("driver_rollout", _refusal_message(rollout, installed.chart, chart))

    def stop(self, manifest: str, waiting: WaitOptions) -> None:
        """Stop the operators of a manifest, and wait until their pods are gone; raises WaitTimeout."""
        for name in operator_deployments(manifest):
            # The upgrade restores a deleted one.
            if self._client.get(self._path(name)) is not None:
                self._scale(name, 0)
        wait_until(
            lambda: [pod["metadata"]["name"] for pod in self._client.list(self._pods(), label_selector=_PODS)],
            lambda pods: not pods,
            timeout=waiting.timeout or 60,
            interval=waiting.interval,
            describe=lambda pods: (
                f"The old GPU operator does not stop: pod {', '.join(pods)} in {self._namespace} remains."
            ),
            progress_text=lambda pods: f"waiting for the old GPU operator to stop: {', '.join(pods)}",
            progress=waiting.progress,
        )

    def resume(self, manifest: str, *, check: bool, before_write: t.Callable[[], None]) -> bool:
        """Start operators that were stopped for an upgrade that did not happen; whether there were any."""
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
        # A later scaling, by Helm or by hand, takes the field over.
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


def _custom_fields_message(preview: UpgradePreview, name: str) -> str:
    return (
        f"Helm would overwrite fields that were set by hand in ClusterPolicy {name}: {', '.join(preview.lost)}. To keep them, set them "
        "in the values of the Helm release (release_values; gpu_cluster.operator.values, without 'spec.'). To discard them, set the "
        "new values there. Nothing has been upgraded."
    )


def _refusal_message(rollout: DriverRollout, installed: Chart, chart: Chart) -> str:
    alternative = f"keep version {installed.version}" if installed != chart else "remove the driver's values"
    return f"Not upgraded, because {rollout}. Set allow_driver_rollout (gpu_operator_allow_driver_rollout) to allow it, or {alternative}."
