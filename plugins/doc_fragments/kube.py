# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Connection options of all Kubernetes modules in this collection."""

from __future__ import annotations


class ModuleDocFragment:
    """Fragment accel.gpu.kube."""

    DOCUMENTATION = r"""
options:
  gpu_cluster:
    description:
      - The variable C(gpu_cluster).
      - Its C(kubeconfig) and C(context) are used if none of O(kubeconfig), O(context) and O(host) is set. Its C(impersonate_user) and C(impersonate_groups) are
        used unless O(impersonate_user) or O(impersonate_groups) is set.
      - If C(name) is set, C(name) or C(kube_name) must be the name of the context or of the cluster in the kubeconfig.
      - C(name) must also be the recorded name of the cluster (annotation C(accel.gpu/cluster-name) of the Lease C(kube-system/accel-gpu)).
        The first run that changes the cluster records it. If the names differ, the module fails before it changes anything.
      - If C(uid) is set, it must be the UID of the namespace C(kube-system).
    type: dict
  kubeconfig:
    description:
      - Path to a kubeconfig, or its content as a dictionary.
      - The cluster and the user come from a single source. The first source that names a cluster is used, in this order - O(kubeconfig), O(context) or
        O(host); C(gpu_cluster.kubeconfig) or C(gpu_cluster.context); the environment variables E(K8S_AUTH_HOST), E(K8S_AUTH_KUBECONFIG) and the
        other variables K8S_AUTH_*; E(KUBECONFIG) and C(~/.kube/config); in a pod without these, the service account of the pod.
      - If one of the first two sources is used, the module fails if a variable K8S_AUTH_* names a different cluster or user.
    type: raw
  context:
    description:
      - Context of the kubeconfig. The default is its current context.
      - Without O(kubeconfig), this is a context of E(KUBECONFIG) or C(~/.kube/config), and cannot be combined with C(gpu_cluster.kubeconfig) or
        C(gpu_cluster.context).
    type: str
  host:
    description:
      - URL of the API server. Without O(kubeconfig), no kubeconfig is read.
    type: str
  api_key:
    description:
      - Bearer token. Requires O(host) or O(kubeconfig).
    type: str
  validate_certs:
    description:
      - Whether the certificate of the API server is verified. The default is V(true), unless the kubeconfig disables it.
      - The environment variable E(K8S_AUTH_VERIFY_SSL) is used if the environment names the cluster.
    type: bool
    aliases: [verify_ssl]
  ca_cert:
    description:
      - Path to the CA certificates for verifying the certificate of the API server.
      - The environment variable E(K8S_AUTH_SSL_CA_CERT) is used if the environment names the cluster.
    type: path
    aliases: [ssl_ca_cert]
  client_cert:
    description:
      - Path to a client certificate. Requires O(host) or O(kubeconfig).
    type: path
    aliases: [cert_file]
  client_key:
    description:
      - Path to the key of the client certificate. Requires O(host) or O(kubeconfig).
    type: path
    aliases: [key_file]
  proxy:
    description:
      - URL of an HTTP or SOCKS proxy for the API server. It may contain a user and a password, which are encrypted only if the URL starts with V(https://).
      - The environment variable E(K8S_AUTH_PROXY) is used if the environment names the cluster.
    type: str
  no_proxy:
    description:
      - Hosts, domains and networks, separated by commas, that are reached without O(proxy).
      - The environment variable E(K8S_AUTH_NO_PROXY) is used if the environment names the cluster.
    type: str
  impersonate_user:
    description:
      - User to impersonate. The authenticated user needs permission to impersonate this user.
      - The default is C(gpu_cluster.impersonate_user), or the environment variable E(K8S_AUTH_IMPERSONATE_USER) if the environment names
        the cluster.
    type: str
  impersonate_groups:
    description:
      - Groups to impersonate. Requires O(impersonate_user).
      - If neither option is set, the default is C(gpu_cluster.impersonate_groups), or E(K8S_AUTH_IMPERSONATE_GROUPS) (separated by commas) if
        the environment names the cluster.
    type: list
    elements: str
  request_timeout:
    description:
      - Timeout in seconds for a single request to the API server.
      - After a transient error, a request is retried for up to twice this time. If the API server has never responded, the module fails earlier, after
        about 15 seconds.
    type: int
    default: 30
requirements:
  - python >= 3.11
  - kubernetes >= 29.0.0
"""
