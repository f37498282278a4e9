# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The license state of nodes in the metrics of dcgm-exporter."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.kube.transport import PodLimits
from ansible_collections.accel.gpu.plugins.module_utils.licensing.diagnosis import LicenseNode, LicenseStatus, Reading
from ansible_collections.accel.gpu.plugins.module_utils.licensing.license_metrics import LicenseMetrics, parse_metrics
from tests.helpers.license_nodes import NAMESPACE, license_node

METRIC = "DCGM_FI_DEV_VGPU_LICENSE_STATUS"
HEAD = f"# HELP {METRIC} vGPU License status\n# TYPE {METRIC} gauge\n"


def sample(value: object, gpu: int = 0, model: str = "NVIDIA A100-10C", name: str = METRIC) -> str:
    # The labels of dcgm-exporter 4.4.2-4.7.0 with a pod that uses the GPU.
    return (
        f'{name}{{gpu="{gpu}",UUID="GPU-a0acdf3c-{gpu}",pci_bus_id="00000000:03:00.0",device="nvidia{gpu}",modelName="{model}",Hostname="n1",'
        f'DCGM_FI_DRIVER_VERSION="580.95.05",container="cuda",namespace="default",pod="cuda-75454ffb9f-jpwkc"}} {value}\n'
    )


LICENSED = LicenseStatus("licensed", "Licensed", vgpu_type="NVIDIA A100-10C")
UNLICENSED = LicenseStatus("unlicensed", "Unlicensed", vgpu_type="NVIDIA A100-10C")
# DCGM's 64-bit value of a field that is not known (dcgmlib/dcgm_structs.h, DCGM_INT64_BLANK).
BLANK = 0x7FFFFFFFFFFFFFF0
OTHER = sample(0, name="DCGM_FI_DEV_GPU_UTIL")


def unknown(value: str) -> LicenseStatus:
    return LicenseStatus("unknown", value)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (HEAD + sample(1), LICENSED),
        (OTHER + HEAD + sample(0) + OTHER, UNLICENSED),
        (sample(1) + sample(0, 1) + sample(1, 2), UNLICENSED),
        (sample(1) + sample(1, 1, "NVIDIA A100-20C"), LICENSED),
        (f"{METRIC} 1", LicenseStatus("licensed", "Licensed")),
        (f'{METRIC}{{err="a}} 0",gpu="0"}} 1 1700000000000\n', LicenseStatus("licensed", "Licensed")),
        (OTHER, None),
        (HEAD, None),
        (sample(2), unknown('"2"')),
        (sample("NaN"), unknown('"NaN"')),
        (sample("1e999"), unknown('"1e999"')),
        (sample(""), unknown('""')),
        (sample(1) + sample(BLANK, 1), unknown(f'"{BLANK}"')),
        (sample(BLANK) + sample(0, 1), UNLICENSED),
        (sample("1.0") + sample("1e0", 1), LICENSED),
        (sample("0.0 1700000000000"), UNLICENSED),
        (sample("\t1\t1700000000000\r"), LICENSED),
        (f"{METRIC}\t1", LicenseStatus("licensed", "Licensed")),
        (f'{METRIC} {{ gpu = "0" , modelName = "A" , }} 1', LicenseStatus("licensed", "Licensed", vgpu_type="A")),
        (sample('0 # {trace="a"} 1'), UNLICENSED),
        (sample('# {trace="a"} 1'), unknown('"#"')),
        (sample(1, model='A \\\\ \\"B\\", C'), LicenseStatus("licensed", "Licensed", vgpu_type='A \\ "B", C')),
        (sample(1, model="A\x1b[31m\\nB"), LicenseStatus("licensed", "Licensed", vgpu_type="A[31mB")),
        (sample(1, model="A" * 5000), LicenseStatus("licensed", "Licensed", vgpu_type="A" * 100)),
        (f'{METRIC}{{other_modelName="A",x="modelName=\\"B\\""}} 1', LicenseStatus("licensed", "Licensed")),
        (sample(1) + f'{METRIC}{{gpu="1 0\n', unknown('""')),
        (sample(1, name=f"{METRIC}_OLD"), None),
        ("", None),
    ],
)
def test_states(text: str, status: LicenseStatus | None) -> None:
    assert parse_metrics(text) == status


