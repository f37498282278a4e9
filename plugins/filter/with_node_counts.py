# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: with_node_counts
short_description: Change the number of nodes in pools
version_added: 0.1.0
description:
  - Returns C(gpu_pools) with a different C(nodes.count) for some pools, to scale their node groups.
  - The filter fails if a pool is not declared, has no C(nodes), or has C(autoscale).
positional: _input, counts, defaults
options:
  _input:
    description: The pools.
    type: list
    elements: dict
    required: true
  counts:
    description: A map from the names of pools to their numbers of nodes.
    type: dict
    required: true
  defaults:
    description: The variable C(gpu_defaults). C(autoscale) in this variable also applies to the pools.
    type: dict
    default: {}
seealso:
  - plugin: accel.gpu.plan
    plugin_type: filter
author:
  - The accel.gpu authors (@accel-gpu)
"""

EXAMPLES = r"""
- name: Show the node groups with three nodes in the pool train
  ansible.builtin.debug:
    msg: "{{ (variables | accel.gpu.plan).nodegroups }}"
  vars:
    variables:
      gpu_cluster: "{{ gpu_cluster }}"
      gpu_pools: "{{ gpu_pools | accel.gpu.with_node_counts({'train': 3}) }}"
"""

RETURN = r"""
_value:
  description: The pools.
  type: list
  elements: dict
  sample: [{name: train, nodes: {flavor: g4.p4.40g, count: 3}}]
"""

import typing as t

from ansible.errors import AnsibleFilterError

from ..module_utils.pools.derive import with_node_counts as _resized
from ..module_utils.schema.variables import InvalidVariables, plain


def with_node_counts(pools: t.Any, counts: t.Any, defaults: t.Any = None) -> list[dict[str, t.Any]]:
    """Return the pools with these numbers of nodes."""
    try:
        return _resized(plain(pools), plain(counts), plain(defaults))
    except InvalidVariables as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """The filter accel.gpu.with_node_counts."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """Return the filter's name and function."""
        return {"with_node_counts": with_node_counts}
