# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All generated files, except the action plugins (module_lists), which are also removed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.pages import (
    awx_project,
    galaxy_requirements,
    mig_layouts,
    module_lists,
    operator_version,
    pictures,
    report_rules,
    role_defaults,
    role_files,
    variables,
)

FILES: dict[Path, Callable[[], str]] = {
    mig_layouts.PAGE: mig_layouts.page,
    variables.PAGE: variables.page,
    variables.ROLE: variables.role,
    module_lists.RUNTIME: module_lists.runtime,
    module_lists.PAGE: module_lists.page,
    pictures.PLAN: pictures.plan,
    galaxy_requirements.PAGE: galaxy_requirements.page,
    awx_project.PAGE: awx_project.page,
    awx_project.ROLE: awx_project.role,
    awx_project.REQUIREMENTS: awx_project.requirements,
    **{path: partial(awx_project.playbook, path) for path in awx_project.PLAYBOOKS},
    **{path: partial(role_defaults.page, path) for path in role_defaults.PAGES},
    **{path: partial(report_rules.page, path) for path in report_rules.PAGES},
    role_files.RULES: role_files.rules,
    **{path: partial(role_files.metadata, path) for path in role_files.METADATA},
    **{path: partial(operator_version.page, path) for path in operator_version.PAGES},
}
