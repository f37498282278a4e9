# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads and writes the objects of OpenShift's cluster autoscaler, and waits until its operator has written the bounds into the MachineSets."""

from __future__ import annotations

import typing as t

from ..catalog.cluster_autoscaler import (
    API_VERSION,
    CLUSTER_AUTOSCALER_PATH,
    CLUSTER_AUTOSCALERS_PATH,
    KIND,
    MACHINE_AUTOSCALER_API_VERSION,
    MACHINE_AUTOSCALER_KIND,
    PRIORITY_CONFIGMAP,
    machine_autoscalers_path,
)
from ..catalog.machine_api import (
    ACCELERATOR_LABEL,
    AUTOSCALER_ANNOTATIONS,
    CLUSTER_VERSION_PATH,
    MACHINE_API_VERSION,
    machine_sets_path,
)
from ..cluster_state.gpu_limits import record_of
from ..cluster_state.node import parse_node
from ..common.errors import InvalidOptions
from ..common.nested import get_nested
from ..common.wait import StateTimer, WaitOptions
from ..kube.errors import ApiError
from ..kube.objects import write_or_dry_run
from ..kube.paths import NODES
from .objects import AutoscalerChange, bounds_of
from .scaling_changes import ClusterObjects, ScalingChanges, uses_priorities

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from ..pools.plan import Plan

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]

_MIN, _MAX, _OWNER = AUTOSCALER_ANNOTATIONS


class AutoscalingClient:
    """Accesses the autoscaler's objects in one cluster."""

    def __init__(self, client: Client, plan: Plan) -> None:
        """Store the arguments; no request is sent yet."""
        self._client = client
        namespace = plan.autoscaler.namespace if plan.autoscaler else ""
        self.namespace = namespace
        pools = [pool for pool in plan.pools if pool.nodegroup]
        self._scales = any(pool.nodegroup and pool.nodegroup.autoscaled for pool in pools)
        self._plan = plan
        self._machine_sets = machine_sets_path(namespace)
        self._machine_autoscalers = machine_autoscalers_path(namespace)
        self._configmaps = f"/api/v1/namespaces/{namespace}/configmaps"
        self._version: str | None = None

    def read(self) -> ClusterObjects:
        """Read all objects; raises InvalidOptions if the cluster does not have the API."""
        machine_sets = self._list(self._machine_sets, "MachineSets", MACHINE_API_VERSION)
        scalers = self._list(self._machine_autoscalers, "MachineAutoscalers", MACHINE_AUTOSCALER_API_VERSION)
        cluster = self._client.get(CLUSTER_AUTOSCALER_PATH)
        if not self._scales and not scalers and not record_of(cluster or {}):
            return ClusterObjects(machine_sets=machine_sets, cluster_autoscaler=cluster)
        reads_priorities = uses_priorities(self._plan, cluster)
        nodes = self._client.list(NODES, label_selector=ACCELERATOR_LABEL)
        return ClusterObjects(
            version=self._read_version(),
            machine_sets=machine_sets,
            machine_autoscalers=scalers,
            cluster_autoscaler=cluster,
            priorities=self._client.get(f"{self._configmaps}/{PRIORITY_CONFIGMAP}") if reads_priorities else None,
            nodes=tuple(parse_node(raw) for raw in nodes),
        )

    def send(self, change: AutoscalerChange, *, check: bool) -> str | None:
        """Create, change or delete an object, in check mode as a dry run. Returns the reason if the server did not check the change."""
        return write_or_dry_run(lambda: self._send(change, check), check=check)

    def _send(self, change: AutoscalerChange, check: bool) -> None:
        collection = self._collection(change.kind)
        path = f"{collection}/{change.name}"
        if change.live is None:
            self._client.create(collection, change.desired or {}, dry_run=check, field_validation="Strict")
        elif change.desired is None:
            body = {"preconditions": {"uid": change.live["metadata"]["uid"]}}
            self._client.delete(path, body=body, dry_run=check)
        else:
            self._client.patch(path, change.patch, dry_run=check, field_validation="Strict")

    def await_bounds(
        self, planned: ScalingChanges, waiting: WaitOptions, first: t.Sequence[Object] | None = None
    ) -> None:
        """Wait until the operator has written the bounds of each MachineAutoscaler into its MachineSet. `first`: the MachineSets, if they were just read."""
        if not planned.scaled:
            return
        timer, unread = StateTimer(), list(first or ())

        def read() -> list[str]:
            items = list(unread) or list(self._client.list(self._machine_sets))
            unread.clear()
            by_name = {item["metadata"]["name"]: item for item in items}
            states = {name: _missing_bounds(by_name.get(name), scaler) for name, scaler in planned.scaled.items()}
            return [
                f"MachineSet {name} {state} (for at least {timer.seconds(name, state):.0f} s)."
                for name, state in sorted(states.items())
                if state
            ]

        waiting.until(
            read,
            lambda missing: not missing,
            describe=lambda missing: (
                f"{' '.join(missing)} The cluster-autoscaler-operator writes the range of a {MACHINE_AUTOSCALER_KIND} into its MachineSet. Check the events of "
                f"the {MACHINE_AUTOSCALER_KIND} (oc -n {self.namespace} get events), and the log of the operator (oc -n {self.namespace} logs "
                "deployment/cluster-autoscaler-operator)."
            ),
            progress_text=lambda missing: f"waiting for the ranges of {len(missing)} MachineSet(s)",
        )

    def _collection(self, kind: str) -> str:
        if kind == KIND:
            return CLUSTER_AUTOSCALERS_PATH
        return self._machine_autoscalers if kind == MACHINE_AUTOSCALER_KIND else self._configmaps

    def _list(self, path: str, title: str, api_version: str) -> tuple[Object, ...]:
        try:
            return tuple(self._client.list(path))
        except ApiError as error:
            if not error.not_found:
                raise
            raise InvalidOptions(
                [
                    f"The cluster has no {title} ({api_version}), and this run does not install this API. Only OpenShift clusters have it; on others, "
                    f"remove gpu_cluster.cloud.machineset. On OpenShift, the MachineAPI capability provides the API {API_VERSION}."
                ]
            ) from error

    def _read_version(self) -> str:
        """The version of OpenShift; empty if the user is not allowed to read it."""
        if self._version is None:
            try:
                cluster_version = self._client.get_once(CLUSTER_VERSION_PATH)
            except ApiError as error:
                if not error.lacks_right:
                    raise
                cluster_version = None
            self._version = str(get_nested(cluster_version, "status", "desired", "version") or "")
        return self._version


def _missing_bounds(machine_set: Object | None, scaler: Document) -> str:
    """The end of a sentence that describes how a MachineSet's range differs from the range of its MachineAutoscaler; empty if it does not."""
    if machine_set is None:
        return "does not exist"
    annotations = machine_set["metadata"].get("annotations") or {}
    name = f"{scaler['metadata']['namespace']}/{scaler['metadata']['name']}"
    owner = annotations.get(_OWNER)
    if owner is not None and owner != name:
        return f"belongs to {MACHINE_AUTOSCALER_KIND} {owner} (annotation {_OWNER})"
    low, high = bounds_of(scaler)
    if (annotations.get(_MIN), annotations.get(_MAX), owner) == (str(low), str(high), name):
        return ""
    bounds = (
        f"the range {annotations[_MIN]} to {annotations[_MAX]}" if {_MIN, _MAX} <= annotations.keys() else "no range"
    )
    return f"has {bounds}, but {MACHINE_AUTOSCALER_KIND} {name} sets {low} to {high} nodes"
