# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents with every key of the schema and one or many errors produce messages, never a traceback."""

from __future__ import annotations

import copy
import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.core.types import Field, ListOf, Section
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.schema.cluster import CLUSTER
from ansible_collections.accel.gpu.plugins.module_utils.schema.pool import POOL
from ansible_collections.accel.gpu.plugins.module_utils.schema.variables import validate
from tests.helpers.variables import Document, anything

TAINT: Document = {"key": "team", "value": "x", "effect": "NoSchedule"}
DRIVER: Document = {
    "type": "gpu",
    "version": "570.148.08",
    "repository": "registry.example.com/nvidia",
    "image": "driver",
    "kernel_module_type": "open",
    "precompiled": False,
    "image_pull_secrets": ["one"],
    "secret_env": "s",
    "repo_config": "repos",
    "cert_config": "ca",
    "kernel_module_config": "parameters",
}
RELEASE: Document = {
    "version": "v25.10.1",
    "namespace": "a",
    "release": "b",
    "chart": "c",
    "chart_repo": "https://d",
    "values": {},
}
ROLLOUT: Document = {
    "max_unavailable": "25%",
    "drain": "all",
    "force": True,
    "grace_period": 30,
    "drain_timeout": 60,
    "order": "name",
    "limit": 4,
    "pause_on_failure": False,
    "on_failure": "leave",
    "reboot": {"command": ["ssh", "core@{node}", "sudo", "reboot"], "timeout": 300},
}
WHOLE: dict[str, t.Any] = {
    "cluster": {
        "name": "lab",
        "kube_name": "admin@lab",
        "uid": "5b2a9f3c-0d5e-4f5e-9a51-0c1d2e3f4a5b",
        "impersonate_user": "u",
        "impersonate_groups": ["g"],
        "lease": {"wait_timeout": 60},
        "kubeconfig": "/k",
        "context": "c",
        "distribution": "rke2",
        "known_issues": [{"releases": ["v26.7"], "conditions": ["mig", "model H200"], "text": "x"}],
        "operator": {
            **RELEASE,
            "version": "v26.7.0",
            "gds": {"enabled": True, "version": "2.29.4"},
            "gdrcopy": {"enabled": True, "version": "v2.6"},
            "registry": "registry.example.com/mirror",
            "image_pull_secrets": ["one"],
            "driver": {
                "enabled": True,
                "version": "580.105.08",
                "kernel_module_type": "open",
                "precompiled": False,
                "secret_env": "s",
                "rdma": {"enabled": True, "use_host_mofed": True},
                "fabric_manager": {"mode": "shared-nvswitch"},
            },
            "proxy": {"http": "http://p:1", "https": "http://p:1", "no_proxy": [".svc"]},
            "repo_config": "repos",
            "cert_config": "ca",
        },
        "nfd": {**RELEASE, "version": "0.19.0", "namespace": "n"},
        "validation": {"images": {"12.5": "i:1"}, "load_image": "l:1", "nccl_image": "n:1", "namespace": "v"},
    },
    "defaults": {"labels": {"team": "x"}, "taints": [TAINT], "sharing": {"mode": "none"}},
    "pools": [
        {"name": "none", "match": {"model": "T4", "labels": {"zone": "a"}}, "gpus_per_node": 1, "labels": {"b": "c"}, "taints": [TAINT]},
        {
            "name": "time",
            "match": {"labels": {"nvidia.com/gpu.product": "NVIDIA-X1"}},
            "sharing": {"mode": "time-slicing", "replicas": 4, "rename": True, "fail_requests_greater_than_one": False},
        },
        {"name": "mps", "match": {"model": "L4"}, "sharing": {"mode": "mps", "replicas": 4}, "rollout": ROLLOUT},
        {"name": "asked", "match": {"model": "H200"}, "sharing": {"mode": "mig", "demand": {"1g.18gb": 3}}},
        {
            "name": "cut",
            "match": {"model": "A100-SXM4-40GB"},
            "sharing": {"mode": "mig", "layout": {"1g.5gb": 7}, "strategy": "mixed", "replicas": 2},
        },
        {
            "name": "by-gpu",
            "match": {"model": "A30"},
            "gpus_per_node": 2,
            "startup_taint": True,
            "sharing": {"mode": "mig", "layout": {0: {"1g.6gb": 4}, 1: ["2g.12gb", "2g.12gb"]}},
        },
    ],
}  # fmt: skip

