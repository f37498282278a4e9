# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who uses a GPU of a node, by which way, and what a drain may do with it."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.nodes.pods import (
    PodOnNode,
    PodsByNode,
    classify_pods,
    foreign_plugins,
    gpu_requests,
    parse_pods,
    read_plugin_pods,
)
from tests.helpers.fleet import pod

OPERATOR = "gpu-operator"
Object = dict[str, t.Any]


def made(spec: Object | None = None, metadata: Object | None = None, **changes: t.Any) -> Object:
    """A pod on node n1, with more in its spec and metadata."""
    actual = pod("p", **{"on": "n1", **changes})
    actual["spec"].update(spec or {})
    actual["metadata"].update(metadata or {})
    return actual


def classified(pods: t.Iterable[Object], claims: t.Iterable[Object] = (), *, namespace: str = OPERATOR) -> PodsByNode:
    return classify_pods(parse_pods(pods, claims, operator_namespace=namespace))


def env(value: str | None = None, **entry: t.Any) -> Object:
    text = {} if value is None else {"value": value}
    return {
        "name": "main",
        "env": [{"name": "OTHER", "value": "all"}, {"name": "NVIDIA_VISIBLE_DEVICES", **text, **entry}],
    }


PRIVILEGED: Object = {"securityContext": {"privileged": True}}


def mounting(path: str, **container: t.Any) -> Object:
    """A pod whose container mounts a path of the node."""
    main = {"name": "main", "volumeMounts": [{"name": "v", "mountPath": "/x"}], **container}
    return made({"volumes": [{"name": "v", "hostPath": {"path": path}}], "containers": [main]})


def allocated(*drivers: str, name: str = "c") -> Object:
    results = [{"driver": driver, "pool": "n1", "device": "gpu-0"} for driver in drivers]
    return {
        "metadata": {"name": name, "namespace": "default"},
        "status": {"allocation": {"devices": {"results": results}}},
    }


def asking(**request: t.Any) -> Object:
    return {"metadata": {"name": "c", "namespace": "default"}, "spec": {"devices": {"requests": [request]}}}


NAMES_CLAIM = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}
FROM_TEMPLATE = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]}
TEMPLATE_STATUS: Object = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]}

