# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copies images with skopeo and buildah."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import re
import tempfile
import threading
import time
import typing as t
from dataclasses import dataclass, field

from ..catalog.secrets import masked
from ..core.errors import ConnectionProblem, InvalidOptions, ModuleFailure, PartialFailure, ServiceError
from ..core.files import make_file, remove_folders, temporary_folder
from ..core.messages import abbreviate, option_of_role, quote
from ..core.waits import RunCommand, run_bounded, run_within
from .client import MISSING_PROJECT, TOO_MANY_REQUESTS, RegistryClient, RegistryError
from .reference import (
    DOCKER_ARCHIVE,
    LAYOUT,
    FileReference,
    ImageReference,
    InvalidReference,
    Location,
    Manifest,
    digest_of,
    is_among,
    parse_location,
    tag_problem,
    without_other_platforms,
)

if t.TYPE_CHECKING:
    from ..core.values import Document
    from .client import RegistryAccess
    from .credentials import Credentials

# Runs skopeo and buildah with the credentials and certificates of the registries, and explains the errors of these tools.
#
# The command lines contain no credentials, only references, paths and file descriptors. Sources of the options: skopeo 1.9 docs/skopeo-copy.1.md,
# buildah 1.28 docs/buildah-push.1.md.

_MAX_LENGTH = 600
# The seconds before a tool is started again that failed because of a limit on the number of requests.
_PAUSES = (15.0, 30.0, 60.0)
# The tools give only the status of a response whose body is not the JSON of the distribution specification.
_LIMITED_ANSWER = re.compile(rf"{TOO_MANY_REQUESTS.pattern}|status ?code:? 429\b", re.IGNORECASE)
# The state of an upload, which registries put into its address, and which is longer than the rest of the message.
_UPLOAD_STATE = re.compile(r"(?<=[?&]_state=)[^&\s\"]+")
# The lowest number of a file descriptor for the tools. Without root, buildah restarts in a user namespace, and uses the descriptors 3 and 4 for pipes.
_FIRST_DESCRIPTOR = 100
DEFAULT_TIMEOUT = 7200
TIMEOUT_OPTION = option_of_role("gpu_registry_tool_timeout", "tool_timeout")
_COMMANDS = frozenset({"bud", "copy", "images", "inspect", "push", "rmi"})
_LOG_PREFIX = re.compile(r'^time="[^"]*" level=(?:fatal|error) msg="?|"$')
_LIMITED = "The registry limits the number of requests: run the playbook again later, or log in, because the limits for authenticated users are higher."
# Phrases in the error messages of both tools (containers/image, docker/errors.go and Go's own messages), and the remedy for each.
_REMEDIES: tuple[tuple[str, str], ...] = (
    ("toomanyrequests", _LIMITED),
    ("too many requests", _LIMITED),
    ("rate limit", _LIMITED),
    ("statuscode: 429", _LIMITED),
    ("x509", "This machine does not trust the registry's certificate: set ca_cert of the registry."),
    ("server gave http response to https client", "The registry has no TLS: set plain_http of the registry."),
    ("authentication required", "Set username and password of the registry, or auth_file."),
    ("unauthorized", f"Check the user and the password of the registry. {MISSING_PROJECT}"),
    ("requested access to the resource is denied", f"The user needs permission for this repository. {MISSING_PROJECT}"),
    ("name unknown", MISSING_PROJECT),
    ("name not known", MISSING_PROJECT),
    ("does not exist in the registry", MISSING_PROJECT),
    ("project not found", MISSING_PROJECT),
    ("quota", "Raise the registry's quota or delete images there, and run the playbook again."),
    ("no space left on device", "The disk of this machine or of the registry is full."),
    ("insufficient storage", "Raise the registry's quota or delete images there, and run the playbook again."),
    ("manifest invalid", "The registry may not support this type of image: set platforms to one platform."),
    (
        "manifest unknown",
        "Check repository and tag. If both are right, a pull-through cache may lack the attestations in the image's index: set platforms to the "
        "nodes' platform.",
    ),
    ("connection refused", "Nothing listens there: check the name of the registry."),
    ("no such host", "The name does not resolve from this machine: check the name of the registry."),
    ("unexpected eof", "The connection was interrupted. Run the playbook again: finished layers are not sent again."),
    ("broken pipe", "The connection was interrupted. Run the playbook again: finished layers are not sent again."),
    (
        "closed network connection",
        "The connection was interrupted. Run the playbook again: finished layers are not sent again.",
    ),
    ("connection reset", "The connection was interrupted. Run the playbook again: finished layers are not sent again."),
    (
        "i/o timeout",
        "The registry did not respond in time: check the network, or run the playbook again. Finished layers are not sent again.",
    ),
)


