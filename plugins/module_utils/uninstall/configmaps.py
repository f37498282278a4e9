# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Our ConfigMaps and pods in all namespaces: finds, reports and removes them; foreign entries are kept."""

from __future__ import annotations

import typing as t

from ..catalog import names
from ..cluster_state import operand_pods
from ..kube.client import Client
from ..kube.errors import ApiError
from ..kube.paths import PODS, object_path
from . import ownership_marks
from .result import UninstallResult

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]

CONFIGMAPS = (names.DEVICE_PLUGIN_CONFIGMAP, names.MIG_CONFIGMAP, names.VALIDATION_CONFIGMAP)
# The label of validation pods (validation/pods.py).
_VALIDATION = "accel.gpu/validation"
_MAX_KEYS = 5


def find_configmaps(client: Client, foreign: t.Iterable[tuple[str, str]]) -> list[Object]:
    """Our ConfigMaps in all namespaces, since the operator's may have changed, and `foreign` ones (namespace, name) with entries of this collection."""
    own = [
        configmap
        for name in CONFIGMAPS
        for configmap in client.list("/api/v1/configmaps", field_selector=f"metadata.name={name}")
    ]
    others = [
        client.get(object_path("v1", "ConfigMap", name, namespace))
        for namespace, name in dict.fromkeys(foreign)
        if name and name not in CONFIGMAPS
    ]
    return [configmap for configmap in (*own, *others) if configmap and ownership_marks.is_marked(configmap)]


def find_pods(client: Client) -> list[Object]:
    """Validation pods of killed runs, and agents with the annotation that made them read their configuration again."""
    leftovers = list(client.list(PODS, label_selector=_VALIDATION, metadata_only=True))
    agents = client.list(PODS, label_selector=operand_pods.SELECTOR, metadata_only=True)
    return leftovers + [pod for pod in agents if names.REFRESH_ANNOTATION in (pod["metadata"].get("annotations") or {})]


def report_configmap(configmap: Document, result: UninstallResult) -> None:
    """Report how a ConfigMap is changed."""
    label = f"ConfigMap {configmap['metadata']['namespace']}/{configmap['metadata']['name']}"
    own, foreign = ownership_marks.split_keys(configmap)
    if not foreign and _is_own_configmap(configmap):
        result.add_removed(label, own)
        return
    result.add_removed(label, own + foreign, foreign, "our entries removed")
    if _is_own_configmap(configmap):
        result.add_kept(label, f"it has foreign entries: {', '.join(foreign[:_MAX_KEYS])}")
    else:
        result.add_kept(label, "this collection did not create it")


def remove_configmap(client: Client, configmap: Document) -> None:
    """Delete a ConfigMap, or remove our entries; raises a conflict when it has changed since it was read."""
    metadata = configmap["metadata"]
    path = object_path("v1", "ConfigMap", metadata["name"], metadata["namespace"])
    own, foreign = ownership_marks.split_keys(configmap)
    if not foreign and _is_own_configmap(configmap):
        client.delete(path, body={"preconditions": {"resourceVersion": metadata["resourceVersion"]}})
        return
    body: Object = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "data": dict.fromkeys(own)}
    labels = dict.fromkeys(ownership_marks.applied_labels(configmap))
    if labels:
        body["metadata"]["labels"] = labels
    patch = ownership_marks.unmark_patch(client.patch(path, body))
    if patch:
        client.patch(path, patch)


def report_pods(pods: t.Sequence[Document], result: UninstallResult) -> None:
    """Report how pods are changed, without their number, which varies."""
    if any(_is_validation_pod(pod) for pod in pods):
        result.add_removed("validation pods")
    if not all(_is_validation_pod(pod) for pod in pods):
        result.add_removed(f"annotation {names.REFRESH_ANNOTATION} of NVIDIA's agents", action="removed")


def remove_pod(client: Client, pod: Document) -> None:
    """Delete a validation pod, or remove our annotation from an agent that still exists."""
    path = object_path("v1", "Pod", pod["metadata"]["name"], pod["metadata"]["namespace"])
    if _is_validation_pod(pod):
        client.delete(path)
        return
    try:
        client.patch(path, {"metadata": {"annotations": {names.REFRESH_ANNOTATION: None}}})
    except ApiError as error:
        if not error.not_found:
            raise


def _is_own_configmap(configmap: Document) -> bool:
    return configmap["metadata"]["name"] in CONFIGMAPS


def _is_validation_pod(pod: Document) -> bool:
    return _VALIDATION in (pod["metadata"].get("labels") or {})
