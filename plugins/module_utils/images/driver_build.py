# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds driver images for vGPU guests."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import shutil
import socket
import stat
import tempfile
import typing as t
from dataclasses import dataclass, field
from urllib.request import getproxies, proxy_bypass

from ..catalog.releases import BuildTarget, branch_of, release_with
from ..catalog.secrets import names_a_secret
from ..catalog.vgpu import guest_problem
from ..core.errors import ConnectionProblem, InvalidOptions
from ..core.files import hold_lock, is_abandoned_lock, make_folder, remove_folders, temporary_folder
from ..core.messages import quote, type_name
from ..core.waits import run_bounded

if t.TYPE_CHECKING:
    from ..core.values import Document
    from ..registry.images import ImageTools
    from ..registry.reference import ImageReference

# Determines from the name of an installer file which driver it contains (pure).
#
# Sources: NVIDIA/gpu-driver-container README and vgpu/src/vgpu-util.go (the names that a container expects); NVIDIA vGPU documentation (the files of a
# release).

_NAME = re.compile(r"NVIDIA-Linux-(?P<arch>x86_64|aarch64)-(?P<version>\d+\.\d+(?:\.\d+)?)(?P<kind>-[a-z0-9-]+)?\.run")
_GUEST = "-grid"
_KINDS = {
    "-vgpu-kvm": "the vGPU manager for KVM hosts",
    "-vgpu-kvm-aie": "the vGPU manager for KVM hosts",
    "-vgpu-xen": "the vGPU manager for Xen hosts",
    "": "the data center driver, which has no vGPU license client; the operator's own images contain it",
    "-no-compat32": "the data center driver, which has no vGPU license client; the operator's own images contain it",
}
# The architecture names that buildah and image names use.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Installer:
    """A guest driver's installer: its file name, its version without a suffix, and its architecture (amd64, arm64)."""

    name: str
    version: str
    architecture: str


class WrongInstaller(ValueError):
    """The file is not the installer of a guest driver."""