class ToolFailed(ModuleFailure):
    """skopeo or buildah has failed; the message contains the reason and the remedy."""

    code = "tool"


def find_tool(name: str, search: t.Callable[[str], str | None]) -> str:
    """The path of a tool on PATH; raises ConnectionProblem if the tool is not installed."""
    path = search(name)
    if not path:
        raise ConnectionProblem(
            f"{name} is not installed on this machine. Install it with the package manager ({name} on Debian, Ubuntu, Fedora and RHEL)."
        )
    return path


class ImageTools:
    """Runs skopeo and buildah with the credentials and certificates of all registries."""

    def __init__(
        self,
        run: RunCommand,
        search: t.Callable[[str], str | None],
        credentials: Credentials,
        access_of: t.Callable[[str], RegistryAccess],
        authorities: t.Sequence[str] = (),
        timeout: float = DEFAULT_TIMEOUT,
        sleep: t.Callable[[float], None] = time.sleep,
    ) -> None:
        """Store the arguments, and remove what a killed run has left; the tools are not looked up yet. authorities: the CA certificates of all registries,
        for builds, whose base images may come from any of them.

        timeout: the seconds after which a tool is stopped.
        """
        remove_folders("ca")
        self._timeout, self._sleep = timeout, sleep
        self._run, self._search, self._access_of = run, search, access_of
        self._credentials, self._authorities = credentials, authorities

    def require(self, tool: str) -> None:
        """Raise ConnectionProblem if a tool is missing."""
        find_tool(tool, self._search)

    def copy(self, source: Location, destination: Location, *, all_platforms: bool) -> None:
        """Copy an image without changing its digests. Layers that the destination already has are not sent again. Raises ToolFailed."""
        arguments = ["copy", "--quiet", "--preserve-digests", "--retry-times", "3"]
        arguments += ["--all"] if all_platforms else []
        ends = [("src", source), ("dest", destination)]
        self._patiently(lambda: self._call("skopeo", arguments, ends, [source.transport, destination.transport]))

    def _patiently(self, call: t.Callable[[], str]) -> str:
        """The output of a call, which is started again later while a registry limits the number of requests, until the time limit of a tool is over.

        The tools repeat some requests for half a minute, and others, such as those for a chunk of a layer and for a manifest, for a few seconds.
        """
        deadline = time.monotonic() + self._timeout
        for pause in _PAUSES:
            try:
                return call()
            except ToolFailed as error:
                if not _LIMITED_ANSWER.search(str(error)) or time.monotonic() + pause > deadline:
                    raise
            self._sleep(pause)
        return call()

    def inspect(self, image: Location) -> str:
        """The raw manifest of an image outside a registry; raises ToolFailed."""
        return self._call("skopeo", ["inspect", "--raw"], [("", image)], [image.transport])

    def build(self, arguments: t.Sequence[str], context: str, dockerfile: str) -> None:
        """Build an image with buildah. Raises ToolFailed.

        The steps of a build can read buildah's credentials, so buildah gets only the credentials for registries that the Dockerfile or an argument names.
        """
        named = self._credentials.document("\n".join((dockerfile, *arguments)), only_named=True)
        with contextlib.ExitStack() as stack:
            trusted = ["--cert-dir", _certificates(stack, self._authorities)] if self._authorities else []
            self._patiently(lambda: self._call("buildah", [*arguments, *trusted], [], [context], named))

    def buildah(self, arguments: t.Sequence[str]) -> str:
        """The output of a buildah command that needs no registry; raises ToolFailed."""
        return self._output("buildah", list(arguments), ())

    def push(self, arguments: t.Sequence[str], image: str, destination: ImageReference) -> str:
        """Push an image from buildah's storage; raises ToolFailed."""
        return self._patiently(
            lambda: self._call("buildah", list(arguments), [("", destination)], [image, destination.transport])
        )

    def _call(
        self,
        tool: str,
        arguments: list[str],
        ends: t.Sequence[tuple[str, Location]],
        operands: t.Sequence[str],
        credentials: str | None = None,
    ) -> str:
        """Run a tool that accesses registries; returns its output. `ends` contains the images with the prefix of their options. credentials: by default, those
        for the registries in the operands.
        """
        with contextlib.ExitStack() as stack:
            try:
                document = credentials or self._credentials.document(" ".join(operands))
                auth_file, descriptors = stack.enter_context(_secret_file(document))
                options = ["--authfile", auth_file]
                for prefix, end in ends:
                    if isinstance(end, ImageReference):
                        access = self._access_of(end.registry)
                        options += self._tls_options(stack, f"{prefix}-" if prefix else "", access)
            except OSError as error:
                raise ConnectionProblem(
                    f"Temporary files for {tool} cannot be written to {tempfile.gettempdir()}: {error.strerror}. Free space there, or set TMPDIR."
                ) from None
            return self._output(tool, [*arguments, *options, *operands], descriptors, " ".join(operands))

    def _output(self, tool: str, arguments: list[str], descriptors: tuple[int, ...], subject: str = "") -> str:
        path = find_tool(tool, self._search)
        command = next((text for text in arguments if text in _COMMANDS), "")
        call = " ".join(filter(None, (tool, command, subject)))
        try:
            status, output, errors = run_within(
                self._run,
                [path, *arguments],
                self._timeout,
                environ_update={"LC_ALL": "C"},
                pass_fds=descriptors,
                # Arguments of a build may contain $ and ~. Without these two options, run_command expands them, and a tool that cannot be started ends
                # only the thread.
                expand_user_and_vars=False,
                handle_exceptions=False,
            )
        except TimeoutError:
            raise ToolFailed(
                f"{call} was stopped because it did not finish within {self._timeout:g} seconds. Check the network, proxies and the registry. If it "
                f"needs more time, increase {TIMEOUT_OPTION}, and run the playbook again: finished layers are not sent again."
            ) from None
        except (OSError, ValueError) as error:
            # A NUL character in an argument causes a ValueError.
            raise ToolFailed(
                f"{call} failed. {path} cannot be started: {getattr(error, 'strerror', None) or error}."
            ) from None
        if status:
            raise ToolFailed(f"{call} failed. {error_summary(tool, errors or output)}")
        return output

    @staticmethod
    def _tls_options(stack: contextlib.ExitStack, prefix: str, access: RegistryAccess) -> list[str]:
        if access.plain_http or not access.validate_certs:
            return [f"--{prefix}tls-verify=false"]
        if access.ca_cert is None:
            return []
        return [f"--{prefix}cert-dir", _certificates(stack, [access.ca_cert])]


