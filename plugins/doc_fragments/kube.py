# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents the connection options of all Kubernetes modules in this collection."""

from __future__ import annotations


class ModuleDocFragment:
    """Provides the documentation fragment accel.gpu.kube."""

    DOCUMENTATION = r"""
options:
  gpu_cluster:
    description:
      - The variable C(gpu_cluster), which describes the cluster. The role P(accel.gpu.pools#role) describes its keys.
      - Its keys C(kubeconfig) and C(context) are used if none of O(kubeconfig), O(context) and O(host) is set. Its keys C(impersonate_user) and
        C(impersonate_groups) are used unless O(impersonate_user) or O(impersonate_groups) is set.
      - If C(name) is set, C(name) or C(kube_name) must be the name of the context or of the cluster in the kubeconfig.
      - C(name) must also match the name that is recorded in the cluster, in the annotation C(accel.gpu/cluster-name) of the Lease C(kube-system/accel-gpu).
        The first run that changes the cluster records the name. If the names differ, the module fails before it changes anything.
      - If C(uid) is set, it must be the UID of the namespace C(kube-system).
    type: dict
  renamed_from:
    description:
      - The name that is recorded in the cluster, if this run renames the cluster to C(gpu_cluster.name). The first change records the new name. The roles pass
        the variable C(gpu_renamed_from).
    type: str
  kubeconfig:
    description:
      - Path to a kubeconfig, or its content as a dictionary.
      - "The cluster and the user come from a single source, which is the first of the following sources that names a cluster: (1) O(kubeconfig), O(context)
        or O(host), (2) C(gpu_cluster.kubeconfig) or C(gpu_cluster.context), (3) the environment variables E(K8S_AUTH_HOST), E(K8S_AUTH_KUBECONFIG) and the
        other K8S_AUTH_* variables, (4) E(KUBECONFIG) or C(~/.kube/config). If the module runs in a pod and none of these sources is available, the service
        account of the pod is used."
      - If one of the first two sources is used and a K8S_AUTH_* environment variable names a different cluster or user, the module fails.
    type: raw
  context:
    description:
      - Context in the kubeconfig. The default is the current context.
      - Without O(kubeconfig), the context must be in E(KUBECONFIG) or C(~/.kube/config). In this case, this option cannot be combined with
        C(gpu_cluster.kubeconfig) or C(gpu_cluster.context).
    type: str
  host:
    description:
      - URL of the API server. Unless O(kubeconfig) is also set, no kubeconfig is read.
    type: str
  api_key:
    description:
      - Bearer token. Requires O(host) or O(kubeconfig).
    type: str
  validate_certs:
    description:
      - Whether the certificate of the API server is verified. The default is V(true), unless the kubeconfig disables the verification.
      - The environment variable E(K8S_AUTH_VERIFY_SSL) is used if the environment variables K8S_AUTH_* name the cluster.
    type: bool
    aliases: [verify_ssl]
  ca_cert:
    description:
      - Path to the CA certificates that are used to verify the API server's certificate.
      - The environment variable E(K8S_AUTH_SSL_CA_CERT) is used if the environment variables K8S_AUTH_* name the cluster.
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
      - URL of an HTTP or SOCKS proxy for the API server. The URL can contain a username and a password, which are encrypted only if the URL starts with
        V(https://).
      - The environment variable E(K8S_AUTH_PROXY) is used if the environment variables K8S_AUTH_* name the cluster.
    type: str
  no_proxy:
    description:
      - Comma-separated list of hosts, domains and networks that are accessed without O(proxy).
      - The environment variable E(K8S_AUTH_NO_PROXY) is used if the environment variables K8S_AUTH_* name the cluster.
    type: str
  impersonate_user:
    description:
      - User to impersonate. The authenticated user needs permission to impersonate this user.
      - The default is C(gpu_cluster.impersonate_user), or the environment variable E(K8S_AUTH_IMPERSONATE_USER) if the environment variables K8S_AUTH_* name
        the cluster.
    type: str
  impersonate_groups:
    description:
      - Groups to impersonate. Requires O(impersonate_user).
      - If neither option is set, the default is C(gpu_cluster.impersonate_groups), or the comma-separated list in E(K8S_AUTH_IMPERSONATE_GROUPS) if the
        environment variables K8S_AUTH_* name the cluster.
    type: list
    elements: str
  request_timeout:
    description:
      - Timeout in seconds for a single request to the API server.
      - After a transient error, a request is retried until twice this number of seconds has elapsed. If the API server has never responded, the module
        fails after only about 15 seconds.
    type: int
    default: 30
requirements:
  - python >= 3.11
  - kubernetes >= 29.0.0
"""
