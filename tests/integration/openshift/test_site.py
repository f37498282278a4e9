# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbooks on OpenShift: operators through OLM, their custom resources, taints that reach every component, upgrades."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.module_utils.catalog.openshift import MACHINE_ANNOTATION
from ansible_collections.accel.gpu.plugins.module_utils.catalog.taints import STARTUP_TAINT
from ansible_collections.accel.gpu.plugins.module_utils.core.values import get_nested
from lab import audit
from lab.layout import Lab as LabLayout
from tests.helpers.openshift import (
    CLUSTER_POLICY,
    GPU_CSV,
    GPU_NAMESPACE,
    NFD_NAMESPACE,
    OLD_GPU_CSV,
    Object,
    OpenShift,
)
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.helpers.polling import until
from tests.labs import Lab
from tests.programs import REPO, run

INVENTORY = REPO / "inventories" / "openshift"
DECLARED: Object = yaml.safe_load((INVENTORY / "group_vars" / "gpu_clusters.yml").read_text())
HOST = "openshift"
NFD_OBJECT = f"/apis/nfd.openshift.io/v1/namespaces/{NFD_NAMESPACE}/nodefeaturediscoveries/nfd-instance"
THEIRS = {"key": "example.org/maintenance", "operator": "Exists", "effect": "NoSchedule"}
SETS = "/apis/machine.openshift.io/v1beta1/namespaces/openshift-machine-api/machinesets"
MACHINES = SETS.replace("machinesets", "machines")
SCALERS = "/apis/autoscaling.openshift.io/v1beta1/namespaces/openshift-machine-api/machineautoscalers"
CLUSTER_AUTOSCALER = "/apis/autoscaling.openshift.io/v1/clusterautoscalers/default"
PODS = "/api/v1/namespaces/default/pods"
TAINT = {"key": "restrictedaccess", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}
# The toleration for the startup taint.
STARTING = {"key": STARTUP_TAINT["key"], "operator": "Exists", "effect": "NoSchedule"}
EVICTING = {"key": "gpu-only", "effect": "NoExecute"}
ALLOW: Object = {"gpu_operator_allow_driver_rollout": True}

pytestmark = pytest.mark.timeout(1200)


def play(
    lab: Lab, name: str = "site", *arguments: str, environ: dict[str, str] | None = None, **variables: Any
) -> PlaybookRun:
    environ = environ or lab.env
    return run_playbook(
        f"accel.gpu.{name}", environ=environ, inventory=INVENTORY, variables=variables, arguments=arguments
    )


def changed_tasks(played: PlaybookRun) -> list[str]:
    return [name for name, result in played.results(HOST) if result.get("changed")]


def writes(lab: Lab, mark: int) -> list[str]:
    actual = audit.requests(LabLayout.named(lab.name), mark, "accel.gpu/")
    return [
        f"{request.verb} {request.uri}" for request in actual if request.mutating and "dryRun=All" not in request.uri
    ]


def sited(lab: Lab) -> OpenShift:
    """The cluster of inventories/openshift after the playbook site."""
    lab.become("openshift-site", lambda: play(lab).require_success())
    return OpenShift(lab)


def cluster(lab: Lab, **more: Any) -> Object:
    kept = {key: DECLARED["gpu_cluster"][key] for key in ("distribution", "cloud", "autoscaler")}
    return {"name": lab.name, **kept, **more}


@pytest.mark.sampled(1, group="runs on OpenShift")
@pytest.mark.usual(110)
def test_site_from_an_empty_cluster(openshift_lab: Lab) -> None:
    lab, openshift = openshift_lab, OpenShift(openshift_lab).empty()
    mark = audit.mark(LabLayout.named(lab.name))
    predicted = play(lab, "site", "--check", "--diff").require_success()
    assert writes(lab, mark) == []
    actual = cluster(lab, operator={"version": "v25.10.1"})
    del actual["distribution"]
    undeclared = play(lab, "site", "--check", gpu_cluster=actual)
    assert changed_tasks(undeclared.require_success()) == changed_tasks(predicted), "it is detected"
    planned = play(lab, "plan").require_success()
    assert planned.shown(
        "operator: installs GPU operator v25.10.1 through OLM: Subscription nvidia-gpu-operator/gpu-operator-certified"
    )

    # The distribution is not declared, as in the second preview.
    made = play(lab, "site", "--diff", gpu_cluster=actual).require_success()
    steps = [name for name in changed_tasks(predicted) if "Validate" not in name]
    assert steps == [name for name in changed_tasks(made) if name in steps]
    assert openshift.csv(GPU_NAMESPACE, GPU_CSV)["phase"] == "Succeeded"
    assert openshift.policy_is_ready()
    assert "train" in made.stderr
    assert made.shown("4 pods on")
    assert made.shown("ran at the same time on 1 device")
    policy = openshift.get(CLUSTER_POLICY)
    assert policy["spec"]["operator"]["use_ocp_driver_toolkit"] is True, "a field of the example"

    mark = audit.mark(LabLayout.named(lab.name))
    again = play(lab).require_success()
    assert again.changed(HOST) == 0
    assert writes(lab, mark) == []