def _certificates(stack: contextlib.ExitStack, paths: t.Iterable[str]) -> str:
    """A folder with these CA certificates. The tools expect files that end with .crt."""
    folder = stack.enter_context(temporary_folder("ca"))
    for index, path in enumerate(paths):
        os.symlink(os.path.abspath(path), os.path.join(folder, f"ca{index or ''}.crt"))
    return folder


@contextlib.contextmanager
def _secret_file(text: str) -> t.Iterator[tuple[str, tuple[int, ...]]]:
    """The path of a file that passes this text to another program, and the descriptors that the program must inherit.

    On Linux, the file exists only in memory, so a killed run leaves nothing. On other systems, the next run deletes the files of a killed run.
    """
    descriptor = _memory_file()
    if descriptor is not None:
        with open(descriptor, "w", encoding="utf-8") as memory:
            memory.write(text)
            memory.flush()
            yield f"/dev/fd/{descriptor}", (descriptor,)
        return
    path = make_file("auth")
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        yield path, ()
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _memory_file() -> int | None:
    """The descriptor of a file in memory; None if the system does not support such files, or has no /dev/fd to open them by name."""
    if not hasattr(os, "memfd_create"):
        return None
    try:
        first = os.memfd_create("accel-gpu-auth")
        try:
            descriptor = fcntl.fcntl(first, fcntl.F_DUPFD_CLOEXEC, _FIRST_DESCRIPTOR)
        finally:
            os.close(first)
    except OSError:
        return None
    if os.path.exists(f"/dev/fd/{descriptor}"):
        return descriptor
    os.close(descriptor)
    return None


