# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Flavors' names as GPUs, and names as ids."""

from __future__ import annotations

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.providers.vks.catalog import (
    Offer,
    choose,
    listed,
    plain_offer,
    subnet_offer,
    volume_offer,
)
from ansible_collections.accel.gpu.plugins.module_utils.providers.vks.flavors import flavor_of


def test_gpus_are_what_the_field_says_and_the_models_what_the_name_says() -> None:
    row = {"flavorId": "flav-1", "name": "g4-standard-16x64-2L40s", "cpu": 16, "memory": 64, "gpu": 2, "zoneId": "z"}
    flavor = flavor_of(row, "other")
    assert (flavor.id, flavor.gpus, flavor.zone, flavor.available) == ("flav-1", 2, "z", True)
    assert flavor.model is not None
    assert flavor.told()["model"] == "L40S"
    # Neither is a machine without GPUs one that has some by its name, nor is a field that is missing a 0.
    assert flavor_of({**row, "gpu": 0}, "z").models == ()
    assert flavor_of({"name": row["name"]}, "z").gpus == 2


@pytest.mark.parametrize(
    ("row", "available"),
    [
        ({}, True),
        ({"remainingVms": 3}, True),
        ({"remainingVms": 0}, False),
        ({"isSoldOut": True, "remainingVms": 3}, False),
    ],
)
def test_sold_out(row: dict[str, object], available: bool) -> None:
    assert flavor_of(row, "z").available is available


KEYS = [
    Offer("ssh-1", "ops"),
    Offer("ssh-2", "twin", note="older"),
    Offer("ssh-3", "twin"),
    Offer("ssh-4", "gone", usable=False),
]


@pytest.mark.parametrize(
    ("wanted", "found", "says"),
    [
        ("ops", "ssh-1", ""),
        ("ssh-3", "ssh-3", ""),
        ("twin", None, "'twin' is the name of 2 in project p: ssh-2 (older), ssh-3. Give the id."),
        ("gone", None, "'gone' in project p cannot be used now"),
        ("opps", None, "there is no 'opps' in project p. There are ops, twin."),
    ],
)
def test_a_name_means_one_thing_or_is_refused(wanted: str, found: str | None, says: str) -> None:
    choice = choose("ssh_key", wanted, KEYS, "project p")
    assert choice.id == found
    assert says in (choice.problem or "")
    assert (choice.id is None) == (choice.problem is not None)


def test_a_volume_type_may_be_called_by_its_kind_where_that_means_one() -> None:
    rows = [
        {"id": "vtype-1", "name": "nvme-iops3000", "iops": 3000},
        {"id": "vtype-2", "name": "nvme-iops5000", "iops": 5000},
    ]
    nvme = [volume_offer(row, "NVME") for row in rows]
    ssd = volume_offer({"id": "vtype-3", "name": "ssd-iops3000", "iops": 3000}, "SSD")
    assert choose("disk_type", "SSD", [*nvme, ssd], "zone").id == "vtype-3"
    assert choose("disk_type", "NVME-5000", [*nvme, ssd], "zone").id == "vtype-2"
    assert "is the name of 2" in str(choose("disk_type", "NVME", [*nvme, ssd], "zone").problem)


def test_many_are_told_by_those_spelt_alike() -> None:
    names = [f"g4-standard-{cpus}x64-1L40s" for cpus in range(2, 40)] + ["s-1x1"]
    told = listed("g4-standard-3x64-1L40", names)
    assert "g4-standard-3x64-1L40s" in told
    assert "s-1x1" not in told
    assert "more." in told
    assert listed("x", []) == "There is none at all."


def test_rows_of_any_generation() -> None:
    subnet = subnet_offer(
        {
            "uuid": "sub-1",
            "name": "a",
            "zone": {"uuid": "HCM03-1A", "name": "1A"},
            "secondarySubnets": [{"cidr": "10.1.0.0/16"}],
        }
    )
    assert (subnet.id, subnet.usable) == ("sub-1", True)
    assert subnet.facts["zone"] == "HCM03-1A"
    assert subnet.facts["secondary_cidrs"] == ["10.1.0.0/16"]
    assert subnet_offer({"id": "sub-2", "status": "DELETING"}).usable is False
    assert plain_offer({"id": "secg-1", "name": "default", "isSystem": True}).facts == {"system": True}