class Exporters:
    """Exporters by node, in place of the API client: the text of the metrics, or an error."""

    def __init__(self, by_node: dict[str, str | ApiError], deleted: str = "") -> None:
        self._by_node, self._deleted = by_node, deleted

    def list(self, path: str, *, label_selector: str, field_selector: str) -> list[dict[str, Any]]:
        assert (path, label_selector) == (f"/api/v1/namespaces/{NAMESPACE}/pods", "app=nvidia-dcgm-exporter")
        assert field_selector == "status.phase!=Succeeded,status.phase!=Failed"
        return [
            {
                "metadata": {
                    "name": f"exporter-{node}",
                    **({"deletionTimestamp": "x"} if node == self._deleted else {}),
                },
                "spec": {"nodeName": node},
            }
            for node in self._by_node
        ]

    def read_pod(self, path: str, limits: PodLimits, *, is_final: Any) -> bytes:
        assert limits == PodLimits(seconds=10, size=4 * 1024 * 1024)
        node = path.removeprefix(f"/api/v1/namespaces/{NAMESPACE}/pods/exporter-").removesuffix(":9400/proxy/metrics")
        answer = self._by_node[node]
        if isinstance(answer, ApiError):
            # Other failures of the server are temporary.
            assert is_final(answer) == ("trying to reach" in answer.message)
            raise answer
        return answer.encode()


def error(status: int, message: str, *, of_server: bool = False) -> ApiError:
    failed = ApiError(message, status=status, method="GET", path="/proxy")
    failed.has_status_object = of_server
    return failed


def read(exporters: Exporters, *nodes: LicenseNode) -> dict[str, Reading]:
    return LicenseMetrics(cast(Any, exporters), NAMESPACE).read_all(nodes)


REFUSED = "error trying to reach service: dial tcp 10.1.2.3:9400: connect: connection refused"


@pytest.mark.parametrize(
    ("answer", "status", "text"),
    [
        (sample(1), LICENSED, ""),
        (sample(0), UNLICENSED, ""),
        (
            OTHER,
            None,
            f"Pod exporter-n1 does not export {METRIC}. Add it to the metrics in the ConfigMap that dcgmExporter",
        ),
        (
            error(503, REFUSED),
            None,
            f"The API server cannot reach port 9400 of pod exporter-n1 ({REFUSED}). Check the log",
        ),
        (error(404, 'pods "exporter-n1" not found'), None, 'pods "exporter-n1" not found.'),
        (error(500, "failed"), None, "failed."),
        (error(500, "\x1b[31mfailed"), None, "\\u001b[31mfailed."),
        (
            error(401, "Log in"),
            None,
            "Pod exporter-n1 refuses to return its metrics (401: Log in). Allow requests without authentication, or set",
        ),
        (
            error(403, "RBAC: access denied"),
            None,
            "Pod exporter-n1 refuses to return its metrics (403: RBAC: access denied).",
        ),
        (error(403, "denied", of_server=True), None, "Pod exporter-n1 refuses to return its metrics (403: denied)."),
        (
            sample(BLANK),
            None,
            f'Pod exporter-n1 exports {METRIC} with the value "{BLANK}", which is not a license state (0 or 1). Check the log of the pod, or set',
        ),
    ],
)
def test_readings(answer: str | ApiError, status: LicenseStatus | None, text: str) -> None:
    reading = read(Exporters({"n1": answer}), license_node("n1"))["n1"]
    assert (reading.status, reading.from_metric) == (status, status is not None)
    assert reading.error.startswith(text)
    assert bool(reading.error) == bool(text)


@pytest.mark.parametrize("exporters", [Exporters({"n2": sample(1)}), Exporters({"n1": sample(1)}, deleted="n1")])
def test_a_node_without_exporter(exporters: Exporters) -> None:
    reading = read(exporters, license_node("n1"))["n1"]
    assert reading.error.startswith("The node has no dcgm-exporter pod. Enable dcgmExporter in the ClusterPolicy, ")


def test_a_node_whose_driver_does_not_run_is_not_read() -> None:
    assert read(Exporters({"n1": error(500, "")}), license_node("n1", failure="crash")) == {"n1": Reading()}


@pytest.mark.parametrize(
    "answer",
    [
        error(403, 'pods "p" is forbidden: User "joe" cannot get resource "pods/proxy" in API group ""'),
        error(401, "Unauthorized", of_server=True),
        ApiError("Connection refused", reason="Refused", sent=False),
    ],
)
def test_an_error_that_concerns_every_node(answer: ApiError) -> None:
    with pytest.raises(ApiError) as caught:
        read(Exporters({"n1": answer}), license_node("n1"))
    assert caught.value is answer
