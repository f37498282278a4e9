# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read of an OVA: the descriptor, the members of the archive, and the checksum of the stream."""

from __future__ import annotations

import hashlib
import io
import tarfile
import typing as t
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.core.errors import InvalidOptions
from ansible_collections.accel.gpu.plugins.module_utils.core.http import ConnectionPools
from ansible_collections.accel.gpu.plugins.module_utils.vsphere.ova import (
    BLOCK,
    HashedStream,
    OpenOva,
    OvaError,
    OvaSource,
    TarStream,
    Upload,
    open_ova,
    parse_descriptor,
)

SOURCE = OvaSource("/images/rhcos.ova", "0" * 64)
HEAD = (
    '<Envelope xmlns="http://schemas.dmtf.org/ovf/envelope/1" xmlns:ovf="http://schemas.dmtf.org/ovf/envelope/1" '
    'xmlns:vssd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_VirtualSystemSettingData">'
)


def descriptor(
    *, networks: int = 1, systems: t.Sequence[str] = ("vmx-15",), products: t.Sequence[str] = ("418.94",)
) -> str:
    """An OVF descriptor with these parts."""
    declared = "".join(f'<Network ovf:name="net {number}"/>' for number in range(networks))
    kinds = "".join(f"<System><vssd:VirtualSystemType>{system}</vssd:VirtualSystemType></System>" for system in systems)
    versions = "".join(f"<ProductSection><Version>{product}</Version></ProductSection>" for product in products)
    return (
        f"{HEAD}<NetworkSection>{declared}</NetworkSection><VirtualSystem>{kinds}{versions}</VirtualSystem></Envelope>"
    )


