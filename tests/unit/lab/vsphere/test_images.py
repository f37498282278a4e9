# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The OVAs of the lab, and what a new cluster on vSphere says about them."""

from __future__ import annotations

import hashlib
import json
import struct
import tarfile
import xml.etree.ElementTree as ET
import zlib
from pathlib import Path

import pytest

from lab.cloud_settings import CloudFault
from lab.errors import LabError
from lab.layout import Lab
from lab.openshift import objects, releases
from lab.vsphere import images, inventory, ova
from lab.vsphere.part import VSphere

OVF, RASD = (
    "{http://schemas.dmtf.org/ovf/envelope/1}",
    "{http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_ResourceAllocationSettingData}",
)


def test_an_ova_is_a_tar_with_descriptor_and_disk(tmp_path: Path) -> None:
    path = tmp_path / "rhcos.ova"
    digest = ova.write(path, "9.6.20260101-0")
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest() == ova.write(path, "9.6.20260101-0")
    with tarfile.open(path) as tar:
        assert tar.getnames() == ["coreos.ovf", "disk.vmdk"]
        descriptor = ET.parse(tar.extractfile("coreos.ovf"))  # type: ignore[arg-type]
        size = tar.getmember("disk.vmdk").size
    (file,) = descriptor.iter(f"{OVF}File")
    assert file.get(f"{OVF}size") == str(size)
    assert len(list(descriptor.iter(f"{OVF}Network"))) == 1
    assert next(descriptor.iter(f"{OVF}Version")).text == "9.6.20260101-0"
    order = [one.tag.removeprefix(RASD) for one in next(descriptor.iter(f"{OVF}Item"))]
    assert order == sorted(order)


def test_the_disk_has_its_data_where_the_tables_say(tmp_path: Path) -> None:
    path = tmp_path / "rhcos.ova"
    ova.write(path, "1", data_kib=256)
    with tarfile.open(path) as tar:
        stream = tar.extractfile("disk.vmdk")
        assert stream
        disk = stream.read()
    assert disk[:4] == b"KDMV"
    assert len(disk) % 512 == 0
    (directory,) = struct.unpack_from("<Q", disk, len(disk) - 2 * 512 + 56)  # of the footer
    (table,) = struct.unpack_from("<I", disk, directory * 512)
    entries = struct.unpack_from("<512I", disk, table * 512)
    assert [bool(one) for one in entries] == [True] * 4 + [False] * 508
    for number, entry in enumerate(entries[:4]):
        sector, length = struct.unpack_from("<QI", disk, entry * 512)
        assert sector == number * 128
        assert len(zlib.decompress(disk[entry * 512 + 12 : entry * 512 + 12 + length])) == 65536


@pytest.mark.parametrize("minor", releases.RELEASES)
def test_the_boot_images_of_each_release(tmp_path: Path, minor: str) -> None:
    images.write(tmp_path)
    lines = (tmp_path / images.CHECKSUMS).read_text().splitlines()
    checksums = {line.split()[1]: line.split()[0] for line in lines}
    release = releases.find(minor)
    body = images.boot_images(tmp_path, "http://127.0.0.1:1", release)
    vmware = json.loads(body["data"]["stream"])["architectures"]["x86_64"]["artifacts"]["vmware"]
    disk = vmware["formats"]["ova"]["disk"]
    assert checksums[disk["location"].rpartition("/")[2]] == disk["sha256"]
    assert vmware["release"] == images.release_of(release) != images.release_before(release)
    assert images.file_name(images.release_before(release)) in checksums
    assert body["data"]["MCOReleaseImageVersion"] == release.version


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    actual = Lab.named("one", tmp_path)
    actual.record(port_base=20000, openshift="4.20", platform="VSphere")
    return actual


def test_the_failure_domains_are_those_of_the_inventory(lab: Lab) -> None:
    reply = {body["kind"]: body for _path, body in objects.objects(lab, releases.find("4.20"), "VSphere")}
    vsphere = reply["Infrastructure"]["spec"]["platformSpec"]["vsphere"]
    (vcenter,) = vsphere["vcenters"]
    assert (vcenter["server"], vcenter["port"]) == ("127.0.0.1", lab.ports()["vcenter"])
    (center,) = inventory.inventory()["datacenters"]
    clusters = {f"/{center['name']}/host/{cluster['name']}": cluster for cluster in center["clusters"]}
    for domain in vsphere["failureDomains"]:
        topology = domain["topology"]
        assert topology["datastore"].rpartition("/")[2] in clusters[topology["computeCluster"]]["datastores"]
        assert topology["folder"].removeprefix("/DC1/vm/") in center["folders"]
        assert domain["server"] == vcenter["server"]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (CloudFault("vsphere.upload-cut"), "'upload-cut' needs --value: bytes"),
        (CloudFault("vsphere.task-hangs"), "needs --value: a method"),
        (CloudFault("vsphere.host-disconnected"), "needs --group with the name of a host: esx-a1.example.com"),
        (CloudFault("vsphere.host-disconnected", "esx-z.example.com"), "needs --group"),
        (CloudFault("vsphere.lease-error", "esx-a1.example.com"), "omit --group"),
    ],
)
def test_incomplete_faults_are_rejected(lab: Lab, fault: CloudFault, message: str) -> None:
    with pytest.raises(LabError, match=message):
        VSphere().inject(lab, fault)


def test_complete_faults_are_accepted(lab: Lab) -> None:
    for fault in (
        CloudFault("vsphere.host-disconnected", "esx-a1.example.com"),
        CloudFault("vsphere.upload-slow", None, "1000"),
        CloudFault("vsphere.datastore-full"),
    ):
        VSphere().inject(lab, fault)