WAYS: list[tuple[str, Object, list[Object], list[str]]] = [
    ("nothing", made(), [], []),
    ("whole GPUs", made(limits={"nvidia.com/gpu": 2, "cpu": 1}), [], ["requests nvidia.com/gpu"]),
    (
        "two kinds of MIG devices",
        made(limits={"nvidia.com/mig-2g.10gb": 1, "nvidia.com/mig-1g.5gb": 1}),
        [],
        ["requests nvidia.com/mig-1g.5gb", "requests nvidia.com/mig-2g.10gb"],
    ),
    ("a claim by name", made(NAMES_CLAIM), [allocated("gpu.nvidia.com")], ["claims a device of gpu.nvidia.com"]),
    (
        "a claim by template",
        made(FROM_TEMPLATE, None, **TEMPLATE_STATUS),
        [allocated("nic.example.com", "gpu.nvidia.com", "gpu.nvidia.com")],
        ["claims a device of gpu.nvidia.com"],
    ),
    ("a claim of another driver", made(NAMES_CLAIM), [allocated("nic.example.com")], []),
    ("another pod's claim", made(NAMES_CLAIM), [allocated("gpu.nvidia.com", name="d")], []),
    ("claims unknown", made(NAMES_CLAIM), [], []),
    (
        "not allocated yet, v1",
        made(NAMES_CLAIM),
        [asking(exactly={"deviceClassName": "mig.nvidia.com"})],
        ["claims a device of mig.nvidia.com"],
    ),
    (
        "not allocated yet, v1beta1",
        made(NAMES_CLAIM),
        [asking(deviceClassName="gpu.nvidia.com")],
        ["claims a device of gpu.nvidia.com"],
    ),
    (
        "one of several classes",
        made(NAMES_CLAIM),
        [asking(firstAvailable=[{"deviceClassName": "fpga.example.com"}, {"deviceClassName": "gpu.nvidia.com"}])],
        ["claims a device of gpu.nvidia.com"],
    ),
    ("of no GPU", made(NAMES_CLAIM), [asking(exactly={"deviceClassName": "compute-domain-daemon.nvidia.com"})], []),
    ("runtime class", made({"runtimeClassName": "nvidia"}), [], ["runtimeClassName nvidia"]),
    ("runtime class of CDI", made({"runtimeClassName": "nvidia-cdi"}), [], ["runtimeClassName nvidia-cdi"]),
    ("another runtime class", made({"runtimeClassName": "gvisor"}), [], []),
    ("device file", mounting("/dev//nvidia0/"), [], ["mounts /dev/nvidia0"]),
    ("device files", mounting("/dev/nvidia-uvm"), [], ["mounts /dev/nvidia-uvm"]),
    (
        "a volume that no container mounts",
        made({"volumes": [{"name": "v", "hostPath": {"path": "/dev/nvidia0"}}]}),
        [],
        [],
    ),
    ("other paths", mounting("/dev/shm"), [], []),
    # The device cgroup of a container that is not privileged allows none of NVIDIA's devices.
    ("all of /dev", mounting("/dev"), [], []),
    ("all of the node", mounting("/"), [], []),
    ("privileged with /dev", mounting("/dev", **PRIVILEGED), [], ["privileged container main"]),
    ("privileged", made({"containers": [{"name": "main", **PRIVILEGED}]}), [], ["privileged container main"]),
    ("privileged for its start only", made({"initContainers": [{"name": "sysctl", **PRIVILEGED}]}), [], []),
    (
        "privileged, and starting",
        made({"initContainers": [{"name": "sysctl", **PRIVILEGED}]}, phase="Pending"),
        [],
        ["privileged container sysctl"],
    ),
    (
        "a privileged sidecar",
        made({"initContainers": [{"name": "side", "restartPolicy": "Always", **PRIVILEGED}]}),
        [],
        ["privileged container side"],
    ),
    (
        "CDI",
        made(
            {}, {"annotations": {"cdi.k8s.io/work": "nvidia.com/gpu=0,vendor.com/nic=1", "other": "nvidia.com/gpu=1"}}
        ),
        [],
        ["annotation cdi.k8s.io/work: nvidia.com/gpu=0"],
    ),
    (
        "CDI by the toolkit's prefix",
        made({}, {"annotations": {"nvidia.cdi.k8s.io/a": "management.nvidia.com/gpu=all"}}),
        [],
        ["annotation nvidia.cdi.k8s.io/a: management.nvidia.com/gpu=all"],
    ),
    ("CDI of another vendor", made({}, {"annotations": {"cdi.k8s.io/a": "notnvidia.com/gpu=all"}}), [], []),
    (
        "CRI-O's list of devices",
        made({}, {"annotations": {"io.kubernetes.cri-o.Devices": "/dev/nvidia0"}}),
        [],
        ["annotation io.kubernetes.cri-o.Devices: /dev/nvidia0"],
    ),
    (
        "devices as mounts",
        made({"containers": [{"name": "a", "volumeMounts": [{"mountPath": "/var/run/nvidia-container-devices/all"}]}]}),
        [],
        ["mounts /var/run/nvidia-container-devices/all"],
    ),
    (
        "a client by its own word",
        made({"nodeSelector": {"nvidia.com/gpu.deploy.client": "true"}}),
        [],
        ["nodeSelector nvidia.com/gpu.deploy.client"],
    ),
    ("all devices", made({"containers": [env("all")]}), [], ["NVIDIA_VISIBLE_DEVICES=all"]),
    ("by an init container", made({"initContainers": [env("0,1")]}), [], ["NVIDIA_VISIBLE_DEVICES=0,1"]),
    ("by a debugger", made({"ephemeralContainers": [env("all")]}), [], ["NVIDIA_VISIBLE_DEVICES=all"]),
    ("void", made({"containers": [env("void"), env("none"), env(""), env()]}), [], []),
    (
        "unknown here",
        made({"containers": [env(valueFrom={"fieldRef": {"fieldPath": "metadata.name"}})]}),
        [],
        ["NVIDIA_VISIBLE_DEVICES from a reference"],
    ),
    (
        "several ways, each once",
        made({"containers": [env("all"), env("all")], "runtimeClassName": "nvidia-legacy"}),
        [],
        ["runtimeClassName nvidia-legacy", "NVIDIA_VISIBLE_DEVICES=all"],
    ),
    ("ended", made(limits={"nvidia.com/gpu": 1}, phase="Failed"), [], []),
    ("not on a node", made(limits={"nvidia.com/gpu": 1}, on=""), [], []),
    (
        "being deleted",
        made({}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}, limits={"nvidia.com/gpu": 1}),
        [],
        ["requests nvidia.com/gpu"],
    ),
]


