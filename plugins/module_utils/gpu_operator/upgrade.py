# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Upgrades the GPU operator: refusals, and the restarts that it causes."""

from __future__ import annotations

import os
import re
import typing as t
from dataclasses import dataclass, replace

from ..catalog.names import DEVICE_PLUGIN_CONFIGMAP, MIG_CONFIGMAP, OPERATOR_PODS, STOPPING_MANAGER
from ..catalog.openshift import HELM
from ..catalog.releases import is_downgrade
from ..core.files import temporary_folder
from ..core.messages import MAX_LISTED, abbreviate
from ..core.values import Document, Object, get_nested, set_nested
from ..core.waits import Progress, RunCommand, WaitOptions, wait_until
from ..helm.preparation import ReleaseOptions, ReleasePreparation, upgraded
from ..helm.release import (
    DEPLOYED,
    NOTHING,
    UPGRADE,
    Chart,
    ChartProblem,
    HelmMissing,
    ReleaseContent,
    ReleaseRecords,
    ReleaseStep,
    Revision,
    differing_values,
    find_helm,
    is_local_chart,
    matching_documents,
    merge_values,
    read_chart,
    select_initial_values,
)
from ..kube.errors import ApiError
from ..kube.fields import child, owned_by
from ..kube.objects import ExpectedObjects
from ..kube.paths import CLUSTER_POLICIES, CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, NVIDIA_DRIVERS
from .cluster_policy import (
    ALLOW_DRIVER_ROLLOUT,
    PARTS,
    POLICY_KIND,
    DriverRollout,
    Path,
    UpgradePolicies,
    active_policy,
    driver_fields,
    follows_own_policies,
    format_change,
    is_in_place,
    may_show,
    uses_driver_objects,
)
from .driver_objects import changed_objects, rolled_nodes
from .installation import InstallationFinding, KnownSources, ManualField, manual_fields, manual_fields_message
from .readiness import driver_nodes, is_driver

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from ..pools.plan import ComponentPlan, Plan

# Selects the Helm values with which an upgrade preserves the names of the collection's ConfigMaps in the ClusterPolicy (pure).
#
# The collection sets these names in the ClusterPolicy, but not in the values of the Helm release. If the manifests of two charts differ in one of these
# fields, Helm would reset it. For example, charts since v26.3 render migManager.config.name only if a value sets it. The operands would restart without
# their configuration, and would restart again once the collection has restored the name.

# The fields have the same paths in the ClusterPolicy, below spec, and in the values of the chart.
_NAMES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("devicePlugin", "config", "name"), DEVICE_PLUGIN_CONFIGMAP),
    (("migManager", "config", "name"), MIG_CONFIGMAP),
)
# These values make NVIDIADriver objects describe the driver, without the chart's own object, which would select every node.
_DRIVER_OBJECTS = ("driver", "nvidiaDriverCRD")
DRIVER_OBJECT_VALUES: t.Mapping[str, bool] = {"enabled": True, "deployDefaultCR": False}


def recorded_own_values(config: Document) -> Object:
    """The values of a Helm release that an earlier upgrade has added to keep the names, and DRIVER_OBJECT_VALUES if the installation has set them.

    Without DRIVER_OBJECT_VALUES, the ClusterPolicy's driver would replace the driver of every node once no pool declares `driver`.
    """
    values = _values(lambda path, name: bool(get_nested(config, *path) == name))
    if get_nested(config, *_DRIVER_OBJECTS) == DRIVER_OBJECT_VALUES:
        set_nested(values, _DRIVER_OBJECTS, dict(DRIVER_OBJECT_VALUES))
    return values


def endangered_own_values(before: Document, after: Document) -> Object:
    """The values that preserve those names that the policy's spec contains before an upgrade, but would not contain after it."""
    return _values(lambda path, name: get_nested(before, *path) == name != get_nested(after, *path))


def without_own_values(config: Document) -> Object:
    """The values of a Helm release without the values that recorded_own_values() returns; maps that become empty are removed."""
    result: Object = dict(config)
    for path, name in _NAMES:
        if get_nested(result, *path) == name:
            result = _without(result, path)
    if get_nested(result, *_DRIVER_OBJECTS) == DRIVER_OBJECT_VALUES:
        result = _without(result, _DRIVER_OBJECTS)
    return result


def _values(is_kept: t.Callable[[tuple[str, ...], str], bool]) -> Object:
    values: Object = {}
    for path, name in _NAMES:
        if is_kept(path, name):
            set_nested(values, path, name)
    return values


def _without(values: Document, path: tuple[str, ...]) -> Object:
    below = {} if len(path) == 1 else _without(values[path[0]], path[1:])
    rest = {key: value for key, value in values.items() if key != path[0]}
    return {**rest, path[0]: below} if below else rest


# Checks the impact of an upgrade of the operator's Helm release, checks whether it is allowed, and prevents a second restart of the driver.
#
# Helm changes the operator's Deployment and the ClusterPolicy at about the same time. The old operator keeps working until the new one has
# taken over, so it would begin to restart the driver, and the new operator would restart it again. Therefore, the old operator is stopped first. Helm
# starts the new one, because both charts set the number of replicas (helm v3 pkg/kube/client.go corrects differences from the manifest).

_DEFINITION = "clusterpolicies.nvidia.com"
_DEPLOYMENT = re.compile(r"^kind:\s*[\"']?Deployment\b", re.MULTILINE)
_POLICY = re.compile(rf"^kind:\s*[\"']?{POLICY_KIND}\b", re.MULTILINE)


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
            lambda: [pod["metadata"]["name"] for pod in self._client.list(self._pods(), label_selector=OPERATOR_PODS)],
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
        if item.get("kind") == POLICY_KIND and item["metadata"]["name"] == name:
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


