# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts of pools that the report reads from other objects than nodes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.nodes.ownership import assign_pools
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.sharing.change_plan import (
    ConfigMapEntries,
    ConfigMaps,
    plan_sharing_changes,
)
from ansible_collections.accel.gpu.plugins.module_utils.sharing.operation import (
    Overview,
    add_nodes,
    add_pool_facts,
    taken_over_file,
)
from tests.helpers.fleet import node

MESSAGE = 'resourcequotas is forbidden: User "reader" cannot list resource "resourcequotas"'


def test_a_fact_that_the_user_may_not_read_is_a_warning() -> None:
    plan = derive(
        {"name": "lab"}, {}, [{"name": "a", "match": {"model": "L40S"}}, {"name": "b", "match": {"model": "T4"}}]
    )
    actual, nodes = cast("Overview", SimpleNamespace(plan=plan, membership="members")), [node("n")]
    pools: dict[str, dict[str, Any]] = {"a": {}, "b": {}}

    def read(*given: Any) -> dict[str, str]:
        assert given == ("client", plan, nodes, "members")
        return {"b": "passed"}

    def refuse(*dummy: Any) -> dict[str, str]:
        raise ApiError(MESSAGE, status=403)

    warnings = add_pool_facts(cast("Client", "client"), actual, nodes, {"quota": refuse, "validation": read}, pools)
    assert warnings == [
        f"This user is not allowed to read the quota data of the pools, so the report omits it: {MESSAGE}"
    ]
    assert pools == {"a": {}, "b": {"validation": "passed"}}


def test_other_errors_of_a_reader_fail() -> None:
    def fail(*dummy: Any) -> dict[str, str]:
        raise ApiError("overloaded", status=503)

    actual = cast("Overview", SimpleNamespace(plan=None, membership=None))
    with pytest.raises(ApiError, match="overloaded"):
        add_pool_facts(cast("Client", None), actual, [], {"quota": fail}, {})


class Listing:
    """A cluster with a stand-alone device plugin of NVIDIA on node n1."""

    labels: ClassVar[dict[str, str]] = {"name": "nvdp"}
    spec: ClassVar[dict[str, Any]] = {
        "containers": [{"name": "main", "image": "nvcr.io/nvidia/k8s-device-plugin:v0.18.0"}]
    }

    def __init__(self) -> None:
        self.sent: list[str] = []

    def list(self, path: str, **dummy: Any) -> list[dict[str, Any]]:
        self.sent.append(path)
        if path == "/apis/apps/v1/daemonsets":
            template = {"metadata": {"labels": self.labels}, "spec": self.spec}
            metadata = {"name": "nvdp", "namespace": "kube-system"}
            return [{"metadata": metadata, "spec": {"selector": {"matchLabels": self.labels}, "template": template}}]
        owner = {"kind": "DaemonSet", "name": "nvdp", "controller": True}
        of_pod = {"name": "nvdp-x", "namespace": "kube-system", "labels": self.labels, "ownerReferences": [owner]}
        return [{"metadata": of_pod, "spec": {**self.spec, "nodeName": "n1"}, "status": {"phase": "Running"}}]


@pytest.mark.parametrize("pods", [None, ()])
def test_the_report_names_other_device_plugins_although_it_lists_no_pods(pods: tuple[Any, ...] | None) -> None:
    plan, nodes, client = derive({"name": "lab"}, {}, [{"name": "a", "match": {"model": "T4"}}]), [node()], Listing()
    membership = assign_pools(plan.pools, nodes)
    changes = plan_sharing_changes(plan, nodes, membership, ConfigMaps())
    result: dict[str, Any] = {"warnings": []}
    seen = cast("Overview", SimpleNamespace(plan=plan, membership=membership, changes=changes))
    add_nodes(cast("Client", client), seen, nodes, result, pods)
    named = [text for text in result["warnings"] if "DaemonSet kube-system/nvdp" in text]
    # All pods have been listed, and none of them is a plugin.
    assert (len(named), bool(client.sent)) == ((1, True) if pods is None else (0, False))


@pytest.mark.parametrize(
    ("key", "managers", "added", "warned"),
    [
        ("config.yaml", ["kubectl-edit", "accel.gpu"], ("all-disabled",), True),
        ("config.yaml", ["kubectl-client-side-apply"], ("all-disabled",), True),
        ("config.yaml", ["kubectl-edit"], (), False),
        ("config.yaml", ["accel.gpu"], ("all-disabled",), False),
        ("other", ["kubectl-edit"], ("all-disabled",), False),
    ],
)
def test_a_file_that_others_have_written(key: str, managers: list[str], added: tuple[str, ...], warned: bool) -> None:
    entries = [{"manager": name, "fieldsV1": {"f:data": {f"f:{key}": {}}}} for name in managers]
    configmap = {"metadata": {"name": "accel-gpu-mig-parted", "namespace": "gpus", "managedFields": entries}}
    texts = list(taken_over_file(ConfigMapEntries({}, added, (), {}), configmap))
    assert bool(texts) is warned
    if warned:
        assert f"gpus/accel-gpu-mig-parted: {managers[0]} has written config.yaml" in texts[0]


def test_a_file_that_does_not_exist() -> None:
    assert list(taken_over_file(ConfigMapEntries({}, ("all-disabled",), (), {}), None)) == []
