# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Imports an OVA into vCenter: reads the archive once as a stream, verifies it, and uploads its disks to the ESXi host of the lease.

An RHCOS OVA is a tar archive with the descriptor first and one disk (coreos-assembler, src/cosalib/ova.py). It is never stored on this machine.
"""

from __future__ import annotations

import contextlib
import hashlib
import queue
import re
import tarfile
import threading
import typing as t
from dataclasses import dataclass
from urllib.parse import urlsplit
from xml.etree import ElementTree

from ..catalog.secrets import without_user_info
from ..core.errors import ConnectionProblem, InvalidOptions, ModuleFailure, ServiceError
from ..core.http import HTTP_ERRORS, ConnectionPools, no_answer, only_redirects
from ..core.messages import one_line
from ..core.waits import WaitTimeout, wait_until
from .client import PYVMOMI_IMPORT_ERROR, VCenter, VSphereError, fault_error

if PYVMOMI_IMPORT_ERROR is None:
    from pyVmomi import vim

BLOCK = 1 << 20
_REDIRECTS = 5
# The machine controller refuses templates with an older hardware version (openshift/machine-api-operator, pkg/controller/vsphere/reconciler.go).
MIN_HARDWARE = 15
_MAX_DESCRIPTOR = 4 << 20
_LEASE_INTERVAL = 10.0
_LEASE_READY_SECONDS = 120.0
_REMOVAL_SECONDS = 60.0
_OVF = "{http://schemas.dmtf.org/ovf/envelope/1}"
_VSSD = "{http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_VirtualSystemSettingData}"


class OvaError(ModuleFailure):
    """The OVA cannot be read, is not what was declared, or cannot be uploaded; nothing of it is left in vCenter."""

    code = "ova"


def without_credentials(location: str) -> str:
    """A location without credentials, which can be before the host or in the query."""
    return without_user_info(location).partition("?")[0]


@dataclass(frozen=True)
class OvaSource:
    """The place of an OVA: an HTTP or HTTPS URL, or the path of a file; with its SHA-256, and its release if that is known beforehand."""

    location: str
    sha256: str
    release: str = ""

    @property
    def shown(self) -> str:
        """The location without credentials."""
        return without_credentials(self.location)

    @property
    def is_url(self) -> bool:
        """Whether the location is a URL."""
        return "://" in self.location


@dataclass(frozen=True)
class Descriptor:
    """What an OVF descriptor declares. hardware: the number in vmx-15. release: the version of the product; empty if there is none."""

    text: str
    networks: tuple[str, ...]
    hardware: int
    release: str


def parse_descriptor(text: str) -> Descriptor:
    """The content of an OVF descriptor. Raises OvaError if it is none, or declares something that templates cannot have."""
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise OvaError("The descriptor of the OVA declares a document type, which no OVF descriptor has.")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise OvaError(f"The descriptor of the OVA is not XML: {error}.") from error
    networks = tuple(each.get(f"{_OVF}name", "") for each in root.iter(f"{_OVF}Network"))
    kinds = [(each.text or "").strip() for each in root.iter(f"{_VSSD}VirtualSystemType")]
    versions = [int(number) for kind in kinds for number in re.findall(r"vmx-([0-9]{1,4})\b", kind)]
    products = [each.findtext(f"{_OVF}Version") or "" for each in root.iter(f"{_OVF}ProductSection")]
    release = next((version.strip() for version in products if version.strip()), "")
    if len(networks) != 1:
        raise OvaError(f"The OVA declares {len(networks)} networks, but the image of a node has exactly one.")
    return Descriptor(text, networks, max(versions, default=0), release)


class HashedStream:
    """Reads a stream once. A second thread computes its SHA-256, which takes no additional time, because hashing and TLS release the interpreter's lock."""

    def __init__(self, read: t.Callable[[int], bytes]) -> None:
        """`read` returns at most the requested number of bytes, and nothing at the end."""
        self._read = read
        self._digest = hashlib.sha256()
        self._blocks: queue.Queue[bytes | None] = queue.Queue(maxsize=4)
        self._thread = threading.Thread(target=self._hash, daemon=True)
        self._thread.start()

    def _hash(self) -> None:
        while (block := self._blocks.get()) is not None:
            self._digest.update(block)

    def read(self, size: int) -> bytes:
        """At most `size` bytes; nothing at the end."""
        data = self._read(size)
        if data:
            self._blocks.put(data)
        return data

    def exactly(self, size: int) -> bytes:
        """`size` bytes. Raises OvaError if the stream ends before."""
        parts = []
        while size:
            data = self.read(size)
            if not data:
                raise OvaError(f"The OVA ends {size} bytes too early. Download it again, or check its server.")
            parts.append(data)
            size -= len(data)
        return b"".join(parts)

    def finish(self) -> str:
        """Read the rest; returns the SHA-256 of the whole stream."""
        while self.read(BLOCK):
            pass
        self.stop()
        return self._digest.hexdigest()

    def stop(self) -> None:
        """End the thread."""
        if self._thread.is_alive():
            self._blocks.put(None)
            self._thread.join()