@pytest.mark.parametrize(("item", "claims", "ways"), [case[1:] for case in WAYS], ids=[case[0] for case in WAYS])
def test_the_ways_to_a_gpu(item: Object, claims: list[Object], ways: list[str]) -> None:
    actual = classified([item], claims).gpu_pods
    assert [list(user.access) for user in actual.get("n1", [])] == ([ways] if ways else [])


def owned(kind: str, **metadata: t.Any) -> Object:
    return {"ownerReferences": [{"kind": kind, "name": "owner", "controller": True}], **metadata}


KEEPING: list[tuple[str, Object, str, bool]] = [
    ("bare", {}, "", True),
    ("owned, but by no controller", {"ownerReferences": [{"kind": "Workflow", "name": "owner"}]}, "", True),
    ("of a ReplicaSet", owned("ReplicaSet"), "", False),
    ("of a Job", owned("Job"), "", False),
    ("of a DaemonSet", owned("DaemonSet"), "DaemonSet owner", False),
    ("static", owned("Node", annotations={"kubernetes.io/config.mirror": "x"}), "static pod", False),
]


@pytest.mark.parametrize(
    ("metadata", "kept", "bare"), [case[1:] for case in KEEPING], ids=[case[0] for case in KEEPING]
)
def test_what_a_drain_may_do(metadata: Object, kept: str, bare: bool) -> None:
    [user] = classified([made({}, metadata, limits={"nvidia.com/gpu": 1})]).gpu_pods["n1"]
    assert (user.keep_reason, user.unmanaged) == (kept, bare)
    beside = classified([made({}, metadata)]).other_pods
    assert bool(beside) is (not kept)