def parse_installer(name: str) -> Installer:
    """The installer with this file name; raises WrongInstaller."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise WrongInstaller(
            f"{name} does not have the name of an NVIDIA driver, such as NVIDIA-Linux-x86_64-580.95.05-grid.run. Use the file of the vGPU "
            "package under its original name, because the driver container searches for this name"
        )
    kind = match["kind"] or ""
    if kind != _GUEST:
        title = _KINDS.get(kind, f"a driver of a different kind ({kind.lstrip('-')})")
        raise WrongInstaller(
            f"{name} is {title}. The image needs the guest driver: NVIDIA-Linux-{match['arch']}-{match['version']}{_GUEST}.run in the directory "
            "Guest_Drivers of the vGPU package"
        )
    return Installer(name, match["version"], ARCHITECTURES[match["arch"]])


# Checks whether a vGPU guest driver works with the manager on the hypervisor (pure).
#
# Source: NVIDIA/gpu-driver-container vgpu/src/vgpu-util.go, which reads vgpuDriverCatalog.yaml.


@dataclass(frozen=True)
class Compatibility:
    """The result of a check: a problem rejects the versions, and a warning is only shown. Both are empty for compatible versions."""

    problem: str = ""
    warning: str = ""


def check_compatibility(guest: str, manager: str, catalog: Document | None = None) -> Compatibility:
    """Whether a vGPU manager supports a guest driver. `catalog` is NVIDIA's vgpuDriverCatalog.yaml, which overrides the collection's table."""
    guest_branch, host_branch = branch_of(guest), branch_of(manager)
    if catalog is not None:
        return _by_catalog(guest, manager, catalog)
    if problem := guest_problem(guest, manager):
        return Compatibility(problem=problem)
    if guest_branch is None or host_branch is None:
        unknown = guest if guest_branch is None else manager
        return Compatibility(
            warning=f"The branch of {unknown} is unknown, so it is not verified that guest driver {guest} works with vGPU manager {manager}. "
            "Check NVIDIA's release notes, or set gpu_driver_image_catalog_file (option catalog_file of the module) to the path of vgpuDriverCatalog.yaml."
        )
    return Compatibility(warning=_unlisted(guest, manager))


def catalog_problem(document: t.Any) -> str:
    """The reason why a document does not have the format of vgpuDriverCatalog.yaml; empty if it does."""
    if not isinstance(document, dict):
        return "it is empty, or not YAML" if document is None else f"it is {type_name(document)}, not a map"
    return next(_catalog_problems(document), "")


def _catalog_problems(document: Document) -> t.Iterator[str]:
    """The problems with the format; the caller must stop after the first one."""
    for kind, listed in (("branch", str), ("driver", dict)):
        yield from _mismatch(kind, document.get(kind), list)
        for number, entry in enumerate(document.get(kind) or ()):
            path = f"{kind}[{number}]"
            yield from _mismatch(path, entry, dict)
            for name in ("name", "type", "version", "branch"):
                yield from _mismatch(f"{path}.{name}", entry.get(name), str)
            for name in ("allow", "deny"):
                yield from _mismatch(f"{path}.{name}", entry.get(name), dict)
                rules = (entry.get(name) or {}).get(kind) or []
                yield from _mismatch(f"{path}.{name}.{kind}", rules, list)
                for index, rule in enumerate(rules):
                    yield from _mismatch(f"{path}.{name}.{kind}[{index}]", rule, listed)


def _mismatch(path: str, value: t.Any, kind: type) -> t.Iterator[str]:
    """Yield a problem if a value has the wrong type; a number is accepted in place of a string, because a version can be a number."""
    if value is not None and not isinstance(value, (str, int, float) if kind is str else kind):
        yield f"{path} is {type_name(value)}, not {type_name(kind())}"


def _unlisted(guest: str, manager: str) -> str:
    """The warning about versions that the table does not contain; empty if it contains both."""
    unknown = []
    if release_with(guest=guest) is None:
        unknown.append(f"guest driver {guest}")
    if release_with(manager=manager) is None:
        unknown.append(f"vGPU manager {manager}")
    if not unknown:
        return ""
    names = " and ".join(unknown)
    return f"The catalog does not have {names}; only the branches were compared. Check NVIDIA's release notes."


def _by_catalog(guest: str, manager: str, catalog: Document) -> Compatibility:
    """The result according to NVIDIA's catalog; if the catalog lacks a version, a warning is added, and the collection's table is used."""
    drivers = [entry for entry in catalog.get("driver") or () if isinstance(entry, dict)]
    branches = {
        (entry.get("type"), entry.get("name")): entry
        for entry in catalog.get("branch") or ()
        if isinstance(entry, dict)
    }
    host = next((one for one in drivers if one.get("type") == "host" and one.get("version") == manager), None)
    own = next((one for one in drivers if one.get("type") == "guest" and one.get("version") == guest), None)
    if host is None or own is None:
        missing = f"vGPU manager {manager}" if host is None else f"guest driver {guest}"
        # The collection's table determines the result; the warning contains the version that NVIDIA's catalog lacks.
        verdict = check_compatibility(guest, manager)
        text = f"vgpuDriverCatalog.yaml does not have {missing}; the newest one is on NVIDIA's licensing portal."
        return Compatibility(verdict.problem, text if not verdict.problem else "")
    if any(one.get("version") == manager for one in (own.get("deny") or {}).get("driver") or ()):
        return Compatibility(
            problem=f"vgpuDriverCatalog.yaml excludes guest driver {guest} for vGPU manager {manager}."
        )
    if any(one.get("version") == manager for one in (own.get("allow") or {}).get("driver") or ()):
        return Compatibility()
    guest_rules = branches.get(("guest", own.get("branch"))) or {}
    host_rules = branches.get(("host", host.get("branch"))) or {}
    if _allows(guest_rules, host.get("branch")) and _allows(host_rules, own.get("branch")):
        return Compatibility()
    return Compatibility(
        problem=f"vgpuDriverCatalog.yaml does not allow guest driver {guest} (branch {own.get('branch')}) for vGPU manager {manager} "
        f"(branch {host.get('branch')}). Use a driver of a branch that it lists for this manager."
    )


def _allows(rules: Document, branch: t.Any) -> bool:
    allowed, denied = ((rules.get(key) or {}).get("branch") or () for key in ("allow", "deny"))
    return branch in allowed and branch not in denied


# Builds a vGPU driver image with buildah from NVIDIA's build context and an installer, and labels it with the digest of all its inputs.

# The labels of the images that this collection builds: the one with the digest of all inputs, and the prefix of the others.
INPUTS_LABEL = "accel.gpu/inputs"
_LABEL_PREFIX = "accel.gpu"
_DRIVERS, _DOCKERFILE, _VERSIONS = "drivers", "Dockerfile", "versions.mk"
CATALOG_NAME = "vgpuDriverCatalog.yaml"
_CHUNK = 1 << 20
# An assignment in versions.mk whose value refers to no other variable.
_ASSIGNMENT = re.compile(r"^(?P<name>[A-Z][A-Z0-9_]*)\s*[?:]?=\s*(?P<value>[^$#\s]+)\s*$", re.MULTILINE)
_ARGUMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# The hosts that the steps of a build download from. Variables in the host are unknown here, so such an address is left out.
_ADDRESS = re.compile(r"(?P<scheme>https?)://(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*\.[A-Za-z0-9-]+)(?::(?P<port>\d+))?")
_COMMENT = re.compile(r"^\s*#.*$", re.MULTILINE)
_CONNECT_TIMEOUT = 5.0
_ARGUMENT = re.compile(r"^ARG\s+(?P<name>[A-Z][A-Z0-9_]*)", re.MULTILINE)


@dataclass(frozen=True)
class BuildOptions:
    """The options of a build. `context` is a checkout of gpu-driver-container; `installers` is a folder with installers or one installer."""

    context: str
    installers: str
    catalog_file: str | None = None
    build_args: dict[str, str] = field(default_factory=dict)
    version_check: bool = False
    isolation: str = "chroot"
    storage_root: str | None = None
    storage_driver: str | None = None


@dataclass(frozen=True)
class BuildSpec:
    """One build: the folder of the context, the installer, and the arguments of its Dockerfile."""

    folder: str
    installer: str
    parsed: Installer
    arguments: dict[str, str]
    options: BuildOptions
    # The digest of all inputs: installer, files of the context, arguments.
    inputs: str

    @property
    def local_name(self) -> str:
        """The image's name in buildah's storage; if a run is killed before it pushes the image, the next run finds the image there."""
        return f"localhost/accel-gpu/driver:{self.folder}-{self.inputs[:24]}"

    def labels(self) -> dict[str, str]:
        """The image labels that record the inputs of the build."""
        return {
            INPUTS_LABEL: self.inputs,
            f"{_LABEL_PREFIX}/driver-version": self.parsed.version,
            f"{_LABEL_PREFIX}/driver-installer": self.parsed.name,
            f"{_LABEL_PREFIX}/build-folder": self.folder,
        }


def build_arg_problems(arguments: t.Mapping[str, t.Any]) -> list[str]:
    """The problems in the user's build arguments."""
    problems = []
    for name, value in arguments.items():
        if not _ARGUMENT_NAME.fullmatch(name):
            problems.append(f"build_args: {quote(name)} is not the name of an argument; use letters, digits and '_'")
        elif names_a_secret(name):
            problems.append(
                f"build_args.{name}: is named like a secret, and everyone who can pull the image could read it. Use a base image that needs no secret"
            )
        elif value is None or isinstance(value, (dict, list)):
            problems.append(f"build_args.{name}: is {type_name(value)}, not a string; set one value, or remove it")
    return problems


