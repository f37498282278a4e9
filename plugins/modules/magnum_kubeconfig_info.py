#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a kubeconfig is one of a Magnum cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: magnum_kubeconfig_info
short_description: Tell whether a kubeconfig leads to an OpenStack Magnum cluster, and until when
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Compares a kubeconfig with what Magnum tells of a cluster. Address, CA, and the client certificate with its key.
  - Nothing of the file that is secret is returned.
extends_documentation_fragment:
  # Whichever comes first wins.
  - accel.gpu.magnum.reading
  - accel.gpu.magnum
  - accel.gpu.attributes
  - accel.gpu.attributes.info
options:
  cluster:
    description: Name or id of the cluster.
    type: str
    required: true
  path:
    description: The file. Without it only the cluster is told of.
    type: path
requirements:
  - cryptography >= 40
  - PyYAML
seealso:
  - module: accel.gpu.magnum_kubeconfig
"""

EXAMPLES = r"""
- name: Is this still the cluster's, and for how long
  accel.gpu.magnum_kubeconfig_info:
    cloud: mycloud
    cluster: prod
    path: ~/.kube/prod
"""

RETURN = r"""
magnum_kubeconfig:
  description: What there is.
  returned: always
  type: dict
  contains:
    cluster:
      description: Name of the cluster.
      type: str
      returned: always
    cluster_id:
      description: Id of the cluster.
      type: str
      returned: always
    server:
      description: URL of the cluster's API server; null while it has none.
      type: str
      returned: always
    valid:
      description: Whether the file leads to the cluster now.
      type: bool
      returned: with O(path)
    reason:
      description: Why it does not.
      type: str
      returned: when it does not
    expires:
      description: When its certificate ends, in UTC.
      type: str
      returned: when it has one
"""

import datetime
import typing as t

from ansible.module_utils.basic import missing_required_lib

from ..module_utils.common.module import ArgumentSpec
from ..module_utils.providers.magnum import kubeconfig
from ..module_utils.providers.magnum.module import MagnumModule

_SPEC: ArgumentSpec = {"cluster": {"type": "str", "required": True}, "path": {"type": "path"}}


def work(module: MagnumModule) -> dict[str, t.Any]:
    """Read the cluster and the file."""
    for name, error in (
        ("cryptography", kubeconfig.CRYPTOGRAPHY_IMPORT_ERROR),
        ("PyYAML", kubeconfig.YAML_IMPORT_ERROR),
    ):
        if error is not None:
            module.fail_json(msg=missing_required_lib(name), exception=error)
    cluster = module.magnum.cluster(module.params["cluster"])
    told: dict[str, t.Any] = {
        "cluster": cluster["name"],
        "cluster_id": cluster["uuid"],
        "server": cluster.get("api_address"),
    }
    if module.params["path"]:
        place = kubeconfig.ClusterEndpoint(
            cluster["name"], str(cluster.get("api_address")), module.magnum.ca(cluster["uuid"])
        )
        config = kubeconfig.read(module.params["path"])
        now = datetime.datetime.now(datetime.UTC)
        reason = kubeconfig.problem(config, place, datetime.timedelta(0), now)
        had = kubeconfig.read_existing(config) if config else None
        told["valid"] = reason is None
        told.update({"reason": reason} if reason else {})
        told.update({"expires": kubeconfig.stamp(had.expires)} if had and had.expires else {})
    return {"changed": False, "magnum_kubeconfig": told}


def main() -> None:
    """Run the module."""
    MagnumModule(_SPEC).run(work)


if __name__ == "__main__":
    main()
