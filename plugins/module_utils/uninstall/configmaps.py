# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The removal of the collection's ConfigMaps and pods in all namespaces; foreign entries are kept."""

from __future__ import annotations

import functools
import typing as t

from ..catalog import names
from ..cluster_state import operand_pods
from ..kube.client import Client
from ..kube.errors import ApiError
from ..kube.paths import PODS, object_path
from ..schema.messages import abbreviate
from . import ownership_marks
from .stage import Removal

Document = t.Mapping[str, t.Any]

CONFIGMAPS = (names.DEVICE_PLUGIN_CONFIGMAP, names.MIG_CONFIGMAP, names.VALIDATION_CONFIGMAP)
# The label of validation pods (validation/pods.py).
_VALIDATION = "accel.gpu/validation"


def configmap_removals(client: Client, foreign: t.Iterable[tuple[str, str]]) -> t.Iterator[Removal]:
    """The collection's ConfigMaps in all namespaces (the operator's may have changed), and `foreign` ConfigMaps (namespace, name) with its entries."""
    for name in CONFIGMAPS:
        for configmap in client.list("/api/v1/configmaps", field_selector=f"metadata.name={name}"):
            if ownership_marks.is_marked(configmap):
                yield _configmap_removal(client, configmap, "")
    for namespace, name in dict.fromkeys(foreign):
        if name and name not in CONFIGMAPS:
            found = client.get(object_path("v1", "ConfigMap", name, namespace))
            if found and ownership_marks.is_marked(found):
                yield _configmap_removal(client, found, "this collection did not create it")


def pod_removals(client: Client) -> t.Iterator[Removal]:
    """Validation pods of killed runs, and the annotations that made agents read their configuration again."""
    for pod in client.list(PODS, label_selector=_VALIDATION, metadata_only=True):
        yield Removal("validation pods", send=functools.partial(client.delete, _path("Pod", pod)))
    for pod in client.list(PODS, label_selector=operand_pods.SELECTOR, metadata_only=True):
        if names.REFRESH_ANNOTATION in (pod["metadata"].get("annotations") or {}):
            label = f"annotation {names.REFRESH_ANNOTATION} of NVIDIA's agents"
            yield Removal(label, "removed", send=functools.partial(_remove_annotation, client, pod))


def _configmap_removal(client: Client, configmap: Document, kept: str) -> Removal:
    """The removal of a ConfigMap; if it has foreign entries or is `kept` for a reason, only the collection's entries are removed."""
    metadata = configmap["metadata"]
    label, path = f"ConfigMap {metadata['namespace']}/{metadata['name']}", _path("ConfigMap", configmap)
    own, foreign = ownership_marks.split_keys(configmap)
    if not foreign and not kept:
        body = {"preconditions": {"resourceVersion": metadata["resourceVersion"]}}
        return Removal(label, before=own, send=functools.partial(client.delete, path, body=body))
    return Removal(
        label,
        action="managed entries removed",
        kept=kept or f"it has foreign entries: {abbreviate(foreign)}",
        before=own + foreign,
        after=foreign,
        send=functools.partial(_remove_entries, client, path, configmap, own),
    )


def _remove_entries(client: Client, path: str, configmap: Document, own: list[str]) -> None:
    """Remove the collection's entries and labels; raises a conflict if the ConfigMap has changed since it was read."""
    version = configmap["metadata"]["resourceVersion"]
    body: dict[str, t.Any] = {"metadata": {"resourceVersion": version}, "data": dict.fromkeys(own)}
    labels = dict.fromkeys(ownership_marks.applied_labels(configmap))
    if labels:
        body["metadata"]["labels"] = labels
    patch = ownership_marks.unmark_patch(client.patch(path, body))
    if patch:
        client.patch(path, patch)


def _remove_annotation(client: Client, agent: Document) -> None:
    try:
        client.patch(_path("Pod", agent), {"metadata": {"annotations": {names.REFRESH_ANNOTATION: None}}})
    except ApiError as error:
        if not error.not_found:
            raise


def _path(kind: str, live: Document) -> str:
    return object_path("v1", kind, live["metadata"]["name"], live["metadata"]["namespace"])
