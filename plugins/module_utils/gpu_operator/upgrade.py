# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks the impact of an upgrade of the operator's Helm release, checks whether it is allowed, and prevents a second restart of the driver.

Helm changes the operator's Deployment and the ClusterPolicy at about the same time. The old operator keeps working until the new one has
taken over, so it would begin to restart the driver, and the new operator would restart it again. Therefore, the old operator is stopped first. Helm
starts the new one, because both charts set the number of replicas (helm v3 pkg/kube/client.go corrects differences from the manifest).
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, replace

from ..catalog.names import STOPPING_MANAGER
from ..catalog.releases import is_downgrade
from ..cluster_state.cluster_policy import active_policy, uses_driver_objects
from ..cluster_state.nvidia_driver import follows_own_policies
from ..cluster_state.own_values import endangered_own_values
from ..common.wait import WaitOptions, wait_until
from ..helm.chart import Chart, matching_documents
from ..helm.object_upgrade import upgraded
from ..helm.preparation import ReleasePreparation
from ..helm.release import NOTHING, UPGRADE, ReleaseStep, differing_values, merge_values
from ..kube.client import Client
from ..kube.errors import ApiError
from ..kube.managed_fields import child, owned_by
from ..kube.paths import CLUSTER_POLICIES, CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, NVIDIA_DRIVERS
from ..schema.messages import abbreviate
from .chart_drivers import changed_objects, rolled_nodes
from .cluster_policy import KIND
from .daemonsets import driver_nodes, is_driver
from .driver_rollout import (
    ALLOW_DRIVER_ROLLOUT,
    PARTS,
    DriverRollout,
    Path,
    UpgradePolicies,
    driver_fields,
    format_change,
    is_in_place,
)
from .manual_fields import KnownSources, ManualField, manual_fields, manual_fields_message

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]

_PODS = "app=gpu-operator"
_DEFINITION = "clusterpolicies.nvidia.com"
_DEPLOYMENT = re.compile(r"^kind:\s*[\"']?Deployment\b", re.MULTILINE)
_POLICY = re.compile(rf"^kind:\s*[\"']?{KIND}\b", re.MULTILINE)


@dataclass(frozen=True)
class UpgradePreview:
    """The effect of an upgrade on the active policy; `spec` is the resulting spec.

    `manual` contains the manually set fields that Helm would overwrite. `driver_paths` contains the fields below spec that change the driver's DaemonSet.
    `reasons` explains why the driver changes and is empty if it does not change. `by_values` is true if the driver changes although the chart stays the
    same. `drivers` contains the names of the NVIDIADriver objects of the Helm release whose driver changes.
    """

    spec: Object
    reasons: tuple[str, ...] = ()
    manual: tuple[ManualField, ...] = ()
    driver_paths: tuple[Path, ...] = ()
    by_values: bool = False
    drivers: frozenset[str] = frozenset()


def preview_upgrade(
    old: tuple[Chart, str],
    new: tuple[Chart, str],
    live: Document,
    desired: t.Mapping[str, t.Any],
    definitions: t.Iterable[Document] = (),
    drivers: t.Sequence[Document] = (),
) -> UpgradePreview:
    """Compare two charts of the GPU operator with their manifests.

    `live` is the active ClusterPolicy. `desired` contains the values that the user sets; the fields that these values set may be overwritten.
    `definitions` contains CRDs: a value that equals a default of a CRD does not count as manually set. `drivers` contains the NVIDIADriver objects.
    """
    name = live["metadata"]["name"]
    before, after = _spec(old[1], name), _spec(new[1], name)
    spec = dict(live.get("spec") or {})
    outcome = upgraded(spec, before, after)
    paths = driver_fields(spec, outcome)
    replaced = old[0] != new[0]
    reasons = [f"chart {old[0].label} becomes {new[0].label}"] if replaced else []
    # A new chart changes many fields and the version label of every pod. In that case, only the fields that select the
    # driver itself are listed.
    named = [path for path in paths if not replaced or path[-1] in ("version", "image", "repository")]
    reasons += [format_change(spec, outcome, path) for path in named if path[:2] != ("daemonsets", "labels")]
    objects = changed_objects(old[1], new[1], drivers)
    reasons += [reason for name in sorted(objects) for reason in objects[name]]
    sources = KnownSources((before, after), desired, tuple(definitions))
    return UpgradePreview(
        spec=outcome,
        reasons=tuple(reasons) if replaced or paths or objects else (),
        manual=tuple(manual_fields(live, sources)),
        driver_paths=tuple(paths),
        by_values=bool(paths or objects) and not replaced,
        drivers=frozenset(objects),
    )


