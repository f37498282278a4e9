# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The labs of tests: the command `lab/lab` with a lab's name, and the environment for Ansible."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.names import (
    CLUSTER_NAME_ANNOTATION,
    LEASE_NAME,
    LEASE_NAMESPACE,
)
from lab.layout import Lab as LabLayout

from .programs import BUILD, REPO, environment, run

LAB = REPO / "lab" / "lab"
SAVED = BUILD / "saved"
# The id of the first process of the test run, in the environment of all its child processes.
RUN = "ACCEL_GPU_TEST_RUN_ID"


# What a lab with OpenShift needs besides Kubernetes.
OPENSHIFT = ("openshift", "olm")


def build_lab(*parts: str) -> None:
    """Build the missing parts of the cache (default: those of every lab), and print its progress."""
    subprocess.run([LAB, "build", *parts], stdout=subprocess.DEVNULL, check=True)


@dataclass
class Lab:
    """One named lab; `env` is the output of `lab/lab env`, added to the environment of this checkout."""

    name: str
    port_base: int | None = None
    env: dict[str, str] = field(default_factory=dict)

    @property
    def directory(self) -> Path:
        return Path(self.env["LAB_DIR"])

    @property
    def kubeconfig(self) -> Path:
        return Path(self.env["KUBECONFIG"])

    @property
    def audit_log(self) -> Path:
        return self.directory / "log" / "audit.jsonl"

    def env_through(self, kubeconfig: Path) -> dict[str, str]:
        """The environment with another kubeconfig."""
        return {**self.env, **reached_by(kubeconfig)}

    def env_as(self, playbook: str) -> dict[str, str]:
        """The environment of a user with only the RBAC rules that are shipped for a playbook."""
        return self._environment("--rbac", playbook)

    def command(self, *words: str) -> str:
        """Run `lab/lab WORDS` for this lab, which must succeed."""
        return run(LAB, "--name", self.name, *words)

    def up(self, *parts: str, options: Sequence[str] = ()) -> None:
        """Start a clean lab, with these parts besides its Kubernetes, and read its environment."""
        self.command("down", "--delete")
        base = ["--port-base", str(self.port_base)] if self.port_base else []
        self.command("up", *base, *(word for part in parts for word in ("--part", part)), *options)
        self.read()

    def read(self) -> None:
        """Read the environment of a running lab."""
        self.env = self._environment()

    def reset(self, fleet: Path | None = None) -> None:
        """Reset to an empty cluster with this fleet, or with the default one."""
        self.command("reset", *(["--fleet", str(fleet)] if fleet else []))

    def become(self, name: str, make: Callable[[], object], fleet: Path | None = None) -> None:
        """Load the cluster that `make` creates from an empty one.

        It is created once per run and saved with this name, for the labs of all processes of the run.
        """
        saved = LabLayout.named(self.name).saved(name)
        if saved.exists():
            self.command("reset", "--to", name)
        else:
            self._make(name, make, fleet)

    def _make(self, name: str, make: Callable[[], object], fleet: Path | None) -> None:
        """Create and save the cluster, or use the one that another process of this run has created."""
        saved, copy = LabLayout.named(self.name).saved(name), run_folder() / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        # A process that needs the same cluster waits, since creating it takes longer and uses the other process's processor.
        with copy.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if copy.exists():
                shutil.copytree(copy, saved)
                self.command("reset", "--to", name)
                self._take_name()
                self.command("save", name)
                return
            self.reset(fleet)
            make()
            self.command("save", name)
            unfinished = copy.with_suffix(".new")
            shutil.copytree(saved, unfinished)
            unfinished.rename(copy)

    def _take_name(self) -> None:
        """Record the name of this lab in a cluster that another lab has created."""
        lease = ["lease", LEASE_NAME, "--namespace", LEASE_NAMESPACE]
        if run("kubectl", "get", *lease, "--ignore-not-found", "--output", "name", env=self.env).strip():
            recorded = f"{CLUSTER_NAME_ANNOTATION}={self.name}"
            run("kubectl", "annotate", *lease, "--overwrite", recorded, env=self.env)

    def down(self) -> None:
        """Stop all processes, unless ACCEL_GPU_TEST_KEEP keeps the lab for inspection."""
        if not os.environ.get("ACCEL_GPU_TEST_KEEP"):
            self.command("down", "--delete")

    def _environment(self, *options: str) -> dict[str, str]:
        script = f'said=$("{LAB}" --name {self.name} env {" ".join(options)}) && eval "$said" && env -0'
        exported = subprocess.run(
            ["bash", "-c", script], cwd=REPO, env=environment(), stdout=subprocess.PIPE, text=True, check=True
        )
        return dict(line.partition("=")[::2] for line in exported.stdout.split("\0") if line)


def run_folder() -> Path:
    """The folder in which the processes of this test run store the clusters that they share."""
    return SAVED / os.environ[RUN]


def forget_saved() -> None:
    """Delete the saved clusters of this test run and of killed runs."""
    for folder in SAVED.glob("*"):
        if folder == run_folder() or not Path("/proc", folder.name).exists():
            shutil.rmtree(folder, ignore_errors=True)


def reached_by(kubeconfig: Path) -> dict[str, str]:
    """The environment variables that lead Ansible, kubectl and helm to the cluster of a kubeconfig."""
    return {"KUBECONFIG": str(kubeconfig)}


@contextmanager
def own_lab(name: str, *parts: str, options: Sequence[str] = ()) -> Iterator[Lab]:
    """A clean lab only for this test run: NAME, or NAME-2 and so on while other runs use those; deleted afterwards.

    `parts` are the lab's parts besides its Kubernetes (`lab/lab up --part`), `options` other options of `lab/lab up`.
    """
    with free_name(name) as free:
        lab = Lab(free)
        try:
            lab.up(*parts, options=options)
            yield lab
        finally:
            lab.down()


@contextmanager
def shared_lab(
    request: pytest.FixtureRequest,
    variable: str,
    name: str,
    *parts: str,
    builds: Sequence[Sequence[str]],
    options: Sequence[str] = (),
) -> Iterator[Lab]:
    """The running lab that the environment variable names; without it, own_lab() after building what is missing.

    `builds` are the arguments of one build_lab() after the other, whose progress is shown.
    """
    if running := os.environ.get(variable):
        lab = Lab(running)
        lab.read()
        yield lab
        return
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        for build in builds:
            build_lab(*build)
    with own_lab(name, *parts, options=options) as lab:
        yield lab


@contextmanager
def free_name(name: str) -> Iterator[str]:
    """A lab name only for this test run: NAME, or NAME-2 and so on while other runs use those.

    A killed run holds no name, so its lab is used again.
    """
    free, lock = _first_free(name)
    try:
        yield free
    finally:
        lock.close()


def _first_free(name: str) -> tuple[str, TextIO]:
    number, candidate = 1, name
    while True:
        path = BUILD / "lab" / f".{candidate}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            number += 1
            candidate = f"{name}-{number}"
        else:
            return candidate, lock
