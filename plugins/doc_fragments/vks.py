# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a module reaches VNG Cloud's Kubernetes service: options of every module vks_*."""

from __future__ import annotations


class ModuleDocFragment:
    """Fragment accel.gpu.vks; it stands before accel.gpu.attributes, whose action group is that of clusters."""

    DOCUMENTATION = r"""
options:
  client_id:
    description:
      - Id of a service account of VNG Cloud's IAM.
      - The environment variables E(GRN_CLIENT_ID) and E(GRN_ACCESS_KEY_ID) are used if not given.
    type: str
  client_secret:
    description:
      - The service account's secret. A login that is refused is not tried again, since failed logins lock the account.
      - The environment variables E(GRN_CLIENT_SECRET) and E(GRN_SECRET_ACCESS_KEY) are used if not given.
    type: str
  region:
    description:
      - V(HCM-3), V(HAN), or another one whose O(vks_url) and O(vserver_url) are given.
      - The environment variable E(GRN_DEFAULT_REGION) is used if not given.
    type: str
    default: HCM-3
  iam_url:
    description:
      - Address of IAM, or the whole address that gives tokens.
      - The environment variable E(VKS_IAM_URL) is used if not given, and VNG Cloud's own address without that.
    type: str
  iam_version:
    description:
      - Generation of IAM. If not given, the one that O(iam_url) names, else V(v2).
    type: str
    choices: [v2, v1]
  vks_url:
    description:
      - Address of VKS; the region's if not given. Plain http is taken for this machine only.
      - The environment variable E(VKS_URL) is used if not given.
    type: str
  vserver_url:
    description:
      - Address of vServer's gateway, where flavors, networks and keys are looked up; the region's if not given.
      - The environment variable E(VKS_VSERVER_URL) is used if not given.
    type: str
  project_id:
    description:
      - Project of the account in the region. If not given, that of its VKS workspace, or the only one.
      - The environment variables E(GRN_PROJECT_ID) and E(GRN_DEFAULT_PROJECT_ID) are used if not given.
    type: str
  validate_certs:
    description: Whether the services' certificates are verified.
    type: bool
    default: true
  ca_cert:
    description: Path of the certificates of the CA that the services' certificates must come from; the system's if not given.
    type: path
  request_timeout:
    description:
      - Seconds within which a service must answer one request.
      - A request that met a passing trouble is tried again for up to twice as long, if it may be sent twice.
    type: int
    default: 30
requirements:
  - python >= 3.10
  - urllib3
notes:
  - This is VNG Cloud's (GreenNode's) VKS, not the vSphere Kubernetes Service of VMware.
  - Written from VNG Cloud's published schemas, documentation and clients of 2024 to 2026, and tried on a double of the service; it was
    not run against the live one.
attributes:
  action_group:
    description: Use C(group/accel.gpu.vks) in C(module_defaults) to say once how VNG Cloud is reached.
    support: full
    membership:
      - accel.gpu.vks
"""