def operator_deployments(manifest: str) -> list[str]:
    """The names of the Deployments in a manifest that run the GPU operator."""
    return [
        item["metadata"]["name"]
        for item in matching_documents(manifest, _DEPLOYMENT)
        if item.get("kind") == "Deployment"
        and (item["spec"]["template"]["metadata"].get("labels") or {}).get("app") == "gpu-operator"
    ]


class UpgradeRefused(Exception):
    """Raised if an upgrade must not be started; the message contains the reason and the remedy, and `code` identifies the reason."""

    def __init__(self, code: str, message: str) -> None:
        """`code` is manual_fields or driver_rollout."""
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class UpgradeDecision:
    """The decision about a step once its impact is known; `rollout` is None if the driver does not change.

    `held_back` contains the paths of Helm values that are not applied. `refusals` contains the reasons why the step must not be taken.
    """

    step: ReleaseStep
    rollout: DriverRollout | None = None
    held_back: tuple[str, ...] = ()
    refusals: tuple[UpgradeRefused, ...] = ()

    def require_allowed(self) -> None:
        """Raise all refusals as one exception, with the code of the first refusal."""
        if self.refusals:
            raise UpgradeRefused(self.refusals[0].code, " ".join(map(str, self.refusals)))


class OperatorUpgrade:
    """Checks an upgrade and stops the operator before the upgrade starts."""

    def __init__(self, client: Client, namespace: str, *, allowed: bool) -> None:
        """`namespace` is the namespace of the Helm release; `allowed` is true if the driver may restart."""
        self._client = client
        self._namespace = namespace
        self._allowed = allowed

    def decide(
        self,
        step: ReleaseStep,
        preparation: ReleasePreparation,
        chart: Chart,
        definitions: t.Iterable[Object],
        desired: t.Mapping[str, t.Any],
    ) -> UpgradeDecision:
        """Predict the effect of the upgrade, and reject it if it would overwrite manually set fields, or restart the driver without permission.

        `definitions` contains the CRDs of the chart. If the upgrade would reset the names of the collection's ConfigMaps, these names are added to
        `preparation.kept_values`.
        """
        installed = preparation.content
        if step.action != UPGRADE or installed is None or not operator_deployments(installed.manifest):
            return UpgradeDecision(step)
        live = t.cast("Object | None", active_policy(self._client.list_known(CLUSTER_POLICIES)))
        if live is None:
            return UpgradeDecision(step)
        old = (installed.chart, installed.manifest)
        drivers: list[Object] = []
        if uses_driver_objects(live.get("spec") or {}):
            drivers = list(self._client.list(NVIDIA_DRIVERS))
        rendered = preparation.render()
        if not operator_deployments(rendered):
            return UpgradeDecision(step)

        def previewed(known: t.Iterable[Document] = ()) -> UpgradePreview:
            return preview_upgrade(old, (chart, rendered), live, desired, known, drivers)

        preview = previewed()
        kept = endangered_own_values(live.get("spec") or {}, preview.spec)
        if kept:
            preparation.kept_values = merge_values(preparation.kept_values, kept)
            rendered = preparation.render()
            preview = previewed()
        if preview.manual:
            known = [*definitions, *installed.definitions(), *self._live_definition()]
            preview = previewed(filter(_defines_policy, known))
        refusals = []
        if preview.manual:
            message = manual_fields_message(preview.manual, live["metadata"]["name"])
            refusals.append(UpgradeRefused("manual_fields", message))
        rollout = self._rollout(preview, live, chart, drivers)
        if rollout is None or self._allowed or rollout.in_place:
            return UpgradeDecision(step, rollout, refusals=tuple(refusals))
        paths = differing_values(installed.config, preparation.desired_values)
        of_driver = [path for path in paths if path.partition(".")[0] in PARTS]
        if preview.by_values and paths and of_driver == paths:
            return UpgradeDecision(ReleaseStep(NOTHING), rollout, tuple(paths), tuple(refusals))
        restarting = (of_driver or paths) if chart == installed.chart else ()
        message = _refusal_message(rollout, restarting, installed.chart, chart)
        refusals.append(UpgradeRefused("driver_rollout", message))
        return UpgradeDecision(step, rollout, refusals=tuple(refusals))

    def _rollout(
        self, preview: UpgradePreview, live: Object, chart: Chart, drivers: t.Sequence[Object]
    ) -> DriverRollout | None:
        namespace = (live.get("status") or {}).get("namespace") or self._namespace
        daemonsets = list(self._client.list(f"/apis/apps/v1/namespaces/{namespace}/daemonsets"))
        replaced = not preview.by_values
        nodes = rolled_nodes(driver_nodes(daemonsets), preview.driver_paths, preview.drivers, replaced=replaced)
        if not nodes or not preview.reasons:
            return None
        # The new operator replaces the drivers, so its version, not the fields of the current objects, determines which upgrade policies apply.
        own = follows_own_policies((), chart.version)
        rollout = UpgradePolicies.read(preview.spec, drivers, own=own).rollout(nodes, preview.reasons)
        in_place = (
            preview.by_values
            and not preview.drivers
            and is_in_place(
                preview.driver_paths, chart.app_version, rollout.upgrade_policy, list(filter(is_driver, daemonsets))
            )
        )
        return replace(rollout, in_place=in_place)

    def _live_definition(self) -> list[Object]:
        """The CRD of the ClusterPolicy in the cluster, as a list; empty if it does not exist or the user is not allowed to read it."""
        try:
            definition = self._client.get(f"{CUSTOM_RESOURCE_DEFINITIONS}/{_DEFINITION}")
        except ApiError as error:
            if not error.forbidden:
                raise
            return []
        return [definition] if definition else []

    def stop(self, manifest: str, waiting: WaitOptions) -> None:
        """Stop the operators of a manifest and wait until their pods are gone; raises WaitTimeout."""
        for name in operator_deployments(manifest):
            # A Deployment that was deleted is skipped; the upgrade restores it.
            if self._client.get(self._path(name)) is not None:
                self._scale(name, 0)
        wait_until(
            lambda: [pod["metadata"]["name"] for pod in self._client.list(self._pods(), label_selector=_PODS)],
            lambda pods: not pods,
            timeout=waiting.timeout or 60,
            interval=waiting.interval,
            describe=lambda pods: (
                f"The old GPU operator has not stopped. Pods still running in namespace {self._namespace}: {', '.join(pods)}."
            ),
            progress_text=lambda pods: f"waiting for the old GPU operator to stop: {', '.join(pods)}",
            progress=waiting.progress,
        )

    def resume(self, manifest: str, *, check: bool, before_write: t.Callable[[], None]) -> bool:
        """Start operators that were stopped for an upgrade that did not take place. Returns whether any operator was stopped."""
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
        # If Helm or a user scaled the Deployment afterwards, STOPPING_MANAGER no longer owns the field.
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