def _shortened(text: str) -> str:
    """The text without its middle if it is too long: it begins with what has failed, such as one of several images, and ends with the cause."""
    if len(text) <= _MAX_LENGTH:
        return text
    return f"{text[: _MAX_LENGTH // 3]} ... {text[-_MAX_LENGTH * 2 // 3 :]}"


def error_summary(tool: str, errors: str) -> str:
    """The tool's error message on one line, without secrets, followed by the remedy if one is known."""
    written = [line.strip() for line in errors.strip().splitlines() if line.strip()]
    # The warnings before it are about the attempts of the tool itself, with the same text.
    lines = [_LOG_PREFIX.sub("", line) for line in [line for line in written if "level=fatal" in line] or written]
    text = _UPLOAD_STATE.sub("...", " ".join(masked(line) for line in lines[-6:]))
    reason = _shortened(text) or "no reason was given"
    remedy = next((remedy for text, remedy in _REMEDIES if text in errors.lower()), "")
    return f"{tool} says: {reason.rstrip('.')}." + (f" {remedy}" if remedy else "")


# Copies images between registries, archives and layouts. Compares the digests, and copies only images that differ.

# The maximum number of parallel comparisons, and of parallel copies.
_COMPARISONS, _COPIES = 16, 4


@dataclass(frozen=True)
class CopySpec:
    """A source image and its destination, with additional tags for the same repository. Without platforms, all platforms are copied."""

    source: Location
    destination: Location
    tags: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    pull_through: bool = False

    @property
    def name(self) -> str:
        """The destination as text, which identifies the entry."""
        return str(self.destination)

    @property
    def targets(self) -> tuple[Location, ...]:
        """The destination under each tag."""
        if isinstance(self.destination, FileReference):
            return (self.destination,)
        return (self.destination, *(self.destination.with_tag(tag) for tag in self.tags))


@dataclass
class CopyState:
    """The comparison of one entry. `desired` is the digest that every target must have. `actual` contains the current digest of each target, or
    None for a target without an image.
    """

    spec: CopySpec
    source_digest: str = ""
    desired: str = ""
    index: Manifest | None = field(default=None, repr=False)
    actual: dict[str, str | None] = field(default_factory=dict)

    @property
    def different(self) -> list[Location]:
        """The targets without the desired image."""
        return [target for target in self.spec.targets if self.actual.get(str(target)) != self.desired]

    @property
    def action(self) -> str:
        """The effect of a run on the targets: created, updated or unchanged."""
        if not self.different:
            return "unchanged"
        return "updated" if any(self.actual.values()) else "created"

    def result(self) -> dict[str, t.Any]:
        """The entry in the format that the module returns."""
        return {
            "source": str(self.spec.source),
            "destination": str(self.spec.destination),
            "tags": list(self.spec.tags),
            "digest": self.desired,
            "action": self.action,
        }