def find_spec(target: BuildTarget, version: str, options: BuildOptions) -> BuildSpec:
    """The build of one target; raises InvalidOptions with all files that are missing or cannot be read.

    The files are read once, because an installer is large.
    """
    try:
        return _find_spec(target, version, options)
    except OSError as error:
        raise InvalidOptions([f"{error.filename}: cannot be read: {error.strerror}"]) from None


def _find_spec(target: BuildTarget, version: str, options: BuildOptions) -> BuildSpec:
    """The build of one target; raises InvalidOptions, or OSError for a file that cannot be read."""
    problems: list[str] = []
    path, parsed = "", None
    try:
        path = _installer_path(options.installers, version)
        parsed = parse_installer(os.path.basename(path))
        if parsed.version != version:
            problems.append(
                f"installers: {path} contains driver {parsed.version}, but the pools declare {version}. Declare the version of the installer, or use "
                "another installer"
            )
    except (WrongInstaller, FileNotFoundError) as error:
        problems.append(f"installers: {error}")
    dockerfile = os.path.join(options.context, target.folder, _DOCKERFILE)
    if not os.path.isfile(dockerfile):
        problems.append(
            f"build_context: {options.context} has no {target.folder}/{_DOCKERFILE}; it must be a checkout of NVIDIA's gpu-driver-container with that folder"
        )
    if options.catalog_file and not os.path.isfile(options.catalog_file):
        problems.append(f"catalog_file: there is no file {options.catalog_file}")
    if problems or parsed is None:
        raise InvalidOptions(problems)
    arguments = _arguments(dockerfile, target, parsed, options)
    inputs = _inputs_digest(target.folder, path, arguments, options)
    return BuildSpec(target.folder, path, parsed, arguments, options, inputs)