def test_all_that_is_said_of_one() -> None:
    metadata = {"uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    actual = classified([made({"priority": 7}, metadata, limits={"nvidia.com/gpu": 2})]).gpu_pods
    way = "requests nvidia.com/gpu"
    expected = PodOnNode(
        *("default", "p", "u", {"nvidia.com/gpu": 2}, (way,)),
        unmanaged=True,
        priority=7,
        created="2026-01-01T00:00:00Z",
    )
    assert actual == {"n1": [expected]}


@pytest.mark.parametrize("app", ["nvidia-operator-validator", "nvidia-cuda-validator", "gpu-feature-discovery"])
def test_the_operators_own_pods_are_neither(app: str) -> None:
    own = made({"runtimeClassName": "nvidia"}, {"namespace": OPERATOR, "labels": {"app": app}})
    assert classified([own]).gpu_pods == classified([own]).other_pods == {}
    assert classified([own], namespace="elsewhere").gpu_pods["n1"][0].access == ("runtimeClassName nvidia",)


def test_a_users_pod_in_the_operators_namespace_is_a_user() -> None:
    stray = made({}, {"namespace": OPERATOR, "labels": {"app": "train"}}, limits={"nvidia.com/gpu": 1})
    assert classified([stray]).gpu_pods


PODS = st.lists(
    st.builds(
        made,
        st.sampled_from([{}, {"runtimeClassName": "nvidia"}, {"containers": [env("all")]}]),
        st.sampled_from([{}, owned("DaemonSet"), {"namespace": OPERATOR, "labels": {"app": "nvidia-dcgm"}}]),
        limits=st.sampled_from([{}, {"nvidia.com/gpu": 1}, {"nvidia.com/mig-1g.5gb": 2}]),
        on=st.sampled_from(["", "n1", "n2"]),
        phase=st.sampled_from(["Running", "Succeeded", "Pending"]),
    ),
    max_size=6,
)


@given(PODS)
def test_a_pod_with_a_gpu_resource_is_a_user_and_no_pod_is_both(pods: list[Object]) -> None:
    for index, one in enumerate(pods):
        one["metadata"]["name"] = f"p{index}"
    using = {user.name for actual in classified(pods, namespace="").gpu_pods.values() for user in actual}
    beside = {user.name for actual in classified(pods, namespace="").other_pods.values() for user in actual}
    assert {holder.pod for actual in gpu_requests(pods).values() for holder in actual} <= using
    assert not using & beside
    assert using == {
        user.name for actual in classified(reversed(pods), namespace="").gpu_pods.values() for user in actual
    }


def requesting(*resources: str) -> Object:
    return {"containers": [{"name": "main", "resources": {"limits": dict.fromkeys(resources, "1")}}]}


@pytest.mark.parametrize(
    "resource",
    [
        *("volcano.sh/vgpu-number", "volcano.sh/gpu-memory", "aliyun.com/gpu-mem", "tencent.com/vcuda-core"),
        *("instaslice.redhat.com/mig-1g.5gb", "instaslice.redhat.com/accelerator-memory-quota"),
        *("org.instaslice/pod-uid", "mig.das.com/1g.5gb"),
        "deviceclass.resource.kubernetes.io/gpu.nvidia.com",
    ],
)
def test_a_pod_with_a_resource_of_another_plugin_uses_a_gpu(resource: str) -> None:
    (actual,) = classified([made(requesting(resource))]).gpu_pods["n1"]
    assert actual.access == (f"requests {resource}",)
    # The amounts are not those of the operator's plugin.
    assert actual.resources == {}


@pytest.mark.parametrize(
    "resource",
    [
        *("amd.com/gpu", "gpu.intel.com/i915", "habana.ai/gaudi", "cpu", "hugepages-2Mi", "rdma/hca_shared"),
        *("gpu.intel.com/xe", "gpu.intel.com/memory.max", "metax-tech.com/gpu", "mthreads.com/vgpu", "xamd.com/gpu"),
        # Unknown vendors: a name is no reason to evict a pod.
        *("4paradigm.com/vgpu", "elasticgpu.io/gpu-memory", "example.com/mig-1g.10gb", "example.com/vcuda-core"),
        *("example.com/migration-slots", "kubernetes.io/gpu-less", "deviceclass.resource.kubernetes.io/nic"),
    ],
)
def test_other_resources_are_no_nvidia_gpus(resource: str) -> None:
    assert classified([made(requesting(resource))]).gpu_pods == {}


def test_hami_pods_are_recognized_by_their_requests() -> None:
    spec = requesting("nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores")
    (actual,) = classified([made(spec)]).gpu_pods["n1"]
    assert "requests nvidia.com/gpumem" in actual.access


@pytest.mark.parametrize(
    ("metadata", "spec", "access"),
    [
        ({"annotations": {"gpu-fraction": "0.5"}}, {"schedulerName": "kai-scheduler"}, "annotation gpu-fraction"),
        ({"annotations": {"gpu-memory": "2000"}}, {"schedulerName": "runai-scheduler"}, "annotation gpu-memory"),
        ({"labels": {"runai-gpu-group": "a"}}, {}, "label runai-gpu-group"),
        ({"labels": {"runai-gpu-group/b": "b", "runai-gpu-group/a": "a"}}, {}, "label runai-gpu-group/a"),
        ({"labels": {"runai-gpu-groups": "a"}}, {}, None),
        ({"annotations": {"gpu-memory": "2000"}}, {}, None),
    ],
)
def test_a_pod_that_shares_a_reserved_gpu_uses_it(metadata: Object, spec: Object, access: str | None) -> None:
    pods = classified([made(spec, metadata)]).gpu_pods
    assert pods["n1"][0].access == (access,) if access else pods == {}


@pytest.mark.parametrize("app", ["kai-resource-reservation", "runai-reservation"])
def test_a_reservation_pod_does_not_block_a_drain(app: str) -> None:
    metadata = {"namespace": app, "labels": {"app": app}, "ownerReferences": []}
    (actual,) = classified([made(requesting("nvidia.com/gpu"), metadata)]).gpu_pods["n1"]
    assert actual.access == ("requests nvidia.com/gpu", "reserves a GPU for pods that share it")
    assert not actual.unmanaged


def test_device_plugins_that_are_no_operands_are_found() -> None:
    owner = {"ownerReferences": [{"kind": "DaemonSet", "name": "nvdp", "controller": True}], "namespace": "kube-system"}
    image = {"containers": [{"name": "main", "image": "nvcr.io/nvidia/k8s-device-plugin:v0.18.0"}]}
    ((key, nodes),) = foreign_plugins([made(image, owner)], OPERATOR).items()
    assert (key[0], key[1].title, nodes) == (
        "DaemonSet kube-system/nvdp",
        "the stand-alone device plugin of NVIDIA",
        ["n1"],
    )
    operand = {**owner, "namespace": OPERATOR, "labels": {"app": "nvidia-device-plugin-daemonset"}}
    assert foreign_plugins([made(image, operand)], OPERATOR) == {}
    assert foreign_plugins([made(image)], OPERATOR) == {}


@pytest.mark.parametrize(
    "image", ["rocm/k8s-device-plugin:1.31", "registry.example.com:5000/hub/rocm/k8s-device-plugin@sha256:0"]
)
def test_device_plugins_of_other_vendors_are_not_those_of_nvidia(image: str) -> None:
    owner = {
        "ownerReferences": [{"kind": "DaemonSet", "name": "amdgpu", "controller": True}],
        "namespace": "kube-system",
    }
    assert foreign_plugins([made({"containers": [{"name": "main", "image": image}]}, owner)], OPERATOR) == {}


class PluginCluster:
    """DaemonSets and their pods; the paths and selectors of the requests are recorded."""

    def __init__(self, *daemonsets: Object, forbidden: bool = False) -> None:
        self.daemonsets, self.forbidden, self.sent = daemonsets, forbidden, list[str]()

    def list(self, path: str, *, label_selector: str = "") -> t.Any:
        self.sent.append(f"{path}?{label_selector}".rstrip("?"))
        if self.forbidden:
            raise ApiError("daemonsets.apps is forbidden", status=403)
        return iter(self.daemonsets) if path == "/apis/apps/v1/daemonsets" else iter([{"name": label_selector}])


def plugin_daemonset(image: str, namespace: str = "kube-system", **labels: str) -> Object:
    spec = {"containers": [{"name": "main", "image": image}]}
    template = {"metadata": {"labels": labels}, "spec": spec}
    selector = {"matchLabels": labels}
    return {"metadata": {"name": "x", "namespace": namespace}, "spec": {"selector": selector, "template": template}}


def test_pods_are_listed_only_for_the_daemonsets_of_other_plugins() -> None:
    nvidia = "nvcr.io/nvidia/k8s-device-plugin:v0.18.0"
    cluster = PluginCluster(
        plugin_daemonset("kube-proxy:v1", app="kube-proxy"),
        plugin_daemonset(nvidia, OPERATOR, app="nvidia-device-plugin-daemonset"),
        plugin_daemonset(nvidia, name="nvdp", part="plugin"),
    )
    assert read_plugin_pods(t.cast("Client", cluster), OPERATOR) == [{"name": "name=nvdp,part=plugin"}]
    assert cluster.sent == [
        "/apis/apps/v1/daemonsets",
        "/api/v1/namespaces/kube-system/pods?name=nvdp,part=plugin",
    ]


def test_without_permission_other_plugins_are_recognized_only_on_nodes() -> None:
    assert read_plugin_pods(t.cast("Client", PluginCluster(forbidden=True)), OPERATOR) == []
