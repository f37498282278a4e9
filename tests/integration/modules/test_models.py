# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every mode on every model of the catalog that supports it: exact resources, and labels as from NVIDIA's agents on an H200."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.module_utils.catalog import mig
from ansible_collections.accel.gpu.plugins.module_utils.catalog.models import MODELS, Model
from ansible_collections.accel.gpu.plugins.modules import cluster_policy, gpu_sharing
from tests.helpers.cluster import Cluster
from tests.helpers.playbook import run_playbook
from tests.labs import Lab

pytestmark = pytest.mark.soak

GPUS = 2
GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
# The mode, the suffix of the product label, and the labels replicas, sharing-strategy and mps.capable: each as
# gpu-feature-discovery v0.19.0 labeled an H200 under that configuration.
MODES: dict[str, tuple[dict[str, Any], str, dict[str, int], tuple[str, str, str]]] = {
    "time-slicing": ({"mode": "time-slicing", "replicas": 4}, "-SHARED", {GPU: 8}, ("4", "time-slicing", "false")),
    "time-slicing renamed": (
        {"mode": "time-slicing", "replicas": 4, "rename": True},
        "",
        {SHARED: 8},
        ("4", "time-slicing", "false"),
    ),
    "mps": ({"mode": "mps", "replicas": 4}, "-SHARED", {GPU: 8}, ("4", "mps", "true")),
    "mps renamed": ({"mode": "mps", "replicas": 4, "rename": True}, "", {SHARED: 8}, ("4", "mps", "true")),
    "none": ({"mode": "none"}, "", {GPU: 2}, ("1", "none", "false")),
}
CUT = [model for model in MODELS if mig.geometry(model.key)]


def name(model: Model) -> str:
    """The name of a model's pool and node group."""
    return model.key.lower()


def pool(model: Model, sharing: dict[str, Any]) -> dict[str, Any]:
    match = {"model": model.key, "labels": {"lab.accel.gpu/group": name(model)}}
    return {"name": name(model), "match": match, "gpus_per_node": GPUS, "sharing": sharing}


def geometry(model: Model) -> mig.Geometry:
    actual = mig.geometry(model.key)
    assert actual is not None
    return actual


@pytest.fixture(scope="module")
def cluster(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """A machine with two GPUs of each model."""
    groups = [{"name": name(model), "count": 1, "model": model.key, "gpus": GPUS} for model in MODELS]
    fleet = Path(tmp_path_factory.mktemp("fleet")) / "models.yaml"
    fleet.write_text(yaml.safe_dump({"groups": groups}))
    lab.reset(fleet)
    pools = [pool(model, {"mode": "none"}) for model in MODELS]
    tags = ["--tags", "pools,nfd,gpu_operator"]
    run_playbook("accel.gpu.site", environ=lab.env, variables={"gpu_pools": pools}, arguments=tags).require_success()
    return Cluster(lab)


def share(cluster: Cluster, pools: list[dict[str, Any]]) -> None:
    for main in (cluster_policy.main, gpu_sharing.main):
        result = cluster.run(main, gpu_pools=pools, wait_timeout=300)
        assert not result.get("failed"), result["msg"]


def observed(cluster: Cluster, model: Model, keys: list[str]) -> tuple[dict[str, int], tuple[str, ...]]:
    """The resources of the model's machine, and these labels."""
    node = f"{name(model)}-1"
    labels = cluster.get("node", node)["metadata"]["labels"]
    return cluster.offered(node)[node], tuple(labels.get(f"nvidia.com/{key}", "") for key in keys)


@pytest.mark.usual(40)
@pytest.mark.parametrize("mode", MODES)
def test_a_mode_of_every_model(cluster: Cluster, mode: str) -> None:
    sharing, suffix, offered, labels = MODES[mode]
    share(cluster, [pool(model, sharing) for model in MODELS])
    keys = ["gpu.product", "gpu.count", "gpu.replicas", "gpu.sharing-strategy", "mps.capable"]
    desired = {model.key: (offered, (model.product + suffix, str(GPUS), *labels)) for model in MODELS}
    assert {model.key: observed(cluster, model, keys) for model in MODELS} == desired


@pytest.mark.usual(60)
def test_every_mig_model_with_its_smallest_devices(cluster: Cluster) -> None:
    layouts = {model.key: geometry(model).profiles[0] for model in CUT}
    pools = [
        pool(model, {"mode": "mig", "layout": {layouts[model.key].name: layouts[model.key].max_count}}) for model in CUT
    ]
    share(cluster, pools)
    desired = {}
    for model in CUT:
        profile = layouts[model.key]
        count = GPUS * profile.max_count
        product = f"{model.product}-MIG-{profile.name}"
        if len(product) <= 63:
            desired[model.key] = ({GPU: count}, (product, str(count), "1", "none", "single"))
        else:
            # There are no whole GPUs to share.
            whole = (model.product, str(GPUS), "0", "none", "mixed")
            desired[model.key] = ({f"nvidia.com/mig-{profile.name}": count}, whole)
    keys = ["gpu.product", "gpu.count", "gpu.replicas", "gpu.sharing-strategy", "mig.strategy"]
    assert {model.key: observed(cluster, model, keys) for model in CUT} == desired


@pytest.mark.usual(60)
def test_every_mig_model_with_all_balanced(cluster: Cluster) -> None:
    """NVIDIA's layouts of `all-balanced` where it has the model; MIG stays disabled on the others."""
    mixed = [model for model in CUT if geometry(model).balanced]
    layouts = {model.key: dict(geometry(model).balanced) for model in mixed}
    whole = [pool(model, {"mode": "none"}) for model in CUT if model not in mixed]
    share(cluster, [*(pool(model, {"mode": "mig", "layout": layouts[model.key]}) for model in mixed), *whole])
    desired = {
        model.key: (
            {f"nvidia.com/mig-{profile}": GPUS * count for profile, count in layouts[model.key].items()},
            (model.product, str(GPUS), "mixed"),
        )
        for model in mixed
    }
    keys = ["gpu.product", "gpu.count", "mig.strategy"]
    assert {model.key: observed(cluster, model, keys) for model in mixed} == desired
    for model in CUT:
        if model not in mixed:
            assert observed(cluster, model, ["gpu.product"]) == ({GPU: GPUS}, (model.product,))
