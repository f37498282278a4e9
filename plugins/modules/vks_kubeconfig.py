#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubeconfig of a VKS cluster as a file."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vks_kubeconfig
short_description: Keep a valid kubeconfig of a VNG Cloud VKS cluster in a file
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Writes the kubeconfig that VKS has of a cluster to a file that only its owner can read.
  - Where there is none yet, where it ends soon, or where the service warns that it does, another one is minted first.
  - What is in the file is never part of a result, a diff or a log.
extends_documentation_fragment:
  - accel.gpu.vks
  - accel.gpu.attributes
  - accel.gpu.attributes.mutating
options:
  cluster:
    description: Name or id of the cluster.
    type: str
    required: true
  dest:
    description: The file. Its folder has to be there; its mode is always C(0600).
    type: path
    required: true
  expiration_days:
    description: Days for which a kubeconfig is minted, 1 to 365.
    type: int
    default: 30
  renew_before:
    description: Another one is minted when the one there is ends within so many days.
    type: int
    default: 3
  wait_timeout:
    description: Seconds within which a minted kubeconfig has to be there.
    type: int
    default: 600
  wait_sleep:
    description: The longest time, in seconds, between two looks.
    type: int
    default: 5
notes:
  - The kubeconfig is that of a cluster admin. The right C(RequestKubeconfig) is needed in IAM.
seealso:
  - module: accel.gpu.vks_kubeconfig_info
"""

EXAMPLES = r"""
- name: A kubeconfig for this play
  accel.gpu.vks_kubeconfig:
    cluster: prod
    dest: "{{ playbook_dir }}/.kube/prod"
    expiration_days: 30
"""

RETURN = r"""
kubeconfig:
  description: What was done, or in check mode would be done; without what opens the cluster.
  returned: always
  type: dict
  contains:
    dest:
      description: The file.
      type: str
      returned: always
    cluster:
      description: The cluster's C(id) and C(name).
      type: dict
      returned: always
    minted:
      description: Why another kubeconfig was minted; empty where it was not.
      type: str
      returned: always
      sample: there is none (NONE)
    expires_at:
      description: When it ends, as the service says it; null where it does not.
      type: str
      returned: always
"""

import datetime
import os
import typing as t

from ..module_utils.common import private_file
from ..module_utils.common.errors import ConnectionProblem, InvalidOptions
from ..module_utils.common.module import ArgumentSpec
from ..module_utils.common.results import diff_of
from ..module_utils.providers.vks import kubeconfig
from ..module_utils.providers.vks.module import VksModule

_MODE = 0o600
_DAYS = (1, 365)


def work(module: VksModule) -> dict[str, t.Any]:
    """Mint where it is needed, then write where it differs."""
    params = module.params
    if not _DAYS[0] <= params["expiration_days"] <= _DAYS[1]:
        raise InvalidOptions(
            [f"expiration_days: is {params['expiration_days']}, and VKS takes {_DAYS[0]} to {_DAYS[1]}."]
        )
    folder = os.path.dirname(params["dest"]) or "."
    if not os.path.isdir(folder):
        raise InvalidOptions([f"dest: the folder {folder} does not exist; make it first."])
    cluster = module.cluster(params["cluster"])
    found = kubeconfig.read(module.transport, cluster)
    reason = kubeconfig.needs_minting(found, params["renew_before"], datetime.datetime.now(datetime.UTC))
    waits: dict[str, t.Any] = {
        "timeout": params["wait_timeout"],
        "interval": params["wait_sleep"],
        "progress": module.progress,
    }
    if not module.check_mode:
        if reason:
            found = kubeconfig.mint(module.transport, cluster, found, days=params["expiration_days"], **waits)
        elif not found.ready:
            found = kubeconfig.await_ready(module.transport, cluster, found, **waits)
    before = _there(params["dest"])
    changed = bool(reason) or not found.ready or before != (found.text, _MODE)
    if changed and not module.check_mode:
        private_file.write(params["dest"], found.text)
    return {
        "changed": changed,
        "kubeconfig": {
            "dest": params["dest"],
            "cluster": {"id": cluster.id, "name": cluster.name},
            "minted": reason,
            "expires_at": found.expires_at,
        },
        "diff": diff_of(_shown(before is not None, "another or none"), _shown(True, "the service's"), params["dest"])
        if changed
        else {},
    }


def _shown(there: bool, content: str) -> str:
    return f"content: {content} (not shown)\nmode: 0600\n" if there else ""


def _there(path: str) -> tuple[str, int] | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as handle:
            return handle.read(), os.stat(path).st_mode & 0o777
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConnectionProblem(f"{path} cannot be read: {error.strerror}.") from error


def main() -> None:
    """Run as a module."""
    spec: ArgumentSpec = {
        "cluster": {"type": "str", "required": True},
        "dest": {"type": "path", "required": True},
        "expiration_days": {"type": "int", "default": 30},
        "renew_before": {"type": "int", "default": 3},
        "wait_timeout": {"type": "int", "default": 600},
        "wait_sleep": {"type": "int", "default": 5},
    }
    VksModule(spec).run(work)


if __name__ == "__main__":
    main()