def _inputs_digest(folder: str, installer: str, arguments: t.Mapping[str, str], options: BuildOptions) -> str:
    """The digest of all inputs of a build; raises InvalidOptions or OSError for files that cannot be read."""
    document = {
        "folder": folder,
        "installer": _file_digest(installer),
        "context": _tree_digest(os.path.join(options.context, folder), with_catalog=not options.catalog_file),
        "catalog": _file_digest(options.catalog_file) if options.catalog_file else "",
        "arguments": arguments,
    }
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _installer_path(installers: str, version: str) -> str:
    """The path of the installer file or of the (guest) installer of this version in the folder; raises FileNotFoundError or WrongInstaller."""
    if os.path.isfile(installers):
        return installers
    if not os.path.isdir(installers):
        raise FileNotFoundError(f"there is no file or directory {installers}")
    pattern = re.compile(rf".*-{re.escape(version)}(-.*)?\.run")
    names = sorted(
        name
        for name in os.listdir(installers)
        if pattern.fullmatch(name) and os.path.isfile(os.path.join(installers, name))
    )
    guests = [name for name in names if name.endswith("-grid.run")]
    if not names:
        raise FileNotFoundError(
            f"{installers} has no installer of driver {version}; copy NVIDIA-Linux-x86_64-{version}-grid.run from the directory Guest_Drivers of the "
            "vGPU package"
        )
    if len(guests) > 1:
        raise WrongInstaller(
            f"{installers} has several installers of driver {version}: {', '.join(guests)}. Set installers to one of these files"
        )
    return os.path.join(installers, (guests or names)[0])


def _arguments(dockerfile: str, target: BuildTarget, parsed: Installer, options: BuildOptions) -> dict[str, str]:
    """The arguments that the Makefile of gpu-driver-container passes for a vGPU guest; the user's arguments override them."""
    with open(dockerfile, encoding="utf-8", errors="replace") as file:
        declared = {match["name"] for match in _ARGUMENT.finditer(file.read())}
    versions = os.path.join(options.context, _VERSIONS)
    defaults: dict[str, str] = {}
    if os.path.isfile(versions):
        with open(versions, encoding="utf-8", errors="replace") as file:
            defaults = {match["name"]: match["value"] for match in _ASSIGNMENT.finditer(file.read())}
    fixed = {
        "DRIVER_TYPE": "vgpu",
        "DRIVER_VERSION": f"{parsed.version}-grid",
        "DRIVER_BRANCH": parsed.version.partition(".")[0],
        "VGPU_LICENSE_SERVER_TYPE": "NLS",
        "DISABLE_VGPU_VERSION_CHECK": "false" if options.version_check else "true",
        "TARGETARCH": parsed.architecture,
    }
    known = {name: value for name, value in {**defaults, **fixed, **dict(target.arguments)}.items() if name in declared}
    return {**known, **options.build_args}


