# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents the options that the modules for OpenStack Magnum share. The connection options are the same as in openstack.cloud."""

from __future__ import annotations


class ModuleDocFragment:
    """Provides the documentation fragment accel.gpu.magnum."""

    DOCUMENTATION = r"""
options:
  cloud:
    description:
      - Name of a cloud in C(clouds.yaml), or a map that contains the cloud's configuration. By default, the C(OS_*) environment variables are used.
    type: raw
  auth:
    description:
      - Credentials for the authentication plugin, such as C(auth_url), C(username), C(password) and C(project_name). Not required if a named cloud or the
        C(OS_*) environment variables are used.
    type: dict
  auth_type:
    description: Name of the authentication plugin. By default, V(password).
    type: str
  region_name:
    description: Name of the region.
    type: str
  api_timeout:
    description: Seconds to wait for the response to a request.
    type: int
  validate_certs:
    description: Whether TLS certificates are verified.
    type: bool
    aliases: [verify]
  ca_cert:
    description: Path to the CA certificates that are used to verify the services' certificates.
    type: str
    aliases: [cacert]
  client_cert:
    description: Path to a client certificate.
    type: str
    aliases: [cert]
  client_key:
    description: Path to the client certificate's key.
    type: str
    aliases: [key]
  interface:
    description: The endpoint type to use from the service catalog.
    type: str
    choices: [admin, internal, public]
    default: public
    aliases: [endpoint_type]
  sdk_log_path:
    description: Path to a log file for openstacksdk. By default, no log is written.
    type: str
  sdk_log_level:
    description: Log level of openstacksdk.
    type: str
    choices: [INFO, DEBUG]
    default: INFO
attributes:
  action_group:
    description: Use C(group/accel.gpu.magnum) in C(module_defaults) to set the connection options once.
    support: full
    membership:
      - accel.gpu.magnum
requirements:
  - python >= 3.11
  - openstacksdk >= 4.0.0
notes:
  - A URL without TLS is rejected unless it refers to the local machine or O(validate_certs) is V(false).
"""

    # Modules that change something use this part in addition to the standard part.
    WAITING = r"""
options:
  wait:
    description:
      - Whether to wait until the change is complete. With V(false), if the change requires several requests, only the first one is sent.
    type: bool
    default: true
  wait_timeout:
    description:
      - Seconds to wait. After this time, the module fails and reports the status, the reason and the faults of incomplete resources.
    type: int
    default: 3600
    aliases: [timeout]
  wait_sleep:
    description: Maximum number of seconds between two checks. The first checks are more frequent.
    type: int
    default: 5
"""
