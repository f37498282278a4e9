# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: mig_fit
short_description: Check whether MIG devices fit on one GPU, and where they are placed
version_added: 0.1.0
description:
  - Places MIG devices on the memory slices of one GPU in the same way as the driver, starting with the largest device.
  - If the devices do not fit, the filter returns the reason and the most similar layouts that fit. The reason names the devices that need the same slices, or
    the rule that the devices violate.
  - The geometry of the model comes from the collection's catalog. The filter reads only its input.
positional: _input, model
options:
  _input:
    description:
      - The profiles, in the notation of C(nvidia-smi mig -lgip). Specify one entry for each device, in a list or in a comma-separated string, or specify a
        dictionary with the number of devices of each profile, as in C(sharing.layout) of a pool.
    type: raw
    required: true
  model:
    description:
      - The GPU model, as its key in the catalog, its product name, or a common short name.
      - The filter fails if the catalog does not contain the name, or if the model does not support MIG.
    type: str
    required: true
seealso:
  - plugin: accel.gpu.mig_layouts
    plugin_type: filter
author:
  - The accel.gpu authors (@accel-gpu)
"""

EXAMPLES = r"""
- name: Reject a layout before anything is changed
  ansible.builtin.assert:
    that: found.fits
    fail_msg: "A GPU of the pool {{ found.reason }}"
  vars:
    found: "{{ ['3g.40gb', '2g.20gb'] | accel.gpu.mig_fit('A100-SXM4-80GB') }}"

- name: Show the unused slices of a GPU with two devices
  ansible.builtin.debug:
    msg: "{{ ({'3g.40gb': 2} | accel.gpu.mig_fit('A100-SXM4-80GB')).unused }}"

# {"compute": 1, "media": true, "memory": 0}
"""

RETURN = r"""
_value:
  description: Whether the devices fit, and where they are placed.
  type: dict
  contains:
    fits:
      description: Whether all devices fit at the same time.
      type: bool
      sample: true
    placements:
      description: The placement of each device, starting with the largest device. Empty if the devices do not fit.
      type: list
      elements: dict
      contains:
        profile:
          description: MIG profile.
          type: str
          sample: 3g.40gb
        start:
          description: Number of the first memory slice. Slices are numbered from 0.
          type: int
          sample: 4
        size:
          description: Number of memory slices.
          type: int
          sample: 4
    unused:
      description: Slices and engines that no device uses. Null if the devices do not fit.
      type: dict
      contains:
        compute:
          description: Number of unused compute slices.
          type: int
          sample: 1
        memory:
          description: Number of unused memory slices.
          type: int
          sample: 0
        media:
          description: Whether no device uses the media engines that exist only once on a GPU. Only the profiles with C(+me) or C(+me.all), and the profile of
            the whole GPU, use these engines.
          type: bool
          sample: true
    alternatives:
      description: The three most similar layouts that fit, each a sorted list of profiles. Empty if the devices fit.
      type: list
      elements: list
      sample: [[3g.40gb, 3g.40gb]]
    reason:
      description: The reason why the devices do not fit, and the alternatives. The text continues a sentence that begins with the name of the GPU. Empty if the
        devices fit.
      type: str
      sample: ""
"""

import typing as t
from collections import Counter

from ansible.errors import AnsibleFilterError

from ..module_utils.core.types import ListOf, MapOf, Text, integer_between
from ..module_utils.schema.validators import mig_profile
from ..module_utils.schema.variables import plain
from ..module_utils.sharing_modes.mig import fit_error, format_devices, geometry_of, nearest, place, unused

_PROFILES = ListOf(item=Text((mig_profile,)))
# No cluster has this number of devices, so a larger number is an error.
_COUNTS = MapOf(
    keys=(mig_profile,),
    item=integer_between(0, 10**9, "use 0 or more", "no cluster has more MIG devices; use a smaller number"),
)


def mig_fit(profiles: t.Any, model: t.Any) -> dict[str, t.Any]:
    """Return the placements of the profiles on one GPU and the unused slices, or the reason why the profiles do not fit, and alternatives."""
    try:
        geometry, counts = geometry_of(model), _counts(profiles)
    except ValueError as error:
        raise AnsibleFilterError(f"accel.gpu.mig_fit: {error}") from error
    placements = place(geometry, counts)
    return {
        "fits": placements is not None,
        "placements": [dict(placement._asdict()) for placement in placements or ()],
        "unused": None if placements is None else dict(unused(geometry, counts)._asdict()),
        "alternatives": []
        if placements is not None
        else [format_devices(layout) for layout in nearest(geometry, counts)],
        "reason": fit_error(geometry, counts) or "",
    }


def _counts(profiles: t.Any) -> dict[str, int]:
    """Return the number of devices of each profile. Raise ValueError if the value is neither a list of profiles nor a map of counts."""
    field = _COUNTS if isinstance(profiles, t.Mapping) else _PROFILES
    value = field.coerce(plain(profiles))
    problems = list(field.problems(value, "profiles"))
    if problems:
        raise ValueError("\n".join(problems))
    return dict(Counter(value))


class FilterModule:
    """The filter accel.gpu.mig_fit."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """Return the filter's name and function."""
        return {"mig_fit": mig_fit}
