# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes small OVAs that look like those of RHCOS: a tar with coreos.ovf and disk.vmdk (streamOptimized).

The descriptor has what importers read of RHCOS's (coreos/coreos-assembler, src/vmware-template.xml; openshift/os, image-rhel-9.6.yaml): one network, one
disk, the hardware version, the kind of guest, firmware and secure boot as vmw:Config, the properties of ignition, and the version of the product. The disk
has the format of VMware's "Virtual Disk Format 5.0"; most of its data cannot be compressed.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import struct
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

_SECTOR, _GRAIN = 512, 128 * 512
_TABLE_ENTRIES = 512
_AT_END = 0xFFFFFFFFFFFFFFFF
# Newline test, compressed grains, markers.
_FLAGS = 0x30001
_DISK_GIB = 16
_DESCRIPTOR_SECTORS = 20
# The kinds of markers.
_END, _TABLE, _DIRECTORY, _FOOTER = 0, 1, 2, 3
_CIM = "http://schemas.dmtf.org/wbem/wscim/1"
_OVF = """<?xml version="1.0" encoding="UTF-8"?>
<Envelope xmlns="http://schemas.dmtf.org/ovf/envelope/1" xmlns:cim="{cim}/common" xmlns:ovf="http://schemas.dmtf.org/ovf/envelope/1"
  xmlns:rasd="{cim}/cim-schema/2/CIM_ResourceAllocationSettingData" xmlns:vmw="http://www.vmware.com/schema/ovf"
  xmlns:vssd="{cim}/cim-schema/2/CIM_VirtualSystemSettingData">
  <References><File ovf:href="disk.vmdk" ovf:id="file1" ovf:size="{size}"/></References>
  <DiskSection>
    <Info>Disks</Info>
    <Disk ovf:capacity="{capacity}" ovf:capacityAllocationUnits="byte * 2^30" ovf:diskId="vmdisk1" ovf:fileRef="file1"
      ovf:format="http://www.vmware.com/interfaces/specifications/vmdk.html#streamOptimized" ovf:populatedSize="{populated}"/>
  </DiskSection>
  <NetworkSection>
    <Info>Networks</Info>
    <Network ovf:name="VM Network"><Description>The network of the machine</Description></Network>
  </NetworkSection>
  <VirtualSystem ovf:id="rhcos">
    <Info>A virtual machine</Info>
    <Name>rhcos</Name>
    <OperatingSystemSection ovf:id="80" ovf:version="8" vmw:osType="rhel8_64Guest">
      <Info>The operating system</Info>
      <Description>Red Hat Enterprise Linux 8 (64-bit)</Description>
    </OperatingSystemSection>
    <VirtualHardwareSection ovf:transport="com.vmware.guestInfo">
      <Info>Hardware</Info>
      <System>
        <vssd:ElementName>Virtual Hardware Family</vssd:ElementName>
        <vssd:InstanceID>0</vssd:InstanceID>
        <vssd:VirtualSystemIdentifier>rhcos</vssd:VirtualSystemIdentifier>
        <vssd:VirtualSystemType>vmx-{hardware}</vssd:VirtualSystemType>
      </System>
{items}
      <vmw:Config ovf:required="false" vmw:key="firmware" vmw:value="efi"/>
      <vmw:Config ovf:required="false" vmw:key="bootOptions.efiSecureBootEnabled" vmw:value="{secure_boot}"/>
    </VirtualHardwareSection>
    <ProductSection>
      <Info>The installed software</Info>
      <Product>Red Hat Enterprise Linux CoreOS</Product>
      <Vendor>Red Hat</Vendor>
      <Version>{release}</Version>
      <Property ovf:key="guestinfo.ignition.config.data" ovf:type="string" ovf:userConfigurable="true" ovf:value=""/>
      <Property ovf:key="guestinfo.ignition.config.data.encoding" ovf:type="string" ovf:userConfigurable="true" ovf:value=""/>
    </ProductSection>
  </VirtualSystem>
</Envelope>
"""
# The virtual devices: the elements of each, in the order of the schema.
_ITEMS: tuple[dict[str, str], ...] = (
    {"ElementName": "2 CPUs", "InstanceID": "1", "ResourceType": "3", "VirtualQuantity": "2"},
    {
        "AllocationUnits": "byte * 2^20",
        "ElementName": "4096 MB of memory",
        "InstanceID": "2",
        "ResourceType": "4",
        "VirtualQuantity": "4096",
    },
    {"Address": "0", "ElementName": "SCSI", "InstanceID": "3", "ResourceSubType": "VirtualSCSI", "ResourceType": "6"},
    {
        "AddressOnParent": "0",
        "ElementName": "Disk 1",
        "HostResource": "ovf:/disk/vmdisk1",
        "InstanceID": "4",
        "Parent": "3",
        "ResourceType": "17",
    },
    {
        "AddressOnParent": "0",
        "AutomaticAllocation": "true",
        "Connection": "VM Network",
        "ElementName": "Network adapter 1",
        "InstanceID": "5",
        "ResourceSubType": "VmxNet3",
        "ResourceType": "10",
    },
)