class ImageCopier:
    """Compares images and copies those that differ, in parallel."""

    def __init__(self, client: RegistryClient, tools: ImageTools, say: t.Callable[..., None] | None = None) -> None:
        """say: reports the progress (Progress.report)."""
        self._client, self._tools, self._say = client, tools, say
        self._lock = threading.Lock()
        self._places: dict[str, threading.Lock] = {}

    def compare(self, specs: t.Sequence[CopySpec]) -> list[CopyState]:
        """The state of each entry; sends one request for the source and one for each target. Raises InvalidOptions or PartialFailure with all errors."""
        outcomes = run_bounded(
            [(spec.name, functools.partial(self._compare, spec)) for spec in specs],
            _COMPARISONS,
            fatal=lambda dummy: False,
        )
        errors = [one.error for one in outcomes if one.error is not None]
        if errors and all(isinstance(error, InvalidOptions) for error in errors):
            problems = [problem for error in errors for problem in t.cast("InvalidOptions", error).problems]
            raise InvalidOptions(
                list(dict.fromkeys(problems)), "Nothing was copied, because these images cannot be copied:"
            )
        _raise_failures([(one.name, one.error) for one in outcomes], [], "compared, so nothing was copied")
        return [t.cast("CopyState", one.value) for one in outcomes]

    def require(self, states: t.Sequence[CopyState]) -> None:
        """Raise InvalidOptions or ConnectionProblem if a foreseeable problem prevents a copy, even in check mode."""
        _check_caches([state for state in states if state.different])
        if any(state.desired not in state.actual.values() for state in states):
            self._tools.require("skopeo")

    def copy(self, states: t.Sequence[CopyState]) -> None:
        """Copy the entries that differ; after a failure, the other entries are still copied. Raises PartialFailure with all errors."""
        self.require(states)
        different = [state for state in states if state.different]
        done: list[CopyState] = []

        def report(outcome: t.Any, finished: int) -> None:
            if outcome.ok:
                done.append(outcome.value)
            if self._say is not None:
                text = f"{'copied' if outcome.ok else 'could not copy'} {outcome.name}"
                self._say(text, len(done), len(different), failed=finished - len(done))

        outcomes = run_bounded(
            [(state.spec.name, functools.partial(self._copy, state)) for state in different],
            _COPIES,
            on_done=report,
            fatal=lambda dummy: False,
        )
        _raise_failures([(one.name, one.error) for one in outcomes], done, "copied")

    def _compare(self, spec: CopySpec) -> CopyState:
        state = CopyState(spec)
        state.source_digest = self._digest(spec.source, required=True) or ""
        state.desired = state.source_digest
        if spec.platforms:
            self._select_platforms(state)
        for target in spec.targets:
            state.actual[str(target)] = self._digest(target, required=False)
        if state.desired not in state.actual.values():
            self._require_source(spec.source)
        return state

    def _require_source(self, source: Location) -> None:
        """Raise InvalidOptions if the source image does not exist. A source that is specified by digest is read only if it must be copied."""
        if isinstance(source, ImageReference) and source.digest and self._client.digest(source) is None:
            raise _no_such_image(source)

    def _select_platforms(self, state: CopyState) -> None:
        """Set the desired digest to that of the chosen platforms."""
        source, destination = state.spec.source, state.spec.destination
        if not isinstance(source, ImageReference):
            raise InvalidOptions(
                [f"{source}: platforms is supported only if the source is an image in a registry; remove it"]
            )
        digest, index = select_platforms(self._client, source, state.spec.platforms)
        if index is not None and isinstance(destination, FileReference):
            raise InvalidOptions(
                [
                    f"{destination}: an archive or a layout can contain one platform or all platforms, but {', '.join(sorted(index.children))} are "
                    "selected; select one of them, or remove platforms"
                ]
            )
        state.index, state.desired = index, digest or state.desired

    def _digest(self, location: Location, *, required: bool) -> str | None:
        """The digest; None if the image does not exist."""
        if isinstance(location, ImageReference):
            digest = location.digest if required and location.digest else self._client.digest(location)
        else:
            digest = self._file_digest(location, required=required)
        if digest is None and required:
            raise _no_such_image(location)
        return digest

    def _file_digest(self, location: FileReference, *, required: bool) -> str | None:
        try:
            return digest_of(self._tools.inspect(location).encode(errors="surrogateescape"))
        except ToolFailed:
            if required:
                raise
            # skopeo has no separate exit status for an archive that does not exist.
            return None

    def _copy(self, state: CopyState) -> CopyState:
        missing = state.different
        if state.desired not in state.actual.values():
            missing = missing[self._copy_layers(state, missing[0]) :]
        if missing:
            self._tag(state, t.cast("list[ImageReference]", missing))
        return state

    def _copy_layers(self, state: CopyState, first: Location) -> int:
        """Copy the image to the first target; returns the number of targets that the copy has completed."""
        source, chosen = state.spec.source, bool(state.spec.platforms)
        with self._exclusive(first):
            if state.index is not None and isinstance(source, ImageReference) and isinstance(first, ImageReference):
                # Copies only the manifests of the chosen platforms, without a tag; _tag() writes their index.
                for digest in state.index.digests:
                    self._tools.copy(source.with_digest(digest), first.with_digest(digest), all_platforms=False)
                return 0
            if isinstance(source, ImageReference):
                source = source.with_digest(state.desired)
            self._tools.copy(source, first, all_platforms=not chosen)
        return 1

    def _exclusive(self, target: Location) -> contextlib.AbstractContextManager[t.Any]:
        """A lock that allows only one copy to a repository or a layout at a time.

        The images of a repository share layers. Parallel copies would send such a layer twice, and a registry that stores its layers as files
        (distribution) responds with status 500 if it is asked for a layer while another copy creates the layer's link. skopeo does not lock the index
        of a layout, so one of two images would be lost.
        """
        if isinstance(target, ImageReference):
            place = target.name
        elif target.kind == LAYOUT:
            place = os.path.normpath(target.path)
        else:
            return contextlib.nullcontext()
        with self._lock:
            return self._places.setdefault(place, threading.Lock())

    def _tag(self, state: CopyState, missing: t.Sequence[ImageReference]) -> None:
        """Write the manifest under each tag, with one request for each."""
        manifest = state.index or self._client.manifest(missing[0].with_digest(state.desired))
        if manifest is None:
            raise ToolFailed(
                f"{missing[0].name}: the registry no longer has the image {state.desired}, which existed when the run began. Run the playbook again."
            )
        for target in missing:
            self._client.put(target, manifest)


