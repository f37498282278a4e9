# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of NFD: the values of its Helm chart, or the spec of its custom resource if OLM installs its operator (pure)."""

from __future__ import annotations

import copy
import typing as t

from ..catalog.node_feature_discovery import WORKER_CONFIG
from ..catalog.olm import OLM
from ..nvidia_config import yaml_text
from ..schema.types import Document
from .variables import merge

if t.TYPE_CHECKING:
    from .plan import Toleration

_IMAGE = "nfd/node-feature-discovery"
# NVIDIA's own chart sets these tolerations for the NFD workers (gpu-operator: deployments/gpu-operator/values.yaml).
_CONTROL_PLANE_TOLERATIONS: tuple[Toleration, ...] = tuple(
    {"key": f"node-role.kubernetes.io/{role}", "operator": "Equal", "value": "", "effect": "NoSchedule"}
    for role in ("master", "control-plane")
)


def nfd_values(nfd: Document, operator: Document, tolerations: t.Iterable[Toleration]) -> Document:
    """The settings of NFD for gpu_cluster.nfd and gpu_cluster.operator, both with defaults and installer; `tolerations` are added for the pools' taints."""
    if nfd["installer"] == OLM:
        return _discovery_spec(nfd["values"])
    return _chart_values(operator, nfd["values"], tolerations)


def _chart_values(operator: Document, user_values: Document, tolerations: t.Iterable[Toleration]) -> Document:
    """The values of the operator's own NFD sub-chart, with tolerations for the pools' taints, so that NFD finds their GPUs.

    The image comes from the operator's registry and is pulled with the same Secrets. The user's values override these values,
    but their tolerations are added, because a pool's taint must still be tolerated.
    """
    needed = [dict(toleration) for toleration in (*_CONTROL_PLANE_TOLERATIONS, *tolerations)]
    values: Document = {
        **_image(operator),
        "master": {"extraLabelNs": ["nvidia.com"]},
        "worker": {"config": copy.deepcopy(WORKER_CONFIG), "tolerations": needed},
    }
    values = merge(values, user_values)
    worker = values["worker"]
    if isinstance(worker["tolerations"], list):
        worker["tolerations"] = needed + [extra for extra in worker["tolerations"] if extra not in needed]
    return values


def _discovery_spec(user_spec: Document) -> Document:
    """The fields of a new NodeFeatureDiscovery's spec, without tolerations, which are added to the object.

    workerConfig.configData is a string; the user's own string replaces the derived one.
    """
    spec: Document = {"workerConfig": {"configData": yaml_text.render(WORKER_CONFIG)}}
    return t.cast("Document", merge(spec, copy.deepcopy(user_spec)))


def _image(operator: Document) -> Document:
    registry, secrets = operator.get("registry"), operator["image_pull_secrets"]
    if not registry:
        return {}
    pull_secrets: Document = {"imagePullSecrets": [{"name": name} for name in secrets]} if secrets else {}
    return {"image": {"repository": f"{registry}/{_IMAGE}"}, **pull_secrets}
