# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents the options of modules that access registries."""

from __future__ import annotations


class ModuleDocFragment:
    """Provides the documentation fragment accel.gpu.registry. It must precede accel.gpu.attributes, which has a different action group."""

    DOCUMENTATION = r"""
options:
  registries:
    description:
      - Credentials and TLS settings of registries. No entry is required for a registry that needs neither.
      - Logins are taken from this list first, then from O(auth_file). For V(nvcr.io), the environment variable E(NGC_API_KEY) is used if neither the list nor
        the file contains a login.
    type: list
    elements: dict
    default: []
    suboptions:
      registry:
        description:
          - Host and port of the registry, such as V(registry.example.com:5000).
          - To limit a login to a path, add the path, as in V(registry.example.com/nvidia). If a registry has several entries, its TLS settings come from the
            first entry.
        type: str
        required: true
      username:
        description: Username for the registry. For NVIDIA's registry, use V($oauthtoken).
        type: str
      password:
        description: Password or token of the user. The module passes it to other programs in memory, never on a command line.
        type: str
      ca_cert:
        description:
          - Path to the CA certificate of the registry. By default, the system's certificates are used.
          - The system's certificates are also trusted for the registry's token service and for storage to which the registry redirects requests.
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
      - Path to a file with logins, in the format that C(podman login) and C(docker login) write. If the file specifies credential helpers, they are called
        for the registries in use.
      - By default, the path in the environment variable E(REGISTRY_AUTH_FILE) is used. If this variable is not set, the credentials file that podman or
        docker keeps in the home directory is used, if there is one.
    type: path
  request_timeout:
    description:
      - Seconds to wait for the response to a request.
      - After a transient error, a request is retried until twice this number of seconds has elapsed. In total, a request takes no longer than three times
        this number of seconds; it is stopped even if the response is still being received.
      - A credential helper must return within O(request_timeout) seconds.
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
      - Timeout in seconds for one skopeo or buildah command. Each command copies, builds or pushes one image.
      - These tools have no time limit of their own, so a stalled connection would otherwise block the run.
    type: int
    default: 7200
"""

    # Modules that also connect to a cluster use this part. It must precede the standard part. Ansible first looks for a file with the name of the part,
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
