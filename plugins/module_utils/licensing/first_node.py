# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tries new licensing files on one node before they are written to the object that all driver pods mount."""

from __future__ import annotations

import typing as t

from ..common.errors import InvalidOptions, PartialFailure
from ..common.wait import WaitOptions
from ..schema.messages import abbreviate, abbreviate_nodes, join_words
from .container import LicenseContainers
from .driver_pods import TOKEN_PATH, LicenseNode, Reading
from .option_names import REPLACE_OPTION, RESTORE_OPTION
from .rotation import RotationResult, Rotator
from .rotation_survey import Survey, read_survey
from .token import fingerprint

if t.TYPE_CHECKING:
    from ..kube.lease import Lease
    from ..kube.plan_module import PlanModule
    from .cluster import LicenseCluster
    from .objects import LicenseObjectChange, LicenseObjects


def survey_first_nodes(
    module: PlanModule,
    cluster: LicenseCluster,
    objects: LicenseObjects,
    changes: list[LicenseObjectChange],
    lease: Lease,
) -> tuple[list[LicenseObjectChange], Survey | None]:
    """Return the changes and the nodes on which to try their files. Raise an error of read_survey() or first_nodes() if nodes would lose their license."""
    written = [change for change in changes if change.body is not None]
    names = module.params["node_names"]
    nodes = [node for node in cluster.expect(written) if not names or node.name in names] if written else []
    if not nodes:
        return changes, None
    survey = read_survey(module, cluster, nodes, LicenseContainers(module.client), lease)
    if module.params["restore"]:
        _require_complete(survey, written)
    objects.unverified = _unverified(survey, written)
    if any(change.before.previous and change.target.name in objects.unverified for change in written):
        changes = [objects.compare(change.target) for change in changes]
    return changes, survey.first_nodes()


def require_rotation(module: PlanModule, cluster: LicenseCluster, changes: t.Iterable[LicenseObjectChange]) -> None:
    """Raise InvalidOptions if a run that loads no token would replace the token of nodes that have a license: nothing has shown that the new one works, and a
    driver that restarts would use it.
    """
    for change in changes:
        before = change.before.token
        if change.body is None or before is None or change.desired.files.token in (None, before):
            continue
        nodes = [
            node
            for node in cluster.license_nodes()
            if (expected := cluster.expected_of(node)) is not None and expected.target.is_same_object(change.target)
        ]
        readings = LicenseContainers(module.client).read_all(nodes, client=False)
        licensed = [name for name, reading in readings.items() if reading.is_licensed]
        if licensed:
            raise InvalidOptions(
                [
                    f"{change.target.label(cluster.namespace)} was not changed, because nodes have a license with its token ({abbreviate(licensed)}), and with "
                    f"{REPLACE_OPTION}, the new token may be for another license server. The playbook license_rotate tries the new token on one node "
                    "before it replaces the old one; run it with the same variables."
                ]
            )


def try_files(module: PlanModule, survey: Survey, labels: t.Sequence[str], lease: Lease) -> list[str]:
    """Load the new files into the drivers of the first nodes, and wait for their licenses; return the evicted pods. Raise PartialFailure if a node gets no
    license.
    """
    waiting = WaitOptions(module.params["wait_timeout"], module.params["wait_sleep"], module.progress)
    restart_timeout = module.params["restart_timeout"]
    containers = LicenseContainers(module.client)
    rotator = Rotator(containers, waiting, lease, survey.restarts, restart_timeout, unwritten=join_words(labels))
    containers.remove_leftovers(survey.nodes, survey.readings)
    result = RotationResult()
    rotator.run(survey.rotations, result)
    if result.removed:
        raise PartialFailure(
            f"{abbreviate_nodes(result.removed)} left the cluster while the new files were tried there. {join_words(labels)} was not changed. Run the playbook "
            "again.",
            {"license_rotation": result.as_dict()},
        )
    return result.evicted


def _unverified(survey: Survey, changes: t.Iterable[LicenseObjectChange]) -> set[str]:
    """The names of the objects whose present token does not license all of their nodes. Nodes that already have the desired token do not count."""
    names = set()
    for change in changes:
        tokens = [
            fingerprint(token) for token in (change.before.token, change.desired.files.token) if token is not None
        ]
        for dummy, reading in _nodes_of(survey, change):
            if reading.files.get(TOKEN_PATH) not in tokens or not reading.is_licensed:
                names.add(change.target.name)
                break
    return names


def _require_complete(survey: Survey, changes: t.Iterable[LicenseObjectChange]) -> None:
    """Raise InvalidOptions if nodes have a token that their object neither contains nor has kept: an attempt to replace the present token has failed before
    it changed the object, so the present files must be loaded, not the kept ones.
    """
    for change in changes:
        files = change.before
        former = files.previous.token if files.previous is not None else None
        known = [fingerprint(token) for token in (files.token, former) if token is not None]
        others = [
            node.name
            for node, reading in _nodes_of(survey, change)
            if reading.files.get(TOKEN_PATH) not in (None, *known)
        ]
        if others:
            raise InvalidOptions(
                [
                    f"{RESTORE_OPTION}: {abbreviate_nodes(others)} has a token that was never written to {change.target.kind} {change.target.name}, so the "
                    f"object still contains the files from before that attempt. To load them, run license_rotate without a token and without this variable."
                ]
            )


def _nodes_of(survey: Survey, change: LicenseObjectChange) -> list[tuple[LicenseNode, Reading]]:
    """The readable nodes whose driver pods mount the object."""
    return [
        (node, survey.readings[node.name])
        for node in survey.nodes
        if node.is_known_by(survey.readings[node.name])
        and (expected := survey.expected_of(node)) is not None
        and expected.target.is_same_object(change.target)
    ]
