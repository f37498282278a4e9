# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The helm program: fetch a chart, render it, and see whether a helm of this machine is at work. It never meets the cluster."""

from __future__ import annotations

import os
import re
import typing as t

from .chart import ChartProblem, dump, is_local

INSTALL_HELM = "Install Helm from https://helm.sh/docs/intro/install/ so that it is on PATH, or say where it is with the option binary_path."

_PREFIX = re.compile(r"^(Error:\s*|WARNING:.*\n)+", re.IGNORECASE)
_INCOMPATIBLE = "incompatible with Kubernetes"
# What helm says, and what a user can do about it.
_ADVICE: tuple[tuple[str, str], ...] = (
    ("connection refused", "Nothing answers there: check the address, or use a chart from a local path."),
    ("no such host", "The name does not resolve from this machine: check the address, the DNS or a proxy, "
                     "or use a chart from a local path."),
    ("i/o timeout", "No answer: check the network or a proxy, or use a chart from a local path."),
    ("not a valid chart repository", "Check chart_repo_url: it must be the folder that holds index.yaml."),
    ("certificate", "The server's certificate is not trusted by this machine."),
    ("unauthorized", "Log in first: helm registry login, or helm repo add with a user."),
    ("401", "Log in first: helm registry login, or helm repo add with a user."),
    ("403", "Access is denied there: check the credentials (helm registry login, helm repo add)."),
    ("not found", "Check the chart's name and version there."),
    ("should be in form of repo_name/path_to_chart", "A bare chart name needs chart_repo_url; a path starts with / or ./ ."),
)  # fmt: skip


class Run(t.Protocol):
    """AnsibleModule.run_command, as far as it is used here."""

    def __call__(
        self, args: list[str], *, environ_update: dict[str, str], data: str | None = None
    ) -> tuple[int, str, str]:
        """Exit status, standard output, standard error; `data` is the standard input."""


class Helm:
    """One helm binary; nothing that it is given stands on a command line but names, versions and file paths."""

    def __init__(self, binary: str, run: Run, folder: str) -> None:
        self._binary = binary
        self._run = run
        self._folder = folder

    def fetch(self, reference: str, repository: str | None, version: str | None) -> str:
        """The path of a chart on this machine, downloaded when it is elsewhere; raises ChartProblem."""
        if is_local(reference):
            path = os.path.expanduser(reference)
            if not os.path.exists(path):
                raise ChartProblem(f"The chart {path} does not exist on this machine: check chart_ref.")
            return path
        command = ["pull", reference, "--destination", self._folder]
        command += ["--repo", repository] if repository else []
        command += ["--version", version] if version else []
        status, _out, errors = self._call(command)
        if status:
            raise ChartProblem(
                f"The chart {_where(reference, repository, version)} is not to be had. {shorten_output(errors)}"
            )
        return os.path.join(
            self._folder, next(name for name in sorted(os.listdir(self._folder)) if name.endswith(".tgz"))
        )

    def render(
        self,
        path: str,
        release: str,
        namespace: str,
        release_values: t.Mapping[str, t.Any],
        server_version: t.Callable[[], str],
    ) -> str:
        """Everything that the chart makes of these values, CRDs included; raises ChartProblem with helm's own reason.

        Only a chart that refuses the Kubernetes version which helm assumes makes us ask the cluster for its own.
        """
        # By standard input: a file with values would outlive a run that is killed.
        command = ["template", release, path, "--namespace", namespace, "--include-crds", "--skip-tests"]
        command, given = [*command, "--values", "-"], dump(dict(release_values))
        status, out, errors = self._call(command, given)
        if status and _INCOMPATIBLE in errors:
            status, out, errors = self._call([*command, "--kube-version", server_version()], given)
        if status:
            raise ChartProblem(f"The chart {path} does not accept these values. {shorten_output(errors)}")
        return out

    def _call(self, command: list[str], data: str | None = None) -> tuple[int, str, str]:
        # Neither command needs a cluster, and without a kubeconfig helm cannot reach a wrong one.
        environment = {"KUBECONFIG": os.devnull, "HELM_DEBUG": "false"}
        return self._run([self._binary, *command], environ_update=environment, data=data)


def shorten_output(errors: str) -> str:
    """Helm's own reason in one line, and what to do where that is known."""
    lines = [line.strip() for line in _PREFIX.sub("", errors.strip()).splitlines() if line.strip()]
    reason = " ".join(lines)[:600] or "helm gave no reason"
    low = reason.lower()
    advice = next((said for word, said in _ADVICE if word in low), "")
    return f"helm says: {reason.rstrip('.')}." + (f" {advice}" if advice else "")


def _where(reference: str, repository: str | None, version: str | None) -> str:
    place = f" in {repository}" if repository else ""
    return f"{reference}{place}" + (f" at version {version}" if version else "")


def is_running(release: str, processes: t.Iterable[t.Sequence[str]]) -> bool:
    """Whether one of these command lines is a helm that works on the release."""
    return any(args and os.path.basename(args[0]).startswith("helm") and release in args[1:] for args in processes)


def processes(run: t.Callable[[list[str]], tuple[int, str, str]]) -> list[list[str]] | None:
    """The command lines of this machine's processes; None where they cannot be read."""
    if os.path.isdir("/proc/self"):
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    with open(f"/proc/{entry}/cmdline", "rb") as handle:
                        found.append(handle.read().decode("utf-8", "replace").rstrip("\0").split("\0"))
                except OSError:
                    continue  # it has ended meanwhile
        return found
    status, out, dummy = run(["ps", "-axo", "command="])
    return None if status else [line.split() for line in out.splitlines()]