def archive(*members: tuple[str, bytes]) -> bytes:
    """A tar archive as RHCOS has it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def stream_of(data: bytes, block: int = BLOCK) -> HashedStream:
    """A stream whose source never returns more than `block` bytes."""
    file = io.BytesIO(data)
    return HashedStream(lambda size: file.read(min(size, block)))


def members_of(data: bytes, block: int = BLOCK) -> list[tuple[str, bytes]]:
    """All members of an archive with their contents."""
    stream = stream_of(data, block)
    try:
        members, actual = TarStream(stream), []
        while (member := members.next()) is not None:
            parts = []
            while part := members.read():
                parts.append(part)
            actual.append((member.name, b"".join(parts)))
        return actual
    finally:
        stream.stop()


@pytest.mark.parametrize(
    ("parts", "hardware", "release"),
    [
        ({}, 15, "418.94"),
        # The newest hardware version counts.
        ({"systems": ["vmx-15 vmx-17"]}, 17, "418.94"),
        ({"systems": ["vmx-9", "vmx-13,vmx-8"]}, 13, "418.94"),
        ({"systems": [" vmx-20 "]}, 20, "418.94"),
        ({"systems": []}, 0, "418.94"),
        ({"systems": ["", "xen-3", "vmx-", "virtualbox-2.2"]}, 0, "418.94"),
        ({"systems": ["vmx-" + "9" * 6000]}, 0, "418.94"),
        # The first product with a version counts.
        ({"products": []}, 15, ""),
        ({"products": ["", "  ", " 9.6 "]}, 15, "9.6"),
    ],
)
def test_descriptor(parts: dict[str, t.Any], hardware: int, release: str) -> None:
    text = descriptor(**parts)
    actual = parse_descriptor(text)
    assert (actual.text, actual.networks, actual.hardware, actual.release) == (text, ("net 0",), hardware, release)


def test_a_descriptor_may_have_a_declaration_and_comments() -> None:
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<!-- RHCOS -->\n{descriptor()}'
    assert parse_descriptor(text).hardware == 15


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (descriptor(networks=0), "declares 0 networks, but the image of a node has exactly one"),
        (descriptor(networks=2), "declares 2 networks, but the image of a node has exactly one"),
        ("<Envelope/>", "declares 0 networks"),
        # Elements of other namespaces are other elements.
        ('<Envelope><Network name="a"/></Envelope>', "declares 0 networks"),
        ("", "is not XML: "),
        ("not XML", "is not XML: "),
        (descriptor()[:-1], "is not XML: "),
        ("\ufffd\0" + descriptor(), "is not XML: "),
        (f"<!DOCTYPE Envelope>{descriptor()}", "declares a document type"),
        (f'<!DOCTYPE Envelope [<!ENTITY a "b">]>{descriptor()}', "declares a document type"),
        (
            f'<?xml version="1.0"?><!DOCTYPE Envelope SYSTEM "http://192.0.2.1/x">{descriptor()}',
            "declares a document type",
        ),
        (descriptor(products=['<!ENTITY a "b">']), "declares a document type"),
    ],
)
def test_a_descriptor_that_is_none(text: str, message: str) -> None:
    with pytest.raises(OvaError) as raised:
        parse_descriptor(text)
    assert message in str(raised.value)


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 1024, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 700])
def test_a_member_ends_where_its_padding_begins(size: int) -> None:
    members = [("coreos.ovf", b"o" * size), ("disk.vmdk", bytes(range(256)) * 3), ("last", b"z" * size)]
    assert members_of(archive(*members)) == members


@given(
    st.lists(st.binary(max_size=1500), max_size=4),
    st.integers(1, 700),
)
def test_members_do_not_depend_on_the_blocks_of_the_source(contents: list[bytes], block: int) -> None:
    members = [(f"file-{number}", content) for number, content in enumerate(contents)]
    assert members_of(archive(*members), block) == members


def test_what_is_not_read_of_a_member_is_skipped() -> None:
    stream = stream_of(archive(("a", b"a" * (BLOCK + 700)), ("b", b"b" * 1000), ("c", b"c")), 4096)
    members = TarStream(stream)
    names = []
    while (member := members.next()) is not None:
        names.append(member.name)
        assert members.read(300) == member.name.encode() * min(300, member.size)
    stream.stop()
    assert names == ["a", "b", "c"]


def test_an_archive_that_is_cut_anywhere_is_too_short() -> None:
    whole = archive(("coreos.ovf", b"o" * 700), ("disk.vmdk", b"d" * 1024))
    # The end of the archive is one empty header at least: 512 + 1024 for the first member, 512 + 1024 for the second.
    end = 3 * 1024 + 512
    boundaries = {edge + offset for edge in range(0, end, 512) for offset in (-1, 0, 1)} - {-1}
    for cut in sorted(boundaries | {end - 1}):
        with pytest.raises(OvaError, match="too early"):
            members_of(whole[:cut])
    assert len(members_of(whole[:end])) == 2


def crafted(size: bytes) -> bytes:
    """A header with any size field, and the right checksum."""
    header = bytearray(archive(("coreos.ovf", b""))[:512])
    header[124:136] = size
    header[148:156] = b" " * 8
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    return bytes(header)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"<html>" + b"x" * 506, "The OVA is not a tar archive"),
        (b"PK\3\4" + bytes(508), "The OVA is not a tar archive"),
        (b"\xff" * 512, "The OVA is not a tar archive"),
        # A number in base 256: -1, and more bytes than follow.
        (crafted(b"\xff" * 12), "The OVA is not a tar archive: the size of a file is negative"),
        (crafted(b"\x80" + b"\0" * 3 + b"\x7f" * 8), "bytes too early"),
        (crafted(b"not a number"), "The OVA is not a tar archive"),
    ],
)
def test_a_header_that_is_none(header: bytes, message: str) -> None:
    with pytest.raises(OvaError, match=message):
        members_of(header + bytes(2048))


@given(st.binary(min_size=512, max_size=512).filter(lambda header: any(header)))
def test_a_random_header_is_refused(header: bytes) -> None:
    with pytest.raises(OvaError):
        members_of(header + bytes(1024))


@given(st.binary(max_size=5000), st.integers(1, 800), st.lists(st.integers(1, 900), max_size=6))
def test_the_checksum_is_that_of_the_whole_stream(data: bytes, block: int, sizes: list[int]) -> None:
    stream = stream_of(data, block)
    parts = [stream.read(size) for size in sizes]
    assert data.startswith(b"".join(parts))
    assert stream.finish() == hashlib.sha256(data).hexdigest()
    assert stream.read(1) == b""


def test_exactly_so_many_bytes() -> None:
    stream = stream_of(b"abcdefgh", 3)
    assert stream.exactly(0) == b""
    assert stream.exactly(5) == b"abcde"
    with pytest.raises(OvaError, match="The OVA ends 2 bytes too early"):
        stream.exactly(5)
    stream.stop()
    stream.stop()


def test_the_descriptor_is_the_first_member() -> None:
    text = descriptor()
    stream = stream_of(archive(("coreos.ovf", text.encode()), ("disk.vmdk", b"d" * 513)), 100)
    ova = OpenOva(SOURCE, stream)
    assert (ova.descriptor.release, ova.descriptor.text) == ("418.94", text)
    member = ova.members.next()
    assert member is not None
    assert (member.name, member.size, ova.members.read(600)) == ("disk.vmdk", 513, b"d" * 100)
    stream.stop()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (archive(("disk.vmdk", b"d"), ("coreos.ovf", descriptor().encode())), "is not an OVF descriptor"),
        (archive(), "is not an OVF descriptor"),
        (archive(("big.ovf", bytes((4 << 20) + 1))), "is not an OVF descriptor"),
        (archive(("coreos.ovf", b"\xff\xfe")), "is not XML"),
        (archive(("coreos.ovf", b"")), "is not XML"),
        (b"", "too early"),
    ],
)
def test_another_file_is_no_ova(data: bytes, message: str) -> None:
    stream = stream_of(data)
    with pytest.raises(OvaError, match=message):
        OpenOva(SOURCE, stream)
    stream.stop()


def test_a_file_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "rhcos.ova"
    path.write_bytes(archive(("coreos.ovf", descriptor().encode()), ("disk.vmdk", b"d" * 3000)))
    with open_ova(OvaSource(str(path), ""), ConnectionPools(), 5) as ova:
        assert ova.stream.finish() == hashlib.sha256(path.read_bytes()).hexdigest()
    with (
        pytest.raises(InvalidOptions, match=r"gone\.ova cannot be read: No such file or directory"),
        open_ova(OvaSource(str(tmp_path / "gone.ova"), ""), ConnectionPools(), 5),
    ):
        pass


@pytest.mark.parametrize(
    ("location", "is_url"),
    [
        ("https://mirror.example.com/rhcos.ova", True),
        ("http://m/x", True),
        ("/images/rhcos.ova", False),
        ("rhcos.ova", False),
    ],
)
def test_a_location_is_a_url_or_a_file(location: str, is_url: bool) -> None:
    assert OvaSource(location, "").is_url is is_url


@pytest.mark.parametrize(
    ("pinning", "thumbprint", "used"),
    [(True, "AA:BB", "AA:BB"), (True, None, "ca"), (True, "", "ca"), (False, "AA:BB", "ca")],
)
def test_a_certificate_is_pinned_if_vcenter_reports_it(pinning: bool, thumbprint: str | None, used: str) -> None:
    pools: t.Any = "ca"
    pinned: t.Any = (lambda thumbprint: thumbprint) if pinning else None
    assert t.cast("str", Upload(pools, pinned, "vc:443", 5).pools_for(thumbprint)) == used
