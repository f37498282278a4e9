# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Determines the container toolkit's settings for the distribution of the nodes.

If gpu_cluster.distribution is not set, an installation keeps its settings if its toolkit works, or if its ClusterPolicy was changed manually: the values
that the Helm release has recorded are passed to Helm again, so that nothing changes. A toolkit that works also keeps its settings if
gpu_cluster.distribution names a distribution that no node has.
"""

from __future__ import annotations

import itertools
import typing as t
from dataclasses import dataclass, field, replace

from ..catalog.distributions import BY_NAME, Distribution
from ..catalog.names import PCI_PRESENT_LABELS
from ..catalog.operands import TOOLKIT
from ..cluster_state.distribution import CONTAINERD, contradiction, distribution_of, distributions_of, other_nodes
from ..cluster_state.driver_preflight import missing_image_problem
from ..cluster_state.node import Node, parse_node
from ..cluster_state.operand_pods import daemonset_status
from ..common.nested import get_nested
from ..helm.release_records import ReleaseRecords
from ..kube.client import Client
from ..kube.errors import ApiError
from ..kube.managed_fields import writers
from ..kube.paths import DAEMONSETS, NODES
from ..pools.operator_values import distribution_values, toolkit_values, with_values, without_values
from ..schema.messages import join_words

if t.TYPE_CHECKING:
    from ..pools.plan import Plan
    from .installation import InstallationFinding

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]

# The maximum number of nodes to read (one page); all nodes of a cluster are expected to have the same distribution.
_SAMPLE = 100
# Prefixes of the field managers of installers: helm and programs based on it, and this collection.
_INSTALLERS = ("helm", "accel.gpu")


@dataclass(frozen=True)
class ToolkitSettings:
    """The values to add to the operator's Helm values; the `notes` describe the settings that are kept or that change.

    `replaces_declared` is true if these values replace those that are derived from the declared distribution.
    """

    distribution: str = ""
    values: Object = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    replaces_declared: bool = False

    @property
    def env(self) -> list[Object]:
        """The environment variables of the toolkit in the values."""
        return _env(self.values)


@dataclass(frozen=True)
class InstalledToolkit:
    """The toolkit of an installed operator, with its environment variables in the ClusterPolicy (`live`) and in the Helm release (`recorded`).

    `ready_nodes` is the number of nodes where the toolkit's pod is ready; `working` is true if the toolkit runs on nodes and is ready on all of them.
    `edited_by` is the field manager of a manual change to the toolkit's variables.
    """

    live: t.Mapping[str, t.Any]
    recorded: t.Mapping[str, t.Any]
    version: str = ""
    ready_nodes: int = 0
    working: bool = False
    edited_by: str = ""


def sample_nodes(client: Client) -> list[Node]:
    """A limited number of GPU nodes, or of all nodes if NFD has not labeled any GPU node yet."""
    for selector in (*(f"{label}=true" for label in PCI_PRESENT_LABELS), None):
        listed = client.list(NODES, label_selector=selector, limit=_SAMPLE)
        if nodes := [parse_node(node) for node in itertools.islice(listed, _SAMPLE)]:
            return nodes
    return []


def read_toolkit_settings(
    client: Client, plan: Plan, finding: InstallationFinding, policy: Document | None, nodes: t.Sequence[Node]
) -> ToolkitSettings:
    """The settings for an operator that Helm installs or upgrades; empty if it is adopted or if the plan's values already contain them."""
    if not finding.managed or finding.problem or not plan.pools:
        return ToolkitSettings()
    if plan.cluster.distribution:
        env = _env(plan.cluster.distribution_values)
        if policy is None or is_confirmed(BY_NAME[plan.cluster.distribution], nodes) or _has(policy, env):
            return ToolkitSettings()
        live = _variables(get_nested(policy, "spec", "toolkit", "env"))
        return settings_for_unconfirmed(plan, _read_installed(client, plan, finding, policy, live))
    distributions = distributions_of(nodes)
    if policy is None:
        return settings_for(plan, distributions)
    planned = settings_for(plan, distributions)
    if _has(policy, planned.env):
        return planned
    live = _variables(get_nested(policy, "spec", "toolkit", "env"))
    return settings_for(plan, distributions, _read_installed(client, plan, finding, policy, live))


def operator_result(finding: InstallationFinding, settings: ToolkitSettings, plan: Plan) -> Object:
    """The operator's finding with the distribution and its values, formatted for a module's result."""
    distribution = plan.cluster.distribution or settings.distribution
    return {
        **finding.as_dict(),
        "distribution": distribution,
        "distribution_values": settings.values,
        "replaces_declared": settings.replaces_declared,
    }