def waiting_pod(pool: str, *tolerations: Object) -> Object:
    """A pod that requests one GPU of a pool."""
    container = {"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    spec = {"nodeSelector": {"accel.gpu/pool": pool}, "tolerations": list(tolerations), "containers": [container]}
    metadata = {"name": pool, "namespace": "default"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {**spec, "terminationGracePeriodSeconds": 0},
    }


def taint_keys(spec: Object) -> list[str]:
    """The keys of the taints in the spec of a node, of a Machine, or of the template of a MachineSet."""
    return [taint["key"] for taint in spec.get("taints") or []]


def assert_waits_for_new_nodes(lab: Lab, openshift: OpenShift, nodes: Callable[[], list[Object]]) -> None:
    """A new node keeps the startup taint of its Machine until `new_nodes` removes it from both."""
    key = STARTUP_TAINT["key"]
    until(lambda: len(nodes()) == 1 and key in taint_keys(nodes()[0]["spec"]), limit=120)
    (node,) = nodes()
    machine = f"{MACHINES}/{node['metadata']['annotations'][MACHINE_ANNOTATION].rpartition('/')[2]}"
    assert key in taint_keys(openshift.get(machine)["spec"])
    # If only the node loses the taint, the Machine API sets it again. No pod waits in the meantime: it would start on the node. If a
    # cordon, or the startup taint for longer than a start may take, kept the pod away, the autoscaler would create a second node for it.
    path = f"/api/v1/nodes/{node['metadata']['name']}"
    openshift.client.delete(f"{PODS}/experiments")
    patched = openshift.client.patch(path, {"spec": {"taints": None}})
    assert key not in taint_keys(patched["spec"])
    until(lambda: key in taint_keys(openshift.get(path)["spec"]), limit=60)

    environ = lab.env_as("new_nodes")
    rules = "/apis/rbac.authorization.k8s.io/v1/clusterroles/accel-gpu-new-nodes"
    granted = openshift.get(rules)["rules"]
    openshift.client.patch(rules, {"rules": [rule for rule in granted if "machines" not in rule["resources"]]})
    # The API server watches the role, so the change takes effect later.
    words = "kubectl auth can-i get machines.machine.openshift.io -n openshift-machine-api 2>/dev/null || true"
    until(lambda: run("bash", "-c", words, env=environ).startswith("no"), limit=60)
    refused = play(lab, "new_nodes", environ=environ)
    assert refused.rc != 0
    assert 'apiGroups: ["machine.openshift.io"], resources: ["machines"], verbs: ["get"]' in refused.failure(HOST)
    assert key in taint_keys(openshift.get(path)["spec"]), "no pod may start as long as the taint would come back"

    # As the CronJob does.
    environ = lab.env_as("new_nodes")
    until(lambda: run("bash", "-c", words, env=environ).startswith("yes"), limit=60)
    play(lab, "new_nodes", environ=environ).require_success()
    assert key not in taint_keys(openshift.get(machine)["spec"])
    until(lambda: openshift.client.get(f"{PODS}/experiments") is None, limit=60)
    openshift.create(PODS, waiting_pod("experiments"))
    mark = audit.mark(LabLayout.named(lab.name))
    play(lab, "new_nodes", environ=environ).require_success()
    actual = audit.requests(LabLayout.named(lab.name), mark, "accel.gpu/")
    assert [request.uri for request in actual if "/machines" in request.uri] == []


def assert_loses_its_taint(lab: Lab, openshift: OpenShift, node: Object) -> None:
    """A taint that its pool no longer declares leaves the Machine first: if only the node lost it, the Machine API would set it again."""
    declared = [{**pool, "taints": []} if pool["name"] == "burst" else pool for pool in DECLARED["gpu_pools"]]
    path = f"/api/v1/nodes/{node['metadata']['name']}"
    machine = f"{MACHINES}/{node['metadata']['annotations'][MACHINE_ANNOTATION].rpartition('/')[2]}"
    assert TAINT["key"] in taint_keys(openshift.get(machine)["spec"])
    usual: Object = {"gpu_pools": declared, **ALLOW}
    predicted = play(lab, "site", "--check", "--diff", "--skip-tags", "validation", **usual).require_success()
    made = play(lab, "site", "--skip-tags", "validation", **usual).require_success()
    assert changed_tasks(predicted) == changed_tasks(made) != []
    for each in (openshift.get(f"{SETS}/burst")["spec"]["template"], openshift.get(machine), openshift.get(path)):
        assert TAINT["key"] not in taint_keys(each["spec"])
    # The Machine API has reconciled the node once more.
    openshift.client.patch(machine, {"metadata": {"annotations": {"example.org/touched": "yes"}}})
    openshift.client.patch(path, {"metadata": {"annotations": {"example.org/touched": "yes"}}})
    assert play(lab, "site", "--skip-tags", "validation", **usual).require_success().changed(HOST) == 0
    assert TAINT["key"] not in taint_keys(openshift.get(path)["spec"])


@pytest.mark.sampled(1, group="runs on OpenShift")
@pytest.mark.usual(150)
def test_pending_pods_scale_the_pools_from_zero_and_their_nodes_are_shared(openshift_lab: Lab) -> None:
    """The run has ended before the nodes exist: they are configured by what they register with, and by new_nodes."""
    lab, openshift = openshift_lab, sited(openshift_lab)
    lab.command("cloud", "set", "machines.boot-seconds=20")

    def nodes(pool: str) -> list[Object]:
        return list(openshift.client.list("/api/v1/nodes", label_selector=f"accel.gpu/pool={pool}"))

    def runs(pool: str) -> bool:
        return bool(get_nested(openshift.get(f"{PODS}/{pool}"), "status", "phase") == "Running")

    scaled = ("burst", "experiments")
    assert [openshift.get(f"{SETS}/{name}")["spec"]["replicas"] for name in scaled] == [0, 0]
    openshift.create(PODS, waiting_pod("burst", {**TAINT}))
    openshift.create(PODS, waiting_pod("experiments"))
    until(lambda: runs("burst"), limit=120, describe=lambda: openshift.scaling_state("accel.gpu/pool=burst"))
    # gpu-feature-discovery may need longer than the device plugin.
    until(lambda: nodes("burst")[0]["metadata"]["labels"].get("nvidia.com/gpu.product") == "Tesla-T4-SHARED", limit=60)
    (node,) = nodes("burst")
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "4", "one T4 in four shares"
    assert [taint["key"] for taint in node["spec"]["taints"]] == ["restrictedaccess"]

    assert_waits_for_new_nodes(lab, openshift, lambda: nodes("experiments"))
    until(lambda: runs("experiments"), limit=60, describe=lambda: openshift.scaling_state("accel.gpu/pool=experiments"))
    (node,) = nodes("experiments")
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "56", "eight A100 with seven devices"
    assert node["metadata"]["labels"]["nvidia.com/mig.config.state"] == "success"
    assert STARTUP_TAINT["key"] not in taint_keys(node["spec"])
    assert [openshift.get(f"{SETS}/{name}")["spec"]["replicas"] for name in scaled] == [1, 1], "and no second node"
    template = openshift.get(f"{SETS}/experiments")["spec"]["template"]["spec"]
    assert STARTUP_TAINT["key"] in taint_keys(template), "the next Machine gets it"

    assert play(lab, "autoscaling").require_success().changed(HOST) == 0, "the limits contain the nodes in use"
    # The next run only records on the new nodes what it manages there, so that their pods stay.
    play(lab, "share").require_success()
    assert all(map(runs, scaled))
    assert play(lab, "share").require_success().changed(HOST) == 0, "both pools are as declared"
    assert_loses_its_taint(lab, openshift, nodes("burst")[0])
    assert all(map(runs, scaled))


@pytest.mark.sampled(1, group="runs on OpenShift")
@pytest.mark.usual(90)
def test_a_taint_reaches_every_component_and_leaves_them_again(openshift_lab: Lab) -> None:
    lab, openshift = openshift_lab, sited(openshift_lab)
    policy = openshift.get(CLUSTER_POLICY)["spec"]["daemonsets"]["tolerations"]
    assert TAINT in policy
    assert TAINT in openshift.get(NFD_OBJECT)["spec"]["operand"]["workerTolerations"]
    openshift.client.patch(CLUSTER_POLICY, {"spec": {"daemonsets": {"tolerations": [*policy, THEIRS]}}})
    openshift.client.patch(NFD_OBJECT, {"spec": {"operand": {"workerTolerations": [TAINT, STARTING, THEIRS]}}})

    declared = [{**pool, "taints": [EVICTING]} if pool.get("taints") else pool for pool in DECLARED["gpu_pools"]]
    planned = play(lab, "plan", gpu_pools=declared).require_success()
    assert planned.shown(
        "ClusterPolicy gpu-cluster-policy gets a toleration for gpu-only:NoExecute; loses the toleration for restrictedaccess=yes:NoSchedule"
    )
    assert planned.shown(f"NodeFeatureDiscovery {NFD_NAMESPACE}/nfd-instance gets a toleration for gpu-only:NoExecute")
    assert planned.shown("NFD's workers restart on all nodes")
    assert planned.shown("the driver restarts on 3 node(s)")
    held = play(lab, "site", gpu_pools=declared).require_success()
    assert "spec.daemonsets.tolerations" in json.dumps(held.document)
    assert openshift.get(CLUSTER_POLICY)["spec"]["daemonsets"]["tolerations"] == [*policy, THEIRS]

    play(lab, "site", gpu_pools=declared, **ALLOW).require_success()
    evicting = {"key": "gpu-only", "operator": "Exists", "effect": "NoExecute"}
    now = openshift.get(CLUSTER_POLICY)["spec"]["daemonsets"]["tolerations"]
    assert THEIRS in now
    assert evicting in now
    assert TAINT not in now
    assert openshift.get(NFD_OBJECT)["spec"]["operand"]["workerTolerations"] == [STARTING, THEIRS, evicting]
    (worker,) = list(openshift.client.list(f"/apis/apps/v1/namespaces/{NFD_NAMESPACE}/daemonsets"))
    assert evicting in worker["spec"]["template"]["spec"]["tolerations"]
    for item in openshift.client.list(f"/apis/apps/v1/namespaces/{GPU_NAMESPACE}/daemonsets"):
        assert evicting in item["spec"]["template"]["spec"]["tolerations"], item["metadata"]["name"]
    node = openshift.get("/api/v1/nodes/t4-1")
    assert [taint["key"] for taint in node["spec"]["taints"]] == ["gpu-only"]
    assert play(lab, "site", gpu_pools=declared).require_success().changed(HOST) == 0


@pytest.mark.sampled(1, group="runs on OpenShift")
@pytest.mark.usual(80)
def test_an_upgrade_walks_through_olm_and_keeps_what_was_tuned(openshift_lab: Lab) -> None:
    lab, openshift = openshift_lab, OpenShift(openshift_lab).empty()
    old, new = (cluster(lab, operator={"version": version}) for version in ("v25.3.2", "v25.10.1"))
    play(lab, gpu_cluster=old).require_success()
    assert openshift.csv(GPU_NAMESPACE, OLD_GPU_CSV)["phase"] == "Succeeded", "not the newer one that is offered"
    assert play(lab, gpu_cluster=old).require_success().changed(HOST) == 0
    tuned = {
        "spec": {
            "daemonsets": {"priorityClassName": "system-cluster-critical"},
            "dcgmExporter": {"serviceMonitor": {"interval": "42s"}},
        }
    }
    openshift.client.patch(CLUSTER_POLICY, tuned)
    before = openshift.get(CLUSTER_POLICY)["spec"]

    planned = play(lab, "plan", gpu_cluster=new).require_success()
    assert planned.shown("operator: upgrade from v25.3.2 to v25.10.1")
    assert planned.shown("refused, unless gpu_operator_allow_driver_rollout is true")
    refused = play(lab, "upgrade", gpu_cluster=new)
    assert refused.rc != 0
    assert "Not upgraded, because the upgrade from v25.3.2 to v25.10.1 would restart" in refused.failure(HOST)
    play(lab, "upgrade", gpu_cluster=new, **ALLOW).require_success()
    assert openshift.csv(GPU_NAMESPACE, GPU_CSV)["phase"] == "Succeeded"
    assert not openshift.csv(GPU_NAMESPACE, OLD_GPU_CSV)
    operator = openshift.get(f"/apis/apps/v1/namespaces/{GPU_NAMESPACE}/deployments/gpu-operator")
    images = {
        entry["name"]: entry.get("value") for entry in operator["spec"]["template"]["spec"]["containers"][0]["env"]
    }
    plugin = openshift.get(f"/apis/apps/v1/namespaces/{GPU_NAMESPACE}/daemonsets/nvidia-device-plugin-daemonset")
    assert plugin["spec"]["template"]["spec"]["containers"][0]["image"] == images["DEVICE_PLUGIN_IMAGE"]
    after = openshift.get(CLUSTER_POLICY)["spec"]
    assert {part: after[part] for part in before} == before
    assert play(lab, "upgrade", gpu_cluster=new).require_success().changed(HOST) == 0


@pytest.mark.sampled(1, group="runs on OpenShift")
@pytest.mark.usual(60)
def test_operators_of_others_are_used_and_their_settings_stay(openshift_lab: Lab) -> None:
    lab, openshift = openshift_lab, OpenShift(openshift_lab).installed()
    openshift.client.patch(
        CLUSTER_POLICY, {"spec": {"daemonsets": {"tolerations": [THEIRS]}, "mig": {"strategy": "single"}}}
    )
    before, discovery = openshift.get(CLUSTER_POLICY)["spec"], openshift.get(NFD_OBJECT)["spec"]
    subscriptions = [openshift.get(path) for path in _subscriptions()]

    title = f"Subscription {GPU_NAMESPACE}/gpu-operator-certified"
    named = cluster(lab, operator={"version": "v25.10.1", "olm": {"channel": "v25.10"}})
    planned = play(lab, "plan", gpu_cluster=named).require_success()
    for change in ("installPlanApproval Automatic becomes Manual", "channel stable becomes v25.10"):
        assert planned.shown(f"{title}: {change}"), planned.stderr
    assert planned.shown(f"manages {title}, which this collection did not create")
    assert not play(lab, "plan").require_success().shown(title), "an operator that is not named is only used"

    played = play(lab, "site", **ALLOW).require_success()
    assert "adopted" in json.dumps(played.document)
    after = openshift.get(CLUSTER_POLICY)["spec"]
    assert {part for part in {*before, *after} if before.get(part) != after.get(part)} == {
        "daemonsets", "devicePlugin", "mig", "migManager",
    }  # fmt: skip
    assert after["daemonsets"]["tolerations"][0] == THEIRS
    assert get_nested(openshift.get(CLUSTER_POLICY), "metadata", "annotations", "accel.gpu/created") is None
    changed = openshift.get(NFD_OBJECT)["spec"]
    assert changed.pop("operand") == {**discovery.pop("operand", {}), "workerTolerations": [TAINT, STARTING]}
    assert changed == discovery
    assert [openshift.get(path)["spec"] for path in _subscriptions()] == [item["spec"] for item in subscriptions]
    assert play(lab, "site").require_success().changed(HOST) == 0


def _subscriptions() -> list[str]:
    alpha = "/apis/operators.coreos.com/v1alpha1/namespaces"
    names = ((GPU_NAMESPACE, "gpu-operator-certified"), (NFD_NAMESPACE, "nfd"))
    return [f"{alpha}/{namespace}/subscriptions/{name}" for namespace, name in names]


@pytest.mark.sampled(1, group="runs on OpenShift")
@pytest.mark.usual(70)
def test_the_shipped_rights_are_sufficient(openshift_lab: Lab) -> None:
    lab, openshift = openshift_lab, OpenShift(openshift_lab).empty()
    user, rules = "accel-gpu-on-openshift", REPO / "examples" / "rbac"
    own = ("kube-system", NFD_NAMESPACE, GPU_NAMESPACE, "openshift-machine-api")
    # The inventory has pools with nodes, which the rules of the node groups are for.
    for path, role, namespaces in (
        (rules / "openshift" / "site.yaml", "accel-gpu-site", own),
        (rules / "nodegroups.yaml", "accel-gpu-nodegroups", ("kube-system",)),
    ):
        run("kubectl", "apply", "-f", str(path), env=lab.env)
        bound = ["create", "clusterrolebinding", role, f"--clusterrole={role}", f"--user={user}"]
        run("kubectl", *bound, env=lab.env)
        for namespace in namespaces:
            binding = ["create", "rolebinding", role, f"--role={role}", f"--user={user}"]
            run("kubectl", "-n", namespace, *binding, env=lab.env)
    restricted = cluster(lab, impersonate_user=user)
    mark = audit.mark(LabLayout.named(lab.name))
    play(lab, "site", gpu_cluster=restricted).require_success()
    assert openshift.csv(GPU_NAMESPACE, GPU_CSV)["phase"] == "Succeeded"
    assert play(lab, "upgrade", gpu_cluster=restricted).require_success().changed(HOST) == 0
    refused = [r for r in audit.requests(LabLayout.named(lab.name), mark, "accel.gpu/") if r.status == 403]
    assert [f"{request.verb} {request.uri}" for request in refused] == []


@pytest.mark.sampled(1, group="runs on OpenShift")
@pytest.mark.usual(80)
def test_an_uninstallation_removes_what_a_run_has_created(openshift_lab: Lab) -> None:
    lab, openshift = openshift_lab, sited(openshift_lab)
    confirm: Object = {"gpu_confirm": [lab.name]}
    predicted = play(lab, "uninstall", "--check").require_success()
    assert all(map(openshift.get, (CLUSTER_POLICY, NFD_OBJECT, *_subscriptions())))
    # Operators are removed whatever installers the variables name today; their namespaces only with the former ones.
    by_helm = {key: {"installer": "helm"} for key in ("operator", "nfd")}
    removed = play(lab, "uninstall", gpu_cluster=cluster(lab, **by_helm), **confirm)
    assert changed_tasks(predicted) == changed_tasks(removed.require_success())
    assert play(lab, "uninstall", **confirm).require_success().changed(HOST)
    for path in (CLUSTER_POLICY, NFD_OBJECT, CLUSTER_AUTOSCALER, *_subscriptions()):
        assert not openshift.get(path), path
    until(lambda: not list(openshift.client.list(SCALERS)), limit=30)
    assert openshift.get(f"{SETS}/burst"), "MachineSets stay"
    for namespace in (GPU_NAMESPACE, NFD_NAMESPACE):
        actual = openshift.get(f"/api/v1/namespaces/{namespace}")
        assert not actual or actual["metadata"].get("deletionTimestamp"), namespace
    node = openshift.get("/api/v1/nodes/t4-1")
    assert not [key for key in node["metadata"]["labels"] if key.startswith(("accel.gpu/", "nvidia.com/"))]
    assert not node["spec"].get("taints")
    assert play(lab, "uninstall", **confirm).require_success().changed(HOST) == 0


@pytest.mark.sampled(1, group="runs on OpenShift")
@pytest.mark.usual(60)
def test_an_uninstallation_leaves_operators_of_others(openshift_lab: Lab) -> None:
    lab, openshift = openshift_lab, OpenShift(openshift_lab).installed()
    openshift.client.patch(NFD_OBJECT, {"spec": {"operand": {"workerTolerations": [THEIRS]}}})
    before = openshift.get(CLUSTER_POLICY)["spec"]
    tuned = {"logVerbosity": 4, "resourceLimits": {"gpus": [{"type": "NVIDIA-L4", "min": 0, "max": 2}]}}
    scaler = {"apiVersion": "autoscaling.openshift.io/v1", "kind": "ClusterAutoscaler", "metadata": {"name": "default"}}
    openshift.create(CLUSTER_AUTOSCALER.rpartition("/")[0], {**scaler, "spec": tuned})
    play(lab, "site", **ALLOW).require_success()
    assert len(openshift.get(CLUSTER_AUTOSCALER)["spec"]["resourceLimits"]["gpus"]) == 3
    variables: Object = {"gpu_confirm": [lab.name], "gpu_uninstall_allow_driver_rollout": True}
    play(lab, "uninstall", **variables).require_success()
    assert all(openshift.get(path) for path in _subscriptions())
    kept = openshift.get(CLUSTER_AUTOSCALER)
    assert {key: kept["spec"][key] for key in tuned} == tuned
    assert not kept["metadata"].get("annotations")
    discovery = openshift.get(NFD_OBJECT)
    assert discovery["spec"]["operand"]["workerTolerations"] == [THEIRS]
    assert "accel.gpu/tolerations" not in (discovery["metadata"].get("annotations") or {})
    after = openshift.get(CLUSTER_POLICY)["spec"]
    # The CRD has a default for the MIG manager's ConfigMap, and no name is an empty name.
    unchanged = set(before) - {"devicePlugin", "migManager"}
    assert {part: after.get(part) for part in unchanged} == {part: before[part] for part in unchanged}
