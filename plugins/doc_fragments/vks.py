# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the connection options of the modules vks_*."""

from __future__ import annotations


class ModuleDocFragment:
    """Fragment accel.gpu.vks; it must precede accel.gpu.attributes, which has another action group."""

    DOCUMENTATION = r"""
options:
  client_id:
    description:
      - ID of a service account of VNG Cloud's IAM.
      - The environment variables E(GRN_CLIENT_ID) and E(GRN_ACCESS_KEY_ID) are used if this option is not set.
    type: str
  client_secret:
    description:
      - The service account's secret. A rejected login is not retried, because failed logins lock the account.
      - The environment variables E(GRN_CLIENT_SECRET) and E(GRN_SECRET_ACCESS_KEY) are used if this option is not set.
    type: str
  region:
    description:
      - V(HCM-3), V(HAN), or another region together with O(vks_url) and O(vserver_url).
      - The environment variable E(GRN_DEFAULT_REGION) is used if this option is not set.
    type: str
    default: HCM-3
  iam_url:
    description:
      - URL of IAM, or the complete URL of its token endpoint.
      - If this option is not set, the environment variable E(VKS_IAM_URL) is used, or else VNG Cloud's own URL.
    type: str
  iam_version:
    description:
      - Version of IAM. By default, the version in O(iam_url), or else V(v2).
    type: str
    choices: [v2, v1]
  vks_url:
    description:
      - URL of VKS. By default, the URL of the region. Plain HTTP is only allowed if the URL refers to this machine.
      - The environment variable E(VKS_URL) is used if this option is not set.
    type: str
  vserver_url:
    description:
      - URL of vServer's gateway, which is used to look up flavors, networks and keys. By default, the URL of the region.
      - The environment variable E(VKS_VSERVER_URL) is used if this option is not set.
    type: str
  project_id:
    description:
      - Project of the account in the region. By default, the project of the account's VKS workspace, or the only project.
      - The environment variables E(GRN_PROJECT_ID) and E(GRN_DEFAULT_PROJECT_ID) are used if this option is not set.
    type: str
  validate_certs:
    description: Whether the services' certificates are verified.
    type: bool
    default: true
  ca_cert:
    description: Path to the CA certificates for verifying the services' certificates. By default, the certificates of the system.
    type: path
  request_timeout:
    description:
      - Seconds to wait for the response to a request.
      - After a transient error, a request that is safe to retry is retried for up to twice this time.
    type: int
    default: 30
requirements:
  - python >= 3.11
  - urllib3
notes:
  - This is VNG Cloud's (GreenNode's) VKS, not the vSphere Kubernetes Service of VMware.
  - The modules were developed from the schemas, documentation and clients that VNG Cloud published from 2024 to 2026. They were tested with a simulated
    service, not with the live service.
attributes:
  action_group:
    description: Use C(group/accel.gpu.vks) in C(module_defaults) to set the connection options once.
    support: full
    membership:
      - accel.gpu.vks
"""
