#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A kubeconfig for a Magnum cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: magnum_kubeconfig
short_description: Write a kubeconfig for an OpenStack Magnum cluster
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Makes a key, lets Magnum sign a certificate for it with the cluster's CA, and writes both as a kubeconfig that only its owner may
    read. The key leaves the file on no way, and nothing of it is returned.
  - A file that leads to this cluster and whose certificate is good for long enough stays as it is, and nothing is sent.
  - A kubeconfig of another single cluster at that place is replaced. One with several contexts, or any other file, is refused.
  - The certificate is that of the cluster's administrator (group C(system:masters)), as C(openstack coe cluster config) makes it.
    Magnum signs for members of the project that the policy allows it to.
  - Context, cluster and user in it are called like the cluster.
extends_documentation_fragment:
  # Whichever comes first wins.
  - accel.gpu.magnum.reading
  - accel.gpu.magnum
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
options:
  cluster:
    description: Name or id of the cluster.
    type: str
    required: true
  dest:
    description: The file. Its folder must be there.
    type: path
    required: true
  renew_before:
    description: Days before its end at which a certificate is replaced.
    type: int
    default: 30
requirements:
  - cryptography >= 40
  - PyYAML
seealso:
  - module: accel.gpu.magnum_kubeconfig_info
"""

EXAMPLES = r"""
- name: A kubeconfig for the cluster
  accel.gpu.magnum_kubeconfig:
    cloud: mycloud
    cluster: prod
    dest: ~/.kube/prod
"""

RETURN = r"""
magnum_kubeconfig:
  description: The file, without anything that is secret.
  returned: always
  type: dict
  contains:
    dest:
      description: The file.
      type: str
      returned: always
    cluster:
      description: Name of the cluster, and of the context.
      type: str
      returned: always
    cluster_id:
      description: Id of the cluster.
      type: str
      returned: always
    server:
      description: URL of the API server.
      type: str
      returned: always
    reason:
      description: Why the file was written, or in check mode would be.
      type: str
      returned: when it was
      sample: there is none
    expires:
      description: When the certificate ends, in UTC.
      type: str
      returned: except in check mode for a file that would be written
      sample: "2031-11-22T14:00:00Z"
"""

import datetime
import typing as t

from ansible.module_utils.basic import missing_required_lib

from ..module_utils.common import private_file
from ..module_utils.common.errors import InvalidOptions
from ..module_utils.common.module import ArgumentSpec
from ..module_utils.common.results import diff_of
from ..module_utils.providers.magnum import kubeconfig
from ..module_utils.providers.magnum.module import MagnumModule

_SPEC: ArgumentSpec = {
    "cluster": {"type": "str", "required": True},
    "dest": {"type": "path", "required": True},
    "renew_before": {"type": "int", "default": 30},
}


def work(module: MagnumModule) -> dict[str, t.Any]:
    """Read the file, ask for the cluster's address and CA, compare, and write where they differ."""
    for name, error in (
        ("cryptography", kubeconfig.CRYPTOGRAPHY_IMPORT_ERROR),
        ("PyYAML", kubeconfig.YAML_IMPORT_ERROR),
    ):
        if error is not None:
            module.fail_json(msg=missing_required_lib(name), exception=error)
    dest = module.params["dest"]
    cluster = module.magnum.cluster(module.params["cluster"])
    if not cluster.get("api_address"):
        raise InvalidOptions(
            [
                f"Cluster {cluster['name']} is {cluster['status']}, and its API server has no address yet; wait until it has "
                "(accel.gpu.magnum_cluster waits)."
            ]
        )
    place = kubeconfig.ClusterEndpoint(cluster["name"], cluster["api_address"], module.magnum.ca(cluster["uuid"]))
    now = datetime.datetime.now(datetime.UTC)
    config = kubeconfig.read(dest)
    reason = kubeconfig.problem(config, place, datetime.timedelta(days=module.params["renew_before"]), now)
    if reason is None and kubeconfig.too_permissive(dest):
        reason = "others than its owner may read it"
    obstacle = kubeconfig.obstacle(dest, config) if reason else None
    if obstacle:
        raise InvalidOptions([f"{dest} cannot be written: {obstacle}."])
    had = kubeconfig.read_existing(config) if config else None
    told: dict[str, t.Any] = {
        "dest": dest,
        "cluster": place.name,
        "cluster_id": cluster["uuid"],
        "server": place.server,
    }
    before = {**had.told(), "mode": kubeconfig.mode(dest)} if had else {}
    if reason is None:
        return {
            "changed": False,
            "magnum_kubeconfig": {**told, **(had.told() if had else {})},
            "diff": diff_of(before, before),
        }
    if not module.check_mode:
        _write(module, cluster["uuid"], place)
        written = kubeconfig.read_existing(kubeconfig.read(dest) or {})
        told.update(written.told() if written else {})
    after = {"context": place.name, "server": place.server, "mode": "0600"}
    return {
        "changed": True,
        "magnum_kubeconfig": {**told, "reason": reason},
        "diff": diff_of(before, after, f"{dest} ({reason})"),
    }


def _write(module: MagnumModule, cluster_id: str, place: kubeconfig.ClusterEndpoint) -> None:
    asked = kubeconfig.request()
    module.no_log_values.add(asked.key)
    certificate = module.magnum.sign(cluster_id, asked.csr)
    private_file.write(module.params["dest"], kubeconfig.document(place, asked.key, certificate))


def main() -> None:
    """Run the module."""
    MagnumModule(_SPEC).run(work)


if __name__ == "__main__":
    main()
