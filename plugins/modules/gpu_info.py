#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Returns information about the GPUs of a cluster, which it reads from one list of the nodes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_info
short_description: Return the GPUs of a cluster, how they are shared, and whether the pools match their declarations
version_added: 0.1.0
author:
  - The accel.gpu authors (@accel-gpu)
description:
  - Returns the model, driver, sharing mode, replicas and allocatable resources of each GPU node. The module reads them from one paged list of the nodes.
  - With O(gpu_pools), the module also returns each pool's declaration and actual state, the changes that M(accel.gpu.gpu_sharing) would make, and whether the
    pool has been validated by workloads since its last change. For this purpose, the module reads two additional small objects.
  - With O(include_workloads), the module also returns the pods that request GPUs. It reads them from one paged list of the pods that have not terminated.
extends_documentation_fragment:
  - accel.gpu.kube
  - accel.gpu.vsphere.vcenter
  - accel.gpu.variables
  - accel.gpu.attributes
  - accel.gpu.attributes.info
  - accel.gpu.attributes.progress
options:
  limit:
    description: Maximum number of nodes in the result. Totals count all nodes.
    type: int
    default: 100
  include_workloads:
    description: Whether to return the pods that request GPUs on each node.
    type: bool
    default: false
  include_impact:
    description:
      - Whether to return the impact of the changes. Requires O(gpu_pools).
      - For this purpose, the module reads the ClusterPolicy and, if there are changes, all pods that have not terminated.
      - If a run would upgrade the Helm release of the GPU operator, the chart is fetched and rendered on the controller. The upgrade is then checked in the
        same way as in M(accel.gpu.helm_release).
    type: bool
    default: false
  allow_driver_rollout:
    description:
      - Whether a run may restart the driver. See the same option of M(accel.gpu.helm_release).
      - With O(include_impact), RV(gpu_info.impact) shows which changes would be rejected or held back.
    type: bool
    default: false
  binary_path:
    description: Path to helm, which O(include_impact) needs if a run would upgrade the GPU operator. By default, the first C(helm) on PATH.
    type: path
  allow_release:
    description: See the same option of M(accel.gpu.gpu_sharing). RV(gpu_info.release) shows whether a run with this value would fail.
    type: list
    elements: str
    default: []
  allow_unreachable:
    description:
      - Whether the module succeeds even if the cluster cannot be reached.
      - In that case, RV(gpu_info.reachable) is V(false), and the pools contain only values that are derived from the variables.
    type: bool
    default: false
seealso:
  - module: accel.gpu.gpu_sharing
  - plugin: accel.gpu.report_lines
    plugin_type: filter
  - plugin: accel.gpu.report_page
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Compare the cluster with its pools and return the pods that request GPUs
  accel.gpu.gpu_info:
    gpu_cluster: "{{ gpu_cluster }}"
    gpu_pools: "{{ gpu_pools }}"
    include_workloads: true
    limit: 5000
  register: cluster_state

- name: Write the result as JSON
  ansible.builtin.copy:
    content: "{{ cluster_state.gpu_info | to_nice_json }}"
    dest: ~/gpus.json
    mode: "0644"
