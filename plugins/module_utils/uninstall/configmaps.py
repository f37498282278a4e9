# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans the removal of ConfigMaps (foreign entries are kept), of validation pods, and of annotations on NVIDIA's pods."""

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


def configmap_removal(client: Client, configmap: Document, kept: str = "") -> Removal:
    """The removal of a ConfigMap; if it has foreign entries, or `kept` is a reason to keep it, only the collection's entries are removed."""
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


def foreign_configmap_removals(client: Client, configmaps: t.Iterable[tuple[str, str]]) -> t.Iterator[Removal]:
    """The removals of the collection's entries from foreign ConfigMaps, given by namespace and name."""
    for namespace, name in dict.fromkeys(configmaps):
        configmap = client.get(object_path("v1", "ConfigMap", name, namespace))
        if configmap and ownership_marks.is_marked(configmap):
            yield configmap_removal(client, configmap, "this collection did not create it")


def validation_pod_removal(client: Client, pod: Document) -> Removal:
    """The removal of a validation pod of a killed run; the result does not list these pods individually."""
    return Removal("validation pods", send=functools.partial(client.delete, _path("Pod", pod)))


def annotation_removals(client: Client) -> t.Iterator[Removal]:
    """The removals of the annotations that made NVIDIA's pods read their configuration again."""
    for pod in client.list(PODS, label_selector=operand_pods.CONFIGMAP_PODS_SELECTOR, metadata_only=True):
        if names.REFRESH_ANNOTATION in (pod["metadata"].get("annotations") or {}):
            label = f"annotation {names.REFRESH_ANNOTATION} of NVIDIA's agents"
            yield Removal(label, "removed", send=functools.partial(_remove_annotation, client, pod))


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