def downloads(spec: BuildSpec) -> dict[str, tuple[str, int]]:
    """The hosts from which the steps of a build download, with their scheme and port, according to the Dockerfile and its scripts.

    Base images are not included: they come from registries, for which the collection has credentials and certificates. Source of the steps:
    NVIDIA/gpu-driver-container rhel9/Dockerfile and ubuntu22.04/Dockerfile (Go, packages, the signing key and repository of CUDA, tools on GitHub).
    """
    folder = os.path.join(spec.options.context, spec.folder)
    scripts = sorted(name for name in os.listdir(folder) if name.endswith(".sh"))
    hosts: dict[str, tuple[str, int]] = {}
    for name in (_DOCKERFILE, *scripts):
        with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
            text = _COMMENT.sub("", file.read())
        for match in _ADDRESS.finditer(text):
            standard = 443 if match["scheme"] == "https" else 80
            hosts.setdefault(match["host"].lower(), (match["scheme"], int(match["port"] or standard)))
    return hosts


def unreachable(hosts: t.Mapping[str, tuple[str, int]]) -> list[str]:
    """The hosts that accept no connection from this machine, on which the steps of a build run. Hosts behind a proxy are not tested."""
    proxies = getproxies()

    def connect(host: str, port: int) -> None:
        with socket.create_connection((host, port), _CONNECT_TIMEOUT):
            pass

    direct = {host: port for host, (scheme, port) in hosts.items() if scheme not in proxies or proxy_bypass(host)}
    calls = [(host, functools.partial(connect, host, port)) for host, port in direct.items()]
    outcomes = run_bounded(calls, len(calls) or 1, fatal=lambda dummy: False)
    return sorted(outcome.name for outcome in outcomes if isinstance(outcome.error, OSError))


class ImageBuilder:
    """Builds images in buildah's storage and pushes them."""

    def __init__(self, tools: ImageTools, temporary: str) -> None:
        """`temporary` is the module's tmpdir, beside which the build context is, with the installer as a hard link or a copy."""
        self._tools, self._temporary = tools, temporary
        remove_folders("build", beside=temporary)

    def exclusive(self, spec: BuildSpec, report: t.Callable[[str], None]) -> contextlib.AbstractContextManager[None]:
        """Wait until no other run on this machine is building the same image, because both runs would use and remove the same local image."""
        path = _lock_path(spec)
        make_folder(path)
        return hold_lock(path, lambda: report(f"waiting for another run that builds {spec.local_name}"))

    def was_killed(self, spec: BuildSpec) -> bool:
        """Whether a run that built the image was killed, so that the image may still be in buildah's storage."""
        return is_abandoned_lock(_lock_path(spec))

    def build(self, spec: BuildSpec) -> None:
        """Build the image, unless a killed run has already built it."""
        storage = _storage(spec.options)
        if self._exists(spec, storage):
            return
        with contextlib.ExitStack() as stack:
            try:
                folder = stack.enter_context(temporary_folder("build", beside=self._temporary))
                context = _prepared_context(spec, folder)
            except OSError as error:
                # An error that copytree() raises contains a list of errors.
                reasons = (
                    [str(one[2]) for one in error.args[0]] if isinstance(error, shutil.Error) else [error.strerror]
                )
                raise ConnectionProblem(
                    f"The build context cannot be copied to {self._temporary}: {reasons[0]}. Free space there, or set remote_tmp of Ansible."
                ) from None
            arguments = [*storage, "bud", "--isolation", spec.options.isolation, "--format", "docker", "--pull"]
            arguments += ["--platform", f"linux/{spec.parsed.architecture}", "--tag", spec.local_name]
            for name, value in sorted(spec.arguments.items()):
                arguments += ["--build-arg", f"{name}={value}"]
            for name, value in spec.labels().items():
                arguments += ["--label", f"{name}={value}"]
            with open(os.path.join(context, _DOCKERFILE), encoding="utf-8", errors="replace") as file:
                self._tools.build(arguments, context, file.read())

    def push(self, spec: BuildSpec, destination: ImageReference) -> None:
        """Push the built image; finished layers are not sent again."""
        self._tools.push([*_storage(spec.options), "push"], spec.local_name, destination)

    def remove(self, spec: BuildSpec) -> None:
        """Remove the image from buildah's storage, if it is there."""
        storage = _storage(spec.options)
        if self._exists(spec, storage):
            self._tools.buildah([*storage, "rmi", spec.local_name])

    def _exists(self, spec: BuildSpec, storage: list[str]) -> bool:
        output = self._tools.buildah([*storage, "images", "--format", "{{.Name}}:{{.Tag}}"])
        return spec.local_name in output.split()


