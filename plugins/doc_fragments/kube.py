# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a module reaches its cluster: options of every module of this collection."""

from __future__ import annotations


class ModuleDocFragment:
    """Fragment accel.gpu.kube."""

    DOCUMENTATION = r"""
options:
  cluster:
    description:
      - What C(gpu_cluster) says of the cluster.
      - Its C(kubeconfig) and C(context) are used where the options of these names are not given.
      - If it has a C(name), that (or its C(kube_name)) must be what the kubeconfig calls this context or cluster;
        another cluster is refused before anything is sent.
    type: dict
  kubeconfig:
    description:
      - Path of a kubeconfig, or its content as a dictionary.
      - If not given, C(cluster.kubeconfig), the environment variables E(K8S_AUTH_KUBECONFIG) and E(KUBECONFIG) and
        C(~/.kube/config) are tried, in this order; in a pod without any of them, the pod's service account.
    type: raw
  context:
    description:
      - Context of the kubeconfig; its current one if not given.
      - E(K8S_AUTH_CONTEXT) is read together with E(K8S_AUTH_KUBECONFIG).
    type: str
  host:
    description:
      - URL of the API server. With it and without O(kubeconfig), no kubeconfig is read.
      - The environment variable E(K8S_AUTH_HOST) is used if not given.
    type: str
  api_key:
    description:
      - Bearer token.
      - The environment variable E(K8S_AUTH_API_KEY) is used if not given.
    type: str
  validate_certs:
    description:
      - Whether the API server's certificate is verified.
      - The environment variable E(K8S_AUTH_VERIFY_SSL) is used if not given; without that, it is.
    type: bool
    aliases: [verify_ssl]
  ca_cert:
    description:
      - Path of the certificates of the CA that the API server's certificate must come from.
      - The environment variable E(K8S_AUTH_SSL_CA_CERT) is used if not given.
    type: path
    aliases: [ssl_ca_cert]
  client_cert:
    description:
      - Path of a client certificate.
      - The environment variable E(K8S_AUTH_CERT_FILE) is used if not given.
    type: path
    aliases: [cert_file]
  client_key:
    description:
      - Path of the client certificate's key.
      - The environment variable E(K8S_AUTH_KEY_FILE) is used if not given.
    type: path
    aliases: [key_file]
  proxy:
    description:
      - URL of an HTTP or SOCKS proxy on the way to the API server.
      - The environment variable E(K8S_AUTH_PROXY) is used if not given.
    type: str
  request_timeout:
    description:
      - Seconds within which the API server must answer one request.
      - A request that met a passing trouble is tried again for up to twice as long. Whether there is an API server at
        all is decided sooner, within about 15 seconds.
    type: int
    default: 30
requirements:
  - python >= 3.10
  - kubernetes >= 29.0.0
"""
