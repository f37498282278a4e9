# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the license state of nodes from the metric of dcgm-exporter, through the API server's proxy to its pods.

Source: DCGM dcgmlib/dcgm_fields.h (field 526; 0: not licensed, 1: licensed); NVIDIA/dcgm-exporter etc/default-counters.csv and
etc/dcp-metrics-included.csv (both list the metric); gpu-operator assets/state-dcgm-exporter (label and port of the pods).
"""

from __future__ import annotations

import functools
import re
import typing as t

from ..catalog.names import LIVE_PODS
from ..catalog.operands import DCGM_EXPORTER
from ..core.messages import quote
from ..kube.errors import ApiError
from ..kube.fields import is_deleting
from ..kube.paths import collection_path, object_path
from ..kube.transport import PodLimits
from ..nodes.pods import node_of
from .diagnosis import (
    LICENSED,
    UNKNOWN,
    UNLICENSED,
    LicenseNode,
    LicenseStatus,
    Reading,
    printable_characters,
    read_parallel,
    shorten,
    worst,
)
from .token import SOURCE_OPTION

if t.TYPE_CHECKING:
    from ..kube.client import Client

METRIC = "DCGM_FI_DEV_VGPU_LICENSE_STATUS"
_PORT = 9400
# Prometheus's default timeout for an exporter, and a size limit far above the size of a node's metrics.
_LIMITS = PodLimits(seconds=10, size=4 * 1024 * 1024)
# Matches a sample in the text format of Prometheus or OpenMetrics. In OpenMetrics, an exemplar may follow the value.
_SAMPLE = re.compile(rf"^[ \t]*{METRIC}(?![\w:])(.*)$", re.MULTILINE | re.ASCII)
_LABEL = re.compile(r'[{,][ \t]*(\w+)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*', re.ASCII)
_END_OF_LABELS = re.compile(r"[{,]?[ \t]*\}")
_ESCAPE = re.compile(r"\\(.)")
_STATES = {0.0: UNLICENSED, 1.0: LICENSED}
# The API server's error message if it cannot connect to the pod (apimachinery pkg/util/proxy/transport.go).
_NO_CONNECTION = "error trying to reach service"
_OTHER_SOURCE = f"or set {SOURCE_OPTION} to nvidia_smi"


def parse_metrics(text: str) -> LicenseStatus | None:
    """The state of a node according to its metrics; a node with several vGPUs has the worst of their states. None if the metric is missing.

    If the value of the metric is not 0 or 1, the state is UNKNOWN, and `text` contains the value.
    """
    return worst(_status(sample[1]) for sample in _SAMPLE.finditer(text))


def _status(rest: str) -> LicenseStatus:
    """The state of one vGPU; `rest` is the part of its sample after the name of the metric."""
    labels, value = _labels_and_value(rest.strip(" \t\r"))
    try:
        state = _STATES[float(value)]
    except (ValueError, KeyError):
        return LicenseStatus(UNKNOWN, quote(value))
    return LicenseStatus(state, state.capitalize(), vgpu_type=printable_characters(labels.get("modelName", "")))


def _labels_and_value(rest: str) -> tuple[dict[str, str], str]:
    """The labels of a sample, and its value; the value is empty if the labels are not well-formed."""
    labels: dict[str, str] = {}
    position = 0
    while label := _LABEL.match(rest, position):
        labels[label[1]] = _ESCAPE.sub(_unescape, label[2])
        position = label.end()
    if rest.startswith("{"):
        end = _END_OF_LABELS.match(rest, position)
        if end is None:
            return labels, ""
        position = end.end()
    return labels, next(iter(rest[position:].split()), "")


def _unescape(escape: re.Match[str]) -> str:
    return "\n" if escape[1] == "n" else escape[1]


class LicenseMetrics:
    """The metrics of one cluster's nodes. Reading them does not require permission to run commands in pods."""

    def __init__(self, client: Client, namespace: str) -> None:
        """Store the arguments; no request is sent yet. `namespace` is the operator's namespace."""
        self._client = client
        self._namespace = namespace

    def read_all(
        self, nodes: t.Sequence[LicenseNode], on_done: t.Callable[[int], None] = lambda done: None
    ) -> dict[str, Reading]:
        """The readings of all nodes by name. In contrast to those of LicenseContainers.read_all(), they contain no files and no clocks."""
        pods = self._exporters()
        calls = [
            (node.name, functools.partial(self._read, pods.get(node.name)))
            for node in nodes
            if node.running_pod is not None
        ]
        return {node.name: Reading() for node in nodes} | read_parallel(calls, on_done)

    def _exporters(self) -> dict[str, str]:
        """The names of the dcgm-exporter pods by node."""
        path = collection_path("v1", "Pod", self._namespace)
        pods = self._client.list(path, label_selector=f"app={DCGM_EXPORTER}", field_selector=LIVE_PODS)
        return {node_of(pod): pod["metadata"]["name"] for pod in pods if not is_deleting(pod)}

    def _read(self, pod: str | None) -> Reading:
        if pod is None:
            return Reading(
                error=f"The node has no dcgm-exporter pod. Enable dcgmExporter in the ClusterPolicy, {_OTHER_SOURCE}."
            )
        path = object_path("v1", "Pod", f"{pod}:{_PORT}", self._namespace)
        try:
            data = self._client.read_pod(f"{path}/proxy/metrics", _LIMITS, is_final=_is_unreachable)
        except ApiError as error:
            if _is_of_pod(error):
                return Reading(
                    error=f"Pod {pod} refuses to return its metrics ({error.status}: {shorten(error.message)}). Allow requests without authentication, "
                    f"{_OTHER_SOURCE}."
                )
            if not _is_unreachable(error):
                raise
            return Reading(
                error=f"The API server cannot reach port {_PORT} of pod {pod} ({shorten(error.message)}). Check the log of the pod and the network "
                f"policies, {_OTHER_SOURCE}."
            )
        status = parse_metrics(data.decode(errors="replace"))
        if status is None:
            return Reading(
                error=f"Pod {pod} does not export {METRIC}. Add it to the metrics in the ConfigMap that dcgmExporter.config of the ClusterPolicy names, "
                f"{_OTHER_SOURCE}."
            )
        if status.state == UNKNOWN:
            return Reading(
                error=f"Pod {pod} exports {METRIC} with the value {status.text}, which is not a license state (0 or 1). Check the log of the pod, "
                f"{_OTHER_SOURCE}."
            )
        return Reading(status, from_metric=True)


def _is_of_pod(error: ApiError) -> bool:
    """Whether the pod (for example, its authentication proxy) refuses the request, and not the API server."""
    return not error.lacks_right if error.status == 403 else error.status == 401 and not error.has_status_object


def _is_unreachable(error: ApiError) -> bool:
    return _NO_CONNECTION in error.message
