# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the modules for OpenStack Magnum have in common, beside openstack.cloud's options."""

from __future__ import annotations


class ModuleDocFragment:
    """Fragment accel.gpu.magnum."""

    DOCUMENTATION = r"""
options:
  cloud:
    description:
      - Name of a cloud in C(clouds.yaml), or a map with such a configuration. By default the variables C(OS_*) of the environment.
    type: raw
  auth:
    description:
      - What the authentication plugin needs, such as C(auth_url), C(username), C(password) and C(project_name). Not needed with a named cloud or with
        the variables C(OS_*).
    type: dict
  auth_type:
    description: Name of the authentication plugin. By default V(password).
    type: str
  region_name:
    description: Name of the region.
    type: str
  api_timeout:
    description: Seconds within which a service must answer one request.
    type: int
  validate_certs:
    description: Whether TLS certificates are verified.
    type: bool
    aliases: [verify]
  ca_cert:
    description: Path of the certificates of the CA that the services' certificates must come from.
    type: str
    aliases: [cacert]
  client_cert:
    description: Path of a client certificate.
    type: str
    aliases: [cert]
  client_key:
    description: Path of the client certificate's key.
    type: str
    aliases: [key]
  interface:
    description: Which endpoint of the service catalog is used.
    type: str
    choices: [admin, internal, public]
    default: public
    aliases: [endpoint_type]
  sdk_log_path:
    description: Path of a log file of openstacksdk. By default no log is written.
    type: str
  sdk_log_level:
    description: Level of that log.
    type: str
    choices: [INFO, DEBUG]
    default: INFO
attributes:
  action_group:
    description: Use C(group/accel.gpu.magnum) in C(module_defaults) to say once how the cloud is reached.
    support: full
    membership:
      - accel.gpu.magnum
requirements:
  - python >= 3.10
  - openstacksdk >= 4.0.0
notes:
  - A service that is reached without TLS is refused, unless it is on this machine or O(validate_certs) is V(false).
"""

    # With the standard part: what changes something, and waits until that is seen.
    WAITING = r"""
options:
  wait:
    description:
      - Whether to wait until what was asked for is there. Without it only the first request is sent of what needs several.
    type: bool
    default: true
  timeout:
    description:
      - Seconds to wait. When they are over the module fails, and tells status, reason and faults of what is not there.
    type: int
    default: 3600
    aliases: [wait_timeout]
  wait_sleep:
    description: The longest time between two looks, in seconds. The first ones come sooner.
    type: int
    default: 5
"""

    # With the standard part: what only reads.
    READING = r"""
options:
  wait:
    description: Has no meaning here, since nothing is changed; it is one of the options that all modules of OpenStack share.
    type: bool
    default: true
  timeout:
    description: As O(wait).
    type: int
    default: 180
"""
