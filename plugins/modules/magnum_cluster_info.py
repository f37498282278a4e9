#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Magnum clusters of a project."""

from __future__ import annotations

DOCUMENTATION = r"""
module: magnum_cluster_info
short_description: Tell which OpenStack Magnum clusters a project has
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Reads the clusters of a project, or one of them. A user who administers the cloud is shown those of all projects.
extends_documentation_fragment:
  # Whichever comes first wins.
  - accel.gpu.magnum.reading
  - accel.gpu.magnum
  - accel.gpu.attributes
  - accel.gpu.attributes.info
options:
  name:
    description: Name or id of one cluster. None is found where there is none; two of one name are both told.
    type: str
seealso:
  - module: accel.gpu.magnum_cluster
"""

EXAMPLES = r"""
- name: All clusters
  accel.gpu.magnum_cluster_info:
    cloud: mycloud
"""

RETURN = r"""
clusters:
  description: The clusters, by name.
  returned: always
  type: list
  elements: dict
  sample:
    - name: prod
      id: 193f8fd5-208b-4a0f-a6b8-1c0a4b595f51
      status: CREATE_COMPLETE
      status_reason: null
      health_status: HEALTHY
      api_address: https://10.1.10.10:6443
      coe_version: v1.30.2
      cluster_template: 6be8aa70-e10d-42f6-a36f-7e8f2cb59fca
      labels: {kube_tag: v1.30.2}
"""

import functools
import typing as t

from ..module_utils.common.parallel import run_bounded
from ..module_utils.providers.magnum import clusters
from ..module_utils.providers.magnum.client import PARALLEL
from ..module_utils.providers.magnum.module import MagnumModule


def work(module: MagnumModule) -> dict[str, t.Any]:
    """List, and read each cluster whole: the list leaves most of it out."""
    name = module.params["name"]
    ids = [found["uuid"] for found in module.magnum.clusters() if name in (None, found["name"], found["uuid"])]
    calls = [(one, functools.partial(module.magnum.find_cluster, one)) for one in ids]
    outcomes = run_bounded(calls, PARALLEL, fatal=lambda error: True)
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
    whole = [outcome.value for outcome in outcomes if outcome.value is not None]
    told = [{**clusters.cluster_result(one), **clusters.state(one)} for one in whole]
    return {"changed": False, "clusters": sorted(told, key=lambda one: (str(one["name"]), str(one["id"])))}


def main() -> None:
    """Run the module."""
    MagnumModule({"name": {"type": "str"}}).run(work)


if __name__ == "__main__":
    main()
