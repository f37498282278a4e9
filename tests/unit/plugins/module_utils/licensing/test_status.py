# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The license state of a node in the output of nvidia-smi -q."""

from __future__ import annotations

import datetime
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.licensing.diagnosis import LicenseStatus, parse_status

HEAD = "==============NVSMI LOG==============\n\nDriver Version                            : 580.95.05\nAttached GPUs : 1\n"


def gpu(product: str, status: str) -> str:
    return (
        "GPU 00000000:02:00.0\n    Product Name                          : GRID A100-10C\n"
        "    vGPU Software Licensed Product\n"
        f"        Product Name                      : {product}\n        License Status                    : {status}\n"
        "    GPU Virtualization Mode\n        Virtualization Mode               : VGPU\n        License Status : Licensed\n"
    )


def moment(*numbers: int) -> datetime.datetime:
    return datetime.datetime(*numbers, tzinfo=datetime.UTC)  # type: ignore[arg-type,misc]


PRODUCT, TYPE = "NVIDIA Virtual Compute Server", "GRID A100-10C"
EXPIRING, PERMANENT = "Licensed (Expiry: 2026-1-5 4:02:01 GMT)", "Licensed (Expiry: Permanent)"


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (gpu(PRODUCT, EXPIRING), LicenseStatus("licensed", EXPIRING, PRODUCT, moment(2026, 1, 5, 4, 2, 1))),
        (gpu(PRODUCT, PERMANENT), LicenseStatus("licensed", PERMANENT, PRODUCT)),
        (gpu(PRODUCT, "Licensed (Expiry: 2026-13-40 4:02:01 GMT)"), LicenseStatus("licensed", "Licensed (Expiry: 2026-13-40 4:02:01 GMT)", PRODUCT)),
        (gpu(PRODUCT, "Unlicensed (Unrestricted)"), LicenseStatus("unlicensed", "Unlicensed (Unrestricted)", PRODUCT)),
        (gpu(PRODUCT, "Unlicensed (Restricted)"), LicenseStatus("unlicensed", "Unlicensed (Restricted)", PRODUCT)),
        (gpu("N/A", "N/A"), LicenseStatus("not_applicable", "N/A")),
        (gpu(PRODUCT, "Pending"), LicenseStatus("unknown", "Pending", PRODUCT)),
        (gpu(PRODUCT, EXPIRING) + gpu(PRODUCT, "Unlicensed (Restricted)"), LicenseStatus("unlicensed", "Unlicensed (Restricted)", PRODUCT)),
        (gpu(PRODUCT, PERMANENT) + gpu(PRODUCT, EXPIRING), LicenseStatus("licensed", EXPIRING, PRODUCT, moment(2026, 1, 5, 4, 2, 1))),
        (gpu("N/A", "N/A") + gpu(PRODUCT, PERMANENT), LicenseStatus("licensed", PERMANENT, PRODUCT)),
        ("GPU 00000000:02:00.0\n", LicenseStatus("not_applicable")),
    ],
)  # fmt: skip
def test_states(output: str, expected: LicenseStatus) -> None:
    desired = replace(expected, vgpu_type=TYPE) if "License Status" in output else expected
    assert parse_status(HEAD + output) == desired


def test_other_output_is_unknown() -> None:
    assert (
        parse_status("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.").state == "unknown"
    )


@given(st.text())
def test_any_output_is_read(output: str) -> None:
    parse_status(output)
    parse_status(f"vGPU Software Licensed Product\n    License Status : {output}")