COMMON: Document = {"name": "group", "flavor": "f", "count": 2, "recreate": True}
# One cluster has one cloud, so the keys of each cloud are in a separate document.
MAGNUM: dict[str, t.Any] = {
    "cluster": {
        "name": "lab",
        "cloud": {
            "magnum": {"cloud": "c", "region_name": "r", "cluster": "k", "template": "t", "nodegroup_label": "a/b"}
        },
    },
    "defaults": {"nodes": {"image": "i"}},
    "pools": [
        {
            "name": "made",
            "model": "T4",
            "nodes": {
                **COMMON,
                "image": "i",
                "role": "gpu",
                "labels": {"a": "b"},
                "merge_labels": True,
                "docker_volume_size": 50,
            },
            "autoscale": {"min": 1, "max": 3},
        }
    ],
}
_URL = "https://api.example.com"
VKS: dict[str, t.Any] = {
    "cluster": {
        "name": "lab",
        "cloud": {
            "vks": {
                "cluster": "k",
                "region": "HAN",
                "project_id": "p",
                "iam_url": _URL,
                "vks_url": _URL,
                "vserver_url": _URL,
            }
        },
    },
    "defaults": {"nodes": {"ssh_key": "k"}},
    "pools": [
        {
            "name": "made",
            "nodes": {
                **COMMON,
                "os": "ubuntu",
                "disk_size": 100,
                "disk_type": "d",
                "ssh_key": "k",
                "subnet": "s",
                "secondary_subnets": ["10.0.0.0/16"],
                "security_groups": ["g"],
                "private_nodes": True,
                "encrypted_volume": False,
                "tags": {"a": "b"},
                "upgrade_strategy": {"max_surge": 1, "max_unavailable": 0},
                "kubernetes_version": "v1.30.1",
            },
        }
    ],
}
MACHINESET: dict[str, t.Any] = {
    "cluster": {
        "name": "lab",
        "cloud": {
            "machineset": {
                "namespace": "openshift-machine-api",
                "vsphere": {
                    "hostname": "vcenter.example.com",
                    "port": 443,
                    "username": "automation@vsphere.local",
                    "validate_certs": True,
                    "ca_cert": "/etc/pki/vmca.pem",
                    "proxy_host": "proxy.example.com",
                    "proxy_port": 3128,
                    "folder": "accel-gpu",
                    "url": "https://mirror.example.com/rhcos.ova",
                    "checksum": f"sha256:{64 * '0'}",
                    "narrow_boot_images": True,
                },
            }
        },
        "autoscaler": {
            "max_nodes_total": 40,
            "expanders": ["Priority", "LeastWaste"],
            "pod_priority_threshold": -10,
            "balance_similar_node_groups": True,
            "max_node_provision_time": "30m",
            "scale_down": {
                "enabled": True,
                "delay_after_add": "20m",
                "delay_after_delete": "5m",
                "delay_after_failure": "30s",
                "unneeded_time": "1h30m",
                "utilization_threshold": "0.4",
            },
            "values": {"logVerbosity": 4},
        },
    },
    "defaults": {"nodes": {"adopt": True}},
    "pools": [
        {
            "name": "made",
            "nodes": {
                **COMMON,
                "like": "worker-a",
                "zones": ["a", "b"],
                "accelerators": {"type": "nvidia-tesla-t4", "count": 1},
                "provider_spec": {"workspace": {"folder": "f"}},
                "adopt": False,
            },
            "autoscale": {"min": 1, "max": 3, "priority": 10},
        },
        {"name": "cloned", "nodes": {"template": "rhcos-a100-10c", "count": 1}},
        {
            "name": "built",
            "nodes": {"zones": ["a"], "count": 1},
            "vgpu": {"profile": "grid_a100-10c", "count": 2, "mmio_gib": 256},
        },
    ],
}
VGPU: dict[str, t.Any] = {
    "cluster": {"name": "lab", "operator": {"version": "v26.7.0"}, "validation": {"image": "i:1"}},
    "defaults": {"driver": {"upgrade": {"automatic": True, "max_parallel": 0, "max_unavailable": "50%"}}},
    "pools": [
        {
            "name": "guests",
            "driver": {
                "type": "vgpu",
                "version": "570.148.08",
                "repository": "registry.example.com/nvidia",
                "licensing_secret": "nls",
                "upgrade": {"automatic": False, "max_parallel": 2, "max_unavailable": 1},
            },
        },
        {"name": "plain", "driver": DRIVER},
    ],
}
_OLM: Document = {
    "package": "p",
    "channel": "stable",
    "source": ["staging", "certified-operators"],
    "source_namespace": "openshift-marketplace",
    "approval": "Manual",
    "catalog_image": "registry.example.com/catalog:v4.18",
    "operator_group": "group",
    "target_namespaces": ["openshift-nfd"],
    "additional_csvs": ["other.v1.2.3"],
    "subscription_config": {"nodeSelector": {"a": "b"}},
}
OPENSHIFT: dict[str, t.Any] = {
    "cluster": {
        "name": "lab",
        "distribution": "openshift",
        "operator": {"installer": "olm", "olm": _OLM},
        "nfd": {"installer": "olm", "olm": _OLM},
    },
    "defaults": {"taints": [TAINT]},
    "pools": [{"name": "shared", "match": {"model": "T4"}, "sharing": {"mode": "time-slicing", "replicas": 4}}],
}
DOCUMENTS = (WHOLE, MAGNUM, VKS, MACHINESET, VGPU, OPENSHIFT)


