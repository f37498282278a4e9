# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents the option that lists the objects that earlier steps of a run create, so that a first run can be previewed."""

from __future__ import annotations


class ModuleDocFragment:
    """Provides the documentation fragment accel.gpu.expected."""

    DOCUMENTATION = r"""
options:
  expected:
    description:
      - Used by this collection's roles. This option is not a stable interface.
      - Namespaces and kinds that earlier steps of a real run create. If the first run is in check mode, they do not exist yet, so objects that depend on them
        are previewed as new.
      - If a required kind or namespace does not exist and is not listed in this option, the module fails, even in check mode.
    type: dict
    suboptions:
      namespaces:
        description: Names of the namespaces.
        type: list
        elements: str
        default: []
      kinds:
        description: Kinds whose CustomResourceDefinitions are created by an earlier step.
        type: list
        elements: dict
        default: []
        suboptions:
          api_version:
            description: API group and version of the kind.
            type: str
            required: true
          kind:
            description: Name of the kind.
            type: str
            required: true
"""
