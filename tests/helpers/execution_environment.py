# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The versions that the project pins for an execution environment, and what a Dockerfile says."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.programs import REPO

DEFINITION = REPO / "examples" / "execution-environment.yml"


def pinned_module(tool: str, module: str) -> str:
    """The version of a Go module that a tool of the lab is built from."""
    text = (REPO / "lab" / "pins" / tool / "go.mod").read_text(encoding="utf-8")
    match = re.search(rf"^(?:require)?\s*{re.escape(module)} (v\S+)", text, re.MULTILINE)
    assert match, f"{tool}: {module}"
    return match[1]


def pinned_package(name: str) -> str:
    """The version of a Python package that the development of the collection uses."""
    match = re.search(rf"^{name}==(\S+)$", (REPO / "requirements-dev.lock").read_text(encoding="utf-8"), re.MULTILINE)
    assert match, name
    return match[1]


HELM = pinned_module("helm", "helm.sh/helm/v3")
KUBECTL = pinned_module("kube", "k8s.io/kubernetes")


class Dockerfile:
    """The Dockerfile that ansible-builder has written into a build context."""

    def __init__(self, context: Path) -> None:
        self.text = (context / "Dockerfile").read_text(encoding="utf-8")

    @property
    def arguments(self) -> dict[str, str]:
        """The default of each build argument."""
        return {name: value.strip('"') for name, value in re.findall(r"^ARG (\w+)=(.*)$", self.text, re.MULTILINE)}

    @property
    def entrypoint(self) -> list[str]:
        """The entry point of the image."""
        (words,) = re.findall(r"^ENTRYPOINT (.*)$", self.text, re.MULTILINE)
        return list(json.loads(words))

    def shell_command(self, word: str) -> str:
        """The only RUN instruction that contains the word, as the shell gets it."""
        commands = re.findall(r"^RUN ((?:.*\\\n)*.*)$", self.text, re.MULTILINE)
        (command,) = [each for each in commands if word in each]
        return str(command).replace("\\\n", " ")