def select_platforms(
    client: RegistryClient, source: ImageReference, platforms: t.Sequence[str]
) -> tuple[str | None, Manifest | None]:
    """The digest of an image with only these platforms, and its index if there are several of them. Both are None if the image has no index.

    Raises InvalidOptions if the image lacks a platform.
    """
    manifest = client.manifest(source)
    if manifest is None or not manifest.is_index:
        return None, None
    chosen = {name: digest for name, digest in manifest.children.items() if is_among(name, platforms)}
    missing = [name for name in platforms if not any(is_among(one, [name]) for one in chosen)]
    if missing:
        raise InvalidOptions(
            [
                f"{source}: has no image for {', '.join(missing)}; its platforms are {', '.join(sorted(manifest.children))}"
            ]
        )
    if len(chosen) == 1:
        return next(iter(chosen.values())), None
    index = without_other_platforms(manifest, platforms)
    return index.digest, index


def _no_such_image(location: Location) -> InvalidOptions:
    return InvalidOptions([f"{location}: this image does not exist; check the repository and the tag"])


def _check_caches(different: t.Iterable[CopyState]) -> None:
    """Raise InvalidOptions if a pull-through cache returns a wrong image or none. The image cannot be copied, because a cache accepts no pushed images."""
    problems = [
        f"{state.spec.destination}: the pull-through cache returns {next(iter(state.actual.values())) or 'no image'} instead of {state.desired}. Check "
        "the address of the registry that it reads from, its credentials there, and for how long it keeps tags"
        for state in different
        if state.spec.pull_through
    ]
    if problems:
        raise InvalidOptions(problems, "The caches do not have these images:")


def _same_cause(failed: t.Sequence[tuple[str, Exception]]) -> list[list[tuple[str, Exception]]]:
    """The failures grouped by cause. If a registry does not respond or rejects a login, all images in that registry fail in the same way."""
    groups: dict[t.Any, list[tuple[str, Exception]]] = {}
    for name, error in failed:
        key: t.Any = name
        if isinstance(error, RegistryError) and (error.unreachable or error.status == 401):
            key = (error.registry, error.status, error.reason, error.login)
        groups.setdefault(key, []).append((name, error))
    return list(groups.values())


