#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks whether a kubeconfig belongs to a Magnum cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: magnum_kubeconfig_info
short_description: Check whether a kubeconfig belongs to an OpenStack Magnum cluster, and when the kubeconfig expires
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Checks whether the address, the CA, the client certificate and the private key in a kubeconfig match the cluster in Magnum.
  - The module does not return secrets from the file.
extends_documentation_fragment:
  - accel.gpu.magnum
  - accel.gpu.attributes
  - accel.gpu.attributes.info
options:
  cluster:
    description: Name or ID of the cluster.
    type: str
    required: true
  path:
    description: Path to the kubeconfig. Without this option, the module returns only information about the cluster.
    type: path
requirements:
  - cryptography >= 40
  - PyYAML
seealso:
  - module: accel.gpu.magnum_kubeconfig
"""

EXAMPLES = r"""
- name: Check a kubeconfig
  accel.gpu.magnum_kubeconfig_info:
    cloud: mycloud
    cluster: prod
    path: ~/.kube/prod
"""

RETURN = r"""
kubeconfig:
  description: Information about the cluster, and the state of the kubeconfig.
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
      sample: 193f8fd5-208b-4a0f-a6b8-1c0a4b595f51
    server:
      description: URL of the cluster's API server; null until the API server has an address.
      type: str
      returned: always
      sample: https://10.1.10.10:6443
    valid:
      description: Whether the file currently gives access to the cluster.
      type: bool
      returned: with O(path)
      sample: true
    reason:
      description: The reason why the file does not give access.
      type: str
      returned: if the file does not give access
      sample: its client certificate expired at 2026-10-23T12:00:00Z
    expires_at:
      description: Time at which the client certificate expires, in UTC.
      type: str
      returned: if the file has a client certificate

      sample: "2031-11-22T14:00:00Z"
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

import datetime
import typing as t

from ..module_utils.clouds import kubeconfig_file
from ..module_utils.clouds.magnum_clusters import ClusterEndpoint, MagnumModule, endpoint_problem
from ..module_utils.core.module import ArgumentSpec
from ..module_utils.core.values import format_time

_SPEC: ArgumentSpec = {"cluster": {"type": "str", "required": True}, "path": {"type": "path"}}


def work(module: MagnumModule) -> dict[str, t.Any]:
    """Read the cluster and the file."""
    kubeconfig_file.require_libraries()
    cluster = module.magnum.cluster(module.params["cluster"])
    server = cluster.get("api_address")
    result: dict[str, t.Any] = {"cluster": cluster["name"], "cluster_id": cluster["uuid"], "server": server}
    if module.params["path"]:
        endpoint = ClusterEndpoint(cluster["name"], str(server), module.magnum.ca(cluster["uuid"]))
        config = kubeconfig_file.read(module.params["path"])
        now = datetime.datetime.now(datetime.UTC)
        reason = endpoint_problem(config, endpoint, datetime.timedelta(0), now)
        current = kubeconfig_file.existing(config)
        result["valid"] = reason is None
        if reason:
            result["reason"] = reason
        if current and current.expires_at:
            result["expires_at"] = format_time(current.expires_at)
    return {"changed": False, "kubeconfig": result}


def main() -> None:
    """Run the module."""
    MagnumModule(_SPEC).run(work)


if __name__ == "__main__":
    main()
