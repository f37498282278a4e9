#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes a kubeconfig for a Magnum cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: magnum_kubeconfig
short_description: Write a kubeconfig for an OpenStack Magnum cluster
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Creates a private key, requests a certificate for the key from the cluster's CA, and writes both to a kubeconfig that only its owner can read.
  - The private key is never returned or logged.
  - If the existing file belongs to this cluster and the client certificate in the file is valid for more than O(renew_before) days, the file is kept, and no
    certificate is requested.
  - An existing kubeconfig with a single context for a different cluster is replaced. The module fails if the existing file is a kubeconfig with several
    contexts or is not a kubeconfig.
  - Like C(openstack coe cluster config), the module requests an administrator certificate, with the group C(system:masters). Magnum
    signs certificates for members of the project if Magnum's policy allows this.
  - The context, cluster and user in the kubeconfig are named after the cluster.
extends_documentation_fragment:
  - accel.gpu.magnum
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
options:
  cluster:
    description: Name or ID of the cluster.
    type: str
    required: true
  dest:
    description: Path to the file. Its directory must exist.
    type: path
    required: true
  renew_before:
    description: Number of days. The certificate is replaced if it expires within this time.
    type: int
    default: 30
requirements:
  - cryptography >= 40
  - PyYAML
seealso:
  - module: accel.gpu.magnum_kubeconfig_info
"""

EXAMPLES = r"""
- name: Write a kubeconfig
  accel.gpu.magnum_kubeconfig:
    cloud: mycloud
    cluster: prod
    dest: ~/.kube/prod
"""

RETURN = r"""
kubeconfig:
  description: The kubeconfig, without secrets.
  returned: always
  type: dict
  contains:
    dest:
      description: Path to the file.
      type: str
      returned: always
      sample: /home/user/.kube/prod
    cluster:
      description: Name of the cluster and of the context.
      type: str
      returned: always
      sample: prod
    cluster_id:
      description: ID of the cluster.
      type: str
      returned: always
      sample: 193f8fd5-208b-4a0f-a6b8-1c0a4b595f51
    server:
      description: URL of the API server.
      type: str
      returned: always
      sample: https://10.1.10.10:6443
    reason:
      description: The reason why the file was written or, in check mode, would be written.
      type: str
      returned: changed
      sample: the file does not exist
    context:
      description: The current context.
      type: str
      returned: always, except in check mode if the file would be written
      sample: prod
    expires_at:
      description: Time at which the client certificate expires, in UTC.
      type: str
      returned: always, except in check mode if the file would be written
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
from ..module_utils.clouds.magnum_clusters import (
    ClusterEndpoint,
    MagnumModule,
    endpoint_problem,
    kubeconfig_document,
    new_certificate_request,
)
from ..module_utils.core.errors import InvalidOptions
from ..module_utils.core.files import require_replaceable, write_private_file
from ..module_utils.core.messages import diff_of
from ..module_utils.core.module import ArgumentSpec

_SPEC: ArgumentSpec = {
    "cluster": {"type": "str", "required": True},
    "dest": {"type": "path", "required": True},
    "renew_before": {"type": "int", "default": 30},
}


def work(module: MagnumModule) -> dict[str, t.Any]:
    """Compare the file with the cluster, and write the file if they differ."""
    kubeconfig_file.require_libraries()
    dest = module.params["dest"]
    cluster = module.magnum.cluster(module.params["cluster"])
    if not cluster.get("api_address"):
        raise InvalidOptions(
            [
                f"Cluster {cluster['name']} is {cluster['status']}, and its API server has no address yet. Wait until it has one, "
                "for example with accel.gpu.magnum_cluster."
            ]
        )
    endpoint = ClusterEndpoint(cluster["name"], cluster["api_address"], module.magnum.ca(cluster["uuid"]))
    config = kubeconfig_file.read(dest)
    renew_before = datetime.timedelta(days=module.params["renew_before"])
    reason = endpoint_problem(config, endpoint, renew_before, datetime.datetime.now(datetime.UTC))
    if reason is None and kubeconfig_file.too_permissive(dest):
        reason = "users other than its owner can read it"
    obstacle = kubeconfig_file.obstacle(dest, config) if reason else None
    if obstacle:
        raise InvalidOptions([f"{dest} cannot be written: {obstacle}."])
    if reason:
        require_replaceable(dest)
    current = kubeconfig_file.existing(config)
    before = {**current.to_result(), "mode": kubeconfig_file.mode(dest)} if current else {}
    result = {"dest": dest, "cluster": endpoint.name, "cluster_id": cluster["uuid"], "server": endpoint.server}
    if reason is None:
        result.update(current.to_result() if current else {})
        return {"changed": False, "kubeconfig": result, "diff": diff_of(before, before)}
    if not module.check_mode:
        _write(module, cluster["uuid"], endpoint)
        written = kubeconfig_file.existing(kubeconfig_file.read(dest))
        result.update(written.to_result() if written else {})
    after = {"context": endpoint.name, "server": endpoint.server, "mode": "0600"}
    return {
        "changed": True,
        "kubeconfig": {**result, "reason": reason},
        "diff": diff_of(before, after, f"{dest} ({reason})"),
    }


def _write(module: MagnumModule, cluster_id: str, endpoint: ClusterEndpoint) -> None:
    request = new_certificate_request()
    module.no_log_values.add(request.key)
    certificate = module.magnum.sign(cluster_id, request.csr)
    write_private_file(module.params["dest"], kubeconfig_document(endpoint, request.key, certificate))


def main() -> None:
    """Run the module."""
    MagnumModule(_SPEC).run(work)


if __name__ == "__main__":
    main()