def _lock_path(spec: BuildSpec) -> str:
    folder = spec.options.storage_root or tempfile.gettempdir()
    return os.path.join(folder, f"accel-gpu-build-{os.geteuid()}-{spec.folder}-{spec.inputs[:24]}.lock")


def _storage(options: BuildOptions) -> list[str]:
    arguments = []
    if options.storage_root:
        arguments += ["--root", options.storage_root, "--runroot", os.path.join(options.storage_root, "run")]
    return [*arguments, *(["--storage-driver", options.storage_driver] if options.storage_driver else [])]


def _prepared_context(spec: BuildSpec, folder: str) -> str:
    """A copy of the context's folder with the installer and the catalog in drivers/; the user's checkout is not changed."""
    context = os.path.join(folder, spec.folder)
    source = os.path.join(spec.options.context, spec.folder)
    shutil.copytree(source, context, symlinks=True, ignore=shutil.ignore_patterns("*.run"))
    drivers = os.path.join(context, _DRIVERS)
    if os.path.islink(drivers):
        # Otherwise, files would be written to the user's folder, through the link.
        os.unlink(drivers)
        shutil.copytree(os.path.join(source, _DRIVERS), drivers, symlinks=True, ignore=shutil.ignore_patterns("*.run"))
    os.makedirs(drivers, exist_ok=True)
    _link(spec.installer, os.path.join(drivers, spec.parsed.name))
    if spec.options.catalog_file:
        catalog = os.path.join(drivers, CATALOG_NAME)
        with contextlib.suppress(FileNotFoundError):
            # The catalog can be a link to one of the user's files.
            os.unlink(catalog)
        shutil.copyfile(spec.options.catalog_file, catalog)
    return context


def _link(source: str, target: str) -> None:
    """Create a hard link, or a copy if the target is on another file system."""
    with contextlib.suppress(OSError):
        os.link(source, target)
        return
    shutil.copyfile(source, target)


def _file_digest(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _tree_digest(folder: str, *, with_catalog: bool) -> str:
    """The digest of all files that a build uses, including their names and whether they are executable.

    Raises InvalidOptions for pipes, sockets and devices.
    """
    digest = hashlib.sha256()
    problems = []
    for name, path in _files(folder):
        if name == os.path.join(_DRIVERS, CATALOG_NAME) and not with_catalog:
            continue
        mode = os.lstat(path).st_mode
        if not stat.S_ISLNK(mode) and not stat.S_ISREG(mode):
            problems.append(
                f"build_context: {path} is a pipe, a socket or a device; remove it, because a build needs only files, directories and links"
            )
            continue
        content = os.readlink(path) if stat.S_ISLNK(mode) else _file_digest(path)
        digest.update(f"{name}\0{os.access(path, os.X_OK)}\0{content}\0".encode(errors="surrogateescape"))
    if problems:
        raise InvalidOptions(problems)
    return digest.hexdigest()


def _files(folder: str, below: str = "") -> t.Iterator[tuple[str, str]]:
    """The sorted names and paths of the files that _prepared_context() copies, without installers; the only link that is followed is drivers/."""
    for entry in sorted(os.scandir(folder), key=lambda one: one.name):
        name = os.path.join(below, entry.name)
        if entry.name.endswith(".run"):
            continue
        if entry.is_dir(follow_symlinks=name == _DRIVERS):
            yield from _files(entry.path, name)
        else:
            yield name, entry.path


def inputs_of(labels: t.Mapping[str, str]) -> str:
    """The digest of the inputs that an image was built from; empty for an image that was not built by this collection."""
    return str(labels.get(INPUTS_LABEL) or "")
