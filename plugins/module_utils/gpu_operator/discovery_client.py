# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads and writes the NodeFeatureDiscovery object, and waits until NFD's workers have labeled all their nodes."""

from __future__ import annotations

import typing as t

from ..catalog.olm import NFD, WORKER_TOLERATIONS
from ..catalog.taints import untolerated_taints
from ..common.nested import get_nested
from ..helm.workloads import await_rollout
from ..kube.client import Client
from ..kube.crd_schema import read_definition
from ..kube.errors import ApiError
from ..kube.objects import NOT_CHECKED
from ..kube.paths import NODE_FEATURE_DISCOVERY
from .discovery_object import (
    DEFINITION,
    KIND,
    DiscoveryChange,
    choose_object,
    has_worker_tolerations,
    new_object,
    plan_discovery,
    unreached_taints,
)
from .olm_installation import read_example

if t.TYPE_CHECKING:
    from ..common.wait import WaitOptions
    from ..pools.plan import Plan

Object = dict[str, t.Any]
_WORKER, _MASTER = ("DaemonSet", "nfd-worker"), ("Deployment", "nfd-master")


class DiscoveryClient:
    """Accesses the NodeFeatureDiscovery object of a cluster."""

    def __init__(self, client: Client, plan: Plan) -> None:
        """Store the arguments; no request is sent yet."""
        self._client = client
        self._plan = plan
        self._live: Object | None = None
        self._tolerates = True
        self.has_kind = True
        self.name, self.namespace = NFD.resource, plan.nfd.namespace

    def compare(self) -> DiscoveryChange:
        """Read the object and plan its change; the CRD and the operator's example are read only if something changes."""
        try:
            existing = list(self._client.list(NODE_FEATURE_DISCOVERY.collection()))
        except ApiError as error:
            if not error.not_found:
                raise
            existing, self.has_kind = [], False
        self._live = t.cast("Object | None", choose_object(existing, self._plan.nfd.namespace))
        if self._live is None:
            return self._new()
        metadata = self._live["metadata"]
        self.name, self.namespace = metadata["name"], metadata["namespace"]
        change = plan_discovery(self._live, self._plan)
        if change.changed:
            self._definition()
            change = change if self._tolerates else plan_discovery(self._live, self._plan, tolerates=False)
        return change

    def _new(self) -> DiscoveryChange:
        example = definition = None
        if self.has_kind:
            example = read_example(self._client, self._plan.nfd.namespace, KIND)
            definition = self._definition()
        change = new_object(self._plan, example, definition)
        self.name = change.after["metadata"]["name"]
        return change

    def _definition(self) -> Object | None:
        """The CRD; None if the user is not allowed to read it."""
        definition = read_definition(self._client, DEFINITION)
        self._tolerates = has_worker_tolerations(definition)
        return definition

    def send(self, change: DiscoveryChange, *, check: bool) -> str | None:
        """Create the object or apply the change; in check mode, as a dry run if the kind exists. Returns the reason if nothing was checked."""
        if change.body is None or (check and not self.has_kind):
            return None
        try:
            if change.is_new:
                collection = NODE_FEATURE_DISCOVERY.collection(self.namespace)
                self._client.create(collection, change.body, dry_run=check, field_validation="Strict")
            else:
                path = NODE_FEATURE_DISCOVERY.path(self.name, self.namespace)
                self._client.apply(path, change.body, dry_run=check, field_validation="Strict")
        except ApiError as error:
            if check and change.is_new and error.not_found:
                return f"not checked by the server: namespace {self.namespace} does not exist yet"
            if not (check and error.lacks_right):
                raise
            return NOT_CHECKED
        return None

    def tolerations(self, change: DiscoveryChange) -> list[Object]:
        """The workers' tolerations in the object after the change."""
        changed = get_nested(change.after, *WORKER_TOLERATIONS)
        return list((get_nested(self._live, *WORKER_TOLERATIONS) if changed is None else changed) or ())

    def warnings(self) -> t.Iterator[str]:
        """A warning about taints that no worker tolerates, because this release of the operator does not support worker tolerations."""
        if not self._tolerates and (taints := unreached_taints(self._plan)):
            yield (
                f"NFD's workers do not tolerate {', '.join(taints)}, and the installed NFD operator has no spec.operand.workerTolerations: new "
                "nodes with these taints get no labels. Upgrade the operator (OpenShift), or use the effect NoSchedule, which its workers "
                "always tolerate."
            )

    def await_workers(self, waiting: WaitOptions) -> dict[str, str]:
        """Wait for the master, the workers and the labels on the workers' nodes. Returns the pod counts of both workloads as "ready/required"."""
        if self._tolerates:
            self._await_tolerations(waiting)
        instance = str(get_nested(self._live, "spec", "instance") or "")
        annotation = f"{instance}{'.' if instance else ''}nfd.node.kubernetes.io/feature-labels"
        names = (f"{KIND} {self.namespace}/{self.name}", "NFD", "node_feature_discovery")
        return await_rollout(self._client, names, self.namespace, (_MASTER, _WORKER), annotation, waiting)

    def _await_tolerations(self, waiting: WaitOptions) -> None:
        """Wait until the operator has written the tolerations into the workers' DaemonSet."""
        taints = [taint for pool in self._plan.pools for taint in pool.registration.taints]
        if not taints:
            return
        path = f"/apis/apps/v1/namespaces/{self.namespace}/daemonsets/{_WORKER[1]}"

        def missing() -> list[str]:
            live = self._client.get(path)
            tolerations = get_nested(live, "spec", "template", "spec", "tolerations") or ()
            return [f"{each['key']}:{each['effect']}" for each in untolerated_taints(tolerations, taints)]

        waiting.until(
            missing,
            lambda names: not names,
            describe=lambda names: (
                f"DaemonSet {self.namespace}/{_WORKER[1]} does not tolerate {', '.join(names)}: the NFD operator has not written the tolerations of "
                f"{KIND} {self.name} into it. To read its log, run kubectl -n {self.namespace} logs deployment/nfd-controller-manager."
            ),
            progress_text=lambda names: f"NFD: waiting for the tolerations of {', '.join(names)}",
        )
