# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs skopeo and buildah with the credentials and certificates of the registries, and explains the errors of these tools.

The command lines contain no credentials, only references, paths and file descriptors. Sources of the options: skopeo 1.9 docs/skopeo-copy.1.md,
buildah 1.28 docs/buildah-push.1.md.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import tempfile
import time
import typing as t

from ..catalog.secrets import masked
from ..common.errors import ConnectionProblem, ModuleFailure
from ..common.temporary_files import make_file
from ..common.time_limit import RunCommand, run_within
from ..schema.messages import option_of_role
from .errors import MISSING_PROJECT, TOO_MANY_REQUESTS
from .reference import ImageReference, Location

if t.TYPE_CHECKING:
    from .credentials import Credentials
    from .transport import RegistryAccess

_MAX_LENGTH = 600
# The seconds before a copy is started again that failed because of a limit on the number of requests.
_PAUSES = (15.0, 30.0, 60.0)
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
        """Store the arguments; the tools are not looked up yet. authorities: the CA certificates of all registries, for builds, whose base images may
        come from any of them.

        timeout: the seconds after which a tool is stopped.
        """
        self._timeout, self._sleep = timeout, sleep
        self._run, self._search, self._access_of = run, search, access_of
        self._credentials, self._authorities = credentials, authorities

    def require(self, tool: str) -> None:
        """Raise ConnectionProblem if a tool is missing."""
        find_tool(tool, self._search)

    def copy(self, source: Location, destination: Location, *, all_platforms: bool) -> None:
        """Copy an image without changing its digests. Layers that the destination already has are not sent again. Raises ToolFailed.

        skopeo repeats a request at most a few seconds after a registry has limited the number of requests, so the copy is started again later.
        """
        arguments = ["copy", "--quiet", "--preserve-digests", "--retry-times", "3"]
        arguments += ["--all"] if all_platforms else []
        ends = [("src", source), ("dest", destination)]
        for pause in (*_PAUSES, None):
            try:
                self._call("skopeo", arguments, ends, [source.transport, destination.transport])
                return
            except ToolFailed as error:
                if pause is None or not TOO_MANY_REQUESTS.search(str(error)):
                    raise
            self._sleep(pause)

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
            self._call("buildah", [*arguments, *trusted], [], [context], named)

    def buildah(self, arguments: t.Sequence[str]) -> str:
        """The output of a buildah command that needs no registry; raises ToolFailed."""
        return self._output("buildah", list(arguments), ())

    def push(self, arguments: t.Sequence[str], image: str, destination: ImageReference) -> str:
        """Push an image from buildah's storage; raises ToolFailed."""
        return self._call("buildah", list(arguments), [("", destination)], [image, destination.transport])

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
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="accel-gpu-ca-"))
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
    lines = [_LOG_PREFIX.sub("", line.strip()) for line in errors.strip().splitlines() if line.strip()]
    reason = _shortened(" ".join(masked(line) for line in lines[-6:])) or "no reason was given"
    remedy = next((remedy for text, remedy in _REMEDIES if text in errors.lower()), "")
    return f"{tool} says: {reason.rstrip('.')}." + (f" {remedy}" if remedy else "")
