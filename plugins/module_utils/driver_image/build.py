# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds a vGPU driver image with buildah from NVIDIA's build context and an installer, and labels it with the digest of all its inputs."""

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

from ..catalog.driver_images import BuildTarget
from ..catalog.secrets import names_a_secret
from ..common import file_lock, private_file
from ..common.errors import ConnectionProblem, InvalidOptions
from ..common.parallel import run_bounded
from ..registry.image_tools import ImageTools
from ..registry.reference import ImageReference
from ..schema.messages import quote, type_name
from .installer import Installer, WrongInstaller, parse_installer

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
        """`temporary` is a folder for the build context, which contains the installer as a hard link or a copy."""
        self._tools, self._temporary = tools, temporary

    def exclusive(self, spec: BuildSpec, report: t.Callable[[str], None]) -> contextlib.AbstractContextManager[None]:
        """Wait until no other run on this machine is building the same image, because both runs would use and remove the same local image."""
        path = _lock_path(spec)
        private_file.make_folder(path)
        return file_lock.hold(path, lambda: report(f"waiting for another run that builds {spec.local_name}"))

    def was_killed(self, spec: BuildSpec) -> bool:
        """Whether a run that built the image was killed, so that the image may still be in buildah's storage."""
        return file_lock.is_abandoned(_lock_path(spec))

    def build(self, spec: BuildSpec) -> None:
        """Build the image, unless a killed run has already built it."""
        storage = _storage(spec.options)
        if self._exists(spec, storage):
            return
        with contextlib.ExitStack() as stack:
            try:
                folder = stack.enter_context(tempfile.TemporaryDirectory(dir=self._temporary))
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
