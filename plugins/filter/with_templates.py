# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: with_templates
short_description: Set the templates of MachineSets on vSphere
version_added: 0.1.0
description:
  - Returns the option C(nodegroups) of M(accel.gpu.machineset), in which each node group that M(accel.gpu.vgpu_template) has built a template for uses that
    template. Other node groups are returned unchanged.
positional: _input, templates
options:
  _input:
    description: The node groups, such as C(nodegroups) of P(accel.gpu.plan#filter).
    type: list
    elements: dict
    required: true
  templates:
    description: The result C(templates) of M(accel.gpu.vgpu_template), whose names are those of the node groups.
    type: dict
    required: true
seealso:
  - plugin: accel.gpu.plan
    plugin_type: filter
author:
  - The accel.gpu authors (@accel-gpu)
"""

EXAMPLES = r"""
- name: Create the MachineSets of pools with vGPUs
  accel.gpu.machineset:
    gpu_cluster: "{{ gpu_cluster }}"
    nodegroups: "{{ plan.nodegroups | accel.gpu.with_templates(result.templates) }}"
"""

RETURN = r"""
_value:
  description: The node groups.
  type: list
  elements: dict
  sample: [{name: vdi-a, node_count: 2, template: /DC1/vm/accel-gpu/vdi-a-418.94.202501221327-0-3fa0c1}]
"""

import typing as t


def with_templates(nodegroups: list[dict[str, t.Any]], templates: dict[str, t.Any]) -> list[dict[str, t.Any]]:
    """Return the node groups with the paths of their templates."""
    paths = {name: entry["path"] for name, entry in templates.items() if entry.get("path")}
    return [
        {**group, "template": paths[group["name"]]} if group["name"] in paths else dict(group) for group in nodegroups
    ]


class FilterModule:
    """The filter accel.gpu.with_templates."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """Return the filter's name and function."""
        return {"with_templates": with_templates}