# Predicts, for a plan, whether the playbook site would refuse an upgrade of the operator's Helm release; changes nothing.
#
# The release is read first. The chart is fetched and rendered only if site would change the release; the code of helm_release then determines the result.


@dataclass(frozen=True)
class HelmTools:
    """The tools of the machine that runs the module: helm at `binary`, or found on PATH with `search`, and a `folder` for charts."""

    binary: str | None
    search: t.Callable[[str], str | None]
    run_command: RunCommand
    folder: str


@dataclass(frozen=True)
class RefusalPreview:
    """The codes and messages of the refusals with which site would fail, or the `problem` that prevents a prediction.

    `values` contains the Helm values that site would change, each with its path and, unless they may be confidential, its values before and after.
    """

    refusals: tuple[tuple[str, str], ...] = ()
    problem: str = ""
    values: tuple[Object, ...] = ()

    def as_dict(self) -> Object:
        """The preview, formatted for the result of gpu_info."""
        return {
            "refusals": [{"code": code, "message": text} for code, text in self.refusals],
            "problem": self.problem,
            "values": [dict(value) for value in self.values],
        }


def preview_upgrade_of_site(
    client: Client, plan: Plan, finding: InstallationFinding, tools: HelmTools, *, allowed: bool
) -> RefusalPreview | None:
    """The preview of the upgrade that site would make; None if site does not change the release or installs it.

    `allowed` is true if the driver may be restarted.
    """
    installation = finding.installation
    if not plan.pools or installation is None or not finding.managed or finding.installer != HELM:
        return None
    operator, initial = plan.operator, initial_values(plan)
    records = ReleaseRecords(client, operator.name, operator.namespace)
    try:
        revision = records.latest()
        content = records.content(revision)
    except ApiError as error:
        if not error.forbidden:
            raise
        same = _same_version(installation.version, operator.version)
        return (
            None
            if same
            else RefusalPreview(problem=f"this user is not allowed to read Secrets in namespace {operator.namespace}")
        )
    values: tuple[Object, ...] = ()
    try:
        if _is_up_to_date(revision, content, operator, initial):
            return None
        values = changed_values(content, operator, initial) if content else ()
        with temporary_folder("helm", beside=tools.folder) as folder:
            return replace(_preview(client, operator, initial, tools, folder, allowed=allowed), values=values)
    except (ChartProblem, HelmMissing) as error:
        return RefusalPreview(problem=str(error), values=values)


def initial_values(plan: Plan) -> Object:
    """The values for a first installation; the role gpu_operator uses the same values."""
    values: Object = {"daemonsets": {"tolerations": [dict(item) for item in plan.policy.tolerations]}}
    if plan.declares_drivers:
        values["driver"] = {"nvidiaDriverCRD": dict(DRIVER_OBJECT_VALUES)}
    return values


def _is_up_to_date(
    revision: Revision | None, content: ReleaseContent | None, operator: ComponentPlan, initial: Object
) -> bool:
    """Whether helm_release would find nothing to do, determined without helm: a remote chart counts as equal if its version is equal."""
    if revision is None or content is None or revision.status != DEPLOYED:
        return False
    same = _same_version(content.chart.version, operator.version)
    if is_local_chart(operator.chart):
        same = read_chart(os.path.expanduser(operator.chart)) == content.chart
    return same and not differing_values(content.config, _desired_values(content, operator, initial))


def _desired_values(content: ReleaseContent, operator: ComponentPlan, initial: Object) -> Object:
    kept = merge_values(recorded_own_values(content.config), select_initial_values(initial, content.config))
    return merge_values(kept, operator.values)


def changed_values(content: ReleaseContent, operator: ComponentPlan, initial: Object) -> tuple[Object, ...]:
    """The Helm values that an upgrade would change; booleans, numbers and the values of known fields are shown, because they are not confidential."""
    desired = _desired_values(content, operator, initial)
    changes: list[Object] = []
    for path in differing_values(content.config, desired)[:MAX_LISTED]:
        keys = tuple(path.split("."))
        before, after = get_nested(content.config, *keys), get_nested(desired, *keys)
        # A key that contains a dot is not found at this path.
        shown = before != after and may_show(keys, before, after)
        changes.append({"path": path, **({"before": before, "after": after} if shown else {})})
    return tuple(changes)


def _same_version(installed: str, desired: str) -> bool:
    return installed.removeprefix("v") == desired.removeprefix("v")


def _preview(
    client: Client, operator: ComponentPlan, initial: Object, tools: HelmTools, folder: str, *, allowed: bool
) -> RefusalPreview:
    preparation = ReleasePreparation(
        client,
        ReleaseOptions(
            operator.name,
            operator.namespace,
            operator.chart,
            operator.chart_repo or None,
            operator.version or None,
            operator.values,
            initial,
        ),
        tools.run_command,
        check=True,
        expected=ExpectedObjects(),
        run_id="",
        waiting=WaitOptions(0, 1, Progress(None)),
        before_write=lambda: None,
    )
    binary = find_helm(tools.binary, tools.search)
    chart, definitions = preparation.load_chart(binary, folder)
    preparation.recover_pending()
    preparation.kept_values = recorded_own_values(preparation.content.config) if preparation.content else {}
    upgrade = OperatorUpgrade(client, operator.namespace, allowed=allowed)
    decision = upgrade.decide(preparation.next_step(chart), preparation, chart, definitions, operator.values)
    return RefusalPreview(tuple((refusal.code, str(refusal)) for refusal in decision.refusals))
