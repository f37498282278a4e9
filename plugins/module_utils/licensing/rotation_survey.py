# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the state before a rotation: the nodes to rotate, the nodes that cannot be rotated, and whether nodes would lose their license."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ..common.errors import InvalidOptions, ModuleFailure
from ..common.results import MAX_LISTED, diff_of
from ..schema.messages import abbreviate_nodes
from .connectivity import are_unreachable
from .diagnosis import object_problem, problem
from .driver_pods import LicenseNode, Reading
from .driver_restart import DriverRestarts, RestartBlocked
from .gridd_conf import AUTOMATIC, mismatch
from .option_names import FEATURE_TYPE_OPTION
from .rotation import NONE, REPLACE, NodeRotation, RotationResult, plan_rotation
from .token import SHORT, utc_now

if t.TYPE_CHECKING:
    from ..kube.lease import Lease
    from ..kube.plan_module import PlanModule
    from .cluster import LicenseCluster
    from .container import LicenseContainers
    from .diagnosis import LicenseObject


class UnreachableServers(ModuleFailure):
    """Nodes cannot reach any license server of the new token."""

    code = "preflight"


class UnfittingFeatureType(ModuleFailure):
    """FeatureType in the new gridd.conf does not fit the vGPUs of nodes."""

    code = "preflight"


class UnreadableNodes(ModuleFailure):
    """The new files cannot be tried on any node."""

    code = "preflight"


@dataclass(frozen=True)
class Survey:
    """The state before a rotation: the nodes, their readings, the rotations, the nodes that cannot be rotated, and the pods that a drain would evict now."""

    nodes: t.Sequence[LicenseNode]
    readings: t.Mapping[str, Reading]
    rotations: t.Sequence[NodeRotation]
    skipped: t.Sequence[str]
    warnings: t.Sequence[str]
    restarts: DriverRestarts
    # By node.
    pods_to_evict: t.Mapping[str, t.Sequence[str]]
    expected_of: t.Callable[[LicenseNode], LicenseObject | None]

    @property
    def failing(self) -> list[str]:
        """The skipped nodes whose driver has failed. Nodes whose driver is still starting are not included."""
        return [
            node.name
            for node in self.nodes
            if node.name in self.skipped and node.pod is not None and node.pod.log_container
        ]

    @property
    def changed(self) -> bool:
        """Whether any node must be rotated, or has files that an earlier run has left behind."""
        return bool(self.rotations) or any(reading.leftovers for reading in self.readings.values())

    def diff(self) -> dict[str, t.Any]:
        """The digests of the files, and the pods that are evicted, for up to 100 nodes."""
        return diff_of(*self.node_states(), "licensing files of nodes")

    def node_states(self) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
        """The content of the diff, before and after."""
        before: dict[str, t.Any] = {}
        after: dict[str, t.Any] = {}
        for rotation in self.rotations[:MAX_LISTED]:
            name, reading = rotation.node.name, self.readings[rotation.node.name]
            digests = rotation.expected.fingerprints
            state = "licensed" if reading.is_licensed else "unlicensed"
            before[name] = {"state": state, **{path: (reading.files.get(path) or "")[:SHORT] for path in digests}}
            after[name] = {"state": "licensed", **{path: digest[:SHORT] for path, digest in digests.items()}}
            if rotation.unfinished:
                before[name]["driver_restart"], after[name]["driver_restart"] = "unfinished", "completed"
            if rotation.restarts_driver:
                before[name]["driver_pod"], after[name]["driver_pod"] = rotation.pod.name, "restarted"
            if pods := self.pods_to_evict.get(name):
                before[name]["pods"], after[name]["pods"] = list(pods[:MAX_LISTED]), "evicted"
        return before, after

    def first_nodes(self) -> Survey:
        """The survey with only the nodes on which the new files are tried: for each object, the first node in the order of the rotation. An object whose
        files are already in use on a node with a license needs none. Raises UnreadableNodes if no running driver of an object can be read.
        """
        first = []
        for target in dict.fromkeys(expected.target for node in self.nodes if (expected := self.expected_of(node))):
            rotations = [rotation for rotation in self.rotations if rotation.expected.target == target]
            names = {rotation.node.name for rotation in rotations}
            running = [
                node
                for node in self.nodes
                if node.running_pod is not None
                and not node.not_required
                and (expected := self.expected_of(node))
                and expected.target == target
            ]
            readable = [node for node in running if node.is_known_by(self.readings[node.name])]
            if running and not (readable or rotations):
                raise UnreadableNodes(
                    "\n".join(
                        [
                            f"{target.kind} {target.name} was not changed, because its new files cannot be tried on any node. Correct the causes, and run the "
                            "playbook again.",
                            *(f"node {node.name}: {self.readings[node.name].error}" for node in running[:MAX_LISTED]),
                        ]
                    )
                )
            # A readable node without a rotation has a license with the new files.
            if all(node.name in names for node in readable):
                first += rotations[:1]
        return replace(self, rotations=first)