def with_settings(plan: Plan, settings: ToolkitSettings) -> Plan:
    """The plan with the values that the playbook site passes to Helm, combined in the same way as in the role gpu_operator."""
    values = plan.operator.values
    if settings.replaces_declared:
        values = without_values(values, plan.cluster.distribution_values)
    values = with_values(values, settings.values)
    return replace(plan, operator=replace(plan.operator, values=values))


def settings_for(
    plan: Plan, distributions: t.Mapping[str, t.Sequence[str]], installed: InstalledToolkit | None = None
) -> ToolkitSettings:
    """The settings for nodes of these distributions (pure); `installed` is given if a toolkit with different settings is installed."""
    needs = {name: BY_NAME[name] if name else None for name in distributions}
    needed = {name: _values(plan, distribution) for name, distribution in needs.items()}
    if any(values != other for values, other in itertools.pairwise(needed.values())):
        titles = [distribution.title if distribution else "other nodes" for distribution in needs.values()]
        note = (
            f"nodes of several distributions ({join_words(titles)}) need different settings of the container toolkit, so none are derived; set "
            "toolkit.env in gpu_cluster.operator.values"
        )
        return ToolkitSettings("", {}, (note,))
    distribution = next((each for each in needs.values() if each), None)
    if distribution is None:
        return ToolkitSettings()
    settings = ToolkitSettings(distribution.name, needed[distribution.name])
    return (
        settings if installed is None or not settings.env else _for_installed(plan, distribution, settings, installed)
    )


def settings_for_unconfirmed(plan: Plan, installed: InstalledToolkit) -> ToolkitSettings:
    """The settings for an installed operator if no node has the declared distribution (pure); a toolkit that works keeps its settings."""
    distribution, env = BY_NAME[plan.cluster.distribution or ""], _env(plan.cluster.distribution_values)
    recorded = _recorded(env, installed)
    if not installed.working or _is_derived(plan, distribution, recorded, installed):
        return ToolkitSettings()
    note = (
        f"its container toolkit works on {installed.ready_nodes} node(s), so it is not changed and does not get the settings for "
        f"{distribution.title} ({_format(env)}). To apply them, set these variables in toolkit.env of gpu_cluster.operator.values"
    )
    values = _with_recorded(plan.cluster.distribution_values, env, recorded)
    return ToolkitSettings(distribution.name, values, (note,), replaces_declared=True)


def is_confirmed(declared: Distribution, nodes: t.Collection[Node]) -> bool:
    """Whether at least one node has the declared distribution, or no node contradicts it."""
    others = other_nodes(declared, nodes)
    return not others or any(distribution_of(node) is declared for node in nodes)


def _for_installed(
    plan: Plan, distribution: Distribution, planned: ToolkitSettings, installed: InstalledToolkit
) -> ToolkitSettings:
    recorded = _recorded(planned.env, installed)
    kept = _with_recorded(planned.values, planned.env, recorded)
    derived = _is_derived(plan, distribution, recorded, installed)
    desired = _format(planned.env)
    adopt = f"To apply them, set gpu_cluster.distribution: {distribution.name}"
    if installed.edited_by:
        note = (
            f"toolkit.env of the ClusterPolicy was edited by {installed.edited_by}, so the settings for {distribution.title} ({desired}) are not "
            f"applied. {adopt}"
        )
        return ToolkitSettings(distribution.name, kept, (note,))
    if installed.working and not derived:
        note = (
            f"its container toolkit works on {installed.ready_nodes} node(s) without the settings for {distribution.title} ({desired}), so it is left "
            f"unchanged. {adopt}"
        )
        return ToolkitSettings(distribution.name, kept, (note,))
    return replace(planned, notes=(restart_note(distribution, desired, installed.ready_nodes),))


def _recorded(env: t.Sequence[Object], installed: InstalledToolkit) -> tuple[Object, ...]:
    """The variables of this list that the Helm release has recorded, with the recorded values."""
    names = {entry["name"] for entry in env}
    return tuple({"name": name, "value": value} for name, value in installed.recorded.items() if name in names)


def _with_recorded(values: Document, env: t.Sequence[Object], recorded: t.Sequence[Object]) -> Object:
    """The values of a distribution, with the toolkit's variables `env` replaced by the recorded ones."""
    return dict(with_values(without_values(values, toolkit_values(env)), toolkit_values(recorded)))


def _is_derived(
    plan: Plan, distribution: Distribution, recorded: t.Sequence[Object], installed: InstalledToolkit
) -> bool:
    """Whether an earlier run has derived the recorded variables for the same distribution."""
    before = distribution.toolkit_variables(installed.version or plan.operator.version)
    return bool(recorded) and all(before.get(entry["name"]) == entry["value"] for entry in recorded)