"""

RETURN = r"""
gpu_info:
  description: The state of the cluster.
  returned: always
  type: dict
  contains:
    cluster:
      description: Name of the cluster, from O(gpu_cluster) or the kubeconfig.
      type: str
      returned: always
      sample: lab
    kubelet_versions: {description: The versions of Kubernetes on the nodes., type: list, elements: str, returned: when the cluster is reachable,
      sample: [v1.33.4]}
    reachable: {description: Whether the cluster responded., type: bool, returned: always, sample: true}
    reason: {description: The reason why the cluster could not be reached., type: str, returned: when the cluster is not reachable,
      sample: "GET https://10.0.0.10:6443/version: connection refused"}
    identity:
      description: The identity of the cluster.
      type: dict
      returned: when the cluster is reachable
      contains:
        uid: {description: UID of the namespace kube-system; null if this user is not allowed to read it., type: str, returned: always,
          sample: 8f0c7b0e-5e0e-4d4c-9a53-3c6f0f7d1a11}
        recorded_name: {description: The name that a run has recorded in the cluster; null if there is none., type: str, returned: always, sample: lab}
        name_to_record: {description: The name that a run would record; null if a name is already recorded., type: str, returned: always, sample: null}
        server: {description: URL of the API server., type: str, returned: always, sample: 'https://10.0.0.10:6443'}
        origin: {description: Source of the connection settings., type: str, returned: always, sample: 'kubeconfig ~/.kube/config, context lab'}
    totals:
      description: The number of nodes, GPU nodes and GPUs, and the allocatable amount of each resource.
      type: dict
      returned: when the cluster is reachable
      contains:
        nodes: {description: Number of nodes., type: int, returned: always, sample: 5}
        gpu_nodes: {description: Number of nodes with GPUs., type: int, returned: always, sample: 2}
        gpus: {description: Number of GPUs., type: int, returned: always, sample: 2}
        allocatable: {description: Allocatable amount of each resource., type: dict, returned: always, sample: {nvidia.com/gpu: 8}}
    models:
      description: The number of nodes and GPUs, and the driver versions, by model.
      type: dict
      returned: when the cluster is reachable
      contains:
        NAME:
          description: 'The entry for one model, with its name as the key.'
          type: dict
          returned: always
          contains:
            nodes: {description: Number of nodes., type: int, returned: always, sample: 2}
            gpus: {description: Number of GPUs., type: int, returned: always, sample: 2}
            driver_versions: {description: The driver versions on these nodes., type: list, elements: str, returned: always, sample: [580.95.05]}
    nodes:
      description:
        - Up to O(limit) GPU nodes.
        - C(mig) is null if the GPU does not support MIG. Otherwise, it contains the desired C(config), the MIG manager's C(state) and the MIG C(devices) by
          profile. C(driver_upgrade) is the state of the driver upgrade, or null if there is none.
        - With O(gpu_pools), C(drift) lists, in short sentences, how the node differs from its pool's declaration.
        - With O(include_workloads), C(workloads) lists the pods that request GPUs.
      type: list
      elements: dict
      returned: when the cluster is reachable
      contains:
        name: {description: Name of the node., type: str, returned: always, sample: t4-1}
        pool: {description: Pool of the node; null if there is none., type: str, returned: always, sample: notebooks}
        model: {description: Model of the node's GPUs; null if the model is not known., type: str, returned: always, sample: Tesla-T4}
        gpus: {description: Number of GPUs., type: int, returned: always, sample: 1}
        memory_mib: {description: Memory of one GPU in MiB; 0 if the size is not known., type: int, returned: always, sample: 15360}
        driver: {description: Version of the driver; null if the version is not known., type: str, returned: always, sample: 580.95.05}
        driver_upgrade: {description: State of the driver upgrade; null if there is none., type: str, returned: always, sample: upgrade-done}
        mode: {description: 'V(mig) if the node has MIG devices, otherwise the sharing strategy that gpu-feature-discovery reports; null if the mode is not
          known.',
          type: str, returned: always, sample: time-slicing}
        replicas: {description: Number of shares of each GPU., type: int, returned: always, sample: 4}
        config: {description: The device plugin's configuration; null if no label sets it., type: str, returned: always,
          sample: time-slicing-4-1c2f0a9b}
        allocatable: {description: Allocatable amount of each GPU resource., type: dict, returned: always, sample: {nvidia.com/gpu: 4}}
        capacity: {description: Capacity of each GPU resource., type: dict, returned: always, sample: {nvidia.com/gpu: 4}}
        mig:
          description: The MIG configuration; null if the GPU does not support MIG.
          type: dict
          returned: always
          contains:
            config: {description: The desired configuration; null if there is none., type: str, returned: always, sample: all-3g.40gb}
            state: {description: State that the MIG manager reports; null if there is none., type: str, returned: always, sample: success}
            devices: {description: Number of MIG devices by profile., type: dict, returned: always, sample: {3g.40gb: 2}}
        ready: {description: Whether the node is ready., type: bool, returned: always, sample: true}
        schedulable: {description: Whether the node is schedulable (not cordoned)., type: bool, returned: always, sample: true}
        layout:
          description: The MIG layout of this node.
          type: list
          elements: dict
          returned: if a C(sharing.demand) determines the layout
          contains:
            devices: {description: Indexes of the GPUs; empty if the entry applies to all GPUs., type: list, elements: int, returned: always, sample: [0]}
            profiles: {description: Number of devices by profile., type: dict, returned: always, sample: {3g.40gb: 2}}
        drift: {description: The differences from the declaration of the node's pool., type: list, elements: str, returned: with O(gpu_pools), sample: ['label
          nvidia.com/gpu.replicas is 1, but 4 is expected']}
        workloads:
          description: The pods that request GPUs.
          type: list
          elements: dict
          returned: with O(include_workloads)
          contains:
            namespace: {description: Namespace of the pod., type: str, returned: always, sample: team}
            pod: {description: Name of the pod., type: str, returned: always, sample: notebook-0}
            resource: {description: The requested resource., type: str, returned: always, sample: nvidia.com/gpu}
            count: {description: The requested amount., type: int, returned: always, sample: 1}
    driver_upgrade:
      description: The number of nodes in each state of an unfinished driver upgrade. Also contains up to 100 nodes on which the upgrade failed and up to 100
        nodes that it skips.
      type: dict
      returned: when the cluster is reachable
      contains:
        states: {description: 'Number of nodes in each state of the label C(nvidia.com/gpu-driver-upgrade-state), except the final state.', type: dict,
          returned: always, sample: {upgrade-required: 1}}
        failed: {description: Up to 100 nodes on which the upgrade failed., type: list, elements: str, returned: always, sample: []}
        skipped: {description: Up to 100 nodes that the upgrade skips., type: list, elements: str, returned: always, sample: []}
    nodes_not_shown: {description: The number of GPU nodes that are omitted because of O(limit)., type: int, returned: when the cluster is reachable, sample:
      0}
    pools:
      description:
        - The declaration of each pool, with the name of the pool as the key. C(nodegroup) is null if the pool has no node group.
        - C(gpu_layouts) lists the MIG layouts of the pool's GPUs, with the placement of the devices on the memory slices. If no node of the pool is known
          yet, C(gpus) is null in these layouts.
        - If the cluster was read, each entry also contains the actual state of the pool (C(nodes), C(models), C(gpus)). In this case, the amounts C(expected)
          and C(allocatable) are also returned, in total and for each of the pool's C(resources). The following keys show how the pool differs from its
          declaration - C(drift) (up to 5 sentences), C(drifted_nodes) (the number of such nodes), C(as_declared), and C(changes) (the changes that a run
          would make).
        - C(validation) describes the last validation by workloads. Its C(status) is V(verified) or V(failed). If the validation failed, C(problems) and
          C(time) are also returned. C(current) is true if the pool has not changed since the validation.
        - With O(include_impact), C(impact) contains the effects of a run on the pool, as numbers of nodes and pods.
      type: dict
      returned: when O(gpu_pools) is set
      contains:
        NAME:
          description: 'The entry for one pool, with its name as the key.'
          type: dict
          returned: always
          contains:
            model: {description: The declared model; null if the pool declares none., type: str, returned: always, sample: T4}
            nodegroup:
              description: The node group; null if there is none.
              type: dict
              returned: always
              contains:
                name: {description: Name of the group., type: str, returned: always, sample: train}
                flavor: {description: Flavor of the nodes., type: str, returned: always, sample: g4.p4.40g}
                size: {description: 'The number of nodes in the group, or the range of this number.', type: str, returned: always, sample: '2'}
                may_be_empty: {description: 'Whether the group may have no nodes, for example because an autoscaler scales it from zero.', type: bool,
                  returned: always, sample: false}
            match_labels: {description: The labels that select the nodes of the pool., type: dict, returned: always, sample: {}}
            mode: {description: The sharing mode., type: str, returned: always, sample: time-slicing}
            replicas: {description: Number of shares of each GPU., type: int, returned: always, sample: 4}
            layout:
              description: The declared MIG layout.
              type: list
              elements: dict
              returned: always
              contains:
                devices: {description: Indexes of the GPUs; empty if the entry applies to all GPUs., type: list, elements: int, returned: always, sample: []}
                profiles: {description: Number of devices by profile., type: dict, returned: always, sample: {3g.40gb: 2}}
            demand: {description: 'The declared C(sharing.demand), which is the number of devices by profile.', type: dict, returned: always, sample: {}}
            gpu_layouts:
              description: The MIG layouts of the pool's GPUs.
              type: list
              elements: dict
              returned: always
              contains:
                gpus: {description: Number of GPUs with this layout; null while no node is known., type: int, returned: always, sample: 2}
                profiles: {description: Number of devices by profile., type: dict, returned: always, sample: {7g.80gb: 1}}
                slices: {description: Number of memory slices of the GPU., type: int, returned: always, sample: 8}
                devices:
                  description: The placement of the devices.
                  type: list
                  elements: dict
                  returned: always
                  contains:
                    profile: {description: MIG profile., type: str, returned: always, sample: 7g.80gb}
                    start: {description: 'First memory slice, counted from 0.', type: int, returned: always, sample: 0}
                    size: {description: Number of memory slices., type: int, returned: always, sample: 8}
                unused:
                  description: The slices and media engines that no device uses; empty if the devices do not fit.
                  type: dict
                  returned: always
                  contains:
                    compute: {description: Compute slices., type: int, returned: always, sample: 0}
                    memory: {description: Memory slices., type: int, returned: always, sample: 0}
                    media: {description: Whether no device uses the media engines that exist only once on a GPU., type: bool,
                      returned: always, sample: false}
            gpus_per_node: {description: Number of GPUs on each node; null if the pool declares none., type: int, returned: always, sample: 1}
            driver: {description: The declared driver; null if there is none., type: dict, returned: always, sample: null}
            shares_per_gpu: {description: Number of devices that are advertised for each GPU; null if the number differs between GPUs., type: int, returned:
              always, sample: 4}
            memory_mib_per_share: {description: Memory of one device in MiB; null if the size is not known., type: int, returned: always, sample: 3840}
            models: {description: Models of the pool's GPUs., type: list, elements: str, returned: if the cluster was read, sample: [Tesla-T4]}
            nodes: {description: Number of nodes in the pool., type: int, returned: if the cluster was read, sample: 2}
            gpus: {description: Number of GPUs in the pool., type: int, returned: if the cluster was read, sample: 2}
            resource: {description: The main resource that the pool provides., type: str, returned: always, sample: nvidia.com/gpu}
            expected: {description: The declared number of devices., type: int, returned: if the cluster was read, sample: 8}
            allocatable: {description: The number of devices that the pool's nodes advertise., type: int, returned: if the cluster was read, sample: 8}
            resources:
              description: The counts C(expected) and C(allocatable) for each resource.
              type: dict
              returned: if the cluster was read
              contains:
                NAME:
                  description: 'The entry for one resource, with its name as the key.'
                  type: dict
                  returned: always
                  contains:
                    expected: {description: The declared number of devices., type: int, returned: always, sample: 8}
                    allocatable: {description: The number of devices that the pool's nodes advertise., type: int, returned: always, sample: 8}
            changes:
              description: The changes that a run would make; empty if there are none.
              type: dict
              returned: if the cluster was read
              contains:
                nodes: {description: Number of nodes that change., type: int, returned: always, sample: 1}
                joining: {description: Number of nodes that join the pool., type: int, returned: always, sample: 0}
                switched_from: {description: 'Number of nodes whose sharing changes, by current mode.', type: dict, returned: always, sample: {none: 1}}
                labels: {description: Labels to set., type: list, elements: str, returned: always, sample: []}
                removed_labels: {description: Labels to remove., type: list, elements: str, returned: always, sample: []}
                annotations:
                  description: Annotations to set, except this collection's own annotations.
                  type: list
                  elements: str
                  returned: always
                  sample: []
                removed_annotations: {description: Annotations to remove., type: list, elements: str, returned: always, sample: []}
                taints: {description: Taints to set., type: list, elements: str, returned: always, sample: []}
                removed_taints: {description: Taints to remove., type: list, elements: str, returned: always, sample: []}
            drift: {description: Up to 5 differences from the declaration., type: list, elements: str, returned: if the
              cluster was read, sample: ['t4-1 (pool notebooks): label nvidia.com/gpu.replicas is 1, but 4 is expected']}
            drifted_nodes: {description: Number of nodes that differ from the declaration., type: int, returned: if the cluster was read, sample: 1}
            as_declared: {description: Whether all nodes match the declaration., type: bool, returned: if the cluster was read, sample: false}
            validation:
              description: The last validation by workloads.
              type: dict
              returned: if the pool was validated
              contains:
                status: {description: V(verified) or V(failed)., type: str, returned: always, sample: verified}
                node: {description: The node on which the validation pods ran., type: str, returned: always, sample: t4-1}
                devices: {description: Number of pods by device UUID., type: dict, returned: always, sample: {}}
                problems: {description: The problems that the validation found., type: list, elements: str, returned: if the validation failed, sample: [the
                  kernel failed]}
                time: {description: The time of the validation., type: str, returned: if the validation failed, sample: '2026-08-01T09:00:00Z'}
                current: {description: Whether the pool is unchanged since the validation., type: bool, returned: always, sample: true}
                in_pool: {description: Whether the node of the validation still belongs to the pool., type: bool, returned: always, sample: true}
                image: {description: Image of the validation pods., type: str, returned: if validation pods have run,
                  sample: 'nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0'}
                kernel: {description: The result of the CUDA kernel. V(passed) or V(failed)., type: str, returned: if the kernel has run, sample: passed}
                one_more: {description: The result of a test with one more pod than shares. V(waited) is expected., type: str, returned: if this was tested,
                  sample: waited}
                two_shares: {description: The result of a request for two shares. V(refused) is expected., type: str, returned: if this was tested, sample:
                  refused}
                load: {description: The result of the load test., type: dict, returned: if the load test has run, sample: {seconds: 30,
                  min_gflops: 7900, max_gflops: 8010}}
                all_reduce: {description: The result of the NCCL test on one node., type: dict, returned: if the test was requested, sample: {
                  nodes: [a100-1], gpus: 8, bus_bandwidth: 360.5}}
                network_all_reduce: {description: The result of the NCCL test on several nodes., type: dict, returned: if the test was requested, sample:
                  {nodes: [a100-1, a100-2], gpus: 16, bus_bandwidth: 180.2}}
            impact:
              description: The effects of a run on the pool.
              type: dict
              returned: with O(include_impact)
              contains:
                driver_restarts: {description: Number of nodes on which the driver restarts., type: int, returned: always, sample: 0}
                pods: {description: Number of pods that lose a GPU., type: int, returned: always, sample: 0}
                operand_pods: {description: Number of NVIDIA pods that restart., type: int, returned: always, sample: 0}
                repartitioned_nodes: {description: Number of nodes whose MIG layout changes., type: int, returned: always, sample: 0}
                resets: {description: Number of repartitioned nodes whose GPUs are reset or that may need a reboot., type: int,
                  returned: always, sample: 0}
    impact:
      description:
        - The sum of the C(impact) of all nodes, including nodes without a pool.
        - C(reasons) lists the reasons for driver restarts. C(max_parallel) is the maximum number of simultaneous restarts (V(0) if drivers restart only when
          their pods are deleted).
        - C(at_once) is true if the operator deletes all driver pods at the same time.
        - C(release) contains the operator's installed and desired versions, or is null if there is no upgrade. C(held_back) is true if only the driver
          restarts are held back until O(accel.gpu.cluster_policy#module:allow_driver_rollout) is set. C(allowed) is the value of O(allow_driver_rollout).
        - C(in_place) is true if the driver pods restart on cordoned nodes while the driver stays loaded, so that no GPU pod is evicted.
        - C(upgrade) is null if a run does not change the operator's Helm release. Otherwise, its C(refusals) lists the errors that would cause the upgrade to
          fail, each with the C(code) and C(message) that M(accel.gpu.helm_release) would return. C(problem) is the reason why the refusals are unknown, for
          example because the chart cannot be fetched. C(values) lists up to 100 Helm values that change.
        - C(disabled) lists the operands that a run disables.
        - C(workloads) lists up to 100 workloads with pods on changed nodes that no node can run after the changes.
      type: dict
      returned: when O(include_impact) is true and the cluster is reachable
      contains:
        driver_restarts: {description: Number of nodes on which the driver restarts., type: int, returned: always, sample: 0}
        pods: {description: Number of pods that lose a GPU., type: int, returned: always, sample: 0}
        operand_pods: {description: Number of NVIDIA pods that restart., type: int, returned: always, sample: 0}
        repartitioned_nodes: {description: Number of nodes whose MIG layout changes., type: int, returned: always, sample: 0}
        resets: {description: Number of repartitioned nodes whose GPUs are reset or that may need a reboot., type: int, returned: always, sample: 0}
        reasons: {description: Reasons for driver restarts., type: list, elements: str, returned: always, sample: []}
        max_parallel: {description: The maximum number of simultaneous restarts; V(0) if drivers restart only when their
          pods are deleted., type: int, returned: always, sample: 1}
        at_once: {description: Whether the operator deletes all driver pods at the same time., type: bool, returned: always, sample: false}
        in_place: {description: 'Whether the driver stays loaded during the restart, so that no GPU pod is evicted.', type: bool,
          returned: always, sample: false}
        release:
          description: Versions of the operator; null if there is no upgrade.
          type: dict
          returned: always
          contains:
            installed: {description: The installed version., type: str, returned: always, sample: v25.3.2}
            desired: {description: The desired version., type: str, returned: always, sample: v25.10.1}
        held_back: {description: 'Whether only the driver restarts are held back until O(accel.gpu.cluster_policy#module:allow_driver_rollout) is set.',
          type: bool, returned: always, sample: false}
        allowed: {description: The value of O(allow_driver_rollout)., type: bool, returned: always, sample: false}
        workloads:
          description: Up to 100 workloads that no node can run after the changes, because they select a label or request a resource that no longer exists.
          type: list
          elements: dict
          returned: always
          contains:
            owner: {description: 'The kind, namespace and name of the workload.', type: str, returned: always, sample: Deployment team/serve}
            field: {description: The field of the pod that fits no node., type: str, returned: always, sample: 'spec.nodeSelector[nvidia.com/gpu.product]'}
            value: {description: The value of the field., type: str, returned: always, sample: Tesla-T4}
            fitting: {description: The value with which the workload fits again; empty if it is not known., type: str, returned: always,
              sample: Tesla-T4-SHARED}
        refused_evictions:
          description: Up to 100 pods to evict whose PodDisruptionBudgets do not allow an eviction now. The budgets are read only if the changes evict pods.
          type: list
          elements: dict
          returned: always
          contains:
            pod: {description: Namespace and name of the pod., type: str, returned: always, sample: ml/web-0}
            node: {description: The node of the pod., type: str, returned: always, sample: t4-1}
            budgets: {description: Namespace and name of each budget that selects the pod., type: list, elements: str, returned: always, sample: [ml/web]}
            reason: {description: The reason why the API server refuses the eviction., type: str, returned: always,
              sample: needs 1 healthy pod and has 1}
            by: {description: V(operator) if the GPU operator evicts the pod before it replaces the driver., type: str, returned: for such pods,
              sample: operator}
        disabled:
          description: The operands that run now and that the operator's values disable.
          type: list
          elements: dict
          returned: always
          contains:
            field: {description: The field of the ClusterPolicy., type: str, returned: always, sample: spec.dcgmExporter.enabled}
            effect: {description: The effect on the nodes., type: str, returned: always, sample: metrics of the GPUs are no longer collected}
        upgrade:
          description: The errors that would cause the upgrade to fail; null if a run does not change the operator's Helm release.
          type: dict
          returned: always
          contains:
            refusals:
              description: The errors that would cause the upgrade to fail.
              type: list
              elements: dict
              returned: always
              contains:
                code: {description: The C(code) that M(accel.gpu.helm_release) would return., type: str, returned: always, sample: schema}
                message: {description: The error message., type: str, returned: always, sample: The chart rejects the values.}
            problem: {description: The reason why the refusals are unknown., type: str, returned: always, sample: ''}
            values:
              description: Up to 100 Helm values that change.
              type: list
              elements: dict
              returned: always
              contains:
                path: {description: The path of the value., type: str, returned: always, sample: devicePlugin.enabled}
                before: {description: The value before the run; null if it is not set., type: raw, returned: if the value is not confidential, sample: true}
                after: {description: The value after the run; null if it is not set., type: raw, returned: if the value is not confidential, sample: false}
    autoscaling:
      description:
        - Whether OpenShift's cluster autoscaler scales the pools from zero, by C(pool) and C(machine_set). C(version) is the OpenShift version, and
          C(not_read) lists the objects that could not be read.
        - C(scales) is null if the answer is not known. C(scales_after_run) is the predicted value after a run of the playbook C(site). C(exists) indicates
          whether the MachineSet exists, and C(declared) whether the pool has C(autoscale). The other keys contain the values that the autoscaler reads.
        - Each of the C(findings) has a C(code), a C(message), a C(remedy) and an C(effect). The effect is V(no_pod) (no node is added for any pod),
          V(some_pods) (no node is added for pods that select nodes by this C(label) or request this resource) or V(note). C(now) and C(after_run) indicate
          whether the finding applies now and after a run of the playbook C(site).
      type: dict
      returned: when O(gpu_pools) is set and the cluster is OpenShift, unless another cloud creates the nodes
      contains:
        version: {description: Version of OpenShift., type: str, returned: always, sample: 4.18.14}
        not_read: {description: Objects that could not be read., type: list, elements: str, returned: always, sample: []}
        machine_sets:
          description: The MachineSets of the pools.
          type: list
          elements: dict
          returned: always
          contains:
            pool: {description: Pool of the MachineSet., type: str, returned: always, sample: t4}
            machine_set: {description: Name of the MachineSet., type: str, returned: always, sample: t4}
            exists: {description: Whether the MachineSet exists., type: bool, returned: always, sample: true}
            declared: {description: Whether the pool has C(autoscale)., type: bool, returned: always, sample: true}
            scales: {description: Whether a pending pod causes a node to be added; null if the answer is not known., type: bool, returned: always, sample:
              false}
            scales_after_run: {description: The predicted value of C(scales) after a run of the playbook C(site)., type: bool, returned: always, sample: true}
            min: {description: Minimum number of nodes; null if the autoscaler does not scale the MachineSet., type: int, returned: always, sample: 0}
            max: {description: Maximum number of nodes; null if the autoscaler does not scale the MachineSet., type: int, returned: always, sample: 4}
            min_after_run: {description: The predicted value of C(min) after a run of the playbook C(site)., type: int, returned: always, sample: 0}
            max_after_run: {description: The predicted value of C(max) after a run of the playbook C(site)., type: int, returned: always, sample: 4}
            resources: {description: Resources that the autoscaler expects a new node to have., type: dict, returned: always, sample: {nvidia.com/gpu: 4}}
            taints: {description: Taints that the autoscaler expects a new node to have., type: list, elements: str, returned: always, sample: []}
            accelerator: {description: The label C(cluster-api/accelerator) of a new node., type: str, returned: always, sample: Tesla-T4-SHARED}
            gpu_limit:
              description: The limit of the ClusterAutoscaler for this GPU type; null if there is none.
              type: dict
              returned: always
              contains:
                used: {description: Number of GPUs in use., type: int, returned: always, sample: 0}
                max: {description: Maximum number of GPUs., type: int, returned: always, sample: 16}
            gpu_limit_after_run:
              description: The predicted value of C(gpu_limit) after a run of the playbook C(site).
              type: dict
              returned: always
              contains:
                used: {description: Number of GPUs in use., type: int, returned: always, sample: 0}
                max: {description: Maximum number of GPUs., type: int, returned: always, sample: 16}
            findings:
              description: The findings about the MachineSet.
              type: list
              elements: dict
              returned: always
              contains:
                code: {description: Kind of finding., type: str, returned: always, sample: maximum}
                effect: {description: 'V(no_pod), V(some_pods) or V(note).', type: str, returned: always, sample: no_pod}
                message: {description: 'The finding, in one sentence.', type: str, returned: always, sample: MachineSet t4 has 4 of at most 4 nodes}
                remedy: {description: The action that resolves the finding., type: str, returned: always, sample: raise it}
                label: {description: 'The label by which the affected pods select nodes, or the resource that they request.', type: str, returned: always,
                  sample: ''}
                now: {description: Whether the finding applies now., type: bool, returned: always, sample: true}
                after_run: {description: Whether the finding applies after a run of the playbook C(site)., type: bool, returned: always, sample: false}
    warnings:
      description:
        - Warnings of one sentence each, about nodes, pools, drivers, unknown models, unknown releases or known issues.
      type: list
      elements: str
      returned: when O(gpu_pools) is set
      sample: ["No node of the cluster belongs to: train."]
    drift:
      description: Up to 100 differences from the declaration.
      type: list
      elements: dict
      returned: when O(gpu_pools) is set and the cluster is reachable
      contains:
        pool: {description: Name of the pool., type: str, returned: always, sample: notebooks}
        message: {description: The difference., type: str, returned: always, sample: 1 node(s) have labels or taints that differ from the declaration}
    releases:
      description:
        - C(nfd) and C(operator) describe the two components as O(gpu_cluster) declares them, each with C(version), C(installer), C(namespace) and C(release).
          With OLM, both also contain the settings of the Subscription.
        - C(operator) also contains the declared or detected C(distribution) and, in C(toolkit_env), the environment variables of the container toolkit for
          this distribution.
      type: dict
      returned: when O(gpu_pools) is set
      contains:
        nfd:
          description: Node Feature Discovery.
          type: dict
          returned: always
          contains:
            version: {description: The declared version; empty if the channel determines the version., type: str, returned: always,
              sample: v25.10.1}
            installer: {description: V(helm) or V(olm)., type: str, returned: always, sample: helm}
            release: {description: Name of the Helm release., type: str, returned: always, sample: gpu-operator}
            namespace: {description: Namespace of the component., type: str, returned: always, sample: gpu-operator}
            package: {description: Package of the Subscription., type: str, returned: with OLM, sample: gpu-operator-certified}
            channel: {description: The declared channel; empty if there is none., type: str, returned: with OLM, sample: v25.10}
            source: {description: Names of the CatalogSources., type: list, elements: str, returned: with OLM, sample: [certified-operators]}
        operator:
          description: The GPU operator.
          type: dict
          returned: always
          contains:
            version: {description: The declared version; empty if the channel determines the version., type: str, returned: always,
              sample: v25.10.1}
            installer: {description: V(helm) or V(olm)., type: str, returned: always, sample: helm}
            release: {description: Name of the Helm release., type: str, returned: always, sample: gpu-operator}
            namespace: {description: Namespace of the component., type: str, returned: always, sample: gpu-operator}
            package: {description: Package of the Subscription., type: str, returned: with OLM, sample: gpu-operator-certified}
            channel: {description: The declared channel; empty if there is none., type: str, returned: with OLM, sample: v25.10}
            source: {description: Names of the CatalogSources., type: list, elements: str, returned: with OLM, sample: [certified-operators]}
            distribution: {description: The declared or detected distribution; empty if the distribution is not known., type: str,
              returned: always, sample: kubeadm}
            toolkit_env:
              description: Environment variables of the container toolkit for this distribution.
              type: list
              elements: dict
              returned: always
              contains:
                name: {description: Name of the variable., type: str, returned: always, sample: CONTAINERD_SOCKET}
                value: {description: Value of the variable., type: str, returned: always, sample: /run/k3s/containerd/containerd.sock}
    tolerations:
      description: The changes that a run would make to tolerations, with one entry for each changed object.
      type: list
      elements: dict
      returned: when the cluster is reachable
      contains:
        object: {description: The object that changes., type: str, returned: always, sample: ClusterPolicy x}
        adds: {description: Tolerations that a run adds., type: list, elements: str, returned: always, sample: ['a:NoSchedule']}
        removes: {description: Tolerations that a run removes., type: list, elements: str, returned: always, sample: []}
        restarts: {description: The pods that this change restarts., type: str, returned: always, sample: NFD}
    installed:
      description: C(nfd) and C(operator) have the same content as in RV(accel.gpu.operator_info#module:operator_info). C(changes) contains the changes to OLM
        objects and to fields of the ClusterPolicy.
      type: dict
      sample: {nfd: {found: true, managed: true}, operator: {found: true, managed: true}}
      returned: when O(gpu_pools) is set and the cluster is reachable
    nvidia_drivers:
      description: The NVIDIADriver objects, each with its number of nodes. C(managed) is true for objects that belong to pools.
      type: list
      elements: dict
      returned: if the operator uses NVIDIADriver objects, or a pool declares C(driver)
      contains:
        name: {description: Name of the object., type: str, returned: always, sample: accel-gpu-train}
        managed: {description: Whether the object belongs to a pool., type: bool, returned: always, sample: true}
        pool: {description: Name of the pool to which the object belongs., type: str, returned: always, sample: train}
        default: {description: Whether this is the default object., type: bool, returned: always, sample: false}
        version: {description: Version of the driver., type: str, returned: always, sample: 570.148.08}
        nodes: {description: Number of nodes that use the object., type: int, returned: always, sample: 2}
        state: {description: The state that the operator reports., type: str, returned: always, sample: ready}
        message: {description: The message that the operator reports., type: str, returned: always, sample: ''}
    steps:
      description: The changes to up to 100 nodes, in the same form as in RV(accel.gpu.gpu_sharing#module:gpu_sharing).
      type: dict
      returned: when O(include_impact) is true and the cluster is reachable
      contains:
        NAME:
          description: 'The entry for one node, with its name as the key.'
          type: dict
          returned: always
          contains:
            pool: {description: Pool of the node; null if it is released., type: str, returned: always, sample: notebooks}
            change: {description: 'Kind of change. V(labels), V(plugin), V(mig-geometry) or V(mig-mode).', type: str,
              returned: always, sample: plugin}
            evicts: {description: The pods that the change evicts., type: list, elements: str, returned: always, sample: []}
            reboot: {description: Whether the node reboots. V(no) or V(may)., type: str, returned: always, sample: 'no'}
            released_from: {description: The former pool of a released node., type: str, returned: if the node is released, sample: train}
            blocked_by: {description: Pods that prevent the change and that no drain evicts., type: list, elements: str,
              returned: if there are any, sample: [team/job-1]}
            stops: {description: NVIDIA pods that are stopped during the change., type: list, elements: str, returned: if
              there are any, sample: [gpu-operator/nvidia-dcgm-x7k2p]}
            possible_holders: {description: 'Pods that may have a device file open, with the reason.', type: list, elements: str,
              returned: if there are any, sample: [team/agent-1 (privileged)]}
    unusual_nodes:
      description: GPU nodes for which a run does not wait, in the same form as in RV(accel.gpu.gpu_sharing#module:gpu_sharing).
      type: list
      elements: dict
      returned: when O(gpu_pools) is set and the cluster is reachable
      contains:
        name: {description: Name of the node., type: str, returned: always, sample: gpu-7}
        reason: {description: 'The failing pod and the cause, or the label that prevents discovery.', type: str, returned: always,
          sample: 'pod nvidia-driver-daemonset-x7k2p fails: CrashLoopBackOff'}
    undiscovered:
      description: Up to 100 GPU nodes without labels from gpu-feature-discovery. With O(gpu_pools), nodes in C(unusual_nodes) are not included.
      type: list
      elements: str
      returned: when the cluster is reachable
      sample: [t4-4]
    overlaps:
      {description: Nodes that several pools match., type: dict, returned: when O(gpu_pools) is set and the cluster is reachable, sample: {t4-5: [a, b]}}
    released: {description: Nodes that no longer belong to a pool but still have labels or taints of a pool., type: list, elements: str,
      returned: when O(gpu_pools) is set and the cluster is reachable, sample: [t4-6]}
    release:
      description:
        - C(pools) contains the number of nodes that are released from each pool, and C(nodes) contains the previous pools of up to 100 of these nodes. With
          O(include_impact), C(pods) lists the pods that are evicted.
        - C(unshared) contains, for each pool, the number of nodes whose GPUs would no longer be shared or that would lose a foreign configuration of the
          device plugin, even though no variable sets C(sharing.mode).
        - C(refusal) is the reason why a run would fail until O(allow_release) allows the release or C(sharing.mode) is set. It is empty if the run would not
          fail.
      type: dict
      returned: when O(gpu_pools) is set and the cluster is reachable
      contains:
        pools: {description: Number of released nodes by their previous pool., type: dict, returned: always, sample: {old: 1}}
        nodes: {description: The previous pools of up to 100 nodes., type: dict, returned: always, sample: {t4-6: old}}
        pods: {description: Pods that are evicted. Empty without O(include_impact)., type: list, elements: str, returned: always, sample: []}
        unshared: {description: 'Number of nodes, by pool, whose GPUs would no longer be shared or that would lose a foreign configuration of the device
          plugin, even though no variable sets C(sharing.mode).', type: dict, returned: always, sample: {}}
        refusal: {description: The reason why a run would fail; empty if the run would not fail., type: str, returned: always, sample: ''}
    unclaimed:
      {description: Up to 100 GPU nodes that belong to no pool., type: list, elements: str, returned: when O(gpu_pools) is set and the cluster is reachable,
        sample: [a10-1]}
code:
  description:
    - The reason for the failure.
    - V(invalid) - errors in the options or variables. V(wrong_cluster) - the connection points to a different cluster. V(connection) - no usable connection
      settings. V(unreachable) - the API server does not respond. For all other errors of the API server, the code is the HTTP status.
  returned: failure
  type: raw
  sample: connection
details:
  description:
    - Details of the failure. C(problems) lists all errors in the options or variables. C(reason), C(method) and C(path) describe the failed request.
  returned: failure
  type: dict
  sample: {problems: ["gpu_pools[0].sharing.replicas: 1 is not allowed: sharing needs at least 2"]}
"""

import functools
import typing as t

from ..module_utils.catalog.names import LIVE_PODS
from ..module_utils.clouds.machineset_groups import ask_vcenter, machine_sets_after, machine_warnings
from ..module_utils.core.errors import ConnectionProblem
from ..module_utils.core.messages import MAX_LISTED
from ..module_utils.core.types import is_blank
from ..module_utils.core.values import get_nested
from ..module_utils.gpu_operator.cluster_policy_client import add_driver_objects
from ..module_utils.gpu_operator.detect import (
    adapt_finding,
    cluster_conditions,
    detect,
    driver_warnings,
    known_openshift_version,
    object_conditions,
    with_settings,
)
from ..module_utils.gpu_operator.restart_preview import preview_restarts
from ..module_utils.gpu_operator.upgrade import HelmTools, preview_upgrade_of_site
from ..module_utils.kube.errors import ApiError
from ..module_utils.kube.lease import identity_report
from ..module_utils.kube.paths import NODES, PODS
from ..module_utils.nodegroups.autoscaling import add_scaling
from ..module_utils.nodes.impact import total_impact
from ..module_utils.nodes.node import Node, parse_node
from ..module_utils.nodes.node_check import NodeDrift
from ..module_utils.nodes.node_metadata import read_reverted
from ..module_utils.nodes.pods import gpu_requests
from ..module_utils.pools.derive import needs_pods, plan_warnings
from ..module_utils.pools.module import PlanModule
from ..module_utils.report.data import (
    add_installation,
    cluster_result,
    declared_pool,
    declared_releases,
    drift_entries,
    node_results,
    pool_findings,
    pool_results,
)
from ..module_utils.sharing.operation import (
    Overview,
    Pods,
    PoolReader,
    add_nodes,
    add_pool_facts,
    impact_preview,
    layouts_lost_by_releases,
    read_refused_evictions,
)
from ..module_utils.sharing.operation import overview as compare
from ..module_utils.validation.evaluation import validated_pools
from ..module_utils.vsphere.connection import VCENTER

# Functions that read facts about pools from objects other than nodes. The keys are those of the facts in `pools` of the result.
_POOL_READERS: dict[str, PoolReader] = {"validation": validated_pools}


def work(module: PlanModule) -> dict[str, t.Any]:
    """List the nodes and compare them with the pools."""
    info: dict[str, t.Any] = {"cluster": (module.params["gpu_cluster"] or {}).get("name")}
    if module.params["gpu_pools"] is not None:
        # Invalid variables cause a failure before the cluster is contacted.
        info["pools"] = {pool.name: declared_pool(pool) for pool in module.plan.pools}
        info["releases"] = declared_releases(module.plan)
        # The release of an adopted operator may differ from the default.
        version_known = not is_blank(get_nested(module.params["gpu_cluster"], "operator", "version"))
        info["warnings"] = plan_warnings(module.plan, version_known=version_known)
    try:
        nodes = [parse_node(raw) for raw in module.client.list(NODES)]
    except (ApiError, ConnectionProblem) as error:
        reason = module.explain_error(error) if isinstance(error, ApiError) else str(error)
        unreachable = isinstance(error, ConnectionProblem) or error.unreachable
        if not (unreachable and module.params["allow_unreachable"]):
            raise
        return {"changed": False, "gpu_info": {**info, "reachable": False, "reason": reason}}
    info["cluster"] = info["cluster"] or module.client.connection.cluster_name or module.client.connection.server
    info.update(reachable=True, identity=identity_report(module.client, module.identity))
    info["undiscovered"] = [node.name for node in nodes if node.has_gpu and not node.discovered][:MAX_LISTED]
    list_pods = functools.cache(lambda: list(module.client.list(PODS, field_selector=LIVE_PODS)))
    requests = gpu_requests(list_pods()) if module.params["include_workloads"] else None
    if module.params["gpu_pools"] is None:
        results = node_results(nodes, (), None, requests=requests)
    else:
        overview, findings = _compare(module, nodes, list_pods, info)
        results = node_results(
            nodes, overview.plan.pools, overview.membership, findings, overview.changes.edits, requests
        )
    limit = module.params["limit"]
    info.update(cluster_result(nodes, results))
    info.update(nodes=results[:limit], nodes_not_shown=max(0, len(results) - limit))
    return {"changed": False, "gpu_info": info}


def _compare(
    module: PlanModule, nodes: list[Node], list_pods: t.Callable[[], Pods], info: dict[str, t.Any]
) -> tuple[Overview, dict[str, NodeDrift]]:
    """Add the comparison with the pools and, if requested, the impact of changes to the result. Return the overview and the differences by node."""
    client, detection = module.client, detect(module.client, module.plan)
    operator, settings = adapt_finding(client, module.plan, detection.findings["operator"], detection.policy, nodes)
    reads_pods = module.params["include_workloads"] or module.params["include_impact"]
    overview = compare(client, detection.plan, nodes, list_pods if reads_pods else None)
    plan, membership, changes = overview.plan, overview.membership, overview.changes
    add_installation(client, detection, operator, settings, info)
    findings = pool_findings(nodes, plan.pools, membership)
    info["pools"] = pool_results(overview.allocation, nodes, membership, findings, changes.edits, overview.geometries)
    unread = add_pool_facts(client, overview, nodes, _POOL_READERS, info["pools"])
    info["drift"] = drift_entries(info["pools"])
    pods = list_pods() if reads_pods and needs_pods(plan) else ()
    conditions = cluster_conditions(nodes, pods) | object_conditions(client, detection.policy)
    known = not (operator.adopted and operator.installation and not operator.installation.version)
    rules = add_scaling(client, plan, nodes, info, machine_sets_after)
    openshift = known_openshift_version(client, plan, conditions)
    warnings = plan_warnings(plan, conditions, version_known=known, autoscaler=rules, openshift_version=openshift)
    drivers = [] if operator.adopted else driver_warnings(plan, nodes)
    effects = [
        *machine_warnings(client, plan, functools.partial(ask_vcenter, module)),
        *read_reverted(client, changes.edits),
        *layouts_lost_by_releases(changes, {node.name: node for node in nodes}),
    ]
    info["warnings"] = [*warnings, *drivers, *overview.warnings, *effects, *unread]
    listed = module.params["include_workloads"] or (module.params["include_impact"] and changes.edits)
    add_nodes(client, overview, nodes, info, list_pods() if listed else None)
    objects = add_driver_objects(client, plan, detection.policy, nodes, info)
    if module.params["include_impact"]:
        restarts = preview_restarts(client, plan, detection.policy, objects)
        pods = list_pods() if changes.edits or restarts.restart.any else []
        counts, changes, by_operator = impact_preview(client, overview, nodes, restarts.restart, pods)
        for name, pool in info["pools"].items():
            pool["impact"] = counts[name]
        allow = module.params["allow_driver_rollout"]
        tools = HelmTools(module.params["binary_path"], module.get_bin_path, module.run_command, module.tmpdir)
        plan = with_settings(module.plan, settings)
        upgrade = preview_upgrade_of_site(client, plan, operator, tools, allowed=allow)
        info["impact"] = restarts.as_dict(total_impact(counts.values()), allowed=allow)
        info["impact"]["upgrade"] = upgrade.as_dict() if upgrade else None
        info["impact"]["workloads"] = [workload.as_dict() for workload in changes.unfit]
        held_back = info["impact"]["held_back"]
        refused, notes = read_refused_evictions(client, changes, {} if held_back else by_operator)
        info["impact"]["refused_evictions"] = refused
        info["warnings"] += [] if refused else notes
        info["steps"] = {change.node: change.as_dict() for change in changes.node_changes[:MAX_LISTED]}
    allowed = frozenset(module.params["allow_release"])
    info["release"] = changes.releases.as_dict(allowed, MAX_LISTED)
    return overview, findings


def main() -> None:
    """Run the module."""
    spec: dict[str, dict[str, t.Any]] = {
        **VCENTER,
        "limit": {"type": "int", "default": 100},
        "include_workloads": {"type": "bool", "default": False},
        "include_impact": {"type": "bool", "default": False},
        "allow_driver_rollout": {"type": "bool", "default": False},
        "binary_path": {"type": "path"},
        "allow_release": {"type": "list", "elements": "str", "default": []},
        "allow_unreachable": {"type": "bool", "default": False},
    }
    PlanModule(spec).run(work)


if __name__ == "__main__":
    main()