def read_survey(
    module: PlanModule, cluster: LicenseCluster, nodes: list[LicenseNode], containers: LicenseContainers, lease: Lease
) -> Survey:
    """Read the Secret and the given nodes.

    Raises InvalidOptions, UnfittingFeatureType or UnreachableServers if nodes would lose their license, and RestartBlocked if drains are blocked.
    """
    _require_tokens(cluster, nodes)
    readings = containers.read_all(
        nodes,
        client=True,
        on_done=lambda count: module.progress.report("reading the licenses of nodes", count, len(nodes)),
    )
    rotations = plan_rotation(
        nodes,
        readings,
        cluster.expected_of,
        cluster.unfinished_restarts(),
        restart_drivers=module.params["restart_drivers"],
    )
    _require_fitting(rotations, readings)
    names = {rotation.node.name for rotation in rotations}
    skipped = _skipped([node for node in nodes if node.name not in names], readings)
    warnings = [f"Not rotated: {abbreviate_nodes(names)}. {cause}" for cause, names in skipped.items()]
    if module.params["preflight"]:
        warnings += _require_services(containers, rotations, cluster)
    restarts = DriverRestarts(module.client, cluster.namespace, cluster.rollouts(), lease, module.progress)
    drained = {rotation.node.name for rotation in rotations if rotation.is_drained}
    try:
        evicted = restarts.pods_to_evict([node for node in cluster.nodes if node.name in drained])
    except RestartBlocked as error:
        error.partial = {"license_rotation": RotationResult(pending=[each.node.name for each in rotations]).as_dict()}
        raise
    cannot = sorted(name for names in skipped.values() for name in names)
    return Survey(nodes, readings, rotations, cannot, warnings, restarts, evicted, cluster.expected_of)


def _require_tokens(cluster: LicenseCluster, nodes: t.Sequence[LicenseNode]) -> None:
    """Raise InvalidOptions if the new files would cause the nodes to lose their licenses."""
    if nodes and not cluster.mounted:
        raise InvalidOptions([cluster.no_object_text])
    used = dict.fromkeys(expected.target for node in nodes if (expected := cluster.expected_of(node)) is not None)
    objects = [expected for target in used if (expected := cluster.expected[target]).predicted is None]
    now = utc_now()
    problems = [text for expected in objects if (text := object_problem(expected, now))]
    if problems:
        raise InvalidOptions(problems)


def _require_fitting(rotations: t.Sequence[NodeRotation], readings: t.Mapping[str, Reading]) -> None:
    """Raise UnfittingFeatureType if nodes would get no license with the new gridd.conf, by the vGPU types that their drivers or their labels show."""
    problems: dict[str, list[str]] = {}
    for rotation in rotations:
        kind = rotation.node.class_with(readings[rotation.node.name])
        if rotation.action != NONE and kind and (reason := mismatch(rotation.expected.feature_type, kind)):
            problems.setdefault(f"{reason} ({rotation.expected.label})", []).append(rotation.node.name)
    if problems:
        lines = [f"{abbreviate_nodes(names)}: gridd.conf: {reason}." for reason, names in problems.items()]
        raise UnfittingFeatureType(
            "\n".join(
                [
                    f"Nodes would get no license. No node was changed. Set {FEATURE_TYPE_OPTION} to {AUTOMATIC}, or correct gridd.conf where it is managed.",
                    *lines,
                ]
            ),
            {"license_rotation": RotationResult(pending=[each.node.name for each in rotations]).as_dict()},
        )


def _require_services(
    containers: LicenseContainers, rotations: t.Sequence[NodeRotation], cluster: LicenseCluster
) -> list[str]:
    """Warnings about servers that some nodes cannot reach. Raises UnreachableServers if the new files would cause a node to lose its license."""
    nodes = [rotation.node for rotation in rotations if rotation.action == REPLACE]
    checks = containers.check_all(nodes, cluster.expected_of)
    failed: dict[str, list[str]] = {}
    doubtful: dict[str, list[str]] = {}
    for name, results in checks.items():
        unreachable = are_unreachable(results)
        for check in results:
            if check.layer:
                (failed if unreachable else doubtful).setdefault(check.message, []).append(name)
    if failed:
        lines = [f"{abbreviate_nodes(names)}: {message}" for message, names in failed.items()]
        result = RotationResult(pending=[rotation.node.name for rotation in rotations])
        raise UnreachableServers(
            "\n".join(["Some nodes cannot reach any license server of the new token. No node was changed.", *lines]),
            {"license_rotation": result.as_dict()},
        )
    return [f"{abbreviate_nodes(names)}: {message}" for message, names in doubtful.items()]


def _skipped(nodes: t.Sequence[LicenseNode], readings: t.Mapping[str, Reading]) -> dict[str, list[str]]:
    """The nodes that cannot be rotated, by cause."""
    causes: dict[str, list[str]] = {}
    for node in nodes:
        reading = readings[node.name]
        if not node.is_known_by(reading):
            causes.setdefault(problem(node, reading, None, utc_now()), []).append(node.name)
    return causes