def keys(field: Field, path: str = "") -> t.Iterator[str]:
    """The path of every key of a schema."""
    if isinstance(field, ListOf):
        yield from keys(field.item, path)
    if isinstance(field, Section):
        for name, inner in field.fields.items():
            yield f"{path}.{name}"
            yield from keys(inner, f"{path}.{name}")


def written(value: t.Any, path: str = "") -> t.Iterator[str]:
    """The path of every key in a document."""
    for inner in value if isinstance(value, list) else ():
        yield from written(inner, path)
    for key, inner in value.items() if isinstance(value, dict) else ():
        yield f"{path}.{key}"
        yield from written(inner, f"{path}.{key}")


def test_every_key_of_the_schema_stands_in_a_document_that_is_sound() -> None:
    for documents in DOCUMENTS:
        assert validate(*documents.values()) == []
        derive(*documents.values())
    for schema, part in ((CLUSTER, "cluster"), (POOL, "pools")):
        assert set(keys(schema)) <= {key for documents in DOCUMENTS for key in written(documents[part])}


def spoil(draw: st.DrawFn, documents: dict[str, t.Any]) -> None:
    """Replace one value, at any depth, by anything, remove it, or add an unknown key beside it."""
    place: t.Any = documents
    while True:
        inner = sorted(place, key=str) if isinstance(place, dict) else range(len(place))
        key = draw(st.sampled_from(inner))
        if not isinstance(place[key], (dict, list)) or not place[key] or draw(st.integers(0, 3)) == 0:
            break
        place = place[key]
    how = draw(st.sampled_from(["replace", "take out", "add"])) if place is not documents else "replace"
    if how == "replace" or isinstance(place, list):
        place[key] = draw(anything)
    elif how == "take out":
        del place[key]
    else:
        place[draw(st.text(max_size=8) | st.integers())] = draw(anything)


@st.composite
def spoilt(draw: st.DrawFn, most: int) -> list[t.Any]:
    documents = copy.deepcopy(draw(st.sampled_from(DOCUMENTS)))
    for dummy in range(draw(st.integers(1, most))):
        spoil(draw, documents)
    return list(documents.values())


def judge(documents: list[t.Any]) -> None:
    problems = validate(*documents)
    assert all(problem.startswith("gpu_") and "\n" not in problem and ": " in problem for problem in problems)
    if not problems:
        derive(*documents).as_dict()


@given(spoilt(1))
def test_one_spoilt_place(documents: list[t.Any]) -> None:
    judge(documents)


@given(spoilt(8))
def test_several_spoilt_places(documents: list[t.Any]) -> None:
    judge(documents)


@pytest.mark.soak
@settings(max_examples=20000)
@given(spoilt(8))
def test_many_spoilt_documents(documents: list[t.Any]) -> None:
    judge(documents)
