# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Our ConfigMaps and pods, wherever they are: found, noted and taken away; others' entries stay."""

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
_TOLD = 5


def our_configmaps(client: Client) -> list[Object]:
    """Those of our names that we have written, in whatever namespace: the operator's may have been another one once."""
    return [
        found
        for name in CONFIGMAPS
        for found in client.list("/api/v1/configmaps", field_selector=f"metadata.name={name}")
        if ownership_marks.is_marked(found)
    ]


def with_our_entries(client: Client, places: t.Iterable[tuple[str, str]]) -> list[Object]:
    """Of the ConfigMaps of somebody else's at these places (namespace, name), those in which entries of ours stand."""
    wanted = [place for place in dict.fromkeys(places) if place[1] and place[1] not in CONFIGMAPS]
    found = [client.get(object_path("v1", "ConfigMap", name, namespace)) for namespace, name in wanted]
    return [configmap for configmap in found if configmap and ownership_marks.is_marked(configmap)]


def our_pods(client: Client) -> list[Object]:
    """Validation pods that a killed run has left, and agents that our annotation made look again at their configuration."""
    left = list(client.list(PODS, label_selector=_VALIDATION, metadata_only=True))
    touched = client.list(PODS, label_selector=operand_pods.SELECTOR, metadata_only=True)
    return left + [pod for pod in touched if names.REFRESH_ANNOTATION in (pod["metadata"].get("annotations") or {})]


def note_configmap(configmap: Document, account: UninstallResult) -> None:
    """What becomes of it."""
    label = f"ConfigMap {configmap['metadata']['namespace']}/{configmap['metadata']['name']}"
    mine, theirs = ownership_marks.keys_of(configmap)
    if not _is_our_own(configmap):
        account.took(label, mine + theirs, theirs, "our entries taken out")
        account.keeps(label, "this collection did not make it")
    elif theirs:
        account.took(label, mine + theirs, theirs, "our entries taken out")
        account.keeps(label, f"somebody else has entries in it: {', '.join(theirs[:_TOLD])}")
    else:
        account.took(label, mine)


def clear_configmap(client: Client, configmap: Document) -> None:
    """Delete it, or take out what is ours; raises a conflict when somebody has written it since it was read."""
    metadata = configmap["metadata"]
    path = object_path("v1", "ConfigMap", metadata["name"], metadata["namespace"])
    mine, theirs = ownership_marks.keys_of(configmap)
    if not theirs and _is_our_own(configmap):
        client.delete(path, body={"preconditions": {"resourceVersion": metadata["resourceVersion"]}})
        return
    body: Object = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "data": dict.fromkeys(mine)}
    labels = dict.fromkeys(ownership_marks.applied_labels(configmap))
    if labels:
        body["metadata"]["labels"] = labels
    patch = ownership_marks.unmarked(client.patch(path, body))
    if patch:
        client.patch(path, patch)


def note_pods(pods: t.Sequence[Document], account: UninstallResult) -> None:
    """What becomes of them; how many there are is chance, so that only this is said."""
    if any(_is_ours(pod) for pod in pods):
        account.took("validation pods", how="deleted")
    if not all(_is_ours(pod) for pod in pods):
        account.took(f"annotation {names.REFRESH_ANNOTATION} of NVIDIA's agents", how="taken off")


def clear_pod(client: Client, pod: Document) -> None:
    """Delete ours, take our annotation off others'; one that is gone already is right."""
    path = object_path("v1", "Pod", pod["metadata"]["name"], pod["metadata"]["namespace"])
    if _is_ours(pod):
        client.delete(path)
        return
    try:
        client.patch(path, {"metadata": {"annotations": {names.REFRESH_ANNOTATION: None}}})
    except ApiError as error:
        if not error.not_found:
            raise


def _is_our_own(configmap: Document) -> bool:
    return configmap["metadata"]["name"] in CONFIGMAPS


def _is_ours(pod: Document) -> bool:
    return _VALIDATION in (pod["metadata"].get("labels") or {})
