# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents the options of modules that drain nodes before deleting machines."""

from __future__ import annotations

import textwrap

# The suboptions of `kubernetes` with the connection and the Lease.
_CONNECTION = r"""
      gpu_cluster:
        description:
          - The variable C(gpu_cluster). Only the name, the UID, the connection settings and the Lease settings are used.
          - The module fails before the first request to the cloud if the cluster has a different name or UID.
        type: dict
      renamed_from:
        description: The name that is recorded in the cluster, if a run renames the cluster to C(gpu_cluster.name). This module does not record the new name.
        type: str
      kubeconfig:
        description:
          - Path to a kubeconfig, or its content as a dictionary.
          - The first source that is set provides both the cluster and the user. In order of precedence, the sources are the options in this dictionary,
            C(gpu_cluster), the environment variables K8S_AUTH_*, and E(KUBECONFIG) or C(~/.kube/config). If one of the first two sources is used and a
            K8S_AUTH_* environment variable names a different cluster or user, the module fails.
        type: raw
      context:
        description: Context in the kubeconfig. The default is the current context.
        type: str
      host:
        description: URL of the API server. Unless C(kubeconfig) is also set, no kubeconfig is read.
        type: str
      api_key:
        description: Bearer token. Requires C(host) or C(kubeconfig).
        type: str
      validate_certs:
        description: Whether the API server's certificate is verified.
        type: bool
        aliases: [verify_ssl]
      ca_cert:
        description: Path to the CA certificates that are used to verify the API server's certificate.
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
        description: Comma-separated list of hosts, domains and networks that are accessed without C(proxy).
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
"""
_LEASE = r"""
      lease_namespace:
        description: Namespace of the Lease C(accel-gpu), which only one run can hold at a time.
        type: str
        default: kube-system
      lease_wait_timeout:
        description: Seconds to wait if another run is changing the cluster. The default is C(gpu_cluster.lease.wait_timeout), or V(300) if that key is not
          set.
        type: int
"""


class ModuleDocFragment:
    """Provides the documentation fragment accel.gpu.drain."""

    # The option of modules that are connected to the cluster themselves; other modules have it below `kubernetes`.
    OPTION = r"""
options:
  drain:
    description:
      - How nodes are drained before their machines are removed. The suboptions C(force), C(grace_period) and C(drain_timeout) are named after the keys of a
        pool's C(rollout).
      - Drained vGPU nodes return their licenses, which requires permission to run commands in driver pods (C(pods/exec)). Without this permission, the
        module only shows a warning.
    type: dict
    default: {}
    suboptions:
      evict:
        description:
          - Whether pods are evicted. With V(false), the run waits until the pods terminate, as with C(rollout.drain=none).
        type: bool
        default: true
      force:
        description:
          - Whether pods without a controller are evicted. Such pods are not recreated.
          - If V(false), such a pod blocks the drain, and no pods are evicted from any node.
        type: bool
        default: false
      grace_period:
        description: Grace period in seconds for every evicted pod. By default, each pod's own grace period is used.
        type: int
      drain_timeout:
        description:
          - Timeout in seconds for draining one node. An evicted pod always gets its full grace period, even if the grace period exceeds this timeout.
        type: int
        default: 600
      parallel:
        description: Maximum number of nodes that are drained at the same time.
        type: int
        default: 4
"""

    # The types are necessary: ansible-test fails on a plain assignment whose value is not a constant.
    DOCUMENTATION: str = (
        r"""
options:
  kubernetes:
    description:
      - The Kubernetes cluster that the machines belong to. If this option is set, nodes are drained before their machines are deleted.
      - Nodes are drained before the first request to the cloud, even with O(wait=false).
      - Without this option, nodes are not drained, so the pods on a machine are deleted together with the machine. In this case, the cloud chooses which
        machines to delete.
      - All nodes to be removed are cordoned before the first pod is evicted. Evictions respect PodDisruptionBudgets.
        Pods of DaemonSets and static pods are not evicted.
      - If a node cannot be drained, all nodes are uncordoned again, and no machine is deleted. The error message lists the blocking pods and states the
        reason. Nodes that were cordoned by another tool or user stay cordoned.
      - The module holds the cluster's Lease until the machines have been deleted, because only one run at a time may change the cluster.
    type: dict
    suboptions:
""".rstrip()
        + _CONNECTION.rstrip()
        + _LEASE
        + textwrap.indent(OPTION.partition("options:\n")[2], "    ")
    )

    # The option of modules that do not drain.
    CLUSTER: str = (
        r"""
options:
  kubernetes:
    description:
      - The OpenShift cluster whose machines are cloned from the templates. Its objects contain the failure domains, the OVA of the release, and the users of
        each template. The module holds the cluster's Lease during changes.
    type: dict
    suboptions:
""".rstrip()
        + _CONNECTION.rstrip()
        + _LEASE
    )

    # The option of modules that only read.
    INFO: str = (
        r"""
options:
  kubernetes:
    description:
      - The OpenShift cluster whose machines are cloned from the templates. Its objects contain the release, and the users of each template.
    type: dict
    suboptions:
""".rstrip()
        + _CONNECTION
    )
