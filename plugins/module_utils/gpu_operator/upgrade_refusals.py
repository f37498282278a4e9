# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Predicts, for a plan, whether the playbook site would refuse an upgrade of the operator's Helm release; changes nothing.

The release is read first. The chart is fetched and rendered only if site would change the release; the code of helm_release then determines the result.
"""

from __future__ import annotations

import os
import tempfile
import typing as t
from dataclasses import dataclass, replace

from ..catalog.olm import HELM
from ..cluster_state.own_values import DRIVER_OBJECT_VALUES, recorded_own_values
from ..common.nested import get_nested
from ..common.progress import Progress
from ..common.results import MAX_LISTED
from ..common.time_limit import RunCommand
from ..common.wait import WaitOptions
from ..helm.chart import ChartProblem, is_local_chart, read_chart
from ..helm.cli import HelmMissing, find_helm
from ..helm.preparation import ReleaseOptions, ReleasePreparation
from ..helm.release import DEPLOYED, ReleaseContent, Revision, differing_values, merge_values, select_initial_values
from ..helm.release_records import ReleaseRecords
from ..kube.errors import ApiError
from ..kube.objects import ExpectedObjects
from .driver_rollout import may_show
from .installation import InstallationFinding
from .upgrade import OperatorUpgrade

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from ..pools.plan import ComponentPlan, Plan

Object = dict[str, t.Any]


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
        with tempfile.TemporaryDirectory(dir=tools.folder) as folder:
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
