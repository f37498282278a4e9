# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of roles that repeat the content of another file: the oldest release of ansible-core, and the RBAC rules of the CronJob."""

from __future__ import annotations

import re
from pathlib import Path

from tests.pages.module_lists import RUNTIME
from tests.programs import REPO

METADATA = sorted(REPO.glob("roles/*/meta/main.yml"))
# The role new_nodes reads this copy, because a role can only read its own files.
RULES = REPO / "roles" / "new_nodes" / "files" / "rights.yaml"
_RULES_SOURCE = REPO / "examples" / "rbac" / "new_nodes.yaml"
_REQUIRED = re.compile(r'^requires_ansible: ">=(\d+\.\d+)', re.MULTILINE)
_MINIMUM = re.compile(r'(?<=^  min_ansible_version: ").*(?="$)', re.MULTILINE)


def metadata(path: Path) -> str:
    """One of METADATA, with the release that meta/runtime.yml requires."""
    required = _REQUIRED.search(RUNTIME.read_text(encoding="utf-8"))
    if required is None:
        raise ValueError(f"{RUNTIME} lacks the lowest release in requires_ansible")
    return _MINIMUM.sub(required[1], path.read_text(encoding="utf-8"))


def rules() -> str:
    """The content of RULES."""
    return _RULES_SOURCE.read_text(encoding="utf-8")