def _format(env: t.Iterable[Object]) -> str:
    return ", ".join(f"{entry['name']}={entry['value']}" for entry in env)


def restart_note(distribution: Distribution | None, settings: str, nodes: int) -> str:
    """The note that announces a change to the toolkit's settings."""
    restarted = distribution.restarts if distribution else "containerd"
    where = f" on {nodes} node(s)" if nodes else ""
    return (
        f"toolkit.env changes ({settings}): the container toolkit is replaced{where} and restarts {restarted}; running containers are not "
        "affected, but no pod can start on a node for a few seconds"
    )


def declared_change(plan: Plan, policy: Document | None, detected: str = "") -> tuple[str, ...]:
    """The note about an installed operator's toolkit variables that the declared values change; empty if none change."""
    if policy is None:
        return ()
    live = _variables(get_nested(policy, "spec", "toolkit", "env"))
    planned = _variables(get_nested(plan.operator.values, "toolkit", "env"))
    changed = [f"{name}={value}" for name, value in planned.items() if live.get(name) != value]
    distribution = BY_NAME.get(plan.cluster.distribution or detected)
    return (restart_note(distribution, ", ".join(changed), 0),) if changed else ()


def adapt_finding(
    client: Client, plan: Plan, finding: InstallationFinding, policy: Document | None, nodes: t.Sequence[Node]
) -> tuple[InstallationFinding, ToolkitSettings]:
    """The operator's finding with problems and notes about these nodes, and the toolkit's settings.

    A missing driver image is a problem only before the operator is installed, because the driver of an installed operator may already work.
    """
    if finding.installs and plan.pools and (problem := missing_image_problem(plan, nodes)):
        return replace(finding, problem=problem), ToolkitSettings()
    relevant = _toolkit_nodes(nodes)
    settings = read_toolkit_settings(client, plan, finding, policy, relevant)
    notes = settings.notes or (declared_change(plan, policy, settings.distribution) if finding.managed else ())
    if finding.managed and plan.pools and plan.cluster.distribution:
        warning = contradiction(BY_NAME[plan.cluster.distribution], relevant)
        notes = (*((warning,) if warning else ()), *notes)
    return replace(finding, notes=(*finding.notes, *notes)), settings


def _toolkit_nodes(nodes: t.Iterable[Node]) -> list[Node]:
    """The nodes that use containerd: GPU nodes if there are any, otherwise all of them, as in sample_nodes()."""
    nodes = [node for node in nodes if node.container_runtime.startswith(CONTAINERD)]
    return [node for node in nodes if any(node.labels.get(label) == "true" for label in PCI_PRESENT_LABELS)] or nodes


def _has(policy: Document, env: t.Iterable[Object]) -> bool:
    """Whether the ClusterPolicy contains all these variables of the toolkit with these values."""
    live = _variables(get_nested(policy, "spec", "toolkit", "env"))
    return all(live.get(entry["name"]) == entry["value"] for entry in env)


def _values(plan: Plan, distribution: Distribution | None) -> Object:
    return distribution_values(distribution, plan.operator.version, plan.operator.values) if distribution else {}


def _env(values: Document) -> list[Object]:
    """The variables of the container toolkit in these values."""
    return get_nested(values, "toolkit", "env") or []


def _variables(env: t.Any) -> dict[str, t.Any]:
    return {entry["name"]: entry.get("value") for entry in env or ()}


def _read_installed(
    client: Client, plan: Plan, finding: InstallationFinding, policy: Document, live: t.Mapping[str, t.Any]
) -> InstalledToolkit:
    recorded: t.Any = None
    try:
        records = ReleaseRecords(client, plan.operator.name, plan.operator.namespace)
        content = records.content(records.latest())
        recorded = get_nested(content.config, "toolkit", "env") if content else None
    except ApiError as error:
        # The user of a plan may lack permission to read Secrets.
        if not error.forbidden:
            raise
    statuses = [daemonset_status(item) for item in client.list(DAEMONSETS, field_selector=f"metadata.name={TOOLKIT}")]
    return InstalledToolkit(
        live=live,
        recorded=_variables(recorded),
        version=finding.installation.version if finding.installation else "",
        ready_nodes=sum(status.available for status in statuses),
        working=any(status.desired for status in statuses) and all(s.available >= s.desired for s in statuses),
        edited_by=_editor(policy),
    )


def _editor(policy: Document) -> str:
    """The field manager, other than an installer, that has written toolkit.env; empty if there is none."""
    names = writers(policy, ("spec", "toolkit", "env"))
    return next((name for name in names if not name.startswith(_INSTALLERS)), "")
