# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs of flavors, and the ids of names."""

from __future__ import annotations

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.clouds.vks_clusters import (
    CatalogItem,
    UnresolvedName,
    available,
    flavor_of,
    plain_item,
    resolve,
    subnet_item,
    volume_item,
)


def test_the_number_of_gpus_and_their_models() -> None:
    row = {"flavorId": "flav-1", "name": "g4-standard-16x64-2L40s", "cpu": 16, "memory": 64, "gpu": 2, "zoneId": "z"}
    flavor = flavor_of(row, "other")
    assert (flavor.id, flavor.gpus, flavor.zone, flavor.available) == ("flav-1", 2, "z", True)
    assert flavor.to_result()["model"] == "L40S"
    # The field counts before the name; without the field the name counts.
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
    CatalogItem("ssh-1", "ops"),
    CatalogItem("ssh-2", "twin", note="older"),
    CatalogItem("ssh-3", "twin"),
    CatalogItem("ssh-4", "gone", usable=False),
]


@pytest.mark.parametrize(("expected", "actual"), [("ops", "ssh-1"), ("ssh-3", "ssh-3")])
def test_a_name_or_id_means_one_item(expected: str, actual: str) -> None:
    assert resolve("ssh_key", expected, KEYS, "project p") == actual


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        ("twin", "'twin' is the name of 2 resources in project p: ssh-2 (older), ssh-3. Use the id."),
        ("gone", "'gone' in project p is not usable now"),
        ("opps", "there is no 'opps' in project p. Available: ops, twin."),
    ],
)
def test_another_name_is_refused(expected: str, message: str) -> None:
    with pytest.raises(UnresolvedName) as raised:
        resolve("ssh_key", expected, KEYS, "project p")
    assert message in str(raised.value)


def test_the_kind_of_a_volume_type_is_a_name_where_it_is_unique() -> None:
    rows = [
        {"id": "vtype-1", "name": "nvme-iops3000", "iops": 3000},
        {"id": "vtype-2", "name": "nvme-iops5000", "iops": 5000},
    ]
    nvme = [volume_item(row, "NVME") for row in rows]
    ssd = volume_item({"id": "vtype-3", "name": "ssd-iops3000", "iops": 3000}, "SSD")
    assert resolve("disk_type", "SSD", [*nvme, ssd], "zone") == "vtype-3"
    assert resolve("disk_type", "NVME-5000", [*nvme, ssd], "zone") == "vtype-2"
    with pytest.raises(UnresolvedName, match="is the name of 2"):
        resolve("disk_type", "NVME", [*nvme, ssd], "zone")


def test_of_many_names_similar_ones_are_shown() -> None:
    names = [f"g4-standard-{cpus}x64-1L40s" for cpus in range(2, 40)] + ["s-1x1"]
    text = available("g4-standard-3x64-1L40", names)
    assert "g4-standard-3x64-1L40s" in text
    assert "s-1x1" not in text
    assert "more." in text
    assert available("x", []) == "None is available."


def test_rows() -> None:
    subnet = subnet_item(
        {
            "uuid": "sub-1",
            "name": "a",
            "zone": {"uuid": "HCM03-1A", "name": "1A"},
            "secondarySubnets": [{"cidr": "10.1.0.0/16"}],
        }
    )
    assert (subnet.id, subnet.usable) == ("sub-1", True)
    assert subnet.details["zone"] == "HCM03-1A"
    assert subnet.details["secondary_cidrs"] == ["10.1.0.0/16"]
    assert subnet_item({"id": "sub-2", "status": "DELETING"}).usable is False
    assert plain_item({"id": "secg-1", "name": "default", "isSystem": True}).details == {"system": True}
