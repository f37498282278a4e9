# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of modules that drain nodes before they delete machines."""

from __future__ import annotations


class ModuleDocFragment:
    """Fragment accel.gpu.drain."""

    DOCUMENTATION = r"""
options:
  kubernetes:
    description:
      - The Kubernetes cluster that the machines belong to. If it is set, nodes are drained before their machines are deleted.
      - Nodes are drained before the first request to the cloud, even with O(wait=false).
      - Without this option, machines are deleted together with the pods on them, and the cloud chooses the machines.
      - All nodes to be removed are cordoned before the first pod is evicted. Evictions respect PodDisruptionBudgets.
        Pods of DaemonSets and static pods are not evicted.
      - If a node cannot be drained, all nodes are uncordoned again, no machine is deleted, and the error message names the blocking pods and the reason.
        Nodes that another tool or user cordoned stay cordoned.
      - As in every run that changes the cluster, the Lease of the cluster is held until the machines have been deleted.
    type: dict
    suboptions:
      gpu_cluster:
        description:
          - The variable C(gpu_cluster). Only the name, the UID, the connection settings and the Lease settings are used.
          - The module fails before the first request to the cloud if the name or UID of the cluster differs.
        type: dict
      kubeconfig:
        description:
          - Path to a kubeconfig, or its content as a dictionary.
          - The first source that is set provides both the cluster and the user. In order of precedence, the sources are these options, C(gpu_cluster), the
            environment variables K8S_AUTH_*, and E(KUBECONFIG) or C(~/.kube/config). The module fails if a variable K8S_AUTH_* contradicts one of the first two
            sources.
        type: raw
      context:
        description: Context of the kubeconfig. The default is its current context.
        type: str
      host:
        description: URL of the API server. Without C(kubeconfig), no kubeconfig is read.
        type: str
      api_key:
        description: Bearer token. Requires C(host) or C(kubeconfig).
        type: str
      validate_certs:
        description: Whether the API server's certificate is verified.
        type: bool
        aliases: [verify_ssl]
      ca_cert:
        description: Path to the CA certificates for verifying the API server's certificate.
        type: path
        aliases: [ssl_ca_cert]
      client_cert:
        description: Path to a client certificate. Requires C(host) or C(kubeconfig).
        type: path
        aliases: [cert_file]
      client_key:
        description: Path to the client certificate's key. Requires C(host) or C(kubeconfig).
        type: path
        aliases: [key_file]
      proxy:
        description: URL of an HTTP or SOCKS proxy for requests to the API server.
        type: str
      no_proxy:
        description: Hosts, domains and networks, separated by commas, that are reached without C(proxy).
        type: str
      impersonate_user:
        description: User to impersonate.
        type: str
      impersonate_groups:
        description: Groups to impersonate. Requires C(impersonate_user).
        type: list
        elements: str
      request_timeout:
        description: Timeout in seconds for a single request to the API server.
        type: int
        default: 30
      lease_namespace:
        description: Namespace of the Lease C(accel-gpu), which only one run holds at a time.
        type: str
        default: kube-system
      lease_wait_timeout:
        description: Seconds to wait for another run that is changing the cluster. The default is C(gpu_cluster.lease.wait_timeout), or V(300).
        type: int
      drain:
        description:
          - How nodes are drained. The names are the same as in C(rollout) of a pool.
          - Drained vGPU nodes return their licenses. This requires permission to run commands in driver pods (C(pods/exec)). Without this permission, a warning
            is shown.
        type: dict
        default: {}
        suboptions:
          evict:
            description:
              - Whether pods are evicted. With V(false), the run waits until they terminate (like C(rollout.drain=none)).
            type: bool
            default: true
          force:
            description:
              - Whether pods without a controller are evicted. Such pods are not recreated.
              - If V(false), such a pod blocks the drain, and no pod of any node is evicted.
            type: bool
            default: false
          grace_period:
            description: Grace period for every evicted pod in seconds. By default, each pod's own grace period is used.
            type: int
          drain_timeout:
            description:
              - Timeout in seconds for draining one node. An evicted pod can always use its full grace period, even if this exceeds the timeout.
            type: int
            default: 600
          parallel:
            description: Number of nodes that are drained at the same time.
            type: int
            default: 4
"""
