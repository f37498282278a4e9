# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules about sharing agree with the measurements."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.catalog import mig, models
from ansible_collections.accel.gpu.plugins.module_utils.catalog.models import BUSY, SMS_BY_MODEL, WAITING


@pytest.mark.parametrize("row", BUSY, ids=str)
def test_the_rules_say_what_was_measured(row: models.BusyPods) -> None:
    assert row.share * row.pods == pytest.approx(models.TOTAL[row.mode], rel=0.03)
    assert 0.9 < row.fairness <= 1


@pytest.mark.parametrize("row", [row for row in WAITING if row.mode == "time-slicing"], ids=str)
def test_no_pod_waited_longer_than_the_line_states(row: models.LaunchLatency) -> None:
    alone = WAITING[0].p99_ms
    assert row.median_ms <= row.p99_ms <= alone + models.measured_wait_ms(row.busy + 1)


def test_parts_of_a_gpu_are_no_more_than_it() -> None:
    for key, (whole, of_profile) in SMS_BY_MODEL.items():
        geometry = mig.geometry(key)
        assert geometry is not None
        assert {profile.id for profile in geometry.profiles} == set(of_profile)
        assert all(profile.max_count * of_profile[profile.id] <= whole for profile in geometry.profiles)
    assert max(models.MIB_BY_MODEL["H200"].values()) < next(
        model.memory_mib for model in models.MODELS if model.key == "H200"
    )


def test_the_webinars_loss_by_mig_is_that_of_the_sms() -> None:
    actual = SMS_BY_MODEL["A100-PCIE-40GB"]
    lost = 100 * (1 - actual[1][0] / actual[0])
    assert models.WEBINAR_MIG.per_cent == pytest.approx([lost] * 3, abs=0.4)


@given(st.sampled_from(["time-slicing", "mps"]), st.integers(2, 249))
def test_more_pods_never_get_more(mode: str, replicas: int) -> None:
    assert models.measured_share(mode, replicas + 1) < models.measured_share(mode, replicas) < 1 / replicas * 1.01
    assert models.measured_wait_ms(replicas + 1) > models.measured_wait_ms(replicas)