def _raise_failures(outcomes: t.Sequence[tuple[str, Exception | None]], done: t.Sequence[CopyState], verb: str) -> None:
    """Raise one error for all failures; an unexpected exception is raised unchanged."""
    failed = [(name, error) for name, error in outcomes if error is not None]
    if not failed:
        return
    for dummy, error in failed:
        if not isinstance(error, ServiceError | ModuleFailure):
            raise error
    partial = {"changed": bool(done), "images": [state.result() for state in done]}
    if len(failed) == 1:
        error = t.cast("ServiceError | ModuleFailure", failed[0][1])
        error.partial = {**error.partial, **partial}
        raise error
    lines = [f"{abbreviate([name for name, dummy in group])}: {group[0][1]}" for group in _same_cause(failed)]
    raise PartialFailure(f"{len(failed)} of {len(outcomes)} images were not {verb}:\n" + "\n".join(lines), partial)


# Converts the entries of `images` to specs, and finds all problems in them (pure).

_PLATFORM = re.compile(r"[a-z0-9]+/[a-z0-9_]+(?:/[a-z0-9]+)?")


def parse_specs(images: t.Sequence[Document]) -> tuple[list[CopySpec], list[str]]:
    """The specs and the problems. Two entries that write the same tag are a problem."""
    specs: list[CopySpec] = []
    problems: list[str] = []
    targets: dict[str, str] = {}
    files: dict[str, tuple[str, str]] = {}
    for index, entry in enumerate(images):
        path = f"images[{index}]"
        before = len(problems)
        source = _location(f"{path}.source", entry["source"], problems)
        destination = _location(f"{path}.destination", entry["destination"], problems)
        problems += _field_problems(path, entry, destination)
        if len(problems) > before or source is None or destination is None:
            continue
        spec = CopySpec(source, destination, tuple(entry["tags"]), tuple(entry["platforms"]), entry["pull_through"])
        for target in map(str, spec.targets):
            if target in targets:
                problems.append(f"{path}: {target} is also written by {targets[target]}; remove one of them")
            targets[target] = path
        if isinstance(destination, FileReference):
            # Only a layout can contain several images; a copy to an archive or to a folder replaces the existing image.
            kind, other = files.setdefault(os.path.normpath(destination.path), (destination.kind, path))
            if other != path and (kind, destination.kind) != (LAYOUT, LAYOUT):
                problems.append(
                    f"{path}: {destination.path} is also the destination of {other}, but can contain only one image; use a different path"
                )
        specs.append(spec)
    return specs, problems


def _location(path: str, text: str, problems: list[str]) -> Location | None:
    try:
        return parse_location(text)
    except InvalidReference as error:
        problems.append(f"{path}: {quote(text)} {error}")
        return None


def _field_problems(path: str, entry: Document, destination: Location | None) -> t.Iterator[str]:
    if isinstance(destination, ImageReference) and destination.digest:
        yield f"{path}.destination: {entry['destination']!r} contains a digest, but the image determines the digest; specify a tag instead"
    if isinstance(destination, FileReference) and destination.kind == DOCKER_ARCHIVE:
        yield f"{path}.destination: {DOCKER_ARCHIVE} cannot keep digests; use oci-archive instead"
    if isinstance(destination, FileReference) and entry["tags"]:
        yield f"{path}.tags: has no effect for an archive or a layout; remove it"
    if isinstance(destination, FileReference) and entry["pull_through"]:
        yield f"{path}.pull_through: is supported only for a registry, not for an archive or a layout; remove it"
    for number, tag in enumerate(entry["tags"]):
        if problem := tag_problem(tag):
            yield f"{path}.tags[{number}]: {tag!r} {problem}"
    for number, platform in enumerate(entry["platforms"]):
        if not _PLATFORM.fullmatch(platform):
            yield f"{path}.platforms[{number}]: {platform!r} is not a platform; use os/architecture, such as linux/amd64"