class TarStream:
    """The members of a tar archive in a stream. The stream mode of tarfile copies each block several times, which costs half of the time."""

    def __init__(self, stream: HashedStream) -> None:
        """Start before the first member."""
        self._stream = stream
        self._left = self._padding = 0

    def next(self) -> tarfile.TarInfo | None:
        """The header of the next member; what is left of the current one is skipped. None at the end."""
        while self._left:
            self._left -= len(self._stream.exactly(min(self._left, BLOCK)))
        self._stream.exactly(self._padding)
        self._padding = 0
        header = self._stream.exactly(tarfile.BLOCKSIZE)
        if not header.strip(b"\0"):
            return None
        try:
            member = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            raise OvaError(f"The OVA is not a tar archive: {error}.") from error
        if member.size < 0:
            raise OvaError("The OVA is not a tar archive: the size of a file is negative.")
        self._left, self._padding = member.size, -member.size % tarfile.BLOCKSIZE
        return member

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes of the current member; nothing at its end."""
        data = self._stream.read(min(BLOCK if size < 0 else size, self._left)) if self._left else b""
        self._left -= len(data)
        if not data and self._left:
            raise OvaError(f"The OVA ends {self._left} bytes too early. Download it again, or check its server.")
        return data


class OpenOva:
    """An OVA that is being read: its descriptor, then its disks."""

    def __init__(self, source: OvaSource, stream: HashedStream) -> None:
        """Read the descriptor, which must be the first member."""
        self.source, self.stream, self.members = source, stream, TarStream(stream)
        member = self.members.next()
        if member is None or not member.name.endswith(".ovf") or member.size > _MAX_DESCRIPTOR:
            raise OvaError(f"The first file of {source.shown} is not an OVF descriptor, so it is not an OVA.")
        self.descriptor = parse_descriptor(stream.exactly(member.size).decode(errors="replace"))
        self.members._left = 0


@contextlib.contextmanager
def open_ova(source: OvaSource, pools: ConnectionPools, timeout: float) -> t.Iterator[OpenOva]:
    """Open a file or a download. Raises OvaError if that is impossible."""
    with contextlib.ExitStack() as stack:
        if source.is_url:
            try:
                answer = pools.for_url(source.location).request(
                    "GET", source.location, preload_content=False, retries=only_redirects(_REDIRECTS), timeout=timeout
                )
            except HTTP_ERRORS as error:
                problem = no_answer(_DownloadError, error, path=source.location)
                raise OvaError(
                    f"The OVA cannot be read from {source.shown}: {problem.message}. {problem.remedy}"
                ) from error
            stack.callback(answer.release_conn)
            stack.callback(answer.close)
            if answer.status != 200:
                raise OvaError(
                    f"The OVA cannot be read: {source.shown} answered with status {answer.status}. Check the URL."
                )
            read = _download(answer, source.location)
        else:
            try:
                file = stack.enter_context(open(source.location, "rb", buffering=0))
            except OSError as error:
                raise InvalidOptions([f"ova: the file {source.shown} cannot be read: {error.strerror}"]) from error
            read = file.read
        stream = HashedStream(read)
        stack.callback(stream.stop)
        yield OpenOva(source, stream)


def _download(answer: t.Any, url: str) -> t.Callable[[int], bytes]:
    def read(size: int) -> bytes:
        try:
            return t.cast("bytes", answer.read(size, decode_content=False))
        except HTTP_ERRORS as error:
            raise OvaError(
                f"The download of {url} was interrupted: {one_line(str(error))}. Run the playbook again."
            ) from error

    return read


@dataclass(frozen=True)
class ImportTarget:
    """The objects of vCenter that a template is imported into; `host` is the ESXi host that receives the disks."""

    folder: t.Any
    resource_pool: t.Any
    datastore: t.Any
    network: t.Any
    host: t.Any


@dataclass(frozen=True)
class Upload:
    """How disks are sent to ESXi hosts: connections, whose certificate is verified with a CA or against the one that vCenter reports for the host."""

    pools: ConnectionPools
    pinned: t.Callable[[str], ConnectionPools] | None
    address: str
    timeout: float

    def pools_for(self, thumbprint: str | None) -> ConnectionPools:
        """The connections to a host with this certificate according to vCenter."""
        return self.pinned(thumbprint) if self.pinned and thumbprint else self.pools


def import_ova(
    center: VCenter,
    ova: OpenOva,
    name: str,
    target: ImportTarget,
    configure: t.Callable[[t.Any], None],
    upload: Upload,
    on_progress: t.Callable[[int, int], None],
) -> t.Any:
    """Import an OVA under a name; returns the virtual machine, which is not a template yet.

    configure: adds to the specification of the virtual machine before it is created, so that it is complete from its first moment.
    The checksum is verified before the import is completed. If anything fails, the import is aborted, and vCenter removes the virtual machine.
    """
    descriptor = ova.descriptor
    mapping = vim.OvfManager.NetworkMapping(name=descriptor.networks[0], network=target.network)
    params = vim.OvfManager.CreateImportSpecParams(
        entityName=name, diskProvisioning="thin", networkMapping=[mapping], hostSystem=None
    )
    created = center.call(
        "CreateImportSpec",
        center.content.ovfManager.CreateImportSpec,
        descriptor.text,
        target.resource_pool,
        target.datastore,
        params,
    )
    if created.error:
        texts = "; ".join(one_line(str(each.msg)) for each in created.error)
        raise OvaError(f"vCenter does not accept the OVA {ova.source.shown}: {texts}.")
    configure(created.importSpec.configSpec)
    lease = center.change("ImportVApp", target.resource_pool.ImportVApp, created.importSpec, target.folder, target.host)
    info = None
    try:
        info = _ready(center, lease, name)
        _send_disks(center, lease, info, created.fileItem, ova, upload, on_progress)
        actual = ova.stream.finish()
        if actual != ova.source.sha256:
            raise OvaError(
                f"The SHA-256 of {ova.source.shown} is {actual}, not {ova.source.sha256}: the file is damaged, or not the one that was declared."
            )
        _complete(center, lease, name)
    except BaseException:
        with contextlib.suppress(VSphereError):
            center.call("HttpNfcLeaseAbort", lease.Abort)
        # The import may have ended with its session, which does not remove the virtual machine.
        with contextlib.suppress(VSphereError, WaitTimeout):
            if info is not None:
                center.wait_task(
                    center.call("Destroy_Task", info.entity.Destroy_Task), f"the removal of {name}", _REMOVAL_SECONDS
                )
        raise
    return info.entity


def _complete(center: VCenter, lease: t.Any, name: str) -> None:
    try:
        center.change("HttpNfcLeaseComplete", lease.Complete)
    except ServiceError as error:
        if not error.not_found:
            raise
        raise OvaError(
            f"The import of {name} ended in vCenter before its upload was complete: the session has expired, or somebody has canceled it. Run the playbook "
            "again."
        ) from error


def _ready(center: VCenter, lease: t.Any, name: str) -> t.Any:
    """The information of a lease that accepts uploads."""

    def read() -> t.Any:
        items = center.read([(lease, "")], {"HttpNfcLease": ["state", "error", "info"]})
        return items[0]

    item = wait_until(
        read,
        lambda item: item.get("state") in ("ready", "error"),
        timeout=_LEASE_READY_SECONDS,
        interval=2.0,
        first_interval=0.05,
        describe=lambda item: (
            f"The import of {name} is {item.get('state')} in vCenter. Check the host and the datastore."
        ),
        option="",
    )
    if item.get("state") == "error":
        raise OvaError(str(fault_error(item.get("error"), f"the import of {name}")))
    return item.get("info")


def _send_disks(
    center: VCenter,
    lease: t.Any,
    info: t.Any,
    files: t.Sequence[t.Any],
    ova: OpenOva,
    upload: Upload,
    on_progress: t.Callable[[int, int], None],
) -> None:
    """Send each disk from the archive to its URL, while a thread keeps the lease alive."""
    urls = {each.importKey: each for each in info.deviceUrl}
    items = {item.path: item for item in files}
    total = sum(int(item.size or 0) for item in files)
    with _KeepAlive(center, lease, total, on_progress) as keeper:
        while items and (member := ova.members.next()) is not None:
            item = items.pop(member.name, None)
            if item is not None:
                device = urls[item.deviceId]
                url = device.url.replace("*", upload.address, 1)
                method = "PUT" if item.create else "POST"
                _send(upload.pools_for(device.sslThumbprint), method, url, ova, member, keeper, upload.timeout)
    if items:
        raise OvaError(
            f"The OVA {ova.source.shown} does not contain {', '.join(sorted(items))}, which its descriptor names."
        )


def _send(
    pools: ConnectionPools,
    method: str,
    url: str,
    ova: OpenOva,
    member: tarfile.TarInfo,
    keeper: _KeepAlive,
    timeout: float,
) -> None:
    def blocks() -> t.Iterator[bytes]:
        while data := ova.members.read():
            keeper.done += len(data)
            yield data

    headers = {"Content-Type": "application/x-vnd.vmware-streamVmdk", "Content-Length": str(member.size)}
    host = urlsplit(url).netloc
    try:
        answer = pools.for_url(url).request(
            method, url, body=blocks(), headers=headers, retries=False, timeout=timeout, redirect=False
        )
    except HTTP_ERRORS as error:
        problem = no_answer(_UploadError, error, path=host)
        raise OvaError(f"The upload of {member.name} to {host} failed: {problem.message}. {problem.remedy}") from error
    if answer.status >= 300:
        raise OvaError(
            f"The upload of {member.name} failed: the ESXi host {host} answered with status {answer.status}. Check the host and the free space of its "
            "datastore, and run the playbook again."
        )


class _DownloadError(ServiceError):
    """The server of an OVA did not respond."""

    address_setting = "the URL of the OVA"
    timeout_setting = "request_timeout"
    ca_setting = "ca_cert, in addition to the CA certificate of vCenter"
    proxy_setting = "HTTPS_PROXY and NO_PROXY"


class _UploadError(VSphereError):
    """An ESXi host did not respond."""

    service = "The ESXi host"
    address_setting = "that this machine reaches port 443 of the ESXi hosts"
    ca_setting = "ca_cert (the root certificate of vCenter's CA, https://VCENTER/certs/download.zip)"


class _KeepAlive:
    """Reports the progress of an import to vCenter, which ends leases without a report after five minutes."""

    def __init__(self, center: VCenter, lease: t.Any, total: int, on_progress: t.Callable[[int, int], None]) -> None:
        self._center, self._lease, self._total, self._on_progress = center, lease, max(total, 1), on_progress
        self.done = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> _KeepAlive:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(_LEASE_INTERVAL):
            self._on_progress(self.done, self._total)
            percent = min(99, self.done * 100 // self._total)
            try:
                self._center.call("HttpNfcLeaseProgress", self._lease.Progress, percent)
            except (VSphereError, ConnectionProblem):
                # The upload itself notices a lease that has ended.
                continue
