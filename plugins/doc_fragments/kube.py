# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a module reaches its cluster: options of every module of this collection."""

from __future__ import annotations


class ModuleDocFragment:
    """Fragment accel.gpu.kube."""

    DOCUMENTATION = r"""
options:
  gpu_cluster:
    description:
      - What C(gpu_cluster) says of the cluster.
      - Its C(kubeconfig) and C(context) are used if none of O(kubeconfig), O(context) and O(host) is given. Its C(impersonate_user) and
        C(impersonate_groups) are used unless O(impersonate_user) or O(impersonate_groups) is given.
      - If it has a C(name), that (or its C(kube_name)) must be what the kubeconfig calls this context or cluster, and the name that the
        cluster remembers (annotation C(accel.gpu/cluster-name) of the Lease C(kube-system/accel-gpu)). The first change of a cluster records it.
        Another cluster is refused before anything is changed.
      - If it has a C(uid), that must be the UID of the namespace C(kube-system).
    type: dict
  kubeconfig:
    description:
      - Path of a kubeconfig, or its content as a dictionary.
      - The cluster and the user come from one source as a whole. The first of these that names a cluster counts, O(kubeconfig), O(context) or
        O(host); C(gpu_cluster.kubeconfig) or C(gpu_cluster.context); the environment variables E(K8S_AUTH_HOST), E(K8S_AUTH_KUBECONFIG) and those
        beside them; E(KUBECONFIG) and C(~/.kube/config), or in a pod without these the pod's service account.
      - Where one of the first two counts, a variable K8S_AUTH_* that names another cluster or user is an error.
    type: raw
  context:
    description:
      - Context of the kubeconfig; its current one if not given.
      - Alone it is a context of E(KUBECONFIG) or C(~/.kube/config), and not allowed beside C(gpu_cluster.kubeconfig) or C(gpu_cluster.context).
    type: str
  host:
    description:
      - URL of the API server. Without O(kubeconfig) no kubeconfig is read.
    type: str
  api_key:
    description:
      - Bearer token. Needs O(host) or O(kubeconfig).
    type: str
  validate_certs:
    description:
      - Whether the API server's certificate is verified; by default it is, unless the kubeconfig says otherwise.
      - The environment variable E(K8S_AUTH_VERIFY_SSL) counts where the environment names the cluster.
    type: bool
    aliases: [verify_ssl]
  ca_cert:
    description:
      - Path of the certificates of the CA that the API server's certificate must come from.
      - The environment variable E(K8S_AUTH_SSL_CA_CERT) counts where the environment names the cluster.
    type: path
    aliases: [ssl_ca_cert]
  client_cert:
    description:
      - Path of a client certificate. Needs O(host) or O(kubeconfig).
    type: path
    aliases: [cert_file]
  client_key:
    description:
      - Path of the client certificate's key. Needs O(host) or O(kubeconfig).
    type: path
    aliases: [key_file]
  proxy:
    description:
      - URL of an HTTP or SOCKS proxy on the way to the API server.
      - The environment variable E(K8S_AUTH_PROXY) counts where the environment names the cluster.
    type: str
  no_proxy:
    description:
      - Hosts, domains and networks, separated by commas, that are reached without O(proxy).
      - The environment variable E(K8S_AUTH_NO_PROXY) counts where the environment names the cluster.
    type: str
  impersonate_user:
    description:
      - User as whom the requests are made. The authenticated user needs the right to impersonate that user.
      - If not given, C(gpu_cluster.impersonate_user), or the environment variable E(K8S_AUTH_IMPERSONATE_USER) where the environment names the cluster.
    type: str
  impersonate_groups:
    description:
      - Groups as whose member the requests are made. Needs O(impersonate_user).
      - If neither is given, C(gpu_cluster.impersonate_groups), or E(K8S_AUTH_IMPERSONATE_GROUPS) (separated by commas) where the environment names
        the cluster.
    type: list
    elements: str
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
