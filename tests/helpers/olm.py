# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module olm_subscription in a namespace of one test, against the real OLM of a lab."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ansible_collections.accel.gpu.plugins.module_utils.catalog.openshift import V1ALPHA1
from ansible_collections.accel.gpu.plugins.modules import olm_subscription
from tests.helpers.kube import Kube
from tests.helpers.openshift import GPU_PACKAGE, OpenShift
from tests.helpers.polling import BUSY, until

Object = dict[str, Any]

CERTIFIED = "certified-operators"
# The time limit of a run, and the seconds that a run may need in addition to read and to send on a busy machine.
_WAIT, _GRACE = 120, 30
_SOURCES = f"/apis/{V1ALPHA1}/namespaces/openshift-marketplace/catalogsources"


@dataclass(frozen=True)
class OlmNamespace:
    """A namespace in which the module installs the GPU operator."""

    kube: Kube
    cluster: OpenShift
    namespace: str

    def path(self, plural: str, name: str = "") -> str:
        """The path of OLM's objects in the namespace."""
        return f"/apis/{V1ALPHA1}/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    def run(self, *, check: bool = False, **options: Any) -> Object:
        """The result of the module."""
        usual = {
            "namespace": self.namespace,
            "package": GPU_PACKAGE,
            "wait_timeout": _WAIT,
            "confirm": [self.kube.client.connection.cluster_name],
        }
        result = self.kube.run(olm_subscription.main, check=check, **{**usual, **options})
        result.pop("warnings", None)
        return result

    def install(self, **options: Any) -> Object:
        """The module's own part of a result that must be a success."""
        result = self.run(**options)
        assert not result.get("failed"), result["msg"]
        return dict(result["olm_subscription"], changed=result["changed"])

    def converge(self, **options: Any) -> Object:
        """Check mode, run, run again: the first two have the same changes, the last one changes nothing and writes nothing."""
        predicted = self.run(check=True, **options)
        done = self.run(**options)
        assert not done.get("failed"), done["msg"]
        assert predicted["changed"] == done["changed"]
        different = [pair for pair in itertools.zip_longest(predicted["diff"], done["diff"]) if pair[0] != pair[1]]
        # In full, because pytest shortens a comparison.
        assert not different, json.dumps(different)
        self.unchanged(**options)
        return dict(done["olm_subscription"], changed=done["changed"])

    def unchanged(self, **options: Any) -> list[str]:
        """The requests of a run that must change nothing."""
        with self.kube.watched() as watched:
            again = self.run(kubeconfig=watched.kubeconfig, **options)
            requests = watched.new_requests()
        assert again["changed"] is False, again
        assert again["diff"] == []
        assert {request.split()[0] for request in requests} == {"GET"}
        assert self.run(check=True, **options)["changed"] is False
        return requests

    def fails(self, code: str, **options: Any) -> Object:
        """The problem of a run that must fail with this code within its time limit; its message names all parts of the problem."""
        began = time.monotonic()
        result = self.run(**options)
        assert time.monotonic() - began < BUSY * (options.get("wait_timeout", _WAIT) + _GRACE)
        assert result.get("failed"), result
        assert result["code"] == code, result["msg"]
        problem = dict(result["olm_subscription"]["problem"], message=result["msg"], changed=result["changed"])
        assert all(problem[key] in problem["message"] for key in ("object", "field", "rule", "remedy"))
        return problem

    def refused(self, code: str, **options: Any) -> Object:
        """The problem of a run that must fail immediately and before it sends anything, and of check mode."""
        options = {"wait_timeout": 0, **options}
        with self.kube.watched() as watched:
            problem = self.fails(code, kubeconfig=watched.kubeconfig, **options)
            assert not watched.proxy.mutations()
        assert self.fails(code, check=True, **options)["message"] == problem["message"]
        return problem

    def subscription(self, name: str = GPU_PACKAGE) -> Object:
        """The live Subscription."""
        return self.kube.require(self.path("subscriptions", name))

    def csv(self, name: str) -> Object | None:
        """The live ClusterServiceVersion."""
        return self.kube.client.get(self.path("clusterserviceversions", name))

    def wait_settled(self) -> None:
        """Wait until OLM has finished all approved InstallPlans; until then it creates again what a test deletes."""
        until(
            lambda: all(
                plan["status"]["phase"] == "Complete"
                for plan in self.cluster.plans(self.namespace)
                if plan["spec"]["approved"]
            )
        )

    def lose(self, csv: str) -> None:
        """Delete a ClusterServiceVersion until OLM has noticed it; a plan that OLM has just executed may create it again."""

        def is_lost() -> bool:
            if self.csv(csv) is not None:
                self.kube.client.delete(self.path("clusterserviceversions", csv))
                return False
            return self.cluster.subscription(self.namespace, GPU_PACKAGE).get("state") == "UpgradePending"

        until(is_lost)

    def pod_spec(self) -> Object:
        """The template of the operator's pod."""
        actual = self.kube.require(f"/apis/apps/v1/namespaces/{self.namespace}/deployments/gpu-operator")
        return dict(actual["spec"]["template"]["spec"])

    def has_pending_plan(self, csv: str) -> bool:
        """Whether an InstallPlan for the version waits for its approval."""
        return any(
            csv in plan["spec"]["clusterServiceVersionNames"]
            and plan.get("status", {}).get("phase") == "RequiresApproval"
            and not plan["spec"]["approved"]
            for plan in self.cluster.plans(self.namespace)
        )

    @contextmanager
    def fault(self, name: str, catalog: str = CERTIFIED) -> Iterator[None]:
        """A fault of a catalog, until the block ends."""
        with self._changed_catalog(("fault", "inject", name, "--group", catalog), ("fault", "clear"), catalog):
            yield

    @contextmanager
    def setting(self, name: str, value: str, usual: str) -> Iterator[None]:
        """A setting of the catalogs, until the block ends."""
        with self._changed_catalog(("set", f"{name}={value}"), ("set", f"{name}={usual}")):
            yield

    @contextmanager
    def _changed_catalog(
        self, change: tuple[str, ...], undo: tuple[str, ...], catalog: str = CERTIFIED
    ) -> Iterator[None]:
        """Run both commands; after each, OLM has connected to the changed catalog, or lost its connection."""
        before = self._connection(catalog)
        self.cluster.lab.command("cloud", *change)
        until(lambda: self._connection(catalog) != before)
        try:
            yield
        finally:
            changed = self._connection(catalog)
            self.cluster.lab.command("cloud", *undo)
            until(lambda: self._connection(catalog) != changed and self.cluster.catalog_state(catalog) == "READY")

    def _connection(self, catalog: str) -> tuple[str, str]:
        actual = self.kube.client.get(f"{_SOURCES}/{catalog}") or {}
        state = actual.get("status", {}).get("connectionState", {})
        return str(state.get("lastConnect")), str(state.get("lastObservedState"))
