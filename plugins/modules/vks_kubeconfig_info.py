#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the state of the kubeconfig that VKS has issued for a cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vks_kubeconfig_info
short_description: Check whether a VNG Cloud VKS cluster has a kubeconfig, and when the kubeconfig expires
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Returns the state of the kubeconfig that VKS has issued for a cluster, but not the content of the kubeconfig.
extends_documentation_fragment:
  - accel.gpu.vks
  - accel.gpu.attributes
  - accel.gpu.attributes.info
options:
  cluster:
    description: Name or ID of the cluster.
    type: str
    required: true
requirements:
  - PyYAML
seealso:
  - module: accel.gpu.vks_kubeconfig
"""

EXAMPLES = r"""
- name: Check the kubeconfig
  accel.gpu.vks_kubeconfig_info:
    cluster: prod
  register: result
"""

RETURN = r"""
kubeconfig:
  description: Information about the cluster, and the state of its kubeconfig.
  returned: always
  type: dict
  contains:
    cluster:
      description: Name of the cluster.
      type: str
      returned: always
      sample: prod
    cluster_id:
      description: ID of the cluster.
      type: str
      returned: always
      sample: k8s-2f9b3c4d-0f8e-4a27-9d0c-5a2b6e1f7c80
    server:
      description: URL of the API server; null if there is no kubeconfig.
      type: str
      returned: always
      sample: https://10.2.0.10:6443
    status:
      description: V(NONE), V(CREATING), V(ACTIVE) or V(ERROR).
      type: str
      returned: always
      sample: ACTIVE
    expires_at:
      description: Time at which the kubeconfig expires, in the format that VKS returns; null if VKS returns no time.
      type: str
      returned: always
      sample: "2026-12-22T14:00:00Z"
    renewal_warning:
      description: Whether VKS warns that the kubeconfig expires soon.
      type: bool
      returned: always
      sample: false
code:
  description:
    - The reason for the failure.
    - V(invalid) - errors in the options. V(connection) - no usable credentials, or the cloud's library is missing. V(unreachable) - the cloud does not
      respond. Otherwise, the HTTP status of the cloud's error.
  returned: failure
  type: raw
  sample: connection
details:
  description:
    - Details of the failure. C(problems) lists all errors in the options or variables. C(reason), C(method) and C(path) describe the failed request.
  returned: failure
  type: dict
  sample: {reason: Refused, method: GET, path: /v1/clusters}
"""

import typing as t

from ..module_utils.clouds import kubeconfig_file
from ..module_utils.clouds.vks_clusters import VksModule, read_kubeconfig


def work(module: VksModule) -> dict[str, t.Any]:
    """Read the kubeconfig's state."""
    kubeconfig_file.require_libraries(certificates=False)
    cluster = module.cluster(module.params["cluster"])
    current = read_kubeconfig(module.transport, cluster)
    result = {
        "cluster": cluster.name,
        "cluster_id": cluster.id,
        "server": kubeconfig_file.server_in(current.text),
        "status": current.status,
        "expires_at": current.expires_at,
        "renewal_warning": current.renewal_warning,
    }
    return {"changed": False, "kubeconfig": result}


def main() -> None:
    """Run the module."""
    VksModule({"cluster": {"type": "str", "required": True}}).run(work)


if __name__ == "__main__":
    main()
