#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the licenses and leases of an organization in the NVIDIA License System."""

from __future__ import annotations

DOCUMENTATION = r"""
module: license_server_info
short_description: Read how many licenses an organization has in the NVIDIA License System, and how many are in use
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Reads the license servers of an organization, the licenses in the servers' license pools, and the number of leases. The module uses the documented API of
    NVIDIA's Cloud License Service. It does not change anything.
extends_documentation_fragment:
  - accel.gpu.attributes.info
attributes:
  check_mode:
    description: Changes nothing.
  diff_mode:
    description: There is nothing to compare.
  idempotent:
    description: Returns the same result as long as clients neither obtain nor return licenses.
options:
  api_key:
    description:
      - API key of the organization from the NVIDIA Licensing Portal. The key must have the access type C(Licensing State).
      - By default, the value of the environment variable E(NLS_API_KEY).
    type: str
  api_url:
    description: URL of the service.
    type: str
    default: https://api.licensing.nvidia.com
  org:
    description: Name of the organization, as the portal shows it, for example V(lic-0123456789abcdef).
    type: str
    required: true
  virtual_group:
    description: Number of the virtual group to read. By default, all virtual groups of the organization.
    type: int
  validate_certs:
    description: Whether to verify the certificate of the service.
    type: bool
    default: true
  ca_cert:
    description: Path to a file with CA certificates. By default, the CA certificates of the system are used.
    type: path
  request_timeout:
    description: Seconds to wait for a response. A request that fails because of a temporary error is retried until twice this number of seconds has elapsed.
    type: int
    default: 30
requirements:
  - python >= 3.11
  - urllib3
seealso:
  - module: accel.gpu.license_info
"""

EXAMPLES = r"""
- name: Read the licenses of the organization
  accel.gpu.license_server_info:
    org: lic-0123456789abcdef
    api_key: "{{ vault_nls_api_key }}"
  register: servers
"""

RETURN = r"""
license_servers:
  description: The totals for all license servers.
  returned: success
  type: dict
  contains:
    servers: {description: Names of the license servers., type: list, elements: str, returned: always, sample: [datacenter-1]}
    products:
      description: The licenses in the license pools, grouped by product.
      type: list
      elements: dict
      returned: always
      contains:
        name: {description: Name of the product., type: str, returned: always, sample: NVIDIA Virtual Compute Server}
        total: {description: Number of licenses in the license pools., type: int, returned: always, sample: 100}
        in_use: {description: Number of licenses that are in use., type: int, returned: always, sample: 20}
        free: {description: Number of licenses that are available., type: int, returned: always, sample: 80}
    total: {description: Number of licenses of all products., type: int, returned: always, sample: 100}
    in_use: {description: Number of licenses of all products that are in use., type: int, returned: always, sample: 20}
    leases: {description: The number of leases., type: int, returned: always, sample: 20}
code:
  description: The reason for the failure. V(invalid) - no API key is set. V(connection) - urllib3 is missing, or the API key cannot be sent. V(unreachable) -
    the service does not respond. Otherwise, the HTTP status of the service's error.
  returned: failure
  type: raw
  sample: 401
details:
  description:
    - Details of the failure. C(problems) lists all errors. C(reason), C(method) and C(path) describe the failed request.
  returned: failure
  type: dict
  sample: {reason: '', method: GET, path: /v1/org/lic-0123456789abcdef/virtual-groups}
"""

import os
import typing as t

from ..module_utils.core.errors import InvalidOptions, ServiceError
from ..module_utils.core.module import ArgumentSpec, BaseModule
from ..module_utils.core.types import secret_texts
from ..module_utils.licensing.servers import (
    API_KEY_OPTION,
    API_URL_OPTION,
    PUBLIC_URL,
    Access,
    LicenseServiceClient,
    explain,
)

_KEY_ENV = "NLS_API_KEY"
_SPEC: ArgumentSpec = {
    "api_key": {"type": "str", "no_log": True},
    "api_url": {"type": "str", "default": PUBLIC_URL},
    "org": {"type": "str", "required": True},
    "virtual_group": {"type": "int"},
    "validate_certs": {"type": "bool", "default": True},
    "ca_cert": {"type": "path"},
    "request_timeout": {"type": "int", "default": 30},
}


class LicenseServerModule(BaseModule):
    """A module with the option `api_key`."""

    @property
    def api_key(self) -> str:
        """Return the API key from the option or the environment variable; empty if neither is set."""
        return (self.params["api_key"] or os.environ.get(_KEY_ENV, "")).strip()

    def secrets(self) -> set[str]:
        """Return the secrets, including the API key from the environment variable."""
        of_address = secret_texts({"api_url": self.params["api_url"]})
        return super().secrets() | of_address | ({self.api_key} if self.api_key else set())

    def explain_error(self, error: ServiceError) -> str:
        """Return the message with the remedy."""
        return explain(error)


def work(module: LicenseServerModule) -> dict[str, t.Any]:
    """Read the license servers."""
    params = module.params
    if not module.api_key:
        raise InvalidOptions([f"{API_KEY_OPTION}: is missing; set it, or set the environment variable {_KEY_ENV}"])
    if not params["api_url"].startswith("https://"):
        raise InvalidOptions([f"{API_URL_OPTION}: must begin with https://, because requests contain the API key"])
    access = Access(
        params["api_url"], module.api_key, params["validate_certs"], params["ca_cert"], params["request_timeout"]
    )
    servers = LicenseServiceClient(access, module.user_agent).read(params["org"], params["virtual_group"])
    return {"changed": False, "license_servers": servers.as_dict()}


def main() -> None:
    """Run the module."""
    LicenseServerModule(_SPEC).run(work)


if __name__ == "__main__":
    main()
