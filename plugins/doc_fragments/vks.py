# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents the connection options of the vks_* modules."""

from __future__ import annotations


class ModuleDocFragment:
    """Provides the documentation fragment accel.gpu.vks. It must precede accel.gpu.attributes, which has a different action group."""

    DOCUMENTATION = r"""
options:
  client_id:
    description:
      - ID of a service account in VNG Cloud's IAM.
      - If this option is not set, the environment variable E(GRN_CLIENT_ID) or E(GRN_ACCESS_KEY_ID) is used.
    type: str
  client_secret:
    description:
      - The service account's secret. A rejected login is not retried, because failed logins lock the account.
      - If this option is not set, the environment variable E(GRN_CLIENT_SECRET) or E(GRN_SECRET_ACCESS_KEY) is used.
    type: str
  region:
    description:
      - The region, V(HCM-3) or V(HAN). Any other region requires O(vks_url) and O(vserver_url).
      - If this option is not set, the environment variable E(GRN_DEFAULT_REGION) is used.
    type: str
    default: HCM-3
  iam_url:
    description:
      - URL of the IAM API, or the complete URL of its token endpoint.
      - If this option is not set, the environment variable E(VKS_IAM_URL) is used. If neither is set, VNG Cloud's own URL is used.
    type: str
  iam_version:
    description:
      - Version of the IAM API. By default, the version in O(iam_url) is used, or V(v2) if O(iam_url) contains no version.
    type: str
    choices: [v2, v1]
  vks_url:
    description:
      - URL of the VKS API. Plain HTTP is allowed only if the URL refers to the local machine.
      - If this option is not set, the environment variable E(VKS_URL) is used. If neither is set, the region's URL is used.
    type: str
  vserver_url:
    description:
      - URL of vServer's gateway, which is used to look up flavors, networks and keys.
      - If this option is not set, the environment variable E(VKS_VSERVER_URL) is used. If neither is set, the region's URL is used.
    type: str
  project_id:
    description:
      - ID of the account's project in the region.
      - If this option is not set, the environment variable E(GRN_PROJECT_ID) or E(GRN_DEFAULT_PROJECT_ID) is used. If none of these is set, the project of
        the account's VKS workspace is used or, if there is none, the account's only project.
    type: str
  validate_certs:
    description: Whether the services' certificates are verified.
    type: bool
    default: true
  ca_cert:
    description: Path to the CA certificates that are used to verify the services' certificates. By default, the system's certificates are used.
    type: path
  request_timeout:
    description:
      - Seconds to wait for the response to a request.
      - After a transient error, a request that is safe to retry is retried until twice this number of seconds has elapsed.
    type: int
    default: 30
requirements:
  - python >= 3.11
  - urllib3
notes:
  - VKS is the Kubernetes service of VNG Cloud (GreenNode), not VMware's vSphere Kubernetes Service.
  - The modules were developed from the schemas, documentation and clients that VNG Cloud published from 2024 to 2026. They were tested with a simulated
    service, not with the live service.
attributes:
  action_group:
    description: Use C(group/accel.gpu.vks) in C(module_defaults) to set the connection options once.
    support: full
    membership:
      - accel.gpu.vks
"""