def _spec(manifest: str, name: str) -> Object:
    for item in matching_documents(manifest, _POLICY):
        if item.get("kind") == KIND and item["metadata"]["name"] == name:
            return dict(item.get("spec") or {})
    return {}


def _defines_policy(definition: Document) -> bool:
    return bool(definition["metadata"]["name"] == _DEFINITION)


def _refusal_message(rollout: DriverRollout, restarting: t.Sequence[str], installed: Chart, chart: Chart) -> str:
    """`restarting` contains the paths of the changed values that restart the driver; it is empty if the chart changes."""
    if chart != installed and is_downgrade(installed.version, chart.version):
        return (
            f"Not changed, because the installed chart {installed.label} is newer than the declared version {chart.version}: this is a downgrade, and "
            f"{rollout.refused('it')}. To keep the installed version, set gpu_cluster.operator.version: {installed.version}. Only if you want the "
            f"downgrade, set {ALLOW_DRIVER_ROLLOUT}."
        )
    alternative = f"keep version {installed.version}"
    if restarting:
        alternative = f"set {abbreviate(restarting)} in gpu_cluster.operator.values to the installed value, so that only the other values change"
    return f"Not upgraded, because {rollout.refused('the upgrade')}. Set {ALLOW_DRIVER_ROLLOUT} to allow it, or {alternative}."
