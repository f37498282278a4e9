# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes are emptied before their machines are taken out."""

from __future__ import annotations


class ModuleDocFragment:
    """Fragment accel.gpu.emptying."""

    DOCUMENTATION = r"""
options:
  kubernetes:
    description:
      - The cluster whose nodes the machines are, so that a node is emptied before its machine is taken out.
      - They are emptied before the cloud is asked, also with O(wait=false).
      - Without it machines are taken out with whatever runs on them, and the cloud chooses which ones.
      - All nodes that are to go are cordoned first, then their pods are evicted, so that PodDisruptionBudgets are respected.
        Pods of DaemonSets and static pods end with their node. If a node does not become empty, all are opened again, nothing is
        taken out, and the failure tells which pods were in the way and why. Cordons of others stay as they are.
      - The cluster's Lease is held until the machines are gone, as by every other run that changes the cluster.
    type: dict
    suboptions:
      gpu_cluster:
        description:
          - What C(gpu_cluster) says of the cluster, its C(name), C(uid), C(kubeconfig), C(context) and impersonation.
          - A cluster of another name or UID is refused before the cloud is asked to change anything, as by the modules for Kubernetes.
        type: dict
      kubeconfig:
        description:
          - Path of a kubeconfig, or its content as a dictionary.
          - The cluster and the user come from one source as a whole; these options, C(cluster), the variables K8S_AUTH_*, or E(KUBECONFIG) and
            C(~/.kube/config), whichever comes first. A variable K8S_AUTH_* that contradicts one of the first two is an error.
        type: raw
      context:
        description: Context of the kubeconfig; its current one if not given.
        type: str
      host:
        description: URL of the API server. Without C(kubeconfig) no kubeconfig is read.
        type: str
      api_key:
        description: Bearer token. Needs C(host) or C(kubeconfig).
        type: str
      validate_certs:
        description: Whether the API server's certificate is verified.
        type: bool
        aliases: [verify_ssl]
      ca_cert:
        description: Path of the certificates of the CA that the API server's certificate must come from.
        type: path
        aliases: [ssl_ca_cert]
      client_cert:
        description: Path of a client certificate. Needs C(host) or C(kubeconfig).
        type: path
        aliases: [cert_file]
      client_key:
        description: Path of the client certificate's key. Needs C(host) or C(kubeconfig).
        type: path
        aliases: [key_file]
      proxy:
        description: URL of an HTTP or SOCKS proxy on the way to the API server.
        type: str
      no_proxy:
        description: Hosts, domains and networks, separated by commas, that are reached without C(proxy).
        type: str
      impersonate_user:
        description: User as whom the requests are made.
        type: str
      impersonate_groups:
        description: Groups as whose member the requests are made. Needs C(impersonate_user).
        type: list
        elements: str
      request_timeout:
        description: Seconds within which the API server must answer one request.
        type: int
        default: 30
      lease_namespace:
        description: Namespace of the Lease C(accel-gpu) by which runs know of each other.
        type: str
        default: kube-system
      lease_wait_timeout:
        description: Seconds to wait for another run that is changing the cluster.
        type: int
        default: 300
      drain:
        description: How pods leave; the words are those of C(rollout) of a pool.
        type: dict
        default: {}
        suboptions:
          evict:
            description:
              - V(false) evicts nobody, and waits until the pods have ended by themselves (C(rollout.drain) V(none)).
            type: bool
            default: true
          force:
            description:
              - Whether pods are evicted that no controller makes again. Without it such a pod keeps its node, and nothing is
                evicted from any.
            type: bool
            default: false
          grace_period:
            description: Seconds that every pod has to end; its own grace period if not given.
            type: int
          drain_timeout:
            description:
              - Seconds for a node to become empty. A pod that was evicted may use its grace period to the end, also beyond.
            type: int
            default: 600
          parallel:
            description: Nodes that are emptied at the same time.
            type: int
            default: 4
"""
