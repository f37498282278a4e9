# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The address of a chart or of a repository holds no secret: neither user information, nor a parameter that is one."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.schema.variables import validate

SECRET = "S3cretPlanted"
RANDOM = "aB3dE5fG7hJ9kL1mN2pQ"
HOST = "charts.example.com/stable"
REFUSED = [
    f"https://{HOST}/x.tgz?token={SECRET}",
    f"https://{HOST}/x.tgz?sig={SECRET}",
    f"https://{HOST}/x.tgz?version=1&X-Amz-Signature={SECRET}",
    f"https://{HOST}/x.tgz?version=1;access_token={SECRET}",
    f"https://{HOST}/x.tgz?to%6ben={SECRET}",
    f"https://{HOST}/x.tgz#token={SECRET}",
    f"https://{HOST}/x.tgz?key={SECRET}",
    f"https://{HOST}/x.tgz?sv=2022&sp=r&sig={SECRET}%3D",
    f"https://{HOST}/x.tgz?a={RANDOM}",
    f"https://{HOST}/x.tgz?{RANDOM}",
    f"https://{HOST}/x.tgz?a=nvapi-{30 * 'x'}",
    f"https://{SECRET}@{HOST}/x.tgz",
    f"https://u:{SECRET}@{HOST}/x.tgz",
]


def problems(which: str, **fields: Any) -> list[str]:
    """The problems of these fields of a release."""
    return validate({"name": "lab", which: fields}, {}, [{"name": "p", "match": {"model": "T4"}}])


@pytest.mark.parametrize("address", REFUSED)
@pytest.mark.parametrize("which", ["operator", "nfd"])
def test_a_secret_in_the_address_of_a_chart_is_refused(which: str, address: str) -> None:
    for field, given in (("chart", {"chart": address}), ("chart_repo", {"chart": "x", "chart_repo": address})):
        (problem,) = problems(which, version="v25.10.1", **given)
        assert problem.startswith(f"gpu_cluster.{which}.{field}: (")
        assert (
            "log in before the run (helm registry login, helm repo add), or download the chart and set its path"
            in problem
        )
        assert SECRET not in problem
        assert RANDOM not in problem


@pytest.mark.parametrize(
    "address",
    [
        f"https://{HOST}/x.tgz",
        f"https://{HOST}/x.tgz?version=1.2.3&download=true",
        f"https://{HOST}/x@v1/x.tgz",
        f"https://{HOST}/x.tgz?checksum={64 * 'a'}",
        f"https://{HOST}/x.tgz?token=",
    ],
)
def test_other_parameters_are_accepted(address: str) -> None:
    assert problems("operator", chart=address) == []
    assert problems("operator", chart_repo=address) == []
    assert problems("operator", chart="oci://registry.example.com/charts/x@sha256:" + 64 * "a") == []
