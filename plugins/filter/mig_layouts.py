# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: mig_layouts
short_description: List the maximal MIG layouts of a GPU model
version_added: 0.1.0
description:
  - Lists the maximal MIG layouts of a GPU model. A layout is maximal if no device can be added to it. A layout fits on the GPU if and only if it is a maximal
    layout or a subset of one.
  - The geometry of the model comes from the collection's catalog. The filter reads only its input.
positional: _input
options:
  _input:
    description:
      - The GPU model, as its key in the catalog, its product name, or a common short name.
      - The filter fails if the catalog does not contain the name, or if the model does not support MIG.
    type: str
    required: true
seealso:
  - plugin: accel.gpu.mig_fit
    plugin_type: filter
author:
  - The accel.gpu authors (@accel-gpu)
"""

EXAMPLES = r"""
- name: Show which layouts have two devices of at least 40 GB
  ansible.builtin.debug:
    msg: "{{ item | join(', ') }}"
  loop: "{{ 'A100-SXM4-80GB' | accel.gpu.mig_layouts }}"
  when: item | select('search', '40gb') | length == 2

# 3g.40gb, 4g.40gb
# 3g.40gb, 3g.40gb
"""

RETURN = r"""
_value:
  description: The layouts, starting with the largest devices. Each layout is a sorted list of profiles with one entry for each device.
  type: list
  elements: list
  sample: [[7g.80gb], [3g.40gb, 4g.40gb]]
"""

import typing as t

from ansible.errors import AnsibleFilterError

from ..module_utils.sharing_modes.mig import format_devices, geometry_of, maximal


def mig_layouts(model: t.Any) -> list[list[str]]:
    """Return the maximal layouts of the model."""
    try:
        return [format_devices(layout) for layout in maximal(geometry_of(model))]
    except ValueError as error:
        raise AnsibleFilterError(f"accel.gpu.mig_layouts: {error}") from error


class FilterModule:
    """The filter accel.gpu.mig_layouts."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """Return the filter's name and function."""
        return {"mig_layouts": mig_layouts}
