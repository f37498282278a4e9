# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the options of modules that access registries."""

from __future__ import annotations


class ModuleDocFragment:
    """Fragment accel.gpu.registry; it must precede accel.gpu.attributes, which has another action group."""

    DOCUMENTATION = r"""
options:
  registries:
    description:
      - Credentials and TLS settings of registries. No entry is required for a registry that needs neither.
      - Logins are taken from this list first, then from O(auth_file). For V(nvcr.io), the environment variable E(NGC_API_KEY) is used if neither contains a
        login.
    type: list
    elements: dict
    default: []
    suboptions:
      registry:
        description:
          - Host and port of the registry, such as V(registry.example.com:5000).
          - A login may also be limited to a path, such as V(registry.example.com/nvidia). The TLS settings of a registry come from its first entry.
        type: str
        required: true
      username:
        description: User of the registry; for NVIDIA's registry, V($oauthtoken).
        type: str
      password:
        description: Password or token of the user. It is passed to other programs in memory, never on a command line.
        type: str
      ca_cert:
        description:
          - Path to the CA certificate of the registry. By default, the certificates of the system.
          - The system's certificates are also trusted for a token service, and for storage to which the registry redirects.
        type: path
      validate_certs:
        description: Whether the registry's certificate is verified.
        type: bool
        default: true
      plain_http:
        description: Whether to connect over HTTP, without TLS.
        type: bool
        default: false
  auth_file:
    description:
      - File with logins, in the format that C(podman login) and C(docker login) write. If the file specifies credential helpers, they are called for the
        registries in use.
      - By default, the file that the environment variable E(REGISTRY_AUTH_FILE) names, or else the file of podman or docker in the home directory, if it
        exists.
    type: path
  request_timeout:
    description:
      - Seconds to wait for the response to a request.
      - After a transient error, a request is retried for up to twice this time. A request is stopped after at most three times this number of seconds, even if
        the response is still being received.
      - A credential helper must also return within this time.
    type: int
    default: 30
requirements:
  - python >= 3.11
  - urllib3
notes:
  - Results, diffs and logs never contain passwords, tokens or the content of O(auth_file).
attributes:
  action_group:
    description: Use C(group/accel.gpu.registry) in C(module_defaults) to set the connection options once.
    support: full
    membership:
      - accel.gpu.registry
"""

    IMAGE_TOOLS = r"""
options:
  tool_timeout:
    description:
      - Seconds after which a call of skopeo or buildah is stopped, such as the copy of one image, the build of one image, or its push.
      - These tools have no time limit of their own, so a connection that stalls would otherwise block the run.
    type: int
    default: 7200
"""

    # For modules that also connect to a cluster; must precede the standard part. Ansible first looks for a file with the name of the part,
    # so this part must not be named KUBE.
    WITH_CLUSTER = r"""
options: {}
attributes:
  action_group:
    description: Use C(group/accel.gpu.kube) and C(group/accel.gpu.registry) in C(module_defaults) to set the connection options once.
    support: full
    membership:
      - accel.gpu.kube
      - accel.gpu.registry
"""