def write(path: Path, release: str, *, data_kib: int = 1024, secure_boot: bool = False, hardware: int = 15) -> str:
    """Write the OVA of an RHCOS release with `data_kib` KiB of data, and return its SHA-256; equal arguments give equal files.

    The disk is made twice and never kept, because that of a benchmark is large.
    """
    disk = functools.partial(_disk, _DISK_GIB << 30, data_kib << 10, release.encode())
    size = sum(map(len, disk()))
    descriptor = _OVF.format(
        cim=_CIM,
        size=size,
        capacity=_DISK_GIB,
        populated=data_kib << 10,
        hardware=hardware,
        items="\n".join(f"      <Item>{_elements(item)}</Item>" for item in _ITEMS),
        secure_boot=str(secure_boot).lower(),
        release=release,
    ).encode()
    digest = hashlib.sha256()
    parts = (
        _member("coreos.ovf", len(descriptor), [descriptor]),
        _member("disk.vmdk", size, disk()),
        [b"\0" * 2 * _SECTOR],
    )
    with path.open("wb") as file:
        for part in itertools.chain.from_iterable(parts):
            file.write(part)
            digest.update(part)
    return digest.hexdigest()


def _member(name: str, size: int, parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield a file of a tar."""
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o644
    yield info.tobuf(tarfile.USTAR_FORMAT)
    yield from parts
    yield b"\0" * (-size % _SECTOR)


def _elements(item: dict[str, str]) -> str:
    return "".join(f"<rasd:{name}>{value}</rasd:{name}>" for name, value in item.items())


def _disk(capacity: int, data: int, seed: bytes) -> Iterator[bytes]:
    """Yield the parts of a disk of `capacity` bytes whose first `data` bytes are random; each part is a number of sectors."""
    sectors, grains = capacity // _SECTOR, -(-capacity // _GRAIN)
    yield _header(sectors, _AT_END)
    yield _padded(_text(sectors), _DESCRIPTOR_SECTORS * _SECTOR)
    overhead = 128
    yield b"\0" * (overhead - 1 - _DESCRIPTOR_SECTORS) * _SECTOR
    position = overhead
    directory = []
    for first in range(0, grains, _TABLE_ENTRIES):
        entries = [0] * _TABLE_ENTRIES
        for number in range(first, min(first + _TABLE_ENTRIES, -(-data // _GRAIN))):
            # Random data cannot be compressed, so that no time is spent on it.
            block = zlib.compress(hashlib.shake_128(seed + number.to_bytes(8, "big")).digest(_GRAIN), 0)
            part = _padded(struct.pack("<QI", number * 128, len(block)) + block)
            yield part
            entries[number - first] = position
            position += len(part) // _SECTOR
        if any(entries):
            yield _marker(_TABLE_ENTRIES * 4 // _SECTOR, _TABLE)
            yield struct.pack(f"<{_TABLE_ENTRIES}I", *entries)
            directory.append(position + 1)
            position += 1 + _TABLE_ENTRIES * 4 // _SECTOR
        else:
            directory.append(0)
    table = _padded(struct.pack(f"<{len(directory)}I", *directory))
    yield _marker(len(table) // _SECTOR, _DIRECTORY)
    yield table
    yield _marker(1, _FOOTER)
    yield _header(sectors, position + 1)
    yield _marker(0, _END)


def _header(sectors: int, directory: int) -> bytes:
    """Return the header of the extent; sizes are in sectors."""
    fields = (
        b"KDMV",
        3,
        _FLAGS,
        sectors,
        128,
        1,
        _DESCRIPTOR_SECTORS,
        _TABLE_ENTRIES,
        0,
        directory,
        128,
        0,
        b"\n \r\n",
        1,
    )
    return _padded(struct.pack("<4sIIQQQQIQQQB4sH", *fields))


def _marker(sectors: int, kind: int) -> bytes:
    return _padded(struct.pack("<QII", sectors, 0, kind))


def _padded(data: bytes, multiple: int = _SECTOR) -> bytes:
    return data.ljust(-(-len(data) // multiple) * multiple, b"\0")


def _text(sectors: int) -> bytes:
    lines = (
        "# Disk DescriptorFile",
        "version=1",
        "CID=7e5b80a7",
        "parentCID=ffffffff",
        'createType="streamOptimized"',
        f'RDONLY {sectors} SPARSE "disk.vmdk"',
        'ddb.virtualHWVersion = "15"',
        'ddb.adapterType = "lsilogic"',
        'ddb.geometry.sectors = "63"',
        'ddb.geometry.heads = "255"',
        f'ddb.geometry.cylinders = "{sectors // 16065}"',
    )
    return "\n".join(lines).encode() + b"\n"
