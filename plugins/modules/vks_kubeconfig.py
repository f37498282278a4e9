#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes a kubeconfig for a VKS cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vks_kubeconfig
short_description: Write a kubeconfig for a VNG Cloud VKS cluster
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Writes a file that contains the kubeconfig that VKS has issued for a cluster. Only the owner of the file can read it.
  - The module first requests a new kubeconfig if VKS has none, if the existing kubeconfig expires within O(renew_before) days, or if VKS warns that the
    existing kubeconfig expires soon.
  - The content of the file never appears in a result, a diff or a log.
extends_documentation_fragment:
  - accel.gpu.vks
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
  - accel.gpu.attributes.progress
options:
  cluster:
    description: Name or ID of the cluster.
    type: str
    required: true
  dest:
    description: Path to the file. The directory must exist. The file's mode is always C(0600).
    type: path
    required: true
  expiration_days:
    description: Validity of a new kubeconfig in days, from 1 to 365.
    type: int
    default: 30
  renew_before:
    description: Number of days. The kubeconfig is replaced if it expires within this time.
    type: int
    default: 3
  wait_timeout:
    description: Seconds to wait for a new kubeconfig.
    type: int
    default: 600
    aliases: [timeout]
  wait_sleep:
    description: Maximum number of seconds between two checks.
    type: int
    default: 5
requirements:
  - PyYAML
notes:
  - The kubeconfig grants cluster administrator permissions. The account requires the permission C(RequestKubeconfig) in IAM.
seealso:
  - module: accel.gpu.vks_kubeconfig_info
"""

EXAMPLES = r"""
- name: Write a kubeconfig
  accel.gpu.vks_kubeconfig:
    cluster: prod
    dest: ~/.kube/prod
    expiration_days: 30
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
      description: URL of the API server; null in check mode if VKS has not issued a kubeconfig yet.
      type: str
      returned: always
      sample: https://10.2.0.10:6443
    reason:
      description: The reason why the file was written or, in check mode, would be written.
      type: str
      returned: changed
      sample: VKS has none (NONE)
    issued:
      description: Whether a new kubeconfig was issued or, in check mode, would be issued.
      type: bool
      returned: always
      sample: true
    expires_at:
      description: Time at which the kubeconfig expires, in the format that VKS returns; null if VKS returns no time.
      type: str
      returned: always
      sample: "2026-12-22T14:00:00Z"
code:
  description:
    - The reason for the failure.
    - V(invalid) - errors in the options. V(timeout) - see O(wait_timeout). V(partial) - VKS could not create a kubeconfig.
    - V(connection) - no usable credentials, or the cloud's library is missing. V(unreachable) - the cloud does not respond. Otherwise, the HTTP status of
      the cloud's error.
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
import os
import typing as t

from ..module_utils.catalog.secrets import NOT_SHOWN
from ..module_utils.clouds import kubeconfig_file
from ..module_utils.clouds.vks_clusters import (
    VksModule,
    await_kubeconfig,
    issue_kubeconfig,
    read_kubeconfig,
    reason_to_issue,
)
from ..module_utils.core.errors import InvalidOptions
from ..module_utils.core.files import file_holds, require_replaceable, write_private_file
from ..module_utils.core.messages import diff_of
from ..module_utils.core.module import ArgumentSpec
from ..module_utils.core.waits import WaitOptions

_MAX_DAYS = 365


def work(module: VksModule) -> dict[str, t.Any]:
    """Request a new kubeconfig if necessary, and write it if the file differs."""
    kubeconfig_file.require_libraries(certificates=False)
    params = module.params
    dest, days = params["dest"], params["expiration_days"]
    if not 1 <= days <= _MAX_DAYS:
        raise InvalidOptions([f"expiration_days: {days} is not allowed; VKS accepts 1 to {_MAX_DAYS}."])
    folder = os.path.dirname(dest) or "."
    if not os.path.isdir(folder):
        raise InvalidOptions([f"dest: the directory {folder} does not exist; create it first."])
    require_replaceable(dest)
    cluster = module.cluster(params["cluster"])
    current = read_kubeconfig(module.transport, cluster)
    reason = reason_to_issue(current, params["renew_before"], datetime.datetime.now(datetime.UTC))
    issued = bool(reason)
    if not module.check_mode:
        wait = WaitOptions(params["wait_timeout"], params["wait_sleep"], module.progress)
        if issued:
            current = issue_kubeconfig(module.transport, cluster, current, days=days, wait=wait)
        elif not current.ready:
            current = await_kubeconfig(module.transport, cluster, current, wait)
    exists = os.path.lexists(dest)
    if not reason and not (current.ready and file_holds(dest, current.text)):
        reason = "the file differs" if exists else "the file does not exist"
    if reason and not module.check_mode:
        write_private_file(dest, current.text)
    result = {
        "dest": dest,
        "cluster": cluster.name,
        "cluster_id": cluster.id,
        "server": kubeconfig_file.server_in(current.text),
        "issued": issued,
        "expires_at": current.expires_at,
    }
    if not reason:
        return {"changed": False, "kubeconfig": result, "diff": {}}
    diff = diff_of(_shown(exists, "old"), _shown(True, "new"), dest)
    return {"changed": True, "kubeconfig": {**result, "reason": reason}, "diff": diff}


def _shown(exists: bool, content: str) -> str:
    return f"content: {content} {NOT_SHOWN}\nmode: 0600\n" if exists else ""


def main() -> None:
    """Run the module."""
    spec: ArgumentSpec = {
        "cluster": {"type": "str", "required": True},
        "dest": {"type": "path", "required": True},
        "expiration_days": {"type": "int", "default": 30},
        "renew_before": {"type": "int", "default": 3},
        "wait_timeout": {"type": "int", "default": 600, "aliases": ["timeout"]},
        "wait_sleep": {"type": "int", "default": 5},
    }
    VksModule(spec).run(work)


if __name__ == "__main__":
    main()
