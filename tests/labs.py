# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab as a test sees it: the command `lab/lab` with a name of its own, and the environment for Ansible against it."""

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

from ansible_collections.accel.gpu.plugins.module_utils.catalog.names import (
    CLUSTER_NAME_ANNOTATION,
    LEASE_NAME,
    LEASE_NAMESPACE,
)
from lab.layout import Lab as LabLayout

from .programs import BUILD, REPO, environment, run

LAB = REPO / "lab" / "lab"
SAVED = BUILD / "saved"
# The id of the first process of the test run, for all that it starts.
RUN = "ACCEL_GPU_TEST_RUN_ID"


def build_lab() -> None:
    """Builds what the cache lacks, and says so while it does."""
    subprocess.run([LAB, "build"], stdout=subprocess.DEVNULL, check=True)


@dataclass
class Lab:
    """One named lab; `env` is what `lab/lab env` exports, on top of this checkout's own environment."""

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
        """The same environment, with the cluster reached as another kubeconfig says."""
        return {**self.env, **reached_by(kubeconfig)}

    def env_as(self, playbook: str) -> dict[str, str]:
        """The same as a user who has the rights that are shipped for a playbook, and no other."""
        return self._environment("--rbac", playbook)

    def command(self, *words: str) -> str:
        """`lab/lab WORDS` for this lab; fails the test when that fails."""
        return run(LAB, "--name", self.name, *words)

    def up(self, *parts: str, options: Sequence[str] = ()) -> None:
        """Starts a clean lab, with these parts beside its Kubernetes, and reads its environment."""
        self.command("down", "--delete")
        base = ["--port-base", str(self.port_base)] if self.port_base else []
        self.command("up", *base, *(word for part in parts for word in ("--part", part)), *options)
        self.read()

    def read(self) -> None:
        """Reads the environment of a lab that is up."""
        self.env = self._environment()

    def reset(self, fleet: Path | None = None) -> None:
        """An empty cluster with this fleet, else with the default one."""
        self.command("reset", *(["--fleet", str(fleet)] if fleet else []))

    def become(self, name: str, make: Callable[[], object], fleet: Path | None = None) -> None:
        """Become the cluster that `make` makes of an empty one.

        It is made once a run and saved under this name, for the labs of all processes of the run.
        """
        saved = LabLayout.named(self.name).saved(name)
        if saved.exists():
            self.command("reset", "--to", name)
        else:
            self._make(name, make, fleet)

    def _make(self, name: str, make: Callable[[], object], fleet: Path | None) -> None:
        """Make and save the cluster, or take over the one that another process of this run has made."""
        saved, copy = LabLayout.named(self.name).saved(name), run_folder() / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        # A process that needs the same cluster waits: making it takes longer, and the processor that the other one uses.
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
        """Record the name of this lab in a cluster that another lab has made."""
        lease = ["lease", LEASE_NAME, "--namespace", LEASE_NAMESPACE]
        if run("kubectl", "get", *lease, "--ignore-not-found", "--output", "name", env=self.env).strip():
            recorded = f"{CLUSTER_NAME_ANNOTATION}={self.name}"
            run("kubectl", "annotate", *lease, "--overwrite", recorded, env=self.env)

    def down(self) -> None:
        """Leaves nothing running, unless ACCEL_GPU_TEST_KEEP asks to look at it."""
        if not os.environ.get("ACCEL_GPU_TEST_KEEP"):
            self.command("down", "--delete")

    def _environment(self, *options: str) -> dict[str, str]:
        script = f'said=$("{LAB}" --name {self.name} env {" ".join(options)}) && eval "$said" && env -0'
        exported = subprocess.run(
            ["bash", "-c", script], cwd=REPO, env=environment(), stdout=subprocess.PIPE, text=True, check=True
        )
        return dict(line.partition("=")[::2] for line in exported.stdout.split("\0") if line)


def run_folder() -> Path:
    """Where the processes of this test run keep the clusters that they share."""
    return SAVED / os.environ[RUN]


def forget_saved() -> None:
    """Delete the clusters that this test run has saved, and those of runs that were killed."""
    for folder in SAVED.glob("*"):
        if folder == run_folder() or not Path("/proc", folder.name).exists():
            shutil.rmtree(folder, ignore_errors=True)


def reached_by(kubeconfig: Path) -> dict[str, str]:
    """What of the environment leads Ansible, kubectl and helm to the cluster of a kubeconfig."""
    return {"KUBECONFIG": str(kubeconfig)}


@contextmanager
def own_lab(name: str, *parts: str, options: Sequence[str] = ()) -> Iterator[Lab]:
    """A clean lab for this test run alone: NAME, or NAME-2 and so on while other runs have those; gone afterwards.

    `parts` are the lab's parts beside its Kubernetes (`lab/lab up --part`), `options` others of `lab/lab up`.
    """
    with free_name(name) as free:
        lab = Lab(free)
        try:
            lab.up(*parts, options=options)
            yield lab
        finally:
            lab.down()


@contextmanager
def free_name(name: str) -> Iterator[str]:
    """A lab's name for this test run alone: NAME, or NAME-2 and so on while other runs have those.

    A run that was killed holds none, so that its lab is taken over.
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
