# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The option for objects that an earlier step of the same run creates, so that a first run can be previewed."""

from __future__ import annotations


class ModuleDocFragment:
    """Fragment accel.gpu.expected."""

    DOCUMENTATION = r"""
options:
  expected:
    description:
      - Used by the roles of this collection; not a stable interface.
      - Namespaces and kinds that earlier steps of a real run create, and that do not exist yet in
        check mode on a first run. Objects that depend on them are previewed as new.
      - If a kind or namespace neither exists nor is expected, the module fails, even in check mode.
    type: dict
    suboptions:
      namespaces:
        description: Names of namespaces.
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
            description: Group and version.
            type: str
            required: true
          kind:
            description: Name of the kind.
            type: str
            required: true
"""
