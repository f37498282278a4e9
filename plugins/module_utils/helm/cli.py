# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs helm to fetch and render charts, without a connection to the cluster."""

from __future__ import annotations

import os
import re
import typing as t

from ..common.time_limit import RunCommand, run_within
from ..common.yaml_documents import dump
from .chart import ChartProblem, is_local_chart

INSTALL_HELM = (
    "Install Helm from https://helm.sh/docs/intro/install/ so that it is on PATH, or set the option binary_path."
)

_PREFIX = re.compile(r"^(Error:\s*|WARNING:.*\n)+", re.IGNORECASE)
_INCOMPATIBLE = "incompatible with Kubernetes"
# Parts of helm's error messages and the remedy for each.
_REMEDIES: tuple[tuple[str, str], ...] = (
    ("connection refused", "Nothing listens at this address: check the address, or use a chart from a local path."),
    ("no such host", "The name does not resolve from this machine: check the address, the DNS or a proxy, "
                     "or use a chart from a local path."),
    ("i/o timeout", "There was no response: check the network or a proxy, or use a chart from a local path."),
    ("not a valid chart repository", "Check chart_repo_url: it must be the directory that contains index.yaml."),
    ("certificate", "This machine does not trust the server's certificate."),
    ("unauthorized", "Log in first: helm registry login, or helm repo add with a user."),
    ("401", "Log in first: helm registry login, or helm repo add with a user."),
    ("403", "Access is denied: check the credentials (helm registry login, helm repo add)."),
    ("not found", "Check the name and version of the chart."),
    ("should be in form of repo_name/path_to_chart", "A bare chart name needs chart_repo_url; a path starts with / or ./ ."),
)  # fmt: skip

# The time limit for one command in seconds, which is sufficient because charts have at most a few MB.
_TIMEOUT = 300.0


class HelmMissing(Exception):
    """Raised if helm was not found; the message says where helm was searched for and contains the remedy."""


def find_helm(path: str | None, search: t.Callable[[str], str | None]) -> str:
    """The path to helm: the given path if it is set, otherwise the first helm on PATH; raises HelmMissing."""
    if path and not os.access(path, os.X_OK):
        raise HelmMissing(f"There is no executable at binary_path {path}. {INSTALL_HELM}")
    binary = path or search("helm")
    if not binary:
        raise HelmMissing(f"helm is not installed on this machine. {INSTALL_HELM}")
    return str(binary)


class Helm:
    """One helm binary; only names, versions and file paths appear on its command lines."""

    def __init__(self, binary: str, run: RunCommand, folder: str) -> None:
        """`folder` is the directory for downloaded charts."""
        self._binary = binary
        self._run = run
        self._folder = folder

    def fetch(self, reference: str, repository: str | None, version: str | None) -> str:
        """Return the local path of a chart; a remote chart is downloaded. Raises ChartProblem."""
        if is_local_chart(reference):
            path = os.path.expanduser(reference)
            if not os.path.exists(path):
                raise ChartProblem(f"The chart {path} does not exist on this machine: check chart_ref.")
            return path
        command = ["pull", reference, "--destination", self._folder]
        command += ["--repo", repository] if repository else []
        command += ["--version", version] if version else []
        status, dummy, errors = self._call(command)
        if status:
            chart = (
                reference + (f" in {repository}" if repository else "") + (f" at version {version}" if version else "")
            )
            raise ChartProblem(f"Cannot fetch chart {chart}. {error_summary(errors)}")
        archive = next(name for name in sorted(os.listdir(self._folder)) if name.endswith(".tgz"))
        return os.path.join(self._folder, archive)

    def render(
        self,
        path: str,
        release: str,
        namespace: str,
        release_values: t.Mapping[str, t.Any],
        server_version: t.Callable[[], str],
    ) -> str:
        """The chart rendered with these values, including CRDs; raises ChartProblem with helm's own reason.

        `server_version` is only called if the chart is incompatible with the Kubernetes version that helm assumes.
        """
        # Values are passed through standard input, because a file with values would remain after a killed run.
        command = ["template", release, path, "--namespace", namespace, "--include-crds", "--skip-tests"]
        command, text = [*command, "--values", "-"], dump(dict(release_values))
        status, output, errors = self._call(command, text)
        if status and _INCOMPATIBLE in errors:
            status, output, errors = self._call([*command, "--kube-version", server_version()], text)
        if status:
            raise ChartProblem(f"The chart {path} does not accept these values. {error_summary(errors)}")
        return output

    def _call(self, command: list[str], data: str | None = None) -> tuple[int, str, str]:
        # Neither `helm pull` nor `helm template` needs a cluster; without a kubeconfig, helm cannot connect to the wrong cluster.
        environment = {"KUBECONFIG": os.devnull, "HELM_DEBUG": "false"}
        try:
            return run_within(
                self._run,
                [self._binary, *command],
                _TIMEOUT,
                environ_update=environment,
                data=data,
                handle_exceptions=False,
            )
        except TimeoutError:
            raise ChartProblem(
                f"helm {' '.join(command[:2])} was stopped because it did not finish within {_TIMEOUT:g} seconds. Check the network or a proxy, or use a "
                "chart from a local path."
            ) from None
        except OSError as error:
            raise HelmMissing(f"{self._binary} cannot be started: {error.strerror}. {INSTALL_HELM}") from None


def error_summary(errors: str) -> str:
    """Helm's own error message in one line, with the remedy if it is known."""
    lines = [line.strip() for line in _PREFIX.sub("", errors.strip()).splitlines() if line.strip()]
    reason = " ".join(lines)[:600] or "helm gave no reason"
    remedy = next((remedy for text, remedy in _REMEDIES if text in reason.lower()), "")
    return f"helm says: {reason.rstrip('.')}." + (f" {remedy}" if remedy else "")


def is_running(release: str, processes: t.Iterable[t.Sequence[str]]) -> bool:
    """Whether one of these command lines is a helm process that works on the release."""
    return any(args and os.path.basename(args[0]).startswith("helm") and release in args[1:] for args in processes)


def processes(run: RunCommand) -> list[list[str]] | None:
    """The command lines of this machine's processes; None if they cannot be read."""
    if not os.path.isdir("/proc/self"):
        status, output, dummy = run(["ps", "-axo", "command="])
        return None if status else [line.split() for line in output.splitlines()]
    commands = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as handle:
                commands.append(handle.read().decode("utf-8", "replace").rstrip("\0").split("\0"))
        except OSError:
            continue  # The process has exited since the folder was listed.
    return commands
